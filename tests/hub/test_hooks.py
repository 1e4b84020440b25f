"""Listening to all servers of a hub at once, those included that come later."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import pytest

from tests.hub.fleet import BOUND, echo
from toolweave import Hub, McpConnection, ProtocolError, connect_mcp, connect_mcp_servers
from toolweave.connect import ConnectionState, StateChanged


async def test_a_listener_hears_of_servers_that_are_there_and_of_those_that_come_later() -> None:
    seen: list[tuple[str, ConnectionState]] = []

    def take(connection: McpConnection, change: StateChanged) -> None:
        seen.append((connection.name, change.state))

    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({"one": echo()}) as hub:
            stop = hub.on("state", take)
            await hub.connect("two", echo())
            await hub.disconnect("one")
            stop()
            stop()
            await hub.disconnect("two")

    assert seen == [
        ("two", ConnectionState.CONNECTING),
        ("two", ConnectionState.READY),
        ("one", ConnectionState.CLOSED),
    ]


async def test_a_listener_hears_that_a_server_which_took_the_place_of_another_is_ready() -> None:
    seen: list[tuple[McpConnection, ConnectionState]] = []
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({"one": echo()}) as hub:
            hub.on("state", lambda connection, change: seen.append((connection, change.state)))
            old = await hub.replace("one", echo())
            assert old is not None
            await old.close()
            new = hub.clients["one"]

    assert seen == [(new, ConnectionState.READY), (old, ConnectionState.CLOSED), (new, ConnectionState.CLOSED)]


async def test_a_listener_that_came_before_the_hub_was_opened_hears_of_the_start() -> None:
    ready: list[str] = []

    def take(connection: McpConnection, change: Any) -> None:
        if change.state is ConnectionState.READY:
            ready.append(connection.name)

    hub = Hub({"one": echo(), "two": echo()})
    hub.on("state", take)
    with anyio.fail_after(BOUND):
        async with hub:
            assert sorted(ready) == ["one", "two"]


async def test_a_request_of_any_method_is_answered_as_it_came() -> None:
    command = [sys.executable, "-m", "toolweave.cli.demo.numbers"]
    with anyio.fail_after(BOUND):
        async with connect_mcp(command, name="s") as connection:
            raw = await connection.request("tools/call", {"name": "add", "arguments": {"values": [1, 2]}})
            assert raw["structuredContent"] == {"sum": 3}
            assert raw["resultType"] == "complete"
            with pytest.raises(ProtocolError) as caught:
                await connection.request("no/such/method")
            assert caught.value.code == -32601
