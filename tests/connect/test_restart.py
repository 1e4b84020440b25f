"""What happens when a server goes away: restarts, what is sent again, and the exact cause when nothing is."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connect.targets import ChannelServer, Json, connected, eventually, initialized, pid_of, state_of
from tests.servers.fixtures import echo_command, fault_command, http_server
from toolweave import (
    ConnectError,
    ConnectionLostError,
    ConnectionState,
    ErrorKind,
    McpConnection,
    RequestTimeoutError,
    StateChanged,
    ToolsChanged,
    connect_mcp,
)
from toolweave.connect.restart import RestartPolicy

pytestmark = pytest.mark.anyio


async def ready_again(connection: McpConnection, restarts: int) -> None:
    await eventually(lambda: connection.restarts == restarts and connection.state is ConnectionState.READY)


@pytest.mark.requirement("R69")
async def test_a_call_during_which_the_server_dies_has_an_unknown_outcome_and_the_next_one_works() -> None:
    async with connected(echo_command()) as connection:
        first = pid_of(connection)
        with pytest.raises(ConnectionLostError) as lost:
            await connection.call_tool("crash")
        after = await connection.call_tool("echo", {"text": "back"})

        assert (lost.value.sent, lost.value.exit_code) == (True, 7)
        assert lost.value.stderr == "about to crash\nfatal: crashed on purpose"
        assert "exit code 7" in str(lost.value)
        assert after.text == "back"
        assert connection.restarts == 1
        assert pid_of(connection) != first


@pytest.mark.requirement("R60", "R65", "R66")
async def test_an_executed_tool_says_that_the_outcome_is_unknown() -> None:
    async with connected(echo_command(), name="fragile") as connection:
        result = await (await connection.list_tools())["crash"].execute()

    assert result.is_error
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == (ErrorKind.OUTCOME_UNKNOWN, False)
    assert result.text.startswith("MCP error: server 'fragile': its process ended while the call ran (exit code 7)")


async def test_a_tool_that_may_be_repeated_is_sent_again_after_the_restart(tmp_path: Path) -> None:
    # `echo` is annotated readOnly and idempotent; this server dies of it while the mark is not there
    marker = tmp_path / "died"
    program = (
        "import sys, os, subprocess\n"
        f"mode = 'dies_mid_call' if not os.path.exists({str(marker)!r}) else 'bom'\n"
        f"open({str(marker)!r}, 'w').close()\n"
        f"os.execv(sys.executable, [sys.executable, *{fault_command('MODE')[1:]!r}[:-1], mode])\n"
    )
    async with connected([*fault_command("MODE")[:3], "-c", program]) as connection:
        result = await connection.call_tool("echo", {"text": "twice"})
        assert (result.text, connection.restarts) == ("twice", 1)


async def test_a_tool_that_may_be_repeated_is_sent_again_only_once() -> None:
    async with connected(fault_command("dies_mid_call")) as connection:
        with pytest.raises(ConnectionLostError) as lost:
            await connection.call_tool("echo", {"text": "x"})
        assert lost.value.exit_code == 9
        await ready_again(connection, 2)


@pytest.mark.requirement("R24", "R60", "R69")
async def test_without_restart_the_tools_stay_and_each_call_answers_with_the_exact_cause() -> None:
    async with connected(echo_command(), name="mortal", restart="never") as connection:
        tools = await connection.list_tools()
        await tools["crash"].execute()
        await eventually(lambda: connection.state is ConnectionState.FAILED)

        for _ in range(2):
            result = await tools["echo"].execute({"text": "x"})
            assert result.is_error
            assert result.text == (
                "MCP error: server 'mortal': its process ended (exit code 7); its last words on standard error:\n"
                "about to crash\nfatal: crashed on purpose"
            )
        with pytest.raises(ConnectionLostError) as lost:
            await connection.call_tool("echo", {"text": "x"})

        assert (lost.value.exit_code, lost.value.sent) == (7, False)
        assert isinstance(connection.error, ConnectionLostError)
        assert "echo" in connection.snapshot().by_name
        assert connection.restarts == 0
        assert [tool.name for tool in tools][:2] == ["echo", "add"]


async def test_an_idle_connection_notices_the_death_and_restarts_by_itself() -> None:
    states: list[StateChanged] = []
    async with connected(echo_command()) as connection:
        connection.on("state", states.append)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon((await connection.list_tools())["crash"].execute)
            await ready_again(connection, 1)

    assert [change.state.value for change in states] == ["backoff", "connecting", "ready", "closed"]
    assert states[0].previous is ConnectionState.READY
    assert isinstance(states[0].error, ConnectionLostError)
    assert states[0].retry_in is not None
    assert 0 < states[0].retry_in <= 0.1


async def test_a_restarted_server_that_offers_other_tools_changes_the_catalog() -> None:
    changes: list[ToolsChanged] = []
    async with connected(echo_command()) as connection:
        await connection.call_tool("grow")
        await eventually(lambda: "grown_1" in connection.snapshot().by_name)
        connection.on("tools_changed", changes.append)
        await (await connection.list_tools())["crash"].execute()
        await ready_again(connection, 1)

    assert [change.removed for change in changes] == [("grown_1",)]


async def test_a_server_that_is_gone_is_waited_for_between_attempts(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\nexec {' '.join(echo_command())}\n")
    program.chmod(0o755)
    states: list[StateChanged] = []
    async with connected([str(program)], timeout={"connect": 2, "list": 0.1, "close": 0.5}) as connection:
        connection.on("state", states.append)
        program.rename(tmp_path / "away")
        await (await connection.list_tools())["crash"].execute()
        await eventually(lambda: sum(change.state is ConnectionState.BACKOFF for change in states) == 2)
        for _ in range(20):  # no attempt begins before its time
            await anyio.lowlevel.checkpoint()
        assert connection.state is ConnectionState.BACKOFF
        assert isinstance(connection.error, ConnectError)
        with pytest.raises(RequestTimeoutError, match=r"not connected after .* s \(state .*was not found"):
            await connection.list_tools()

    waits = [change.retry_in for change in states if change.retry_in is not None]
    assert waits == sorted(waits)


async def test_a_call_waits_for_a_restart_under_way(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\nexec {' '.join(echo_command())}\n")
    program.chmod(0o755)
    async with connected([str(program)]) as connection:
        program.rename(tmp_path / "away")
        crashed = (await connection.list_tools())["crash"].execute
        await crashed()
        await eventually(lambda: connection.restarts >= 1 and connection.state is ConnectionState.BACKOFF)
        (tmp_path / "away").rename(program)
        assert (await connection.call_tool("echo", {"text": "at last"})).text == "at last"


async def test_a_connection_is_given_up_after_the_last_attempt_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\nexec {' '.join(echo_command())}\n")
    program.chmod(0o755)
    monkeypatch.setattr("toolweave.connect.owner.RestartPolicy", lambda: RestartPolicy(first=0.001, attempts=3))
    async with connected([str(program)], name="lost") as connection:
        program.rename(tmp_path / "away")
        await (await connection.list_tools())["crash"].execute()
        await eventually(lambda: connection.state is ConnectionState.FAILED)
        assert connection.restarts == 3
        for _ in range(2):
            with pytest.raises(ConnectError, match=r"server 'lost': its command .* was not found"):
                await connection.call_tool("echo", {"text": "x"})


async def test_a_server_that_never_came_up_is_not_retried_behind_the_users_back() -> None:
    states: list[StateChanged] = []
    connecting = connect_mcp(fault_command("exits_at_once"), lazy=True)
    connection = await connecting
    connection.on("state", states.append)
    with pytest.raises(ConnectError):
        await connection.list_tools()
    assert [change.state.value for change in states] == ["connecting", "failed"]
    assert connection.restarts == 0
    with pytest.raises(ConnectError, match="exit code 3"):
        await connection.call_tool("echo", {"text": "x"})
    await connection.close()


async def test_closing_in_the_middle_of_a_backoff_ends_at_once(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\nexec {' '.join(echo_command())}\n")
    program.chmod(0o755)
    states: list[ConnectionState] = []
    async with connected([str(program)]) as connection:
        connection.on("state", lambda change: states.append(change.state))
        program.rename(tmp_path / "away")
        await (await connection.list_tools())["crash"].execute()
        await eventually(lambda: states.count(ConnectionState.BACKOFF) >= 2)
        restarts = connection.restarts
    assert states[-2:] == [ConnectionState.BACKOFF, ConnectionState.CLOSED]
    assert connection.restarts == restarts


async def test_a_session_that_the_server_forgot_is_begun_anew() -> None:
    with http_server("--version", "2025-11-25", "--mode", "gone_session", "--times", 1) as url:
        async with connected(url) as connection:
            assert (await connection.call_tool("echo", {"text": "one"})).text == "one"
            assert (await connection.call_tool("fail", {"message": "two"})).text == "two"
            assert connection.restarts == 1
            assert (await state_of(connection))["methods"].count("initialize") == 2


async def test_an_in_process_server_that_hangs_up_is_entered_again() -> None:
    def answer(message: Json) -> Json | None:
        return {"result": {"tools": []} if message["method"] == "tools/list" else {"content": []}}

    server = ChannelServer(initialized(answer))
    async with connected(server) as connection:
        server.hang_up()
        await ready_again(connection, 1)
        await connection.call_tool("anything")
    assert server.conversations == 2


@given(st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_a_wait_never_passes_the_cap_and_the_attempts_have_an_end(failures: int, jitter: float) -> None:
    policy = RestartPolicy()
    wait = policy.delay(failures, jitter)
    assert (wait is None) == (failures > policy.attempts)
    assert wait is None or 0 < wait <= policy.cap


@given(st.integers(1, 5), st.floats(0, 1, exclude_max=True))
def test_waits_grow_with_each_failure(failures: int, jitter: float) -> None:
    policy = RestartPolicy(attempts=50)
    sooner, later = policy.delay(failures, jitter), policy.delay(failures + 1, jitter)
    assert sooner is not None
    assert later is not None
    assert sooner < later


@given(st.integers(0, 20), st.floats(0, 1e6))
def test_a_connection_that_held_starts_the_count_anew(failures: int, held: float) -> None:
    policy = RestartPolicy()
    assert policy.failures_after(failures, held) == (1 if held >= policy.stable else failures + 1)
