"""Requests over HTTP: each POST is read, checked and dispatched by its era; this module answers the modern ones.

`fast_path.py` stands before it and answers plain calls; `legacy.py` answers the requests of the legacy era. The order
of the checks is part of the behaviour, since the first that fails gives the error: size, JSON, scopes, `Accept`, the
headers that repeat the body, the envelope. Imports no SDK, no framework and no model library.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec

from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from toolweave.protocol.headers import NAME_PARAMETERS, Mirrored, argument_mismatch, decode_value
from toolweave.protocol.jsonrpc import (
    MalformedMessage,
    RequestId,
    StrictMessage,
    decode_strict,
)
from toolweave.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolweave.protocol.versions import BATCHING_VERSION, HANDSHAKE_VERSIONS, MODERN_VERSION
from toolweave.serve._auth.gate import OperationGate
from toolweave.serve._auth.middleware import identity_of, may_of
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._envelope import checked_envelope, client_of, has_envelope, unsupported_version
from toolweave.serve._http.accept import accepts_events, accepts_json
from toolweave.serve._http.asgi import (
    SENT,
    Headers,
    Receive,
    Scope,
    Send,
    VisibleHeaders,
    read_body,
    respond,
)
from toolweave.serve._http.batch import MOST, answer_batch
from toolweave.serve._http.deciding_headers import ROUTING, first_repeated
from toolweave.serve._http.fast_path import FastPath
from toolweave.serve._http.legacy import LegacyHttp
from toolweave.serve._http.response import HTTP_STATUS, PostResponse, ResponseLimits, respond_error, respond_late_body
from toolweave.serve._http.shares import PLACE, RETRY_SECONDS, EndpointRequests, Place, RunningRequests, note_stream
from toolweave.serve._messages import answerable_id
from toolweave.serve._task_spawner import SpawnsTasks
from toolweave.serve.request import Json, Request

_POLL_SECONDS = 0.02
_LAST_SECONDS = 2.0


class CallerMustWait(Exception):
    """A private signal: the caller of a request has to wait.

    Attributes:
        status: The HTTP status.
        reason: The reason.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def check(
    method: str,
    params: Mapping[str, Any],
    headers: Headers,
    raw: Sequence[tuple[bytes, bytes]],
    versions: Sequence[str],
) -> None:
    """Check a request: its routing headers, then its envelope.

    Args:
        method: The message's method.
        params: Its parameters.
        headers: The headers, without white space around their values.
        raw: The headers as received, repetitions included.
        versions: The revisions that are served.

    Raises:
        RequestError: A header contradicts the body, is missing or repeated (-32020); the envelope is incomplete
            (-32602), or of an unsupported revision (-32022).
    """
    twice = first_repeated(raw, ROUTING)
    if twice is not None:  # two readers might choose differently
        raise RequestError(f"the header {twice.decode()} appears more than once", code=HEADER_MISMATCH)
    meta: Any = params.get("_meta")
    if not isinstance(meta, dict) or PROTOCOL_VERSION not in meta or CLIENT_CAPABILITIES not in meta:
        raise RequestError(
            f"params._meta must have {PROTOCOL_VERSION!r} and {CLIENT_CAPABILITIES!r}", code=INVALID_PARAMS
        )
    version = headers.get(b"mcp-protocol-version")
    if version is None or version.decode("latin-1") != meta[PROTOCOL_VERSION]:
        raise _mismatch("mcp-protocol-version", f"params._meta[{PROTOCOL_VERSION!r}]")
    if headers.get(b"mcp-method", b"").decode("latin-1") != method:
        raise _mismatch("mcp-method", "the method")
    named = NAME_PARAMETERS.get(method)
    if named is not None:
        value = params.get(named)
        # a name of another type is refused by its method, as invalid parameters: no header could repeat it
        if isinstance(value, str) and decode_value(headers.get(b"mcp-name")) != value:
            raise _mismatch("mcp-name", f"params.{named}")
    checked_envelope(params, versions)


def _mismatch(header: str, what: str) -> RequestError:
    return RequestError(f"the header {header} is missing or differs from {what}", code=HEADER_MISMATCH)


_VERSION = MODERN_VERSION.encode()
_BATCHING = BATCHING_VERSION.encode()
_HANDSHAKE = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)


