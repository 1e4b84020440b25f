"""The fast path for POSTs: checks each one, answers single exchanges itself and delegates the rest to the SDK's app.

Answered here are requests of the modern era except change streams and calls that mirror arguments into headers;
every malformed or contradictory message; and batches, message by message. The sessions of the legacy era are the
SDK's. Imports no SDK, no framework and no model library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
import msgspec
from anyio.abc import TaskGroup

from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST
from toolweave.protocol.headers import NAME_PARAMETERS, decode_value
from toolweave.protocol.jsonrpc import (
    MalformedMessage,
    RequestId,
    StrictMessage,
    batch_members,
    decode_strict,
    encode_error,
)
from toolweave.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolweave.protocol.versions import BATCHING_VERSION, HANDSHAKE_VERSIONS, MODERN_VERSION
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._envelope import client_of_envelope, has_envelope, unsupported_version
from toolweave.serve._http.asgi import App, Headers, Message, Receive, Scope, Send, VisibleHeaders, read_body, respond
from toolweave.serve._http.batch import MOST, answer_batch
from toolweave.serve._http.quick_parse import ParsedRequest, client_of, parse_plain_call, recognised
from toolweave.serve._http.replay import SessionEvents
from toolweave.serve._http.response import HTTP_STATUS, PostResponse, ResponseLimits, given_up
from toolweave.serve._request import Client, Json, Request
from toolweave.serve._task_spawner import TaskSpawner

__all__ = ["FastPath"]

_ROUTED = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")


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
    twice = repeated(raw)
    if twice is not None:
        raise RequestError(f"the header {twice.decode()} appears more than once", code=HEADER_MISMATCH)
    meta: Any = params.get("_meta")
    if not isinstance(meta, dict) or PROTOCOL_VERSION not in meta or CLIENT_CAPABILITIES not in meta:
        raise RequestError(
            f"params._meta must have {PROTOCOL_VERSION!r} and {CLIENT_CAPABILITIES!r}", code=INVALID_PARAMS
        )
    said = headers.get(b"mcp-protocol-version")
    if said is None or said.decode("latin-1") != meta[PROTOCOL_VERSION]:
        raise _mismatch("mcp-protocol-version", f"params._meta[{PROTOCOL_VERSION!r}]")
    if headers.get(b"mcp-method", b"").decode("latin-1") != method:
        raise _mismatch("mcp-method", "the method")
    named = NAME_PARAMETERS.get(method)
    if named is not None:
        value = params.get(named)
        if value is not None and decode_value(headers.get(b"mcp-name")) != value:
            raise _mismatch("mcp-name", f"params.{named}")
    client_of_envelope(params, versions)


def repeated(raw: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return a routing header that occurs more than once, or None: two readers might choose differently."""
    names = [name for name, _ in raw]
    return next((name for name in _ROUTED if names.count(name) > 1), None)


def _mismatch(header: str, what: str) -> RequestError:
    return RequestError(f"the header {header} is missing or differs from {what}", code=HEADER_MISMATCH)


_VERSION = MODERN_VERSION.encode()
_BATCHING = BATCHING_VERSION.encode()
_HANDSHAKE = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)
_STREAMED = methods.SUBSCRIPTIONS_LISTEN
_QUICK = frozenset(
    {
        methods.TOOLS_CALL.encode(),
        methods.TOOLS_LIST.encode(),
        methods.PROMPTS_LIST.encode(),
        methods.RESOURCES_LIST.encode(),
        methods.RESOURCES_TEMPLATES_LIST.encode(),
        methods.SERVER_DISCOVER.encode(),
    }
)
"""The methods that the quick parse recognises; all others take the full checks."""


class _Handshake(msgspec.Struct):
    """The request that begins a session."""

    method: Literal["initialize"]
    params: dict[str, Any]


@functools.lru_cache(maxsize=64)
def _accepts(accept: bytes) -> bool:
    """Whether an `Accept` header has both response types; cached, because a client sends the same one each time."""
    kinds = {kind.partition(b";")[0].strip() for kind in accept.lower().split(b",")}
    return b"*/*" in kinds or {b"application/json", b"text/event-stream"} <= kinds


def _is_candidate(headers: Headers) -> bool:
    return (
        headers.get(b"mcp-method") in _QUICK
        and headers.get(b"mcp-protocol-version") == _VERSION
        and _takes_both(headers)
    )


def _takes_both(headers: Headers) -> bool:
    accept = headers.get(b"accept", b"")
    return len(accept) < 256 and _accepts(accept)


