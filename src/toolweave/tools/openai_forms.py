"""Blocks and results in the form of OpenAI's Responses and Chat APIs: text, images, files, notes for the rest. Pure.

What an API does not take becomes a visible note, never silence (requirement C17), and never fails the whole request:
base64 is decoded, an image's type is read from its bytes, text is valid Unicode and never blank.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from toolweave.tools.media import sniff
from toolweave.tools.result import AudioContent, ContentBlock, EmbeddedResource, ImageContent, ToolResult

__all__ = ["chat_parts", "chat_text", "responses_content", "responses_parts"]

Json: TypeAlias = dict[str, Any]

_NO_OUTPUT = "(no output)"
_PDF = "application/pdf"
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_SHOWN = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", _PDF})
_HEARD = _SHOWN | frozenset(_SOUNDS)


class _Media(NamedTuple):
    """What is no text and can be shown as itself; `data` is sound base64."""

    mime_type: str
    data: str
    name: str

    @property
    def url(self) -> str:
        return f"data:{self.mime_type};base64,{self.data}"


def responses_content(result: ToolResult) -> str | list[Json]:
    """Return a result as the `output` of a `function_call_output`: a string when it is text alone.

    There is no flag for errors, so the text of an error result says that it is one (requirement D18).
    """
    parts = responses_parts(result.content)
    if all(part["type"] == "input_text" for part in parts):
        return chat_text(result)
    if result.is_error and not _says_error(parts[0].get("text", "")):
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    return parts


def chat_text(result: ToolResult) -> str:
    """Return a result as the `content` of a tool message of the Chat API, which takes text alone; never blank."""
    text = _clean(result.text)
    if not result.is_error:
        return text if text.strip() else _NO_OUTPUT
    text = text if text.strip() else _clean(result.require_error().message)
    return text if _says_error(text) else f"Error: {text}"


def responses_parts(blocks: Iterable[ContentBlock]) -> list[Json]:
    """Return blocks as input parts of the Responses API; blank text is left out."""
    return [_responses_part(shown) for shown in _shown(blocks, _SHOWN)]


def chat_parts(blocks: Iterable[ContentBlock]) -> list[Json]:
    """Return blocks as parts of a user's message of the Chat API; blank text is left out."""
    return [_chat_part(shown) for shown in _shown(blocks, _HEARD)]


def _responses_part(shown: str | _Media) -> Json:
    if isinstance(shown, str):
        return {"type": "input_text", "text": shown}
    if shown.mime_type == _PDF:
        return {"type": "input_file", "filename": shown.name, "file_data": shown.url}
    return {"type": "input_image", "image_url": shown.url, "detail": "auto"}


def _chat_part(shown: str | _Media) -> Json:
    if isinstance(shown, str):
        return {"type": "text", "text": shown}
    if shown.mime_type == _PDF:
        return {"type": "file", "file": {"filename": shown.name, "file_data": shown.url}}
    if shown.mime_type in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": shown.data, "format": _SOUNDS[shown.mime_type]}}
    return {"type": "image_url", "image_url": {"url": shown.url}}


def _shown(blocks: Iterable[ContentBlock], taken: Container[str]) -> Iterator[str | _Media]:
    """Yield each block as media of a type that is taken, else as its text or the note that stands for it."""
    for block in blocks:
        media = _media(block)
        if media is not None and media.mime_type in taken:
            yield media
        elif (text := _clean(block.render())).strip():
            yield text


def _media(block: ContentBlock) -> _Media | None:
    match block:
        case ImageContent():
            return _checked(block, block.data, "", "image")
        case AudioContent():
            return _checked(block, block.data, block.mime_type, "sound")
        case EmbeddedResource(blob=str() as blob):
            name = PurePosixPath(urlsplit(block.uri).path).name or "file"
            return _checked(block, blob, block.mime_type or "", name)
        case _:
            return None


def _checked(
    block: ImageContent | AudioContent | EmbeddedResource, data: str, declared: str, name: str
) -> _Media | None:
    """Return the media under the type that its bytes tell; None for what is not what an API would take it for."""
    try:
        content = block.decode()
    except ValueError:  # what a server calls base64 may be none; one such block would fail every later turn
        return None
    kind = sniff(content)
    if content.startswith(b"%PDF-"):
        return _Media(_PDF, data, name if name.lower().endswith(".pdf") else f"{name}.pdf")
    if kind in _SHOWN:
        return _Media(kind, data, name)
    declared = declared.partition(";")[0].strip().lower()
    return _Media(declared, data, name) if content and declared in _SOUNDS else None


def _says_error(text: str) -> bool:
    return text.lstrip().lower().startswith(("error", "mcp error"))


def _clean(text: str) -> str:
    """Return the text without halves of surrogate pairs, which no request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