class ParsedRequest(msgspec.Struct, frozen=True, eq=False):
    """A request of the modern era that was read and checked.

    Attributes:
        id: The JSON-RPC id.
        method: The method.
        params: Its parameters, whose `_meta` has a valid envelope.
    """

    id: RequestId
    method: str
    params: Json


class HttpDispatcher:
    """Answers the requests to the endpoint's path.

    Args:
        endpoint: Answers the requests.
        legacy: Answers the requests of the legacy era.
        tasks: Where disconnected clients are watched for; lives as long as the server.
        mirrored: Returns the arguments of a tool that its callers mirror into headers, by the tool's name.
        gate: Refuses operations that a token lacks scopes for.
        bounds: The timeouts, and the maximum length of a body.
        places: The places of the requests that run in the app.
        streams: Whether responses may be event streams.

    Attributes:
        requests: The requests that run; its end cancels them.
        fast_path: Answers plain calls before they reach the dispatcher, or None.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        legacy: LegacyHttp,
        tasks: SpawnsTasks,
        *,
        mirrored: Callable[[str], Mirrored],
        gate: OperationGate,
        bounds: ResponseLimits,
        places: RunningRequests,
        streams: bool = True,
    ) -> None:
        self._endpoint = endpoint
        self._legacy = legacy
        self._tasks = tasks
        self._mirrored = mirrored
        self._gate = gate
        self._streams = streams
        self._bounds = bounds
        self.requests: EndpointRequests = EndpointRequests(places)
        self.fast_path: FastPath | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request for the endpoint."""
        place = self.requests.places.enter(scope)
        if place is None:
            await self._refuse_busy(scope, send)
            return
        with anyio.CancelScope() as work:
            self.requests.running.add(work)
            try:
                if scope["method"] == "POST":
                    await self._post(scope, receive, send, work)
                else:
                    await self._other(_stripped(scope), receive, send, work)
            finally:
                place.leave()
                self.requests.running.discard(work)

    @property
    def server_info(self) -> Mapping[str, Any]:
        """The server's `Implementation` object."""
        return self._endpoint.info

    @contextmanager
    def working(self, scope: Scope) -> Generator[anyio.CancelScope]:
        """Count the block among the running requests, for those that another app receives and `answer` answers.

        Raises:
            CallerMustWait: The caller has to wait.
        """
        place = self.requests.places.enter(scope)
        if place is None:
            raise CallerMustWait(*self.requests.places.refusal(scope))
        with anyio.CancelScope() as work:
            self.requests.running.add(work)
            try:
                yield work
            finally:
                place.leave()
                self.requests.running.discard(work)

    async def _refuse_busy(self, scope: Scope, send: Send, *, member: RequestId | None = None) -> None:
        """Refuse a request whose caller has to wait; the status is that of the batch, if it is a member of one."""
        status, reason = self.requests.places.refusal(scope)
        data = {"retryable": True, "retryAfterMs": RETRY_SECONDS * 1000}
        error = RequestError(reason, code=INTERNAL_ERROR, data=data)
        headers = [(b"retry-after", b"%d" % RETRY_SECONDS)]
        await respond_error(send, status if member is None else 200, member, error, headers)

    def end_streams(self) -> None:
        """End the streams of notifications: their clients reconnect elsewhere."""
        self._legacy.end_streams()

    def abort(self) -> None:
        """Cancel all requests that still run."""
        for work in list(self.requests.running):
            work.cancel()

    async def finish(self, seconds: float) -> None:
        """End idle streams, and give the running requests some seconds to finish before they are cancelled."""
        self.end_streams()
        with anyio.move_on_after(seconds):
            while self.requests.running:
                await anyio.sleep(_POLL_SECONDS)
        self.abort()
        with anyio.move_on_after(_LAST_SECONDS):
            while self.requests.running:
                await anyio.sleep(_POLL_SECONDS)

    async def _other(self, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope) -> None:
        """Serve a request other than POST: those of sessions."""
        method = scope["method"]
        # Without the header, a server has to assume 2025-03-26 (Streamable HTTP of 2025-06-18, protocol version
        # header).
        version = dict(scope["headers"]).get(b"mcp-protocol-version", _BATCHING)
        if version not in _HANDSHAKE:  # a modern client only posts
            await respond(send, 405, "Method Not Allowed", [(b"allow", b"POST")])
        elif method == "GET":
            await self._legacy.get(scope, receive, send, work)
        elif method == "DELETE":
            await self._legacy.delete(scope, send)
        else:
            await respond(send, 405, "Method Not Allowed", [(b"allow", b"GET, POST, DELETE")])

    async def _post(self, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope) -> None:
        exchange = PostResponse(receive, send, work, self._tasks, self._bounds, streams=self._streams)
        try:
            body = await read_body(receive, self._bounds.body_bytes)
        except BaseException:
            exchange.close()
            if work.cancel_called:
                with anyio.move_on_after(1, shield=True):
                    if exchange.body_is_late:
                        await respond_late_body(send)
                    else:
                        await exchange.broken_off()
            raise
        if body is None:
            exchange.close()
            await respond(send, 413, "Request body too large", _CLOSE)
            return
        await self._post_read(body, _stripped(scope), exchange, receive, send, work)

    def acceptable(self, accept: bytes) -> bool:
        """Whether a client accepts the response, which may be an event stream unless none is."""
        if not accepts_json(accept):
            return False
        return not self._streams or accepts_events(accept)

    async def _post_read(
        self, body: bytes, scope: Scope, exchange: PostResponse, receive: Receive, send: Send, work: anyio.CancelScope
    ) -> None:
        """Serve a POST whose body arrived."""
        try:
            message = decode_strict(body)
        except MalformedMessage as exc:
            exchange.close()
            await _refuse(send, exc.id, RequestError(exc.message, code=exc.code))
            return
        headers = dict(scope["headers"])
        messages = message if isinstance(message, list) else [message]
        # Before `Accept` and the envelope: a caller without the scopes learns nothing else about its request.
        refusal = self._gate.refusal(scope, _operations(messages))
        accepts = isinstance(message, list) or self.acceptable(headers.get(b"accept", b""))
        if refusal is None and accepts and isinstance(message, StrictMessage) and _is_modern(message, headers):
            await self._post_modern(message, scope, exchange, send, work)
            return
        exchange.close()  # else its watch for a disconnect would compete for the messages of the client
        if refusal is not None:
            await refusal.send(send)
        elif not accepts:
            kinds = "application/json"
            if self._streams:
                kinds += " and text/event-stream"
            await respond_error(send, 406, None, RequestError(f"The client must accept {kinds}", code=INVALID_REQUEST))
        elif isinstance(message, list):
            await self._post_batch(message, scope, receive, send, work)
        else:
            await self._legacy.post(message, scope, receive, send, work)

    async def _post_modern(
        self, message: StrictMessage, scope: Scope, exchange: PostResponse, send: Send, work: anyio.CancelScope
    ) -> None:
        """Serve a message of the modern era."""
        try:
            request = self._checked(message, scope)
        except RequestError as exc:
            exchange.close()
            await _refuse(send, answerable_id(message), exc)
            return
        if request is None:
            exchange.close()
            await respond(send, 202)  # the specification defines no notification of clients
            return
        exchange.begin()
        await self.answer(request, scope, exchange, work)

    def _checked(self, message: StrictMessage, scope: Scope) -> ParsedRequest | None:
        """Return the request in a message, or None for a notification.

        Raises:
            RequestError: The message is not valid, or its headers contradict it.
        """
        if message.method is msgspec.UNSET or message.id is None:
            why = "the body must be a request or a notification, and the id of a request a string or an integer"
            raise RequestError(f"Invalid request: {why}", code=INVALID_REQUEST)
        raw = scope["headers"]
        headers = dict(raw)
        # A notification has no envelope, so the header alone names its revision.
        if message.id is msgspec.UNSET:
            version = headers.get(b"mcp-protocol-version", b"")
            if version != _VERSION:
                raise unsupported_version(version.decode("latin-1"), self._endpoint.versions)
            return None
        params = message.params or {}
        check(message.method, params, headers, raw, self._endpoint.versions)
        mirrored = self._arguments_in_headers(message.method, params)
        if mirrored:
            wrong = argument_mismatch(mirrored, params.get("arguments"), raw)
            if wrong is not None:
                raise RequestError(wrong, code=HEADER_MISMATCH)
        return ParsedRequest(message.id, message.method, params)

    def _arguments_in_headers(self, method: str, params: Json) -> Mirrored:
        """Return the arguments that a request mirrors into headers."""
        name = params.get("name")
        if method == methods.TOOLS_CALL and isinstance(name, str):
            return self._mirrored(name)
        return ()

    async def _post_batch(
        self,
        members: list[StrictMessage | MalformedMessage],
        scope: Scope,
        receive: Receive,
        send: Send,
        work: anyio.CancelScope,
    ) -> None:
        """Serve a batch of the one revision that has them."""
        headers = dict(scope["headers"])
        messages = [one for one in members if isinstance(one, StrictMessage)]
        refused: str | None = None
        if headers.get(b"mcp-protocol-version", _BATCHING) != _BATCHING:
            refused = "batches are of revision 2025-03-26 only"
        elif len(members) > MOST:
            refused = f"a batch has at most {MOST} messages"
        # Before any member is handled: a batch that is refused must have had no effect.
        elif len(messages) < len(members) or not all(map(_may_be_batched, messages)):
            refused = "every member of a batch must be a message, and none may be 'initialize'"
        elif any(_is_modern(one, {}) for one in messages):
            refused = "a request of the stateless era is sent alone"
        if refused is not None:
            await _refuse(send, None, RequestError(f"Invalid request: {refused}", code=INVALID_REQUEST))
            return

        batch: Place = scope[PLACE]

        async def serve(message: StrictMessage, receive: Receive, send: Send) -> None:
            if message.id is msgspec.UNSET or message.is_answer:
                await self._legacy.post(message, scope, receive, send, work)
                return
            # Each request counts by itself, or a batch would be a way around the share of a caller. Notifications and
            # answers cost too little to be counted.
            place = self.requests.places.enter_as(batch.caller)
            if place is None:
                await self._refuse_busy(scope, send, member=message.id)
                return
            try:
                await self._legacy.post(message, scope, receive, send, work)
            finally:
                place.leave()

        await answer_batch(messages, serve, receive, send, streams=self._streams)

    async def answer(self, call: ParsedRequest, scope: Scope, exchange: PostResponse, work: anyio.CancelScope) -> None:
        """Answer a request that was read and checked."""
        exchange.request_id = call.id
        if call.method == methods.SUBSCRIPTIONS_LISTEN:
            # It may stay open for hours: when connections are scarce, the oldest streams of the caller that holds the
            # most are ended first.
            note_stream(scope, work)
        client = client_of(call.params["_meta"], identity_of(scope), may_of(scope))
        request = Request(call.method, call.params, client, exchange, call.id, VisibleHeaders(scope["headers"]))
        # The fast path has sent the call already. Sent again here, it would have its effect twice.
        request.sent = scope.get(SENT)
        try:
            await exchange.fill(self._endpoint.answer(request))
        finally:
            exchange.close()
            if work.cancel_called:
                with anyio.move_on_after(1, shield=True):
                    await exchange.broken_off()


def _operations(messages: Sequence[StrictMessage | MalformedMessage]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the method and params of each request."""
    for message in messages:
        if isinstance(message, StrictMessage) and isinstance(message.method, str):
            yield message.method, message.params or {}


_CLOSE = [(b"connection", b"close")]


def _may_be_batched(message: StrictMessage) -> bool:
    return message.id is not None and message.method != methods.INITIALIZE


def _is_modern(message: StrictMessage, headers: Headers) -> bool:
    """Whether a message is of the modern era, or of an unknown one, by its header or its envelope."""
    # An unknown revision is treated as modern, because its error lists the supported ones (-32022). The legacy error
    # does not.
    if headers.get(b"mcp-protocol-version", _BATCHING) not in _HANDSHAKE:
        return True
    if message.id is msgspec.UNSET or not isinstance(message.method, str):
        return False
    return message.method != methods.INITIALIZE and has_envelope(message.params or {})


async def _refuse(send: Send, key: RequestId | None, error: RequestError) -> None:
    await respond_error(send, HTTP_STATUS[error.code], key, error)


def _stripped(scope: Scope) -> Scope:
    """Take the white space from around header values, which belongs to no value (RFC 9110 section 5.5)."""
    return {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
