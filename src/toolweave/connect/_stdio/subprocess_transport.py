"""A subprocess whose standard streams are pipes of its own, the same on every event loop.

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

_KILLED_SECONDS = 1.0


async def start_process(
    protocol: asyncio.SubprocessProtocol, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None
) -> None:
    """Start a process in a session of its own, and connect it to a protocol, as `loop.subprocess_exec` does.

    Not to be cancelled: a process that has started would be lost. POSIX only.

    Raises:
        OSError: The program cannot be started.
    """
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
        super().__init__()
        self._loop = loop
        self._process = process
        self._protocol = protocol
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._pidfd = -1

    async def connect(self) -> None:
        """Connect the pipes, and watch for the exit."""
        for fd, stream in ((1, self._process.stdout), (2, self._process.stderr)):
            self._pipes[fd], _ = await self._loop.connect_read_pipe(partial(_OutputPipe, self._protocol, fd), stream)
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
        """Close the pipes, and kill the process if it still runs."""
        for pipe in self._pipes.values():
            pipe.close()
        for fd, stream in enumerate((self._process.stdin, self._process.stdout, self._process.stderr)):
            if fd not in self._pipes and stream is not None:
                stream.close()
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # it ends at once, unless the kernel holds it
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


class _OutputPipe(asyncio.Protocol):
    """Passes the data of one output pipe to a subprocess protocol."""

    def __init__(self, protocol: asyncio.SubprocessProtocol, fd: int) -> None:
        self.data_received = partial(protocol.pipe_data_received, fd)
        self.connection_lost = partial(protocol.pipe_connection_lost, fd)


class _InputPipe(asyncio.BaseProtocol):
    """Passes the flow control of standard input to a subprocess protocol."""

    def __init__(self, protocol: asyncio.SubprocessProtocol) -> None:
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing
        self.connection_lost = partial(protocol.pipe_connection_lost, 0)
