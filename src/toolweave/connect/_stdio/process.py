"""A server process as a `Channel`: newline-delimited JSON on its pipes, its standard error kept.

Owns the process group from spawn to the last grandchild. Knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

import anyio
import anyio.to_thread

from toolweave.connect._channel import MAX_MESSAGE_BYTES, NotSent
from toolweave.connect._stdio.process_tree import (
    Escapee,
    escapee_lives,
    escapees_of,
    group_lives,
    signal_escapees,
    signal_group,
)
from toolweave.connect._stdio.reaper import reaper
from toolweave.connect._stdio.subprocess_transport import start_process
from toolweave.protocol.brackets import depth_change
from toolweave.protocol.jsonrpc import VERSION_MEMBER
from toolweave.protocol.lenient_messages import is_json

_STDERR_BYTES = 16 * 1024
_HIGH_WATER = 8 * 1024 * 1024
_EOF_SHARE = 0.4
_TERM_SHARE = 0.4
_KILL_SHARE = 0.2
_POLL_SECONDS = 0.005
_SLOWEST_POLL_SECONDS = 0.1
_SPACE = b" \t\r\n\x00"
_COLOURS = re.compile(rb"\A(?:\x1b\[[0-9;]*m)+|(?:\x1b\[[0-9;]*m)+\Z")
_LENGTH = re.compile(rb"(?i)content-length: *([0-9]{1,9})")
_GONE = "the server process is gone"
_CONTROLS = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b.|[\x00-\x08\x0b-\x1f\x7f-\x9f]"


class ServerProcess(asyncio.SubprocessProtocol):
    """A running server process as a `Channel`, with its output and its exit code.

    Attributes:
        junk_lines: The number of lines on standard output that were not JSON-RPC messages.
        last_junk: The last such line, at most 200 characters.
        pieces: The number of pieces of standard output that have arrived.
        stop_seconds: The bound of `stop`; most of it is the server's, to exit by itself.
    """

    def __init__(self, *, stop_seconds: float = 5.0, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.stop_seconds = stop_seconds
        self.pieces: int = 0
        self.junk_lines: int = 0
        self.last_junk: str = ""
        self._max = max_message_bytes
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._pieces: list[bytes] = []  # of a line that has not ended
        self._pieces_bytes = 0
        self._begun = bytearray()  # of a message over several lines
        self._depth = 0
        self._frame = 0  # bytes of the message to come, if its server announces them
        self._messages: deque[bytes] = deque()
        self._queued_bytes = 0
        self._sink: Callable[[bytes], None] | None = None
        self._arrived = anyio.Event()
        self._eof: str | None = None
        self._stderr = bytearray()
        self._stderr_position = 0
        self._disregarded = (0, 0)
        self._stderr_open = True
        self._exit_code: int | None = None
        self._owner_pid = os.getpid()
        self._exited = anyio.Event()
        self._signalled = False
        self._gone = False
        self._full = False
        self._waiting: dict[asyncio.Future[None], bytes] = {}  # messages for a full pipe, in their order
        self._paused_reading = False

    # asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport (asyncio calls this once)."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipes_made(self) -> None:
        """Take hold of the pipes, which asyncio has connected by now."""
        assert self._transport is not None
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        # a message waits with its caller, where it provably was not sent, not in a buffer
        # uvloop's, of a process that has ended, which the sender learns anyway
        with suppress(RuntimeError):
            self._stdin.set_write_buffer_limits(high=0)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Split standard output into messages; keep the tail of standard error."""
        if fd == 2:
            self._stderr += data
            self._stderr_position += len(data)
            # Cut at twice the bound, so that a chatty server costs one move of 16 KiB for every 16 KiB, not one for
            # every line.
            if len(self._stderr) > 2 * _STDERR_BYTES:
                del self._stderr[:-_STDERR_BYTES]
            return
        self.pieces += 1
        # Pieces of a long line are kept as they came and joined once at its end: appending each to one buffer would
        # copy a message of 10 MB some hundred times.
        *lines, rest = data.split(b"\n") if b"\n" in data else (data,)
        for line in lines:
            if self._pieces:
                line = self._taken(line)
            if len(line) > self._max:
                self._end_oversized()
                return
            if len(line) > self._frame > 0:
                line = self._framed(line)
            self._line(line)
        if rest:
            self._pieces.append(rest)
            self._pieces_bytes += len(rest)
            if self._pieces_bytes > self._max:
                self._end_oversized()
            elif self._pieces_bytes >= self._frame > 0:
                self._end_frame()

    def _end_frame(self) -> None:
        """End a message that is as long as was announced: no newline follows it."""
        text = self._taken()
        more = self._framed(text)
        if more is text:
            self._pieces.append(text)
            self._pieces_bytes = len(text)
        elif more:
            self.pipe_data_received(1, more)

    def _framed(self, text: bytes) -> bytes:
        """Handle the message at the head of a text if it has the announced length; return the rest.

        A server may also print the headers of a request that it made: then the length is not that of a message.
        """
        message = text[: self._frame]
        more = text[self._frame :]
        self._frame = 0
        if VERSION_MEMBER not in message:
            return text
        if not is_json(message):
            return text
        self._line(message)
        return more

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note which pipe ended; the end of standard output is the end of the conversation."""
        if fd == 1:
            rest = self._taken()
            # stdio transport: messages are delimited by newlines. Some servers exit right after an answer without one.
            # a part is not a message; a line end is not needed
            if rest.rstrip().endswith((b"}", b"]")):
                self._line(rest)
            self._end("it closed its standard output")
        elif fd == 2:
            self._stderr_open = False
        elif self._gone:
            self._full = False
            self._write_waiting()
        else:  # it reads no more, though it lives: senders wait for the end, which is soon
            # The broken pipe is seen before the output that is still in the other one, which may hold the answer.
            asyncio.get_running_loop().call_later(0.2, self._end, "it closed its standard input")

    def process_exited(self) -> None:
        """Note the exit; bytes that are still in the pipes are read first."""
        self._exited.set()
        self._gone = True
        self._write_waiting()
        if self._transport is not None:
            asyncio.get_running_loop().call_later(0.2, self._end, "it exited")

    def pause_writing(self) -> None:
        """Stop senders until the pipe has drained."""
        self._full = True

    def resume_writing(self) -> None:
        """Let senders continue."""
        self._full = False
        self._write_waiting()

    # Channel

    async def send(self, message: bytes) -> None:
        """Write one message; waits its turn while the pipe is full.

        Raises:
            NotSent: The process is gone.
        """
        if not self.congested:
            self.write(message)
            return
        queued = self.queue(message)
        try:
            await queued
        except asyncio.CancelledError:
            self.withdraw(queued)
            raise

    def queue(self, message: bytes) -> asyncio.Future[None]:
        """Write one message after those that wait for the full pipe; return a future that is done once it is written.

        The future raises `NotSent` if the process is gone before. Who stops waiting calls `withdraw`.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[written] = message
        return written

    def withdraw(self, queued: asyncio.Future[None]) -> bool:
        """Take back a message that waits; return False if it was written before."""
        return self._waiting.pop(queued, None) is not None

    def write(self, messages: bytes) -> None:
        """Write one message, or several with line ends between, without waiting: ask `congested` first.

        Raises:
            NotSent: The process is gone.
        """
        stdin = self._stdin
        if stdin is None or self._gone or stdin.is_closing():
            raise NotSent(_GONE)
        stdin.write(messages + b"\n")

    @property
    def congested(self) -> bool:
        """Whether the pipe is full, or other messages wait for it, which no later one overtakes."""
        return bool(self._waiting) or self._clogged()

    def deliver_to(self, sink: Callable[[bytes], None]) -> None:
        """Pass each message to `sink` as it arrives, instead of queueing it for `receive`."""
        self._sink = sink
        while self._messages:
            sink(self._messages.popleft())
        self._queued_bytes = 0
        self._resume_reading()

    async def receive(self) -> bytes:
        """Return the next line that is not blank.

        Raises:
            EOFError: The process ended the conversation.
        """
        while not self._messages:
            if self._eof is not None:
                raise EOFError(self._eof)
            self._arrived = anyio.Event()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._queued_bytes -= len(message)
        # Half the mark, so that reading is not switched for each message at its edge.
        if self._queued_bytes < _HIGH_WATER // 2:
            self._resume_reading()
        return message

    # descriptions of the process

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        if self._transport is not None:
            return self._transport.get_pid()
        return 0

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        if self._transport is not None:
            return self._transport.get_returncode()
        return None

    def stderr_tail(self, lines: int = 20) -> str:
        """Return the last lines of the process's standard error without control characters; untrusted text."""
        return _last_lines(bytes(self._stderr[-_STDERR_BYTES:]), lines)

    def relevant_stderr(self, lines: int = 20) -> str:
        """Return the last lines of standard error, without the disregarded ones."""
        begin, end = (at - self._stderr_position + len(self._stderr) for at in self._disregarded)
        kept = self._stderr[: max(0, begin)] + self._stderr[max(0, end) :]
        return _last_lines(bytes(kept[-_STDERR_BYTES:]), lines)

    @property
    def stderr_position(self) -> int:
        """The number of bytes the process has written to standard error."""
        return self._stderr_position

    def disregard_stderr(self, since: int) -> None:
        """Exclude standard error since this position from `relevant_stderr`."""
        # Positions count from the start of the process, so they stay right when the buffer is cut at its front.
        self._disregarded = (since, self._stderr_position)

    def count_junk(self, line: bytes) -> None:
        """Count a line that was not a JSON-RPC message, and keep it for error messages."""
        self.junk_lines += 1
        self.last_junk = line[:200].decode("utf-8", "replace")

    @property
    def failure(self) -> str | None:
        """The reason why the conversation ended, or None while it is open."""
        return self._eof

    async def last_words(self, seconds: float = 0.5) -> tuple[int | None, str]:
        """Return the exit code, None while it runs, and the tail of standard error.

        After the end of the conversation it waits up to `seconds` for both to be complete.
        """
        is_over = self._eof is not None or self._exited.is_set()
        if is_over and self._exit_code is None:
            with anyio.move_on_after(seconds, shield=True):
                await self._exited.wait()
                while self._stderr_open:
                    await anyio.sleep(_POLL_SECONDS)
            if not self._signalled:  # else the code is that of our signal
                self._exit_code = self.exit_code
        return self._exit_code, self.relevant_stderr()

    async def stop(self) -> None:
        """End the process and its group within `stop_seconds`: close stdin, wait, TERM, wait, KILL.

        Grandchildren are ended as well, also when the process itself has exited, and so are those that
        left the group while the process lives to be known as their ancestor. In a process that was forked from the
        one that started it, nothing happens: the server is the parent's.
        """
        if self._owner_pid != os.getpid():
            return
        group = self.pid
        # Looked for before anything is closed: when the server exits, init adopts its children, and nothing shows any
        # more whose they were.
        strays = () if self._exited.is_set() else escapees_of(group)
        self._gone = True
        if self._stdin is not None:
            self._stdin.close()
        with anyio.move_on_after(self.stop_seconds * _EOF_SHARE):
            await self._exited.wait()
        # A server that ends in time is asked for no more, unless it left children behind in its group: `npx` and shells
        # do.
        if not self._exited.is_set() or _any_lives(group, strays):
            await self._end_all(group, strays)
        if self._transport is not None:
            self._transport.close()
        # Only after the group is gone: until then a crash of ours must still end it. In a thread, since the last
        # release waits for the watchdog.
        await anyio.to_thread.run_sync(reaper.release, group)

    async def _end_all(self, group: int, strays: Sequence[Escapee]) -> None:
        self._signalled = not self._exited.is_set()
        for number, share in ((signal.SIGTERM, _TERM_SHARE), (signal.SIGKILL, _KILL_SHARE)):
            signal_group(group, number)
            signal_escapees(strays, number)
            with anyio.move_on_after(self.stop_seconds * share):
                await self._exited.wait()
                pause = _POLL_SECONDS
                while _any_lives(group, strays):
                    await anyio.sleep(pause)
                    # Nothing announces the end of a grandchild, so it is polled: quickly at first, since most end at
                    # once.
                    pause = min(2 * pause, _SLOWEST_POLL_SECONDS)
                return

    def _write_waiting(self) -> None:
        """Write messages that wait until the pipe is full again; refuse them when the process is gone.

        As many share a write as the pipe takes whole, because of a message in the transport's buffer nobody knows
        whether the server has seen it.
        """
        while self._waiting and not self._gone:
            if self._clogged():
                return
            group = self._next_group()
            self.write(b"\n".join(group.values()))
            for written in group:
                del self._waiting[written]
                if not written.done():
                    written.set_result(None)
        waiting = self._waiting
        self._waiting = {}
        for written in waiting:
            if not written.done():
                written.set_exception(NotSent(_GONE))

    def _next_group(self) -> dict[asyncio.Future[None], bytes]:
        """Return the first message that waits, and those after it that a writable pipe takes in the same write."""
        group: dict[asyncio.Future[None], bytes] = {}
        room = select.PIPE_BUF if self._takes_more() else 0
        for written, message in self._waiting.items():
            room -= len(message) + 1
            if group and room < 0:
                break
            group[written] = message
        return group

    def _takes_more(self) -> bool:
        """Whether the pipe takes `PIPE_BUF` bytes at once, which POSIX promises of one that can be written."""
        assert self._transport is not None
        poll = select.poll()
        poll.register(self._transport.get_extra_info("subprocess").stdin, select.POLLOUT)
        return bool(poll.poll(0))

    def _clogged(self) -> bool:
        if self._full:
            return True
        stdin = self._stdin
        return stdin is not None and stdin.is_closing()

    def _line(self, line: bytes) -> None:
        line = line.removeprefix(BOM_UTF8).strip(_SPACE)
        if line.startswith(b"\x1b"):
            line = _COLOURS.sub(b"", line)
        if not line or self._eof is not None:
            return
        # The transport forbids newlines in a message, yet servers pretty-print; a line that opens an object and ends in
        # an opening bracket or a comma can only be the start of one.
        opens_message = line.startswith(b"{") and line.endswith((b"{", b"[", b","))
        if opens_message or self._begun:
            line = self._joined(line)
            if not line:
                return
        if not line.startswith((b"{", b"[")):
            self._foreign_line(line)
            return
        # A newline behind the message ended it already.
        self._frame = 0
        if self._sink is not None:
            self._sink(line)
            return
        self._messages.append(line)
        self._arrived.set()
        self._queued_bytes += len(line)
        # Backpressure: a full pipe stops the server. Only on this path, since a sink takes each message at once.
        if self._queued_bytes > _HIGH_WATER and not self._paused_reading:
            self._paused_reading = True
            self._stdout().pause_reading()

    def _foreign_line(self, line: bytes) -> None:
        """Handle a line that holds no message: junk, unless an answer stands behind it.

        Logging without a line end and then an answer are one line, and losing it would look like a server that never
        answers.
        """
        header = _LENGTH.fullmatch(line)
        if self._sink is not None and line.endswith(b"}") and VERSION_MEMBER in line:
            self._sink(line)  # an answer behind the head of a log record, perhaps
        elif header is not None:
            self._frame = int(header[1])
        else:
            self.count_junk(line)

    def _joined(self, line: bytes) -> bytes:
        """Join a message that is printed over several lines; return it with its last line, until then b"".

        A whole message among the lines proves that the earlier ones are not a message: it is returned, they are junk.
        """
        is_whole = line.startswith(b"{") and line.endswith(b"}")
        if is_whole and self._begun and VERSION_MEMBER in line:
            self.count_junk(bytes(self._begun))
            self._begun = bytearray()
            self._depth = 0
            return line
        self._begun += line + b" "
        self._depth += depth_change(line)
        if len(self._begun) > self._max:
            self._end_oversized()
        if self._depth > 0 and self._eof is None:
            return b""
        whole = bytes(self._begun).strip()
        self._begun = bytearray()
        self._depth = 0
        if self._eof is not None:
            return b""
        return whole

    def _taken(self, last: bytes = b"") -> bytes:
        """Return the line of the pieces that have arrived, joined once, with its last one."""
        line = b"".join((*self._pieces, last))
        self._pieces.clear()
        self._pieces_bytes = 0
        return line

    def _end_oversized(self) -> None:
        self._taken()
        self._signalled = True  # how it exits now says nothing about it
        self._end(f"it sent a message of more than {self._max} bytes; ask for less, or raise 'max_message_bytes'")

    def _end(self, reason: str) -> None:
        if self._eof is None:
            self._eof = reason
        self._gone = True
        self._arrived.set()
        self._write_waiting()

    def _resume_reading(self) -> None:
        if self._paused_reading:
            self._paused_reading = False
            self._stdout().resume_reading()

    def _stdout(self) -> asyncio.ReadTransport:
        assert self._transport is not None
        return cast("asyncio.ReadTransport", self._transport.get_pipe_transport(1))


