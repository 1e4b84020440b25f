"""Tools as the Model Context Protocol has them: definitions and results, to JSON and from JSON, for each era.

The form is the specification's; it stands here and not in `protocol`, which knows content blocks but no tools. What
came from a server goes out as it came, except members of that hop alone.

`isError` and text are all that MCP has for an error of a tool. Our server adds `_meta["io.toolweave/error"]`, an object
with `kind`, `code`, and, where they are known, `retryable` and `data`; our client reads it back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, cast

from toolweave._json_types import (
    Json,
    JsonObject,
    as_integer,
    as_object,
    as_text,
    object_or_empty,
    text_or_empty,
    without_members,
)
from toolweave.errors import CODE_OF_KIND, ErrorKind, ProtocolError, ToolError, shortened
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.content import (
    ContentBlock,
    TextContent,
    block_json,
    content_block,
    has_odd_data,
    is_odd_block,
)
from toolweave.protocol.eras import RESULT, WRAP_MARK
from toolweave.protocol.jsonrpc import writable
from toolweave.protocol.lenient_results import ODD_DATA, readable_result
from toolweave.protocol.meta import SERVER_INFO
from toolweave.protocol.spellings import RESULT_NAMES
from toolweave.protocol.uris import safe_icons
from toolweave.schema._object_around import is_object_schema, object_around, schema_inside
from toolweave.tools._call import RESUMABLE
from toolweave.tools.names import aliases
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec

__all__ = [
    "ERROR_META",
    "MAX_BLOCKS",
    "call_result",
    "handshake_output_schema",
    "read_definition",
    "too_many_blocks",
    "tool_definition",
    "tool_result",
    "unwrapped_output",
    "wraps_results",
]

_log = logging.getLogger("toolweave.tools")
MAX_BLOCKS = 250_000
"""The maximum number of content blocks of a result that is read."""

# Definitions

_WRITTEN = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"})


def tool_definition(spec: ToolSpec, *, modern: bool) -> Json:
    """Return the entry of `tools/list`; members of a foreign definition that this version does not know survive.

    A handshake-era client knows output schemas of objects only; for it, any other schema is that of an object with the
    member `result`, as FastMCP and the official SDK write it.
    """
    made: Json = {"name": spec.name}
    if spec.title is not None:
        made["title"] = spec.title
    if spec.description or spec.raw.get("description") == "":
        made["description"] = spec.description
    made["inputSchema"] = spec.input_schema
    output = spec.output_schema
    if output is not None:
        made["outputSchema"] = output if modern else handshake_output_schema(output)
    if spec.annotations is not None:
        made["annotations"] = spec.annotations
    if spec.icons:
        made["icons"] = list(spec.icons)
    if spec.meta:
        # A mark of this library, for callers in this process; that of a server is passed on.
        kept = spec.meta if spec.server is not None else without_members(spec.meta, RESUMABLE)
        if kept:
            made["_meta"] = dict(kept)
    return made | without_members(spec.raw, *_WRITTEN)


def handshake_output_schema(output: JsonObject | bool) -> JsonObject | bool:
    """Return an output schema in the form that handshake-era clients know: that of an object."""
    if wraps_results(output):
        return object_around(output, RESULT) | {WRAP_MARK: True}
    return output


def wraps_results(output: JsonObject | bool | None) -> bool:
    """Whether a tool with this output schema has wrapped results for handshake-era clients, which know only objects."""
    return output is not None and not is_object_schema(output)


def unwrapped_output(output: JsonObject | bool) -> JsonObject | bool:
    """Return an output schema without the wrapper for handshake-era clients; any other one unchanged."""
    if isinstance(output, bool) or output.get(WRAP_MARK) is not True:
        return output
    inner = schema_inside(without_members(output, WRAP_MARK), RESULT)
    if inner is None:
        return output
    return inner


def read_definition(entry: JsonObject, *, server: str, prefix: str) -> ToolSpec:
    """Return a tool of a server's list; its `name` is a text, everything else may be odd.

    Args:
        entry: The definition as it came.
        server: The name of the server.
        prefix: Put before the exposed name.
    """
    name = entry["name"]
    schema = as_object(entry.get("inputSchema"))
    output = entry.get("outputSchema")
    return ToolSpec(
        name=prefix + name,
        original_name=name,
        server=server,
        title=as_text(entry.get("title")),
        description=text_or_empty(entry.get("description")),
        input_schema=schema if schema is not None else {"type": "object", "properties": {}},
        output_schema=output if isinstance(output, bool) else as_object(output),
        annotations=as_object(entry.get("annotations")),
        icons=safe_icons(entry["icons"]) if "icons" in entry else (),
        meta=object_or_empty(entry.get("_meta")),
        aliases=aliases(server, name),
        raw=entry,
    )


# Results

_EMPTY_ERROR = "MCP tool execution error"
_NO_CONTENT: list[Any] = []
_FLAGS = (bool, type(None))
"""The types of `isError`: by value, the number 1 would count as one of them and be read as a success."""
_MAX_SHOWN = 300


def too_many_blocks(number: int, server: str) -> ProtocolError:
    """Return the error of a result with more than `MAX_BLOCKS` parts, each of which costs half a kilobyte."""
    text = f"its result has {number:,} parts; at most {MAX_BLOCKS:,} are read, so ask for less"
    error = ProtocolError(text, server=server, code=INTERNAL_ERROR)
    error.kind = ErrorKind.TOO_LARGE
    return error


def tool_result(raw: JsonObject, *, server: str, note: Callable[[str], None] | None = None) -> ToolResult:
    """Return a result of `tools/call`; a malformed one is read as it is plainly meant.

    Args:
        raw: The result as it came.
        server: The name of the server.
        note: Called with each part that had to be read so, as a phrase such as `has no 'content'`.

    Raises:
        ProtocolError: It is not a complete tool result.
    """
    if raw.get("resultType", "complete") != "complete":  # absent in legacy revisions: complete
        raise _incomplete(raw, server)
    content: Any = raw.get("content", _NO_CONTENT)
    if isinstance(content, list) and len(content) > MAX_BLOCKS:  # pyright: ignore[reportUnknownArgumentType]
        raise too_many_blocks(len(content), server)  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(content, list) or type(raw.get("isError")) not in _FLAGS:
        return _second_reading(raw, server, note)
    if content is _NO_CONTENT and _is_empty(raw):
        return _second_reading(raw, server, note)
    if not RESULT_NAMES.exact.issuperset(raw):
        return _second_reading(raw, server, note)
    blocks = tuple(map(content_block, content))  # pyright: ignore[reportUnknownArgumentType]
    for block in blocks:
        # Not `any`: a generator costs more than the question, of one block.
        if is_odd_block(block):
            return _second_reading(raw, server, note)
    return _result(raw, blocks)


def _incomplete(raw: JsonObject, server: str) -> ProtocolError:
    """Return the error of a result of another type."""
    kind = str(raw["resultType"])[:80]
    return ProtocolError(f"it answered with unknown resultType {kind!r}", server=server, code=INTERNAL_ERROR)


def _is_empty(raw: JsonObject) -> bool:
    """Return whether a result without content has no structured content, and is not an error."""
    return "structuredContent" not in raw and not raw.get("isError")


def _second_reading(raw: JsonObject, server: str, note: Callable[[str], None] | None) -> ToolResult:
    """Return a result that the specification does not allow."""
    made, changes = readable_result(raw)
    if made.get("resultType", "complete") != "complete":
        raise _incomplete(made, server)
    content: list[Any] = made.get("content", _NO_CONTENT)
    if content is _NO_CONTENT and _is_empty(made):
        shown = shortened(json.dumps(made, ensure_ascii=False, default=str), _MAX_SHOWN)
        raise ProtocolError(
            f"its result has neither 'content' nor 'structuredContent': {shown}", server=server, code=INTERNAL_ERROR
        )
    blocks = tuple(map(content_block, content))
    if any(map(has_odd_data, blocks)):
        changes = (*changes, ODD_DATA.problem)
    for change in changes:
        if note is not None:
            note(change)
    return _result(made, blocks)


def _result(raw: JsonObject, blocks: tuple[ContentBlock, ...]) -> ToolResult:
    meta: Any = raw.get("_meta")
    if type(meta) is not dict:
        meta = object_or_empty(meta)
    result = ToolResult(content=blocks, structured_content=raw.get("structuredContent"), meta=meta, raw=raw)  # pyright: ignore[reportUnknownArgumentType]
    if raw.get("isError") is not True:
        return result
    error = _read_error(result.meta, result.text or _EMPTY_ERROR)
    return result.replace(content=blocks or (TextContent(text=_EMPTY_ERROR),), is_error=True, error=error)


def call_result(result: ToolResult, *, modern: bool, output: JsonObject | bool | None = None) -> Json:
    """Return the members of a result of `tools/call`.

    Structured content is sent when the tool declares an output schema, or when it is an object.

    Args:
        result: The result.
        modern: Whether the client is of the modern era.
        output: The output schema that the tool declares.
    """
    raw = result.raw
    made: Json
    if isinstance(raw, dict):
        made = _foreign(cast("Json", raw))
    else:
        made = {"content": list(map(block_json, result.content))}
        if isinstance(result.structured_content, dict) or (output is not None and not result.is_error):
            made["structuredContent"] = result.structured_content  # pyright: ignore[reportUnknownMemberType]
        if result.meta:
            made["_meta"] = dict(result.meta)
    if "structuredContent" in made:
        _mirror(made)
        if not modern:
            _fit_handshake_era(made, wraps=wraps_results(output) and not result.is_error)
    if result.is_error:
        made["isError"] = True
        if not isinstance(raw, dict) or raw.get("isError") is not True:  # pyright: ignore[reportUnknownMemberType]
            made["_meta"] = {**made.get("_meta", {}), ERROR_META: _error_json(result.require_error())}
    return made


def _fit_handshake_era(made: Json, *, wraps: bool) -> None:
    """Wrap structured content whose schema is wrapped; without a schema, a value that is not an object is left out."""
    if wraps:
        made["structuredContent"] = {RESULT: made["structuredContent"]}
    elif not isinstance(made["structuredContent"], dict):
        del made["structuredContent"]


def _foreign(raw: Json) -> Json:
    """Return a server's result without the members of that hop."""
    made = without_members(raw, "resultType")
    meta = made.get("_meta")
    if isinstance(meta, dict) and SERVER_INFO in meta:
        left = without_members(cast("Json", meta), SERVER_INFO)
        if left:
            made["_meta"] = left
        else:
            del made["_meta"]
    made.setdefault("content", [])
    return made


