"""What a modern request mirrors into HTTP headers (SEP-2243): its method, its name, annotated arguments. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolweave.connect.shapes import as_array, as_object
from toolweave.connect.wire.head import Headers

__all__ = ["ModernHeaders", "argument_headers", "encode_value", "find_refusal", "mirrored_arguments"]

_ANNOTATION = "x-mcp-header"
_PREFIX = "mcp-param-"
_NAME_OF = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
_MIRRORED_TYPES = ("boolean", "integer", "string")
_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

# keywords whose values hold schemas; what stands in `const`, `default`, `enum` and `examples` is data
_ONE_SCHEMA = (
    *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_MANY_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS = ("$defs", "definitions", "dependentSchemas", "patternProperties")

_MAX_ALIKE = 1_000
_MAX_MIRRORED = 10_000

_Path = tuple[str, ...]
"""The property names from the root to a property."""
_Mirrored = tuple[tuple[_Path, str], ...]
"""The path and the header name of each argument to be mirrored."""


def encode_value(value: str) -> str:
    """Return a text as a header value: as it is where it survives the way, else in base64."""
    if not value or (_PLAIN.fullmatch(value) and not _ENCODED.fullmatch(value)):
        return value
    # a lone surrogate has no UTF-8; the body carries an escape for it, and the server will compare and say so
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode('ascii')}?="


class ModernHeaders:
    """Makes the headers that every modern request carries: once for all that are alike."""

    def __init__(self) -> None:
        self._alike: dict[tuple[str, str, str | None], Headers] = {}
        self._mirrored: dict[int, tuple[Mapping[str, Any], _Mirrored]] = {}

    def of(
        self, method: str, params: Mapping[str, Any], revision: str, schema: Mapping[str, Any] | None
    ) -> Mapping[str, str]:
        """Return the headers of one request; `schema` is the input schema of the tool that it calls, if known."""
        name = params.get(_NAME_OF.get(method, ""))
        key = (revision, method, name if isinstance(name, str) else None)
        headers = self._alike.get(key)
        if headers is None:
            headers = Headers({"mcp-protocol-version": revision, "mcp-method": method})
            if key[2] is not None:
                headers["mcp-name"] = encode_value(key[2])
            if len(self._alike) >= _MAX_ALIKE:
                self._alike.clear()
            self._alike[key] = headers
        mirrored = self._mirrored_by(schema) if schema is not None else None
        return headers | argument_headers(mirrored, params.get("arguments")) if mirrored else headers

    def _mirrored_by(self, schema: Mapping[str, Any]) -> _Mirrored:
        known = self._mirrored.get(id(schema))
        if known is None or known[0] is not schema:
            if len(self._mirrored) >= _MAX_MIRRORED:  # schemas of lists long gone
                self._mirrored.clear()
            known = self._mirrored[id(schema)] = (schema, mirrored_arguments(schema))
        return known[1]


def mirrored_arguments(schema: Mapping[str, Any]) -> _Mirrored:
    """Return the path and the header name of each argument to be mirrored."""
    return tuple(
        (path, _PREFIX + name.lower())
        for path, part in _schemas(schema)
        if path and isinstance(name := part.get(_ANNOTATION), str)
    )


def argument_headers(mirrored: _Mirrored, arguments: Any) -> dict[str, str]:
    """Return the headers for the arguments of one call; what is absent or null has none."""
    headers: dict[str, str] = {}
    for path, name in mirrored:
        value = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        text = _rendered(value)
        if text is not None:
            headers[name] = encode_value(text)
    return headers


def find_refusal(schema: Mapping[str, Any]) -> str | None:
    """Return why a tool with this input schema must not be offered over HTTP, or None."""
    taken: dict[str, str] = {}
    for path, part in _schemas(schema):
        if _ANNOTATION not in part:
            continue
        if not path:
            return f"{_ANNOTATION} stands where no chain of properties leads"
        where, name, kind = ".".join(path), part[_ANNOTATION], part.get("type")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            return f"property {where!r}: {_ANNOTATION} is no header name"
        if kind not in _MIRRORED_TYPES:
            return f"property {where!r}: {_ANNOTATION} needs a type of {', '.join(_MIRRORED_TYPES)}"
        if name.lower() in taken:
            return f"property {where!r}: {_ANNOTATION} {name!r} is the header of property {taken[name.lower()]!r} too"
        taken[name.lower()] = where
    return None


def _rendered(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value) if isinstance(value, (str, int, float)) else None
    except ValueError:  # more digits than Python writes
        return None


def _schemas(root: Any) -> Iterator[tuple[_Path | None, Mapping[str, Any]]]:
    """Yield every schema within a schema with its path, which is None off the chain of properties."""
    waiting: list[tuple[_Path | None, Any]] = [((), root)]
    while waiting:
        path, value = waiting.pop()
        part = as_object(value)
        if part is None:
            continue
        yield path, part
        for name, inner in (as_object(part.get("properties")) or {}).items():
            waiting.append(((*path, name) if path is not None else None, inner))
        waiting.extend((None, inner) for inner in _off_the_chain(part))


def _off_the_chain(part: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in _ONE_SCHEMA:
        yield part.get(keyword)
    for keyword in _MANY_SCHEMAS:
        yield from as_array(part.get(keyword)) or ()
    for keyword in _NAMED_SCHEMAS:
        yield from (as_object(part.get(keyword)) or {}).values()
