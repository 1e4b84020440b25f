"""Features of a server beside tools: resources, prompts and completions; to JSON and from JSON.

A server's messages are untrusted: a malformed member counts as missing, and readers raise `ValueError` where nothing
can be read. Entries of lists were checked before to have their key, a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from toolweave._json_types import (
    Json,
    JsonObject,
    as_array,
    as_integer,
    as_object,
    as_text,
    new_object,
    object_entries,
    object_or_empty,
    text_entries,
    text_or_empty,
    without_none,
)
from toolweave._value import Value
from toolweave.protocol.component_meta import tags_in, version_in
from toolweave.protocol.content import ContentBlock, EmbeddedResource, content_block, has_odd_data
from toolweave.protocol.lenient_answers import readable_completion
from toolweave.protocol.lenient_offers import NoteChange, ignore_change, readable_contents, readable_messages
from toolweave.protocol.lenient_results import ODD_DATA
from toolweave.protocol.uris import safe_icons

__all__ = [
    "MAX_COMPLETIONS",
    "Completion",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptResult",
    "Resource",
    "ResourceTemplate",
    "completion_json",
    "completion_params",
    "definition",
    "prompt_result_json",
    "read_completion",
    "read_prompt",
    "read_prompt_result",
    "read_reference",
    "read_resource",
    "read_resource_contents",
    "read_template",
]


# Definitions


class _ListedOffer(Value, frozen=True, kw_only=True):
    """The members that all definitions have.

    Attributes:
        icons: Icons as the specification has them.
        meta: The definition's `_meta`.
        raw: The definition as it came; empty for one that was made here.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw"})
    icons: tuple[JsonObject, ...] = ()
    meta: JsonObject = msgspec.field(default_factory=new_object)
    raw: JsonObject = msgspec.field(default_factory=new_object)

    @property
    def tags(self) -> frozenset[str]:
        """The tags that its `_meta` names; as untrusted as all that a server says."""
        return tags_in(self.meta)

    @property
    def version(self) -> str | None:
        """The version that its `_meta` names, or None."""
        return version_in(self.meta)


class Resource(_ListedOffer, frozen=True, kw_only=True):
    """A resource that can be read; `size` in bytes, when the server says.

    Attributes:
        annotations: Hints of the specification, such as `audience` and `priority`.
    """

    uri: str
    name: str = ""
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    annotations: JsonObject | None = None


class ResourceTemplate(_ListedOffer, frozen=True, kw_only=True):
    """A family of resources; `uri_template` is an RFC 6570 URI template, the other fields are those of `Resource`."""

    uri_template: str
    name: str = ""
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    annotations: JsonObject | None = None


class PromptArgument(Value, frozen=True, kw_only=True):
    """One argument of a prompt; its value is always a string."""

    name: str
    description: str = ""
    required: bool = False


class Prompt(_ListedOffer, frozen=True, kw_only=True):
    """A prompt template of the server; `icons`, `meta` and `raw` are as those of `Resource`."""

    name: str
    title: str | None = None
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


def definition(item: Resource | ResourceTemplate | Prompt) -> Json:
    """Return the entry of a list; one that came from a server is returned unchanged."""
    if item.raw:
        return dict(item.raw)
    made: Json = {"name": item.name, "title": item.title}
    if item.description:
        made["description"] = item.description
    if isinstance(item, Prompt):
        made["arguments"] = list(map(_argument_json, item.arguments))
    else:
        made |= {"mimeType": item.mime_type, "annotations": item.annotations}
    if isinstance(item, Resource):
        made |= {"uri": item.uri, "size": item.size}
    elif isinstance(item, ResourceTemplate):
        made["uriTemplate"] = item.uri_template
    if item.icons:
        made["icons"] = list(item.icons)
    if item.meta:
        made["_meta"] = item.meta
    return without_none(made)


def _argument_json(argument: PromptArgument) -> Json:
    made: Json = {"name": argument.name, "required": argument.required}
    if argument.description:
        made["description"] = argument.description
    return made


def read_resource(entry: JsonObject) -> Resource:
    """Return a resource of a list; its `uri` is a text."""
    size = as_integer(entry.get("size"))
    return Resource(uri=entry["uri"], size=size, **_readable(entry), **_described(entry))


def read_template(entry: JsonObject) -> ResourceTemplate:
    """Return a resource template of a list; its `uriTemplate` is a text."""
    return ResourceTemplate(uri_template=entry["uriTemplate"], **_readable(entry), **_described(entry))


def read_prompt(entry: JsonObject) -> Prompt:
    """Return a prompt of a list; its `name` is a text."""
    arguments = tuple(
        PromptArgument(
            name=item["name"],
            description=text_or_empty(item.get("description")),
            required=item.get("required") is True,
        )
        for item in _with(entry.get("arguments"), "name")
    )
    return Prompt(arguments=arguments, **_described(entry))


def _described(entry: JsonObject) -> Json:
    icons = safe_icons(entry.get("icons"))
    if "icons" in entry and list(icons) != entry["icons"]:
        entry = {**entry, "icons": list(icons)}
    return {
        "name": text_or_empty(entry.get("name")),
        "title": as_text(entry.get("title")),
        "description": text_or_empty(entry.get("description")),
        "icons": icons,
        "meta": object_or_empty(entry.get("_meta")),
        "raw": entry,
    }


