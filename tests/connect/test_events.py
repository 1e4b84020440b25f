"""What a connection tells its listeners, in which order, and what a bad listener costs."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from tests.connect.targets import connected, eventually
from tests.programs import ran
from tests.servers.fixtures import echo_command, fault_command
from toolweave import ConnectError, ToolsChanged, connect_mcp
from toolweave.connect import ConnectionState, StateChanged


def states_of(changes: list[StateChanged]) -> list[str]:
    return [change.state.value for change in changes]


@pytest.mark.requirement("R23")
async def test_the_states_of_a_whole_life_are_told_in_order() -> None:
    changes: list[StateChanged] = []
    connection = await connect_mcp(echo_command(), name="srv", lazy=True)
    connection.on("state", changes.append)
    await connection.list_tools()
    await connection.close()
    assert states_of(changes) == ["connecting", "ready", "closed"]
    assert [change.previous.value for change in changes] == ["idle", "connecting", "ready"]
    assert {change.server for change in changes} == {"srv"}


@pytest.mark.requirement("R23")
async def test_a_failure_is_told_as_a_state_and_as_an_error() -> None:
    changes: list[StateChanged] = []
    errors: list[Exception] = []
    connection = await connect_mcp(fault_command("exits_at_once"), lazy=True)
    connection.on("state", changes.append)
    connection.on("error", errors.append)
    with pytest.raises(ConnectError):
        await connection.list_tools()
    assert states_of(changes) == ["connecting", "failed"]
    assert [type(error) for error in errors] == [ConnectError]
    assert changes[-1].error is errors[0] is connection.error
    await connection.close()


async def test_a_list_that_cannot_be_had_is_told_before_the_connection_is_degraded() -> None:
    told: list[str] = []
    connection = await connect_mcp(fault_command("list_error"), lazy=True)
    connection.on("state", lambda change: told.append(change.state.value))
    connection.on("error", lambda error: told.append(str(error)))
    await connection.call_tool("echo", {"text": "x"})
    assert told[0] == "connecting"
    assert "degraded" in told
    assert all("cannot list: upstream is down" in text for text in told if "server" in text)
    assert connection.state is ConnectionState.DEGRADED
    await connection.close()


@pytest.mark.requirement("R23")
async def test_closing_is_told_once() -> None:
    closed: list[StateChanged] = []
    connection = await connect_mcp(echo_command())
    connection.on("closed", closed.append)
    await connection.close()
    await connection.close()
    assert states_of(closed) == ["closed"]


async def test_notifications_of_the_server_are_told_with_method_and_parameters() -> None:
    notes: list[tuple[str, Any]] = []
    async with connected(echo_command()) as connection:
        connection.on("notification", notes.append)
        await connection.call_tool("log", {"message": "hello", "level": "warning"})
        await connection.call_tool("touch", {"uri": "test://json"})
        await eventually(lambda: len(notes) == 2)
    assert notes == [
        ("notifications/message", {"level": "warning", "logger": "test", "data": "hello"}),
        ("notifications/resources/updated", {"uri": "test://json"}),
    ]


@pytest.mark.slow
async def test_a_storm_of_notifications_loses_none_and_comes_before_the_answer() -> None:
    notes: list[Any] = []
    async with connected(fault_command("notification_storm")) as connection:
        connection.on("notification", notes.append)
        await connection.call_tool("echo", {"text": "x"})
        assert len(notes) == 20_000


async def test_a_listener_is_added_by_a_decorator_or_a_call_and_removed() -> None:
    calls: list[str] = []
    async with connected(echo_command()) as connection:

        @connection.on("tools_changed")
        def by_decorator(change: ToolsChanged) -> None:
            calls.append("decorator")

        remove = connection.on("tools_changed", lambda change: calls.append("call"))
        await connection.call_tool("grow")
        await eventually(lambda: calls)
        remove()
        remove()
        await connection.call_tool("grow")
        await eventually(lambda: len(calls) == 3)
        assert by_decorator is not None
    assert calls == ["decorator", "call", "decorator"]


async def test_a_listener_that_raises_is_logged_and_costs_nobody_else_the_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes: list[ToolsChanged] = []

    def broken(change: ToolsChanged) -> None:
        raise LookupError("no such screen")

    async with connected(echo_command(), name="srv") as connection:
        connection.on("tools_changed", broken)
        connection.subscribe(broken)
        connection.on("tools_changed", changes.append)
        with caplog.at_level(logging.ERROR, "toolweave"):
            await connection.call_tool("grow")
            await eventually(lambda: changes)
    assert "server 'srv': a listener of 'tools_changed' raised" in caplog.messages
    assert "no such screen" in caplog.text


async def test_an_event_that_does_not_exist_is_refused_with_those_that_do() -> None:
    connection = await connect_mcp(echo_command(), lazy=True)
    with pytest.raises(
        ValueError, match=r"no event 'finished'; there are state, tools_changed, .*, notification, problem, silence"
    ):
        connection.on("finished", print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await connection.close()


LEAVING = """
import asyncio, sys
from toolweave import connect_mcp
from toolweave.testing import MemoryServer

server = MemoryServer()

def more() -> int:
    return 1

def leave(_):
    raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[sys.argv[2]](3)

async def main():
    async with connect_mcp(server) as connection:
        connection.on(sys.argv[1], leave)
        server.tool(more)
        if sys.argv[1] in ("tools_changed", "notification"):
            await asyncio.sleep(30)
    print("swallowed")

try:
    asyncio.run(main())
except BaseException as exc:
    print(type(exc).__name__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("event", ["state", "closed", "tools_changed", "notification"])
@pytest.mark.parametrize("ends", ["SystemExit", "KeyboardInterrupt"])
def test_a_listener_that_ends_the_program_is_not_swallowed(event: str, ends: str) -> None:
    command = [sys.executable, "-c", LEAVING, event, ends]
    done = ran(command)
    assert done.stdout.split() == [ends], done.stderr
