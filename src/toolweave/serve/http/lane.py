"""The short way of a tool call: a modern `tools/call` POST that is right in every respect is answered at once.

Whatever else comes, and every request with the slightest doubt, goes on to the SDK's app as it came, whose refusals
are the canonical ones. Decides by headers and body alone; imports no SDK, no framework and no model library.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import anyio
import msgspec
from anyio.abc import TaskGroup

from toolweave.errors import RequestError
from toolweave.serve.codes import (
    CAPABILITIES,
    CLIENT_INFO,
    HANDSHAKE_VERSIONS,
    LOG_LEVEL,
    MODERN_VERSION,
    PARSE_ERROR,
    PROTOCOL_VERSION,
)
from toolweave.serve.endpoint import Endpoint
from toolweave.serve.http.asgi import App, Headers, Message, Receive, Scope, Send, ShownHeaders, read_body, respond
from toolweave.serve.http.exchange import HTTP_STATUS, Bounds, Exchange, given_up
from toolweave.serve.http.replay import Replays
from toolweave.serve.jsonrpc import encode_error, is_json
from toolweave.serve.request import Client, Json, Request
from toolweave.serve.starter import Starter

__all__ = ["Lane", "LaneCall", "recognised"]

_ROUTED = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_VERSION = MODERN_VERSION.encode()
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")  # no set: `[]` has no hash
_MEANT = "=?base64?"


class LaneCall(msgspec.Struct, forbid_unknown_fields=True):
    """A JSON-RPC request for one tool."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: dict[str, Any]


class _Handshake(msgspec.Struct):
    """The request that begins a session."""

    method: Literal["initialize"]
    params: dict[str, Any]


_decode = msgspec.json.Decoder(LaneCall).decode


def recognised(headers: Headers, body: bytes) -> LaneCall | None:
    """Return the call when the request is right in every respect that the specification names, else None."""
    try:
        call = _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    params = call.params
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not _is_enveloped(cast("Json", meta)):
        return None
    name = params.get("name")
    if not isinstance(name, str) or _plain(headers.get(b"mcp-name")) != name:
        return None
    arguments, answers, state = params.get("arguments"), params.get("inputResponses"), params.get("requestState")
    if (arguments is not None or "arguments" in params) and not isinstance(arguments, dict):
        return None
    if answers is not None and not isinstance(answers, dict):
        return None
    return call if state is None or isinstance(state, str) else None


def _is_enveloped(meta: Json) -> bool:
    """Whether a `_meta` has what each request of the era must have, and nothing malformed of what it may."""
    if meta.get(PROTOCOL_VERSION) != MODERN_VERSION or not isinstance(meta.get(CAPABILITIES), dict):
        return False
    info = meta.get(CLIENT_INFO)
    if info is not None and not _is_implementation(info):
        return False
    if LOG_LEVEL in meta and meta[LOG_LEVEL] not in _LEVELS:
        return False
    token = meta.get("progressToken", 0)
    return isinstance(token, int | str) and not isinstance(token, bool)


def _is_implementation(info: object) -> bool:
    if not isinstance(info, dict):
        return False
    members = cast("Json", info)
    return isinstance(members.get("name"), str) and isinstance(members.get("version"), str)


def _plain(header: bytes | None) -> str | None:
    """Return what a mirrored header says: itself, or what its base64 form holds; None for a malformed one."""
    if header is None:
        return None
    text = header.decode("latin-1")
    if not text.startswith(_MEANT):
        return text if text.isascii() else None
    encoded = text[len(_MEANT) : -2]
    try:
        decoded = base64.b64decode(encoded, validate=True)
        canonical = base64.b64encode(decoded).decode() == encoded
        return decoded.decode() if canonical and text.endswith("?=") else None
    except (binascii.Error, ValueError):
        return None


@functools.lru_cache(maxsize=64)
def _accepts(accept: bytes) -> bool:
    """Whether an `Accept` header has both kinds of answer; a client sends the same one each time."""
    kinds = {kind.partition(b";")[0].strip() for kind in accept.lower().split(b",")}
    return b"*/*" in kinds or {b"application/json", b"text/event-stream"} <= kinds


def _is_candidate(headers: Headers) -> bool:
    accept = headers.get(b"accept", b"")
    return (
        headers.get(b"mcp-method") == b"tools/call"
        and headers.get(b"mcp-protocol-version") == _VERSION
        and len(accept) < 256
        and _accepts(accept)
    )


