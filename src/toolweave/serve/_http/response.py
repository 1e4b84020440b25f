"""The response to a POST: JSON, or an event stream once the handler sends a notification before.

Also the reply channel of the request. Watches for a disconnected client only when the work is not done quickly,
so that a quick answer does not pay for it. `EventResponse`, its base, is an event stream alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec

from toolweave.errors import RequestError
from toolweave.protocol.codes import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from toolweave.protocol.jsonrpc import RequestId, encode_error, encode_notification, encode_result
from toolweave.serve._http.asgi import TOGETHER, Receive, Send, respond
from toolweave.serve._task_spawner import SpawnsTasks
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.serve._http.app")

HTTP_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""The HTTP status of a JSON-RPC error; 200 for every other (specification 2026-07-28, Streamable HTTP)."""

_EVENTS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_JSON = (b"content-type", b"application/json")
_LAST_SECONDS = 1.0
_CLOSE = [(b"connection", b"close")]


class ResponseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one response; times in seconds.

    Attributes:
        body_bytes: Maximum length of the request body.
        body: Timeout of the body.
        moment: Seconds that a call may run before its client is watched.
        keepalive: The longest silence of an event stream; then a comment is sent.
        stalled: How long a client may leave a stream unread.
    """

    body_bytes: int
    body: float = 30
    moment: float = 0.05
    keepalive: float = 15
    stalled: float = 30


class EventResponse:
    """An event stream as a response.

    Args:
        receive: ASGI's, after the body.
        send: ASGI's.
        work: The cancel scope of the writer; cancelled when the client leaves the stream unread.
        bounds: The limits of the response.
        headers: Headers beside those of every event stream.
    """

    __slots__ = ("_bounds", "_done", "_headers", "_lock", "_receive", "_send", "_started", "_work")

    def __init__(
        self,
        receive: Receive,
        send: Send,
        work: anyio.CancelScope,
        bounds: ResponseLimits,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._receive = receive
        self._send = send
        self._work = work
        self._bounds = bounds
        self._headers = headers
        self._started = False
        self._done = False
        self._lock: anyio.Lock | None = None

    async def write(self, chunk: bytes, *, last: bool = False) -> None:
        """Write to the stream, one writer at a time; the first call sends the headers."""
        # Notifications, comments and the answer come from several tasks; a chunk of one must not be inside another's.
        if self._lock is None:
            self._lock = anyio.Lock()
        # Around the lock as well: a writer that waits for one which a client stalls is stalled by the same client.
        with self._cancel_if_stalled():
            async with self._lock:
                if self._done:
                    return
                self._done = last
                if not self._started:
                    self._started = True
                    headers = [*_EVENTS, *self._headers]
                    await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                await self._send({"type": "http.response.body", "body": chunk, "more_body": not last})

    async def end(self) -> None:
        """End a stream that has begun, even if its work is cancelled."""
        # Shielded, as the work may be cancelled already; bounded, as the client may not read.
        if self._started and not self._done:
            self._done = True
            with anyio.move_on_after(_LAST_SECONDS, shield=True):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def until_gone(self) -> None:
        """Wait until the client disconnects or the stream is over, and send comments while it is silent."""
        while not self._done:
            with anyio.move_on_after(self._bounds.keepalive) as silence:
                if (await self._receive())["type"] == "http.disconnect":
                    return
            if silence.cancelled_caught:
                await self._keep_alive()

    async def _keep_alive(self) -> None:
        await self.write(b": still at work\r\n\r\n")

    @contextmanager
    def _cancel_if_stalled(self) -> Generator[None, None, None]:
        """Cancel the work if the block takes too long: its client leaves the stream unread."""
        with anyio.move_on_after(self._bounds.stalled) as bound:
            yield
        if bound.cancelled_caught:
            _log.warning("a client left its stream unread for %s s; its call is cancelled", self._bounds.stalled)
            self._work.cancel()


def event_of(data: bytes, event_id: str | None = None) -> bytes:
    """Return one message as a server-sent event, with the id that a client resumes after."""
    if event_id is None:
        name = b""
    else:
        name = b"id: %s\r\n" % event_id.encode()
    return name + b"event: message\r\ndata: " + data + b"\r\n\r\n"


async def respond_error(
    send: Send, status: int, key: RequestId | None, error: RequestError, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Send a JSON-RPC error as the whole response."""
    await respond_json(send, status, encode_error(key, error.code, error.message, error.data), headers)


