"""What a server offers beside tools, as values: resources, templates, prompts, completions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolweave.connect.feed.listing import Judged, read_entries
from toolweave.errors import ProtocolError
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.content import ContentBlock, EmbeddedResource, content_block
from toolweave.protocol.narrow import as_array, as_object, as_text

__all__ = [
    "Completion",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptResult",
    "Resource",
    "ResourceTemplate",
    "completion",
    "prompt_result",
    "read_prompts",
    "read_resources",
    "read_templates",
    "resource_contents",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource that can be read; `size` in bytes, when the server says."""

    uri: str
    name: str = ""
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate:
    """A family of resources; `uri_template` is an RFC 6570 URI template."""

    uri_template: str
    name: str = ""
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """One argument of a prompt; its value is always a string."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt template of the server."""

    name: str
    title: str | None = None
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """One message of a filled-in prompt; `role` is `"user"` or `"assistant"`."""

    role: str
    content: ContentBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResult:
    """A filled-in prompt."""

    messages: tuple[PromptMessage, ...]
    description: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Values that complete an argument; `total` in all, when the server says."""

    values: tuple[str, ...]
    total: int | None = None
    has_more: bool = False


def read_resources(entries: list[Any]) -> Judged[Resource]:
    """Return the resources of a list; entries without a URI are left out, each with its reason."""
    return read_entries(entries, "uri", _resource, noun="resource")


def read_templates(entries: list[Any]) -> Judged[ResourceTemplate]:
    """Return the resource templates of a list; entries without a template are left out, each with its reason."""
    return read_entries(entries, "uriTemplate", _template, noun="resource template")


def read_prompts(entries: list[Any]) -> Judged[Prompt]:
    """Return the prompts of a list; entries without a name are left out, each with its reason."""
    return read_entries(entries, "name", _prompt, noun="prompt")


def resource_contents(raw: Mapping[str, Any], *, server: str) -> tuple[EmbeddedResource, ...]:
    """Return the contents of a `resources/read` result.

    Raises:
        ProtocolError: It has no list of contents.
    """
    contents = as_array(raw.get("contents"))
    if contents is None:
        raise ProtocolError("its answer to resources/read has no list 'contents'", server=server, code=INTERNAL_ERROR)
    blocks = [content_block({"type": "resource", "resource": item}) for item in contents]
    return tuple(block for block in blocks if isinstance(block, EmbeddedResource))


def prompt_result(raw: Mapping[str, Any], *, server: str) -> PromptResult:
    """Return a `prompts/get` result.

    Raises:
        ProtocolError: It has no list of messages.
    """
    messages = as_array(raw.get("messages"))
    if messages is None:
        raise ProtocolError("its answer to prompts/get has no list 'messages'", server=server, code=INTERNAL_ERROR)
    return PromptResult(
        description=as_text(raw.get("description")) or "",
        messages=tuple(
            PromptMessage(role=str(item.get("role", "user")), content=content_block(item.get("content")))
            for item in _with(messages, "role")
        ),
        raw=raw,
    )


def completion(raw: Mapping[str, Any]) -> Completion:
    """Return a `completion/complete` result; an odd one completes nothing."""
    found = as_object(raw.get("completion")) or {}
    total = found.get("total")
    return Completion(
        values=tuple(value for value in as_array(found.get("values")) or () if isinstance(value, str)),
        total=total if isinstance(total, int) else None,
        has_more=found.get("hasMore") is True,
    )


def _resource(entry: Mapping[str, Any]) -> Resource:
    size = entry.get("size")
    sized = isinstance(size, int) and not isinstance(size, bool)
    return Resource(uri=entry["uri"], size=size if sized else None, **_described(entry))


def _template(entry: Mapping[str, Any]) -> ResourceTemplate:
    return ResourceTemplate(uri_template=entry["uriTemplate"], **_described(entry))


def _prompt(entry: Mapping[str, Any]) -> Prompt:
    described = _described(entry)
    described.pop("mime_type")
    arguments = tuple(
        PromptArgument(
            name=item["name"],
            description=as_text(item.get("description")) or "",
            required=item.get("required") is True,
        )
        for item in _with(as_array(entry.get("arguments")) or [], "name")
    )
    return Prompt(arguments=arguments, **described)


def _with(entries: list[Any], key: str) -> list[Mapping[str, Any]]:
    objects = [entry for entry in map(as_object, entries) if entry is not None]
    return [entry for entry in objects if isinstance(entry.get(key), str)]


def _described(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": as_text(entry.get("name")) or "",
        "title": as_text(entry.get("title")),
        "description": as_text(entry.get("description")) or "",
        "mime_type": as_text(entry.get("mimeType")),
        "raw": entry,
    }
