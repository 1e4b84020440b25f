"""Where the keys of an issuer come from, how much of them is read, and how often."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm

from tests.connect.targets import eventually
from tests.serve.exchanges import call
from tests.serve.issuer import AUDIENCE, KEY, STRANGER, Page, as_jwk, running_issuer
from tests.serve.offered import doing_server
from tests.serve.serving import served_http
from toolweave.serve import JwtAuth
from toolweave.serve._auth.refusal import IssuerUnavailable

pytestmark = pytest.mark.slow
_PAUSE = "toolweave.serve._auth.issuer_keys.PublishedKeys.PAUSE_SECONDS"
_FRESH = "toolweave.serve._auth.issuer_keys.PublishedKeys.FRESH_SECONDS"


@pytest.mark.parametrize(
    ("path", "well_known"),
    [
        ("", "/.well-known/oauth-authorization-server"),
        ("", "/.well-known/openid-configuration"),
        ("/tenant", "/.well-known/oauth-authorization-server/tenant"),
        ("/tenant", "/.well-known/openid-configuration/tenant"),
        ("/tenant", "/tenant/.well-known/openid-configuration"),
    ],
)
async def test_an_issuer_alone_is_enough_to_find_its_keys(path: str, well_known: str) -> None:
    with running_issuer() as issuer:
        issuer.publish()
        name = issuer.url + path
        issuer.pages = {
            "/keys": issuer.pages["/keys"],
            well_known: Page({"issuer": name, "jwks_uri": f"{issuer.url}/keys"}),
        }
        auth = JwtAuth(issuer=name, audience=AUDIENCE)

        assert await auth.identify(issuer.token(iss=name)) is not None
        assert await auth.identify(issuer.token(iss=issuer.url + "/other")) is None


@pytest.mark.parametrize("named", ["/", "/other", " "])
async def test_metadata_of_another_issuer_are_not_used(named: str) -> None:
    with running_issuer() as issuer:
        issuer.publish(issuer=issuer.url + named)
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)

        with pytest.raises(IssuerUnavailable):
            await auth.identify(issuer.token())
        assert "/keys" not in issuer.asked


@pytest.mark.parametrize(
    "metadata",
    [
        {"jwks_uri": "http://keys.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 7},
        {"jwks_uri": None},
    ],
)
async def test_keys_are_fetched_from_no_address_that_is_not_protected(metadata: dict[str, Any]) -> None:
    with running_issuer() as issuer:
        issuer.publish(**metadata)
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)

        with pytest.raises(IssuerUnavailable):
            await auth.identify(issuer.token())
        assert "/keys" not in issuer.asked


async def test_keys_that_move_to_another_host_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_PAUSE, 0)
    with running_issuer() as issuer, running_issuer() as thief:
        issuer.publish()
        thief.publish([as_jwk(STRANGER, "k2")])
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)
        assert await auth.identify(issuer.token()) is not None

        issuer.publish(jwks_uri=f"{thief.url}/keys")

        assert await auth.identify(issuer.token(STRANGER, header={"kid": "k2"})) is None
        assert await auth.identify(issuer.token()) is not None
        assert thief.asked == []


@pytest.mark.parametrize(
    "keys",
    [
        b"x" * 30_000_000,
        json.dumps({"keys": [as_jwk(KEY, f"k{n}") for n in range(1000)]}).encode(),
        json.dumps({"keys": [as_jwk(KEY, f"k{n}") for n in range(101)]}).encode(),
        b'{"keys": ' + b"[" * 100_000,
        b'{"keys": 7}',
        b"[]",
        b"",
    ],
    ids=["30 MB", "1,000 keys", "101 keys", "nested", "no list", "no object", "empty"],
)
async def test_keys_that_are_too_many_or_none_are_not_read_and_the_tokens_may_be_good(keys: bytes) -> None:
    with running_issuer() as issuer:
        issuer.pages["/keys"] = Page(keys)
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE, jwks_url=f"{issuer.url}/keys")
        async with served_http(doing_server(), auth=auth) as url:
            bearer = {"Authorization": f"Bearer {issuer.token()}"}
            answers = [await call(url, "add", {"a": 1, "b": 2}, headers=bearer) for _ in range(3)]

        assert [answer.status for answer in answers] == [503] * 3
        assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
        assert "www-authenticate" not in answers[0].headers
        assert issuer.asked == ["/keys"]


async def test_a_redirect_to_keys_is_not_followed_to_another_host() -> None:
    with running_issuer() as issuer, running_issuer() as other:
        other.publish()
        issuer.pages["/keys"] = Page(status=302, headers={"Location": f"{other.url}/keys"})
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE, jwks_url=f"{issuer.url}/keys")

        with pytest.raises(IssuerUnavailable):
            await auth.identify(issuer.token())
        assert other.asked == []


async def test_only_public_keys_for_signatures_count() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "k1"}
    good = as_jwk(KEY, "k1")
    for odd in (
        secret,
        {**good, "use": "enc"},
        {**good, "alg": "RS512"},
        {**good, "kty": "??"},
        {**good, "d": "AQAB"},
        {**good, "n": None},
        {**good, "kid": 7},
        "k1",
    ):
        with running_issuer() as issuer:
            issuer.publish([odd])
            auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)

            assert await auth.identify(issuer.token()) is None


async def test_a_token_without_a_key_id_is_verified_by_the_only_key() -> None:
    with running_issuer() as issuer:
        issuer.publish()
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)
        claims = jwt.decode(issuer.token(), options={"verify_signature": False})

        assert await auth.identify(jwt.encode(claims, KEY, "RS256")) is not None
        assert await auth.identify(jwt.encode(claims, STRANGER, "RS256")) is None


@pytest.mark.parametrize("key_id", ["k1", None])
async def test_of_several_keys_with_one_id_the_one_that_signed_the_token_counts(
    key_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    elliptic = ec.generate_private_key(ec.SECP256R1())
    second = rsa.generate_private_key(65537, 2048)
    header: dict[str, Any] = {"kid": key_id}
    with running_issuer() as issuer:
        jwks = [as_jwk(KEY, "k1"), as_jwk(second, "k1"), json.loads(ECAlgorithm.to_jwk(elliptic.public_key()))]
        issuer.publish([{**jwk, "kid": key_id, "use": None, "alg": None} for jwk in jwks])
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)

        assert await auth.identify(issuer.token(header=header)) is not None
        assert await auth.identify(issuer.token(second, header=header)) is not None
        assert await auth.identify(issuer.token(elliptic, "ES256", header=header)) is not None
        assert await auth.identify(issuer.token(STRANGER, header=header)) is None
        assert await auth.identify(issuer.token(elliptic, "ES256", header=header, aud="another")) is None
    for text in ("a key with 'use' null", "a key with 'alg' null", f"several keys with the id {key_id!r}"):
        assert [text in one.getMessage() for one in caplog.records].count(True) == 1


async def test_many_requests_at_once_fetch_the_keys_once_and_one_that_gives_up_spoils_it_for_nobody() -> None:
    go = threading.Event()
    with running_issuer() as issuer:
        issuer.publish()
        keys = issuer.pages["/keys"]

        def slowly(form: dict[str, str], headers: dict[str, str]) -> Page:
            go.wait(30)
            assert isinstance(keys, Page)
            return keys

        issuer.pages["/keys"] = slowly
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE, jwks_url=f"{issuer.url}/keys")
        token = issuer.token()
        known = list[bool]()

        async def ask() -> None:
            known.append(await auth.identify(token) is not None)

        try:
            async with anyio.create_task_group() as tasks:
                with anyio.CancelScope() as first:

                    async def give_up() -> None:
                        await eventually(lambda: len(issuer.asked) == 1)
                        for _ in range(10):
                            tasks.start_soon(ask)
                        first.cancel()
                        go.set()

                    tasks.start_soon(give_up)
                    await auth.identify(token)
        finally:
            go.set()

        assert known == [True] * 10
        assert issuer.asked == ["/keys"]


async def test_old_keys_count_while_the_issuer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_issuer() as issuer:
        issuer.publish()
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)
        assert await auth.identify(issuer.token()) is not None
        monkeypatch.setattr(_FRESH, 0)
        monkeypatch.setattr(_PAUSE, 0)
        issuer.pages = {}

        assert await auth.identify(issuer.token()) is not None
        monkeypatch.setattr("toolweave.serve._auth.issuer_keys.PublishedKeys.STALE_SECONDS", 0)
        with pytest.raises(IssuerUnavailable):
            await auth.identify(issuer.token())


@pytest.mark.parametrize(
    ("header", "claims", "accepted"),
    [
        ({}, {}, True),
        ({"typ": "at+jwt"}, {}, True),
        ({"typ": "application/at+jwt"}, {"nonce": "n"}, True),
        ({"typ": None}, {}, True),
        ({"typ": "dpop+jwt"}, {}, False),
        ({"typ": "oauth-id-jag+jwt"}, {}, False),
        ({"typ": "logout+jwt"}, {}, False),
        ({}, {"nonce": "n"}, False),
        ({}, {"at_hash": "h"}, False),
        ({}, {"typ": "ID"}, False),
        ({}, {"typ": "Bearer"}, True),
        ({}, {"token_use": "id"}, False),
        ({}, {"cnf": {"x5t#S256": "t"}}, False),
        ({}, {"cnf": 7}, False),
    ],
)
async def test_an_id_token_and_other_kinds_of_tokens_are_no_access_tokens(
    header: dict[str, Any], claims: dict[str, Any], accepted: bool
) -> None:
    with running_issuer() as issuer:
        issuer.publish()
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)
        strict = JwtAuth(issuer=issuer.url, audience=AUDIENCE, token_type="at+jwt")
        token = issuer.token(header=header, **claims)

        assert (await auth.identify(token) is not None) is accepted
        assert (await strict.identify(token) is not None) is ("at+jwt" in str(header.get("typ")))
