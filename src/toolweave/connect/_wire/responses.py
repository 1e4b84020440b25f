"""Conversion of a JSON-RPC response to a result, or to the error of its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from toolweave._json_types import Json, as_integer, as_object, as_text
from toolweave.connect._repairs import NOT_JSON, NULL_ERROR
from toolweave.errors import ProtocolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.jsonrpc import value_of
from toolweave.protocol.lenient_messages import LenientMessage, MendedMessage
from toolweave.protocol.lenient_results import BareResult, readable_result


def _ignore(_problem: str) -> None:
    """Ignore a note."""


def result_of(message: LenientMessage, server: str, note: Callable[[str], None] = _ignore) -> Json:
    """Return the result of a response; a result that is not an object is a `BareResult`.

    Args:
        message: The answer.
        server: The name of the server.
        note: Called with each part of it that is outside of the specification and is read all the same.

    Raises:
        ProtocolError: It is an error, or no proper answer.
    """
    if isinstance(message, MendedMessage):
        note(NOT_JSON.problem)
    if message.error is not msgspec.UNSET:
        # Serializers of JSON-RPC 1 write both members.
        is_null = bytes(message.error).strip() == b"null"
        if not is_null or message.result is msgspec.UNSET:
            raise _peer_error(message.error, server)
        note(NULL_ERROR.problem)
    result: Any = message.result
    if isinstance(result, msgspec.Raw):
        try:
            result = value_of(result)
        except ValueError as exc:
            raise invalid(server, str(exc)) from None
    if isinstance(result, dict):
        return result  # pyright: ignore[reportUnknownVariableType]
    if result is msgspec.UNSET:
        raise invalid(server, "it has neither 'result' nor 'error'")
    if result is None:
        raise invalid(server, "its 'result' is not an object: None")
    return BareResult(result)


def object_result(result: Json, method: str, server: str, note: Callable[[str], None] = _ignore) -> Json:
    """Return a result for other clients; one of a call that is not an object is read leniently.

    Raises:
        ProtocolError: The result is not an object, and the request was not a call.
    """
    if not isinstance(result, BareResult):
        return result
    if method != methods.TOOLS_CALL:
        raise invalid(server, f"its 'result' is not an object: {str(result.value)[:100]}")
    made, changes = readable_result(result)
    for change in changes:
        note(change)
    return made


def _peer_error(raw: msgspec.Raw, server: str) -> ProtocolError:
    try:
        value = value_of(raw)
    except ValueError as exc:
        return invalid(server, str(exc))
    error = as_object(value)
    if error is None:
        return invalid(server, f"its 'error' is not an object: {str(value)[:100]}")
    code = as_integer(error.get("code"))
    return ProtocolError(
        as_text(error.get("message")) or "an error without a message",
        server=server,
        code=INTERNAL_ERROR if code is None else code,
        data=error.get("data"),
    )


def invalid(server: str, why: str) -> ProtocolError:
    """Return the error for an invalid answer."""
    return ProtocolError(f"it sent an invalid answer: {why}", server=server, code=INTERNAL_ERROR)
