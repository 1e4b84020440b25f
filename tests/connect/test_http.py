"""Connections over HTTP: credentials and headers of every request, the older transport, what is mirrored."""

from __future__ import annotations

import itertools
import logging

import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, steps_of
from tests.servers.fixtures import http_server
from toolweave import AuthRequiredError, ConnectError, McpConnection, ProtocolError, connect_mcp
from toolweave.config import Auth
from toolweave.connect import ConnectionState

TOKEN = "s3cr3t-t0k3n-0123456789"


async def requests_of(connection: McpConnection) -> list[Json]:
    """Return the POSTs that the server saw, this one included."""
    result = await connection.call_tool("seen_headers")
    return result.structured_content["requests"]


@pytest.mark.requirement("R25", "R10", "D4")
@pytest.mark.parametrize(
    ("guard", "auth"),
    [
        (("--require-bearer", TOKEN), {"type": "bearer", "token": TOKEN}),
        (("--require-header", f"X-API-Key:{TOKEN}"), {"type": "api_key", "token": TOKEN}),
        (("--require-header", f"X-Own:{TOKEN}"), {"type": "api_key", "token": TOKEN, "header": "X-Own"}),
        (("--require-header", f"X-Custom:{TOKEN}"), {"type": "custom", "headers": {"X-Custom": TOKEN}}),
    ],
)
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_credentials_of_a_config_go_with_every_request(kind: str, guard: tuple[str, str], auth: Json) -> None:
    era = ("--era", "sse") if kind == "sse" else ()
    with http_server(*guard, *era) as url:
        async with connected({"transport": kind, "url": url, "auth": auth}) as connection:
            assert (await connection.call_tool("echo", {"text": "in"})).text == "in"
        with pytest.raises(AuthRequiredError):
            await connect_mcp({"transport": kind, "url": url})


@pytest.mark.requirement("R10", "R26")
async def test_headers_of_a_config_and_of_the_call_go_with_every_request() -> None:
    with http_server() as url:
        target = {"url": url, "headers": {"X-One": "1", "X-Two": "2"}}
        async with connected(target, headers={"X-Two": "two", "X-Three": "3"}) as connection:
            seen = [request["headers"] for request in await requests_of(connection)]
    assert len(seen) >= 4
    assert {(headers["x-one"], headers["x-two"], headers["x-three"]) for headers in seen} == {("1", "two", "3")}


@pytest.mark.requirement("R25", "R27")
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_callable_token_is_asked_before_each_request(asynchronous: bool) -> None:
    numbers = itertools.count(1)

    def token() -> str:
        return f"token-{next(numbers)}"

    async def token_later() -> str:
        return token()

    async with connected(http_server("--version", MODERN), auth=token_later if asynchronous else token) as connection:
        await connection.call_tool("echo", {"text": "x"})
        seen = [request["headers"]["authorization"] for request in await requests_of(connection)]
    assert len(seen) == len(set(seen)) >= 4
    assert all(value.startswith("Bearer token-") for value in seen)


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_callable_headers_are_asked_before_each_request(asynchronous: bool) -> None:
    numbers = itertools.count(1)

    def headers() -> dict[str, str]:
        return {"X-Number": str(next(numbers))}

    async def headers_later() -> dict[str, str]:
        return headers()

    async with connected(
        http_server("--version", MODERN), headers=headers_later if asynchronous else headers
    ) as connection:
        await connection.call_tool("echo", {"text": "x"})
        seen = [request["headers"]["x-number"] for request in await requests_of(connection)]
    assert len(seen) == len(set(seen)) >= 4


async def test_a_provider_may_give_whole_headers() -> None:
    auth = Auth(type="custom", provider=lambda: {"X-Signed": "by me"})
    async with connected(http_server("--require-header", "X-Signed:by me"), auth=auth) as connection:
        assert connection.state is ConnectionState.READY


async def test_the_query_of_a_url_is_sent_and_kept_out_of_every_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with http_server("--version", MODERN) as url:
        async with connected(f"{url}?api_key={TOKEN}") as connection:
            seen = await requests_of(connection)
    assert [request["query"] for request in seen] == [{"api_key": TOKEN}] * len(seen)
    assert TOKEN not in caplog.text


async def test_a_provider_that_raises_is_an_error_of_connecting_not_a_hang() -> None:
    def provider() -> str:
        raise LookupError("the vault is locked")

    with http_server() as url, pytest.raises(ConnectError, match="the vault is locked"):
        await connect_mcp(url, auth=provider, timeout={"connect": 5})


async def test_a_provider_that_raises_later_fails_that_request_alone() -> None:
    locked = False

    def provider() -> str:
        if locked:
            raise LookupError("the vault is locked")
        return "open"

    async with connected(http_server(), auth=provider) as connection:
        locked = True
        result = await (await connection.list_tools())["fail"].execute()
        locked = False
        assert (await connection.call_tool("echo", {"text": "open again"})).text == "open again"
    assert "the vault is locked" in result.text


