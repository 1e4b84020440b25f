"""Other ways to a token than a browser, and tokens that are bound to a key."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.connect.scripted import Exchange, answer_to
from tests.connect.targets import connected
from tests.oauth.world import AuthorizationHost, another_host, basic, form_of, nonce_of, refuse, world
from toolweave import AuthRequiredError, ConfigError, connect_mcp
from toolweave.config import OAuth
from toolweave.oauth import sign_in

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
KEYS = {"ES256": ec.generate_private_key(ec.SECP256R1()), "RS256": rsa.generate_private_key(65537, 2048)}


def pem(key: Any) -> str:
    """Return a key as PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.slow
async def test_a_person_types_a_code_on_another_device() -> None:
    async with world() as here:
        async with connected(here.target(grant="device_code", timeout=30)) as connection:
            assert (await connection.call_tool("t")).text == "done"
        (prompt,) = here.person.prompts
        assert (prompt.user_code, prompt.verification_uri) == ("WDJB-MJHT", f"{here.host.url}/page")
        assert here.person.asked == []


@pytest.mark.parametrize("page", ["javascript:alert(1)", "http://evil.example/", "https://a@evil.example/"])
async def test_the_page_for_a_code_is_a_web_page(page: str) -> None:
    async with world() as here:
        answer = {"device_code": "d", "user_code": "u", "verification_uri": page, "expires_in": 5}
        here.host.answer["/device"] = lambda one: one.respond_json(200, answer)
        with pytest.raises(AuthRequiredError, match="the page of the sign-in by device"):
            await sign_in(here.settings(grant="device_code"), here.server.url, server="s", **here.ports())
        assert here.person.prompts == []


@pytest.mark.slow
async def test_a_code_that_a_person_refuses_is_asked_for_no_more() -> None:
    async with world() as here:
        here.host.answer["/token"] = lambda one: refuse(one, "access_denied")
        with pytest.raises(AuthRequiredError, match="access_denied"):
            await sign_in(here.settings(grant="device_code"), here.server.url, server="s", **here.ports())
        assert len(here.host.forms()) == 1


async def test_a_machine_signs_in_with_its_secret_and_without_a_person() -> None:
    async with world() as here:
        how = {"grant": "client_credentials", "client_id": "me", "client_secret": "pw", "user_agent": None}
        async with connected(here.target(**how)) as connection:
            here.host.tokens.clear()
            assert (await connection.call_tool("t")).text == "done"
        tokens = [one for one in here.host.requests if one.path == "/token"]
        assert {one.headers["authorization"] for one in tokens} == {basic("me", "pw")}
        assert [form_of(one)["resource"] for one in tokens] == [here.server.url] * 2


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_machine_signs_in_with_its_key_for_the_issuer(algorithm: str) -> None:
    async with world() as here:
        how = {"grant": "client_credentials", "client_id": "me", "algorithm": algorithm}
        settings = here.settings(private_key=pem(KEYS[algorithm]), **how)
        await sign_in(settings, here.server.url, server="s", store=here.store)
        (form,) = here.host.forms()
        assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        public: Any = KEYS[algorithm].public_key()
        claims = jwt.decode(form["client_assertion"], public, [algorithm], audience=here.host.issuer)
        assert claims["iss"] == claims["sub"] == "me"


async def test_a_key_that_is_none_is_told_and_not_shown() -> None:
    async with world() as here:
        how = {"grant": "client_credentials", "client_id": "me", "private_key": "no-key-at-all"}
        with pytest.raises(AuthRequiredError, match=r"'oauth.private_key' is not a key for ES256") as refused:
            await sign_in(here.settings(**how), here.server.url, server="s", store=here.store)
        assert "no-key-at-all" not in str(refused.value)


async def test_a_workload_signs_in_with_its_assertion_and_a_refusal_is_final() -> None:
    made: list[str] = []

    async def assertion() -> str:
        made.append(f"assertion-{len(made)}")
        return made[-1]

    async with world() as here:
        how: dict[str, Any] = {"grant": "jwt_bearer", "assertion": assertion, "user_agent": None}
        async with connected(here.target(**how)) as connection:
            assert (await connection.call_tool("t")).text == "done"
        (form,) = here.host.forms(JWT_BEARER)
        assert form["assertion"] == "assertion-0"
        here.host.tokens.clear()
        here.host.answer["/token"] = lambda one: refuse(one, "invalid_grant")
        with pytest.raises(AuthRequiredError, match="invalid_grant"):
            await connect_mcp(here.target(**how))
        assert len(here.host.forms()) == 2
        assert "/register" not in here.host.paths()
        assert here.host.authorizations() == []


async def test_an_enterprise_user_signs_in_by_its_own_provider() -> None:
    async def exchanged(exchange: Exchange) -> None:
        jag = "urn:ietf:params:oauth:token-type:id-jag"
        await exchange.respond_json(200, {"access_token": "jag-1", "token_type": "N_A", "issued_token_type": jag})

    async with world() as here, another_host() as provider:
        provider.answer["/token"] = exchanged
        await sign_in(enterprise(here.settings(), provider), here.server.url, server="s", store=here.store)
        (asked,), (form,) = provider.forms(), here.host.forms(JWT_BEARER)
        assert (asked["audience"], asked["resource"]) == (here.host.issuer, here.server.url)
        assert asked["subject_token"] == "id-token"
        assert asked["client_id"] == "me-there"
        assert form["assertion"] == "jag-1"


