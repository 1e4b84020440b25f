"""Conversion of a JSON-RPC response to a result, or to the error of its request."""

from __future__ import annotations

from typing import Any

import msgspec

from toolweave.errors import ProtocolError
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.json_types import as_object, as_text
from toolweave.protocol.jsonrpc import LenientMessage, value_of


def result_of(message: LenientMessage, server: str) -> dict[str, Any]:
    """Return the result of an answer.

    Raises:
        ProtocolError: It is an error, or no proper answer.
    """
    if message.error is not msgspec.UNSET:
        raise _peer_error(message.error, server)
    if message.result is msgspec.UNSET:
        raise invalid(server, "it has neither 'result' nor 'error'")
    result: Any = message.result
    if isinstance(result, msgspec.Raw):
        try:
            result = value_of(result)
        except ValueError as exc:
            raise invalid(server, str(exc)) from None
    if not isinstance(result, dict):
        raise invalid(server, f"its 'result' is no object: {str(result)[:100]}")
    return result  # pyright: ignore[reportUnknownVariableType]


def _peer_error(raw: msgspec.Raw, server: str) -> ProtocolError:
    try:
        value = value_of(raw)
    except ValueError as exc:
        return invalid(server, str(exc))
    error = as_object(value)
    if error is None:
        return invalid(server, f"its 'error' is no object: {str(value)[:100]}")
    code = error.get("code")
    return ProtocolError(
        as_text(error.get("message")) or "an error without a message",
        server=server,
        code=code if isinstance(code, int) and not isinstance(code, bool) else INTERNAL_ERROR,
        data=error.get("data"),
    )


def invalid(server: str, why: str) -> ProtocolError:
    """Return the error for an invalid answer."""
    return ProtocolError(f"it sent an invalid answer: {why}", server=server, code=INTERNAL_ERROR)
