"""Tools, blocks and results in the form of Anthropic's Messages API: text, images, documents, notes for the rest.

Pure. Content that the API does not accept becomes a visible note. One block that it refuses fails
the whole request, now and with every later turn, so nothing here trusts a server.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolweave._json_types import Json
from toolweave.protocol.content import ContentBlock, EmbeddedResource, ImageContent, TextContent
from toolweave.providers._media_parts import clean
from toolweave.providers._wire_tools import WireTool
from toolweave.tools import ToolResult
from toolweave.tools.media import sniff

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_MAX_IMAGE = 5 * 1024 * 1024
"""Maximum characters of base64 in one image."""
_MAX_TITLE = 500
_SILENT_FAILURE = "the tool failed and did not say why"


def anthropic_form(tool: WireTool) -> Json:
    """Return a tool's definition; a blank description is left out."""
    if tool.description.strip():
        described = {"description": tool.description}
    else:
        described = {}
    held = {"strict": True} if tool.strict else {}
    return {"name": tool.name, **described, "input_schema": tool.schema, **held}


def anthropic_content(result: ToolResult) -> list[Json]:
    """Return a result as the content of a `tool_result` block; empty for a result without content.

    The caller sets `is_error`; the API then accepts text only, and requires some.
    """
    result = result.for_model()
    if result.is_error:
        text = result.text
        return [anthropic_text(text if text.strip() else _SILENT_FAILURE)]
    return anthropic_parts(result.content or (TextContent(text=result.text),))


def anthropic_parts(blocks: Iterable[ContentBlock]) -> list[Json]:
    """Return blocks in the API's form: text, images and documents as such, notes for others, no blank text."""
    return list(filter(None, map(_part, blocks)))


def anthropic_text(text: str) -> Json:
    """Return a block of text; a lone surrogate, which no request can carry, becomes U+FFFD."""
    return {"type": "text", "text": clean(text)}


def _part(block: ContentBlock) -> Json | None:
    wire: Json | None = None
    match block:
        case ImageContent():
            wire = _image(block)
        case EmbeddedResource(blob=str() as blob):
            wire = _file(block, blob)
        case EmbeddedResource(text=str() as text) if text.strip():
            wire = _document({"type": "text", "media_type": "text/plain", "data": clean(text)}, block.uri)
        case _:
            pass
    if wire is not None:
        return wire
    text = block.render()
    if text.strip():
        return anthropic_text(text)
    return None


def _file(block: EmbeddedResource, blob: str) -> Json | None:
    if (block.mime_type or "").lower().startswith("image/"):
        return _image(ImageContent(data=blob, mime_type=""))
    if (_decoded(block) or b"").startswith(b"%PDF-"):
        return _document({"type": "base64", "media_type": "application/pdf", "data": blob}, block.uri)
    return None


def _image(block: ImageContent) -> Json | None:
    """Return an image under the type that its bytes show, since the API compares; None for an unsupported one."""
    if len(block.data) <= _MAX_IMAGE:
        data = _decoded(block)
    else:
        data = None
    kind = sniff(data) if data is not None else None
    if kind not in _IMAGES:
        return None
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": block.data}}


def _decoded(block: ImageContent | EmbeddedResource) -> bytes | None:
    try:
        return block.decode()
    except ValueError:  # what a server calls base64 may be none
        return None


def _document(source: Json, uri: str) -> Json:
    return {"type": "document", "source": source, **({"title": clean(uri)[:_MAX_TITLE]} if uri else {})}
