"""The response to a POST on the fast path: JSON, or an event stream once the handler sends a notification before.

Also the reply channel of the request. Watches for a disconnected client only when the work takes longer than a moment,
so that a quick answer does not pay for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping
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
from toolweave.protocol.jsonrpc import encode_error, encode_notification, encode_result
from toolweave.serve._http.asgi import Message, Receive, Send
from toolweave.serve._request import Json
from toolweave.serve._task_spawner import SpawnsTasks

__all__ = ["HTTP_STATUS", "PostResponse", "ResponseLimits", "cancel_if_stalled", "given_up"]

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


class ResponseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one response; times in seconds.

    Attributes:
        body_bytes: Maximum length of the request body.
        body: Timeout of the body.
        moment: How long a call may run before its client is watched.
        keepalive: The longest silence of an event stream; then a comment is sent.
        stalled: How long a client may leave a stream unread.
    """

    body_bytes: int
    body: float = 30
    moment: float = 0.05
    keepalive: float = 15
    stalled: float = 30


class PostResponse:
    """The response to one request.

    Args:
        receive: ASGI's, after the body.
        send: ASGI's.
        work: The cancel scope of the handler; cancelled when the client disconnects.
        tasks: The task group of the disconnect watch, should one be needed.
        streams: Whether the client accepts event streams; without, notifications are dropped.
    """

    __slots__ = (
        "_bounds",
        "_closed",
        "_done",
        "_late",
        "_lock",
        "_reading",
        "_receive",
        "_send",
        "_slow_body",
        "_started",
        "_streams",
        "_tasks",
        "_watching",
        "_work",
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
    ) -> None:
        self._receive = receive
        self._send = send
        self._work = work
        self._tasks = tasks
        self._bounds = bounds
        self._streams = streams
        self._started = False
        self._done = False
        self._lock: anyio.Lock | None = None
        self._closed = False
        self._watching: anyio.CancelScope | None = None
        self.request_id: int | str = 0
        self._reading = True
        self._slow_body = False
        self._late = asyncio.get_running_loop().call_later(bounds.moment, self._watch)

    def begin(self) -> None:
        """Note that the body was read: its timeout ends, and the time until the client is watched begins."""
        self._reading = False
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

    async def result(self, result: Json) -> None:
        """Answer with a result."""
        try:
            body = encode_result(self.request_id, result)
        except Exception:  # boundary: a tool may return what is no JSON
            _log.exception("a result cannot be written as JSON")
            await self.error(RequestError("Internal error", code=INTERNAL_ERROR))
            return
        await self._answer(200, body)

    async def error(self, error: RequestError) -> None:
        """Answer with a JSON-RPC error."""
        body = encode_error(self.request_id, error.code, error.message, error.data)
        await self._answer(HTTP_STATUS.get(error.code, 200), body)

    async def broken_off(self) -> None:
        """Answer for cancelled work, in case the client is still connected."""
        if self._done:
            return
        self._done = True
        if self._started:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        text = b"The call was cancelled"
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)), (b"connection", b"close")]
        await self._send({"type": "http.response.start", "status": 503, "headers": headers})
        await self._send({"type": "http.response.body", "body": text})

    def close(self) -> None:
        """Stop watching."""
        self._late.cancel()
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()

    async def _answer(self, status: int, body: bytes) -> None:
        if self._started:
            await self._event(body, last=True)
            return
        self._done = True
        headers = [_JSON, (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _event(self, data: bytes, *, last: bool = False) -> None:
        await self._write(b"event: message\r\ndata: " + data + b"\r\n\r\n", last=last)

    async def _write(self, chunk: bytes, *, last: bool = False) -> None:
        """Write to the event stream, one writer at a time; the work of a stalled client is cancelled."""
        if self._lock is None:
            self._lock = anyio.Lock()
        with cancel_if_stalled(self._work, self._bounds.stalled):
            async with self._lock:
                if self._done:
                    return
                self._done = last
                if not self._started:
                    self._started = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
                await self._send({"type": "http.response.body", "body": chunk, "more_body": not last})

    def _watch(self) -> None:
        if self._reading:
            self._slow_body = True
            rest = self._bounds.body - self._bounds.moment
            self._late = asyncio.get_running_loop().call_later(rest, self._work.cancel)
        else:
            self._tasks.start_soon(self._watched)

    async def _watched(self) -> None:
        """Cancel the work when the client disconnects, and send keep-alive comments until then."""
        with anyio.CancelScope() as self._watching:
            while not (self._done or self._closed):
                gone = False
                with anyio.move_on_after(self._bounds.keepalive) as silence:
                    gone = (await self._receive())["type"] == "http.disconnect"
                if gone and not self._done:
                    self._work.cancel()
                    return
                if silence.cancelled_caught and self._streams:
                    await self._write(b": still at work\r\n\r\n")


@contextmanager
def cancel_if_stalled(work: anyio.CancelScope, seconds: float) -> Generator[None, None, None]:
    """Cancel the work if the block takes longer than `seconds`: its client leaves the stream unread."""
    with anyio.move_on_after(seconds) as bound:
        yield
    if bound.cancelled_caught:
        _log.warning("a client left its stream unread for %s s; its call is cancelled", seconds)
        work.cancel()


def given_up(send: Send, work: anyio.CancelScope, seconds: float) -> Send:
    """Return a `send` that cancels the work of a client that leaves its stream unread for `seconds`."""

    async def sending(message: Message) -> None:
        with cancel_if_stalled(work, seconds):
            await send(message)

    return sending
