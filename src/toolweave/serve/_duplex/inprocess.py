"""A server for clients of the same process: a conversation over a pair of queues, no socket and no process.

The interface that `connect_mcp(server)` expects: an object whose `async with` yields a channel of whole messages.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Generic, TypeVar

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from toolweave.serve._duplex.conversation import Conversation
from toolweave.serve.request import ChangeSubscriptions, Responder

T = TypeVar("T")

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class ClientEnd:
    """The client's end of a conversation: sends and receives whole messages as JSON text."""

    def __init__(self, outgoing: MemoryObjectSendStream[bytes], incoming: MemoryObjectReceiveStream[bytes]) -> None:
        self._outgoing = outgoing
        self._incoming = incoming

    async def send(self, message: bytes) -> None:
        """Send one message.

        Raises:
            BrokenPipeError: The server is gone.
        """
        try:
            await self._outgoing.send(message)
        except _GONE:
            raise BrokenPipeError("the server in this process is gone") from None

    async def receive(self) -> bytes:
        """Return the server's next message.

        Raises:
            EOFError: The server is gone.
        """
        try:
            return await self._incoming.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise EOFError("the server in this process is gone") from None

    def close(self) -> None:
        """Send and receive no more."""
        self._outgoing.close()
        self._incoming.close()


class Visit:
    """One client of this process in conversation with a server; also the `Outlet` to it.

    Attributes:
        client: The client's end.
        conversation: The server's side, once it is served.
        over: Whether the server has ended it.
    """

    conversation: Conversation

    def __init__(self) -> None:
        # Without a buffer, so that a client waits until its message is accepted, as at a full pipe.
        to_server, self._incoming = anyio.create_memory_object_stream[bytes](0)
        self._outgoing, to_client = anyio.create_memory_object_stream[bytes](math.inf)
        self.client = ClientEnd(to_server, to_client)
        self.over = False
        self._serving = anyio.CancelScope()

    def write(self, message: bytes) -> None:
        """Send the client one message with any content; it is dropped when the client no longer reads."""
        with suppress(*_GONE):
            self._outgoing.send_nowait(message)

    async def room(self) -> None:
        """Return at once: the client is this process itself, which may leave messages as long as it likes."""

    async def serve(
        self,
        responder: Responder,
        conversations: ChangeSubscriptions | None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer the client until one of both is gone."""
        with self._serving:
            async with Conversation(responder, self, conversations=conversations) as self.conversation:
                task_status.started()
                with suppress(anyio.ClosedResourceError):  # hung up between two messages
                    async for text in self._incoming:
                        await self.conversation.take(text)

    def hang_up(self) -> None:
        """End the conversation at once, also while requests run; the client reads the earlier messages first."""
        self.over = True
        self._outgoing.close()
        self._incoming.close()
        self.conversation.end()
        self._serving.cancel()

    def close(self) -> None:
        """Close the streams of both sides."""
        self._outgoing.close()
        self._incoming.close()
        self.client.close()


@asynccontextmanager
async def in_process(
    responder: Responder, *, conversations: ChangeSubscriptions | None = None
) -> AsyncGenerator[Visit, None]:
    """Serve one conversation for the block. Requests that still run at the end are cancelled."""
    visit = Visit()
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(visit.serve, responder, conversations)
            try:
                yield visit
            finally:
                visit.hang_up()
                visit.client.close()
    finally:
        # Once more: a client that is cancelled while it connects ends before the server's side has begun.
        visit.close()


class InProcessSessions(Generic[T]):
    """The in-process conversations of a server entered by `async with`; each task closes its own, newest first."""

    def __init__(self, open_one: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._open_one = open_one
        self._open: dict[int, list[AbstractAsyncContextManager[T]]] = {}

    async def enter(self) -> T:
        """Open a conversation for the calling task."""
        manager = self._open_one()
        channel = await manager.__aenter__()
        self._open.setdefault(anyio.get_current_task().id, []).append(manager)
        return channel

    async def leave(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Close the newest conversation of the calling task."""
        task = anyio.get_current_task().id
        manager = self._open[task].pop()
        if not self._open[task]:
            del self._open[task]
        return await manager.__aexit__(exc_type, exc, traceback)
