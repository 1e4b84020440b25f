"""A server over standard input and output for every era, without the SDK, so that it starts fast.

One line is one message. The end of the input, SIGTERM and SIGINT end it in bounded time: running requests are
cancelled, pending output is written. `conversation.py` has the protocol and `pipes.py` the descriptors.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext

import anyio
import anyio.abc

from toolweave.protocol.codes import INVALID_REQUEST
from toolweave.protocol.jsonrpc import encode_error
from toolweave.serve._duplex.conversation import MAX_REQUESTS, Conversation
from toolweave.serve._duplex.pipes import LineReader, LineWriter, standard_streams
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._signals import stop_signals
from toolweave.serve.request import ChangeSubscriptions

_log = logging.getLogger("toolweave.serve")

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A longer line is refused unread."""
DRAIN_SECONDS = 1.0
"""Seconds that requests may still run in a shutdown; clients wait about twice as long before they kill."""
_WRITE_SECONDS = 1.0
_LAST_SECONDS = 2.0


async def serve_stdio(
    endpoint: Endpoint,
    *,
    lifespan: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    conversations: ChangeSubscriptions | None = None,
    closing: Callable[[], None] = lambda: None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_requests: int = MAX_REQUESTS,
    owns_process: bool = False,
) -> None:
    """Serve one client over standard input and output, until it ends the conversation or a signal does.

    Args:
        endpoint: Answers the requests.
        lifespan: Entered while serving; its prints go to standard error.
        conversations: Notified of a legacy conversation.
        closing: Called when the shutdown begins, so that change streams can end gracefully.
        max_message_bytes: A longer line is refused.
        max_requests: Maximum concurrent requests.
        owns_process: The process does nothing else: it exits even if a blocked thread does not end.

    Raises:
        RuntimeError: A server of this process serves them already.
        OSError: The process has no standard input or output.
    """
    with standard_streams() as (source, sink), _exit_timer(owns_process) as start_clock:
        reader = LineReader(source, max_bytes=max_message_bytes)
        writer = LineWriter(sink)
        stopping = _StdioShutdown()
        try:
            # a signal during the start of the lifespan cancels it, and closes the resources it has opened
            with stop_signals(stopping.stop), stopping.current:
                conversation = Conversation(endpoint, writer, conversations=conversations, max_requests=max_requests)
                async with lifespan(), anyio.create_task_group() as tasks, conversation:
                    try:
                        await _converse(reader, writer, conversation, tasks, closing, stopping)
                    finally:
                        start_clock()
                        tasks.cancel_scope.cancel()
        finally:
            # For the answers that were queued last. Bounded, because the client may not read them.
            with anyio.move_on_after(_WRITE_SECONDS, shield=True):
                await writer.drained()
            writer.close()


async def _converse(
    reader: LineReader,
    writer: LineWriter,
    conversation: Conversation,
    tasks: anyio.abc.TaskGroup,
    closing: Callable[[], None],
    stopping: _StdioShutdown,
) -> None:
    """Handle lines until the input ends, a signal comes or the output is closed; then let requests finish."""

    async def stop_when_unread() -> None:
        await writer.closed.wait()
        stopping.stop()

    # A client that closed its end reads no answer any more, and may leave the input open without ever writing to it.
    tasks.start_soon(stop_when_unread)
    with anyio.CancelScope() as stopping.current:
        await _read(reader, writer, conversation)
    closing()
    if not writer.closed.is_set():
        # which a second signal cuts short
        with anyio.move_on_after(DRAIN_SECONDS) as stopping.current:
            await conversation.drain()


async def _read(reader: LineReader, writer: LineWriter, conversation: Conversation) -> None:
    async with aclosing(reader.lines()) as lines:
        async for line in lines:
            if line is None:
                refusal = f"Invalid request: the message is longer than {reader.max_bytes} bytes"
                writer.write(encode_error(None, INVALID_REQUEST, refusal))
            else:
                await conversation.take(line)


class _StdioShutdown:
    """The cancel scope, `current`, that a signal cancels."""

    def __init__(self) -> None:
        self.current = anyio.CancelScope()

    def stop(self) -> None:
        """Cancel the current scope."""
        self.current.cancel()


@contextmanager
def _exit_timer(owns_process: bool) -> Generator[Callable[[], None], None, None]:
    """Yield a function that starts a timer; if it expires before the block ends, the process exits."""
    # A thread, because the event loop may be what is blocked.
    clock = threading.Timer(_LAST_SECONDS, _exit)
    clock.daemon = True

    def start() -> None:
        if owns_process and clock.ident is None:
            clock.start()

    try:
        yield start
    finally:
        clock.cancel()


def _exit() -> None:
    _log.error("a function that was called does not let go of its thread; the process exits without it")
    # `os._exit` flushes nothing, and the line above says why the process is gone.
    logging.shutdown()
    os._exit(1)
