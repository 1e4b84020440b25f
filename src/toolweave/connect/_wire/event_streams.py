"""The event streams of one conversation: answers, resumption, and the session's own stream.

Resumption belongs to the legacy revisions (SEP-1699). Knows nothing of the messages' meaning.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio

from toolweave._backoff import backoff
from toolweave._json_types import Json
from toolweave.connect._http_errors import HttpSettings, http_error, too_large
from toolweave.connect._session import ClientHandlers
from toolweave.connect._wire.endpoint import EVENTS, HttpEndpoint
from toolweave.connect._wire.odd_bodies import ODD_STREAM, is_answer
from toolweave.errors import AuthRequiredError, ConnectionLostError, ProtocolError, ServerError, printable
from toolweave.http import BodyError, Response, TransportError
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.lenient_messages import answer_id, own_id
from toolweave.protocol.sse import EventParser, ServerSentEvent

_log = logging.getLogger("toolweave.connect")
_BROKEN = "its event stream holds an event that is not a JSON-RPC message"
_RETRY_SECONDS = 1.0
_MIN_RETRY_SECONDS = 0.05
_MAX_RETRY_SECONDS = 30.0
_SPREAD = (0.75, 1.25)
_MAX_RESUMPTIONS = 3
_NO_SUCH_STREAM = 405
_ENDS = (b"}", b"}\n", b"}\r\n")
_END_SECONDS = 1.0
"""The wait for the end of an event that is a whole answer."""
_MAX_RESTS = 16
_MAX_REST = 1024 * 1024
"""Readings of events that have not ended, in one stream, and the bytes of such an event: each reading costs as much as
the event, and nothing else runs meanwhile."""

HandleText = Callable[[bytes, int | str | None, str], Json | None]
"""Handles one message; returns the result for the request of the given id and method, if it holds that."""
MakeRefusal = Callable[..., Awaitable[ServerError]]
"""Makes the error of an answer with an HTTP error status; with `ends` false it never ends the conversation."""


class EventStreams:
    """The reader of one server's event streams.

    `headers` returns the headers of the session; `handlers.on_gap` is called when the session's own stream continues
    after a gap that cannot be replayed; `check_session` ends the conversation if its session is refused.
    """

    def __init__(
        self,
        settings: HttpSettings,
        endpoint: HttpEndpoint,
        *,
        handle: HandleText,
        refused: MakeRefusal,
        handlers: ClientHandlers,
        check_session: Callable[[], Awaitable[None]],
        headers: Callable[[], Mapping[str, str]],
        server: str,
    ) -> None:
        self._note = handlers.on_repair
        self._settings = settings
        self._endpoint = endpoint
        self._handle = handle
        self._refused = refused
        self._missed = handlers.on_gap
        self._check_session = check_session
        self._headers = headers
        self._server = server

    async def answer(self, response: Response, key: int | str, method: str, *, resumable: bool) -> Json:
        """Return the result from the event stream of a response, or from the streams that resume it.

        Raises:
            ConnectionLostError: The stream ends without the result.
            ProtocolError: The response is an error, or the data is not a message.
        """
        parser = EventParser(self._settings.max_bytes)
        result, cause = await self._read(response, parser, key, method)
        failures = 0
        while result is None:
            response.close()  # a connection that waits for its successor would be one too many
            # Without an event id the server cannot replay (resumability: the id is the cursor of that stream), and
            # asking again could call the tool twice.
            if parser.last_id is None or not resumable:
                raise self._lost(cause)
            if failures >= _MAX_RESUMPTIONS:
                raise self._lost(cause)
            await anyio.sleep(delay(parser, failures))
            before = parser.last_id
            parser = parser.resumed()
            try:
                with await self._open(parser.last_id) as resumed:
                    result, cause = await self._read(resumed, parser, key, method)
                # Progress is a new id, not a connection that could be opened: a server that closes each stream at once
                # would otherwise be asked for ever (SEP-1699 makes closing early legal, as polling).
                failures = 0 if parser.last_id != before else failures + 1
            except _Refusal as exc:
                failures = failures + 1
                cause = f"could not be resumed: {exc.error.message}"
                # 404 or 400: the session or the events are gone, and no repetition brings them back.
                if not exc.passing:
                    raise self._lost(cause) from None
            except ConnectionLostError as exc:
                failures = failures + 1
                cause = f"could not be resumed: {exc.message}"
        return result

    async def listen(self, over: Callable[[], bool]) -> None:
        """Keep the session's own stream open, on which a legacy server sends unrelated messages, until `over`."""
        parser = EventParser(self._settings.max_bytes)
        failures = 0
        opened = gap = False
        while not over():
            parser = parser.resumed()
            before = parser.last_id
            try:
                with await self._open(parser.last_id, lasting=True, ends=opened) as stream:
                    opened = True
                    # No id, so nothing is replayed: notifications may have been lost, and tracked lists are read again.
                    # With an id the server replays them.
                    if gap and before is None:
                        self._missed()
                    await self._read(stream, parser, None, "")
                # a server that only ever closes it is asked less and less often
                if parser.taken or parser.last_id != before:
                    failures = 0
                else:
                    failures = failures + 1
            except _Refusal as exc:
                # 405 means that it does not offer such a stream (Streamable HTTP, listening for messages), which it
                # may. A stream that worked before is tried again also after a 4xx: a proxy may be restarting.
                is_temporary = opened or exc.passing
                if exc.final or not is_temporary:
                    # a server that has no such stream any more may be another version, without sessions
                    if opened:
                        await self._check_session()
                    if isinstance(exc.error, AuthRequiredError):
                        level = logging.WARNING
                    else:
                        level = logging.DEBUG
                    reason = printable(exc.error.message)
                    _log.log(level, "server %r: no stream for its notifications: %s", self._server, reason)
                    return
                failures += 1
            except ServerError as exc:
                _log.debug("server %r: its stream broke off: %s", self._server, printable(exc.message))
                failures += 1
            gap = True
            await anyio.sleep(delay(parser, failures))

    async def _open(self, last_id: str | None, *, lasting: bool = False, ends: bool = True) -> Response:
        headers = {**self._headers(), "accept": EVENTS}
        if last_id is not None:
            headers["last-event-id"] = last_id
        response = await self._endpoint.send("GET", headers, repeatable=True, lasting=lasting)
        if is_event_stream(response):
            return response
        with response:
            error = await self._refused(response, ends=ends)
        # For an answer that somebody waits for, credentials are the cause to be shown. The session's own stream waits
        # for nobody.
        if isinstance(error, AuthRequiredError) and not lasting:
            raise error
        raise _Refusal(error, response.status)

    async def _read(
        self, response: Response, parser: EventParser, key: int | str | None, method: str
    ) -> tuple[Json | None, str]:
        """Read events until the answer to `key`; return it, or the reason why it did not arrive."""
        self._endpoint.check_encoding(response)
        cause = "ended without a response"
        may_be_over = False
        while True:
            try:
                piece = await _next_piece(response, may_be_over=may_be_over)
                events = parser.feed(piece)
            except BodyError as exc:
                raise self._endpoint.error(exc) from None
            except TransportError as exc:
                return None, f"failed: {exc}"
            except ValueError:
                raise http_error(too_large(self._settings.max_bytes), server=self._server) from None
            for event in events:
                try:
                    result = self._result_of_event(event, key, method)
                # One broken event is not the end of a stream that others still wait on.
                except ValueError:  # the answer may still come
                    cause = _BROKEN
                    _log.debug("server %r: an event that is not a JSON-RPC message was skipped", self._server)
                    continue
                if result is not None:
                    return result, ""
            if not piece:
                return self._odd_result(parser.rest(), key, method), cause
            may_be_over = False
            if key is not None:
                may_be_over = _ends_with_answer(piece, events, parser)

    def _result_of_event(self, event: ServerSentEvent, key: int | str | None, method: str) -> Json | None:
        if event.type == "message":
            return self._result_in(event.data, key, method)
        return self._odd_result(event.data, key, method)

    def _odd_result(self, text: bytes, key: int | str | None, method: str) -> Json | None:
        """Return the result in a text that is not a message of the stream, if it is the whole answer to a request."""
        if key is None:
            return None
        if not is_answer(text):
            return None
        result = self._result_in(text, key, method)
        if result is not None:
            self._note(ODD_STREAM.problem)
        return result

    def _result_in(self, text: bytes, key: int | str | None, method: str) -> Json | None:
        try:
            return self._handle(text, key, method)
        except ValueError:
            named = answer_id(text)
            if key is None or named is None:
                raise
            # It was the very answer: there will be no other, so the wait ends now instead of at its timeout.
            if own_id(named) == key:
                raise self._lost(_BROKEN) from None
            raise

    def _lost(self, cause: str) -> ServerError:
        if cause is _BROKEN:
            return ProtocolError(cause, server=self._server, code=INTERNAL_ERROR)
        return ConnectionLostError(f"the answer did not come: SSE stream {cause}", server=self._server, sent=True)


