"""Our own `Wire` over Streamable HTTP: one POST per request, no task and no queue on the way of a call.

Speaks both eras (sessions and stateless). A fault of one request stays with that request.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import anyio
import anyio.abc
import msgspec

from toolweave._json import decode_json
from toolweave._json_types import Json, JsonObject, as_object, as_text, object_or_empty, without_none
from toolweave.connect._http_errors import HttpSettings, http_error, not_json
from toolweave.connect._repairs import CONTENT_TYPE
from toolweave.connect._session import UNCANCELLABLE, ClientHandlers, Loss, OnNotification
from toolweave.connect._wire.dispatcher import IncomingDispatcher
from toolweave.connect._wire.endpoint import EVENTS, JSON, HttpEndpoint
from toolweave.connect._wire.era_check import EraCheck
from toolweave.connect._wire.event_streams import EventStreams
from toolweave.connect._wire.odd_bodies import messages_in
from toolweave.connect._wire.posted import HttpCall, PostedCall, PostedRequest, posted_result, posted_text
from toolweave.connect._wire.request_encoder import request_text
from toolweave.connect._wire.responses import invalid, result_of
from toolweave.errors import AuthRequiredError, ConnectionLostError, ProtocolError, ServerError
from toolweave.http import Response, SharedHeaders, Socket, TransportError
from toolweave.protocol import methods
from toolweave.protocol.headers import (
    NAME_PARAMETERS,
    Mirrored,
    argument_headers,
    encode_value,
    mirrored_arguments,
    mirroring_problem,
)
from toolweave.protocol.jsonrpc import VERSION_MEMBER, encode_notification
from toolweave.protocol.lenient_messages import (
    BEFORE_JSON,
    LenientMessage,
    RawResult,
    decode_lenient,
    decode_raw_result,
    is_json,
    may_answer,
    own_id,
    without_deep_entries,
)
from toolweave.protocol.meta import PROTOCOL_VERSION

_MAX_KNOWN = 1_000


class _KnownHeaders(msgspec.Struct, gc=False):
    """The headers of all requests of one method, or of all calls of one tool, with the arguments that are mirrored."""

    shared: SharedHeaders
    schema: JsonObject | None
    mirrored: Mirrored


class HeaderFactory:
    """The factory of the headers of modern requests; those that are equal in all calls of a tool are made once.

    Why they are right: they depend on the revision, the method and the name, by which they are found, and on the
    schema, which is compared. A list that is read again brings new schemas.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str | None], _KnownHeaders] = {}

    def of(self, method: str, params: JsonObject, revision: str, schema: JsonObject | None) -> Mapping[str, str]:
        """Return the headers of one request; `schema` is the input schema of the tool that it calls, if known."""
        name = params.get(NAME_PARAMETERS.get(method, ""))
        key = (revision, method, name if isinstance(name, str) else None)
        known = self._known.get(key)
        if known is None or known.schema is not schema:
            # Names that no tool has would fill the memory without the bound.
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = _known_headers(*key, schema)
        if not known.mirrored:
            return known.shared
        return known.shared | argument_headers(known.mirrored, params.get("arguments"))


def _known_headers(revision: str, method: str, name: str | None, schema: JsonObject | None) -> _KnownHeaders:
    shared = SharedHeaders({"mcp-protocol-version": revision, "mcp-method": method})
    if name is not None:
        shared["mcp-name"] = encode_value(name)
    return _KnownHeaders(shared, schema, () if schema is None else mirrored_arguments(schema))


_log = logging.getLogger("toolweave.connect")
_INITIALIZED = methods.NOTIFICATIONS_INITIALIZED
_COURTESY_SECONDS = 1.0
_NOTICE_SECONDS = 30.0
_LASTING = methods.SUBSCRIPTIONS_LISTEN


