"""Exclusive use of this process's standard input and output as a duplex of lines.

Nothing printed can get between two messages: meanwhile `print` goes to standard error and `input` reads nothing.
Independent of JSON and MCP.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager, suppress

import anyio
import anyio.lowlevel
import anyio.to_thread

_log = logging.getLogger("toolweave.serve")
_CLIENT_IS_GONE = (BrokenPipeError, ConnectionResetError)
_READ_BYTES = 256 * 1024
_HIGH_WATER = 1024 * 1024
_taken = threading.Lock()


@contextmanager
def standard_streams() -> Generator[tuple[int, int], None, None]:
    """Claim standard input and output for the block; yields private duplicates of their descriptors.

    Raises:
        RuntimeError: Another server of this process has them.
        OSError: The process has no such pipes.
    """
    # Not waited for: the other server may run as long as the process.
    if not _taken.acquire(blocking=False):
        raise RuntimeError("a server of this process has standard input and output already")
    try:
        with _moved(0, os.open(os.devnull, os.O_RDONLY)) as source, _moved(1, os.dup(2)) as sink:
            try:
                yield source, sink
            finally:
                with suppress(OSError, ValueError):
                    # printed text belongs to standard error, not after the last message
                    sys.stdout.flush()
    finally:
        _taken.release()


@contextmanager
def _moved(fd: int, other: int) -> Generator[int, None, None]:
    """Replace a descriptor by `other`; yields a private, not inherited duplicate above the standard ones."""
    try:
        private = _duplicate(fd)
        os.dup2(other, fd)
    finally:
        os.close(other)
    blocking = sys.platform == "win32" or os.get_blocking(private)
    try:
        yield private
    finally:
        if sys.platform != "win32":
            # event loops turn it off for every process that shares the pipe
            os.set_blocking(private, blocking)
        os.dup2(private, fd)
        os.close(private)


def _duplicate(fd: int) -> int:
    if sys.platform == "win32":
        return os.dup(fd)
    import fcntl  # not on Windows

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


class LineReader:
    """Reads lines; an async iterator that ends where the input ends.

    Args:
        fd: A pipe, a socket, a terminal or a file.
        max_bytes: Maximum length of a line; a longer one is yielded as None.
    """

    def __init__(self, fd: int, *, max_bytes: int) -> None:
        self._fd = fd
        self.max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._polls = False
        # One read at a time: the future of the read that is awaited. While none is, input stays in the pipe, so that a
        # client that sends faster than it is served waits in its own write.
        self._arrived: asyncio.Future[bytes] | None = None

    async def lines(self) -> AsyncGenerator[bytes | None, None]:
        """Yield the lines without their ends; blank ones are passed over."""
        # `rest` has the pieces of a line without its end, `size` its length, which still grows after the pieces of a
        # line that is too long were dropped: so at most `max_bytes` and one read are held.
        rest: list[bytes] = []
        size = 0
        try:
            while data := await self._read():
                *lines, tail = data.split(b"\n")
                for line in lines:
                    whole = b"".join((*rest, line)) if rest else line
                    size += len(line)
                    rest.clear()
                    if size > self.max_bytes:
                        yield None
                    elif whole and not whole.isspace():
                        yield whole
                    size = 0
                size += len(tail)
                if size > self.max_bytes:
                    rest.clear()  # nothing of it is kept
                elif tail:
                    rest.append(tail)
            if size > self.max_bytes:
                yield None
            elif last := b"".join(rest).strip():
                yield last  # a line end is not needed
        finally:
            self.close()

    def close(self) -> None:
        """Read no more."""
        if self._polls:
            self._loop.remove_reader(self._fd)
            self._polls = False

    async def _read(self) -> bytes:
        """Return the next bytes, or none at the end."""
        if not self._polls:
            try:
                self._loop.add_reader(self._fd, self._take)
            except NotImplementedError:  # Windows
                return await anyio.to_thread.run_sync(self._read_now, abandon_on_cancel=True)
            except OSError:  # a file, which never lets one wait
                await anyio.lowlevel.checkpoint()
                return self._read_now()
            self._polls = True
        self._arrived = self._loop.create_future()
        return await self._arrived

    def _take(self) -> None:
        # Earlier input is not processed yet: this is left in the pipe, and the descriptor is not watched meanwhile, as
        # the event loop would call this again and again.
        if self._arrived is None or self._arrived.done():
            self.close()
            return
        try:
            self._arrived.set_result(os.read(self._fd, _READ_BYTES))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as exc:
            self._arrived.set_result(_end_of_input(exc))

    def _read_now(self) -> bytes:
        try:
            return os.read(self._fd, _READ_BYTES)
        except OSError as exc:
            return _end_of_input(exc)


def _end_of_input(error: OSError) -> bytes:
    """Return the end of an input that cannot be read, such as that of a terminal that was closed."""
    if not isinstance(error, _CLIENT_IS_GONE):
        _log.error("standard input cannot be read, so the server ends: %s", error)
    return b""


class LineWriter:
    """Writes lines, those of one turn of the event loop in one write.

    Attributes:
        closed: Set when the reader is gone; later writes are dropped.
    """

    def __init__(self, fd: int) -> None:
        self.closed = anyio.Event()
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lines: list[bytes] = []
        self._rest = memoryview(b"")
        self._size = 0  # of the unwritten bytes
        self._scheduled = False
        self._full = False
        self._drained: anyio.Event | None = None  # while somebody waits
        self._watched = False
        mode = os.fstat(fd).st_mode
        if sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            os.set_blocking(fd, False)
        if sys.platform != "win32" and stat.S_ISFIFO(mode):
            # a writing end becomes readable only when its reader is gone
            self._loop.add_reader(fd, self._end)
            self._watched = True

    def write(self, message: bytes) -> None:
        """Write one line: the first of a turn of the event loop at once, further ones together."""
        if self.closed.is_set():
            return
        # Most responses are alone in their turn of the event loop and should not wait for it. Those behind the first
        # one share a write, which costs as much as one line.
        self._lines.append(message)
        self._size += len(message) + 1
        if not self._scheduled and not self._full:
            self._flush()
            self._scheduled = True
            self._loop.call_soon(self._flush)

    async def room(self) -> None:
        """Wait while the buffer is over its limit; returns at once when the reader is gone."""
        while self._size > _HIGH_WATER:
            await self._drain()

    async def drained(self) -> None:
        """Wait until everything is written or the reader is gone; the caller bounds the wait."""
        while self._size:
            await self._drain()

    def close(self) -> None:
        """Discard the unwritten lines."""
        self._end()

    def _flush(self) -> None:
        self._scheduled = False
        # A pipe takes what fits. The rest stays in `_rest`, in front of `_lines`, and the event loop calls this again
        # when the pipe has room, so lines are never mixed or torn.
        full = False
        try:
            while self._size:
                if not self._rest:
                    self._rest = memoryview(b"\n".join((*self._lines, b"")))
                    self._lines.clear()
                written = os.write(self._fd, self._rest)
                self._rest = self._rest[written:]
                self._size -= written
        except (BlockingIOError, InterruptedError):
            full = True
        except OSError as exc:
            if not isinstance(exc, _CLIENT_IS_GONE):
                _log.error("standard output cannot be written, so the server ends: %s", exc)
            self._end()
            return
        if full != self._full:
            self._full = full
            if full:
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)
        if self._size <= _HIGH_WATER // 2:
            self._wake()

    async def _drain(self) -> None:
        if self._drained is None:
            self._drained = anyio.Event()
        await self._drained.wait()

    def _wake(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _end(self) -> None:
        if self._watched:
            self._loop.remove_reader(self._fd)
        if self._full:
            self._loop.remove_writer(self._fd)
        self._watched = self._full = False
        self._size = 0
        self._lines.clear()
        self.closed.set()
        self._wake()
