"""Lists through a gateway: every definition of every upstream, as it came, whatever the eras on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from tests.gateway.upstreams import LEGACY, MODERN, UPSTREAMS, Json, caller, pages
from tests.servers.fixtures import echo_command, fault_command
from toolweave import McpServer, ToolweaveError, connect_mcp, create_mcp_server
from toolweave.gateway import create_gateway
from toolweave.testing import MemoryServer

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])


def offering(*tools: str, ttl_ms: int = 0, cache_scope: Any = "private", page_size: int = 100) -> McpServer:
    """Return a server with tools, prompts, resources and templates of these names."""
    server = create_mcp_server(name="s", version="1", ttl_ms=ttl_ms, cache_scope=cache_scope, page_size=page_size)
    for name in tools:
        add(server, name)
    return server


def add(server: McpServer, name: str) -> None:
    """Offer one more of each kind."""

    async def answer() -> str:
        return name

    async def item(part: str) -> str:
        return name + part

    server.tool(name=name)(answer)
    server.prompt(name=name)(answer)
    server.resource(f"s://{name}")(answer)
    server.resource(f"s://{name}/{{part}}")(item)


def stdio(command: list[str], **settings: Any) -> Json:
    """Return the config entry of a process."""
    return {"command": command[0], "args": command[1:], **settings}


async def names(server: Any, version: str, method: str, key: str) -> list[str]:
    """Return the names in a list, over all pages."""
    async with caller(server, version) as raw:
        member = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}[method]
        return [entry[key] for page in await pages(raw, method) for entry in page[member]]


@pytest.mark.slow
@ERAS
async def test_all_pages_of_all_upstreams_are_listed_in_the_order_of_the_config(version: str) -> None:
    many = [f"t{number:02}" for number in range(25)]
    gateway = create_gateway(
        {
            "b": {"server": offering(*many, page_size=7)},
            "a": {"server": offering(*many, page_size=3), "protocol": "legacy"},
        },
        page_size=10,
    )

    async with gateway.hub:
        tools = await names(gateway, version, "tools/list", "name")
        prompts = await names(gateway, version, "prompts/list", "name")
        resources = await names(gateway, version, "resources/list", "uri")

    assert tools == prompts == [f"{server}_{name}" for server in "ba" for name in many]
    assert resources == [*(f"s://{name}" for name in many), *(f"a+s://{name}" for name in many)]


@ERAS
async def test_a_cursor_outlives_a_change_and_a_foreign_one_is_refused(version: str) -> None:
    upstream = MemoryServer([])
    for number in range(6):
        upstream.tool(offering_tool(f"t{number}"))
    gateway = create_gateway({"s": {"server": upstream, "tool_prefix": ""}}, page_size=2)
    async with caller(gateway, version) as raw:
        first = (await raw.ask(raw.request("tools/list")))["result"]
        upstream.remove_tool("t0")
        await until(lambda: len(gateway.tools.snapshot()) == 5)
        second = (await raw.ask(raw.request("tools/list", {"cursor": first["nextCursor"]})))["result"]
        strange = await raw.ask(raw.request("tools/list", {"cursor": "elsewhere"}))
        other = await raw.ask(raw.request("prompts/list", {"cursor": first["nextCursor"]}))

    assert [tool["name"] for tool in second["tools"]] == ["t2", "t3"]
    assert [answer["error"]["code"] for answer in (strange, other)] == [-32602, -32602]


def offering_tool(name: str) -> Any:
    """Return a function of this name."""

    def answer() -> str:
        return name

    answer.__name__ = name
    return answer


async def until(condition: Any) -> None:
    """Wait until something becomes true."""
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.01)


async def listed(gateway: Any, method: str = "tools/list") -> Json:
    """Return the first page of a list as a modern caller gets it."""
    async with caller(gateway, MODERN) as raw:
        return (await raw.ask(raw.request(method)))["result"]


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
@pytest.mark.parametrize(
    ("others", "ttl_ms", "scope"),
    [
        ([{"ttl_ms": 5000, "cache_scope": "public"}], 3000, "public"),
        ([{"ttl_ms": 2000, "cache_scope": "private"}], 2000, "private"),
        ([{"ttl_ms": 0, "cache_scope": "public"}], 0, "public"),
        ([{"ttl_ms": 5000, "cache_scope": "public", "protocol": "legacy"}], 0, "private"),
    ],
)
async def test_the_strictest_of_all_upstreams_says_how_long_a_list_may_be_kept(
    method: str, others: list[Json], ttl_ms: int, scope: str
) -> None:
    servers: dict[str, Json] = {"first": {"server": offering("a", ttl_ms=3000, cache_scope="public")}}
    for number, settings in enumerate(others):
        kept = {name: value for name, value in settings.items() if name != "protocol"}
        more = {"protocol": settings["protocol"]} if "protocol" in settings else {}
        servers[f"other{number}"] = {"server": offering("a", **kept), **more}

    found = await listed(create_gateway(servers), method)

    assert (found["ttlMs"], found["cacheScope"]) == (ttl_ms, scope)


async def test_a_view_is_neither_kept_nor_shared() -> None:
    server = offering("a", "b", ttl_ms=3000, cache_scope="public")
    gateway = create_gateway({"s": {"server": server}})
    view = create_gateway(gateway.hub, tools=gateway.hub.filtered(["a"], []))

    found = await listed(view)

    assert [tool["name"] for tool in found["tools"]] == ["s_a"]
    assert (found["ttlMs"], found["cacheScope"]) == (0, "private")


@ERAS
async def test_a_failing_upstream_costs_only_its_entries_and_its_status_says_so(version: str) -> None:
    servers: Mapping[str, Json] = {
        "good": stdio(echo_command("--tools", 2)),
        "gone": {"command": "toolweave-test-no-such-program"},
        "mute": stdio(fault_command("crash_on_start")),
    }
    gateway = create_gateway({"mcpServers": servers})

    async with caller(gateway, version) as raw:
        found = (await raw.ask(raw.request("tools/list")))["result"]

    assert {tool["name"].partition("_")[0] for tool in found["tools"]} == {"good"}
    assert found["_meta"][UPSTREAMS]["good"] == {"status": "ready"}
    assert {found["_meta"][UPSTREAMS][name]["status"] for name in ("gone", "mute")} <= {"backoff", "connecting"}
    assert all("error" in found["_meta"][UPSTREAMS][name] for name in ("gone", "mute"))
    if version == MODERN:
        assert (found["ttlMs"], found["cacheScope"]) == (0, "private")


@ERAS
async def test_an_upstream_that_cannot_list_one_kind_is_degraded_there_alone(version: str) -> None:
    odd, good = MemoryServer(name="odd"), offering("a")
    odd.tool(offering_tool("t"))
    for _ in range(20):
        odd.fail_next("prompts/list", "not now")
    gateway = create_gateway({"odd": {"server": odd}, "good": {"server": good}})

    async with caller(gateway, version) as raw:
        prompts = (await raw.ask(raw.request("prompts/list")))["result"]
        tools = (await raw.ask(raw.request("tools/list")))["result"]

    assert [one["name"] for one in prompts["prompts"]] == ["good_a"]
    assert prompts["_meta"][UPSTREAMS] == {
        "good": {"status": "ready"},
        "odd": {"status": "degraded", "error": "protocol"},
    }
    assert tools["_meta"][UPSTREAMS] == {"good": {"status": "ready"}, "odd": {"status": "ready"}}


@ERAS
async def test_an_upstream_without_a_kind_of_offer_has_no_status_there(version: str) -> None:
    gateway = create_gateway({"all": {"server": offering("a")}, "tools": {"server": offering()}})

    async with caller(gateway, version) as raw:
        found = (await raw.ask(raw.request("prompts/list")))["result"]

    assert found["_meta"][UPSTREAMS] == {"all": {"status": "ready"}}


@pytest.mark.slow
async def test_tools_of_an_upstream_that_announces_no_changes_are_read_again() -> None:
    upstream = MemoryServer(protocol="legacy")
    upstream.tool(offering_tool("a"))
    upstream.answer(
        "initialize",
        {
            "protocolVersion": LEGACY,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "m", "version": "1"},
        },
    )
    gateway = create_gateway({"m": {"server": upstream, "tool_prefix": "", "protocol": "legacy"}})
    async with caller(gateway, MODERN) as raw:
        before = (await raw.ask(raw.request("tools/list")))["result"]["tools"]
        upstream.answer("tools/list", {"tools": [{"name": "b", "inputSchema": {"type": "object"}}]})
        after = before
        while after == before:  # a list that was read this very second is shown as it is
            await anyio.sleep(0.05)
            after = (await raw.ask(raw.request("tools/list")))["result"]["tools"]

    assert ([tool["name"] for tool in before], [tool["name"] for tool in after]) == (["a"], ["b"])


async def test_a_server_that_comes_back_has_its_old_place() -> None:
    first, second = offering("a"), offering("a")
    gateway = create_gateway({"one": {"server": first}, "two": {"server": second}})
    async with caller(gateway, MODERN) as raw:
        await raw.ask(raw.request("tools/list"))
        await gateway.hub.disconnect("one")
        without = (await raw.ask(raw.request("tools/list")))["result"]["tools"]
        await gateway.hub.connect("one", {"server": first})
        found = (await raw.ask(raw.request("tools/list")))["result"]["tools"]

    assert [tool["name"] for tool in without] == ["two_a"]
    assert [tool["name"] for tool in found] == ["one_a", "two_a"]


async def test_the_page_of_a_tool_whose_uri_was_taken_is_the_exposed_one() -> None:
    def app() -> MemoryServer:
        server = MemoryServer()
        server.resource("ui://app", "page")
        tool = {"name": "show", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://app", "x": 1}}}
        server.answer("tools/list", {"tools": [tool]})
        return server

    gateway = create_gateway({"a": {"server": app()}, "b": {"server": app()}})
    async with caller(gateway, MODERN) as raw:
        await raw.ask(raw.request("resources/list"))
        tools = (await raw.ask(raw.request("tools/list")))["result"]["tools"]

    assert [tool["_meta"]["ui"] for tool in tools] == [
        {"resourceUri": "ui://app", "x": 1},
        {"resourceUri": "ui://b+app", "x": 1},
    ]


@ERAS
async def test_headers_that_a_tool_mirrors_stay_in_its_definition(version: str) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    upstream = MemoryServer()
    upstream.answer("tools/list", {"tools": [{"name": "t", "inputSchema": schema}]})

    gateway = create_gateway({"s": {"server": upstream}})
    async with caller(gateway, version) as raw:
        (found,) = (await raw.ask(raw.request("tools/list")))["result"]["tools"]
        mirrored = gateway.tool_schema("s_t")

    assert found["inputSchema"] == mirrored == schema


async def test_a_withheld_tool_is_not_listed(tmp_path: Any) -> None:
    upstream = MemoryServer()
    upstream.tool(offering_tool("known"))
    entry: Json = {"server": upstream, "pins": "block", "lockfile": str(tmp_path / "toolweave.lock")}

    found = await listed(create_gateway({"s": entry}))

    assert found["tools"] == []  # nothing is pinned yet


async def test_our_own_client_reads_the_lists_of_a_gateway() -> None:
    gateway = create_gateway({"s": {"server": offering("a", "b")}})
    async with connect_mcp(gateway) as client:
        tools = [tool.name for tool in await client.list_tools()]
        prompts = [one.name for one in await client.list_prompts()]
        with pytest.raises(ToolweaveError):
            await client.request("tools/list", {"cursor": "x"})

    assert tools == prompts == ["s_a", "s_b"]
