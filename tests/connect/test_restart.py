"""What happens when a server goes away: restarts, what is sent again, and the exact cause when nothing is."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connect.targets import ChannelServer, Json, connected, eventually, initialized, pid_of, state_of
from tests.servers.fixtures import echo_command, fault_command, http_server
from toolweave import (
    CallContext,
    ConnectError,
    ConnectionLostError,
    ErrorKind,
    McpConnection,
    RequestTimeoutError,
    ToolCall,
    ToolsChanged,
    connect_mcp,
)
from toolweave.config import Timeouts
from toolweave.connect import ConnectionState, StateChanged
from toolweave.connect._restart import ConnectionLoss, GiveUp, RestartPolicy, RetryAfter
from toolweave.errors import ServerError


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


@pytest.mark.parametrize("after", ["sys.exit(3)", "sys.stdin.readline(); sys.exit(3)"], ids=["at once", "when asked"])
async def test_a_call_that_may_have_run_is_not_said_to_be_unsent_when_its_server_stays_away(
    after: str, tmp_path: Path
) -> None:
    marker = tmp_path / "died"
    program = (
        "import sys, os\n"
        f"if os.path.exists({str(marker)!r}): {after}\n"
        f"open({str(marker)!r}, 'w').close()\n"
        f"os.execv(sys.executable, [sys.executable, *{fault_command('dies_mid_call')[1:]!r}])\n"
    )
    timeout = Timeouts(connect=2, probe=0.2, list=2, close=1)
    async with connected([*fault_command("MODE")[:3], "-c", program], timeout=timeout) as connection:
        with pytest.raises(ServerError) as lost:
            await connection.call_tool("echo", {"text": "x"}, timeout=15)
        assert (lost.value.kind, lost.value.retryable) == (ErrorKind.OUTCOME_UNKNOWN, False)
        assert "its process ended while the call ran (exit code 9)" in str(lost.value)


@pytest.mark.slow
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
                "MCP error: server 'mortal': its process ended (exit code 7); its last words on standard error: "
                "fatal: crashed on purpose\n  about to crash"
            )
            assert result.error is not None
            assert result.error.data == {"exit_code": 7, "stderr": "about to crash\nfatal: crashed on purpose"}
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


@pytest.mark.slow
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
    async with connected(http_server("--version", "2025-11-25", "--mode", "gone_session", "--times", 1)) as connection:
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


# the policy, which is pure

JITTERS = st.floats(0, 1, exclude_max=True)


def losses(*held: float | None, every: float = 1.0) -> list[ConnectionLoss]:
    """Return losses at equal distances, the last at 0."""
    return [ConnectionLoss(at=(number - len(held) + 1) * every, held=one) for number, one in enumerate(held)]


def backoff_seconds(policy: RestartPolicy, history: list[ConnectionLoss], jitter: float = 0.0) -> float:
    decision = policy.next(history, 0.0, jitter)
    assert isinstance(decision, RetryAfter)
    return decision.seconds


@pytest.mark.slow
@given(st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=60), st.floats(0.01, 1e4), JITTERS)
def test_any_history_is_answered_with_a_bounded_wait_or_the_end(
    held: list[float | None], every: float, jitter: float
) -> None:
    policy = RestartPolicy()
    decision = policy.next(losses(*held, every=every), 0.0, jitter)
    if isinstance(decision, GiveUp):
        assert len(held) > min(policy.attempts, policy.losses)
        assert re.fullmatch(r"\d+ (failures in a row|losses within 300 s)", decision.why)
    else:
        assert policy.first / 2 <= decision.seconds <= policy.cap


@given(st.integers(1, 40), JITTERS)
def test_waits_grow_with_each_failure_up_to_the_cap(failures: int, jitter: float) -> None:
    policy = RestartPolicy(attempts=50, losses=50)
    sooner = backoff_seconds(policy, losses(*[None] * failures), jitter)
    later = backoff_seconds(policy, losses(*[None] * (failures + 1)), jitter)
    assert sooner < later or later == pytest.approx(policy.cap * (0.5 + 0.5 * jitter))
    assert sooner <= later


@given(st.integers(1, 40))
def test_failures_in_a_row_have_an_end(failures: int) -> None:
    policy = RestartPolicy()
    decision = policy.next(losses(*[None] * failures), 0.0, 0.0)
    assert isinstance(decision, GiveUp) == (failures > policy.attempts)


@pytest.mark.slow
@given(st.lists(st.none() | st.floats(0, 1e4), max_size=12), st.floats(0, 1e4))
def test_a_connection_that_held_starts_the_count_of_failures_anew(before: list[float | None], held: float) -> None:
    policy = RestartPolicy()
    failures = policy.failures(losses(*before, held))
    assert failures == (1 if held >= policy.stable else policy.failures(losses(*before)) + 1)


@given(st.integers(1, 40), st.floats(1, 100))
def test_a_connection_that_holds_each_time_is_given_up_only_for_many_losses_within_the_window(
    count: int, every: float
) -> None:
    policy = RestartPolicy()
    decision = policy.next(losses(*[policy.stable] * count, every=every), 0.0, 0.0)
    within = sum(number * every < policy.window for number in range(count))
    assert isinstance(decision, GiveUp) == (within > policy.losses)


@given(st.lists(st.none() | st.floats(0, 20), min_size=1, max_size=80), st.floats(0.1, 100), JITTERS)
def test_the_policy_needs_no_more_history_than_it_says(held: list[float | None], every: float, jitter: float) -> None:
    policy = RestartPolicy()
    history = losses(*held, every=every)
    whole, remembered = policy.next(history, 0.0, jitter), policy.next(history[-policy.memory :], 0.0, jitter)
    assert type(whole) is type(remembered)
    assert whole == remembered or isinstance(whole, GiveUp)


@pytest.mark.requirement("R69")
@pytest.mark.parametrize(
    ("hints", "calls"),
    [
        ({"readOnlyHint": True}, 2),
        ({"idempotentHint": True}, 2),
        ({"readOnlyHint": False, "destructiveHint": False}, 1),
    ],
    ids=["read only", "idempotent", "neither"],
)
async def test_either_hint_alone_lets_a_lost_call_be_sent_again(hints: Json, calls: int) -> None:
    seen: list[Json] = []

    def answer(message: Json) -> Json | None:
        if message["method"] == "tools/list":
            return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "annotations": hints}]}}
        if message["method"] == "tools/call":
            seen.append(message)
            if len(seen) == 1:
                server.hang_up()
                return None
        return {"result": {"content": [{"type": "text", "text": "again"}]}}

    server = ChannelServer(initialized(answer))
    async with connected(server) as connection:
        result = await connection.call(ToolCall(name="t", arguments={}), CallContext())
    assert len(seen) == calls
    assert (result.text == "again") == (calls == 2)
    assert result.error is None or result.error.kind is ErrorKind.OUTCOME_UNKNOWN
