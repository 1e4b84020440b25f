"""Answers of authorization servers that are not quite those of the standards, up to a call with the token."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.connect.scripted import Exchange
from tests.connect.targets import connected
from tests.oauth.world import World, form_of, world
from toolweave import AuthRequiredError
from toolweave.config import Secret
from toolweave.oauth import sign_in

pytestmark = pytest.mark.requirement("R27")

MACHINE: dict[str, Any] = {"grant": "client_credentials", "client_id": "me", "user_agent": None}
FORM = "application/x-www-form-urlencoded"


async def answered(here: World, body: bytes, *, status: int = 200, content_type: str = "application/json") -> None:
    """Let the token endpoint answer with a body, and accept the token `issued`."""
    here.host.tokens["issued"] = ""

    async def answer(exchange: Exchange) -> None:
        await exchange.respond(status, body, content_type=content_type)

    here.host.answer["/token"] = answer


@pytest.mark.parametrize(
    "members",
    [
        {"scope": ["a", "b"]},
        {"scope": None, "refresh_token": None, "expires_in": None},
        {"token_type": None},
        {"token_type": "bearer", "expires_in": "3600"},
        {"expires_in": "soon"},
        {"expires_in": True},
        {"refresh_token": ""},
    ],
    ids=json.dumps,
)
async def test_a_token_counts_whatever_form_the_members_beside_it_have(members: dict[str, Any]) -> None:
    async with world() as here:
        await answered(here, json.dumps({"access_token": "issued", "token_type": "Bearer", **members}).encode())
        async with connected(here.target(**MACHINE, client_secret="pw")) as connection:
            assert (await connection.call_tool("t")).text == "done"
        (record,) = await here.store.records()
        assert record.access_token == "issued"
        assert record.refresh_token is None
        if members.get("scope"):
            assert record.scopes == ("a", "b")


async def test_a_token_in_an_answer_that_is_a_form_is_used() -> None:
    async with world() as here:
        body = urlencode({"access_token": "issued", "scope": "a b", "token_type": "bearer", "expires_in": 3600})
        await answered(here, body.encode(), content_type=f"{FORM}; charset=utf-8")
        async with connected(here.target(**MACHINE, client_secret="pw")) as connection:
            assert (await connection.call_tool("t")).text == "done"
        (record,) = await here.store.records()
        assert record.scopes == ("a", "b")


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (200, b'{"error": "bad_code", "error_description": "The code is wrong."}', "application/json"),
        (400, b'{"error": "bad_code", "error_description": ["The code is wrong."]}', "application/json"),
        (200, b"error=bad_code&error_description=The+code+is+wrong.", FORM),
        (400, b"error=bad_code&error_description=The+code+is+wrong.", FORM),
    ],
)
async def test_a_refusal_is_reported_with_its_reason_in_any_form(status: int, body: bytes, content_type: str) -> None:
    async with world() as here:
        await answered(here, body, status=status, content_type=content_type)
        settings = here.settings(**MACHINE, client_secret="pw")
        with pytest.raises(AuthRequiredError, match=r"bad_code.*The code is wrong\."):
            await sign_in(settings, here.server.url, server="s", store=here.store)


@pytest.mark.parametrize("shown", ["s3cr3t/with+signs", "s3cr3t%2Fwith%2Bsigns"])
@pytest.mark.parametrize("methods", [["client_secret_basic"], ["client_secret_post"]])
async def test_a_secret_that_a_refusal_repeats_is_not_in_the_error(shown: str, methods: list[str]) -> None:
    secret = "s3cr3t/with+signs"
    async with world() as here:
        here.host.extra["token_endpoint_auth_methods_supported"] = methods
        refusal = {"error": "invalid_client", "error_description": f"no client has the secret {shown}"}
        await answered(here, json.dumps(refusal).encode(), status=401)
        settings = here.settings(**MACHINE, client_secret=Secret(secret))
        with pytest.raises(AuthRequiredError, match="no client has the secret") as caught:
            await sign_in(settings, here.server.url, server="s", store=here.store)
        assert shown not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "members", [{"interval": None}, {"interval": "1"}, {"expires_in": "60"}, {"verification_url": True}], ids=str
)
async def test_a_code_is_shown_whatever_form_the_members_beside_it_have(members: dict[str, Any]) -> None:
    async with world() as here:
        page = f"{here.host.url}/page"
        answer = {"device_code": "d", "user_code": "u", "verification_uri": page, "expires_in": 60, "interval": 1}
        if "verification_url" in members:
            members = {"verification_url": answer.pop("verification_uri")}
        here.host.answer["/device"] = lambda one: one.respond_json(200, {**answer, **members})
        here.host.pending = 0
        async with connected(here.target(grant="device_code", timeout=30)) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert [prompt.verification_uri for prompt in here.person.prompts] == [page]


@pytest.mark.slow
async def test_a_device_polls_on_after_a_pending_error_with_the_status_of_a_success() -> None:
    async with world() as here:
        here.host.tokens["issued"] = ""
        answers = [{"error": "authorization_pending"}, {"access_token": "issued", "token_type": "bearer"}]
        here.host.answer["/token"] = lambda one: one.respond_json(200, answers.pop(0))
        async with connected(here.target(grant="device_code", timeout=30)) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert answers == []


@pytest.mark.parametrize(
    "members",
    [{"client_secret_expires_at": "0"}, {"client_secret_expires_at": None}, {"redirect_uris": None}],
    ids=str,
)
async def test_a_registration_counts_whatever_form_the_members_beside_it_have(members: dict[str, Any]) -> None:
    async with world() as here:
        made = {"client_id": "c-1", "client_secret": "pw", "token_endpoint_auth_method": "client_secret_basic"}
        here.host.answer["/register"] = lambda one: one.respond_json(201, {**made, **members})
        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert {form_of(one).get("client_id") for one in here.host.requests if one.path == "/token"} == {"c-1"}


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"scope": ["a", "b"]}, "the token endpoint gives 'scope' as an array, read as a text"),
        ({"token_type": None}, "the token endpoint gives no 'token_type', read as 'Bearer'"),
        ({"expires_in": "3600"}, "the token endpoint gives 'expires_in' as a string, read as a number"),
        ({"expires_in": "soon"}, "the token endpoint gives 'expires_in' as a string, read as no end"),
        ({"expires_in": True}, "the token endpoint gives 'expires_in' as true or false, read as no end"),
        ({"refresh_token": ""}, "the token endpoint gives an empty 'refresh_token', read as none"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
async def test_a_member_of_a_token_response_in_another_form_is_among_the_problems_and_in_the_log(
    members: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as here:
        await answered(here, json.dumps({"access_token": "issued", "token_type": "Bearer", **members}).encode())
        async with connected(here.target(**MACHINE, client_secret="pw")) as connection:
            assert problem in connection.problems
            await connection.call_tool("t")
            assert connection.problems.count(problem) == 1
    assert [one.getMessage() for one in caplog.records if problem in one.getMessage()] == [
        f"server {connection.name!r}: signing in: {problem}"
    ]


async def test_a_token_response_as_the_standard_has_it_is_no_problem() -> None:
    async with world() as here:
        await answered(here, b'{"access_token": "issued", "token_type": "Bearer", "expires_in": 60, "scope": "a"}')
        async with connected(here.target(**MACHINE, client_secret="pw")) as connection:
            assert connection.problems == ()


async def test_a_form_in_place_of_json_is_among_the_problems() -> None:
    async with world() as here:
        body = urlencode({"access_token": "issued", "token_type": "bearer"})
        await answered(here, body.encode(), content_type=FORM)
        async with connected(here.target(**MACHINE, client_secret="pw")) as connection:
            assert "the token endpoint answers with a form, not with JSON" in connection.problems


async def test_a_refusal_with_the_status_of_a_success_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as here:
        await answered(here, b'{"error": "bad_code"}')
        settings = here.settings(**MACHINE, client_secret="pw")
        with pytest.raises(AuthRequiredError, match="bad_code"):
            await sign_in(settings, here.server.url, server="s", store=here.store)
    assert "server 's': signing in: the token endpoint refuses with the status of a success, 200" in caplog.text


async def test_a_registration_with_a_time_as_text_is_among_the_problems() -> None:
    async with world() as here:
        made = {"client_id": "c-1", "client_secret": "pw", "client_secret_expires_at": "0"}
        here.host.answer["/register"] = lambda one: one.respond_json(201, made)
        async with connected(here.target()) as connection:
            (found,) = connection.problems
            assert "gives 'client_secret_expires_at' as a string, read as a number" in found


@pytest.mark.slow
async def test_a_page_for_a_code_under_its_old_name_is_among_the_problems() -> None:
    async with world() as here:
        answer = {"device_code": "d", "user_code": "u", "verification_url": f"{here.host.url}/page", "interval": "1"}
        here.host.answer["/device"] = lambda one: one.respond_json(200, answer)
        here.host.pending = 0
        async with connected(here.target(grant="device_code", timeout=30)) as connection:
            said = " ".join(connection.problems)
    assert "the device authorization endpoint gives 'verification_url', read as 'verification_uri'" in said
    assert "gives no number as 'expires_in': the timeout of the sign-in counts" in said
    assert "gives 'interval' as a string, read as a number" in said


SPELLINGS = {
    "a slash in the metadata of the server": ("/", "", ""),
    "a slash in those of the issuer": ("", "/", "/"),
    "a slash behind a path": ("/tenant/", "/tenant", "/tenant"),
    "a slash behind a path, in those of the issuer": ("/tenant", "/tenant/", "/tenant/"),
}


@pytest.mark.parametrize(("named", "published", "answered"), SPELLINGS.values(), ids=list(SPELLINGS))
@pytest.mark.parametrize("configured", [False, True])
async def test_a_slash_at_its_end_makes_no_other_issuer(
    named: str, published: str, answered: str, configured: bool
) -> None:
    async with world() as here:
        url = here.host.url
        here.server.metadata["authorization_servers"] = [f"{url}{named}"]
        here.host.extra["issuer"] = f"{url}{published}"
        here.host.redirect = {"iss": f"{url}{answered}"}
        path = f"/.well-known/oauth-authorization-server{published.rstrip('/')}"
        here.host.answer[path] = lambda exchange: exchange.respond_json(200, here.host.metadata())
        settings = {"issuer": f"{url}{published}"} if configured else {}

        async with connected(here.target(**settings)) as connection:
            assert (await connection.call_tool("t")).text == "done"
            (problem,) = connection.problems
            assert problem == f"the server names the issuer '{url}{named}', its metadata '{url}{published}'"
        async with connected(here.target(**settings)) as connection:
            assert (await connection.call_tool("t")).text == "done"

        assert len(here.person.asked) == 1
        assert here.host.paths().count("/register") == 1


async def test_the_redirect_names_the_issuer_as_its_own_metadata_do() -> None:
    async with world() as here:
        here.server.metadata["authorization_servers"] = [f"{here.host.url}/"]
        here.host.redirect = {"iss": f"{here.host.url}/"}
        with pytest.raises(AuthRequiredError, match="comes from another authorization server"):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())


@pytest.mark.parametrize(
    "form",
    [
        'Bearer resource_metadata="URL"',
        "Bearer resource_metadata=URL",
        "Bearer resource_metadata='URL'",
        'Bearer resource_metadata = "URL"',
        'bearer realm="OAuth", error="invalid_token", resource_metadata=URL',
        'Bearer realm="OAuth",resource_metadata="URL", resource_metadata="http://127.0.0.1:1/never"',
        "Basic realm=x, Bearer scope=a, resource_metadata='URL', error='invalid_token'",
    ],
)
async def test_the_metadata_are_where_the_challenge_names_them_in_any_form(form: str) -> None:
    async with world() as here:
        place = f"{here.server.origin}/metadata/of-it"
        here.server.header = form.replace("URL", place)
        named = {"resource": here.server.url, "authorization_servers": [here.host.issuer]}
        here.server.answer["/metadata/of-it"] = lambda exchange: exchange.respond_json(200, named)
        here.server.answer["/.well-known/oauth-protected-resource/mcp"] = lambda exchange: exchange.respond(404)

        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"


METADATA: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "lists of the authorization server as texts": (
        {},
        {"token_endpoint_auth_methods_supported": "none", "dpop_signing_alg_values_supported": "ES256 RS256"},
        ["'token_endpoint_auth_methods_supported' as a string", "'dpop_signing_alg_values_supported' as a string"],
    ),
    "scopes as a text": ({}, {"scopes_supported": "a b"}, ["'scopes_supported' as a string, read as a list"]),
    "grants as a text": ({}, {"grant_types_supported": "authorization_code"}, ["'grant_types_supported' as a string"]),
    "scopes of the server as a text": ({"scopes_supported": "a b"}, {}, ["'scopes_supported' as a string"]),
    "scopes that are not texts": (
        {"scopes_supported": ["a", None, 5]},
        {},
        ["'scopes_supported' with members that are not texts, read without them"],
    ),
    "a flag as a text": (
        {},
        {"authorization_response_iss_parameter_supported": "true"},
        ["'authorization_response_iss_parameter_supported' as a string, read as a flag"],
    ),
}


@pytest.mark.parametrize(("of_server", "of_issuer", "odd"), METADATA.values(), ids=list(METADATA))
async def test_lists_and_flags_of_metadata_are_read_in_other_forms_with_a_problem(
    of_server: dict[str, Any], of_issuer: dict[str, Any], odd: list[str]
) -> None:
    async with world() as here:
        here.server.metadata |= of_server
        here.host.extra |= of_issuer
        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"
            assert len(connection.problems) == len(odd)
            for expected in odd:
                assert any(expected in problem for problem in connection.problems)
    if "scopes_supported" in of_server:
        assert here.host.authorizations()[0]["scope"].split()[0] == "a"


async def test_one_authorization_server_may_be_named_without_a_list() -> None:
    async with world() as here:
        here.server.metadata["authorization_servers"] = here.host.issuer
        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"
            assert "'authorization_servers' as a string, read as a list" in connection.problems[0]


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ({"code_challenge_methods_supported": "S256"}, "is not accepted: Expected `array"),
        ({"code_challenge_methods_supported": ["s256"]}, "does not say that it supports PKCE with S256"),
        ({"authorization_response_iss_parameter_supported": "perhaps"}, "is not accepted: Expected `bool"),
        ({"token_endpoint": 5}, "is not accepted: Expected `str"),
        ({"issuer": ["http://127.0.0.1"]}, "is not accepted: Expected `str"),
    ],
    ids=str,
)
async def test_metadata_that_say_nothing_about_security_are_not_guessed(member: dict[str, Any], said: str) -> None:
    async with world() as here:
        here.host.extra |= member
        with pytest.raises(AuthRequiredError, match=said):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())


async def test_a_text_that_requires_the_issuer_in_redirects_has_it_required() -> None:
    async with world() as here:
        here.host.extra["authorization_response_iss_parameter_supported"] = "true"
        here.host.redirect = {"iss": None}
        with pytest.raises(AuthRequiredError, match="does not say which authorization server it comes from"):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
async def test_a_page_for_every_unknown_path_is_not_metadata(start: bytes) -> None:
    async with world() as here:
        page = b"<!doctype html><title>app</title>"
        found = start + json.dumps(here.host.metadata()).encode()
        here.host.answer["/.well-known/oauth-authorization-server"] = lambda exchange: exchange.respond(
            200, page, content_type="text/html; charset=utf-8"
        )
        here.host.answer["/.well-known/openid-configuration"] = lambda exchange: exchange.respond(200, found)
        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"


async def test_an_issuer_in_another_spelling_is_refused_and_not_shown_as_the_same_one() -> None:
    async with world() as here:
        here.host.extra["issuer"] = here.host.url.replace("http:", "HTTP:")
        with pytest.raises(AuthRequiredError, match=r"spell the issuer 'http://.*' in another way: they are not used"):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())


async def test_a_registration_that_is_refused_with_the_status_of_a_success_has_its_reason_in_the_error() -> None:
    async with world() as here:
        here.host.answer["/register"] = lambda exchange: exchange.respond_json(201, {"error": "invalid_redirect_uri"})
        with pytest.raises(AuthRequiredError, match="the registration endpoint refuses: invalid_redirect_uri"):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())


NO_RESOURCE = "it gives no tokens for this server: let its administrator add the server's URL as a resource"


async def test_a_server_that_gives_no_tokens_for_the_resource_has_the_next_step_in_the_error() -> None:
    async with world() as here:
        await answered(here, b'{"error": "invalid_target", "error_description": "AADSTS9010010"}', status=400)
        settings = here.settings(**MACHINE, client_secret="pw")
        with pytest.raises(AuthRequiredError, match=f"invalid_target: AADSTS9010010'?; {NO_RESOURCE}"):
            await sign_in(settings, here.server.url, server="s", store=here.store)


async def test_a_redirect_that_refuses_the_resource_has_the_next_step_in_the_error() -> None:
    async with world() as here:
        here.host.redirect = {"code": None, "error": "invalid_target"}
        with pytest.raises(AuthRequiredError, match=f"invalid_target'?; {NO_RESOURCE}"):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())
