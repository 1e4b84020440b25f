"""Locks between processes of one machine: files that stay, private, and that no death or cancellation keeps locked."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from tests.oauth.token_stores import a_key, a_record
from toolweave.errors import StoreError
from toolweave.oauth import FileTokenStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens" / "tokens.json"


def lock_files(path: Path) -> list[Path]:
    return sorted(one for one in path.parent.iterdir() if one.suffix == ".lock")


async def test_a_record_has_one_lock_file_however_often_it_is_locked_saved_and_deleted(path: Path) -> None:
    for _ in range(5):
        for principal in ("ann", "bob"):
            store = FileTokenStore(path)
            async with store.locked(a_key(principal=principal), seconds=1):
                await store.save(a_record(a_key(principal=principal)))
            assert await store.delete(a_key(principal=principal))

    assert len(lock_files(path)) == 3  # of two records, and of the file
    assert {one.stat().st_mode & 0o777 for one in lock_files(path)} == {0o600}
    assert {one.stat().st_size for one in lock_files(path)} == {0}


async def test_a_link_in_the_place_of_a_lock_file_is_refused_and_not_followed(path: Path, tmp_path: Path) -> None:
    store = FileTokenStore(path)
    await store.save(a_record())
    elsewhere = tmp_path / "elsewhere"
    async with store.locked(a_key(), seconds=1):
        pass
    for lock in lock_files(path):
        lock.unlink()
        lock.symlink_to(elsewhere)

    with pytest.raises(StoreError, match=r"the token for https://mcp\.example/mcp cannot be locked"):
        async with store.locked(a_key(), seconds=1):
            pytest.fail("it is a link")
    with pytest.raises(StoreError, match=r"tokens\.json' cannot be locked"):
        await store.save(a_record(token="new"))
    assert not elsewhere.exists()


@pytest.mark.parametrize("how", ["task", "scope"])
async def test_who_is_cancelled_at_any_moment_leaves_no_lock(path: Path, how: str) -> None:
    store = FileTokenStore(path)
    for turns in range(40):
        scope = anyio.CancelScope()
        inside = anyio.Event()

        async def hold(scope: anyio.CancelScope = scope, inside: anyio.Event = inside) -> None:
            with scope:
                async with store.locked(a_key(), seconds=10):
                    inside.set()
                    await anyio.sleep(10)

        task = asyncio.get_running_loop().create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns >= 30:  # and while it is held
            await inside.wait()
        if how == "task":
            task.cancel()
        else:
            scope.cancel()
        done, _ = await asyncio.wait([task], timeout=20)
        assert done
        assert task.cancelled() == (how == "task")
        # A thread of a cancelled task may have the lock for an instant.
        async with store.locked(a_key(), seconds=5):
            pass


async def test_a_lock_that_a_thread_acquires_after_its_task_was_cancelled_is_released(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileTokenStore(path)
    flock = fcntl.flock
    begun, may_go_on, has_it = threading.Event(), threading.Event(), threading.Event()

    def slow(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX:
            begun.set()
            may_go_on.wait(20)
        flock(descriptor, operation)
        has_it.set()

    async def hold() -> None:
        async with store.locked(a_key(), seconds=10):
            pytest.fail("it was cancelled before")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", slow)
        task = asyncio.get_running_loop().create_task(hold())
        assert await anyio.to_thread.run_sync(begun.wait, 20)
        task.cancel()
        # The error is kept, and with it all that its traceback has: nothing is released by the garbage collector.
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        may_go_on.set()
        assert await anyio.to_thread.run_sync(has_it.wait, 20)
        async with store.locked(a_key(), seconds=10):
            assert cancelled.tb


async def test_more_waiters_than_threads_do_not_keep_the_holder_from_its_work(path: Path) -> None:
    store = FileTokenStore(path)
    entered = 0

    async def wait() -> None:
        nonlocal entered
        async with store.locked(a_key(), seconds=60):
            entered += 1

    async with anyio.create_task_group() as tasks, store.locked(a_key(), seconds=1):
        for _ in range(100):
            tasks.start_soon(wait)
        for number in range(5):
            await store.save(a_record(token=str(number)))
        assert entered == 0
    assert entered == 100


COUNT_FOR_EVER = """
import anyio, os, sys
from pathlib import Path
from tests.oauth.token_stores import a_key
from toolweave.oauth import FileTokenStore

def runs(pid):
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

async def main():
    store = FileTokenStore(sys.argv[1])
    inside, violations = Path(sys.argv[2]), Path(sys.argv[3])
    while True:
        async with store.locked(a_key(), seconds=30):
            other = inside.read_text() if inside.exists() else ""
            if other and runs(other):
                violations.write_text(other)
            inside.write_text(str(os.getpid()))
            await anyio.sleep(0.001)
            inside.unlink()
            print("held", flush=True)

anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="platform: needs to know which processes are alive")
async def test_of_processes_that_are_killed_and_started_one_at_a_time_holds_the_record(
    path: Path, tmp_path: Path
) -> None:
    inside, violations = tmp_path / "inside", tmp_path / "violations"

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", COUNT_FOR_EVER, str(path), str(inside), str(violations)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    async def holds(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert await anyio.to_thread.run_sync(process.stdout.readline) == "held\n"

    processes = [start() for _ in range(3)]
    try:
        with anyio.fail_after(120):
            for _ in range(6):
                for process in processes:
                    await holds(process)
                killed = processes.pop(0)
                killed.send_signal(signal.SIGKILL)
                await anyio.to_thread.run_sync(killed.communicate)
                processes.append(start())
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert not violations.exists()
    async with FileTokenStore(path).locked(a_key(), seconds=0):
        pass
