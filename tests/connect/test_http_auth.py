"""Who authorizes requests over HTTP: hooks that are told of each refusal, and authorization objects of httpx."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

from tests.connect.scripted import Exchange, HttpScript, Special, answers_to, legacy_answer, listening, modern_answer
from tests.connect.targets import MODERN, Json, Script, connected, initialized, steps_of
from tests.servers.fixtures import http_server
from toolweave import AuthRequiredError, ConnectError, ProtocolError, connect_mcp
from toolweave.connect import AuthChallenge, ConnectionState

TOKEN = "s3cr3t-t0k3n-0123456789"
ERAS: dict[str, Script] = {"modern": modern_answer, "legacy": initialized(legacy_answer)}


def guarded(script: Script, accepts: Callable[[Exchange], bool], challenge: str = 'Bearer realm="test"') -> HttpScript:
    """Return a server that answers 401 to what it does not accept."""

    async def special(exchange: Exchange, _message: Json) -> bool:
        if accepts(exchange):
            return False
        await exchange.respond(401, b"who are you", www_authenticate=challenge)
        return True

    return HttpScript(script, special)


class Rotating:
    """A hook whose token is another one after each refusal."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.asked: list[tuple[str, str]] = []
        self.challenges: list[AuthChallenge] = []

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        self.asked.append((method, url))
        return {"Authorization": f"Bearer {self.tokens[0]}"}

    async def challenged(self, challenge: AuthChallenge) -> Mapping[str, str] | None:
        self.challenges.append(challenge)
        del self.tokens[0]
        return {"Authorization": f"Bearer {self.tokens[0]}"} if self.tokens else None


def takes(token: str) -> Callable[[Exchange], bool]:
    return lambda exchange: exchange.headers.get("authorization") == f"Bearer {token}"


@pytest.mark.requirement("R25", "R27")
@pytest.mark.parametrize("era", ERAS)
async def test_a_hook_authorizes_each_request_and_is_told_of_a_refusal(era: str) -> None:
    server = guarded(ERAS[era], takes("good"))
    hook = Rotating(["stale", "good"])
    async with listening(server.handle) as (url, _):
        async with connected(f"{url}?key=k", auth=hook) as connection:
            assert (await connection.call_tool("t")).text == "done"
        (challenge,) = hook.challenges
        assert (challenge.status, challenge.method, challenge.url) == (401, "POST", f"{url}?key=k")
        assert challenge.headers["www-authenticate"] == 'Bearer realm="test"'
        assert {name.lower(): value for name, value in challenge.sent.items()} == {"authorization": "Bearer stale"}
        assert "stale" not in repr(challenge)
    # each request, those of the session's own stream and of its end too, was asked for
    assert len(hook.asked) == len(server.exchanges) - 1
    assert {method for method, _ in hook.asked} == ({"POST"} if era == "modern" else {"POST", "GET", "DELETE"})


async def test_a_request_that_is_refused_twice_is_sent_no_third_time() -> None:
    server = guarded(modern_answer, takes("good"), 'Bearer error="invalid_token"')
    async with listening(server.handle) as (url, _):
        with anyio.fail_after(20), pytest.raises(AuthRequiredError) as refused:
            await connect_mcp(url, auth=Rotating(["a", "b", "c", "good"]))
        assert (refused.value.status, refused.value.challenge) == (401, 'Bearer error="invalid_token"')
        assert [one.headers["authorization"] for one in server.exchanges] == ["Bearer a", "Bearer b"]
        with anyio.fail_after(20), pytest.raises(AuthRequiredError):
            await connect_mcp(url, auth=Rotating(["only"]))
        assert len(server.exchanges) == 3


class Patient(Rotating):
    max_resends = 3


async def test_a_hook_says_how_often_a_request_is_sent_again() -> None:
    good = "one"

    def accepts(exchange: Exchange) -> bool:
        return takes(good)(exchange)

    hook = Patient(["one", "two", "three"])
    server = guarded(modern_answer, accepts)
    async with listening(server.handle) as (url, _), connected({"url": url}, auth=hook) as connection:
        good = "three"
        assert (await connection.call_tool("t")).text == "done"
        assert [(one.attempt, one.operation) for one in hook.challenges] == [(0, "tools/call t"), (1, "tools/call t")]
        assert server.exchanges[-1].headers["authorization"] == "Bearer three"


async def test_each_request_asks_for_its_headers_and_new_ones_are_sent_at_once() -> None:
    good = "one"

    def accepts(exchange: Exchange) -> bool:
        return takes(good)(exchange)

    server = guarded(modern_answer, accepts)
    hook = Rotating(["one", "two", "three"])
    async with listening(server.handle) as (url, _), connected({"url": url}, auth=hook) as connection:
        for _ in range(3):
            asked = len(hook.asked)
            assert (await connection.call_tool("t")).text == "done"
            assert len(hook.asked) == asked + 1
        good = hook.tokens[1]
        hook.tokens.pop(0)
        assert (await connection.call_tool("t")).text == "done"
        assert not hook.challenges
        assert server.exchanges[-1].headers["authorization"] == "Bearer two"


