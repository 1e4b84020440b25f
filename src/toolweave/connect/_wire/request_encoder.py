"""The encoding of requests; the parts that all calls of one tool share are encoded once. Knows no transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolweave.connect._session import Envelope
from toolweave.errors import ErrorKind, ToolError
from toolweave.protocol import methods
from toolweave.protocol.jsonrpc import REQUEST_HEAD, encode_request, encode_value
from toolweave.schema._fitting import json_values

_CALL = methods.TOOLS_CALL
_ARGUMENTS = b'"arguments":'
_MEMBERS = {"name", "arguments"}
_MAX_KNOWN = 1_000
_REQUEST_FORM = REQUEST_HEAD + b"%d%b%b%b"


class _CallTemplate(msgspec.Struct, gc=False):
    """The text of a call between its id and its arguments, and after them."""

    meta: object
    members: int
    before: bytes
    after: bytes


class RequestEncoder:
    """The encoder of one conversation's requests."""

    def __init__(self) -> None:
        self._known: dict[str, _CallTemplate] = {}

    def of(self, request_id: int | str, method: str, params: Mapping[str, Any]) -> bytes:
        """Return a request as one JSON text; raises the errors of `request_text`."""
        name = params.get("name") if method == _CALL else None
        if type(name) is not str or "arguments" not in params or type(request_id) is not int:
            return request_text(request_id, method, params)
        try:
            known = self._known.get(name)
            if known is None or known.meta is not params.get("_meta") or known.members != len(params):
                known = self._learned(name, params)
            arguments = _encoded(params["arguments"]) if known is not None else b""
        except (ValueError, TypeError) as exc:
            raise _no_json(method, exc) from None
        if known is None:
            return request_text(request_id, method, params)
        return _REQUEST_FORM % (request_id, known.before, arguments, known.after)

    def _learned(self, name: str, params: Mapping[str, Any]) -> _CallTemplate | None:
        """Return the parts that other calls of the tool share with this one; None where they share none."""
        meta = params.get("_meta")
        own = {"_meta"} if type(meta) is Envelope else set[str]()  # any other one may change, or is of one call
        if params.keys() - own != _MEMBERS:
            return None
        text = encode_request(0, _CALL, {**params, "arguments": None})
        before, _, after = text.removeprefix(REQUEST_HEAD + b"0").partition(_ARGUMENTS + b"null")
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        known = self._known[name] = _CallTemplate(meta, len(params), before + _ARGUMENTS, after)
        return known


def _encoded(arguments: Any) -> bytes:
    """Return arguments as JSON; models of pydantic and paths, which the encoder does not know, become JSON as well."""
    try:
        return encode_value(arguments)
    except TypeError:
        plain = json_values(arguments)
        if plain is None:
            raise
        return encode_value(plain)


def request_text(request_id: int | str, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request as one JSON text.

    Raises:
        ToolError: Its parameters have no form in JSON.
    """
    try:
        try:
            return encode_request(request_id, method, params)
        except TypeError:
            plain = json_values(params)
            if plain is None:
                raise
            return encode_request(request_id, method, plain)
    except (ValueError, TypeError) as exc:
        raise _no_json(method, exc) from None


def _no_json(method: str, exc: Exception) -> ToolError:
    return ToolError(f"the parameters of {method} are no JSON: {exc}", kind=ErrorKind.INVALID_INPUT)
