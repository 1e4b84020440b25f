"""Server objects and streams of the official SDK as a `Channel`: its parsed messages become JSON texts.

The only module that imports `mcp`, which the extra `sdk` installs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from toolweave.connect._channel import Channel, NotSent


class StreamsChannel:
    """The SDK's pair of streams as a `Channel`.

    Args:
        read: Yields what the server sends: a `SessionMessage`, or an exception for what the SDK could not read.
        write: Takes the messages for the server.
    """

    def __init__(self, read: Any, write: Any) -> None:
        self._read = read
        self._write = write

    async def send(self, message: bytes) -> None:
        """Send one message.

        Raises:
            NotSent: The server is gone.
        """
        item = SessionMessage(jsonrpc_message_adapter.validate_json(message, by_name=False))
        try:
            await self._write.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise NotSent("the other end of the streams is closed") from None

    async def receive(self) -> bytes:
        """Return the next message.

        Raises:
            EOFError: The server ended the conversation.
        """
        while True:
            try:
                item = await self._read.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                raise EOFError("the other end of the streams is closed") from None
            if isinstance(item, SessionMessage):
                return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            # Anything else is an exception: the SDK skipped a text that it could not read.


@asynccontextmanager
async def in_process_channel(server: Any) -> AsyncGenerator[Channel, None]:
    """Open a conversation with a server object of the SDK, or a wrapper of one, in this process."""
    # MCPServer and FastMCP keep the low-level server under these names and offer no public one.
    inner = getattr(server, "_lowlevel_server", None) or getattr(server, "_mcp_server", None) or server
    async with create_client_server_memory_streams() as (ours, theirs), anyio.create_task_group() as tasks:
        tasks.start_soon(inner.run, *theirs, inner.create_initialization_options())
        try:
            yield StreamsChannel(*ours)
        finally:
            tasks.cancel_scope.cancel()