class HttpWire:
    """One conversation over Streamable HTTP.

    Attributes:
        over: Whether the conversation is over.
        late_answers: The number of answers to no pending request.
        has_streams: Whether each answer has headers and a stream.
    """

    has_streams: ClassVar[bool] = True

    def __init__(
        self,
        settings: HttpSettings,
        endpoint: HttpEndpoint,
        handlers: ClientHandlers,
        tasks: anyio.abc.TaskGroup,
        *,
        server: str,
        loss: Loss,
    ) -> None:
        self.over = False
        self.late_answers = 0
        self._settings = settings
        self._note = handlers.on_repair
        self._endpoint = endpoint
        self._tasks = tasks
        self._server = server
        self._loss = loss
        self._incoming = IncomingDispatcher(handlers, tasks, self._reply, server=server)
        self._streams = EventStreams(
            settings,
            endpoint,
            handle=self._handle_text,
            refused=self._refused,
            handlers=handlers,
            check_session=self._check_session,
            headers=self._session_headers,
            server=server,
        )
        self._era = EraCheck(self._check_request)
        self._listeners: dict[int | str, OnNotification | None] = {}
        self._posted: dict[int | str, PostedCall] = {}
        self._closed = False
        self._loop = asyncio.get_running_loop()  # asking for it costs a system call, on Python 3.11
        self._ids = itertools.count(1)
        self._over = anyio.Event()
        self._revision: str | None = None
        self._stateless = False
        self._process = os.getpid()
        self._session: str | None = None
        self._modern = HeaderFactory()
        self._in_session = SharedHeaders()

    def redact(self, text: str) -> str:
        """Mask the secrets of the config and the tokens that were sent last in a text of the server."""
        return self._settings.redact(text)

    def received_mark(self) -> object:
        """Return a value that changes whenever bytes of the server arrive."""
        return self._endpoint.received_mark()

    # Wire

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
        if self.over:
            raise self._loss(False)
        key = next(self._ids) if request_id is None else request_id
        text = request_text(key, method, params)
        if method == methods.INITIALIZE:  # the probe's headers no longer apply
            self._enter(None, None)
        headers = self._headers(method, params, schema)
        self._listeners[key] = on_notification
        try:
            return await self._exchange(key, method, headers, text)
        finally:
            del self._listeners[key]

    async def _exchange(
        self, key: int | str, method: str, headers: Mapping[str, str], text: bytes, begun: Socket | None = None
    ) -> Json:
        """Send a request and return its result; `begun` is the connection on which it was sent already."""
        initializes = method == methods.INITIALIZE
        response: Response | None = None
        try:
            response = await self._endpoint.send(
                "POST", headers, text, repeatable=method != methods.TOOLS_CALL, lasting=method == _LASTING, begun=begun
            )
            if initializes:
                self._enter(response.headers.get("mcp-session-id"), None)
            result = await self._answer(response, key, method)
        except asyncio.CancelledError:
            # A modern server is notified by the end of the stream.
            if "mcp-method" not in headers and not self.over:
                self._cancel_soon(key, method)
            raise
        except ProtocolError as exc:
            exc.mask(self._settings.redact)  # only this module knows the tokens that callables made
            if method not in UNCANCELLABLE:
                await self._check_era(exc, response, method, text)
            raise
        finally:
            if response is not None and response.body is None:
                response.close()
        if initializes:
            self._enter(self._session, as_text(result.get("protocolVersion")))
        else:
            self._era.due_at = 0.0
        return result

    # calls that are sent at once

    def post(self, members: bytes, call: HttpCall | None = None) -> PostedRequest | None:
        """Send a call of a tool on an idle connection at once; see `PostsCalls`."""
        if self.over or call is None:
            return None
        key = next(self._ids)
        if call.revision is None:
            headers: Mapping[str, str] = self._in_session
        else:
            self._stateless = True
            headers = self._modern.of(methods.TOOLS_CALL, {"name": call.name}, call.revision, call.schema)
        text = posted_text(key, members)
        answer: asyncio.Future[Any] = self._loop.create_future()
        posted = PostedCall(self._read_at_once, self._continue, key, headers, text, answer)
        posted.socket = self._endpoint.begin(headers, text, posted.note_news)
        if posted.socket is None:
            return None
        self._posted[key] = posted
        self._listeners[key] = call.on_notification
        return key, answer

    def renew(self, key: int | str) -> asyncio.Future[Any]:
        """Return a future for the outcome of a posted call, which replaces an earlier one."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        posted = self._posted.get(key)
        if posted is not None:
            posted.answer = answer
        return answer

    def result_in(self, answer: RawResult | Json) -> Json:
        """Return the result in the answer to a posted call; see `posted_result`."""
        return posted_result(answer, self._server)

    def forget(self, key: int | str) -> None:
        """Forget a posted call that was answered."""
        self._posted.pop(key, None)
        self._listeners.pop(key, None)

    async def give_up(self, key: int | str, method: str) -> None:
        """Cancel a posted call at the server, and forget it."""
        posted = self._posted.get(key)
        self.forget(key)
        if posted is None:
            return
        if posted.scope is not None:
            posted.scope.cancel()
            return
        # Nobody reads the answer but the call itself, so its connection ends with it, which notifies a modern server.
        socket = posted.unanswered()
        if socket is not None:
            socket.on_news = None
            self._endpoint.abandon(socket)
            if "mcp-method" not in posted.headers and not self.over:
                self._cancel_soon(key, method)

    def _read_at_once(self, posted: PostedCall, socket: Socket) -> RawResult | None:
        """Return the result in an answer that has arrived whole, and return its connection; None for any other answer.

        All that is not the plain answer of a server that keeps to the specification is read by `_answer`.
        """
        head = socket.head
        if head.status != 200 or head.cookies:
            return None
        if "content-encoding" in head.headers:
            return None
        if not head.headers.get("content-type", "").lower().startswith(JSON):
            return None
        body = socket.pieces[0] if len(socket.pieces) == 1 else b"".join(socket.pieces)
        if len(body) > self._settings.max_bytes:
            return None
        raw = decode_raw_result(body)
        if raw is None or raw.id != posted.key:
            return None
        socket.drain()
        self._endpoint.release(socket)
        self._era.due_at = 0.0
        return raw

    def _continue(self, posted: PostedCall, socket: Socket) -> None:
        """Read the answer of a posted call in a task, or send it again where that is safe, as for any request."""
        if self._closed:  # no task can be started any more, and `end` has failed the call
            return
        scope = posted.scope = anyio.CancelScope()
        self._tasks.start_soon(self._finish, posted, socket, scope)

    async def _finish(self, posted: PostedCall, socket: Socket, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                result = await self._exchange(posted.key, methods.TOOLS_CALL, posted.headers, posted.text, socket)
            except ServerError as exc:
                posted.fail(exc)
            else:
                posted.succeed(result)

    # the era

    async def _check_era(self, refusal: ProtocolError, response: Response | None, method: str, text: bytes) -> None:
        """End the conversation if a request was refused because another version of the server has another era.

        Raises:
            ConnectionLostError: It has. A server that refuses a request with a status below 500 has not begun it.
        """
        if response is None:
            return
        status = response.status
        params = object_or_empty(object_or_empty(decode_json(text)).get("params"))
        if await self._era.is_other_era(refusal, status, method, params):
            self._end()
            why = f"the server does not speak the protocol revision of this connection any more: {refusal.message}"
            raise ConnectionLostError(why, server=self._server, sent=status >= 500) from None

    async def _check_request(self, method: str, params: JsonObject) -> tuple[int, JsonObject | ProtocolError]:
        """Send a request of a check of the era; return the status, and the result or the refusal."""
        key = next(self._ids)
        headers = self._headers(method, params, None)
        with await self._endpoint.send("POST", headers, request_text(key, method, params), repeatable=True) as response:
            try:
                return response.status, await self._answer(response, key, method)
            except ProtocolError as exc:
                return response.status, exc

    async def _check_session(self) -> None:
        """End the conversation if the session is refused."""
        if await self._era.refuses_session():
            self._end()

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification; nothing is raised when the server is gone.

        Raises:
            AuthRequiredError: The last message of the handshake was refused for want of credentials.
        """
        try:
            await self._post(encode_notification(method, params), self._headers(method, params, None))
        except AuthRequiredError as exc:
            if method == _INITIALIZED:
                raise
            self._log_refused(method, exc)
        except ServerError as exc:
            self._log_refused(method, exc)
        if method == _INITIALIZED and self._session is not None:
            self._tasks.start_soon(self._streams.listen, self._over.is_set)

    def _log_refused(self, method: str, exc: ServerError) -> None:
        _log.debug("server %r: a notification %r was not accepted: %s", self._server, method, exc)

    async def ended(self) -> None:
        """Wait until the conversation ends otherwise than by our own closing."""
        await self._over.wait()

    def refusal(self, schema: JsonObject) -> str | None:
        """Return why a tool with this input schema must not be offered over HTTP (SEP-2243), or None."""
        found = mirroring_problem(schema)
        if found is None:
            return None
        return found[0]

    async def end(self) -> None:
        """Mark the conversation as over and end the session on the server; bounded."""
        gone = self.over
        self._closed = True
        self._end()
        for posted in self._posted.values():
            posted.fail(self._loss(True))
        if self._session is None or gone:
            return
        with anyio.CancelScope(shield=True):
            await self._leave(self._in_session)

    # out

    async def _post(self, text: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that has no answer, within a separate bound."""
        with anyio.move_on_after(_NOTICE_SECONDS):
            with await self._endpoint.send("POST", headers, text, repeatable=True) as response:
                if response.status >= 400:
                    raise await self._refused(response)

    async def _reply(self, text: bytes) -> None:
        try:
            await self._post(text, self._session_headers())
        except ServerError as exc:
            raise OSError(str(exc)) from None

    def _cancel_soon(self, key: int | str, method: str) -> None:
        """Cancel a request at a legacy server, if its method may be cancelled."""
        if method not in UNCANCELLABLE:
            self._tasks.start_soon(self._cancel, key)

    async def _cancel(self, key: int | str) -> None:
        """Cancel the request at a legacy server."""
        await self.notify(methods.NOTIFICATIONS_CANCELLED, {"requestId": key, "reason": "the caller gave up"})

    def _headers(self, method: str, params: JsonObject, schema: JsonObject | None) -> Mapping[str, str]:
        meta = as_object(params.get("_meta"))
        if meta is not None:
            revision = meta.get(PROTOCOL_VERSION)
        else:
            revision = None
        if not isinstance(revision, str):
            return self._in_session
        self._stateless = True
        return self._modern.of(method, params, revision, schema)

    def _session_headers(self) -> Mapping[str, str]:
        return self._in_session

    def forget_session(self) -> None:
        """End a session that a late answer to `initialize` opened, when the conversation turns out to have none."""
        if self._session is not None:
            self._tasks.start_soon(self._leave, self._in_session)
        self._enter(None, None)

    async def _leave(self, headers: Mapping[str, str]) -> None:
        if self._process != os.getpid():  # a forked process ends nothing of its parent
            return
        with anyio.move_on_after(_COURTESY_SECONDS):
            try:
                (await self._endpoint.send("DELETE", headers)).close()
            except ServerError as exc:
                _log.debug("server %r: its session was not ended: %s", self._server, exc)

    def _enter(self, session: str | None, revision: str | None) -> None:
        self._session = session
        self._revision = revision
        self._stateless = False
        named = {"mcp-session-id": session, "mcp-protocol-version": revision}
        self._in_session = SharedHeaders(without_none(named))

    def _end(self) -> None:
        self.over = True
        self._over.set()

    # in

    async def _answer(self, response: Response, key: int | str, method: str) -> Json:
        head = response.head
        if head.status != 200:
            await self._check_status(response)
        kind = head.headers.get("content-type", "").lower()
        if not kind.startswith(JSON):
            if kind.startswith(EVENTS):
                result = await self._streams.answer(response, key, method, resumable=self._revision is not None)
            else:
                result = await self._mislabelled(response, kind, key, method)
            response.finish()  # a stream still owes its last chunk
            return result
        body = response.body
        # A body that has arrived as a whole, and is neither compressed nor too large, is read without waiting.
        if body is None or "content-encoding" in head.headers or len(body) > self._settings.max_bytes:
            body = await self._body(response)
        try:
            result = self._handle_text(body.removeprefix(BOM_UTF8), key, method)
        except ValueError as exc:
            if is_json(body):
                raise invalid(self._server, str(exc)) from None
            result = self._handle_odd(body, key, method)
            if result is not None:
                return result
            raise http_error(not_json(self._settings, head.status, body), server=self._server) from None
        if result is None:
            raise invalid(self._server, "it answers another request")
        return result

    async def _check_status(self, response: Response) -> None:
        """Raise the error of a status that comes with no answer."""
        head = response.head
        if head.status in (202, 204):
            text = f"the answer did not come: server answered a request with {head.status} {head.reason}"
            raise ConnectionLostError(text.strip(), server=self._server, sent=True)
        if head.status >= 300:
            raise await self._refused(response)

    async def _body(self, response: Response) -> bytes:
        """Return a body that arrives in parts, is compressed, or is too large, which is an error."""
        self._endpoint.check_encoding(response)
        try:
            return await response.read(self._settings.max_bytes)
        except TransportError as exc:
            raise self._endpoint.error(exc) from None

    async def _mislabelled(self, response: Response, kind: str, key: int | str, method: str) -> Json:
        """Return the result in an answer with another content type, if its body is the answer to this request."""
        body = await self._endpoint.odd_body(response)
        text = body.removeprefix(BOM_UTF8).lstrip(BEFORE_JSON)
        if VERSION_MEMBER in text:
            result: Json | None = None
            if text[:1] in (b"{", b"["):
                with suppress(ValueError):
                    result = self._handle_text(text, key, method)
            if result is None:
                result = self._handle_odd(text, key, method)
            if result is not None:
                self._note(CONTENT_TYPE.problem.format(kind[:100]))
                return result
        raise self._endpoint.odd_answer(response, body)

    def _handle_odd(self, body: bytes, key: int | str, method: str) -> Json | None:
        """Handle a body that is not one JSON text; return the result in it that answers `key`, if it holds that."""
        for repair, texts in messages_in(body):
            result: Json | None = None
            for text in texts:
                with suppress(ValueError):
                    result = self._handle_text(text, key, method) or result
            if result is not None:
                self._note(repair.problem)
                return result
        return None

    def _handle_text(self, text: bytes, key: int | str | None, method: str) -> Json | None:
        """Handle one JSON text; return the result that answers `key`, if it holds that.

        Raises:
            ValueError: The text is not a JSON-RPC message.
            ProtocolError: The response is an error, or invalid.
        """
        try:
            messages = decode_lenient(text)
        except RecursionError:
            if key is None or not may_answer(text, key):
                self.late_answers += 1
                return None
            try:
                messages = decode_lenient(without_deep_entries(text) if method.endswith("/list") else text)
            except RecursionError:
                raise invalid(self._server, "it is nested too deeply") from None
        answer: LenientMessage | None = None
        for message in messages:
            if message.method is not msgspec.UNSET:
                listener = None if key is None else self._listeners.get(key)
                self._incoming.dispatch(message, answerable=not self._stateless, listener=listener)
            elif key is None or not _answers(message, key):
                self.late_answers += 1
            else:
                answer = message
        if answer is not None:
            return result_of(answer, self._server, self._note)
        return None

    async def _refused(self, response: Response, *, ends: bool = True) -> ServerError:
        """Return the error of a response with an HTTP error status, or without an answer."""
        error = await self._endpoint.refusal(response, in_session=self._session is not None)
        if ends and isinstance(error, ConnectionLostError):
            self._end()
        return error


@asynccontextmanager
async def http_wire(
    settings: HttpSettings, handlers: ClientHandlers, *, server: str, loss: Loss
) -> AsyncGenerator[HttpWire, None]:
    """Open a wire over Streamable HTTP for as long as the block lasts."""
    endpoint = HttpEndpoint(settings, server=server)
    try:
        async with anyio.create_task_group() as tasks:
            wire = HttpWire(settings, endpoint, handlers, tasks, server=server, loss=loss)
            try:
                yield wire
            finally:
                tasks.cancel_scope.cancel()
                await wire.end()
    finally:
        endpoint.close()


def _answers(message: LenientMessage, key: int | str) -> bool:
    """Whether an answer is the one to a request; some servers turn ids into strings or leave them out of errors."""
    if message.id == key:
        return True
    if message.id is None or message.id is msgspec.UNSET:
        return message.error is not msgspec.UNSET  # of a request that the server could not read
    return own_id(message.id) == key