def _any_lives(group: int, strays: Sequence[Escapee]) -> bool:
    return group_lives(group) or any(map(escapee_lives, strays))


def _last_lines(text: bytes, lines: int) -> str:
    return "\n".join(re.sub(_CONTROLS, "", text.decode("utf-8", "replace")).split("\n")[-lines - 1 :]).strip()


async def _start(process: ServerProcess, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> None:
    if os.name == "posix":
        await start_process(process, argv, env=env, cwd=cwd)
        return
    loop = asyncio.get_running_loop()
    await loop.subprocess_exec(lambda: process, *argv, env=dict(env), cwd=cwd)


@asynccontextmanager
async def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    stop_seconds: float,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> AsyncGenerator[ServerProcess, None]:
    """Start a server process in a new process group, and end the whole group on leaving.

    No shell is involved. `stop_seconds` bounds the end; most of it is the server's to exit by itself.

    A message larger than `max_message_bytes` ends the conversation.

    Raises:
        OSError: The program cannot be started.
    """
    process = ServerProcess(stop_seconds=stop_seconds, max_message_bytes=max_message_bytes)
    with anyio.CancelScope(shield=True):  # a cancel in mid-spawn would lose a live process
        await anyio.to_thread.run_sync(reaper.prepare)
        try:
            await _start(process, argv, env=env, cwd=cwd)
        except BaseException:
            await anyio.to_thread.run_sync(reaper.abandon)
            raise
    process.pipes_made()
    try:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(reaper.watch, process.pid)
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await process.stop()
