"""Conversion of a handler's return value to resource contents or prompt messages.

Accepts the same values as `ToolResult.of` does for tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolweave.protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    TextContent,
    block_json,
    resource_json,
)
from toolweave.serve._request import Json
from toolweave.tools._media import Payload, is_binary, payload
from toolweave.tools._result import ToolResult

_JSON = "application/json"
_TEXT = "text/plain"
_LISTS: tuple[type[Any], ...] = (list, tuple)
_OBJECTS: tuple[type[Any], ...] = (Mapping,)
_BLOCKS: tuple[type[Any], ...] = (TextContent, ImageContent, AudioContent, EmbeddedResource)


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """One message of a prompt.

    Attributes:
        content: A text, a content block, bytes, a `File` or the `Path` of one, an image; any other value is its JSON.
        role: `"user"` or `"assistant"`.
    """

    content: Any
    role: Literal["user", "assistant"] = "user"


def prompt_messages(value: Any) -> list[tuple[str, Json]]:
    """Return the role and the content block of each message that a prompt's function returned.

    A message without a role is the user's.
    """
    if isinstance(value, _LISTS):
        return [message for item in value for message in prompt_messages(item)]
    if isinstance(value, _OBJECTS) and "role" in value and "content" in value:
        return _said(value["role"], value["content"])
    if hasattr(value, "role") and hasattr(value, "content"):
        return _said(value.role, value.content)
    return _said("user", value)


def _said(role: str, content: Any) -> list[tuple[str, Json]]:
    if isinstance(content, _OBJECTS) and "type" in content:  # a block as it travels
        return [(role, dict(content))]
    return [(role, block_json(one)) for one in ToolResult.of(content).content]


def resource_contents(value: Any, *, uri: str, mime_type: str | None) -> list[Json]:
    """Return a resource function's return value as the contents of `resources/read`.

    Args:
        value: A text, bytes, a `File` or the `Path` of one, an image, a content block, or a list with one of these
            (but for texts); any other value is its JSON.
        uri: The URI that was read.
        mime_type: The declared MIME type; None derives it from the value.
    """
    if isinstance(value, ToolResult):
        value = value.content
    several = isinstance(value, _LISTS) and any(map(_is_content, value))
    return [_content(item, uri, mime_type) for item in (value if several else (value,))]


def _is_content(value: object) -> bool:
    return isinstance(value, _BLOCKS) or is_binary(value)


def _content(value: Any, uri: str, mime_type: str | None) -> Json:
    if isinstance(value, EmbeddedResource):
        made: Json = block_json(value)["resource"]
        return made | ({"_meta": value.meta} if value.meta else {})
    return resource_json(_embedded(value, uri, mime_type))


def _embedded(value: Any, uri: str, mime_type: str | None) -> EmbeddedResource:
    if isinstance(value, str):
        return EmbeddedResource(uri=uri, mime_type=mime_type or _TEXT, text=value)
    if isinstance(value, (ImageContent, AudioContent)):
        return EmbeddedResource(uri=uri, mime_type=value.mime_type, blob=value.data)
    if isinstance(value, _BLOCKS):
        return EmbeddedResource(uri=uri, mime_type=mime_type or _TEXT, text=value.render())
    content = payload(value)
    if content is None:
        return EmbeddedResource(uri=uri, mime_type=mime_type or _JSON, text=ToolResult.of(value).text)
    content = Payload(data=content.data, mime_type=mime_type or content.mime_type)
    text = content.text
    blob = content.base64 if text is None else None
    return EmbeddedResource(uri=uri, mime_type=content.mime_type, text=text, blob=blob)