@pytest.mark.requirement("R26")
async def test_credentials_show_up_in_no_error_representation_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with http_server("--require-bearer", "another") as url:
        auth = {"type": "bearer", "token": TOKEN}
        target = {"url": f"{url}?api_key={TOKEN}", "auth": auth, "headers": {"X-A": TOKEN}}
        connection = await connect_mcp(target, name="guarded", lazy=True)
        with pytest.raises(AuthRequiredError) as refused:
            await connection.list_tools()
        shown = [str(refused.value), repr(refused.value), repr(connection), repr(connection.config), caplog.text]
        shown += [step.detail for step in connection.report.steps]
        await connection.close()
    assert not [text for text in shown if TOKEN in text]


@pytest.mark.requirement("C7", "R11")
@pytest.mark.parametrize("setting", ["auto", "only"])
async def test_a_server_of_the_older_transport_is_found_behind_an_http_url(setting: str) -> None:
    with http_server("--era", "sse", path="/sse") as url:
        async with connected({"url": url, "legacy_sse": setting}) as connection:
            assert connection.protocol_version == "2024-11-05"
            assert (await connection.call_tool("echo", {"text": "old"})).text == "old"
            assert ("discover" in steps_of(connection)) == (setting == "auto")


@pytest.mark.requirement("C7")
async def test_the_older_transport_is_not_tried_when_the_config_forbids_it() -> None:
    with http_server("--era", "sse", path="/sse") as url, pytest.raises(ConnectError, match="HTTP 405") as failure:
        await connect_mcp({"url": url, "legacy_sse": "never"})
    assert "older HTTP" not in str(failure.value)
    assert failure.value.status == 405


@pytest.mark.requirement("C7")
async def test_an_sse_config_at_a_server_that_has_no_such_transport_says_so() -> None:
    with http_server("--version", MODERN) as url, pytest.raises(ConnectError, match="HTTP 405"):
        await connect_mcp({"transport": "sse", "url": url})


async def test_an_sse_config_at_a_port_where_nobody_listens_says_so() -> None:
    with http_server() as url:
        pass
    with pytest.raises(ConnectError, match="no answer from http"):
        await connect_mcp({"transport": "sse", "url": url}, timeout={"connect": 5})


async def test_an_older_server_that_goes_away_in_mid_call_is_lost() -> None:
    with http_server("--era", "sse", path="/sse") as url:
        async with connected({"transport": "sse", "url": url}, restart="never") as connection:
            result = await (await connection.list_tools())["crash"].execute()
    assert result.error is not None
    assert result.error.kind == "outcome_unknown"


async def test_arguments_are_mirrored_into_headers_where_the_schema_asks_for_it() -> None:
    async with connected(http_server("--version", MODERN)) as connection:
        result = await connection.call_tool("mirrored", {"region": "nørge"})
    headers: dict[str, str] = result.structured_content["headers"]
    assert headers["mcp-param-region"].startswith("=?base64?")
    assert (headers["mcp-name"], headers["mcp-method"]) == ("mirrored", "tools/call")


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_session_server_gets_its_session_and_revision_with_each_request(version: str) -> None:
    async with connected(http_server("--version", version)) as connection:
        seen = await requests_of(connection)
    used = [
        request["headers"] for request in seen if request["body"]["method"] not in ("server/discover", "initialize")
    ]
    assert len(used) == 3
    assert {headers["mcp-session-id"] for headers in used} == {"session-1"}
    assert {headers["mcp-protocol-version"] for headers in used} == {version}


async def test_a_server_without_a_get_stream_is_used_all_the_same() -> None:
    async with connected(http_server("--no-get-stream")) as connection:
        assert (await connection.call_tool("echo", {"text": "x"})).text == "x"


async def test_a_tool_whose_header_mapping_is_invalid_is_left_out_over_http_only() -> None:
    # the same definitions over a channel are offered: there nothing is mirrored (SEP-2243)
    schema: Json = {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "bad name"}}}

    def answer(message: Json) -> Json | None:
        match message["method"]:
            case "server/discover":
                return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
            case _:
                return {"result": {"tools": [{"name": "mirror", "inputSchema": schema}]}}

    async with connected(ChannelServer(answer)) as connection:
        assert "mirror" in connection.snapshot().by_name


async def test_proxies_of_the_environment_are_used_but_for_their_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.removesuffix("/mcp"))
        async with connected("http://no-such-host.invalid/mcp") as connection:
            assert (await connection.call_tool("echo", {"text": "through the proxy"})).text == "through the proxy"
        monkeypatch.setenv("NO_PROXY", "no-such-host.invalid")
        with pytest.raises((ConnectError, ProtocolError), match="no answer from"):
            await connect_mcp("http://no-such-host.invalid/mcp")
