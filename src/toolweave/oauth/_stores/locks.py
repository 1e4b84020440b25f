"""Locks between processes of one machine: files that one of them holds, and that the system releases when it dies.

Knows files, nothing of tokens.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread

from toolweave._backoff import backoff
from toolweave.errors import StoreError

_FIRST_PAUSE = 0.005
_MAX_PAUSE = 0.1


class FileLock:
    """One attempt to hold a lock file (`flock`), by any thread.

    The file is deleted on release, so that locks of many names leave no files.
    """

    # A process may open the file, wait, and lock it after the holder has deleted it. It then has the lock of a file
    # without a name, which excludes nobody: the next process makes a new file. So a lock counts only if the open file
    # is still the file of that name, and another attempt is made if it is not.

    def __init__(self, path: Path) -> None:
        self._path = path
        # A cancelled task leaves its thread in `take`. The guard lets `release` wait for it, and `_released` makes an
        # attempt that begins later fail, so no lock stays without an owner.
        self._guard = threading.Lock()
        self._descriptor: int | None = None
        self._released = False

    def take(self) -> bool:
        """Try to lock the file; return whether it is locked by this object.

        Raises:
            OSError: The file cannot be made.
        """
        import fcntl  # not on Windows

        with self._guard:
            if self._released:
                return False
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_named(descriptor):
                    self._descriptor = descriptor
                    descriptor = -1
            except BlockingIOError:
                return False
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
            return self._descriptor is not None

    def release(self) -> None:
        """Release the lock if it is held, and let every later attempt fail."""
        with self._guard:
            self._released = True
            if self._descriptor is None:
                return
            # The work under the lock is done, so its caller gets no error of this. A file that stays is harmless: it is
            # unlocked once it is closed, and the system closes it even where it reports an error.
            # Deleted while it is locked: no other process can have locked a file of this name.
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _is_named(self, descriptor: int) -> bool:
        """Whether the file that is open is the one that others would open now."""
        try:
            named = self._path.lstat()
        except FileNotFoundError:
            return False
        mine = os.fstat(descriptor)
        return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)


@asynccontextmanager
async def held(path: Path, *, seconds: float, what: str) -> AsyncGenerator[None]:
    """Hold a lock file during the block; `what` is the name of the locked thing in the error.

    Raises:
        StoreError: Another holder keeps it for longer than these seconds, or it cannot be made.
    """
    lock = FileLock(path)
    try:
        pauses = (backoff(tries, first=_FIRST_PAUSE, longest=_MAX_PAUSE) for tries in count(1))
        deadline = anyio.current_time() + seconds
        while not await anyio.to_thread.run_sync(_taken, lock, what):
            left = deadline - anyio.current_time()
            if left <= 0:
                raise _busy(what, seconds)
            await anyio.sleep(min(next(pauses), left))
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lock.release)


@contextmanager
def held_in_thread(path: Path, *, seconds: float, what: str) -> Generator[None]:
    """Hold a lock file during the block, as `held` does, in a thread that may wait."""
    lock = FileLock(path)
    try:
        deadline = time.monotonic() + seconds
        while not _taken(lock, what):
            if time.monotonic() > deadline:
                raise _busy(what, seconds)
            time.sleep(_FIRST_PAUSE)
        yield
    finally:
        lock.release()


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
    if found.st_uid not in (os.geteuid(), 0):
        raise StoreError(
            f"the folder {str(folder)!r} belongs to another user; tokens are kept in a folder of one's own"
        )
    if found.st_mode & 0o022:
        raise StoreError(f"others can write to the folder {str(folder)!r}: chmod go-w it, or keep the tokens elsewhere")


def _taken(lock: FileLock, what: str) -> bool:
    try:
        return lock.take()
    except OSError as exc:
        raise StoreError(f"{what} cannot be locked: {exc.strerror or exc}") from None


def _busy(what: str, seconds: float) -> StoreError:
    return StoreError(f"{what} is held by another process for longer than {seconds:g} s; try again")
