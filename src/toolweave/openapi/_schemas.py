"""Schemas of a document as self-contained JSON Schemas: JSON Schema 2020-12, references into their own `$defs`.

A schema that refers to itself stays recursive. Read-only members are not in the schemas of arguments, write-only
members not in the schemas of responses, and neither in `required`. Pure.
"""

# Each schema that others refer to is read once, and cached together with the pointers that it refers to. Reading never
# follows a reference: it notes the target, and `definitions` reads the targets in a loop. So a schema that refers to
# itself ends, and a large document is not copied once for each operation.

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from toolweave._json_types import Json, JsonObject, as_array, as_object, object_or_empty
from toolweave.openapi._document import ApiDocument, UnusablePart, escaped
from toolweave.schema.limits import local_target
from toolweave.schema.normalize import DEFINITIONS, MANY_SCHEMAS, NAMED_SCHEMAS, ONE_SCHEMA, modern, views

Needed: TypeAlias = dict[str, None]
"""Pointers of the schemas that others refer to, in the order they were met."""

_DROPPED = frozenset(("discriminator", "example", "externalDocs", "xml", *DEFINITIONS))
_MAX_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_NOT_FLAT = frozenset(
    (
        *("$ref", "additionalProperties", "allOf", "anyOf", "dependentRequired", "dependentSchemas", "else", "if"),
        *("maxProperties", "minProperties", "not", "nullable", "oneOf", "patternProperties", "propertyNames", "then"),
        "unevaluatedProperties",
    )
)


class SchemaReader:
    """Reads the schemas of one document, for arguments or for responses.

    Args:
        document: The document.
        hidden: The mark of members that are left out.
    """

    def __init__(self, document: ApiDocument, *, hidden: Literal["readOnly", "writeOnly"]) -> None:
        self._document = document
        self._hidden = hidden
        self._names: dict[str, str] = {}
        self._used_names: set[str] = set()
        self._known: dict[str, tuple[Any, Needed]] = {}

    def read(self, schema: object, pointer: str, needed: Needed) -> Any:
        """Return a schema; the targets of its references are added to `needed`, for `definitions`.

        Raises:
            UnusablePart: It is not a schema, or a reference leads nowhere or out of the document.
        """
        if isinstance(schema, bool):
            return schema
        members = as_object(schema)
        if members is None:
            raise UnusablePart(pointer, "a schema is expected, an object or a boolean")
        node = {name: value for name, value in members.items() if not name.startswith("x-")}
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

    def definitions(self, needed: Needed) -> Json:
        """Return the schemas that are referred to, and those that these refer to, by their names in `$defs`.

        Raises:
            UnusablePart: As `read`.
        """
        found: Json = {}
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

    def _named(self, node: Json, keyword: str, pointer: str, needed: Needed) -> Json:
        made: Json = {}
        for name, one in object_or_empty(node[keyword]).items():
            where = f"{pointer}/{keyword}/{escaped(name)}"
            if keyword == "properties" and self._hides(one, where):
                required = as_array(node.get("required"))
                if required is not None:
                    node["required"] = [other for other in required if other != name]
                continue
            made[name] = self.read(one, where, needed)
        return made

    def _hides(self, schema: object, pointer: str) -> bool:
        members = as_object(schema)
        if members is None:
            return False
        found, _ = self._document.follow(members, pointer)
        if found.get(self._hidden) is True:
            return True
        return members.get(self._hidden) is True  # beside a reference

    def _referred(self, ref: object, pointer: str, needed: Needed) -> str:
        target = self._document.target(ref, pointer)
        needed[target] = None
        return f"#/$defs/{self._name(target)}"

    def _name(self, pointer: str) -> str:
        """Return the name in `$defs` for the schema at a pointer: the last word of it that is free."""
        known = self._names.get(pointer)
        if known is not None:
            return known
        word = _ILLEGAL.sub("_", pointer.rpartition("/")[2])[:_MAX_NAME] or "schema"
        name = word
        number = 2
        while name in self._used_names:
            name = f"{word}_{number}"
            number += 1
        self._used_names.add(name)
        self._names[pointer] = name
        return name


def object_members(document: ApiDocument, schema: object, pointer: str) -> tuple[Json, str] | None:
    """Return a schema that lists the members of an object and requires nothing else, with its pointer, or None.

    Raises:
        UnusablePart: A reference leads nowhere.
    """
    if as_object(schema) is None:
        return None
    found, pointer = document.follow(schema, pointer)
    if found.get("type", "object") != "object" or not as_object(found.get("properties")):
        return None
    others = _NOT_FLAT & found.keys()
    if found.get("additionalProperties") is False:
        others -= {"additionalProperties"}
    if others:
        return None
    return found, pointer


def is_binary_schema(document: ApiDocument, schema: object) -> bool:
    """Return whether a schema, or one of its alternatives, is a schema of raw bytes, of OpenAPI 3.0 or 3.1."""
    return any(map(_is_bytes, views(schema, document.root)))


def _is_bytes(schema: JsonObject) -> bool:
    if schema.get("type", "string") not in ("string", ["string"]):
        return False
    if schema.get("format") == "binary":
        return True
    return "contentMediaType" in schema and "contentEncoding" not in schema
