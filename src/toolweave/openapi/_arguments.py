"""The arguments of a tool, gathered from parameters and a body: one object schema, every name once. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from toolweave._json_types import Json, object_or_empty
from toolweave.openapi._schemas import Needed, SchemaReader

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")
# Anthropic accepts no longer name of a property.
_MAX_NAME = 64


class ArgumentNames:
    """The arguments of one tool.

    Attributes:
        needed: The schemas of the document that those of arguments refer to.
    """

    def __init__(self) -> None:
        self.needed: Needed = {}
        self._members: Json = {}
        self._required: list[str] = []
        self._with: dict[str, list[str]] = {}

    def add(self, name: str, location: str, schema: object, *, required: bool, description: str = "") -> str:
        """Add an argument and return its name: `name`, made legal for models, or with its location if it is in use."""
        word = _ILLEGAL.sub("_", name).strip("_")[:_MAX_NAME] or location
        # with room for the location and a number
        short = word[: _MAX_NAME - 16]
        free = word
        number = 1
        while free in self._members:
            number += 1
            free = f"{short}_{location}"
            if number > 2:
                free += f"_{number}"
        if description and "description" not in object_or_empty(schema):
            schema = {**object_or_empty(schema), "description": description}
        self._members[free] = schema
        if required:
            self._required.append(free)
        return free

    def require_together(self, names: Collection[str], required: Collection[str]) -> None:
        """Require some arguments of a group as soon as any of the group is given."""
        for name in names:
            others = [one for one in required if one != name]
            if others:
                self._with[name] = others

    def schema(self, reader: SchemaReader) -> Json:
        """Return the schema of the object of all arguments.

        Raises:
            UnusablePart: A schema that is referred to cannot be used.
        """
        made: Json = {"type": "object", "properties": self._members}
        if self._required:
            made["required"] = self._required
        if self._with:
            made["dependentRequired"] = self._with
        made["additionalProperties"] = False
        if definitions := reader.definitions(self.needed):
            made["$defs"] = definitions
        return made
