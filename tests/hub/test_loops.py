"""A hub that is used from other event loops than its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from tests.hub.fleet import ToolServer
from toolweave import ErrorKind, Hub, connect_mcp_servers
from toolweave.connect import ConnectionState
from toolweave.errors import WrongLoopError

T = TypeVar("T")


async def in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do something in a thread with a loop of its own, in debug mode: it raises where another thread interferes."""
    with anyio.fail_after(60):
        return await anyio.to_thread.run_sync(lambda: asyncio.run(work(), debug=True), abandon_on_cancel=True)


async def opened() -> Hub:
    return await connect_mcp_servers({"a": ToolServer("a", ["x"]).config()})


async def test_a_hub_is_used_changed_and_closed_from_another_threads_loop() -> None:
    hub, more = await opened(), ToolServer("b", ["y"])
    assert (await in_thread(lambda: hub.execute("a_x"))).text == "a|x"
    assert not await in_thread(hub.refresh)
    connection = await in_thread(lambda: hub.connect("b", more.config()))
    assert (await hub.execute("b_y")).text == "b|y"
    await in_thread(lambda: hub.disconnect("b"))
    assert connection.state is ConnectionState.CLOSED
    (left,) = hub.clients.values()
    await in_thread(hub.close)
    assert left.state is ConnectionState.CLOSED
    assert hub.clients == {}


def test_a_call_from_a_loop_while_the_hubs_does_not_run_is_an_error_result_that_names_both() -> None:
    one, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    hub = one.run_until_complete(opened())
    try:
        refused = other.run_until_complete(hub.execute("a_x")).require_error()
        assert refused.kind is ErrorKind.NOT_SENT
        for loop in (one, other):
            assert f"{id(loop):#x}" in refused.message
        for work in (hub.refresh, hub.close, lambda: hub.connect("b", {"command": "x"})):
            with pytest.raises(WrongLoopError, match="is not running"):
                other.run_until_complete(work())
        assert one.run_until_complete(hub.execute("a_x")).text == "a|x"
    finally:
        one.run_until_complete(hub.close())
        one.close()
        other.close()


def test_closing_a_hub_when_its_event_loop_has_ended_does_nothing_more() -> None:
    hub = asyncio.run(opened())
    asyncio.run(hub.close())
    assert hub.clients == {}
    assert asyncio.run(hub.execute("a_x")).require_error().kind is ErrorKind.CLOSED