class FastPath:
    """Answers requests of the modern era itself, and delegates all others to the SDK's app.

    Args:
        endpoint: Answers the requests.
        beyond: The SDK's app.
        tasks: The task group of disconnect watches; lives as long as the server.
        mirrors: Whether a tool has arguments that its callers mirror into headers; those calls are delegated. None
            delegates every valid request.
        principal: Returns the principal of an authorized request.
        bounds: The timeouts, and the maximum length of a body.
        streams: Whether responses may be event streams.
        replays: Notified of the session of each request that is delegated.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        beyond: App,
        tasks: TaskGroup,
        *,
        mirrors: Callable[[str], bool] | None,
        principal: Callable[[Scope], str | None] | None = None,
        bounds: ResponseLimits,
        streams: bool = True,
        replays: SessionEvents | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._beyond = beyond
        self._tasks = TaskSpawner(tasks)
        self._mirrors = mirrors
        self._principal = principal
        self._streams = streams
        self._bounds = bounds
        self._replays = replays
        self._running: set[anyio.CancelScope] = set()
        self._listening: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request for the endpoint."""
        with anyio.CancelScope() as work:
            self._running.add(work)
            try:
                if scope["method"] == "POST":
                    await self._post(scope, receive, send, work)
                else:
                    stripped = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
                    await self._delegate({**scope, "headers": stripped}, receive, send, work)
            finally:
                self._running.discard(work)

    def end_streams(self) -> None:
        """End the idle change streams: their clients reconnect elsewhere."""
        for work in list(self._listening):
            work.cancel()

    def abort(self) -> None:
        """Cancel whatever still runs."""
        for work in list(self._running):
            work.cancel()

    async def _post(self, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope) -> None:
        exchange = PostResponse(receive, send, work, self._tasks, self._bounds, streams=self._streams)
        try:
            body = await read_body(receive, self._bounds.body_bytes)
        except BaseException:
            exchange.close()
            if work.cancel_called:
                with anyio.move_on_after(1, shield=True):
                    await respond(send, 408, "The request body did not come in time", _CLOSE)
            raise
        raw = scope["headers"]
        headers = dict(raw)
        if body is not None and _is_candidate(headers) and (len(headers) == len(raw) or not _repeats(raw)):
            known = parse_plain_call(headers, body)
            call = recognised(headers, body) if known is None else known[0]
            if call is not None and self._is_ours(call.method, call.params):
                exchange.begin()
                await self._answer(call, scope, exchange, work, None if known is None else known[1])
                return
        exchange.close()
        if body is None:
            await respond(send, 413, "Request body too large", _CLOSE)
            return
        await self._post_other(body, scope, receive, send, work)

    async def _post_other(
        self, body: bytes, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope
    ) -> None:
        """Serve a POST that the quick parse did not recognise."""
        try:
            message = decode_strict(body)
        except MalformedMessage as exc:
            await _refuse(send, exc.id, RequestError(exc.message, code=exc.code))
            return
        # httptools keeps white space behind a value, which belongs to no value (RFC 9110 section 5.5)
        scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
        if isinstance(message, list):
            await self._post_batch(body, message, scope, receive, send, work)
        elif _is_modern(message, dict(scope["headers"])):
            await self._post_modern(message, body, scope, receive, send, work)
        else:
            await self._delegate(scope, _replayed(body, receive), send, work, body)

    async def _post_modern(
        self, message: StrictMessage, body: bytes, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope
    ) -> None:
        """Serve a message of the modern era."""
        headers = dict(scope["headers"])
        if message.method is msgspec.UNSET or message.id is None:
            why = "the body must be a request or a notification, and the id of a request a string or an integer"
            key = message.id if isinstance(message.id, int | str) and not message.is_answer else None
            await _refuse(send, key, RequestError(f"Invalid request: {why}", code=INVALID_REQUEST))
            return
        if message.id is msgspec.UNSET:
            version = headers.get(b"mcp-protocol-version", b"")
            if version == _VERSION:
                await respond(send, 202)  # nothing is defined that a client could tell
            else:
                await _refuse(send, None, unsupported_version(version.decode("latin-1"), self._endpoint.versions))
            return
        params = message.params or {}
        try:
            check(message.method, params, headers, scope["headers"], self._endpoint.versions)
        except RequestError as exc:
            await _refuse(send, message.id, exc)
            return
        if self._is_ours(message.method, params) and _takes_both(headers):
            call = ParsedRequest("2.0", message.id, message.method, params)
            exchange = PostResponse(receive, send, work, self._tasks, self._bounds, streams=self._streams)
            exchange.begin()
            await self._answer(call, scope, exchange, work)
        else:
            await self._delegate(scope, _replayed(body, receive), send, work, body)

    def _is_ours(self, method: str, params: Json) -> bool:
        if self._mirrors is None or method == _STREAMED:
            return False
        name = params.get("name")
        return method != methods.TOOLS_CALL or (isinstance(name, str) and not self._mirrors(name))

    async def _post_batch(
        self,
        body: bytes,
        members: list[StrictMessage | MalformedMessage],
        scope: Scope,
        receive: Receive,
        send: Send,
        work: anyio.CancelScope,
    ) -> None:
        """Serve a batch of the one revision that has them."""
        headers = dict(scope["headers"])
        refused: str | None = None
        if headers.get(b"mcp-protocol-version", _BATCHING) != _BATCHING:
            refused = "batches are of revision 2025-03-26 only"
        elif len(members) > MOST:
            refused = f"a batch has at most {MOST} messages"
        elif any(
            isinstance(one, MalformedMessage) or one.method == methods.INITIALIZE or one.id is None for one in members
        ):
            refused = "every member of a batch must be a message, and none may be 'initialize'"
        elif any(_is_modern(one, {}) for one in members if isinstance(one, StrictMessage)):
            refused = "a request of the stateless era is sent alone"
        if refused is not None:
            await _refuse(send, None, RequestError(f"Invalid request: {refused}", code=INVALID_REQUEST))
            return

        async def serve(text: bytes, receive: Receive, send: Send) -> None:
            await self._delegate(scope, _replayed(text, receive), send, work, text)

        await answer_batch(batch_members(body), serve, receive, send, streams=self._streams)

    async def _answer(
        self,
        call: ParsedRequest,
        scope: Scope,
        exchange: PostResponse,
        work: anyio.CancelScope,
        client: Client | None = None,
    ) -> None:
        exchange.request_id = call.id
        if client is None or self._principal is not None:
            client = client_of(call.params["_meta"], None if self._principal is None else self._principal(scope))
        request = Request(call.method, call.params, client, exchange, call.id, VisibleHeaders(scope["headers"]))
        try:
            try:
                result = await self._endpoint.answer(request)
            except RequestError as exc:
                await exchange.error(exc)
            else:
                await exchange.result(result)
        finally:
            exchange.close()
            if work.cancel_called:
                with anyio.move_on_after(1, shield=True):
                    await exchange.broken_off()

    async def _delegate(
        self, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope, body: bytes = b""
    ) -> None:
        """Delegate to the SDK's app; `end_streams` ends its stream properly, a stalled client's work is cancelled."""
        send = given_up(send, work, self._bounds.stalled)
        watched = _TrackedSend(send)
        if self._replays is not None:
            watched = _SessionSend(send, self._replays, scope, self._endpoint.negotiate(_offered(body)))
        if scope["method"] == "GET":
            self._listening.add(work)
        try:
            await self._beyond(scope, receive, watched)
        finally:
            self._listening.discard(work)
            if work.cancel_called:
                with anyio.move_on_after(1, shield=True):
                    await watched.end()


