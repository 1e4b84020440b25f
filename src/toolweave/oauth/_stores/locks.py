"""Locks between processes of one machine: files that one of them holds, and that the system releases when it dies.

Knows files, nothing of tokens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread
from filelock import FileLock, Timeout

from toolweave._backoff import backoff
from toolweave.errors import StoreError

_FIRST_PAUSE = 0.005
_MAX_PAUSE = 0.1


@asynccontextmanager
async def held(path: Path, *, seconds: float, what: str) -> AsyncGenerator[None]:
    """Hold a lock file during the block; `what` is the name of the locked thing in the error.

    The file stays when the lock is released: other processes may wait for it.

    Raises:
        StoreError: Another holder keeps it for longer than these seconds, or it cannot be made.
    """
    # Each attempt is short and the pauses are of the event loop: callers that wait keep no thread from the holder,
    # who needs one to release the lock.
    lock = _lock_of(path)
    over = threading.Event()

    def attempt() -> bool:
        # A cancelled task may leave its thread here. Either this thread sees that the block is over, or the release
        # below sees the lock that this thread has acquired; both may release it.
        acquired = _acquired(lock, what)
        if over.is_set():
            lock.release()
        return acquired

    try:
        pauses = (backoff(tries, first=_FIRST_PAUSE, longest=_MAX_PAUSE) for tries in count(1))
        deadline = anyio.current_time() + seconds
        while not await anyio.to_thread.run_sync(attempt):
            left = deadline - anyio.current_time()
            if left <= 0:
                raise _busy(what, seconds)
            await anyio.sleep(min(next(pauses), left))
        yield
    finally:
        over.set()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lock.release)


@contextmanager
def held_in_thread(path: Path, *, seconds: float, what: str) -> Generator[None]:
    """Hold a lock file during the block, as `held` does, in a thread that may wait."""
    lock = _lock_of(path)
    if not _acquired(lock, what, seconds=seconds):
        raise _busy(what, seconds)
    try:
        yield
    finally:
        lock.release()


def _lock_of(path: Path) -> FileLock:
    # Only the owner can open the file. A file system without such locks is an error: a file that merely exists would
    # stay locked after its process died.
    return FileLock(path, mode=0o600, thread_local=False, poll_interval=_FIRST_PAUSE, fallback_to_soft=False)


def _acquired(lock: FileLock, what: str, *, seconds: float = 0) -> bool:
    """Acquire a lock; return False if another holder keeps it for longer than these seconds.

    Raises:
        StoreError: The file cannot be made or locked.
    """
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return False
    except OSError as exc:
        raise StoreError(f"{what} cannot be locked: {exc.strerror or exc}") from None
    return True


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, or check that only its owner can write to it.

    Raises:
        StoreError: It cannot be made, it belongs to another user, or others can write to it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as exc:
        raise StoreError(f"cannot use the folder {str(folder)!r}: {exc.strerror or exc}") from None
    # Root can read everything anyway, and owns many folders that are mounted into containers.
    if found.st_uid not in (os.geteuid(), 0):
        raise StoreError(
            f"the folder {str(folder)!r} belongs to another user; tokens are kept in a folder of one's own"
        )
    if found.st_mode & 0o022:
        raise StoreError(f"others can write to the folder {str(folder)!r}: chmod go-w it, or keep the tokens elsewhere")


def _busy(what: str, seconds: float) -> StoreError:
    return StoreError(f"{what} is held by another process for longer than {seconds:g} s; try again")