def _readable(entry: JsonObject) -> Json:
    return {"mime_type": as_text(entry.get("mimeType")), "annotations": as_object(entry.get("annotations"))}


def _with(entries: object, key: str) -> list[JsonObject]:
    """Return the objects of an array in which a member is a text."""
    return [entry for entry in object_entries(entries) if isinstance(entry.get(key), str)]


# Results


def read_resource_contents(
    result: JsonObject, *, uri: str = "", note: NoteChange = ignore_change
) -> tuple[EmbeddedResource, ...]:
    """Return the contents in a result of `resources/read`; malformed ones are read as they are plainly meant.

    Args:
        result: The result as it came.
        uri: The URI that was read.
        note: Called with each part that had to be read so, as a phrase.

    Raises:
        ValueError: It has no list of contents.
    """
    contents = as_array(readable_contents(result, uri, note).get("contents"))
    if contents is None:
        raise ValueError("has no list 'contents'")
    read: list[EmbeddedResource] = []
    for item in contents:
        block = content_block({"type": "resource", "resource": item})
        if has_odd_data(block):
            note(ODD_DATA.problem)
        if isinstance(block, EmbeddedResource):
            # Of the content, around which there is not a block.
            meta = as_object(item.get("_meta"))
            read.append(block if meta is None else block.replace(meta=meta))
    return tuple(read)


class PromptMessage(Value, frozen=True, kw_only=True):
    """One message of a filled-in prompt; `role` is `"user"` or `"assistant"`."""

    role: str
    content: ContentBlock


class PromptResult(Value, frozen=True, kw_only=True):
    """A filled-in prompt."""

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw"})
    messages: tuple[PromptMessage, ...]
    description: str = ""
    raw: JsonObject = msgspec.field(default_factory=new_object)


def prompt_result_json(messages: Sequence[tuple[str, JsonObject]], description: str | None) -> Json:
    """Return the result of `prompts/get`; each message is a role and a content block as JSON."""
    made: Json = {} if description is None else {"description": description}
    return made | {"messages": [{"role": role, "content": content} for role, content in messages]}


def read_prompt_result(result: JsonObject, *, note: NoteChange = ignore_change) -> PromptResult:
    """Return a result of `prompts/get`; malformed messages are read as they are plainly meant.

    Args:
        result: The result as it came.
        note: Called with each part that had to be read so, as a phrase.

    Raises:
        ValueError: It has no list of messages.
    """
    read = readable_messages(result, note)
    messages = as_array(read.get("messages"))
    if messages is None:
        raise ValueError("has no list 'messages'")
    made = tuple(map(_prompt_message, _with(messages, "role")))
    for message in made:
        if has_odd_data(message.content):
            note(ODD_DATA.problem)
    return PromptResult(
        description=text_or_empty(read.get("description")),
        messages=made,
        raw=result,
    )


def _prompt_message(item: JsonObject) -> PromptMessage:
    return PromptMessage(role=item["role"], content=content_block(item.get("content")))


# Completions

MAX_COMPLETIONS = 100
"""Values in one answer (MCP specification, completion)."""
_REFERENCES = {"ref/prompt": ("prompt", "name"), "ref/resource": ("resource", "uri")}
"""The types of a reference: the kind of thing, and the member that names it."""


class Completion(Value, frozen=True, kw_only=True):
    """Values that complete an argument; `total` in all, when the server says."""

    values: tuple[str, ...]
    total: int | None = None
    has_more: bool = False


def completion_params(
    ref: Mapping[str, str], argument: str, value: str, *, context: Mapping[str, str] | None = None
) -> Json:
    """Return the parameters of `completion/complete`.

    Args:
        ref: `{"type": "ref/prompt", "name": ...}` or `{"type": "ref/resource", "uri": ...}`.
        argument: The name of the argument or variable.
        value: Its text so far.
        context: The values of other arguments.
    """
    params: Json = {"ref": dict(ref), "argument": {"name": argument, "value": value}}
    if context:
        return params | {"context": {"arguments": dict(context)}}
    return params


def read_reference(ref: JsonObject) -> tuple[str, str]:
    """Return the kind of the referenced object, `"prompt"` or `"resource"`, and its name or URI.

    Raises:
        ValueError: The object is not a reference.
    """
    kind, member = _REFERENCES.get(text_or_empty(ref.get("type")), ("", ""))
    name = as_text(ref.get(member))
    if not kind or name is None:
        raise ValueError("a 'ref/prompt' with a name, or a 'ref/resource' with a uri")
    return kind, name


def completion_json(values: Iterable[str], *, total: int | None, has_more: bool) -> Json:
    """Return the result of `completion/complete`."""
    made: Json = {"values": list(values), "hasMore": has_more}
    if total is not None:
        made["total"] = total
    return {"completion": made}


def read_completion(result: JsonObject, *, note: NoteChange = ignore_change) -> Completion:
    """Return a result of `completion/complete`; a malformed one is read as it is plainly meant, or completes nothing.

    Args:
        result: The result as it came.
        note: Called with each part that had to be read so, as a phrase.
    """
    found = readable_completion(result, note)
    return Completion(
        values=tuple(text_entries(found.get("values"))),
        total=as_integer(found.get("total")),
        has_more=found.get("hasMore") is True,
    )
