"""The encoding of requests as JSON texts. Knows no transport."""

from __future__ import annotations

from toolweave._json_types import JsonObject
from toolweave.errors import ErrorKind, ToolError
from toolweave.protocol.jsonrpc import encode_request
from toolweave.schema.fitting import json_values


def request_text(request_id: int | str, method: str, params: JsonObject) -> bytes:
    """Return a request as one JSON text; models of pydantic and paths become JSON.

    Raises:
        ToolError: Its parameters have no form in JSON.
    """
    try:
        try:
            return encode_request(request_id, method, params)
        except TypeError:  # an object that the encoder does not know
            plain = json_values(params)
            if plain is None:
                raise
            return encode_request(request_id, method, plain)
    except (ValueError, TypeError) as exc:
        raise ToolError(f"the parameters of {method} are not JSON: {exc}", kind=ErrorKind.INVALID_INPUT) from None
