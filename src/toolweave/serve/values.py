"""A `ToolResult` as the JSON of a `tools/call` result, for each era; a foreign result travels as it came."""

from __future__ import annotations

import json
import logging
from typing import cast

from toolweave.errors import ToolError
from toolweave.protocol.content import block_json
from toolweave.protocol.meta import SERVER_INFO
from toolweave.protocol.jsonrpc import writable
from toolweave.serve.request import Json
from toolweave.tools import ToolResult
from toolweave.tools.error_meta import ERROR_META, error_meta

__all__ = ["call_result"]

_log = logging.getLogger("toolweave.serve")


def call_result(result: ToolResult, *, modern: bool, typed: bool = False) -> Json:
    """Return the members of a `CallToolResult` (requirements C4, C16, C18).

    Structured content goes out when the tool declares an output schema (`typed`), or when it is an object.
    """
    raw = result.raw
    made: Json
    if isinstance(raw, dict):
        made = _foreign(cast("Json", raw))
    else:
        made = {"content": [block_json(one) for one in result.content]}
        if isinstance(result.structured_content, dict) or (typed and not result.is_error):
            made["structuredContent"] = result.structured_content  # pyright: ignore[reportUnknownMemberType]
        if result.meta:
            made["_meta"] = dict(result.meta)
    if "structuredContent" in made:
        _mirror(made)
        if not modern and not isinstance(made["structuredContent"], dict):
            del made["structuredContent"]  # handshake-era clients know objects only; the text carries it
    if result.is_error:
        made["isError"] = True
        if not isinstance(raw, dict) or raw.get("isError") is not True:  # pyright: ignore[reportUnknownMemberType]
            made["_meta"] = {**made.get("_meta", {}), ERROR_META: _error(result.require_error())}
    return made


def _foreign(raw: Json) -> Json:
    """Return an upstream's result without what only that hop may say."""
    made = {name: value for name, value in raw.items() if name != "resultType"}
    meta = made.get("_meta")
    if isinstance(meta, dict) and SERVER_INFO in meta:
        left = {name: value for name, value in cast("Json", meta).items() if name != SERVER_INFO}
        if left:
            made["_meta"] = left
        else:
            del made["_meta"]
    made.setdefault("content", [])
    return made


def _mirror(made: Json) -> None:
    """Give structured content its text for clients that read only text (requirement C18)."""
    if not made["content"]:
        made["content"] = [{"type": "text", "text": json.dumps(made["structuredContent"], ensure_ascii=False)}]


def _error(error: ToolError) -> Json:
    """Return the member that says what went wrong; `data` that is no JSON is left out, the error itself goes out."""
    made = error_meta(error)
    try:
        return writable(made)
    except (TypeError, ValueError):
        _log.warning("the data of the error %r is no JSON and is left out", error.message)
        del made["data"]
        return made
