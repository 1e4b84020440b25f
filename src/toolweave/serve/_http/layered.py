"""The reply to a plain call that goes through middleware: one JSON text, unless something is sent before it.

Most calls need no reply channel: middleware sends no notification, asks nothing, and the answer comes soon. So the
response of the full path, with its timer and its watch for disconnects, is made only when it is needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
import msgspec

from toolweave.errors import RequestError
from toolweave.protocol.jsonrpc import RequestId, encode_result
from toolweave.serve._http.asgi import Receive, Send
from toolweave.serve._http.response import PostResponse, ResponseLimits, respond_json
from toolweave.serve._http.session_response import SessionResponse
from toolweave.serve._http.sessions import HttpSession
from toolweave.serve._task_spawner import SpawnsTasks
from toolweave.serve.request import Json


class ResponseMaker(msgspec.Struct, frozen=True, eq=False):
    """The part that all responses of an endpoint have in common.

    Attributes:
        tasks: Where disconnected clients are watched for.
        bounds: The limits of a response.
        streams: Whether responses may be event streams.
    """

    tasks: SpawnsTasks
    bounds: ResponseLimits
    streams: bool

    def modern(self, receive: Receive, send: Send, work: anyio.CancelScope) -> PostResponse:
        """Return a response of the modern era."""
        return PostResponse(receive, send, work, self.tasks, self.bounds, streams=self.streams)

    def of_session(
        self, session: HttpSession, receive: Receive, send: Send, work: anyio.CancelScope
    ) -> SessionResponse:
        """Return a response in a session."""
        return SessionResponse(
            receive, send, work, self.tasks, self.bounds, streams=self.streams, headers=(session.header,)
        )


class LazyReply:
    """A reply channel that becomes a `PostResponse` when it is used.

    Args:
        make: Makes that.
        send: ASGI's.
        key: The id of the request.
        headers: Headers of the response.

    Attributes:
        response: The response of the full path, once it was needed.
    """

    __slots__ = ("_answered", "_headers", "_key", "_make", "_send", "response")

    def __init__(
        self, make: Callable[[], PostResponse], send: Send, key: RequestId, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        self._make = make
        self._send = send
        self._key = key
        self._headers = headers
        self._answered = False
        self.response: PostResponse | None = None

    def begin(self) -> PostResponse:
        """Return the response of the full path, which watches the client from now on."""
        response = self.response
        if response is None:
            response = self.response = self._make()
            if self._answered:
                response.note_answered()
        return response

    async def fill(self, answering: Awaitable[Json]) -> None:
        """Answer with a result, or with the error that making it raises."""
        try:
            result = await answering
        except RequestError as exc:
            await self.begin().error(exc)
            return
        # Nothing is awaited between this check and `_answered`: a watch that begins later finds the request answered.
        text = None
        if self.response is None:
            try:
                text = encode_result(self._key, result)
            except Exception:  # boundary: the result of middleware may be no JSON, which the response reports
                text = None
        if text is None:
            await self.begin().result(result)
            return
        self._answered = True
        await respond_json(self._send, 200, text, self._headers)

    @property
    def answered(self) -> bool:
        """Whether the answer was sent, or is being sent, without the response of the full path."""
        return self._answered

    async def notify(self, method: str, params: Mapping[str, object]) -> None:
        """Send a notification before the answer."""
        await self.begin().notify(method, params)

    async def ask(self, method: str, params: Mapping[str, object]) -> Json:
        """Send the client a request and return its result; see `ReplyChannel`."""
        return await self.begin().ask(method, params)

    async def release(self) -> None:
        """Close the response stream where the client can resume it later."""
        await self.begin().release()
