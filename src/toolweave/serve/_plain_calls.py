"""The port between a carrier's fast path and the sender of plain tool calls: values and protocols, no behaviour."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from toolweave.protocol.jsonrpc import RequestId
from toolweave.serve._request import Client, Json


class PlainToolCall(msgspec.Struct, frozen=True):
    """A call of a tool that has nothing beside its arguments.

    Attributes:
        id: The JSON-RPC id.
        name: The name of the tool.
        arguments: Its arguments; None where it has none.
        client: The client, where the call itself says which: in the modern era.
    """

    id: RequestId
    name: str
    arguments: Json | None = None
    client: Client | None = None


class SentCall(Protocol):
    """A call that was sent, and whose answer is waited for."""

    @property
    def answer(self) -> asyncio.Future[Any]:
        """The answer to come, which may be an error; its result is None when `renew` was called meanwhile."""
        ...

    def text(self, request_id: RequestId, answer: Any) -> bytes | None:
        """Return the whole JSON-RPC answer for the client, or None where the full path has to make it."""
        ...

    def renew(self) -> None:
        """End the wait for `answer`, which another one replaces."""
        ...

    def end(self) -> None:
        """Forget the call: it was answered, or its answer is no longer awaited."""
        ...

    async def give_up(self) -> None:
        """Cancel the call where it was sent; bounded."""
        ...


class SendsCalls(Protocol):
    """Sends plain calls of tools."""

    @property
    def open(self) -> bool:
        """Return whether calls may take the fast path: not while there is middleware that has to see them."""
        ...

    def send(
        self, call: PlainToolCall, client: Client, principal: str | None, loop: asyncio.AbstractEventLoop
    ) -> SentCall | None:
        """Send a call at once, for an authorized principal; None, with nothing sent, if it takes the full path."""
        ...
