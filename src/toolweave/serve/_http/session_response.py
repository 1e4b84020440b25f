"""The response to one request of the legacy era: it can ask its client, and be resumed by it.

A response is in one of two states: bound to the HTTP response that it began with, or a stream whose events are kept, so
that any later HTTP response may carry it on. The step from the first to the second is made once, by `make_resumable`,
and before anything is written that a client may miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from toolweave.errors import RequestError
from toolweave.protocol.codes import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_CANCELLED
from toolweave.protocol.jsonrpc import encode_notification
from toolweave.serve._http.events import EventStream
from toolweave.serve._http.response import PostResponse
from toolweave.serve._http.sessions import HttpSession, InFlight
from toolweave.serve.request import Json

_LAST_SECONDS = 1.0


class SessionResponse(PostResponse):
    """The response to one request of the legacy era.

    A client that disconnects does not cancel its request. In a session, the client can be asked on the way, and the
    events of the response are kept where there is a store.
    """

    __slots__ = ("_counted", "_retry", "_session", "_stream")

    _session: HttpSession | None
    _stream: EventStream | None
    _counted: InFlight | None
    _retry: int | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._session = self._stream = self._counted = self._retry = None

    def join(self, session: HttpSession, counted: InFlight | None, retry: int | None) -> None:
        """Make it a response of a session.

        Args:
            session: The session.
            counted: Keeps the session open for the request, until the client disconnects.
            retry: How long its client may wait before it resumes the stream, in milliseconds.
        """
        self._session = session
        self._counted = counted
        self._retry = retry

    @property
    def stream_name(self) -> str:
        """The name of its stream, empty for one that cannot be resumed."""
        if self._stream is None:
            return ""
        return self._stream.name

    async def make_resumable(self) -> None:
        """Make it an event stream that its client can resume, if its session has a store to keep it."""
        session = self._session
        if session is None or self._stream is not None:
            return
        if not self._streams:
            return
        stream = self._stream = session.stream(self.request_id)
        if stream is not None:
            # A response whose client has left carries nothing more: the events are kept for the one that comes back.
            stream.carry(None if self._done else self)
            if session.polls:
                await stream.prime(self._retry)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on this answer's stream, or keep it for the client that comes back."""
        if self._stream is not None and not self._stream.ended:
            await self._event(encode_notification(method, params))
        else:
            await super().notify(method, params)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Send the client a request on this answer's stream and return its result.

        Raises:
            RequestError: The client refused or is gone, or this response is not a stream of a session.
        """
        if self._session is None or not self._streams:
            raise RequestError(f"{method} cannot be sent: the client has no session and stream", code=INTERNAL_ERROR)
        return await self._session.pending.ask(method, params, self._event)

    async def release(self) -> None:
        """End the HTTP response of a client that can come back for the stream."""
        session = self._session
        if session is None or not session.polls:
            return
        await self.make_resumable()
        if self._stream is not None:
            self._stream.drop(self)
            await self.end()

    async def cut_off(self, ended: bool) -> None:
        """Answer a request that was cancelled, by its client or with its session."""
        error = RequestError("Request cancelled", code=REQUEST_CANCELLED)
        if ended:
            error = RequestError("the session ended before the request was complete", code=CONNECTION_CLOSED)
        with anyio.move_on_after(_LAST_SECONDS, shield=True):
            await self.error(error)
        await self.end()

    def _status(self, error: RequestError) -> int:
        # In this era, errors of a request are responses like any other; other statuses are about the transport.
        return 200

    async def _answer(self, status: int, body: bytes) -> None:
        if self._stream is not None:
            await self._event(body, last=True)
        else:
            await super()._answer(status, body)

    async def _event(self, data: bytes, *, last: bool = False) -> None:
        await self.make_resumable()
        if self._stream is not None:
            await self._stream.put(data, last=last)
        else:
            await super()._event(data, last=last)

    async def _watched(self) -> None:
        session = self._session
        if session is not None and session.polls and not self._closed:
            await self.make_resumable()  # before its client can lose it
        await super()._watched()

    def _disconnected(self) -> None:
        if self._stream is not None:
            self._stream.drop(self)
        self._done = True
        if self._counted is not None:
            self._counted.release()
