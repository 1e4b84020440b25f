"""Headers of each caller that a gateway sends on to a server, and claims of its token that are sent as headers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pytest

from tests.connect.targets import eventually
from tests.gateway.caller_world import free_port, names
from tests.serve.carriers import EACH_ERA
from tests.serve.lines import Peer
from tests.serve.serving import served_app, served_http
from toolweave import CallContext, McpConnection, connect_mcp, create_mcp_server, tool
from toolweave.config import Secret, ServerConfig
from toolweave.errors import AuthRequiredError, ConfigError, ProtocolError, ToolError
from toolweave.gateway import GatewayManager, create_gateway
from toolweave.gateway._callers.headers import digest_of, values_for, with_headers
from toolweave.hub import Hub
from toolweave.middleware import ResponseCache
from toolweave.serve import CallNext, Identity, McpServer, Request

BOUND = 60
TENANT = {"forward_headers": ["X-Tenant"]}


@tool(annotations={"readOnlyHint": True})
def tenant(ctx: CallContext) -> str:
    """Return the tenant of the request."""
    return ctx.headers.get("x-tenant", "nobody")


def person(ctx: CallContext) -> str:
    """Return the person of the request."""
    return ctx.headers.get("x-person", "nobody")


def secret(ctx: CallContext) -> str:
    """Return what only acme is offered."""
    return f"the secret of {ctx.headers['x-tenant']}"


async def only_acme_sees_the_secret(request: Request, call_next: CallNext) -> Any:
    result = await call_next(request)
    if request.method == "tools/list" and request.headers.get("x-tenant") != "acme":
        shown = [one for one in result["tools"] if one["name"] != "secret"]
        return {**result, "tools": shown}
    return result


def tenants() -> McpServer:
    return create_mcp_server("tenants", tools=[tenant, person, secret], middleware=[only_acme_sees_the_secret])


@asynccontextmanager
async def gateway_to(
    entry: Mapping[str, Any], *, section: Mapping[str, Any] | None = None, middleware: Any = ()
) -> AsyncGenerator[str]:
    """Serve the server of tenants and a gateway before it for the block; yield the address of the gateway."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served_http(tenants()))
        config = {"mcpServers": {"up": {"url": url, **entry}}}
        if section is None:
            yield await stack.enter_async_context(served_http(create_gateway(config, middleware=middleware)))
            return
        manager = GatewayManager({**config, "gateway": section})
        yield await stack.enter_async_context(served_app(manager.asgi_app())) + "/mcp"


def caller(url: str, era: str = "2026-07-28", **headers: str) -> AbstractAsyncContextManager[McpConnection]:
    return connect_mcp(
        {"url": url, "headers": {name.replace("_", "-"): it for name, it in headers.items()}, "protocol": era}
    )


@EACH_ERA
async def test_each_caller_has_its_own_header_at_the_server_and_sees_its_own_list(era: str) -> None:
    async with (
        gateway_to(TENANT) as url,
        caller(url, era, x_tenant="acme") as acme,
        caller(url, era, x_tenant="other") as other,
    ):
        assert await names(acme) == ["up_tenant", "up_person", "up_secret"]
        assert await names(other) == ["up_tenant", "up_person"]
        assert (await acme.call_tool("up_tenant")).text == "acme"
        assert (await other.call_tool("up_tenant")).text == "other"
        assert (await acme.call_tool("up_secret")).text == "the secret of acme"
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await other.request("tools/call", {"name": "up_secret", "arguments": {}})


@EACH_ERA
async def test_a_header_that_is_not_listed_and_the_key_of_the_gateway_are_not_sent_on(era: str) -> None:
    keys = {"auth": {"api_keys": {"ada": "key-of-ada-0123456789"}}}
    async with gateway_to(TENANT, section=keys) as url:
        headers = {"authorization": "Bearer key-of-ada-0123456789", "x-tenant": "acme", "x-person": "eve"}
        async with connect_mcp({"url": url, "headers": headers, "protocol": era}) as connection:
            assert (await connection.call_tool("up_tenant")).text == "acme"
            assert (await connection.call_tool("up_person")).text == "nobody"


async def test_a_caller_without_the_header_is_called_without_it() -> None:
    async with gateway_to(TENANT) as url, caller(url) as connection, caller(url, x_tenant="acme") as acme:
        assert (await acme.call_tool("up_tenant")).text == "acme"
        assert (await connection.call_tool("up_tenant")).text == "nobody"