async def respond_json(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Send a JSON text as the whole response."""
    length = (b"content-length", b"%d" % len(body))
    head = [_JSON, length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": head, TOGETHER: True})
    await send({"type": "http.response.body", "body": body})


async def respond_cancelled(send: Send) -> None:
    """Send the response to a call that was cancelled without its client: the server ends."""
    await respond(send, 503, "The call was cancelled", _CLOSE)


async def respond_late_body(send: Send) -> None:
    """Send the response to a request whose body did not arrive in time."""
    await respond(send, 408, "The request body did not come in time", _CLOSE)


class PostResponse(EventResponse):
    """The response to one request.

    Args:
        receive: ASGI's, after the body.
        send: ASGI's.
        work: The cancel scope of the handler; cancelled when the client disconnects.
        tasks: The task group of the disconnect watch, should one be needed.
        bounds: The limits of the response.
        streams: Whether the client accepts event streams; without, notifications are dropped.
        headers: Headers of the response, of any kind.

    Attributes:
        request_id: The id of the request, once that was read.
        body_is_late: Whether the body did not arrive in time, for which the work was cancelled.
    """

    __slots__ = (
        "_closed",
        "_late",
        "_reading",
        "_slow_body",
        "_streams",
        "_tasks",
        "_watching",
        "body_is_late",
        "request_id",
    )

    def __init__(
        self,
        receive: Receive,
        send: Send,
        work: anyio.CancelScope,
        tasks: SpawnsTasks,
        bounds: ResponseLimits,
        *,
        streams: bool,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(receive, send, work, bounds, headers)
        self._tasks = tasks
        self._streams = streams
        self._closed = False
        self._watching: anyio.CancelScope | None = None
        self.request_id: int | str = 0
        self._reading = True
        self._slow_body = False
        self.body_is_late: bool = False
        # One timer for two waits, one after the other: for the body, and then for a response that takes so long that
        # the client has to be watched. Most responses are sent before it fires.
        self._late = asyncio.get_running_loop().call_later(bounds.moment, self._watch)

    def begin(self) -> None:
        """Note that the body was read: its timeout ends, and the time until the client is watched begins."""
        self._reading = False
        # The timer has fired for the body already. A new one is needed, or the client would never be watched.
        if self._slow_body:
            self._late.cancel()
            self._late = asyncio.get_running_loop().call_later(self._bounds.moment, self._watch)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on this answer's stream, which begins with it."""
        if self._streams and not self._done:
            await self._event(encode_notification(method, params))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Refuse: a client of this era is asked by an `input_required` result only.

        Raises:
            RequestError: Always.
        """
        raise RequestError(f"{method} cannot be sent in protocol revision 2026-07-28", code=INTERNAL_ERROR)

    async def release(self) -> None:
        """Do nothing: streams of this era cannot be resumed."""

    async def fill(self, answering: Awaitable[Json]) -> None:
        """Answer with a result, or with the error that making it raises."""
        try:
            result = await answering
        except RequestError as exc:
            await self.error(exc)
        else:
            await self.result(result)

    async def result(self, result: Json) -> None:
        """Answer with a result."""
        try:
            body = encode_result(self.request_id, result)
        except Exception:  # boundary: a tool may return a value that JSON cannot hold
            _log.exception("a result cannot be written as JSON")
            await self.error(RequestError("Internal error", code=INTERNAL_ERROR))
            return
        await self._answer(200, body)

    async def error(self, error: RequestError) -> None:
        """Answer with a JSON-RPC error."""
        body = encode_error(self.request_id, error.code, error.message, error.data)
        await self._answer(self._status(error), body)

    async def broken_off(self) -> None:
        """Answer for cancelled work, in case the client is still connected."""
        # The status has been sent, so an error can only be the end of the stream.
        if self._started or self._done:
            await self.end()
            return
        self._done = True
        await respond_cancelled(self._send)

    def note_answered(self) -> None:
        """Note that the request was answered without this: nothing is sent any more."""
        self._done = True
        self.close()

    def close(self) -> None:
        """Stop watching."""
        self._late.cancel()
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()

    def _status(self, error: RequestError) -> int:
        """Return the HTTP status of an error that is the whole response."""
        return HTTP_STATUS.get(error.code, 200)

    async def _answer(self, status: int, body: bytes) -> None:
        if self._started:
            await self._event(body, last=True)
            return
        self._done = True
        await respond_json(self._send, status, body, self._headers)

    async def _event(self, data: bytes, *, last: bool = False) -> None:
        await self.write(event_of(data), last=last)

    def _watch(self) -> None:
        if self._reading:
            self._slow_body = True
            rest = self._bounds.body - self._bounds.moment
            # Cancelled and not only answered: the read of the body is what waits, and it ends in no other way.
            self._late = asyncio.get_running_loop().call_later(rest, self._end_late_body)
        else:
            self._tasks.start_soon(self._watched)

    def _end_late_body(self) -> None:
        self.body_is_late = True
        self._work.cancel()

    async def _watched(self) -> None:
        """Watch for a disconnected client, and send keep-alive comments until then."""
        with anyio.CancelScope() as self._watching:
            if not self._closed:
                await self.until_gone()
                # A client that leaves after the whole response has cancelled nothing.
                if not (self._done or self._closed):
                    self._disconnected()

    def _disconnected(self) -> None:
        """Cancel the work: in this era a client cancels by disconnecting."""
        self._work.cancel()

    async def _keep_alive(self) -> None:
        if self._streams:
            await super()._keep_alive()
