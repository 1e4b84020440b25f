"""No server outlives its connection, whatever the server does and however our own process ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from tests.connect.targets import connected, eventually, group_lives, pid_of
from tests.connect.test_loops import loop_factories
from tests.servers.fixtures import echo_command, fault_command
from toolweave import ConnectError, ConnectionLostError, connect_mcp
from toolweave.connect._stdio import process_tree as descent
from toolweave.connect._stdio.process import ServerProcess, spawn
from toolweave.connect._stdio.process_tree import escapee_lives, escapees_of, signal_escapees
from toolweave.connect._stdio.reaper import Reaper

pytestmark = pytest.mark.slow
QUICK = {"probe": 1.0, "close": 0.5}
STUBBORN = ("ignores_sigterm", "ignores_eof", "grandchild_holds_pipes", "closes_stdout_but_lives")


def process_lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("mode", STUBBORN)
async def test_a_stubborn_server_is_ended_on_closing(mode: str) -> None:
    async with connected(fault_command(mode), timeout=QUICK) as connection:
        group = pid_of(connection)
        assert group_lives(group)
    assert not group_lives(group)


async def test_a_polite_server_is_given_the_time_to_end_by_itself(tmp_path: Path) -> None:
    # the server writes its mark after the end of its standard input; a signal would keep it from that
    mark = tmp_path / "ended"
    command = f"{' '.join(echo_command())}; echo by itself > {mark}"
    async with connected(["/bin/sh", "-c", command]):
        pass
    assert mark.read_text() == "by itself\n"


@pytest.mark.requirement("D2")
async def test_a_grandchild_that_holds_the_pipes_does_not_keep_a_dead_connection_alive() -> None:
    async with connected(fault_command("grandchild_holds_pipes"), timeout=QUICK, restart="never") as connection:
        grandchild = int((await connection.call_tool("grandchild")).text)
        assert process_lives(grandchild)
        with pytest.raises(ConnectionLostError) as lost:
            await connection.call_tool("crash")
        assert lost.value.exit_code == 7
        await eventually(lambda: not process_lives(grandchild))


async def test_a_server_that_closes_its_output_but_lives_is_lost_and_ended() -> None:
    async with connected(fault_command("closes_stdout_but_lives"), timeout=QUICK, restart="never") as connection:
        group = pid_of(connection)
        with pytest.raises(ConnectionLostError, match="closed its standard output") as lost:
            await connection.call_tool("echo", {"text": "x"})
        assert lost.value.exit_code is None
        await eventually(lambda: not group_lives(group))


async def test_a_server_killed_by_a_signal_is_reported_with_it() -> None:
    async with connected(echo_command(), restart="never") as connection:
        os.kill(pid_of(connection), signal.SIGKILL)
        with pytest.raises(ConnectionLostError, match="killed by signal 9") as lost:
            await connection.call_tool("hang")
        assert lost.value.exit_code == -9


def test_an_event_loop_that_ends_without_closing_leaves_no_process() -> None:
    async def forget() -> int:
        return pid_of(await connect_mcp(fault_command("ignores_eof"), timeout=QUICK))

    assert not group_lives(asyncio.run(forget()))


def test_an_event_loop_that_ends_in_the_middle_of_a_call_leaves_no_process() -> None:
    async def forget() -> int:
        connection = await connect_mcp(fault_command("ignores_sigterm"), timeout=QUICK)
        asyncio.get_running_loop().create_task(connection.call_tool("hang"))
        await anyio.sleep(0)
        return pid_of(connection)

    assert not group_lives(asyncio.run(forget()))


def run_program(body: str, *modes: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a program of our own that connects to servers and prints their process groups."""
    program = f"""
        import asyncio, sys, anyio
        from toolweave import connect_mcp

        COMMANDS = {[fault_command(mode) for mode in modes]!r}

        def pid_of(connection):
            return next(s.detail[4:] for s in connection.report.steps if s.name == "start the process")

        async def main():
            connections = [await connect_mcp(c, timeout={{"probe": 1.0, "close": 0.5}}) for c in COMMANDS]
            print(*map(pid_of, connections), flush=True)
            {body}

        asyncio.run(main())
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().split()]


async def test_servers_die_with_our_process_killed_by_sigkill() -> None:
    process, groups = run_program("await anyio.sleep_forever()", *STUBBORN)
    with process:
        assert len(groups) == len(STUBBORN)
        assert all(group_lives(group) for group in groups)
        process.kill()
    await eventually(lambda: not any(group_lives(group) for group in groups))


@pytest.mark.parametrize(
    "body",
    ["sys.exit(3)", "raise ZeroDivisionError", "import os; os._exit(4)", "import os; os.abort()"],
)
async def test_servers_die_with_our_process_however_it_ends(body: str) -> None:
    process, groups = run_program(body, "ignores_sigterm", "ignores_eof")
    with process:
        pass
    assert process.returncode != 0
    await eventually(lambda: not any(group_lives(group) for group in groups))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_servers_die_with_our_process_ended_by_a_signal(number: signal.Signals) -> None:
    body = "await asyncio.gather(*(c.call_tool('hang') for c in connections))"
    process, groups = run_program(body, "ignores_sigterm", "ignores_eof")
    with process:
        process.send_signal(number)
    assert process.returncode != 0
    await eventually(lambda: not any(group_lives(group) for group in groups))


STAGES = {
    "never_answers": "discover",
    "hang_initialize": "initialize",
    "hang_list": "list tools",
}


@pytest.mark.parametrize("mode", STAGES)
async def test_an_interrupt_while_connecting_leaves_no_process(mode: str) -> None:
    program = f"""
        import asyncio, anyio
        from toolweave import connect_mcp

        async def main():
            connection = await connect_mcp({fault_command(mode)!r}, lazy=True, timeout={{"probe": 0.2, "close": 0.5}})
            connection.start()
            while {STAGES[mode]!r} not in [step.name for step in connection.report.steps]:
                await anyio.sleep(0.005)
            print(next(s.detail[4:] for s in connection.report.steps if s.name == "start the process"), flush=True)
            await connection.list_tools()

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        group = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=20)
    assert complaint.rstrip().endswith("KeyboardInterrupt")
    assert not group_lives(group)


