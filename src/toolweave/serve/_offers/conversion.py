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
from toolweave.serve.request import Json
from toolweave.tools import ToolResult
from toolweave.tools.media import Payload, is_binary, payload

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
        messages: list[tuple[str, Json]] = []
        for item in value:
            messages += prompt_messages(item)
        return messages
    if isinstance(value, _OBJECTS) and value.keys() >= {"role", "content"}:
        return _messages(value["role"], value["content"])
    if hasattr(value, "role") and hasattr(value, "content"):
        return _messages(value.role, value.content)
    return _messages("user", value)


def _messages(role: str, content: Any) -> list[tuple[str, Json]]:
    # an object with a type is a content block of the protocol already
    if isinstance(content, _OBJECTS) and "type" in content:
        return [(role, dict(content))]
    return [(role, block_json(one)) for one in ToolResult.of(content).content]


def resource_contents(value: Any, *, uri: str, mime_type: str | None) -> list[Json]:
    """Return a resource function's return value as the contents of `resources/read`.

    Args:
        value: A text, bytes, a `File` or the `Path` of one, an image, a content block, or a list with one of these
            except texts; any other value is its JSON.
        uri: The URI that was read.
        mime_type: The declared MIME type; None derives it from the value.
    """
    if isinstance(value, ToolResult):
        value = value.content
    # a list of other values is one JSON value
    if isinstance(value, _LISTS) and any(map(_is_content, value)):
        return [_content(item, uri, mime_type) for item in value]
    return [_content(value, uri, mime_type)]


def _is_content(value: object) -> bool:
    return isinstance(value, _BLOCKS) or is_binary(value)


def _content(value: Any, uri: str, mime_type: str | None) -> Json:
    if isinstance(value, EmbeddedResource):
        made: Json = block_json(value)["resource"]
        if value.meta:
            return made | {"_meta": value.meta}
        return made
    return resource_json(_embedded(value, uri, mime_type))


def _embedded(value: Any, uri: str, mime_type: str | None) -> EmbeddedResource:
    if isinstance(value, (ImageContent, AudioContent)):
        return EmbeddedResource(uri=uri, mime_type=value.mime_type, blob=value.data)
    if isinstance(value, str):
        return _text(value, uri, mime_type or _TEXT)
    if isinstance(value, _BLOCKS):
        return _text(value.render(), uri, mime_type or _TEXT)
    content = payload(value)
    if content is None:
        return _text(ToolResult.of(value).text, uri, mime_type or _JSON)
    content = Payload(data=content.data, mime_type=mime_type or content.mime_type)
    if content.text is None:
        return EmbeddedResource(uri=uri, mime_type=content.mime_type, blob=content.base64)
    return EmbeddedResource(uri=uri, mime_type=content.mime_type, text=content.text)


def _text(text: str, uri: str, mime_type: str) -> EmbeddedResource:
    return EmbeddedResource(uri=uri, mime_type=mime_type, text=text)