@pytest.mark.slow
@EACH_ERA
async def test_no_answer_crosses_between_sixty_four_callers_under_load(era: str) -> None:
    wrong: list[tuple[str, str]] = []
    answered = 0

    async def use(url: str, name: str) -> None:
        nonlocal answered
        async with caller(url, era, x_tenant=name) as connection:
            for _ in range(50):
                found = (await connection.call_tool("up_tenant")).text
                answered += 1
                if found != name:
                    wrong.append((name, found))

    with anyio.fail_after(3 * BOUND):
        async with gateway_to(TENANT) as url, anyio.create_task_group() as tasks:
            for number in range(64):
                tasks.start_soon(use, url, f"tenant-{number}")

    assert wrong == []
    assert answered == 64 * 50


async def test_a_caller_whose_header_changes_within_a_session_gets_the_answers_of_the_new_value() -> None:
    head = {"accept": "application/json, text/event-stream"}
    declared: dict[str, Any] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    hello: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": declared}
    call: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "up_tenant", "arguments": {}},
    }
    async with gateway_to(TENANT) as url, httpx.AsyncClient(timeout=BOUND) as client:
        began = await client.post(url, json=hello, headers=head)
        head["mcp-session-id"] = began.headers["mcp-session-id"]
        texts = [
            (await client.post(url, json=call, headers={**head, "x-tenant": name})).text for name in ("one", "two")
        ]

    assert '"text":"one"' in texts[0]
    assert '"text":"two"' in texts[1]


async def test_a_cache_gives_no_caller_the_result_of_another_header() -> None:
    cache = ResponseCache(tools_seconds=60)
    async with gateway_to(TENANT, middleware=[cache]) as url:
        for name in ("acme", "other", "acme"):
            async with caller(url, x_tenant=name) as connection:
                assert (await connection.call_tool("up_tenant")).text == name
                assert ("up_secret" in await names(connection)) is (name == "acme")


@EACH_ERA
async def test_callers_keep_their_headers_when_the_server_starts_again(era: str) -> None:
    async def answers(connection: McpConnection) -> str | None:
        try:
            return (await connection.call_tool("up_tenant")).text
        except ToolError:
            return None

    async with AsyncExitStack() as stack:
        async with free_port() as port:
            pass
        config = {"up": {"url": f"http://127.0.0.1:{port}/mcp", **TENANT}}
        url = await stack.enter_async_context(served_http(create_gateway(config)))
        async with served_app(tenants().asgi_app(), port=port):
            acme = await stack.enter_async_context(caller(url, era, x_tenant="acme"))
            other = await stack.enter_async_context(caller(url, era, x_tenant="other"))
            assert await answers(acme) == "acme"
            assert await answers(other) == "other"
        async with served_app(tenants().asgi_app(), port=port):
            for connection, name in ((acme, "acme"), (other, "other")):
                found: str | None = None
                while found is None:
                    found = await answers(connection)
                assert found == name


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("x-tenant", "a" * 4097)], "longer than 4096 bytes"),
        ([("x-tenant", "one"), ("x-tenant", "two")], "more than once"),
    ],
)
async def test_a_value_that_cannot_be_sent_on_is_refused_with_the_reason(
    headers: list[tuple[str, str]], reason: str
) -> None:
    declared: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call: dict[str, Any] = {"name": "up_tenant", "arguments": {}, "_meta": declared}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    head = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "up_tenant"),
    ]
    async with gateway_to(TENANT) as url, httpx.AsyncClient(timeout=BOUND) as client:
        answer = await client.post(url, json=message, headers=[*head, *headers])

    assert reason in answer.json()["result"]["content"][0]["text"]
    assert answer.json()["result"]["isError"] is True


async def test_a_line_break_in_a_value_reaches_no_server() -> None:
    async with gateway_to(TENANT) as url:
        app = create_gateway({"up": {"url": url, **TENANT}}).asgi_app()
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"accept", b"application/json, text/event-stream"),
                (b"x-tenant", b"one\r\nx-person: eve"),
            ],
        }
        call = (
            b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up_tenant","arguments":{},'
            b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
        )
        scope["headers"] += [
            (b"mcp-protocol-version", b"2026-07-28"),
            (b"mcp-method", b"tools/call"),
            (b"mcp-name", b"up_tenant"),
            (b"content-length", b"%d" % len(call)),
        ]
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": call, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        async with app.lifespan():
            await app(scope, receive, send)

    assert b"control character" in b"".join(one.get("body", b"") for one in sent)