FAST = "import sys\nfor n in range(400): sys.stdout.write('[' + str(n) + ',\"' + 'x' * 100_000 + '\"]\\n')"


def is_held_back(process: ServerProcess) -> bool:
    """Return whether the output of a process is not read at the moment."""
    assert process._transport is not None
    pipe = process._transport.get_pipe_transport(1)
    assert isinstance(pipe, asyncio.ReadTransport)
    return not pipe.is_reading() and not pipe.is_closing()


@pytest.mark.parametrize("taken", ["one by one", "as they come"])
async def test_a_server_that_writes_faster_than_we_read_is_held_back_and_nothing_is_lost(taken: str) -> None:
    messages: list[bytes] = []
    with anyio.fail_after(60):
        async with spawn([sys.executable, "-c", FAST], env={}, cwd=None, stop_seconds=1) as process:
            await eventually(lambda: is_held_back(process), seconds=25)
            if taken == "as they come":
                process.deliver_to(messages.append)
            with pytest.raises(EOFError, match="closed its standard output"):
                while True:
                    messages.append(await process.receive())
    assert [int(one[1:].partition(b",")[0]) for one in messages] == list(range(400))


@pytest.mark.parametrize("number", [0, 1], ids=["asyncio", "uvloop"])
def test_messages_of_a_server_that_was_held_back_are_there_after_its_end(number: int) -> None:
    async def live() -> int:
        async with spawn([sys.executable, "-c", FAST], env={}, cwd=None, stop_seconds=1) as process:
            await eventually(lambda: is_held_back(process), seconds=25)
        messages: list[bytes] = []
        process.deliver_to(messages.append)
        return len(messages)

    with asyncio.Runner(loop_factory=loop_factories()[number]) as runner:
        assert 80 <= runner.run(live()) < 400


