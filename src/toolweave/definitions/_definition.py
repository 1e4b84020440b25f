"""Definitions as MCP names their members, without private ones: of tools, prompts, resources and templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, TypeVar

from toolweave._json_types import Json, JsonObject, as_object, only_members, without_members
from toolweave._value import Value
from toolweave.protocol.server_features import Prompt, Resource, ResourceTemplate, definition
from toolweave.tools import ToolSpec
from toolweave.tools.mcp import unwrapped_output

PinnedPart: TypeAlias = Literal["tool", "prompt", "resource", "template", "instructions"]
"""The parts of a server that are pinned."""

OfferPart: TypeAlias = Literal["prompt", "resource", "template"]
"""The parts of a server beside tools that it lists."""

OFFER_PARTS: tuple[OfferPart, ...] = ("prompt", "resource", "template")
NAME_MEMBERS: Mapping[str, str] = {"tool": "name", "prompt": "name", "resource": "uri", "template": "uriTemplate"}
"""The member that names a definition, by part."""

MEMBERS: Mapping[str, tuple[str, ...]] = {
    "tool": ("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    "prompt": ("name", "title", "description", "arguments"),
    "resource": ("uri", "name", "title", "description", "mimeType", "annotations"),
    "template": ("uriTemplate", "name", "title", "description", "mimeType", "annotations"),
    "instructions": ("instructions",),
}
"""The members that are pinned, by part."""

PartT = TypeVar("PartT")

# These change with the content of a resource, not with its meaning.
_CONTENT_ANNOTATIONS = frozenset({"lastModified"})


class OfferedDefinitions(Value, frozen=True, kw_only=True):
    """The definitions of a server beside its tools, as it offers them; None stands for an unknown part.

    Attributes:
        instructions: Its instructions for a model; `""` if it has none.
        prompts: Its prompts by name.
        resources: Its resources by URI.
        templates: Its resource templates by URI template.
    """

    instructions: str | None = None
    prompts: Mapping[str, JsonObject] | None = None
    resources: Mapping[str, JsonObject] | None = None
    templates: Mapping[str, JsonObject] | None = None

    def listed(self, part: OfferPart) -> Mapping[str, JsonObject] | None:
        """Return the definitions of one part by name, or None if they are not known."""
        return of_part(part, self.prompts, self.resources, self.templates)


def of_part(part: OfferPart, prompts: PartT, resources: PartT, templates: PartT) -> PartT:
    """Return the one of three values that belongs to a part."""
    match part:
        case "prompt":
            return prompts
        case "resource":
            return resources
        case "template":
            return templates


def definition_of(spec: ToolSpec) -> Json:
    """Return the visible members of a tool's definition, and its promises: name, texts, schemas, annotations.

    They are as the tool's producer gave them, without the rules of a user that shape them. The output schema is the
    same in every era of the protocol: one that is wrapped, for clients that know only objects, is the one inside.
    """
    spec = spec.unshaped
    made: Json = {"name": spec.original_name, "description": spec.description}
    if spec.title is not None:
        made["title"] = spec.title
    made["inputSchema"] = spec.input_schema
    if spec.output_schema is not None:
        made["outputSchema"] = unwrapped_output(spec.output_schema)
    if spec.annotations is not None:
        made["annotations"] = spec.annotations
    return made


def offer_definition(part: OfferPart, item: Prompt | Resource | ResourceTemplate) -> Json:
    """Return the visible members of the definition of a prompt, a resource or a template."""
    entry = definition(item)
    made = only_members(entry, MEMBERS[part])
    annotations = as_object(made.get("annotations"))
    if annotations is not None:
        made["annotations"] = without_members(annotations, *_CONTENT_ANNOTATIONS)
    return made


def offer_definitions(part: OfferPart, items: Iterable[Prompt | Resource | ResourceTemplate]) -> dict[str, JsonObject]:
    """Return the definitions of a list by name."""
    member = NAME_MEMBERS[part]
    found: dict[str, JsonObject] = {}
    for item in items:
        made = offer_definition(part, item)
        found[str(made[member])] = made
    return found
