"""The arguments of a tool, gathered from parameters and a body: one object schema, every name once. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from toolweave.openapi._schemas import Needed, SchemaReader

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME = 64  # of a property, for Anthropic


class ArgumentNames:
    """The arguments of one tool.

    Attributes:
        needed: The schemas of the document that those of arguments refer to.
    """

    def __init__(self) -> None:
        self.needed: Needed = {}
        self._members: dict[str, Any] = {}
        self._required: list[str] = []
        self._with: dict[str, list[str]] = {}

    def add(self, name: str, place: str, schema: Any, *, required: bool, description: str = "") -> str:
        """Add an argument and return its name: `name`, made legal for models, or with its location if it is taken."""
        word = _ILLEGAL.sub("_", name).strip("_")[:_MAX_NAME] or place
        free = word
        number = 1
        while free in self._members:
            number += 1
            if number == 2:
                free = f"{word[: _MAX_NAME - 16]}_{place}"
            else:
                free = f"{word[: _MAX_NAME - 16]}_{place}_{number}"
        if description and not (isinstance(schema, Mapping) and "description" in schema):
            schema = {
                **(cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}),
                "description": description,
            }
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

    def schema(self, reader: SchemaReader) -> dict[str, Any]:
        """Return the schema of the object of all arguments.

        Raises:
            UnusablePart: A schema that is referred to cannot be used.
        """
        made: dict[str, Any] = {"type": "object", "properties": self._members}
        if self._required:
            made["required"] = self._required
        if self._with:
            made["dependentRequired"] = self._with
        made["additionalProperties"] = False
        if definitions := reader.definitions(self.needed):
            made["$defs"] = definitions
        return made
