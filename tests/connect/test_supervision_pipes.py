"""Pipes that are full: a server that does not read, one that says more than it was asked, and who pays for it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.connect.targets import connected, eventually, pid_of
from toolweave import CallContext, ErrorKind, McpConnection, RequestTimeoutError, ToolCall, ToolResult
from toolweave.connect import ConnectionState
from toolweave.connect._stdio.process import ServerProcess

PROGRAM = """
import json, os, sys, time

NAMES = ("deaf", "chatty", "take", "slow")

def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    name = message["params"].get("name") if message["method"] == "tools/call" else message["method"]
    result = {"content": [{"type": "text", "text": str(os.getpid())}]}
    if name == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}
    elif name == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}
    elif name == "server/discover":
        say({"id": message["id"], "error": {"code": -32601, "message": "no"}})
        continue
    elif name == "deaf" and not os.path.exists(MARK):
        open(MARK, "w").close()
        time.sleep(600)
    elif name == "slow":
        while not os.path.exists(MARK + ".go"):
            time.sleep(0.01)
        with open(MARK, "a") as file:
            print(message["params"]["arguments"]["number"], file=file)
        time.sleep(0.001)
    elif name == "chatty":
        for number in range(20_000):
            say({"method": "notifications/count", "params": {"number": number}})
    say({"id": message["id"], "result": result})
