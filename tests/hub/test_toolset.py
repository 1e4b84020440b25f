"""A hub is a `Toolset`: whatever takes tools takes a hub, wrapped, nested and beside local functions."""

from __future__ import annotations

import sys

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, echo, next_change, opened
from toolweave import (
    CallContext,
    ErrorKind,
    ToolCall,
    ToolsChanged,
    Toolset,
    connect_mcp_servers,
)
from toolweave.tools import as_toolset, changes, combined, filtered, prefixed, renamed


@pytest.mark.requirement("R48", "R29", "R50")
async def test_iterating_the_snapshot_gives_definitions() -> None:
    async with opened({"s": echo()}) as hub:
        assert isinstance(hub, Toolset)
        specs = {spec.name: spec for spec in hub.snapshot()}
        tool = hub.tools["s_echo"]
    spec = specs["s_echo"]
    assert (spec.server, spec.original_name, spec.title) == ("s", "echo", "Echo")
    assert spec.description == "Return the text."
    assert spec.input_schema["required"] == ["text"]
    assert spec.annotations == {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
    assert (tool.name, tool.server, tool.description, tool.input_schema, tool.parameters) == (
        spec.name,
        spec.server,
        spec.description,
        spec.input_schema,
        spec.input_schema,
    )


async def test_a_snapshot_in_hand_does_not_change() -> None:
    server = ToolServer("s", ["a"])
    async with opened({"s": server.config()}) as hub:
        before = hub.snapshot()
        async with next_change(hub, adds="s_b"):
            await server.changed(["a", "b"])
        assert [spec.name for spec in before] == ["s_a"]
        assert hub.snapshot().version > before.version
        assert hub.snapshot() is hub.snapshot()


async def test_subscribers_hear_each_change_once_until_they_leave() -> None:
    heard: list[ToolsChanged] = []
    server = ToolServer("s", ["a"])
    async with opened({"s": server.config()}) as hub:
        unsubscribe = hub.subscribe(heard.append)
        server.tools = ["b"]
        await hub.refresh()
        await hub.refresh()
        unsubscribe()
        unsubscribe()
        server.tools = ["c"]
        await hub.refresh()
    assert heard == [ToolsChanged(added=("s_b",), removed=("s_a",), version=heard[0].version)]


async def test_changes_are_iterated_from_the_moment_they_are_asked_for() -> None:
    server = ToolServer("s", ["a"])
    async with opened({"s": server.config()}) as hub:
        feed = changes(hub)
        server.tools = ["a", "b"]
        await hub.refresh()
        change = await anext(feed)
        await feed.aclose()
    assert change.added == ("s_b",)


async def test_a_server_that_shuffles_its_tools_changes_nothing() -> None:
    server = ToolServer("s", ["a", "b"])
    async with opened({"s": server.config()}) as hub:
        server.tools = ["b", "a"]
        assert not await hub.refresh()
        assert [spec.name for spec in hub.snapshot()] == ["s_a", "s_b"]


async def test_the_last_to_leave_closes() -> None:
    async with connect_mcp_servers({"mcpServers": {"s": echo()}}) as hub:
        async with as_toolset(hub):
            assert not (await hub.execute("s_echo", {"text": "1"})).is_error
        assert not (await hub.execute("s_echo", {"text": "2"})).is_error
    closed = await hub.execute("s_echo", {"text": "3"})
    assert closed.require_error().kind is ErrorKind.CLOSED
    assert len(hub.snapshot()) == 0
    async with hub:
        assert not (await hub.execute("s_echo", {"text": "4"})).is_error


@pytest.mark.requirement("R38", "R31", "R32", "R42", "R41")
async def test_wrappers_around_a_hub_change_names_and_choice_but_not_what_is_sent() -> None:
    one, two = ToolServer("one", ["read", "write"]), ToolServer("two", ["read"])
    async with opened({"one": one.config(), "two": two.config()}) as hub:
        assert as_toolset(hub) is hub
        assert [spec.name for spec in prefixed(hub, "all").snapshot()] == [
            "all_one_read",
            "all_one_write",
            "all_two_read",
        ]
        chosen = filtered(hub, include=["one:read", "two/read"])
        called = renamed(chosen, {"one_read": "open"})
        assert [spec.name for spec in called.snapshot()] == ["open", "two_read"]
        results = [
            await as_toolset([prefixed(hub, "all")]).call(ToolCall(name="all_two_read"), CallContext()),
            await called.call(ToolCall(name="open"), CallContext()),
            await called.call(ToolCall(name="one_write"), CallContext()),
        ]
    assert [result.text for result in results[:2]] == ["two|read", "one|read"]
    assert results[2].require_error().kind is ErrorKind.NOT_FOUND
    assert (one.called, two.called) == (["read"], ["read"])


@pytest.mark.requirement("R48", "R22", "C20")
async def test_a_hub_mixes_with_local_functions_and_other_hubs_and_its_changes_come_through() -> None:
    def s_a(text: str) -> str:
        """Shout, locally."""
        return text.upper()

    server, other = ToolServer("s", ["a", "b"]), ToolServer("s", ["c"])
    async with opened({"s": server.config()}) as hub, opened({"s": other.config()}) as second:
        everything = as_toolset([hub, s_a, combined(second)])
        heard: list[ToolsChanged] = []
        everything.subscribe(heard.append)
        assert [spec.name for spec in everything.snapshot()] == ["s_a", "s_s_a", "s_b", "s_c"]
        assert (await everything.call(ToolCall(name="s_a", arguments={"text": "hi"}), CallContext())).text == "HI"
        assert (await everything.call(ToolCall(name="s_s_a"), CallContext())).text == "s|a"
        assert (await everything.call(ToolCall(name="s_c"), CallContext())).text == "s|c"
        async with next_change(everything, adds="s_d", removes="s_b"):
            await server.changed(["a", "d"])
        await second.disconnect("s")
        assert [spec.name for spec in everything.snapshot()] == ["s_a", "s_s_a", "s_d"]
    assert ("s_c",) in [change.removed for change in heard]


LEAVING = """
import anyio, sys
from toolweave import connect_mcp_servers
from toolweave.testing import MemoryServer

server = MemoryServer()

def more() -> int:
    return 1

async def main():
    async with connect_mcp_servers({"s": {"server": server}}) as hub:
        hub.subscribe(lambda change: sys.exit(3))
        server.tool(more)
        await anyio.sleep(30)

try:
    anyio.run(main)
except SystemExit as exc:
    print("left with", exc.code)
"""


@pytest.mark.slow
async def test_a_listener_that_ends_the_program_each_time_it_is_called_ends_it_without_a_hang() -> None:
    with anyio.fail_after(BOUND):
        done = await anyio.run_process([sys.executable, "-c", LEAVING], check=False)
    assert done.stdout.decode() == "left with 3\n", done.stderr.decode()


async def test_a_listener_that_raises_costs_nobody_the_event(caplog: pytest.LogCaptureFixture) -> None:
    heard = anyio.Event()

    def raises(change: ToolsChanged) -> None:
        raise RuntimeError("my bug")

    async with opened({}) as hub:
        hub.subscribe(raises)
        hub.subscribe(lambda _: heard.set())
        await hub.connect("s", ToolServer("s", ["a"]).config())
        assert heard.is_set()
        assert hub.tools["s_a"].name == "s_a"
    assert "my bug" in caplog.text