class Lane:
    """Answers what it recognises, hands on what it does not.

    Args:
        endpoint: What answers.
        beyond: The SDK's app.
        tasks: Where the watches of long calls run; lives as long as the server.
        mirrors: Whether a tool has arguments that its callers mirror into headers; those calls go beyond.
        principal: Who is behind a request that passed the authorization.
        bounds: How long things may take, and how long a body may be.
        streams: Whether answers may become streams of events.
        replays: Told for which session the SDK's app is asked.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        beyond: App,
        tasks: TaskGroup,
        *,
        mirrors: Callable[[str], bool],
        principal: Callable[[Scope], str | None] | None = None,
        bounds: Bounds,
        streams: bool = True,
        replays: Replays | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._beyond = beyond
        self._tasks = Starter(tasks)
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
                    await self._hand_on(scope, receive, send, work)
            finally:
                self._running.discard(work)

    def end_streams(self) -> None:
        """End the streams that only wait for something to tell: their clients come back elsewhere."""
        for work in list(self._listening):
            work.cancel()

    def abort(self) -> None:
        """Cancel whatever still runs."""
        for work in list(self._running):
            work.cancel()

    async def _post(self, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope) -> None:
        patience = asyncio.get_running_loop().call_later(self._bounds.body, work.cancel)
        try:
            body = await read_body(receive, self._bounds.body_bytes)
        finally:
            patience.cancel()
            if work.cancel_called:
                with anyio.move_on_after(1, shield=True):
                    await respond(send, 408, "The request body did not come in time", _CLOSE)
        if body is None:
            await respond(send, 413, "Request body too large", _CLOSE)
            return
        raw = scope["headers"]
        headers = dict(raw)
        if _is_candidate(headers) and (len(headers) == len(raw) or not _repeats(raw)):
            call = recognised(headers, body)
            if call is not None and not self._mirrors(call.params["name"]):
                await self._answer(call, scope, receive, send, work)
                return
        if not is_json(body):  # the SDK takes more: NaN would reach a handler, and leave again as what is no JSON
            await _refuse_unread(send)
            return
        await self._hand_on(scope, _replayed(body, receive), send, work, body)

    async def _answer(
        self, call: LaneCall, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope
    ) -> None:
        exchange = Exchange(receive, send, work, self._tasks, self._bounds, streams=self._streams)
        exchange.request_id = call.id
        meta = call.params["_meta"]
        client = Client(
            version=MODERN_VERSION,
            capabilities=meta[CAPABILITIES],
            info=meta.get(CLIENT_INFO),
            principal=None if self._principal is None else self._principal(scope),
        )
        request = Request("tools/call", call.params, client, exchange, call.id, ShownHeaders(scope["headers"]))
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

    async def _hand_on(
        self, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope, body: bytes = b""
    ) -> None:
        """Let the SDK's app answer; a stream that we end meanwhile ends properly, one that nobody reads is given up."""
        # httptools keeps white space behind a value, which belongs to no value (RFC 9110 section 5.5)
        scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
        send = given_up(send, work, self._bounds.stalled)
        watched = _Watched(send)
        if self._replays is not None:
            watched = _Session(send, self._replays, scope, self._endpoint.negotiate(_offered(body)))
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


async def _refuse_unread(send: Send) -> None:
    body = encode_error(None, PARSE_ERROR, "Parse error: the body is not JSON")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": HTTP_STATUS[PARSE_ERROR], "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Watched:
    """Knows how far an answer has come."""

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
        """Finish what was begun, or say that nothing comes."""
        if self._ended:
            return
        if self._started:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await respond(self._send, 503, "The server is shutting down", _CLOSE)


class _Session(_Watched):
    """Ties a request, and the session that it begins, to what the session may replay.

    In a session the revision holds that was agreed for it, whatever known one a later header says: the SDK decides
    by the header whether a client can come back for a stream.
    """

    def __init__(self, send: Send, replays: Replays, scope: Scope, agreed: str) -> None:
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
_HANDSHAKE = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)


def _offered(body: bytes) -> object:
    """Return the revision that a handshake offers, None for any other message."""
    try:
        message = msgspec.json.decode(body, type=_Handshake)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return message.params.get("protocolVersion")


def _repeats(raw: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a header that routes stands there more than once: two readers might choose differently."""
    names = [name for name, _ in raw]
    return any(names.count(name) > 1 for name in (*_ROUTED, b"accept"))


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