def _mirror(made: Json) -> None:
    """Give structured content its text, for clients that read only text."""
    if not made["content"]:
        made["content"] = [{"type": "text", "text": json.dumps(made["structuredContent"], ensure_ascii=False)}]


# Errors

ERROR_META = "io.toolweave/error"
"""The key in a result's `_meta`."""

_MAX_CODE_CHARS = 200
_CLAIMED = frozenset(ErrorKind) - {ErrorKind.NOT_SENT, ErrorKind.CLOSED, ErrorKind.AUTH_REQUIRED}
"""The kinds that a server can report of a call; the others are transport errors, which only its client knows."""


def _error_json(error: ToolError) -> Json:
    """Return the member for an error; a missing code is that of its kind, and data that is not JSON is left out."""
    if error.code is None:
        code = CODE_OF_KIND.get(error.kind, "EXECUTION_FAILED")
    else:
        code = error.code
    made: Json = {"kind": error.kind.value, "code": code}
    if error.retryable:
        made["retryable"] = True
    try:
        return writable(made if error.data is None else {**made, "data": error.data})
    except (TypeError, ValueError):
        _log.warning("the data of the error %r is not JSON and is left out", error.message)
        return made


def _read_error(meta: JsonObject, message: str) -> ToolError:
    """Return the error of a server's result, with the details of its `_meta`.

    All of it is the server's claim: no retry depends on it, and malformed members are ignored.
    """
    member = meta.get(ERROR_META)
    if not isinstance(member, dict):
        return ToolError(message)
    said = cast("Json", member)
    kind = said.get("kind")
    code = said.get("code")
    return ToolError(
        message,
        kind=kind if isinstance(kind, str) and kind in _CLAIMED else None,
        code=code if _is_code(code) else None,
        retryable=said.get("retryable") is True,
        data=said.get("data"),
    )


def _is_code(code: object) -> bool:
    if isinstance(code, str):
        return len(code) <= _MAX_CODE_CHARS
    return as_integer(code) is not None