async def test_a_refusal_of_one_call_is_a_matter_of_that_call() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") != "tools/call" or exchange.headers["authorization"] == "Bearer wide":
            return False
        challenge = 'Bearer error="insufficient_scope", scope="write"'
        await exchange.respond(403, b"more is needed", www_authenticate=challenge)
        return True

    hook = Rotating(["narrow", "wide"])
    async with (
        listening(HttpScript(modern_answer, special).handle) as (url, _),
        connected(url, auth=hook) as connection,
    ):
        assert (await connection.call_tool("t")).text == "done"
        assert connection.state is ConnectionState.READY
    assert [one.status for one in hook.challenges] == [403]
    assert 'scope="write"' in hook.challenges[0].headers["www-authenticate"]


@pytest.mark.parametrize("where", ["headers", "challenged"])
async def test_a_hook_that_raises_fails_the_request_that_asked(where: str) -> None:
    class Locked(Rotating):
        async def headers(self, method: str, url: str) -> Mapping[str, str]:
            if where == "headers":
                raise LookupError("the vault is locked")
            return await super().headers(method, url)

        async def challenged(self, challenge: AuthChallenge) -> Mapping[str, str] | None:
            raise LookupError("the vault is locked")

    async with listening(guarded(modern_answer, takes("good")).handle) as (url, _):
        with anyio.fail_after(20), pytest.raises(ConnectError, match="LookupError: the vault is locked"):
            await connect_mcp(url, auth=Locked(["stale"]))


async def test_what_a_hook_made_is_masked_where_a_server_says_it_back() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(500, f"cannot use {exchange.headers['authorization']} today".encode())

    async with (
        listening(HttpScript(modern_answer, special).handle) as (url, _),
        connected(url, auth=Rotating([TOKEN])) as connection,
    ):
        with pytest.raises(ProtocolError, match=r"cannot use .*today") as failure:
            await connection.call_tool("t")
    assert TOKEN not in str(failure.value)


async def test_a_hook_is_asked_again_where_a_redirect_leads_and_nothing_goes_to_another_origin() -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.path == "/mcp":
            await exchange.respond(307, location="/moved" if within else f"{there}/mcp")
        else:
            await server.handle(exchange)

    server, elsewhere, within = HttpScript(modern_answer), HttpScript(modern_answer), True
    hook = Rotating(["good"])
    async with listening(handle) as (url, _), listening(elsewhere.handle) as (there, _):
        async with connected(url, auth=hook) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert {asked for _, asked in hook.asked} == {url, url.replace("/mcp", "/moved")}
        within = False
        with anyio.fail_after(20), pytest.raises(ConnectError, match="not followed"):
            await connect_mcp(url, auth=hook)
    assert elsewhere.exchanges == []


class TokenFlow:
    """An authorization object in the way of httpx: answers a challenge with a second request."""

    async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        response = yield request
        if response.status_code == 401 and "www-authenticate" in response.headers:
            request.headers["Authorization"] = f"Bearer {TOKEN}"
            yield request


@pytest.mark.requirement("R25")
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_an_httpx_authorization_object_answers_challenges(version: str) -> None:
    async with connected(
        http_server("--require-bearer", TOKEN, "--version", version, "--answers", "sse"), auth=TokenFlow()
    ) as connection:
        assert (await connection.call_tool("echo", {"text": "in"})).text == "in"
        assert "load the SDK" not in steps_of(connection)


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_basic_and_digest_authorization_work_with_either_generation_of_httpx(library: Any) -> None:
    digest = 'Digest realm="r", nonce="abc", qop="auth", algorithm=MD5'

    def basic(exchange: Exchange) -> bool:
        return exchange.headers.get("authorization") == "Basic bWU6cHc="

    def digested(exchange: Exchange) -> bool:
        given = exchange.headers.get("authorization", "")
        return re.fullmatch(r'Digest username="me", realm="r", nonce="abc", uri="/mcp\?a=b%20c", .*', given) is not None

    for accepts, auth, challenge in [
        (basic, library.BasicAuth("me", "pw"), "Basic"),
        (digested, library.DigestAuth("me", "pw"), digest),
        (digested, library.DigestAuth("me", "pw"), f'Bearer realm="x, Digest", error="a, b", {digest}, Negotiate'),
    ]:
        async with (
            listening(guarded(modern_answer, accepts, challenge).handle) as (url, _),
            connected(f"{url}?a=b%20c", auth=auth) as connection,
        ):
            assert (await connection.call_tool("t")).text == "done"


