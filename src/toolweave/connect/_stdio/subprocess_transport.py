"""A subprocess whose standard streams are pipes of this process, the same on every event loop.

`loop.subprocess_exec` of uvloop leaves a second copy of each pipe open in the process, so that the end of its output
arrives only when the process exits. This transport starts it with `subprocess.Popen`, which closes everything but the
three pipes, and connects these to the loop. It does not interpret their data.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import IO

from toolweave.connect._open_files import require_room_for_process

_KILLED_SECONDS = 1.0
_READ_BYTES = 64 * 1024
"""The most bytes of one read; a pipe of Linux holds no more.

asyncio's own pipes read into 256 KiB. For that the C library maps memory, and gives it back, with each message, which
costs a third of a call.
"""


async def start_process(
    protocol: asyncio.SubprocessProtocol, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None
) -> None:
    """Start a process in a new session, and connect it to a protocol, as `loop.subprocess_exec` does.

    Not to be cancelled: a process that has started would be lost. POSIX only.

    Raises:
        OSError: The program cannot be started, or would take the last file descriptors.
    """
    require_room_for_process()
    # it returns when the program has replaced the fork, a fraction of a millisecond later, as on every event loop
    process = subprocess.Popen(  # noqa: ASYNC220
        list(argv),
        bufsize=0,
        cwd=cwd,
        env=dict(env),
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    transport = PipedProcess(asyncio.get_running_loop(), process, protocol)
    try:
        await transport.connect()
    except BaseException:
        transport.close()
        raise


class PipedProcess(asyncio.SubprocessTransport):
    """The transport of a process that `subprocess.Popen` started with three unbuffered pipes.

    Args:
        loop: The event loop that runs.
        process: The process.
        protocol: Gets its output and its end.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], protocol: asyncio.SubprocessProtocol
    ) -> None:
        super().__init__({"subprocess": process})
        self._loop = loop
        self._process = process
        self._protocol = protocol
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._pidfd = -1
        self._owner_pid = os.getpid()

    async def connect(self) -> None:
        """Connect the pipes, and watch for the exit."""
        for fd, stream in ((1, self._process.stdout), (2, self._process.stderr)):
            if stream is not None:
                self._pipes[fd] = OutputPipe(self._loop, stream, self._protocol, fd)
        self._pipes[0], _ = await self._loop.connect_write_pipe(
            partial(_InputPipe, self._protocol), self._process.stdin
        )
        self._protocol.connection_made(self)
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # not Linux, or an older kernel
            Thread(target=self._wait, name=f"wait for process {self._process.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._exited)

    def get_pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def get_returncode(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        return self._process.returncode

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        """Return the transport of standard input (0), output (1) or error (2)."""
        return self._pipes.get(fd)

    def is_closing(self) -> bool:
        """Whether all pipes are closed or closing."""
        return all(pipe.is_closing() for pipe in self._pipes.values())

    def close(self) -> None:
        """Close the pipes, and kill the process if it still runs; does nothing in a forked process."""
        if self._owner_pid != os.getpid():
            return
        for pipe in self._pipes.values():
            pipe.close()
        for fd, stream in enumerate((self._process.stdin, self._process.stdout, self._process.stderr)):
            if fd not in self._pipes and stream is not None:
                stream.close()
        if self._process.poll() is None:
            self._process.kill()
            # it ends at once, unless the kernel holds it
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILLED_SECONDS)
        self._forget_pidfd()

    def _exited(self) -> None:
        """Collect the process, which has exited, and notify the protocol."""
        self._forget_pidfd()
        self._process.poll()
        self._protocol.process_exited()

    def _forget_pidfd(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _wait(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._exited)


class OutputPipe(asyncio.ReadTransport):
    """The transport of one output pipe, which passes its data to a subprocess protocol.

    Args:
        loop: The event loop that runs.
        stream: The end of the pipe that is read; the transport owns it.
        protocol: Gets the data, and the end once.
        fd: The number that the pipe has for the protocol: 1 or 2.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stream: IO[bytes], protocol: asyncio.SubprocessProtocol, fd: int
    ) -> None:
        super().__init__()
        self._loop = loop
        self._stream = stream
        self._source = stream.fileno()
        self._received = partial(protocol.pipe_data_received, fd)
        self._lost = partial(protocol.pipe_connection_lost, fd)
        self._reads = True
        os.set_blocking(self._source, False)
        loop.add_reader(self._source, self._readable)

    def is_reading(self) -> bool:
        """Return whether data are passed on as they arrive."""
        return self._reads and not self._stream.closed

    def pause_reading(self) -> None:
        """Leave the data in the pipe from now on."""
        if self.is_reading():
            self._reads = False
            self._loop.remove_reader(self._source)

    def resume_reading(self) -> None:
        """Read again."""
        if not self._reads and not self._stream.closed:
            self._reads = True
            self._loop.add_reader(self._source, self._readable)

    def is_closing(self) -> bool:
        """Return whether the pipe is closed."""
        return self._stream.closed

    def close(self) -> None:
        """Close the pipe; the protocol learns of its end in the next turn of the event loop."""
        self._end(None)

    def _readable(self) -> None:
        try:
            data = os.read(self._source, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self._end(exc)
            return
        if data:
            self._received(data)
        else:
            self._end(None)

    def _end(self, exc: Exception | None) -> None:
        if self._stream.closed:
            return
        self._loop.remove_reader(self._source)
        self._stream.close()
        self._loop.call_soon(self._lost, exc)


class _InputPipe(asyncio.BaseProtocol):
    """Passes the flow control of standard input to a subprocess protocol."""

    def __init__(self, protocol: asyncio.SubprocessProtocol) -> None:
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing
        self.connection_lost = partial(protocol.pipe_connection_lost, 0)
