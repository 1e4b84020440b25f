"""A server over standard input and output: our own loop for every era, without the SDK (start-up is what counts here).

One line is one message. The end of the input, SIGTERM and SIGINT end it in bounded time: what runs is cancelled, what
is due is written. Knows no method; `conversation.py` has the protocol and `pipes.py` the descriptors.
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
from toolweave.serve.duplex.conversation import MAX_REQUESTS, Conversation
from toolweave.serve.duplex.pipes import LineReader, LineWriter, standard_streams
from toolweave.serve.endpoint import Endpoint
from toolweave.serve.request import Conversations
from toolweave.serve.signals import stop_signals

__all__ = ["DRAIN_SECONDS", "MAX_MESSAGE_BYTES", "serve_stdio"]

_log = logging.getLogger("toolweave.serve")

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A longer line is refused unread."""
DRAIN_SECONDS = 1.0
"""How long requests may still run when the end has begun; clients wait about twice as long before they kill."""
_WRITE_SECONDS = 1.0
_LAST_SECONDS = 2.0


async def serve_stdio(
    endpoint: Endpoint,
    *,
    lifespan: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    conversations: Conversations | None = None,
    closing: Callable[[], None] = lambda: None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_requests: int = MAX_REQUESTS,
    owns_process: bool = False,
) -> None:
    """Serve one client over standard input and output, until it ends the conversation or a signal does.

    Args:
        endpoint: What answers.
        lifespan: What is entered while it serves; what that prints does no harm any more.
        conversations: Told of a handshake-era conversation.
        closing: Called when the end begins, so that streams of changes can end in good order.
        max_message_bytes: A longer line is refused.
        max_requests: How many requests may run at once.
        owns_process: The process does nothing else: it exits even if a function that blocks a thread does not let go.

    Raises:
        RuntimeError: A server of this process serves them already.
        OSError: The process has no standard input or output.
    """
    with standard_streams() as (source, sink), _last_resort(owns_process) as start_clock:
        reader = LineReader(source, max_bytes=max_message_bytes)
        writer = LineWriter(sink)
        stopping = _Stopping()
        try:
            # a signal that comes while the lifespan begins ends it, and what it has opened
            with stop_signals(stopping.stop), stopping.current:
                async with lifespan(), anyio.create_task_group() as tasks:
                    conversation = Conversation(
                        endpoint, writer, tasks, conversations=conversations, max_requests=max_requests
                    )
                    try:
                        await _converse(reader, writer, conversation, tasks, closing, stopping)
                    finally:
                        start_clock()
                        conversation.end()
                        tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(_WRITE_SECONDS, shield=True):
                await writer.drained()
            writer.close()


async def _converse(
    reader: LineReader,
    writer: LineWriter,
    conversation: Conversation,
    tasks: anyio.abc.TaskGroup,
    closing: Callable[[], None],
    stopping: _Stopping,
) -> None:
    """Take lines until the input ends, a signal comes or nobody reads the output; then let requests finish."""

    async def stop_when_unread() -> None:
        await writer.closed.wait()
        stopping.stop()

    tasks.start_soon(stop_when_unread)
    with anyio.CancelScope() as stopping.current:
        await _read(reader, writer, conversation)
    closing()
    if not writer.closed.is_set():
        with anyio.move_on_after(DRAIN_SECONDS) as stopping.current:  # which a second signal cuts short
            await conversation.drain()


async def _read(reader: LineReader, writer: LineWriter, conversation: Conversation) -> None:
    async with aclosing(reader.lines()) as lines:
        async for line in lines:
            if line is None:
                refusal = f"Invalid request: the message is longer than {reader.max_bytes} bytes"
                writer.write(encode_error(None, INVALID_REQUEST, refusal))
            else:
                await conversation.take(line)


class _Stopping:
    """What a signal ends: the block that `current` stands around."""

    def __init__(self) -> None:
        self.current = anyio.CancelScope()

    def stop(self) -> None:
        """End what runs now."""
        self.current.cancel()


@contextmanager
def _last_resort(owns_process: bool) -> Generator[Callable[[], None], None, None]:
    """Yield what starts the clock after which the process exits if the block has not ended."""
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
    logging.shutdown()
    os._exit(1)
