"""The issuers, audiences, clients, times and algorithms of JWTs, as providers write them; and the log of refusals."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import ECAlgorithm

from tests.serve.issuer import AUDIENCE, KEY, STRANGER, as_jwk, running_issuer
from toolweave.errors import ConfigError
from toolweave.serve import JwtAuth

SECRET = "k" * 64
ISSUER = "https://login.example"
V1 = "https://sts.example/tenant/"
V2 = "https://login.example/tenant/v2.0"
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)
CURVE = ec.generate_private_key(ec.SECP256R1())
EC_JWK = {**json.loads(ECAlgorithm.to_jwk(CURVE.public_key())), "kid": "k1", "use": "sig"}
EDWARDS = Ed25519PrivateKey.generate()


def by_secret(**options: Any) -> JwtAuth:
    given: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "key": SECRET, "algorithms": ["HS256"], **options}
    return JwtAuth(**given)


def signed(key: Any = SECRET, algorithm: str = "HS256", header: Any = None, **claims: Any) -> str:
    """Return a token; a claim that is None is left out."""
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "client_id": "app", "exp": time.time() + 86_400, **claims}
    kept = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(kept, key, algorithm, headers=header)


def pem(key: Any) -> str:
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, kind).decode()


@pytest.mark.parametrize("issuer", [V1, V2])
@pytest.mark.parametrize(
    ("audience", "accepted"),
    [("client", True), ("api://client", True), (["x", "client"], True), ("api://other", False), (None, False)],
)
async def test_a_token_of_a_listed_issuer_is_accepted_for_a_listed_audience(
    issuer: str, audience: Any, accepted: bool
) -> None:
    auth = by_secret(issuer=[V2, V1], audience=["client", "api://client"])

    assert (await auth.identify(signed(iss=issuer, aud=audience)) is not None) is accepted
    assert await auth.identify(signed(iss="https://sts.example/other/", aud=audience)) is None
    assert await auth.identify(signed(iss=None, aud=audience)) is None


@pytest.mark.slow
async def test_the_keys_of_an_issuer_verify_no_token_of_another_one() -> None:
    with running_issuer() as first, running_issuer() as second:
        first.publish([as_jwk(KEY, "k1")])
        second.publish([as_jwk(STRANGER, "k1")])
        auth = JwtAuth(issuer=[first.url, second.url], audience=AUDIENCE)

        assert await auth.identify(first.token(KEY)) is not None
        assert await auth.identify(second.token(STRANGER)) is not None
        assert await auth.identify(first.token(STRANGER)) is None
        assert await auth.identify(second.token(KEY)) is None


@pytest.mark.slow
async def test_an_issuer_that_is_away_takes_no_other_issuers_tokens_with_it() -> None:
    with running_issuer() as issuer:
        issuer.publish()
        auth = JwtAuth(issuer=["http://127.0.0.1:9", issuer.url], audience=AUDIENCE)

        assert await auth.identify(issuer.token()) is not None


async def test_keys_are_given_for_each_issuer() -> None:
    auth = by_secret(issuer=[V1, V2], key={V1: "1" * 40, V2: "2" * 40})

    assert await auth.identify(signed("1" * 40, iss=V1)) is not None
    assert await auth.identify(signed("2" * 40, iss=V2)) is not None
    assert await auth.identify(signed("2" * 40, iss=V1)) is None


async def test_metadata_name_every_issuer_and_the_audience_that_is_a_url() -> None:
    auth = by_secret(issuer=[V1, V2], audience=["client", AUDIENCE])

    assert (auth.resource, auth.authorization_servers) == (AUDIENCE, (V1, V2))


@pytest.mark.parametrize(
    ("claims", "accepted"),
    [
        ({"client_id": "app", "token_use": "access", "aud": None}, True),
        ({"client_id": None, "azp": "app", "aud": None}, True),
        ({"client_id": "other", "aud": None}, False),
        ({"client_id": "other", "azp": "app", "aud": None}, False),
        ({"client_id": None, "sub": "app", "aud": None}, False),
        ({"client_id": "app", "token_use": "id", "aud": None}, False),
        ({"client_id": ["app"], "aud": None}, False),
        ({"client_id": "app", "aud": "https://other.example/mcp"}, False),
        ({"client_id": "app", "aud": []}, False),
        ({"client_id": "other"}, True),
    ],
)
async def test_a_token_without_an_audience_is_accepted_from_listed_clients_alone(
    claims: dict[str, Any], accepted: bool
) -> None:
    assert (await by_secret(client_ids=["app"]).identify(signed(**claims)) is not None) is accepted
    if claims.get("aud", "") is None:
        assert await by_secret().identify(signed(**claims)) is None


async def test_a_server_may_accept_tokens_by_their_clients_alone() -> None:
    auth = by_secret(audience=[], client_ids=["app"])

    assert await auth.identify(signed(aud=None)) is not None
    assert await auth.identify(signed(aud="anything")) is None


@pytest.mark.parametrize(
    ("audience", "received", "accepted"),
    [
        ("https://host.example", "https://host.example/", True),
        ("https://host.example/", "https://host.example", True),
        ("https://host.example/mcp", "https://host.example/mcp/", False),
        ("https://host.example/mcp/", "https://host.example/mcp", False),
        ("https://host.example", "https://host.example.evil.example/", False),
        ("https://host.example", "https://host.example//", False),
        ("https://host.example", "https://host.example/?", False),
        ("api://notes", "api://notes/", True),
        ("notes", "notes/", False),
    ],
)
async def test_at_the_root_of_a_host_a_slash_makes_no_other_audience(
    audience: str, received: str, accepted: bool
) -> None:
    assert (await by_secret(audience=audience).identify(signed(aud=received)) is not None) is accepted


async def test_the_metadata_of_a_root_have_no_slash() -> None:
    assert by_secret(audience="https://host.example/").resource == "https://host.example"


@pytest.mark.parametrize(
    ("claims", "accepted"),
    [
        ({"exp": "9999999999"}, False),
        ({"exp": True}, False),
        ({"exp": float("nan")}, False),
        ({"exp": float("inf")}, False),
        ({"exp": [9999999999]}, False),
        ({"exp": 10**400}, False),
        ({"nbf": -(10**400)}, False),
        ({"iat": 10**400}, False),
        ({"exp": 10**300}, True),
        ({"exp": None}, False),
        ({"nbf": "0"}, False),
        ({"iat": "0"}, False),
        ({"iat": 4_000_000_000}, False),
        ({"nbf": 4_000_000_000}, False),
        ({"exp": 4_000_000_000.5, "nbf": 1.5, "iat": 1}, True),
    ],
)
async def test_a_time_is_a_number(claims: dict[str, Any], accepted: bool) -> None:
    assert (await by_secret().identify(signed(**claims)) is not None) is accepted


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")  # of the test, which signs with it
async def test_a_published_rsa_key_of_fewer_than_2048_bits_verifies_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with running_issuer() as issuer:
        issuer.publish([as_jwk(KEY, "k1"), as_jwk(WEAK, "weak")])
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)

        assert await auth.identify(issuer.token()) is not None
        assert await auth.identify(issuer.token(WEAK, header={"kid": "weak"})) is None
    assert "'weak' is shorter than 2048 bits" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"algorithms": ["FOO"]},
        {"algorithms": ["RS256", "RSA256"]},
        {"algorithms": ["rs256"]},
        {"algorithms": "RS256"},
        {"key": pem(WEAK), "algorithms": ["RS256"]},
        {"key": "not PEM", "algorithms": ["RS256"]},
        {"key": {"https://other.example": SECRET}},
        {"jwks_url": {"https://other.example": "https://other.example/keys"}, "key": None, "algorithms": ["RS256"]},
        {"issuer": [], "key": SECRET},
        {"issuer": [ISSUER, ""]},
        {"audience": []},
        {"audience": ["", AUDIENCE]},
        {"client_ids": [""]},
    ],
)
def test_settings_that_could_accept_no_token_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        by_secret(**options)


async def test_every_known_algorithm_may_be_listed() -> None:
    auth = JwtAuth(issuer=ISSUER, audience=AUDIENCE, key=pem(EDWARDS), algorithms=["EdDSA", "PS256", "ES384"])

    assert await auth.identify(signed(EDWARDS, "EdDSA")) is not None


REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "issuer": (signed(iss=V1), ("'iss'", ISSUER, V1)),
    "audience": (signed(aud="api://client"), ("'aud'", AUDIENCE, "api://client")),
    "no audience": (signed(aud=None), ("'aud' is missing", AUDIENCE)),
    "expired": (signed(exp=17), ("'exp'", "17")),
    "text as time": (signed(exp="soon"), ("'exp'", "'soon'", "number")),
    "not yet": (signed(nbf=4_000_000_000), ("'nbf'", "4000000000")),
    "algorithm": (signed(SECRET, "HS512"), ("'alg'", "HS512", "HS256")),
    "type": (signed(header={"typ": "logout+jwt"}), ("'typ'", "logout+jwt")),
    "critical": (signed(header={"crit": ["x"]}), ("critical", "x")),
    "signature": (signed("j" * 64), ("signature", ISSUER)),
    "ID token": (signed(nonce="n"), ("'nonce'",)),
    "kind": (signed(token_use="id"), ("'token_use'", "'id'")),
    "nobody": (signed(sub=None, client_id=None), ("'client_id'", "'sub'")),
    "subject": (signed(sub={"a": 5}), ("'sub'", "{'a': 5}", "text")),
    "token id": (signed(jti=5), ("'jti'", "5", "text")),
    "binding": (signed(cnf={"x5t#S256": "t"}), ("'cnf'", "x5t#S256", "'jkt'")),
    "no JWT": ("x.y.z", ("not a JWT",)),
    "no object": ("eyJhbGciOiJIUzI1NiJ9.WzFd.eHh4", ("claims",)),
    "kid": (jwt.encode({"iss": ISSUER}, SECRET, "HS256", headers={"kid": "k"}), ("'aud' is missing",)),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_one_line_of_the_log_says_why_a_token_was_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token, words = REFUSED[name]

    assert await by_secret().identify(token) is None
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("toolweave")]
    assert line.startswith("a token was refused: ")
    assert [word for word in words if word not in line] == []
    assert token not in line
    assert token.rpartition(".")[2] not in line or len(token) < 10


@pytest.mark.parametrize(
    ("key", "signer", "algorithm"),
    [
        (EC_JWK, KEY, "RS256"),
        (as_jwk(KEY, "k1"), CURVE, "ES256"),
        ({**as_jwk(KEY, "k1"), "alg": "RS256"}, KEY, "PS256"),
    ],
)
async def test_a_published_key_verifies_only_signatures_of_its_own_algorithm(
    key: dict[str, Any], signer: Any, algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with running_issuer() as issuer:
        issuer.publish([key])
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE, algorithms=["RS256", "ES256", "PS256"])

        assert await auth.identify(issuer.token(signer, algorithm)) is None
    (line,) = [record.getMessage() for record in caplog.records if record.name == "toolweave.serve._auth"]
    assert line == f"a token was refused: 'alg' is {algorithm!r}, and its key 'k1' is not for that algorithm"


@pytest.mark.parametrize(
    "odd", [{"alg": ["RS256"]}, {"alg": {}}, {"kty": ["RSA"]}, {"kty": {}}, {"crv": []}, {"n": []}]
)
async def test_an_unreadable_key_of_a_set_leaves_the_others_in_use(odd: dict[str, Any]) -> None:
    with running_issuer() as issuer:
        issuer.publish([{**as_jwk(KEY, "odd"), **odd}, as_jwk(KEY, "k1")])
        auth = JwtAuth(issuer=issuer.url, audience=AUDIENCE)

        assert await auth.identify(issuer.token()) is not None


async def test_a_claim_cannot_write_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await by_secret().identify(signed(iss="x\nERROR:root:let in\u202e" + "y" * 10_000))

    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("toolweave")]
    assert "\n" not in line
    assert "\u202e" not in line
    assert len(line) < 500


async def test_the_client_of_a_token_is_read_as_its_provider_writes_it() -> None:
    auth = by_secret()
    clients: dict[str, str | None] = {}
    for name in ("azp", "appid", "cid", "client_id"):
        claims: dict[str, Any] = {"client_id": None, name: "c"}
        found = await auth.identify(signed(**claims))
        clients[name] = found and found.client_id

    assert clients == dict.fromkeys(clients, "c")
