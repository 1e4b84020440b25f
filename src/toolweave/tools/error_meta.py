"""A tool's error as a member of its result's `_meta`: what MCP has no field for, between a server and a client.

`isError` and text are all that MCP has for an error of a tool. A server of ours adds `_meta["io.toolweave/error"]`,
an object with `kind`, `code`, and, where they say something, `retryable` and `data`; a client of ours reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolweave.errors import ErrorKind, ToolError

__all__ = ["ERROR_META", "error_meta", "read_error"]

ERROR_META = "io.toolweave/error"
"""The key in a result's `_meta`."""

_CODES = {
    ErrorKind.INVALID_INPUT: "INVALID_INPUT",
    ErrorKind.TIMEOUT: "TIMEOUT",
    ErrorKind.NOT_FOUND: "RESOURCE_NOT_FOUND",
}
_MAX_CODE_CHARS = 200
_CLAIMED = frozenset(ErrorKind) - {ErrorKind.NOT_SENT, ErrorKind.CLOSED, ErrorKind.AUTH_REQUIRED}
"""The kinds that a server can say of its own call; the others are about the way to it, which only its client knows."""


def error_meta(error: ToolError) -> dict[str, Any]:
    """Return the member for an error; one without a code gets that of its kind."""
    code = _CODES.get(error.kind, "EXECUTION_FAILED") if error.code is None else error.code
    made: dict[str, Any] = {"kind": error.kind.value, "code": code}
    if error.retryable:
        made["retryable"] = True
    return made if error.data is None else {**made, "data": error.data}


def read_error(meta: Mapping[str, Any], message: str) -> ToolError:
    """Return the error of a result that came from a server, with what its `_meta` says of it.

    All of it is the server's claim: nothing is sent again because of it, and what is malformed is passed over.
    """
    member = meta.get(ERROR_META)
    if not isinstance(member, dict):
        return ToolError(message)
    said = cast("dict[str, Any]", member)
    kind, code = said.get("kind"), said.get("code")
    return ToolError(
        message,
        kind=kind if isinstance(kind, str) and kind in _CLAIMED else ErrorKind.EXECUTION_FAILED,
        code=code if _is_code(code) else None,
        retryable=said.get("retryable") is True,
        data=said.get("data"),
    )


def _is_code(code: object) -> bool:
    if isinstance(code, str):
        return len(code) <= _MAX_CODE_CHARS
    return isinstance(code, int) and not isinstance(code, bool)
