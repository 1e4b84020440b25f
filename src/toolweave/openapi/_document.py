"""An OpenAPI document as plain JSON values: read from JSON or YAML, its local references followed. Opens nothing."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from toolweave._json import decode_json
from toolweave.errors import ConfigError, shortened
from toolweave.openapi._swagger import converted, is_swagger
from toolweave.schema._limits import local_target

MAX_BYTES = 32 * 1024 * 1024
"""The largest document that is read; that of GitHub has 13 MB."""
_MAX_VALUES = 5_000_000  # with every alias of YAML spelled out
_MAX_HOPS = 16
_MAX_SHOWN = 200


class UnusablePart(Exception):
    """A part of a document that no tool can be made of.

    Attributes:
        pointer: JSON pointer to it (RFC 6901).
        reason: The fault.
    """

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{reason} (at {pointer})")
        self.pointer = pointer
        self.reason = reason


class ApiDocument:
    """An OpenAPI document of version 3.0 or 3.1; unknown members of a later 3.x are ignored.

    Attributes:
        root: The document; one of Swagger 2.0 is converted to OpenAPI 3.0.
        shown: Its URL or path, for errors.
        url: The URL that relative server URLs start from, or None.

    Raises:
        ConfigError: It is no such document.
    """

    def __init__(self, value: object, *, shown: str, url: str | None = None) -> None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{shown} is no OpenAPI document, which is an object")
        self.root = cast("dict[str, Any]", value)
        self.shown = shown
        self.url = url
        if "openapi" not in self.root and is_swagger(self.root):
            self.root = converted(self.root)
        version = self.root.get("openapi")
        if not isinstance(version, str) or not version.startswith("3."):
            raise ConfigError(f"{shown} is not an OpenAPI document: {_version_fault(self.root)}")
        if not isinstance(self.root.get("paths", {}), Mapping):
            raise ConfigError(f"{shown}: 'paths' is no object")

    def follow(self, node: object, pointer: str) -> tuple[dict[str, Any], str]:
        """Return an object of the document behind its references, with its own pointer.

        Raises:
            UnusablePart: It is no object, or a reference leads nowhere, elsewhere or in a circle.
        """
        for _ in range(_MAX_HOPS):
            if not isinstance(node, dict):
                raise UnusablePart(pointer, f"an object is expected, not {_kind(node)}")
            found = cast("dict[str, Any]", node)
            if "$ref" not in found:
                return found, pointer
            pointer = self.target(found["$ref"], pointer)
            node = local_target(self.root, f"#{pointer}")
        raise UnusablePart(pointer, "its references lead in a circle")

    def target(self, ref: object, pointer: str) -> str:
        """Return the pointer that a reference at `pointer` leads to, without the `#`.

        Raises:
            UnusablePart: It leads nowhere, or out of the document.
        """
        text = unquote(ref) if isinstance(ref, str) else ""
        if not text.startswith("#/"):
            shown = shortened(str(ref), _MAX_SHOWN)
            raise UnusablePart(pointer, f"$ref {shown!r} leads out of the document; it is never fetched")
        if local_target(self.root, text) is None:
            raise UnusablePart(pointer, f"$ref {shortened(text, _MAX_SHOWN)!r} leads nowhere")
        return text[1:]

    def objects(self, *path: str) -> dict[str, Any]:
        """Return the object at this path, or an empty one."""
        found: Any = self.root
        for name in path:
            if isinstance(found, dict):
                found = cast("dict[str, Any]", found).get(name)
            else:
                found = None
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
        return {}


def _version_fault(root: Mapping[str, Any]) -> str:
    """Return why the version of a document is not readable, and which versions are."""
    readable = "OpenAPI 3.x and Swagger 2.0 are read"
    for name in ("openapi", "swagger"):
        if name in root:
            return f"{name!r} is {shortened(repr(root[name]), _MAX_SHOWN)}; {readable}"
    members = ", ".join(map(repr, list(root)[:5])) or "nothing"
    return f"it has neither 'openapi' nor 'swagger', but {members}; {readable}"


def escaped(name: object) -> str:
    """Return a name as a part of a JSON pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def read_text(text: bytes, shown: str) -> Any:
    """Return the value of a JSON or YAML text.

    Raises:
        ConfigError: It is neither, or stands for too much.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{shown} is larger than {MAX_BYTES // 1024 // 1024} MB")
    text = text.removeprefix(BOM_UTF8)
    try:
        return decode_json(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        beginning = text[:100].lstrip()
        if beginning[:1] == b"{":  # YAML would take it too, a hundred times slower
            raise ConfigError(f"{shown} is no valid JSON: {exc}") from None
    return plain(_yaml(text, shown), shown)


def plain(value: object, shown: str) -> Any:
    """Return a value of Python as JSON values with names that are strings.

    Raises:
        ConfigError: It contains itself, or too much.
    """
    seen: dict[int, tuple[Any, int] | None] = {}

    def copied(one: object) -> tuple[Any, int]:
        if not isinstance(one, (Mapping, list, tuple)):
            return (one if isinstance(one, (str, int, float, bool, type(None))) else str(one)), 1
        if id(cast("object", one)) in seen:
            known = seen[id(cast("object", one))]
            if known is None:
                raise ConfigError(f"{shown} contains itself")
            return known
        seen[id(cast("object", one))] = None
        made: Any
        if isinstance(one, Mapping):
            pairs = [(_name(name), copied(inner)) for name, inner in cast("Mapping[Any, Any]", one).items()]
            made = {name: inner[0] for name, inner in pairs}
            parts = [inner for _, inner in pairs]
        else:
            parts = [copied(inner) for inner in cast("list[Any]", one)]
            made = [inner[0] for inner in parts]
        size = 1 + sum(inner[1] for inner in parts)
        if size > _MAX_VALUES:
            raise ConfigError(f"{shown} stands for more than {_MAX_VALUES:,} values")
        seen[id(cast("object", one))] = made, size
        return made, size

    try:
        return copied(value)[0]
    except RecursionError:
        raise ConfigError(f"{shown} is nested too deeply") from None


def _name(name: object) -> str:
    if isinstance(name, (bool, type(None))):
        return str(name).lower()
    return str(name)


def _yaml(text: bytes, shown: str) -> Any:
    import yaml  # most documents are JSON

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def of_json(tag: str, first: str) -> bool:  # a date is a text, and so are `on` and `no`
        return not (tag.endswith(":timestamp") or (tag.endswith(":bool") and first in "yYnNoO"))

    known = base.yaml_implicit_resolvers.items()
    resolvers = {first: [one for one in some if of_json(one[0], first)] for first, some in known}
    loader: Any = type("JsonSchemaLoader", (base,), {"yaml_implicit_resolvers": resolvers})
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506  # it is a safe one
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as exc:
        raise ConfigError(f"{shown} is neither JSON nor YAML: {shortened(str(exc), _MAX_SHOWN)}") from None


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return type(value).__name__
