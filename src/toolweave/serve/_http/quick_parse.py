"""Plain calls of a tool, read in one pass: the call, and its client if the call itself names it.

Pure: a body in, a call or None out. Any other request, and the reason of an error, is read by the full path. A client
sends the same envelope with each of its calls, so its `_meta` is cut out as bytes, and the envelopes that were read
are kept by these bytes: equal bytes have equal values, so an entry never becomes wrong, and the table is emptied when
it is full. Callers share the objects and must not modify them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from toolweave._json import JsonDecoder, decode_json
from toolweave._json_types import JsonObject, as_object
from toolweave.protocol.jsonrpc import MAX_DEPTH, encode_value
from toolweave.protocol.meta import PROTOCOL_VERSION
from toolweave.serve._envelope import client_of, is_whole
from toolweave.serve._plain_calls import ENVELOPE, PlainToolCall
from toolweave.serve.request import Client

_MAX_KEPT_BYTES = 1024  # bytes of a `_meta`
_MAX_KEPT = 512


class _PlainParams(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a plain call: no other members. Its `_meta` may have any, such as a progress token."""

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
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class _SessionCall(msgspec.Struct, forbid_unknown_fields=True):
    """A plain call in a session: no other members."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _SessionParams


_ORDERED = sorted(ENVELOPE)
_decode_plain = JsonDecoder(_PlainCall)
_decode_session_call = JsonDecoder(_SessionCall)


def plain_call(named: bytes, body: bytes) -> PlainToolCall | None:
    """Return a plain call of the modern era, else None.

    Its `_meta` and its client are shared with other calls and must not be modified.

    Args:
        named: The header `Mcp-Name`.
        body: The message.
    """
    if _may_be_too_deep(body):
        return None
    try:
        call = _decode_plain(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    given = call.params
    if not _names(named, given.name):
        return None
    sender = _sender(bytes(given.meta))
    if sender is None:
        return None
    if given.arguments is msgspec.UNSET:
        arguments = None
    else:
        arguments = given.arguments
    return PlainToolCall(call.id, given.name, arguments, sender.client, sender.meta, has_more=sender.has_more)


def plain_call_of_session(body: bytes) -> PlainToolCall | None:
    """Return a plain call of the legacy era, whose `_meta` has no envelope, else None."""
    if _may_be_too_deep(body):
        return None
    try:
        call = _decode_session_call(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    given = call.params
    meta = call.params.meta
    # An envelope makes it a modern request, whose headers have to be checked against it.
    if meta is not None and PROTOCOL_VERSION in meta:
        return None
    if given.arguments is msgspec.UNSET:
        arguments = None
    else:
        arguments = given.arguments
    return PlainToolCall(call.id, given.name, arguments, meta=meta, has_more=bool(meta))


def _may_be_too_deep(body: bytes) -> bool:
    """Whether a body has so many brackets that it may be nested too deeply, which the full path finds out."""
    return body.count(b"{") + body.count(b"[") > MAX_DEPTH


def _names(header: bytes | None, name: str) -> bool:
    """Whether a header names a tool without being decoded."""
    # A name with other characters is encoded in the header, and one that begins like an encoded word has to be. The
    # full path decodes them.
    return header == name.encode("utf-8", "replace") and name.isascii() and name[:2] != "=?"


class _Sender(msgspec.Struct, frozen=True, eq=False):
    """The `_meta` of a call, and its client: the same object for equal envelopes.

    Attributes:
        meta: The `_meta`.
        client: The client.
        has_more: Whether the `_meta` has members beside the envelope.
    """

    meta: JsonObject
    client: Client
    has_more: bool = False


# Why members beside the envelope are not kept: they differ from call to call, and would only displace the envelopes.
_envelopes: dict[bytes, _Sender] = {}


def _sender(text: bytes) -> _Sender | None:
    """Return a `_meta` and its client; None for one that lacks a member of the envelope, or has a malformed one."""
    known = _envelopes.get(text)
    if known is not None:
        return known
    try:
        meta = as_object(decode_json(text))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if meta is None or not is_whole(meta):
        return None
    if ENVELOPE.issuperset(meta):
        return _kept(text, meta)
    # In a fixed order, so that equal envelopes have equal bytes whatever else stands between their members.
    envelope = {name: meta[name] for name in _ORDERED if name in meta}
    key = encode_value(envelope)
    known = _envelopes.get(key) or _kept(key, envelope)
    return _Sender(meta, known.client, has_more=True)


def _kept(text: bytes, envelope: JsonObject) -> _Sender:
    """Return an envelope and its client, and keep them unless they are long."""
    made = _Sender(envelope, client_of(envelope))
    if len(text) <= _MAX_KEPT_BYTES:
        if len(_envelopes) >= _MAX_KEPT:
            _envelopes.clear()
        _envelopes[text] = made
    return made
