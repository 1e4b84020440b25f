"""A large catalogue is shown as few tools that find and call the others; rules hold for what is found and called."""

from __future__ import annotations

import json
from typing import Any

import anyio
import msgspec
import pytest

from tests.gateway.relayed import EACH_CALLER, calling, gateway_to, upstream
from tests.gateway.upstreams import LEGACY, MODERN, Json
from tests.serve.lines import Peer
from tests.serve.serving import served_app
from toolweave import Callbacks, McpServer, connect_mcp, create_mcp_server
from toolweave.errors import ConfigError, RequestError
from toolweave.gateway import Gateway, GatewayManager, create_gateway, load_gateway_config
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import app

EACH_ERA = pytest.mark.parametrize("version", [LEGACY, MODERN])
FINDS = ["search_tools", "call_tool"]


def company(name: str, count: int) -> McpServer:
    """Return a server with so many tools, and one of each of two other words."""
    server = create_mcp_server(name=name, version="1")

    def add(number: int) -> None:
        @server.tool(name=f"report_{number}", description="Write a report of the month.")
        def report(month: str = "May") -> str:  # pyright: ignore[reportUnusedFunction]
            return f"{name} {number} {month}"

    for number in range(count):
        add(number)

    @server.tool(annotations={"readOnlyHint": True})
    def find_invoice(customer: str) -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        """Find the invoice of a customer."""
        return {"found": customer, "at": name}

    @server.tool
    def delete_invoice(customer: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Delete the invoice of a customer."""
        return f"deleted {customer}"

    return server


def fleet(count: int = 150, **options: Any) -> Gateway:
    """Return a gateway before two servers with many tools."""
    return create_gateway({"a": {"server": company("a", count)}, "b": {"server": company("b", 2)}}, **options)


async def asked(gateway: Gateway, peer: Peer, method: str, **params: Any) -> Json:
    """Make a request of a gateway."""
    with anyio.fail_after(30):
        answer = await gateway.endpoint.answer(peer.request(method, **params))
        return msgspec.json.decode(msgspec.json.encode(answer))


async def called(gateway: Gateway, peer: Peer, name: str, /, **arguments: Any) -> Json:
    """Call a tool; return the result."""
    return await asked(gateway, peer, "tools/call", name=name, arguments=arguments)


async def listed(gateway: Gateway, peer: Peer) -> list[str]:
    """Return the names on the first page."""
    return [tool["name"] for tool in (await asked(gateway, peer, "tools/list"))["tools"]]


def names(result: Json) -> list[str]:
    """Return the names that a search or a list found."""
    return [tool["name"] for tool in result["structuredContent"]["tools"]]


@pytest.mark.slow
@EACH_ERA
async def test_a_search_returns_definitions_as_they_are_listed_and_a_call_is_that_of_the_tool(
    version: str,
) -> None:
    gateway, everything = fleet(disclosure="search"), fleet(page_size=100)
    peer = Peer(version=version)
    async with gateway.running(), everything.running():
        page = await asked(gateway, peer, "tools/list")
        found = await called(gateway, peer, "search_tools", query="invoice of a customer", limit=4)
        through = await called(gateway, peer, "call_tool", name="a_find_invoice", arguments={"customer": "Ada"})
        direct = await called(everything, peer, "a_find_invoice", customer="Ada")
        last = (await asked(everything, peer, "tools/list", cursor=await cursor_of(everything, peer)))["tools"]

    assert [tool["name"] for tool in page["tools"]] == FINDS
    assert "nextCursor" not in page
    assert "156 tools" in page["tools"][0]["description"]
    assert "a (152), b (4)" in page["tools"][0]["description"]
    assert sorted(names(found)) == ["a_delete_invoice", "a_find_invoice", "b_delete_invoice", "b_find_invoice"]
    definitions = {tool["name"]: tool for tool in last}
    assert all(definitions[tool["name"]] == tool for tool in found["structuredContent"]["tools"])
    assert [json.loads(line)["name"] for line in found["content"][0]["text"].splitlines()[1:]] == names(found)
    assert through == direct


async def cursor_of(gateway: Gateway, peer: Peer) -> str:
    """Return the cursor of the second page."""
    return (await asked(gateway, peer, "tools/list"))["nextCursor"]


@pytest.mark.slow
@EACH_ERA
async def test_what_a_caller_may_not_call_is_not_found_and_is_as_unknown_as_what_is_not_there(version: str) -> None:
    rules = AccessRules(rules=[AccessRule(effect="allow", annotations={"readOnlyHint": True})])
    gateway, peer = fleet(disclosure="search", middleware=[rules]), Peer(version=version)
    async with gateway.running():
        found = await called(gateway, peer, "search_tools", query="delete the invoice", limit=20)
        refusals: list[RequestError] = []
        for name in ("a_delete_invoice", "a:delete_invoice", "nothing", "call_tool", "search_tools"):
            with pytest.raises(RequestError) as refused:
                await called(gateway, peer, "call_tool", name=name, arguments={"customer": "Ada"})
            assert name in refused.value.message
            refusals.append(refused.value)
        allowed = await called(gateway, peer, "call_tool", name="b_find_invoice", arguments={"customer": "Ada"})

    assert sorted(names(found)) == ["a_find_invoice", "b_find_invoice"]
    assert len({(refused.code, refused.message.split(":")[0]) for refused in refusals}) == 1
    assert allowed["structuredContent"] == {"found": "Ada", "at": "b"}


@pytest.mark.slow
@EACH_ERA
async def test_auto_measures_what_a_caller_may_use(version: str) -> None:
    rules = AccessRules(
        rules=[AccessRule(effect="deny", names=["*_report_*"]), AccessRule(effect="allow", names=["*"])]
    )
    peer = Peer(version=version)
    small, large, restricted = fleet(3), fleet(disclosure="auto"), fleet(disclosure="auto", middleware=[rules])
    small.use([], disclosure="auto")
    async with small.running(), large.running(), restricted.running():
        shown = [await listed(one, peer) for one in (small, large, restricted)]
        with pytest.raises(RequestError, match="cursor") as refused:
            await asked(large, peer, "tools/list", cursor="x")

    assert len(shown[0]) == 9
    assert shown[1] == FINDS
    assert sorted(shown[2]) == ["a_delete_invoice", "a_find_invoice", "b_delete_invoice", "b_find_invoice"]
    assert refused.value.code == -32602


@pytest.mark.slow
@EACH_ERA
async def test_the_tools_of_one_server_are_listed_on_demand(version: str) -> None:
    gateway, peer = fleet(disclosure="groups"), Peer(version=version)
    async with gateway.running():
        page = await asked(gateway, peer, "tools/list")
        found = await called(gateway, peer, "list_tools", server="b")
        wrong = await called(gateway, peer, "list_tools", server="c")
        through = await called(gateway, peer, "call_tool", name="b_report_1", arguments={"month": "June"})

    assert [tool["name"] for tool in page["tools"]] == ["list_tools", "call_tool"]
    assert page["tools"][0]["inputSchema"]["properties"]["server"]["enum"] == ["a", "b"]
    assert names(found) == ["b_report_0", "b_report_1", "b_find_invoice", "b_delete_invoice"]
    assert wrong["isError"]
    assert "a (152), b (4)" in wrong["content"][0]["text"]
    assert through["content"][0]["text"] == "b 1 June"


@pytest.mark.slow
async def test_odd_searches_and_calls_are_told_what_is_right() -> None:
    gateway, peer = fleet(disclosure="search"), Peer(version=MODERN)
    async with gateway.running():
        nothing = await called(gateway, peer, "search_tools", query="zebra crossing")
        unfit = await called(gateway, peer, "search_tools", query=7)
        for arguments in ({}, {"name": 7}, {"name": "a_find_invoice", "arguments": "text"}):
            with pytest.raises(RequestError) as refused:
                await called(gateway, peer, "call_tool", **arguments)
            assert refused.value.code == -32602

    assert names(nothing) == []
    assert "No tool fits 'zebra crossing'" in nothing["content"][0]["text"]
    assert unfit["isError"]


async def test_a_tool_of_an_upstream_with_the_name_of_ours_is_called_by_ours() -> None:
    odd = create_mcp_server(name="odd", version="1")

    @odd.tool(name="call_tool")
    def theirs(name: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Answer for another."""
        return f"theirs: {name}"

    gateway = create_gateway({"odd": {"server": odd, "tool_prefix": ""}, "b": {"server": company("b", 1)}})
    peer = Peer(version=MODERN)
    async with gateway.running():
        plain = await called(gateway, peer, "call_tool", name="b_find_invoice")
        gateway.use([], disclosure="search")
        ours = await called(gateway, peer, "call_tool", name="b_find_invoice", arguments={"customer": "Ada"})
        by_ours = await called(gateway, peer, "call_tool", name="call_tool", arguments={"name": "x"})

    assert plain["content"][0]["text"] == "theirs: b_find_invoice"
    assert ours["structuredContent"]["at"] == "b"
    assert by_ours["content"][0]["text"] == "theirs: x"


@pytest.mark.slow
async def test_the_scopes_of_a_call_are_those_of_the_tool_that_it_calls() -> None:
    gateway = fleet(disclosure="search")
    async with gateway.running():
        asked_about: Any = gateway.http_endpoint().offers
        direct = asked_about("tools/call", {"name": "a_find_invoice"})
        through = asked_about("tools/call", {"name": "call_tool", "arguments": {"name": "a_find_invoice"}})

    assert direct
    assert through == direct


@EACH_CALLER
@pytest.mark.parametrize("kind", ["stdio-legacy", "http-modern"])
async def test_a_tool_that_is_called_so_asks_its_caller(version: str, kind: str) -> None:
    callbacks = Callbacks(elicitation=lambda request: {"name": "Ada"})
    with upstream(kind) as config:
        gateway = gateway_to(config, disclosure="search")
        async with calling(gateway, version, callbacks=callbacks) as caller:
            result = await caller.call_tool("call_tool", {"name": "elicit", "arguments": {}})

    assert "accept" in result.text


async def test_a_config_says_how_the_gateway_and_each_virtual_server_show_their_tools() -> None:
    servers = {"a": {"server": company("a", 5)}}
    section = {"disclosure": "search", "virtual": {"whole": {"disclosure": "all"}, "same": {}}}
    manager = GatewayManager({"mcpServers": servers, "gateway": section})
    found: dict[str, list[str]] = {}
    async with served_app(manager.asgi_app()) as base:
        for path in ("/mcp", "/mcp/whole", "/mcp/same"):
            async with connect_mcp(base + path) as caller:
                found[path] = list((await caller.list_tools()).names)

    assert found["/mcp"] == found["/mcp/same"] == FINDS
    assert len(found["/mcp/whole"]) == 7
    with pytest.raises(ConfigError, match=r"'gateway\.disclosure' is 'some'; known: all, auto, search, groups"):
        load_gateway_config({"mcpServers": {}, "gateway": {"disclosure": "some"}})


def board() -> McpServer:
    """Return a server with a tool for everybody, and one that its page alone calls."""
    page = app("ui://board", "<title>Board</title>")
    server = create_mcp_server(name="c", version="1", resources=[page])

    @server.tool(meta=page.tool_meta())
    def show_board() -> str:  # pyright: ignore[reportUnusedFunction]
        """Show the board with all notes."""
        return "the board"

    @server.tool(meta=page.tool_meta("app"))
    def wipe_board() -> str:  # pyright: ignore[reportUnusedFunction]
        """Wipe the board with all notes."""
        return "wiped"

    return server


@EACH_ERA
@pytest.mark.parametrize(
    ("mode", "finder", "arguments"),
    [("search", "search_tools", {"query": "board with notes"}), ("groups", "list_tools", {"server": "c"})],
)
async def test_a_tool_for_its_page_alone_is_neither_found_nor_called_by_a_model(
    version: str, mode: Any, finder: str, arguments: Json
) -> None:
    gateway, peer = create_gateway({"c": {"server": board()}}, disclosure=mode), Peer(version=version)
    async with gateway.running():
        page = await asked(gateway, peer, "tools/list")
        found = await called(gateway, peer, finder, **arguments)
        through = await called(gateway, peer, "call_tool", name="c_show_board")
        for name in ("c_wipe_board", "c:wipe_board"):
            with pytest.raises(RequestError, match=f"Unknown tool: {name}") as refused:
                await called(gateway, peer, "call_tool", name=name)
            assert refused.value.code == -32602
        of_the_page = await called(gateway, peer, "c_wipe_board")

    assert names(found) == ["c_show_board"]
    assert "c (1)" in page["tools"][0]["description"]
    assert through["content"][0]["text"] == "the board"
    assert of_the_page["content"][0]["text"] == "wiped"
