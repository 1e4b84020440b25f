"""Quick parse of a POST of the modern era: the request and its client, if it is valid in every respect.

Pure: headers and a body in, a request or None out. The reason of a refusal is found by the full checks.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, cast

import msgspec

from toolweave._json import JsonDecoder, decode_json
from toolweave.protocol import methods
from toolweave.protocol.headers import decode_value
from toolweave.protocol.input_required import INPUT_RESPONSES, REQUEST_STATE
from toolweave.protocol.jsonrpc import MAX_DEPTH
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve._envelope import is_whole
from toolweave.serve._http.asgi import Headers
from toolweave.serve._plain_calls import ENVELOPE, PlainToolCall
from toolweave.serve._request import Client, Identity, Json, MayUse

_LONGEST_KEPT = 1024  # bytes of a `_meta`


class ParsedRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A JSON-RPC request that the fast path can answer."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: str
    params: dict[str, Any]


class _PlainParams(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a plain call: no other members."""

    name: str
    meta: msgspec.Raw = msgspec.field(name="_meta")
    arguments: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class _PlainCall(msgspec.Struct, forbid_unknown_fields=True):
    """A plain call of a tool: no other members."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _PlainParams


class _SessionParams(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a plain call in a session: no other members."""

    name: str
    arguments: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class _SessionCall(msgspec.Struct, forbid_unknown_fields=True):
    """A plain call in a session: no other members."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _SessionParams


_decode_plain = JsonDecoder(_PlainCall)
_decode_session_call = JsonDecoder(_SessionCall)
_decode = JsonDecoder(ParsedRequest)


def recognised(headers: Headers, body: bytes) -> ParsedRequest | None:
    """Return the request if it is valid in every respect that the specification names, else None."""
    try:
        call = _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    params, method = call.params, call.method
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not is_whole(cast("Json", meta)):
        return None
    if headers.get(b"mcp-method", b"").decode("latin-1") != method:
        return None
    if method != methods.TOOLS_CALL:
        return call
    name = params.get("name")
    if not isinstance(name, str) or decode_value(headers.get(b"mcp-name")) != name:
        return None
    arguments, answers, state = params.get("arguments"), params.get(INPUT_RESPONSES), params.get(REQUEST_STATE)
    if (arguments is not None or "arguments" in params) and not isinstance(arguments, dict):
        return None
    if answers is not None and not isinstance(answers, dict):
        return None
    return call if state is None or isinstance(state, str) else None


def plain_call(named: bytes, body: bytes) -> PlainToolCall | None:
    """Return a plain call of the modern era whose `_meta` has nothing but its envelope, else None.

    Equivalent to `recognised` at less than half the cost: a client sends the same `_meta` with each of its calls, so it
    is parsed once and shared; it must not be modified.

    Args:
        named: The header `Mcp-Name`.
        body: The message.
    """
    try:
        call = _decode_plain(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    given = call.params
    name, text = given.name, bytes(given.meta)
    if not _names(named, name) or len(text) > _LONGEST_KEPT:
        return None
    sender = _sender(text)
    if sender is None:
        return None
    meta, client = sender
    return PlainToolCall(call.id, name, None if given.arguments is msgspec.UNSET else given.arguments, client, meta)


def plain_call_of_session(body: bytes) -> PlainToolCall | None:
    """Return a plain call of the legacy era, which has no `_meta`, else None."""
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:  # those that are too deep are among them
        return None
    try:
        call = _decode_session_call(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    given = call.params
    return PlainToolCall(call.id, given.name, None if given.arguments is msgspec.UNSET else given.arguments)


def _names(header: bytes | None, name: str) -> bool:
    """Whether a header names a tool without being decoded."""
    return header == name.encode("utf-8", "replace") and name.isascii() and name[:2] != "=?"


@functools.lru_cache(maxsize=512)
def _sender(text: bytes) -> tuple[Json, Client] | None:
    """Return a `_meta` that has nothing but the envelope, and its client, else None."""
    try:
        meta = decode_json(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(meta, dict) or not is_whole(cast("Json", meta)) or not ENVELOPE.issuperset(cast("Json", meta)):
        return None
    return cast("Json", meta), client_of(cast("Json", meta))


def client_of(meta: Json, identity: Identity | None = None, may: MayUse | None = None) -> Client:
    """Return the client of a request with this complete `_meta`, of this identity."""
    return Client(
        version=MODERN_VERSION,
        capabilities=meta[CLIENT_CAPABILITIES],
        info=meta.get(CLIENT_INFO),
        principal=None if identity is None else identity.principal,
        may=may,
        identity=identity,
    )
