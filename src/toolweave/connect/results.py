"""Results of `tools/call` as `ToolResult`. Pure; knows no connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import anyio.to_thread

from toolweave.errors import ProtocolError
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.content import TextContent, content_block
from toolweave.protocol.narrow import as_object
from toolweave.tools.error_meta import read_error
from toolweave.tools.result import ToolResult, plain_result

__all__ = ["made_of", "tool_result"]

_EMPTY_ERROR = "MCP tool execution error"
_NO_CONTENT: list[Any] = []
_MANY = 1_000

ResultT = TypeVar("ResultT")


async def made_of(parts: object, make: Callable[[], ResultT]) -> ResultT:
    """Return what `make` returns; where a server sent very many parts, from a thread, so that the event loop goes on.

    `make` must do nothing but make: whoever is cancelled leaves it alone.
    """
    if isinstance(parts, list) and len(cast("list[Any]", parts)) > _MANY:
        return await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
    return make()


def tool_result(raw: Mapping[str, Any], *, server: str) -> ToolResult:
    """Return a `tools/call` result as a `ToolResult`.

    Raises:
        ProtocolError: It is not a complete tool result.
    """
    kind = raw.get("resultType", "complete")  # absent in legacy revisions: complete
    if kind != "complete":
        raise ProtocolError(
            f"it answered with unknown resultType {str(kind)[:80]!r}", server=server, code=INTERNAL_ERROR
        )
    content: Any = raw.get("content", _NO_CONTENT)
    if not isinstance(content, list):
        raise ProtocolError("its result's 'content' is no list", server=server, code=INTERNAL_ERROR)
    if content is _NO_CONTENT and "structuredContent" not in raw and not raw.get("isError"):
        raise ProtocolError(
            "its result has neither 'content' nor 'structuredContent'", server=server, code=INTERNAL_ERROR
        )
    # one block is what nearly every tool answers
    blocks = (content_block(content[0]),) if len(content) == 1 else tuple(map(content_block, content))  # pyright: ignore[reportUnknownArgumentType]
    meta: Any = raw.get("_meta")
    if type(meta) is not dict:
        meta = as_object(meta) or {}
    result = plain_result(blocks, raw.get("structuredContent"), meta, raw)  # pyright: ignore[reportUnknownArgumentType]
    if raw.get("isError") is not True:
        return result
    error = read_error(result.meta, result.text or _EMPTY_ERROR)
    return ToolResult(
        content=blocks or (TextContent(text=_EMPTY_ERROR),),
        structured_content=result.structured_content,
        is_error=True,
        error=error,
        meta=result.meta,
        raw=raw,
    )