"""
BIG = {"blob": "x" * 200_000}
SMALL = {"blob": "x"}
PATIENCE = 60


def server(mark: Path) -> list[str]:
    """Return the command of a server whose tool `deaf` stops reading, once in the life of `mark`."""
    return [sys.executable, "-S", "-E", "-c", f"MARK = {str(mark)!r}\n{PROGRAM}"]


async def call(connection: McpConnection, name: str, results: list[ToolResult], given: Mapping[str, str] = BIG) -> None:
    """Call a tool with an argument that fills the pipe, unless it is `deaf`, and keep the result."""
    arguments: Mapping[str, str] = {} if name == "deaf" else given
    results.append(await connection.call(ToolCall(name=name, arguments=arguments), CallContext()))


def process_of(connection: McpConnection) -> ServerProcess:
    """Return the process behind an open connection."""
    line = connection._supervisor.session
    assert line is not None
    assert line.process is not None
    return line.process


@pytest.mark.parametrize("given", [BIG, SMALL], ids=["large", "small"])
@pytest.mark.requirement("R60", "R69")
async def test_what_a_deaf_server_never_read_was_not_sent_and_what_it_may_have_read_is_unknown(
    tmp_path: Path, given: Mapping[str, str]
) -> None:
    mark = tmp_path / "deaf"
    results: list[ToolResult] = []
    async with (
        connected(server(mark), restart="never", timeout={"close": 0.5}) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(call, connection, "deaf", results)
        await eventually(mark.exists)
        process = process_of(connection)
        while not process.congested:
            tasks.start_soon(call, connection, "take", results, given)
            await anyio.lowlevel.checkpoint()
        for _ in range(90):
            tasks.start_soon(call, connection, "take", results, given)
        await eventually(lambda: len(process._waiting) >= 90, PATIENCE)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        os.kill(pid_of(connection), signal.SIGKILL)
    kinds = [result.require_error().kind for result in results]
    assert set(kinds) == {ErrorKind.OUTCOME_UNKNOWN, ErrorKind.NOT_SENT}
    assert kinds.count(ErrorKind.NOT_SENT) >= 90


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 200, 700])
async def test_no_call_that_a_killed_server_has_made_is_said_to_be_unsent(tmp_path: Path, after: int) -> None:
    made, go = tmp_path / "made", tmp_path / "made.go"
    unsent: list[int] = []

    async def number(one: int) -> None:
        given = {"number": one}
        result = await connection.call(ToolCall(name="slow", arguments=given), CallContext())
        if result.is_error and result.require_error().kind is ErrorKind.NOT_SENT:
            unsent.append(one)

    async with (
        connected(server(made), restart="never", timeout={"close": 0.5}) as connection,
        anyio.create_task_group() as tasks,
    ):
        for one in range(1500):
            tasks.start_soon(number, one)
        await eventually(lambda: len(process_of(connection)._waiting) >= 100, PATIENCE)
        go.touch()
        await eventually(lambda: made.exists() and len(made.read_text().split()) > after, PATIENCE)
        os.kill(pid_of(connection), signal.SIGKILL)
    assert unsent
    assert not set(unsent) & set(map(int, made.read_text().split()))


async def test_calls_that_wait_for_a_full_pipe_are_made_in_their_order_and_once(tmp_path: Path) -> None:
    made, go = tmp_path / "made", tmp_path / "made.go"
    async with connected(server(made)) as connection, anyio.create_task_group() as tasks:
        for one in range(1500):
            tasks.start_soon(connection.call, ToolCall(name="slow", arguments={"number": one}), CallContext())
        await eventually(lambda: len(process_of(connection)._waiting) >= 100, PATIENCE)
        go.touch()
    assert [int(one) for one in made.read_text().split()] == list(range(1500))


async def test_a_call_that_is_cancelled_while_it_waits_for_a_full_pipe_is_never_made(tmp_path: Path) -> None:
    made, go = tmp_path / "made", tmp_path / "made.go"
    async with connected(server(made)) as connection, anyio.create_task_group() as tasks:
        for one in range(1000):
            tasks.start_soon(connection.call, ToolCall(name="slow", arguments={"number": one}), CallContext())
        async with anyio.create_task_group() as late:
            for one in range(1000, 1100):
                late.start_soon(connection.call, ToolCall(name="slow", arguments={"number": one}), CallContext())
            await eventually(lambda: len(process_of(connection)._waiting) >= 200, PATIENCE)
            late.cancel_scope.cancel()
        go.touch()
    assert sorted(map(int, made.read_text().split())) == list(range(1000))


async def test_calls_that_waited_for_a_deaf_server_are_answered_by_its_successor(tmp_path: Path) -> None:
    mark = tmp_path / "deaf"
    deaf: list[ToolResult] = []
    results: list[ToolResult] = []
    async with connected(server(mark), timeout={"close": 0.5}) as connection:
        first = pid_of(connection)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, connection, "deaf", deaf)
            await eventually(mark.exists)
            for _ in range(8):
                tasks.start_soon(call, connection, "take", results)
            await eventually(lambda: bool(process_of(connection)._waiting))
            os.kill(first, signal.SIGKILL)
        assert connection.state is ConnectionState.READY
        second = pid_of(connection)
    assert deaf[0].require_error().kind is ErrorKind.OUTCOME_UNKNOWN
    answered = [result.text for result in results if not result.is_error]
    unknown = [result for result in results if result.is_error]
    assert answered
    assert set(answered) == {str(second)}
    assert {result.require_error().kind for result in unknown} <= {ErrorKind.OUTCOME_UNKNOWN}


@pytest.mark.slow
async def test_calls_of_a_deaf_server_pass_their_own_bounds_and_can_be_cancelled(tmp_path: Path) -> None:
    mark = tmp_path / "deaf"
    async with connected(server(mark), timeout={"close": 0.5}) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(call, connection, "deaf", list[ToolResult]())
        await eventually(mark.exists)
        for _ in range(10):
            with pytest.raises(RequestTimeoutError):
                await connection.call_tool("take", BIG, timeout=0.05)
        with anyio.move_on_after(0.05) as gone:
            await connection.call_tool("take", BIG)
        assert gone.cancelled_caught
        stdin = process_of(connection)._stdin
        assert stdin is not None
        # what is not read waits with its caller: our own buffer holds at most one message
        assert stdin.get_write_buffer_size() < 2 * len(BIG["blob"])
        tasks.cancel_scope.cancel()


async def test_a_flood_of_notifications_before_an_answer_arrives_whole_and_in_order(tmp_path: Path) -> None:
    numbers: list[int] = []

    def count(note: tuple[str, Mapping[str, int]]) -> None:
        numbers.append(note[1]["number"])

    async with connected(server(tmp_path / "deaf")) as connection:
        connection.on("notification", count)
        await connection.call_tool("chatty")
        assert numbers == list(range(20_000))
