"""Calls that a wire sends at once: their text, their result, and the state of one over HTTP. Sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import anyio
import msgspec

from toolweave._json_types import Json, JsonObject
from toolweave.connect._wire.responses import invalid
from toolweave.errors import ServerError
from toolweave.protocol.jsonrpc import REQUEST_HEAD, value_of
from toolweave.protocol.lenient_messages import RawResult

if TYPE_CHECKING:
    from toolweave.http import Socket

PostedAnswer: TypeAlias = asyncio.Future[Any]
"""The outcome of a request that was sent at once: a `RawResult`, a dict or an error."""
PostedRequest: TypeAlias = tuple[int, PostedAnswer]
"""A request that was sent at once: its id, and its outcome."""

_FORM = REQUEST_HEAD + b"%d%b"


def posted_text(key: int, members: bytes) -> bytes:
    """Return a request as one JSON text.

    Args:
        key: Its id.
        members: The members behind the id, from the comma on to the last bracket.
    """
    return _FORM % (key, members)


def posted_result(answer: RawResult | Json, server: str) -> Json:
    """Return the result in the answer to a posted request.

    Args:
        answer: A result that was parsed already, or one whose members are still JSON texts.
        server: The server's name, for the error.

    Raises:
        ProtocolError: It cannot be read.
    """
    if isinstance(answer, dict):
        return answer
    try:
        return {name: value_of(member) for name, member in answer.result.items()}
    except ValueError as exc:
        raise invalid(server, str(exc)) from None


@runtime_checkable
class PostsCalls(Protocol):
    """A wire that can send calls of tools at once.

    Attributes:
        has_streams: Whether each answer has headers and a stream of notifications, as over HTTP.
    """

    has_streams: ClassVar[bool]

    def post(self, members: bytes, call: HttpCall | None = None) -> PostedRequest | None:
        """Send a call at once; None, with nothing sent, where it would have to wait or the server is gone.

        The sender waits for the outcome, then calls `forget`, or `give_up`.

        Args:
            members: The members of the message behind its id, from the comma on to the last bracket.
            call: What its headers and its stream need, where it has these.
        """
        ...

    def renew(self, key: int) -> PostedAnswer:
        """Return a future for the outcome of a posted call, which replaces an earlier one."""
        ...

    def result_in(self, answer: RawResult | Json) -> Json:
        """Return the result in the answer to a posted call; see `posted_result`."""
        ...

    def forget(self, key: int) -> None:
        """Forget a posted call that was answered."""
        ...

    async def give_up(self, key: int, method: str) -> None:
        """Cancel a posted call at the server, and forget it."""
        ...


class HttpCall(msgspec.Struct, frozen=True, eq=False):
    """The parts of a call over HTTP that are not in its text.

    Attributes:
        name: The name of the tool, which the headers of the modern era name.
        schema: Its input schema.
        revision: The revision of the modern era that is spoken; None in a session.
        on_notification: Gets the notifications on the stream of its answer.
    """

    name: str
    schema: JsonObject | None
    revision: str | None
    on_notification: Callable[[str, JsonObject], None]


class PostedCall(msgspec.Struct, eq=False):
    """A call that was sent at once, without a task.

    Its connection calls `note_news` until the answer is whole, or turns out to need more: an event stream, an error, a
    body in parts, another content type, a lost connection. From there on a task continues the exchange, as for any
    other request. Either of them ends the exchange, so that the connection returns once.

    Attributes:
        read: Returns the result of a plain answer, and the connection to the others.
        go_on: Starts the task.
        key: Its id.
        headers: Its headers.
        text: Its text.
        answer: Its outcome.
        socket: Its connection.
        scope: The scope of the task, once that was started.
    """

    read: Callable[[PostedCall, Socket], RawResult | None]
    go_on: Callable[[PostedCall, Socket], None]
    key: int
    headers: Mapping[str, str]
    text: bytes
    answer: PostedAnswer
    socket: Socket | None = None
    scope: anyio.CancelScope | None = None

    def note_news(self) -> None:
        """Take the answer if it is there, or let a task continue."""
        socket = self.socket
        if socket is None:
            return
        raw: RawResult | None = None
        if socket.error is None:
            if not socket.has_head:
                return
            if socket.complete:
                raw = self.read(self, socket)
        socket.on_news = None
        if raw is None:
            self.go_on(self, socket)
        else:
            self.succeed(raw)

    def unanswered(self) -> Socket | None:
        """Return its connection while the answer is not there; None from then on, or once a task reads it."""
        socket = self.socket
        if socket is None:
            return None
        return None if socket.on_news is None else socket

    def succeed(self, result: RawResult | Json) -> None:
        """Give the result to the one who waits, if anybody does."""
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: ServerError) -> None:
        """Give the error to the one who waits, if anybody does."""
        if not self.answer.done():
            self.answer.set_exception(error)