async def test_another_token_of_the_provider_is_not_passed_on() -> None:
    async with world() as here, another_host() as provider:
        with pytest.raises(AuthRequiredError, match="another token than the ID-JAG"):
            await sign_in(enterprise(here.settings(), provider), here.server.url, server="s", store=here.store)
        assert here.host.forms() == []


def enterprise(settings: OAuth, provider: AuthorizationHost) -> OAuth:
    """Return the settings of an enterprise."""
    return settings.replace(
        grant="enterprise",
        client_id="me",
        idp_token_endpoint=f"{provider.url}/token",
        idp_client_id="me-there",
        idp_id_token="id-token",
    )


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"grant": "client_credentials"}, "client_id"),
        ({"grant": "client_credentials", "client_id": "x"}, "'client_secret' or 'private_key'"),
        ({"grant": "jwt_bearer"}, "assertion"),
        ({"grant": "enterprise", "client_id": "x"}, "idp_token_endpoint"),
    ],
)
def test_a_grant_says_what_it_needs(settings: dict[str, Any], missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        OAuth(**settings)


async def test_a_server_that_wants_bound_tokens_gets_a_proof_with_each_request() -> None:
    async with world() as here:
        here.server.scheme = "DPoP"
        async with connected(here.target()) as connection:
            for _ in range(2):
                assert (await connection.call_tool("t")).text == "done"
        asked = [one for one in here.server.exchanges if one.path == "/mcp"]
        used = [one for one in asked if one.headers.get("authorization")]
        proofs = [one.headers["dpop"] for one in used]
        assert len(set(proofs)) == len(used) > 2
        assert all(one.headers["authorization"].startswith("DPoP ") for one in used)
        head = jwt.get_unverified_header(proofs[0])
        key: Any = jwt.PyJWK(head["jwk"]).key
        claims = jwt.decode(proofs[0], key, ["ES256"])
        assert (head["typ"], claims["htm"], claims["htu"]) == ("dpop+jwt", "POST", here.server.url)
        assert {"jti", "iat", "ath"} <= claims.keys()
        assert here.host.authorizations()[0]["dpop_jkt"]


async def test_a_nonce_is_taken_up_and_is_no_reason_to_sign_in_again() -> None:
    async with world() as here:
        here.server.scheme, here.server.nonce = "DPoP", "n-1"
        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"
            here.server.nonce = "n-2"
            assert (await connection.call_tool("t")).text == "done"
        assert len(here.person.asked) == 1


async def test_a_nonce_that_comes_with_an_answer_is_in_the_next_proof() -> None:
    nonces, refused = ["n-0"], 0

    async def renewing(exchange: Exchange) -> None:
        nonlocal refused
        if nonce_of(exchange.headers["dpop"]) != nonces[-1]:
            refused += 1
            await exchange.respond(401, www_authenticate='DPoP error="use_dpop_nonce"', dpop_nonce=nonces[-1])
            return
        nonces.append(f"n-{len(nonces)}")
        text = answer_to(json.loads(exchange.body))
        await exchange.respond(200, text.encode(), content_type="application/json", dpop_nonce=nonces[-1])

    async with world() as here:
        here.server.scheme = "DPoP"
        async with connected(here.target()) as connection:
            here.server.answer["/mcp"] = renewing
            for _ in range(4):
                assert (await connection.call_tool("t")).text == "done"
            del here.server.answer["/mcp"]
    assert refused == 1


async def test_the_nonce_of_the_authorization_server_is_taken_up() -> None:
    async with world() as here:
        plain = here.host.handle

        async def token(exchange: Exchange) -> None:
            if jwt.decode(exchange.headers["dpop"], options={"verify_signature": False}).get("nonce") != "as-1":
                await refuse(exchange, "use_dpop_nonce", dpop_nonce="as-1")
                return
            del here.host.answer["/token"]
            await plain(exchange)

        here.host.answer["/token"] = token
        record = await sign_in(here.settings(dpop=True), here.server.url, server="s", **here.ports())
        assert record.token_type == "DPoP"
        assert record.dpop_key is not None
        assert record.dpop_key not in repr(record)


async def test_a_bound_token_is_renewed_with_its_key_after_a_restart() -> None:
    async with world() as here:
        here.server.scheme = "DPoP"
        await sign_in(here.settings(dpop=True), here.server.url, server="s", **here.ports())
        here.host.tokens.clear()
        async with connected(here.target(user_agent=None, dpop=True)) as connection:
            assert (await connection.call_tool("t")).text == "done"
        thumbprints = {
            str(jwt.get_unverified_header(one.headers["dpop"])["jwk"])
            for one in [*here.host.requests, *here.server.exchanges]
            if "dpop" in one.headers
        }
        assert len(thumbprints) == 1
