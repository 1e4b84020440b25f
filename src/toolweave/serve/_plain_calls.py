"""The port between a carrier's fast path and the part that answers plain tool calls: values and protocols alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from toolweave._json_types import JsonObject
from toolweave.protocol.jsonrpc import RequestId
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from toolweave.serve._sent_call import SentCall
from toolweave.serve.request import Client, Json

ENVELOPE = frozenset({PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES})
"""The members of a `_meta` that every request of the modern era has."""


class PlainToolCall(msgspec.Struct, frozen=True):
    """A call of a tool that has nothing beside its arguments.

    Attributes:
        id: The JSON-RPC id.
        name: The name of the tool.
        arguments: Its arguments; None where it has none.
        client: The client, where the call itself says which: in the modern era.
        meta: Its `_meta`, with the envelope of the modern era; None if it has none. It must not be modified.
        has_more: Whether its `_meta` has members beside the envelope, such as a progress token.
    """

    id: RequestId
    name: str
    arguments: Json | None = None
    client: Client | None = None
    meta: JsonObject | None = None
    has_more: bool = False


async def answer_of(sent: SentCall) -> Any:
    """Wait for the answer of a call that was sent; None where the full path has to make it.

    A call whose wait is cancelled is also cancelled where it was sent.
    """
    try:
        return await sent.answer
    except asyncio.CancelledError:
        await sent.give_up()
        raise
    except Exception:  # boundary: the full path meets it again, and handles it
        return None


class SendsCalls(Protocol):
    """Sends plain calls of tools."""

    @property
    def layered(self) -> bool:
        """Whether there is middleware that a call has to go through before it is sent."""
        ...

    def send(self, call: PlainToolCall, client: Client, loop: asyncio.AbstractEventLoop) -> SentCall | None:
        """Send a call at once; None, with nothing sent, if it takes the full path."""
        ...


class PlainCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The plain calls of an endpoint.

    Attributes:
        takes: Whether calls of the tool with that name need nothing but their arguments; False for an unknown name.
        sender: Sends them at once; None where the endpoint answers them as it answers all other requests.
    """

    takes: Callable[[str], bool]
    sender: SendsCalls | None = None
