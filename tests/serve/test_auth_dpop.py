"""Tokens that are bound to a key: who may use them, and which proofs count (RFC 9449)."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.serve.exchanges import Answer, call, exchange, handshake
from tests.serve.offered import doing_server
from tests.serve.serving import served_http
from toolweave.serve import BearerAuth, Dpop, Identity
from toolweave.state import MemoryStore

MINE = ec.generate_private_key(ec.SECP256R1())
OTHERS = ec.generate_private_key(ec.SECP256R1())
OF_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)
BOUND = "bound-0123456789abcdef"
FREE = "free-0123456789abcdef"


def jwk(key: Any) -> dict[str, Any]:
    made = RSAAlgorithm.to_jwk(key) if isinstance(key, rsa.RSAPublicKey) else ECAlgorithm.to_jwk(key)
    public = json.loads(made)
    return {name: public[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in public}


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def thumbprint(key: Any) -> str:
    return encoded(
        hashlib.sha256(json.dumps(jwk(key.public_key()), sort_keys=True, separators=(",", ":")).encode()).digest()
    )


def proof(url: str, *, key: Any = MINE, token: str = BOUND, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """Return a proof for a POST; a claim that is None is left out."""
    said = {
        "jti": uuid4().hex,
        "htm": "POST",
        "htu": url,
        "iat": int(time.time()),
        "ath": encoded(hashlib.sha256(token.encode()).digest()),
        **claims,
    }
    head: dict[str, Any] = {"typ": "dpop+jwt", "jwk": jwk(key.public_key()), **(header or {})}
    algorithm = head.pop("alg", "ES256")
    return jwt.encode({name: value for name, value in said.items() if value is not None}, key, algorithm, headers=head)


def verify(token: str) -> Identity | None:
    """Know three tokens."""
    known = {
        BOUND: Identity(client_id="app", key_thumbprint=thumbprint(MINE)),
        "of-rsa-0123456789abcdef": Identity(client_id="app", key_thumbprint=thumbprint(OF_RSA)),
        "of-a-weak-key-0123456789": Identity(client_id="app", key_thumbprint=thumbprint(WEAK)),
        FREE: Identity(client_id="app"),
    }
    return known.get(token)


@asynccontextmanager
async def protected(dpop: Dpop | None = None) -> AsyncGenerator[str]:
    async with served_http(doing_server(), auth=BearerAuth(verify, dpop=dpop)) as url:
        yield url


async def add(url: str, *, scheme: str = "DPoP", token: str = BOUND, **headers: str) -> Answer:
    return await call(url, "add", {"a": 1, "b": 2}, headers={"Authorization": f"{scheme} {token}", **headers})


async def test_a_bound_token_counts_with_a_proof_of_its_key_and_never_alone() -> None:
    async with protected() as url:
        proved = await add(url, DPoP=proof(url))
        alone = await add(url, scheme="Bearer")
        disguised = await add(url, scheme="Bearer", DPoP=proof(url))
        without = await add(url)
        free = await add(url, scheme="Bearer", token=FREE)
        pretended = await add(url, token=FREE, DPoP=proof(url, token=FREE))

    assert (proved.status, free.status) == (200, 200)
    assert [one.status for one in (alone, disguised, without, pretended)] == [401] * 4
    assert alone.headers["www-authenticate"].startswith('DPoP error="invalid_token"')
    assert 'error="invalid_dpop_proof"' in without.headers["www-authenticate"]
    assert 'algs="ES256' in without.headers["www-authenticate"]
    assert BOUND not in repr((alone, disguised, without))


async def test_a_proof_counts_once() -> None:
    async with protected() as url:
        one = proof(url)
        statuses = [(await add(url, DPoP=one)).status for _ in range(3)]

    assert statuses == [200, 401, 401]


async def test_replicas_with_one_store_accept_a_proof_once_between_them() -> None:
    store = MemoryStore()
    async with (
        served_http(doing_server(), auth=BearerAuth(verify, dpop=Dpop(store=store))) as one,
        served_http(doing_server(), auth=BearerAuth(verify, dpop=Dpop(store=store))) as two,
    ):
        shared = "http://127.0.0.1/mcp"
        headers = {"Host": "127.0.0.1", "DPoP": proof(shared)}
        statuses = [(await add(url, **headers)).status for url in (one, two)]

    assert statuses == [200, 401]


def forged(url: str) -> str:
    """Sign with HMAC, the public key in the header as its secret."""
    head = {"typ": "dpop+jwt", "alg": "HS256", "jwk": {"kty": "oct", "k": encoded(b"s" * 32)}}
    claims = {"jti": "1", "htm": "POST", "htu": url, "iat": int(time.time())}
    return jwt.encode(claims, b"s" * 32, "HS256", headers=head)


BAD_PROOFS: list[Callable[[str], str]] = [
    lambda url: proof(url, key=OTHERS),
    lambda url: proof(url, key=OTHERS, header={"jwk": jwk(MINE.public_key())}),
    lambda url: proof(url, header={"typ": "JWT"}),
    lambda url: proof(url, header={"typ": None}),
    lambda url: proof(url, header={"jwk": None}),
    lambda url: proof(url, header={"jwk": "key"}),
    lambda url: proof(url, header={"jwk": {**jwk(MINE.public_key()), "d": "AQAB"}}),
    lambda url: proof(url, header={"jwk": {"kty": "EC", "crv": "P-256", "x": 7, "y": None}}),
    lambda url: proof(url, header={"jwk": {"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}}),
    lambda url: proof(url, header={"crit": ["x"], "x": 1}),
    forged,
    lambda url: proof(url, htm="GET"),
    lambda url: proof(url, htm=None),
    lambda url: proof(url + "/other"),
    lambda url: proof(url.replace("http:", "https:")),
    lambda url: proof("https://evil.example/mcp"),
    lambda url: proof("http://[::1/mcp"),
    lambda url: proof(url, htu=7),
    lambda url: proof(url, iat=int(time.time()) - 3600),
    lambda url: proof(url, iat=int(time.time()) + 3600),
    lambda url: proof(url, iat="now"),
    lambda url: proof(url, iat=None),
    lambda url: proof(url, token=FREE),
    lambda url: proof(url, ath=None),
    lambda url: proof(url, jti=None),
    lambda url: proof(url, jti=""),
    lambda url: proof(url, jti="x" * 513),
    lambda url: proof(url, jti="x" * 9000),
    lambda url: proof(url, more="x" * 9000),
    lambda url: "x.y.z",
    lambda url: "",
]


@pytest.mark.parametrize("make", BAD_PROOFS)
async def test_a_proof_for_anything_else_does_not_count(make: Callable[[str], str]) -> None:
    async with protected() as url:
        answer = await add(url, DPoP=make(url))
        again = await add(url, DPoP=proof(url))

    assert answer.status == 401
    assert 'error="invalid_dpop_proof"' in answer.headers["www-authenticate"]
    assert again.status == 200


async def test_the_url_of_a_proof_has_no_query_and_a_default_port() -> None:
    async with protected() as url:
        asked = await add(url, DPoP=proof(url + "?x=1#y"))
        named = await add(url, Host="localhost", DPoP=proof("HTTP://LocalHost:80/mcp"))

    assert (asked.status, named.status) == (200, 200)


async def test_a_key_of_rsa_proves_too_where_its_algorithm_is_accepted() -> None:
    token = "of-rsa-0123456789abcdef"
    async with protected(Dpop(algorithms=["PS256"])) as url:
        right = await add(url, token=token, DPoP=proof(url, key=OF_RSA, token=token, header={"alg": "PS256"}))
        wrong = await add(url, token=token, DPoP=proof(url, key=OF_RSA, token=token, header={"alg": "RS256"}))

    assert (right.status, wrong.status) == (200, 401)


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")  # of the test, which signs with it
async def test_a_key_of_rsa_of_fewer_than_2048_bits_proves_nothing() -> None:
    tokens = {OF_RSA: "of-rsa-0123456789abcdef", WEAK: "of-a-weak-key-0123456789"}
    async with protected(Dpop(algorithms=["PS256"])) as url:
        answers = [
            await add(url, token=token, DPoP=proof(url, key=key, token=token, header={"alg": "PS256"}))
            for key, token in tokens.items()
        ]

    assert [one.status for one in answers] == [200, 401]
    assert b"too short" in answers[1].body


async def test_two_proofs_are_none() -> None:
    async with protected() as url:
        one = proof(url)
        two = proof(url)
        headers = {"Content-Type": "application/json", "Authorization": f"DPoP {BOUND}", "DPoP": one, "dpop": two}
        answer = await exchange(url, headers=headers, body=b"{}")

    assert answer.status == 401


async def test_a_nonce_of_ours_is_demanded_where_we_say_so() -> None:
    async with protected(Dpop(nonces=True)) as url:
        first = await add(url, DPoP=proof(url))
        made_up = await add(url, DPoP=proof(url, nonce="made-up"))
        nonce = first.headers["dpop-nonce"]
        second = await add(url, DPoP=proof(url, nonce=nonce))

    assert [one.status for one in (first, made_up, second)] == [401, 401, 200]
    assert 'error="use_dpop_nonce"' in first.headers["www-authenticate"]


async def test_a_nonce_that_is_about_to_expire_is_renewed_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected(Dpop(nonces=True, nonce_keys=[b"k" * 32], window_seconds=600)) as url:
        first = await add(url, DPoP=proof(url))
        nonce = first.headers["dpop-nonce"]
        now = time.time()
        monkeypatch.setattr("toolweave.serve._auth.dpop.time.time", lambda: now + 120)
        later = await add(url, DPoP=proof(url, nonce=nonce))
        monkeypatch.setattr("toolweave.serve._auth.dpop.time.time", lambda: now + 360)
        too_late = await add(url, DPoP=proof(url, nonce=nonce))

    assert (later.status, too_late.status) == (200, 401)
    assert later.headers["dpop-nonce"] != nonce


async def test_clients_are_offered_to_send_proofs_or_have_to() -> None:
    options: Any = {"resource": "https://api.example/mcp", "authorization_servers": ["https://login.example"]}
    auth = BearerAuth(verify, dpop=Dpop(required=True, algorithms=["ES256"]), **options)
    async with served_http(doing_server(), auth=auth) as url:
        refused = await exchange(url, headers={"Content-Type": "application/json"}, body=b"{}")
        unbound = await add(url, scheme="Bearer", token=FREE)
        metadata = await exchange(url.removesuffix("/mcp") + "/.well-known/oauth-protected-resource/mcp", "GET")
        proved = await add(url, DPoP=proof("https://api.example/mcp"))

    assert refused.headers["www-authenticate"].startswith("DPoP resource_metadata=")
    assert "error=" not in refused.headers["www-authenticate"]
    assert unbound.status == 401
    assert proved.status == 200
    assert metadata.json()["dpop_signing_alg_values_supported"] == ["ES256"]
    assert metadata.json()["dpop_bound_access_tokens_required"] is True


async def test_a_full_memory_of_proofs_refuses_and_forgets_none() -> None:
    store = MemoryStore(max_documents=1)
    async with served_http(doing_server(), auth=BearerAuth(verify, dpop=Dpop(store=store))) as url:
        one = proof(url)
        statuses = [(await add(url, DPoP=each)).status for each in (one, proof(url), one)]

    assert statuses == [200, 503, 401]


async def test_every_request_of_a_session_needs_a_proof_of_its_own() -> None:
    async with protected() as url:
        headers = {"Authorization": f"DPoP {BOUND}", "DPoP": proof(url)}
        begun, session = await handshake(url, headers)
        body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode()
        replayed = await exchange(url, headers=session, body=body)
        fresh = await exchange(url, headers={**session, "DPoP": proof(url)}, body=body)

    assert (begun.status, replayed.status, fresh.status) == (200, 401, 200)
