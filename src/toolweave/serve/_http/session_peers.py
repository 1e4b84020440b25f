"""The port to other processes that serve the same sessions of legacy clients: replicas behind one address.

A request of a session may reach any of them. An id says enough to go on with calls and lists; what a session remembers,
and what belongs to a request that runs elsewhere, goes from process to process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import msgspec

from toolweave.protocol import methods
from toolweave.protocol.jsonrpc import StrictMessage
from toolweave.serve._request import Client

REMEMBERED = frozenset({methods.LOGGING_SET_LEVEL, methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE})
"""The requests that change what a session remembers."""

Deliver: TypeAlias = Callable[[str, StrictMessage | None], Awaitable[None]]
"""Acts on what another process tells of a session, by its id: a message of its client; None for its end.

An answer or a cancellation is for a request that may run here; a request changes what the session remembers.
"""


class RestoredSession(msgspec.Struct, frozen=True, eq=False):
    """A session that began in another process.

    Attributes:
        client: Its client, whose conversation has the same name in all processes.
        memory: The requests that make up what it remembers.
    """

    client: Client
    memory: Sequence[StrictMessage] = ()


class StreamLost(Exception):
    """Tells why no process knows what is still to come of a stream."""


class SharedEvent(msgspec.Struct, frozen=True):
    """An event of the stream that answers one request.

    Attributes:
        number: Its place in the stream, from 0.
        message: The JSON-RPC message as JSON; None for a point to resume from.
        last: Whether it is the answer, which ends the stream.
    """

    number: int
    message: str | None
    last: bool = False


class SharedEvents(Protocol):
    """Keeps the streams of requests where all processes can read them; each is written by the process that answers."""

    async def keep(self, stream: str, event: SharedEvent) -> None:
        """Keep an event of a stream of this process. One that cannot be kept now is kept later."""
        ...

    async def follow(self, stream: str, after: int, send: Callable[[SharedEvent], Awaitable[None]]) -> None:
        """Send the events of a stream after one, as they come, up to its last; returns early when that fails for now.

        Raises:
            StreamLost: The event is no longer kept, or the process that answers has ended.
        """
        ...


class SessionPeers(Protocol):
    """The other processes that serve the same sessions.

    Attributes:
        events: Keeps the streams of their requests; None where a stream is known to its process alone.
    """

    @property
    def events(self) -> SharedEvents | None: ...

    def issue(self, client: Client, path: str) -> str:
        """Return the id of a new session, by which any process can go on with it.

        Args:
            client: Its client.
            path: The path of its endpoint: an id counts there alone.

        Raises:
            RequestError: The client says too much of itself.
        """
        ...

    async def restore(self, session_id: str, principal: str | None, path: str) -> RestoredSession | None:
        """Return a session that is not known here; None for an id that is none, of another principal or ended."""
        ...

    async def remember(self, session_id: str, request: StrictMessage) -> None:
        """Note a request that has changed what a session remembers, and tell the others.

        Raises:
            RequestError: It cannot be noted now.
        """
        ...

    async def forward(self, session_id: str, message: StrictMessage) -> None:
        """Tell the others of an answer or a cancellation that is for no request here.

        Raises:
            RequestError: They cannot be told now.
        """
        ...

    async def end(self, session_id: str) -> None:
        """Note that a session has ended, and tell the others.

        Raises:
            RequestError: They cannot be told now: it goes on there.
        """
        ...

    def serving(self, path: str, deliver: Deliver) -> AbstractContextManager[None]:
        """Hear of the sessions of the endpoint at a path for the block."""
        ...