async def test_claims_of_a_key_are_sent_as_headers_and_callers_without_the_claim_are_not_offered_the_server() -> None:
    keys = {
        "ada": {"key": "key-of-ada-0123456789", "claims": {"org": {"name": "acme"}, "mail": "ada@acme.example"}},
        "bob": {"key": "key-of-bob-0123456789", "claims": {"org": {"name": "other"}, "mail": "bob@other.example"}},
        "eve": {"key": "key-of-eve-0123456789"},
    }
    entry = {"claim_headers": {"X-Tenant": "org.name", "X-Person": "mail"}}
    found: dict[str, list[str]] = {}
    async with gateway_to(entry, section={"auth": {"api_keys": keys}}) as url:
        for name in ("ada", "bob"):
            headers = {"x-tenant": "forged"}
            async with connect_mcp({"url": url, "auth": f"key-of-{name}-0123456789", "headers": headers}) as one:
                found[name] = [(await one.call_tool(f"up_{tool}")).text for tool in ("tenant", "person")]
        async with connect_mcp({"url": url, "auth": "key-of-eve-0123456789"}) as eve:
            assert await names(eve) == []

    assert found == {"ada": ["acme", "ada@acme.example"], "bob": ["other", "bob@other.example"]}


async def test_a_caller_that_is_idle_gives_its_place_to_another() -> None:
    async with served_http(tenants()) as upstream:
        gateway = create_gateway({"up": {"url": upstream, **TENANT}}, idle_seconds=0.2)
        async with served_http(gateway) as url:
            async with caller(url, x_tenant="acme") as connection:
                assert (await connection.call_tool("up_tenant")).text == "acme"
            await eventually(lambda: len(gateway.callers) == 0)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"forward_headers": ["Authorization"]}, "credentials for the gateway itself"),
        ({"forward_headers": ["Cookie"]}, "credentials for the gateway itself"),
        ({"forward_headers": ["Connection"]}, "one connection"),
        ({"forward_headers": ["Mcp-Session-Id"]}, "set by the protocol"),
        ({"forward_headers": ["X Tenant"]}, "no HTTP header can have"),
        ({"forward_headers": ["X-Tenant", "x-tenant"]}, "twice"),
        (
            {"forward_headers": ["X-Tenant"], "headers": {"x-tenant": "fixed"}},
            "in both 'headers' and 'forward_headers'",
        ),
        (
            {"forward_headers": ["X-A"], "claim_headers": {"x-a": "sub"}},
            "in both 'forward_headers' and 'claim_headers'",
        ),
        ({"claim_headers": {"Authorization": "sub"}}, "credentials for the gateway itself"),
        ({"claim_headers": {"X-Person": ""}}, "must name a claim"),
    ],
)
def test_a_name_that_must_not_be_sent_on_is_refused_with_the_reason(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ServerConfig(name="up", url="https://up.example/mcp", **entry)


@pytest.mark.parametrize("entry", [{"forward_headers": ["X-Tenant"]}, {"claim_headers": {"X-Person": "sub"}}])
def test_a_server_over_stdio_is_refused_since_it_has_no_headers(entry: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'shape'"):
        ServerConfig(name="up", command="server", **entry)


async def test_outside_of_a_gateway_such_a_server_is_refused_with_the_reason() -> None:
    async with served_http(tenants()) as url:
        with pytest.raises(AuthRequiredError, match="headers of each caller of a gateway"):
            async with connect_mcp({"url": url, **TENANT}):
                pass
        async with Hub({"up": {"url": url, **TENANT}}) as hub:
            assert "headers of each caller of a gateway" in str(hub.errors["up"])


@pytest.mark.parametrize("kind", ["fixed", "made"])
async def test_the_header_of_a_caller_replaces_one_of_the_config_in_any_case(kind: str) -> None:
    given = {"x-team": "config", "X-Other": "kept"}
    config = ServerConfig(name="up", url="http://127.0.0.1:1/", headers=given if kind == "fixed" else lambda: given)

    headers = with_headers(config, {"X-Team": Secret("caller")}).headers

    sent: Any = await headers() if callable(headers) else headers  # pyright: ignore[reportGeneralTypeIssues]
    assert set(sent) == {"X-Other", "X-Team"}
    assert sent["X-Team"].reveal() == "caller"


def test_claims_stand_in_headers_as_json_writes_them() -> None:
    config = ServerConfig(
        name="up", url="http://127.0.0.1:1/", claim_headers={"X-Admin": "admin", "X-Level": "level", "X-Team": "team"}
    )
    identity = Identity(client_id="c", claims={"admin": True, "level": 3, "team": "red"})
    client = replace(Peer().client, identity=identity)

    (values,) = values_for([config], {}, client).values()

    assert {name: value.reveal() for name, value in values.items()} == {
        "X-Admin": "true",
        "X-Level": "3",
        "X-Team": "red",
    }


def test_callers_with_the_same_values_in_another_order_share_connections() -> None:
    first = {"a": {"X-One": Secret("1"), "X-Two": Secret("2")}, "b": {}}
    second = {"b": {}, "a": {"X-Two": Secret("2"), "X-One": Secret("1")}}

    assert digest_of(first) == digest_of(second)
    assert digest_of(first) != digest_of({"a": {"X-One": Secret("2"), "X-Two": Secret("1")}, "b": {}})
