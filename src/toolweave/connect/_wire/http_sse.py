"""Our own `Wire` over HTTP+SSE, the transport of revision 2024-11-05: an event stream comes in, POSTs go out.

The stream's first event names the URL of the POSTs; the answer to a message also comes as an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeGuard
from urllib.parse import urljoin, urlsplit, urlunsplit

import anyio
import anyio.abc

from toolweave._json_types import Json, JsonObject, object_or_empty
from toolweave.connect._http_errors import HttpSettings, public_url, too_large
from toolweave.connect._repairs import PREFIX
from toolweave.connect._session import ClientHandlers, Loss, OnNotification
from toolweave.connect._wire.channel import ChannelWire
from toolweave.connect._wire.endpoint import EVENTS, HttpEndpoint
from toolweave.connect._wire.event_streams import is_event_stream
from toolweave.errors import ConnectionLostError, ProtocolError, ServerError
from toolweave.http import Response, TransportError, origin_of
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.sse import EventParser, ServerSentEvent

_POST_SECONDS = 30.0


def under_prefix(url: str, stream_url: str) -> str:
    """Return a URL for messages below the prefix that a proxy adds to paths; empty if there cannot be one.

    The prefix is the folder of the event stream's URL, without an end that the folder of the other URL has as well:
    `/a/messages` beside the stream `/gw/a/sse` is `/gw/a/messages`.
    """
    parts = urlsplit(url)
    folder = urlsplit(stream_url).path.rpartition("/")[0]
    own_folder = parts.path.rpartition("/")[0]
    prefix = folder.removesuffix(own_folder)
    if not prefix or parts.path.startswith(f"{prefix}/"):
        return ""
    return urlunsplit(parts._replace(path=prefix + parts.path))


def _is_not_found(error: ServerError | None) -> TypeGuard[ProtocolError]:
    """Return whether an error is that of HTTP 404, outside of a session."""
    if not isinstance(error, ProtocolError):
        return False
    return object_or_empty(error.data).get("http_status") == 404


class EventChannel:
    """An event stream and the POSTs beside it, as a `Channel`.

    Attributes:
        failure: The reason why the stream ended; empty while it is open.
        forgotten: Whether the server has reported that it does not know the session.
    """

    def __init__(
        self,
        settings: HttpSettings,
        endpoint: HttpEndpoint,
        stream: Response,
        *,
        server: str,
        note: Callable[[str], None],
    ) -> None:
        self.failure = ""
        self.forgotten = False
        self._settings = settings
        self._endpoint = endpoint
        self._stream = stream
        self._server = server
        self._note = note
        self._is_accepted = False
        self._prefixed = ""
        self._parser = EventParser(settings.max_bytes)
        self._events: deque[ServerSentEvent] = deque()

    async def begin(self) -> None:
        """Wait for the event that names the URL of the POSTs.

        Raises:
            ConnectionLostError: The stream ended before it.
            ProtocolError: The named URL is of another origin than the one that messages and credentials are meant for.
        """
        while (event := await self._next()) is not None:
            if event.type == "endpoint":
                break
        else:
            text = f"{self.failure} before it named the URL for messages"
            raise ConnectionLostError(text, server=self._server, sent=False)
        named = event.data.decode("utf-8", "replace").strip()
        try:
            url = urljoin(self._settings.url, named)
            # Messages carry the credentials of the config. A server that could name any URL here could have them sent
            # to another host.
            if origin_of(url) != origin_of(self._settings.url):
                raise self._refused(f"a URL of another origin for messages, {public_url(url)}; nothing is sent there")
        except ValueError:
            raise self._refused("a text that is not a URL for messages") from None
        self._post_to(url)
        self._prefixed = under_prefix(url, self._settings.url)

    async def receive(self) -> bytes:
        """Return the next message; see `Channel.receive`."""
        while (event := await self._next()) is not None:
            if event.type == "message":
                return event.data
        raise EOFError(self.failure)

    async def send(self, message: bytes) -> None:
        """Send one message; see `Channel.send`."""
        try:
            await self.post(message, repeatable=True)
        except ServerError as exc:
            raise OSError(str(exc)) from None

    async def post(self, message: bytes, *, repeatable: bool = False) -> None:
        """Send one message, and return when the server has taken it.

        Raises:
            ServerError: It was not taken.
        """
        named = self._endpoint.url
        error = await self._sent(message, repeatable=repeatable)
        if self._prefixed and _is_not_found(error):
            # A proxy in front of the server may have added a prefix to its paths, of which the server knows nothing.
            self._post_to(self._prefixed)
            self._prefixed = ""
            error = await self._sent(message, repeatable=repeatable)
            if error is None:
                self._note(PREFIX.problem.format(named, self._endpoint.url))
        if error is not None:
            raise error

    async def _sent(self, message: bytes, *, repeatable: bool) -> ServerError | None:
        """Send one message; return the error with which it was refused, or None.

        What the first message meets cannot be a lost session.
        """
        with await self._endpoint.send("POST", {}, message, repeatable=repeatable) as response:
            if response.status < 300:
                self._is_accepted = self._endpoint.in_session = True
                return None
            error = await self._endpoint.refusal(response, in_session=self._is_accepted)
            self.forgotten = isinstance(error, ConnectionLostError)
            if self._is_accepted or not _is_not_found(error):
                return error
            text = f"{self._endpoint.url}, which its event stream names for messages: {error.message}"
            return ProtocolError(text, server=self._server, code=INTERNAL_ERROR, data={"http_status": 404})

    def _post_to(self, url: str) -> None:
        self._endpoint = self._endpoint.at(url)

    def received_mark(self) -> object:
        """Return a value that changes whenever bytes of the server arrive."""
        return self._endpoint.received_mark()

    async def _next(self) -> ServerSentEvent | None:
        """Return the next event, or None at the end of the stream."""
        while not self._events:
            try:
                piece = await self._stream.piece()
                self._events.extend(self._parser.feed(piece))
            except TransportError as exc:
                self.failure = f"its event stream failed: {exc}"
                return None
            except ValueError:
                self.failure = too_large(self._settings.max_bytes).text
                return None
            if not piece:
                self.failure = "its event stream ended"
                return None
        return self._events.popleft()

    def _refused(self, what: str) -> ProtocolError:
        return ProtocolError(f"its event stream names {what}", server=self._server, code=INTERNAL_ERROR)


class SseWire(ChannelWire):
    """One conversation over HTTP+SSE: a POST that fails ends the request in it, not the conversation."""

    def __init__(
        self,
        settings: HttpSettings,
        channel: EventChannel,
        handlers: ClientHandlers,
        tasks: anyio.abc.TaskGroup,
        *,
        server: str,
        loss: Loss,
    ) -> None:
        super().__init__(channel, handlers, tasks, server=server, loss=loss)
        self._settings = settings
        self._stream = channel
        self._tasks = tasks

    def redact(self, text: str) -> str:
        """Mask the secrets of the config and the tokens that were sent last in a text of the server."""
        return self._settings.redact(text)

    def received_mark(self) -> object:
        """Return a value that changes whenever bytes of the server arrive."""
        return self._stream.received_mark()

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        schema: JsonObject | None = None,
        request_id: str | None = None,
        on_notification: OnNotification | None = None,
    ) -> Json:
        """Send a request and return its result as it came; see `Wire.request`."""
        try:
            return await super().request(
                method, params, schema=schema, request_id=request_id, on_notification=on_notification
            )
        except ProtocolError as exc:
            # only this module knows the tokens that callables made
            exc.mask(self._settings.redact)
            raise

    def _write(self, key: int | str, text: bytes) -> bool:
        # in another task: the response may arrive on the stream before that to the POST
        self._tasks.start_soon(self._post, key, text)
        return True

    async def _post(self, key: int | str, text: bytes) -> None:
        try:
            # a server that holds the POST may answer on the stream
            with anyio.move_on_after(_POST_SECONDS):
                await self._stream.post(text)
        except ServerError as exc:
            self.fail(key, exc)
            if self._stream.forgotten:
                self.end()


@asynccontextmanager
async def sse_wire(
    settings: HttpSettings, handlers: ClientHandlers, *, server: str, loss: Loss
) -> AsyncGenerator[SseWire, None]:
    """Open a wire over HTTP+SSE for as long as the block lasts.

    Raises:
        ServerError: The server does not support it, or refuses.
    """
    endpoint = HttpEndpoint(settings, server=server)
    try:
        with await endpoint.send("GET", {"accept": EVENTS}, repeatable=True, lasting=True) as stream:
            if not is_event_stream(stream):
                raise await endpoint.refusal(stream, in_session=False)
            endpoint.check_encoding(stream)
            channel = EventChannel(settings, endpoint, stream, server=server, note=handlers.on_repair)
            await channel.begin()

            def lost(sent: bool) -> ServerError:
                if channel.failure:
                    return ConnectionLostError(channel.failure, server=server, sent=sent)
                return loss(sent)

            async with anyio.create_task_group() as tasks:
                wire = SseWire(settings, channel, handlers, tasks, server=server, loss=lost)
                tasks.start_soon(wire.read)
                try:
                    yield wire
                finally:
                    tasks.cancel_scope.cancel()
    finally:
        endpoint.close()