def is_event_stream(response: Response) -> bool:
    """Return whether a response is an event stream."""
    kind = response.headers.get("content-type", "").lower()
    return response.status == 200 and kind.startswith(EVENTS)


async def _next_piece(response: Response, *, may_be_over: bool) -> bytes:
    """Return the next piece of a stream; b"" at its end, or if nothing follows an answer that is whole."""
    if not may_be_over:
        return await response.piece()
    with anyio.move_on_after(_END_SECONDS):
        return await response.piece()
    return b""


def _ends_with_answer(piece: bytes, events: Sequence[ServerSentEvent], parser: EventParser) -> bool:
    """Return whether the event that has not ended is a whole answer.

    Some servers leave the stream open without the empty line behind the answer. Others write the line by itself, so it
    is waited for.
    """
    if events:
        return False
    if not piece.endswith(_ENDS):
        return False
    if parser.rests >= _MAX_RESTS:
        return False
    rest = parser.rest()
    if len(rest) > _MAX_REST:
        return False
    return is_answer(rest)


class _Refusal(Exception):
    """A GET was answered, but not by a stream: `passing` if another one may be, `final` if never."""

    def __init__(self, error: ServerError, status: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.passing = status >= 500 or status == 429
        self.final = status == _NO_SUCH_STREAM or isinstance(error, ConnectionLostError)


def delay(parser: EventParser, failures: int) -> float:
    """Return the seconds before the next attempt: the server's `retry`, doubled by each failure, with jitter."""
    if parser.retry_seconds is None:
        wanted = _RETRY_SECONDS
    else:
        wanted = max(parser.retry_seconds, _MIN_RETRY_SECONDS)
    if not failures:
        return wanted
    chance = random.random()  # noqa: S311 - spreads retries, guards nothing
    return max(wanted, backoff(failures + 1, first=wanted, longest=_MAX_RETRY_SECONDS, spread=_SPREAD, chance=chance))
