"""The lowest interface: a duplex stream of JSON-RPC messages, one JSON text each, over any transport.

Knows nothing of MCP. A custom transport is an async context manager that yields a `Channel`.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

MAX_MESSAGE_BYTES = 128 * 1024 * 1024
"""A message larger than this ends its connection with a clear error instead of filling the memory."""


class NotSent(BrokenPipeError):
    """The peer is gone, and not a byte of this message went out: it is safe to send it again."""


@runtime_checkable
class Channel(Protocol):
    """A duplex stream of whole JSON-RPC messages as UTF-8 JSON text."""

    async def send(self, message: bytes) -> None:
        """Send one message; when the wait is cancelled, nothing of it was sent.

        Raises:
            NotSent: The peer is gone, and nothing of the message was sent.
            OSError: The peer is gone; part of the message may have reached it.
        """
        ...

    async def receive(self) -> bytes:
        """Return the next message.

        Raises:
            EOFError: The peer ended the conversation; the text says why, if known.
        """
        ...


class _MemoryChannel:
    def __init__(self, outgoing: MemoryObjectSendStream[bytes], incoming: MemoryObjectReceiveStream[bytes]) -> None:
        self._outgoing = outgoing
        self._incoming = incoming

    async def send(self, message: bytes) -> None:
        try:
            await self._outgoing.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise NotSent("the other end of the channel is closed") from None

    async def receive(self) -> bytes:
        try:
            return await self._incoming.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise EOFError("the other end of the channel is closed") from None

    def close(self) -> None:
        """Close this end; the other end reads EOF."""
        self._outgoing.close()
        self._incoming.close()


def memory_channels() -> tuple[_MemoryChannel, _MemoryChannel]:
    """Return the two ends of an in-process channel, for servers that live in this process."""
    to_b, from_a = anyio.create_memory_object_stream[bytes](math.inf)
    to_a, from_b = anyio.create_memory_object_stream[bytes](math.inf)
    return _MemoryChannel(to_b, from_b), _MemoryChannel(to_a, from_a)
