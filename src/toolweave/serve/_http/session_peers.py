"""The port to other processes that serve the same sessions of legacy clients: replicas behind one address.

A request of a session may reach any of them. An id holds enough to continue calls and lists; the state of a session,
and messages that belong to a request that runs elsewhere, go from process to process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import msgspec

from toolweave.protocol import methods
from toolweave.protocol.jsonrpc import StrictMessage
from toolweave.serve.request import Client

REMEMBERED = frozenset({methods.LOGGING_SET_LEVEL, methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE})
"""The requests that change the state of a session."""

Deliver: TypeAlias = Callable[[str, StrictMessage | None], Awaitable[None]]
"""Acts on a message of another process about a session, by its id: a message of its client; None for its end.

An answer or a cancellation is for a request that may run in this process; a request changes the session's state.
"""


class RestoredSession(msgspec.Struct, frozen=True, eq=False):
    """A session that began in another process.

    Attributes:
        client: Its client, whose conversation has the same name in all processes.
        memory: The requests that make up its state.
    """

    client: Client
    memory: Sequence[StrictMessage] = ()


class StreamLost(Exception):
    """Reports why no process knows the rest of a stream."""


class SharedEvent(msgspec.Struct, frozen=True):
    """An event of the stream that answers one request.

    Attributes:
        number: Its position in the stream, from 0.
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
        """Return the id of a new session, by which any process can continue it.

        Args:
            client: Its client.
            path: The path of its endpoint: an id counts there alone.

        Raises:
            RequestError: The client says too much of itself.
        """
        ...

    async def restore(self, session_id: str, principal: str | None, path: str) -> RestoredSession | None:
        """Return a session of another process; None if it is unknown, of another principal, or has ended."""
        ...

    async def remember(self, session_id: str, request: StrictMessage) -> None:
        """Store a request that has changed the state of a session, and notify the other processes.

        Raises:
            RequestError: It cannot be noted now.
        """
        ...

    async def forward(self, session_id: str, message: StrictMessage) -> None:
        """Forward an answer or cancellation to the process that owns the request.

        Raises:
            RequestError: The other processes cannot be reached now.
        """
        ...

    async def end(self, session_id: str) -> None:
        """Store that a session has ended, and notify the other processes.

        Raises:
            RequestError: They cannot be notified now: the session continues there.
        """
        ...

    def serving(self, path: str, deliver: Deliver) -> AbstractContextManager[None]:
        """Receive messages about the sessions of the endpoint at a path for the block."""
        ...
