"""Schemas of a document as self-contained JSON Schemas: JSON Schema 2020-12, references into their own `$defs`.

A schema that refers to itself stays recursive. What a document calls read-only is left out of arguments, what it
calls write-only out of answers, and both out of `required`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from toolweave.openapi._document import ApiDocument, UnusablePart, escaped
from toolweave.schema._limits import local_target
from toolweave.schema._normalize import DEFINITIONS, MANY_SCHEMAS, NAMED_SCHEMAS, ONE_SCHEMA, modern, views

Needed: TypeAlias = dict[str, None]
"""Pointers of the schemas that others refer to, in the order they were met."""

_DROPPED = frozenset(("discriminator", "example", "externalDocs", "xml", *DEFINITIONS))
_MAX_NAME = 64
_NOT_FLAT = frozenset(
    (
        *("$ref", "additionalProperties", "allOf", "anyOf", "dependentRequired", "dependentSchemas", "else", "if"),
        *("maxProperties", "minProperties", "not", "nullable", "oneOf", "patternProperties", "propertyNames", "then"),
        "unevaluatedProperties",
    )
)


class SchemaReader:
    """Reads the schemas of one document, those of arguments or those of answers.

    Args:
        document: The document.
        hidden: The mark of members that are left out.
    """

    def __init__(self, document: ApiDocument, *, hidden: Literal["readOnly", "writeOnly"]) -> None:
        self._document = document
        self._hidden = hidden
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._known: dict[str, tuple[Any, Needed]] = {}

    def read(self, schema: object, pointer: str, needed: Needed) -> Any:
        """Return a schema; the targets of its references are added to `needed`, for `definitions`.

        Raises:
            UnusablePart: It is none, or a reference leads nowhere or out of the document.
        """
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise UnusablePart(pointer, "a schema is expected, an object or a boolean")
        node = {name: value for name, value in cast("dict[str, Any]", schema).items() if not name.startswith("x-")}
        node = modern(node, lambda _: None)
        for name in list(node):
            if name in _DROPPED:
                del node[name]
            elif name == "$ref":
                node[name] = self._referred(node[name], pointer, needed)
            elif name in ONE_SCHEMA:
                node[name] = self.read(node[name], f"{pointer}/{name}", needed)
            elif name in MANY_SCHEMAS:
                node[name] = [self.read(one, f"{pointer}/{name}/{i}", needed) for i, one in enumerate(node[name])]
            elif name in NAMED_SCHEMAS:
                node[name] = self._named(node, name, pointer, needed)
        return node

    def definitions(self, needed: Needed) -> dict[str, Any]:
        """Return the schemas that are referred to, and those that these refer to, by their names in `$defs`.

        Raises:
            UnusablePart: As `read`.
        """
        found: dict[str, Any] = {}
        waiting = list(needed)
        while waiting:
            pointer = waiting.pop()
            name = self._name(pointer)
            if name in found:
                continue
            if pointer not in self._known:
                more: Needed = {}
                read = self.read(local_target(self._document.root, f"#{pointer}"), pointer, more)
                self._known[pointer] = read, more
            found[name], more = self._known[pointer]
            waiting += more
        return dict(sorted(found.items()))

    def _named(self, node: dict[str, Any], keyword: str, pointer: str, needed: Needed) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, one in cast("dict[str, Any]", node[keyword]).items():
            where = f"{pointer}/{keyword}/{escaped(name)}"
            if keyword == "properties" and self._hides(one, where):
                if isinstance(node.get("required"), list):
                    node["required"] = [other for other in node["required"] if other != name]
                continue
            made[name] = self.read(one, where, needed)
        return made

    def _hides(self, schema: object, pointer: str) -> bool:
        if not isinstance(schema, dict):
            return False
        found, _ = self._document.follow(cast("object", schema), pointer)
        return found.get(self._hidden) is True or cast("dict[str, Any]", schema).get(self._hidden) is True

    def _referred(self, ref: object, pointer: str, needed: Needed) -> str:
        target = self._document.target(ref, pointer)
        needed[target] = None
        return f"#/$defs/{self._name(target)}"

    def _name(self, pointer: str) -> str:
        """Return the name in `$defs` for the schema at a pointer: the last word of it that is free."""
        known = self._names.get(pointer)
        if known is None:
            last = pointer.rpartition("/")[2]
            word = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in last)
            word = word[:_MAX_NAME] or "schema"
            known = word
            number = 2
            while known in self._taken:
                known = f"{word}_{number}"
                number = number + 1
            self._taken.add(known)
            self._names[pointer] = known
        return known


def object_members(document: ApiDocument, schema: object, pointer: str) -> tuple[dict[str, Any], str] | None:
    """Return a schema that says no more than which members an object has, with its pointer; None for any other.

    Raises:
        UnusablePart: A reference leads nowhere.
    """
    if not isinstance(schema, dict):
        return None
    found, pointer = document.follow(cast("object", schema), pointer)
    members = found.get("properties")
    if found.get("type", "object") != "object" or not isinstance(members, dict) or not members:
        return None
    extra = {name for name in _NOT_FLAT & found.keys() if (name, found[name]) != ("additionalProperties", False)}
    if extra:
        return None
    return (found, pointer)


def is_binary_schema(document: ApiDocument, schema: object) -> bool:
    """Return whether a schema, or one of its alternatives, is that of raw bytes: of 3.0 or of 3.1."""
    return any(
        _is_bytes(view) for view in views(schema, document.root) if view.get("type", "string") in ("string", ["string"])
    )


def _is_bytes(schema: Mapping[str, Any]) -> bool:
    return schema.get("format") == "binary" or ("contentMediaType" in schema and "contentEncoding" not in schema)
