"""Content of messages in the forms of other libraries and APIs, read as content blocks. Pure.

Knows the parts of the chat API, the Messages API, the Responses API, MCP, LangChain and Pydantic AI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolweave._json_types import JsonObject, as_object, as_sequence, as_text, object_or_empty, text_or_empty
from toolweave.protocol.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    UnknownContent,
    content_block,
    plain_base64,
)

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")
_BLOCKS: tuple[type, ...] = ContentBlock.__args__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
_TEXTS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "text-content": "content",
}
"""Types of parts that are a text, with the member that holds it."""
_FITTING = (
    "a text, content blocks, or parts of type 'text', 'image', 'image_url', 'input_image', 'input_audio', 'document' "
    "and 'file' that hold their data"
)


class UnknownForm(TypeError):
    """A message in an unknown form; the text names the member and lists the accepted forms."""


def parts_of(content: object) -> Sequence[Any]:
    """Return the parts of a content: its items, or itself as the only one; none for None."""
    if content is None:
        return ()
    parts = as_sequence(content)
    if parts is None:
        return (content,)
    return parts


def blocks_of(content: object, member: str = "content") -> tuple[ContentBlock, ...]:
    """Return a content as blocks; `member` is its name for an error.

    Raises:
        UnknownForm: A part is of an unknown type.
    """
    return tuple(block_of(part, member) for part in parts_of(content))


def block_of(part: object, member: str = "content") -> ContentBlock:
    """Return one part as a block; `member` is the name of its content for an error.

    Raises:
        UnknownForm: The part is of an unknown type.
    """
    if isinstance(part, str):
        return TextContent(text=part)
    if isinstance(part, _BLOCKS):
        return cast("ContentBlock", part)
    members = part_members(part)
    if members is None:
        raise UnknownForm(f"{member!r} is content of {type(part).__name__}. Content is {_FITTING}.")
    kind = part_type(members)
    text = members.get(_TEXTS.get(kind, ""))
    if isinstance(text, str):
        return TextContent(text=text)
    block = _media(kind, members) or _mcp_block(kind, members)
    if block is None:
        raise UnknownForm(f"{member!r} has a part of type {kind!r} that cannot be read. Content is {_FITTING}.")
    return block


def part_members(part: object) -> JsonObject | None:
    """Return the members of a part, which may be an object of a library; None for a value of another kind."""
    members = as_object(part)
    if members is not None:
        return members
    dump = getattr(part, "model_dump", None)
    if not callable(dump):
        return None
    # By alias, because the aliases are the names of the API. Models of libraries warn about values that an API sends
    # anyway.
    return as_object(dump(by_alias=True, exclude_none=True, warnings=False))


def members_of(part: object) -> JsonObject:
    """Return the members of a part; a value of another kind has no members."""
    members = part_members(part)
    if members is None:
        return {}
    return members


def part_type(members: JsonObject) -> str:
    """Return the type of a part; Pydantic AI calls it `kind`."""
    kind = members.get("type") or members.get("kind")
    if kind is None:
        return ""
    return str(kind)


def _media(kind: str, members: JsonObject) -> ContentBlock | None:
    """Return an image, a sound or a file in the form of an API; None for one that is only a URL."""
    match kind:
        case "image_url" | "input_image":
            url = members.get("image_url")
            if isinstance(url, str):
                return _from_url(url)
            return _from_url(object_or_empty(url).get("url"))
        case "file" | "input_file":
            held = as_object(members.get("file")) or members
            block = _from_url(held.get("file_data"), as_text(held.get("filename")))
            return block or _plain_media(members)
        case "input_audio":
            return _input_audio(object_or_empty(members.get("input_audio")))
        case "image" | "document" if members.get("source"):
            return _sourced_media(kind, object_or_empty(members["source"]), as_text(members.get("title")))
        case "image" | "audio" | "binary":
            return _plain_media(members)
        case _:
            return None


def _input_audio(sound: JsonObject) -> ContentBlock | None:
    """Return a sound of the chat API, which names its format and not its media type."""
    audio_format = sound.get("format")
    if audio_format == "mp3":
        return _from_data(sound.get("data"), "audio/mpeg")
    return _from_data(sound.get("data"), f"audio/{audio_format}")


def _sourced_media(kind: str, source: JsonObject, title: str | None) -> ContentBlock | None:
    """Return an image or a document of the Messages API."""
    if kind != "document" or source.get("type") != "text":
        return _from_data(source.get("data"), source.get("media_type"), title)
    text = as_text(source.get("data"))
    if text is None:
        return None
    return EmbeddedResource(uri=title or "", text=text, mime_type="text/plain")


def _plain_media(members: JsonObject) -> ContentBlock | None:
    """Return media whose data stand beside their type, in the forms of MCP, LangChain and Pydantic AI."""
    data = members.get("data") or members.get("base64")
    name = as_text(members.get("filename"))
    for member in ("mimeType", "mime_type", "media_type"):
        mime_type = members.get(member)
        if isinstance(mime_type, str):
            return _from_data(data, mime_type, name)
    if members.get("type") == "image":
        return _from_data(data, "image/png", name)
    return None


def _from_url(url: object, name: str | None = None) -> ContentBlock | None:
    match = _DATA_URL.match(text_or_empty(url))
    if match is None:
        return None
    return _from_data(match.string[match.end() :], match.group(1), name)


def _from_data(data: object, mime_type: object, name: str | None = None) -> ContentBlock | None:
    if not isinstance(data, str) or not isinstance(mime_type, str):
        return None
    # Libraries differ in alphabet, padding and line breaks; providers accept the plain form only.
    data, _ = plain_base64(data)
    if mime_type.startswith("image/"):
        return ImageContent(data=data, mime_type=mime_type)
    if mime_type.startswith("audio/"):
        return AudioContent(data=data, mime_type=mime_type)
    return EmbeddedResource(uri=name or "", blob=data, mime_type=mime_type)


def _mcp_block(kind: str, members: JsonObject) -> ContentBlock | None:
    if kind not in ("resource", "resource_link"):
        return None
    block = content_block(dict(members))
    if isinstance(block, UnknownContent):
        return None
    return block