_CLOSE = [(b"connection", b"close")]


def _is_modern(message: StrictMessage, headers: Headers) -> bool:
    """Whether a message is of the modern era, or of an unknown one, by its header or its envelope."""
    version = headers.get(b"mcp-protocol-version")
    if version is not None and version not in _HANDSHAKE:
        return True
    is_request = isinstance(message.method, str) and message.id is not msgspec.UNSET
    return is_request and message.method != methods.INITIALIZE and has_envelope(message.params or {})


async def _refuse(send: Send, key: RequestId | None, error: RequestError) -> None:
    body = encode_error(key, error.code, error.message, error.data)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": HTTP_STATUS[error.code], "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _TrackedSend:
    """A `send` that records the progress of the response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self._ended = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
        elif not message.get("more_body", False):
            self._ended = True
        await self._send(message)

    async def end(self) -> None:
        """Finish a response that has begun, or answer 503."""
        if self._ended:
            return
        if self._started:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await respond(self._send, 503, "The server is shutting down", _CLOSE)


class _SessionSend(_TrackedSend):
    """Ties a request, and the session that it begins, to the stored events of the session.

    A session keeps its negotiated revision, whatever known one a later header says: the SDK decides by the header
    whether a client can resume a stream.
    """

    def __init__(self, send: Send, replays: SessionEvents, scope: Scope, agreed: str) -> None:
        super().__init__(send)
        self._replays = replays
        self._agreed = agreed
        known = dict(scope["headers"]).get(_SESSION)
        self._begins = known is None
        session_id = None if known is None else known.decode("latin-1")
        self._name = replays.enter(session_id)
        version = replays.agreed(session_id or "").encode()
        if version:
            scope["headers"] = [
                (name, version if name == b"mcp-protocol-version" and value in _HANDSHAKE else value)
                for name, value in scope["headers"]
            ]

    async def __call__(self, message: Message) -> None:
        if self._begins and message["type"] == "http.response.start":
            given = dict(message.get("headers", ())).get(_SESSION)
            if given is not None:
                self._replays.know(given.decode("latin-1"), self._name, self._agreed)
        await super().__call__(message)


_SESSION = b"mcp-session-id"


def _offered(body: bytes) -> object:
    """Return the revision that a handshake offers, None for any other message."""
    try:
        message = msgspec.json.decode(body, type=_Handshake)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return message.params.get("protocolVersion")


def _repeats(raw: Sequence[tuple[bytes, bytes]]) -> bool:
    return repeated(raw) is not None or [name for name, _ in raw].count(b"accept") > 1


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already."""
    first: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replaying() -> Message:
        nonlocal first
        if first is not None:
            message, first = first, None
            return message
        return await receive()

    return replaying
