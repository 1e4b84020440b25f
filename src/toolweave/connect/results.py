"""Wire results as Toolweave's values: `tools/call` results, content blocks. Pure; knows no connection.

Lenient where a server errs without harm: an odd block becomes `UnknownContent`, never a lost result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import anyio.to_thread

from toolweave.connect.shapes import as_object, as_text
from toolweave.errors import ProtocolError
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.tools.error_meta import read_error
from toolweave.tools.result import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolResult,
    UnknownContent,
    plain_result,
    plain_text,
)

__all__ = ["content_block", "made_of", "tool_result"]

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
    meta = (as_object(raw["_meta"]) if "_meta" in raw else None) or {}
    result = plain_result(blocks, raw.get("structuredContent"), meta, raw)
    if raw.get("isError") is not True:
        return result
    error = read_error(meta, result.text or _EMPTY_ERROR)
    return ToolResult(
        content=blocks or (TextContent(text=_EMPTY_ERROR),),
        structured_content=result.structured_content,
        is_error=True,
        error=error,
        meta=meta,
        raw=raw,
    )


def content_block(item: Any) -> ContentBlock:
    """Return one content block; what is odd or of an unknown type becomes `UnknownContent`."""
    block: Any = item if type(item) is dict else as_object(item)  # pyright: ignore[reportUnknownVariableType]
    if block is not None and len(block) == 2 and block.get("type") == "text" and type(block.get("text")) is str:
        return plain_text(block["text"], block)  # nearly every block: spare it the questions below
    if block is None:
        return UnknownContent(type="malformed", raw={"value": item})
    make = _MAKERS.get(as_text(block.get("type")) or "")
    made = (
        make(block, {"annotations": as_object(block.get("annotations")), "meta": as_object(block.get("_meta")) or {}})
        if make
        else None
    )
    return made if made is not None else UnknownContent(type=str(block.get("type", "malformed")), raw=block)


def _text(block: Mapping[str, Any], common: dict[str, Any]) -> ContentBlock | None:
    text = block.get("text")
    return TextContent(text=text, raw=block, **common) if isinstance(text, str) else None


def _image(block: Mapping[str, Any], common: dict[str, Any]) -> ContentBlock | None:
    data, mime = block.get("data"), block.get("mimeType", "image/png")
    if not isinstance(data, str) or not isinstance(mime, str):
        return None
    return ImageContent(data=data, mime_type=mime, raw=block, **common)


def _audio(block: Mapping[str, Any], common: dict[str, Any]) -> ContentBlock | None:
    data, mime = block.get("data"), block.get("mimeType", "audio/wav")
    if not isinstance(data, str) or not isinstance(mime, str):
        return None
    return AudioContent(data=data, mime_type=mime, raw=block, **common)


def _link(block: Mapping[str, Any], common: dict[str, Any]) -> ContentBlock | None:
    uri, size = block.get("uri"), block.get("size")
    if not isinstance(uri, str):
        return None
    return ResourceLink(
        uri=uri,
        name=as_text(block.get("name")) or "",
        title=as_text(block.get("title")),
        description=as_text(block.get("description")),
        mime_type=as_text(block.get("mimeType")),
        size=size if isinstance(size, int) else None,
        raw=block,
        **common,
    )


def _resource(block: Mapping[str, Any], common: dict[str, Any]) -> ContentBlock | None:
    inner = as_object(block.get("resource"))
    if inner is None or not isinstance(inner.get("uri"), str):
        return None
    text, blob = as_text(inner.get("text")), as_text(inner.get("blob"))
    if text is None and blob is None:
        return None
    return EmbeddedResource(
        uri=inner["uri"], mime_type=as_text(inner.get("mimeType")), text=text, blob=blob, raw=block, **common
    )


_MAKERS = {"text": _text, "image": _image, "audio": _audio, "resource_link": _link, "resource": _resource}