async def test_a_flow_may_ask_other_servers_which_get_nothing_but_its_own_request() -> None:
    tokens: list[Exchange] = []

    async def give(exchange: Exchange) -> None:
        tokens.append(exchange)
        await exchange.respond_json(200, {"token": TOKEN}, set_cookie="theirs=1")

    class FromElsewhere(httpx2.Auth):
        requires_response_body = True  # also of what answers the call

        def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
            response = yield httpx2.Request("POST", there, headers={"x-own": "1"}, data={"grant": "me"})
            request.headers["authorization"] = f"Bearer {response.json()['token']}"
            yield request

    async def cookie(exchange: Exchange, message: Json) -> bool:
        answer = modern_answer(message)
        await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], **(answer or {})}, set_cookie="ours=1")
        return True

    server = HttpScript(modern_answer, cookie)
    async with listening(server.handle) as (url, _), listening(give) as (there, connections):
        async with connected(url, auth=FromElsewhere(), headers={"X-Key": TOKEN}) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert len(connections) == 1
    assert {one.headers["authorization"] for one in server.exchanges} == {f"Bearer {TOKEN}"}
    assert {one.headers.get("cookie") for one in server.exchanges} == {None, "ours=1"}
    assert len(tokens) == len(server.exchanges)
    assert {one.body for one in tokens} == {b"grant=me"}
    assert not [one for one in tokens if {"cookie", "x-key", "mcp-method"} & set(one.headers)]


async def test_a_flow_sees_redirects_and_may_follow_them() -> None:
    class Following(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            response = yield httpx2.Request("GET", f"{origin}/old", headers={"x-own": "1"})
            for _ in range(2):
                assert response.next_request is not None
                response = yield response.next_request
            request.headers["authorization"] = (await response.aread()).decode()
            yield request

    async def handle(exchange: Exchange) -> None:
        match exchange.path:
            case "/old":
                await exchange.respond(302, location="newer")
            case "/newer":
                await exchange.respond(307, location="/newest")
            case "/newest":
                await exchange.respond(200, f"Bearer {exchange.headers['x-own']}".encode())
            case _:
                await server.handle(exchange)

    server = guarded(modern_answer, takes("1"))
    async with listening(handle) as (url, _):
        origin = url.removesuffix("/mcp")
        async with connected(url, auth=Following()) as connection:
            assert (await connection.call_tool("t")).text == "done"


@pytest.mark.parametrize("flow", ["raises", "ends", "asks where nobody listens"])
async def test_a_flow_that_fails_fails_the_request_that_asked(flow: str) -> None:
    class Failing(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            if flow == "raises":
                raise LookupError("the vault is locked")
            if flow == "asks where nobody listens":
                yield httpx2.Request("GET", nowhere)

    words = {"raises": "LookupError: the vault is locked", "ends": "its flow yields no request"}
    async with listening(HttpScript(modern_answer).handle) as (nowhere, _):
        pass
    server = HttpScript(modern_answer)
    async with listening(server.handle) as (url, _):
        with anyio.fail_after(20), pytest.raises(ConnectError, match=words.get(flow, f"no answer from {nowhere}: ")):
            await connect_mcp(url, auth=Failing())
    assert server.exchanges == []


async def test_what_a_flow_made_is_masked_where_a_server_says_it_back() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            await exchange.respond(500, f"cannot use {exchange.headers['authorization']}".encode())
        return message.get("method") == "tools/call"

    async with (
        listening(HttpScript(modern_answer, special).handle) as (url, _),
        connected(url, auth=httpx2.BasicAuth("me", TOKEN)) as connection,
    ):
        with pytest.raises(ProtocolError, match=r"cannot use ") as failure:
            await connection.call_tool("t")
    assert b64encode(f"me:{TOKEN}".encode()).decode() not in str(failure.value)


class _Kept:
    """Keeps tokens in memory, for the SDK's providers."""

    def __init__(self) -> None:
        self.tokens: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return None

    async def set_client_info(self, client_info: Any) -> None:
        """Keep nothing: the client is given."""


async def test_a_provider_of_the_official_sdk_signs_in() -> None:
    seen: list[tuple[str, str]] = []

    async def authority(exchange: Exchange) -> None:
        seen.append((exchange.method, exchange.path))
        if exchange.path.startswith("/.well-known/oauth-authorization-server"):
            known = {"issuer": issuer, "token_endpoint": f"{issuer}/token", "authorization_endpoint": f"{issuer}/a"}
            await exchange.respond_json(200, {**known, "response_types_supported": ["code"]})
        elif exchange.path == "/token":
            await exchange.respond_json(200, {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 60})
        else:
            await exchange.respond(404)

    async def metadata(exchange: Exchange, _message: Json) -> bool:
        if exchange.path.startswith("/.well-known/oauth-protected-resource"):
            await exchange.respond_json(200, {"resource": url, "authorization_servers": [issuer]})
        elif takes(TOKEN)(exchange):
            return False
        else:
            await exchange.respond(401, www_authenticate="Bearer")
        return True

    special: Special = metadata
    server = HttpScript(modern_answer, special)
    async with listening(authority) as (there, _), listening(server.handle) as (url, _):
        issuer = there.removesuffix("/mcp")
        auth = ClientCredentialsOAuthProvider(url, _Kept(), "me", "pw", issuer=issuer)
        async with connected(url, auth=auth) as connection:
            assert (await connection.call_tool("t")).text == "done"
    assert [path for _, path in seen].count("/token") == 1
    assert json.dumps(seen).count("POST") == 1
