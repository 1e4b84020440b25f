"""An OpenAPI document as plain JSON values: read from JSON or YAML, its local references followed. Opens nothing."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import Json, JsonObject, as_object, object_or_empty
from toolweave.errors import ConfigError, shortened
from toolweave.openapi._swagger import converted, is_swagger
from toolweave.schema.limits import local_target

MAX_BYTES = 32 * 1024 * 1024
"""The size of the largest document that is read. GitHub's document has 13 MB."""
# Each alias of YAML counts with all values that it stands for.
_MAX_VALUES = 5_000_000
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
        ConfigError: The value is not such a document.
    """

    def __init__(self, value: object, *, shown: str, url: str | None = None) -> None:
        root = as_object(value)
        if root is None:
            raise ConfigError(f"{shown} is not an OpenAPI document, which is an object")
        self.root = dict(root)
        self.shown = shown
        self.url = url
        if "openapi" not in self.root and is_swagger(self.root):
            self.root = converted(self.root)
        version = self.root.get("openapi")
        if not isinstance(version, str) or not version.startswith("3."):
            raise ConfigError(f"{shown} is not an OpenAPI document: {_version_fault(self.root)}")
        if not isinstance(self.root.get("paths", {}), Mapping):
            raise ConfigError(f"{shown}: 'paths' is not an object")

    def follow(self, node: object, pointer: str) -> tuple[Json, str]:
        """Return an object of the document behind its references, with its own pointer.

        Raises:
            UnusablePart: It is not an object, or a reference leads nowhere, elsewhere or in a circle.
        """
        for _ in range(_MAX_HOPS):
            if not isinstance(node, dict):
                raise UnusablePart(pointer, f"an object is expected, not {_kind(node)}")
            found = cast("Json", node)
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
        # A pointer in a fragment is percent-encoded (RFC 6901, 6).
        text = unquote(ref) if isinstance(ref, str) else ""
        if not text.startswith("#/"):
            shown = shortened(str(ref), _MAX_SHOWN)
            raise UnusablePart(pointer, f"$ref {shown!r} leads out of the document; it is never fetched")
        if local_target(self.root, text) is None:
            raise UnusablePart(pointer, f"$ref {shortened(text, _MAX_SHOWN)!r} leads nowhere")
        return text[1:]

    def objects(self, *path: str) -> JsonObject:
        """Return the object at this path, or an empty one."""
        found: JsonObject = self.root
        for name in path:
            found = object_or_empty(found.get(name))
        return found


def _version_fault(root: JsonObject) -> str:
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
        # YAML could read it as well, a hundred times slower
        if beginning[:1] == b"{":
            raise ConfigError(f"{shown} is not valid JSON: {exc}") from None
    return plain(_yaml(text, shown), shown)


def plain(value: object, shown: str) -> Any:
    """Return a value of Python as JSON values with names that are strings.

    Raises:
        ConfigError: It contains itself, or too much.
    """
    try:
        return _PlainCopy(shown).copy(value)[0]
    except RecursionError:
        raise ConfigError(f"{shown} is nested too deeply") from None


class _PlainCopy:
    """Copies values that may share parts, as YAML's aliases do."""

    # A part that occurs a thousand times is copied once and counted a thousand times. So a short text with aliases of
    # aliases is refused for the size it stands for, before memory is used for it.

    def __init__(self, shown: str) -> None:
        self._shown = shown
        # By identity: the copy and its size, or None while it is made. A part met then contains itself.
        self._seen: dict[int, tuple[Any, int] | None] = {}

    def copy(self, value: object) -> tuple[Any, int]:
        """Return a copy and the number of values in it."""
        if isinstance(value, (str, int, float, bool, type(None))):
            return value, 1
        if not isinstance(value, (Mapping, list, tuple)):
            return str(value), 1
        key = id(cast("object", value))
        if key in self._seen:
            known = self._seen[key]
            if known is None:
                raise ConfigError(f"{self._shown} contains itself")
            return known
        self._seen[key] = None
        if isinstance(value, Mapping):
            made, size = self._copied_members(cast("Mapping[object, object]", value))
        else:
            made, size = self._copied_items(cast("Iterable[object]", value))
        if size > _MAX_VALUES:
            raise ConfigError(f"{self._shown} stands for more than {_MAX_VALUES:,} values")
        self._seen[key] = made, size
        return made, size

    def _copied_members(self, members: Mapping[object, object]) -> tuple[Json, int]:
        made: Json = {}
        size = 1
        for name, one in members.items():
            made[_name(name)], inner = self.copy(one)
            size += inner
        return made, size

    def _copied_items(self, items: Iterable[object]) -> tuple[list[Any], int]:
        made: list[Any] = []
        size = 1
        for one in items:
            copied, inner = self.copy(one)
            made.append(copied)
            size += inner
        return made, size


def _name(name: object) -> str:
    if isinstance(name, (bool, type(None))):
        return str(name).lower()
    return str(name)


def _yaml(text: bytes, shown: str) -> Any:
    import yaml  # most documents are JSON

    # Much faster, but not in every build of PyYAML.
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # YAML 1.1 reads more than JSON has: a date, and `on` and `no` as booleans. In a document of an API they are texts.
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for first, known in base.yaml_implicit_resolvers.items():
        resolvers[first] = [one for one in known if _is_json_tag(one[0], first)]
    loader: Any = type("JsonSchemaLoader", (base,), {"yaml_implicit_resolvers": resolvers})
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506  # it is a safe one
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as exc:
        raise ConfigError(f"{shown} is neither JSON nor YAML: {shortened(str(exc), _MAX_SHOWN)}") from None


def _is_json_tag(tag: str, first: str) -> bool:
    """Return whether plain texts that begin with this character may be values of a tag."""
    if tag.endswith(":bool"):
        return first not in "yYnNoO"
    return not tag.endswith(":timestamp")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return type(value).__name__
