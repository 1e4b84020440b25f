"""A server for clients of the same process: a conversation over a pair of queues, no socket and no process.

What `connect_mcp(server)` needs of a server: an object whose `async with` yields a channel of whole messages. Knows no
client of ours.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from toolweave.serve.duplex.conversation import Conversation
from toolweave.serve.endpoint import Endpoint
from toolweave.serve.request import Conversations

__all__ = ["ClientEnd", "Visits", "in_process"]


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
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
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


class _Outlet:
    """Writes to a queue that the client, which is this process itself, may leave as long as it likes."""

    def __init__(self, outgoing: MemoryObjectSendStream[bytes]) -> None:
        self._outgoing = outgoing

    def write(self, message: bytes) -> None:
        try:
            self._outgoing.send_nowait(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody is there any more

    async def room(self) -> None:
        return


@asynccontextmanager
async def in_process(
    endpoint: Endpoint, *, conversations: Conversations | None = None
) -> AsyncGenerator[ClientEnd, None]:
    """Serve one conversation for the block; yields the client's end. What still runs at the end is cancelled."""
    to_server, from_client = anyio.create_memory_object_stream[bytes](0)
    to_client, from_server = anyio.create_memory_object_stream[bytes](math.inf)

    async def read() -> None:
        async for text in from_client:
            await conversation.take(text)

    with to_server, from_client, to_client, from_server:
        async with anyio.create_task_group() as tasks:
            conversation = Conversation(endpoint, _Outlet(to_client), tasks, conversations=conversations)
            tasks.start_soon(read)
            try:
                yield ClientEnd(to_server, from_server)
            finally:
                conversation.end()
                tasks.cancel_scope.cancel()


class Visits:
    """The conversations of a server that is entered by `async with`: each task leaves its own, the last one first."""

    def __init__(self, open_one: Callable[[], AbstractAsyncContextManager[ClientEnd]]) -> None:
        self._open_one = open_one
        self._open: dict[int, list[AbstractAsyncContextManager[ClientEnd]]] = {}

    async def enter(self) -> ClientEnd:
        """Begin a conversation of the task that calls."""
        manager = self._open_one()
        channel = await manager.__aenter__()
        self._open.setdefault(anyio.get_current_task().id, []).append(manager)
        return channel

    async def leave(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End the conversation that the task that calls began last."""
        task = anyio.get_current_task().id
        manager = self._open[task].pop()
        if not self._open[task]:
            del self._open[task]
        return await manager.__aexit__(exc_type, exc, traceback)