@contextlib.contextmanager
def a_process() -> Generator[int, None, None]:
    """Yield the group of a process that ignores SIGTERM."""
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    command = [sys.executable, "-S", "-E", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


async def test_a_reaper_that_somebody_killed_is_replaced_at_the_next_server() -> None:
    reaper = Reaper()
    with a_process() as group:
        reaper.watch(group)
        first = reaper._process
        assert first is not None
        first.kill()
        first.wait()
        reaper.watch(group)  # the pipe is broken: noticed here
        reaper.watch(group)
        second = reaper._process
        assert second is not None
        assert second.pid != first.pid
        if first.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                first.stdin.close()
        reaper.release(group)
        assert second.poll() == 0
        assert group_lives(group)


def test_a_reaper_that_was_started_for_a_server_ends_if_the_server_does_not_start() -> None:
    reaper = Reaper()
    reaper.prepare()
    first = reaper._process
    reaper.prepare()
    reaper.abandon()
    assert first is not None
    assert first.poll() is None
    reaper.abandon()
    assert first.wait(10) is not None


async def test_a_reaper_ends_what_is_registered_when_its_pipe_ends_and_spares_what_was_released() -> None:
    reaper = Reaper()
    with a_process() as doomed, a_process() as spared:
        reaper.watch(doomed)
        reaper.watch(spared)
        reaper.release(spared)
        process = reaper._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        await eventually(lambda: not group_lives(doomed))
        process.wait()
        assert group_lives(spared)


async def test_a_server_sees_no_interrupt_meant_for_us() -> None:
    async with connected(echo_command()) as connection:
        assert os.getpgid(pid_of(connection)) == pid_of(connection) != os.getpgid(0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells who stems from whom")
@pytest.mark.parametrize("manners", ["polite", "stubborn"])
async def test_a_child_in_a_session_of_its_own_is_ended_with_its_server(manners: str, tmp_path: Path) -> None:
    mark = tmp_path / "child"
    child = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    program = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {child!r}],\n"
        "    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)\n"
        "child.stdout.readline()\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "import runpy\n"
        f"sys.argv = {fault_command('ignores_sigterm' if manners == 'stubborn' else 'slow_start')[3:]!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    async with connected([*fault_command("MODE")[:3], "-c", program], timeout=QUICK) as connection:
        stray = int(mark.read_text())
        assert os.getpgid(stray) == stray != pid_of(connection)
        assert process_lives(stray)
    assert not process_lives(stray)


async def test_a_number_that_another_process_has_got_meanwhile_is_spared() -> None:
    with a_process() as innocent:
        (mine,) = [stray for stray in escapees_of(os.getpid()) if stray.pid == innocent]
        signal_escapees([mine.replace(started="1")], signal.SIGKILL)
        assert not escapee_lives(mine.replace(started="1"))
        assert escapee_lives(mine)
        signal_escapees([mine], signal.SIGKILL)
        await eventually(lambda: not escapee_lives(mine))


async def test_a_group_of_which_only_zombies_are_left_is_over() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "exit 0"], start_new_session=True) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.killpg(process.pid, 0)  # the system still knows it
        assert not descent.group_lives(process.pid)


def descriptors() -> int:
    """Return how many file descriptors are open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


async def test_a_closed_connection_leaves_no_file_descriptor() -> None:
    async with connected(echo_command()) as connection:  # what is loaded once is loaded now
        await connection.call_tool("echo", {"text": "x"})
    before = descriptors()
    for mode in ("grandchild_holds_pipes", "ignores_eof", "stderr_flood"):
        async with connected(fault_command(mode), timeout=QUICK) as connection:
            assert descriptors() > before
    with pytest.raises(ConnectError):
        await connect_mcp(fault_command("dies_at_initialize"))
    with pytest.raises(ConnectError):
        await connect_mcp(["no-such-program-anywhere"])
    assert descriptors() == before


async def test_a_server_that_died_many_times_leaves_no_process_and_no_file_descriptor() -> None:
    groups: list[int] = []
    async with connected(echo_command(), seconds=60) as connection:
        open_files = descriptors()
        for number in range(1, 5):
            groups.append(pid_of(connection))
            os.kill(groups[-1], signal.SIGKILL)
            await eventually(lambda number=number: connection.restarts == number)
            assert (await connection.call_tool("echo", {"text": "up"})).text == "up"
        assert descriptors() == open_files
        assert not any(map(group_lives, groups))


FORKED = """
import os, subprocess
from pathlib import Path
from toolweave.connect._stdio.reaper import Reaper

def server():
    return subprocess.Popen(["sleep", "600"], start_new_session=True)

def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

reaper, ours = Reaper(), server()
reaper.watch(ours.pid)
guards, told = os.pipe()
child = os.fork()
if not child:
    reaper.watch(server().pid)
    os.write(told, str(reaper._process.pid).encode())
    os._exit(0)
os.waitpid(child, 0)
guard = int(os.read(guards, 100))
while lives(guard):  # until it has ended what it watches
    pass
print(ours.poll())
ours.kill()
ours.wait()
reaper.release(ours.pid)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc who lives")
async def test_a_forked_process_that_ends_takes_no_server_of_its_parent_with_it() -> None:
    with anyio.fail_after(30):
        done = await anyio.run_process([sys.executable, "-c", FORKED])
    assert done.stdout.split() == [b"None"]
