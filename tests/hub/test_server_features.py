"""The features of servers by a hub's names: listing, calling, completing and pinging as with one connection."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, opened
from toolweave import ConnectionClosedError, ErrorKind, Hub, ProtocolError, ToolError, create_mcp_server
from toolweave import sync as blocking
from toolweave.serve import McpServer


def server(name: str) -> McpServer:
    """Return a server of a tool, a prompt and a resource template, whose answers have its name."""
    made = create_mcp_server(name, version="1")

    @made.tool
    def greet(who: str) -> str:
        return f"{name} greets {who}"

    @made.prompt
    def ask(topic: str) -> str:
        return topic

    @made.resource(f"{name}://{{page}}")
    def page(page: str) -> str:
        return page

    @made.completion(ref="prompt:ask", argument="topic")
    def topics(text: str) -> list[str]:
        return [f"{name} topic"]

    @made.completion(ref=f"resource:{name}://{{page}}", argument="page")
    def pages(text: str) -> list[str]:
        return [f"{name} page"]

    return made


def two() -> dict[str, Any]:
    return {"a": {"server": server("a")}, "b": {"server": server("b")}}


async def test_tools_are_listed_of_all_servers_or_of_one_and_called_by_any_of_their_names() -> None:
    async with opened(two()) as hub:
        assert (await hub.list_tools()).names == ("a_greet", "b_greet")
        (only,) = await hub.list_tools("b")
        assert (await only.execute({"who": "Ada"})).text == "b greets Ada"
        for name in ("a_greet", "a:greet", "a/greet"):
            assert (await hub.call_tool(name, {"who": "Ada"})).text == "a greets Ada"
        with pytest.raises(ToolError, match="a_greet") as unknown:
            await hub.call_tool("a_gret", {})
        assert unknown.value.kind is ErrorKind.NOT_FOUND
        with pytest.raises(KeyError, match="no server 'c'; there are a, b"):
            await hub.list_tools("c")


async def test_a_list_that_is_not_current_is_read_again_and_a_failing_server_keeps_its_tools() -> None:
    one, two_ = ToolServer("one", ["x"]), ToolServer("two", ["y"])
    async with opened({"one": one.config(), "two": two_.config()}) as hub:
        one.tools = ["x", "z"]
        await hub.refresh("one")
        assert (await hub.list_tools()).names == ("one_x", "one_z", "two_y")


async def test_arguments_of_prompts_and_templates_are_completed_by_their_servers() -> None:
    async with opened(two()) as hub:
        for name in ("a", "b"):
            found = await hub.complete({"type": "ref/prompt", "name": f"{name}_ask"}, "topic", "v")
            assert tuple(found.values) == (f"{name} topic",)
            found = await hub.complete({"type": "ref/resource", "uri": f"{name}://{{page}}"}, "page", "v")
            assert tuple(found.values) == (f"{name} page",)
        for ref in ({"type": "ref/prompt", "name": "c_ask"}, {"type": "ref/resource", "uri": "c://{page}"}):
            with pytest.raises(ProtocolError, match="no server has a"):
                await hub.complete(ref, "topic", "v")


async def test_a_ping_of_all_names_the_servers_that_do_not_answer() -> None:
    async with opened(two()) as hub:
        await hub.ping()
        await hub.clients["b"].close()
        await hub.ping("a")
        with pytest.raises(ConnectionClosedError, match="'b'"):
            await hub.ping("b")
        with pytest.raises(ExceptionGroup) as failed:
            await hub.ping()
        assert [type(error) for error in failed.value.exceptions] == [ConnectionClosedError]
        with pytest.raises(KeyError, match="no server 'd'"):
            await hub.ping("d")


async def test_a_closed_hub_refuses() -> None:
    hub = Hub(two())
    with anyio.fail_after(BOUND):
        async with hub:
            await hub.ping()
        for use in (hub.list_tools, hub.ping, lambda: hub.ping("a")):
            with pytest.raises(ConnectionClosedError):
                await use()
        with pytest.raises(ToolError, match="closed"):
            await hub.call_tool("a_greet", {"who": "Ada"})


def test_plain_code_has_the_same() -> None:
    with blocking.connect_mcp_servers(two()) as hub:
        assert hub.list_tools("a").names == ("a_greet",)
        assert hub.call_tool("b_greet", {"who": "Ada"}).text == "b greets Ada"
        hub.ping()
