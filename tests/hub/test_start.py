"""How a hub starts: all servers at once, each with its own deadline, waited for as the caller wishes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from tests.hub.fleet import BOUND, absent, echo, fault, next_change, opened, waiting
from tests.servers.fixtures import echo_command
from toolweave import ErrorKind, Hub, RequestTimeoutError, connect_mcp_servers
from toolweave.connect import ConnectionState


@pytest.mark.slow
@pytest.mark.requirement("R20", "D20")
async def test_twenty_servers_that_wait_for_each_other_all_come_up(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    names = [f"s{number:02}" for number in range(20)]
    async with opened({name: waiting(gate, name, 20) for name in names}) as hub:
        assert list(hub.clients) == names
        assert not hub.errors
        assert set(hub.states().values()) == {ConnectionState.READY}
        assert [spec.server for spec in hub.snapshot() if spec.original_name == "echo"] == names


@pytest.mark.slow
@pytest.mark.requirement("C3", "R64")
async def test_by_default_no_server_is_waited_for_that_shows_no_sign_of_life() -> None:
    mute = {mode: fault(mode) for mode in ("hang_initialize", "hang_list", "never_answers")}
    async with opened({"before": echo(), **mute, "after": echo()}) as hub:
        assert {name for name, state in hub.states().items() if state is ConnectionState.CONNECTING} == set(mute)
        assert set(hub.silences) == set(mute)
        assert not hub.errors
        for name in ("before", "after"):
            assert (await hub.execute(f"{name}_echo", {"text": "here"})).text == "here"


PROGRAMS = {
    "busy": "end = time.process_time() + 2\nwhile time.process_time() < end: pass",
    "talkative": "for _ in range(20): print('.', file=sys.stderr, flush=True); time.sleep(0.1)",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", PROGRAMS)
async def test_a_server_that_shows_life_is_waited_for_however_slowly_it_starts(how: str) -> None:
    program = f"import os, sys, time\n{PROGRAMS[how]}\nos.execv(sys.argv[1], sys.argv[1:])"
    slow = {"command": sys.executable, "args": ["-S", "-E", "-c", program, *echo_command()]}
    child = {"command": "sh", "args": ["-c", '"$0" "$@"; true', sys.executable, *cast("list[str]", slow["args"])]}
    async with opened({"fast": echo(), "slow": slow, "child": child}, patience=1.0) as hub:
        assert set(hub.states().values()) == {ConnectionState.READY}
        assert (await hub.execute("slow_echo", {"text": "late"})).text == "late"


async def test_a_server_that_was_not_waited_for_goes_on_connecting_and_joins_as_a_change(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    late = {"command": "sh", "args": ["-c", 'read x < "$0"; exec "$@"', str(gate), *echo_command()]}
    async with opened({"good": echo(), "late": late}, patience=0.3) as hub:
        assert hub.states() == {"good": ConnectionState.READY, "late": ConnectionState.CONNECTING}
        async with next_change(hub, adds="late_echo"):
            await anyio.to_thread.run_sync(gate.write_text, "go\n")
        assert (await hub.execute("late_echo", {"text": "here"})).text == "here"


async def test_a_script_can_still_wait_for_all(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    late = {"command": "sh", "args": ["-c", 'read x < "$0"; exec "$@"', str(gate), *echo_command()]}
    hub = Hub({"good": echo(), "late": late}, patience=0.2)
    with anyio.fail_after(BOUND):
        async with hub:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hub.settled, "all")
                assert hub.states()["late"] is ConnectionState.CONNECTING
                await anyio.to_thread.run_sync(gate.write_text, "go\n")
            assert set(hub.states().values()) == {ConnectionState.READY}


@pytest.mark.slow
@pytest.mark.requirement("C3", "R64")
async def test_a_hanging_server_is_given_up_at_its_own_deadline() -> None:
    async with opened({"good": echo(), "stuck": fault("never_answers", timeout=0.5)}) as hub:
        error = hub.errors["stuck"]
        assert isinstance(error, RequestTimeoutError)
        assert error.seconds == 0.5
        assert "server 'stuck'" in str(error)
        assert list(hub.clients) == ["good"]
        assert (await hub.execute("good_echo", {"text": "here"})).text == "here"


async def test_waiting_for_any_returns_while_others_still_start_and_they_arrive_as_a_change(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with opened({"fast": echo(), "slow": waiting(gate, "slow", 2)}, wait="any") as hub:
        assert hub.states() == {"fast": ConnectionState.READY, "slow": ConnectionState.CONNECTING}
        assert (await hub.execute("fast_echo", {"text": "already"})).text == "already"
        early = await hub.execute("slow_echo", {"text": "too early"})
        async with next_change(hub, adds="slow_echo") as changes:
            (gate / "now").touch()
        late = await hub.execute("slow_echo", {"text": "late"})
        assert hub.states()["slow"] in {ConnectionState.READY, ConnectionState.CONNECTING}
    assert early.require_error().kind is ErrorKind.NOT_SENT
    assert early.require_error().retryable
    assert "server 'slow' is still connecting" in early.text
    assert late.text == "late"
    assert [change.removed for change in changes] == [()]


async def test_waiting_for_any_passes_over_the_servers_that_fail() -> None:
    async with opened({"absent": absent(), "good": echo()}, wait="any") as hub:
        assert hub.states()["good"] is ConnectionState.READY


async def test_waiting_for_any_ends_when_all_have_failed() -> None:
    async with opened({"absent": absent(), "dead": fault("exits_at_once")}, wait="any") as hub:
        assert set(hub.errors) == {"absent", "dead"}
        assert len(hub.snapshot()) == 0


async def test_waiting_no_seconds_returns_at_once_with_everything_still_to_come(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with opened({"late": waiting(gate, "late", 2)}, wait=0) as hub:
        assert hub.states() == {"late": ConnectionState.CONNECTING}
        assert len(hub.snapshot()) == 0
        async with next_change(hub, adds="late_echo"):
            (gate / "now").touch()
        assert hub.tools["late:echo"].server == "late"


async def test_waiting_some_seconds_ends_early_when_everybody_is_there() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({"mcpServers": {"a": echo()}}, wait=10 * BOUND) as hub:
            assert hub.states() == {"a": ConnectionState.READY}


@pytest.mark.slow
async def test_a_late_failure_is_in_errors_and_hurts_nobody() -> None:
    stuck = fault("never_answers", timeout=0.5)
    async with opened({"good": echo(), "stuck": stuck}, wait="any", on_error="raise") as hub:
        client = hub.clients["stuck"]
        gone = anyio.Event()
        client.on("state", lambda change: gone.set() if change.state is ConnectionState.FAILED else None)
        await gone.wait()
        assert isinstance(hub.errors["stuck"], RequestTimeoutError)
        assert hub.states() == {"good": ConnectionState.READY, "stuck": ConnectionState.FAILED}
        assert (await hub.execute("good_echo", {"text": "still"})).text == "still"


async def test_cancelling_the_start_ends_every_process(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    connecting = connect_mcp_servers({"mcpServers": {"up": echo(), "coming": waiting(gate, "coming", 2)}})
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:

            async def wait_for_all() -> None:
                await connecting

            tasks.start_soon(wait_for_all)
            while not (gate / "coming").exists():
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def test_an_attempt_serves_once() -> None:
    connecting = connect_mcp_servers({"mcpServers": {}})
    hub = await connecting
    with pytest.raises(RuntimeError, match="used already"):
        await connecting
    await hub.close()


async def test_no_server_at_all_is_an_empty_hub() -> None:
    async with opened({}) as hub:
        assert list(hub.snapshot()) == []
        assert repr(hub) == "<Hub {} 0 tools>"


async def test_a_hub_that_is_made_by_hand_starts_when_it_is_entered_and_only_once() -> None:
    hub = Hub({"mcpServers": {"a": echo()}})
    assert len(hub.snapshot()) == 0
    with anyio.fail_after(BOUND):
        async with hub:
            first = hub.clients["a"]
            await hub.open()
            async with hub:
                assert hub.clients["a"] is first
            assert hub.tools["a_echo"].name == "a_echo"


@pytest.mark.parametrize("wait", ["some", -1, True, None, float("nan")])
def test_what_is_no_way_to_wait_is_refused_at_once(wait: object) -> None:
    with pytest.raises(ValueError, match="wait must be 'alive', 'all', 'any' or seconds"):
        connect_mcp_servers({}, wait=cast("Any", wait))


def test_what_is_no_failure_policy_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="on_error is 'skip' or 'raise', not 'ignore'"):
        connect_mcp_servers({}, on_error=cast("Any", "ignore"))
