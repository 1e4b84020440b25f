"""Request fields that modern revisions mirror in HTTP headers: the name and annotated arguments (SEP-2243). Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolweave._json_types import JsonObject, array_or_empty, as_integer, as_object, as_text, object_or_empty
from toolweave.protocol import methods

__all__ = [
    "NAME_PARAMETERS",
    "Mirrored",
    "argument_headers",
    "argument_mismatch",
    "decode_value",
    "encode_value",
    "mirrored_arguments",
    "mirroring_problem",
]

NAME_PARAMETERS: Mapping[str, str] = {
    methods.TOOLS_CALL: "name",
    methods.PROMPTS_GET: "name",
    methods.RESOURCES_READ: "uri",
    **dict.fromkeys((methods.TASKS_GET, methods.TASKS_UPDATE, methods.TASKS_CANCEL), "taskId"),
}
"""The parameter that `Mcp-Name` repeats, for each method that has one."""

_ANNOTATION = "x-mcp-header"
_PREFIX = "mcp-param-"
_TYPES = ("boolean", "integer", "string")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_DECIMAL = re.compile(r"(-?[0-9]+)(?:\.0+)?")
_MAX_NUMBER = 1000
_ENCODED = re.compile(r"=\?base64\?(.*)\?=")

# keywords whose values hold schemas; what stands in `const`, `default`, `enum` and `examples` is data
_ONE_SCHEMA = frozenset(
    {
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
_MANY_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties"})

_Path = tuple[str, ...]
"""The property names from the root to a property."""
Mirrored = tuple[tuple[_Path, str], ...]
"""The path and the header name of each argument to be mirrored."""


def encode_value(value: str) -> str:
    """Encode a text as a header value: unchanged where a header can carry it, else in base64."""
    if not value:
        return value
    # A value that looks encoded is encoded itself, or the server would decode it.
    if _PLAIN.fullmatch(value) and not _ENCODED.fullmatch(value):
        return value
    # a lone surrogate has no UTF-8; the body carries an escape for it, and the server will compare and say so
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode('ascii')}?="


def decode_value(header: bytes | None) -> str | None:
    """Decode a header value; None for a missing or malformed one."""
    if header is None:
        return None
    text = header.decode("latin-1")
    found = _ENCODED.fullmatch(text)
    if found is None:
        # Without both ends of the wrapper it stands for itself.
        if text.isascii():
            return text
        return None
    try:
        decoded = base64.b64decode(found[1], validate=True)
        canonical = base64.b64encode(decoded).decode() == found[1]
        if canonical:
            return decoded.decode()
        return None
    except (binascii.Error, ValueError):
        return None


def mirrored_arguments(schema: JsonObject) -> Mirrored:
    """Return the path and the header name of each argument to be mirrored."""
    found: list[tuple[_Path, str]] = []
    for path, part in _schemas(schema):
        name = as_text(part.get(_ANNOTATION))
        if path and name is not None:
            found.append((path, _PREFIX + name.lower()))
    return tuple(found)


def argument_headers(mirrored: Mirrored, arguments: Any) -> dict[str, str]:
    """Return the headers for the arguments of one call; absent and null arguments have none."""
    headers: dict[str, str] = {}
    for path, name in mirrored:
        text = _rendered(_value_at(arguments, path))
        if text is not None:
            headers[name] = encode_value(text)
    return headers


def _rendered(value: Any) -> str | None:
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    try:
        if isinstance(value, (str, int, float)):
            return str(value)
        return None
    except ValueError:
        # More digits than Python writes.
        return None


def argument_mismatch(mirrored: Mirrored, arguments: Any, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return the reason why the headers of a call contradict its arguments, or None.

    Args:
        mirrored: The arguments that are mirrored.
        arguments: The arguments of the call.
        headers: The headers as received, names in lower case.
    """
    for path, name in mirrored:
        sent = [value for key, value in headers if key == name.encode()]
        if len(sent) > 1:
            return f"the header {name} appears more than once"
        value = _value_at(arguments, path)
        where = ".".join(path)
        text = _rendered(value)
        if text is None:
            if sent:
                return f"the header {name} is there, but the argument {where!r} has no value for it"
            continue
        if not sent:
            return f"the header {name} is missing, but the argument {where!r} is there"
        if not _agrees(value, text, decode_value(sent[0].strip(b" \t"))):
            return f"the header {name} differs from the argument {where!r}"
    return None


def _agrees(value: object, text: str, sent: str | None) -> bool:
    """Return whether a header has the value of an argument; whole numbers are compared as numbers: 42 is 42.0."""
    if sent is None:
        return False
    if sent == text:
        return True
    # Python refuses to convert longer numbers, whose conversion takes quadratic time.
    if len(sent) > _MAX_NUMBER:
        return False
    found = _DECIMAL.fullmatch(sent)
    whole = _whole_number(value)
    if found is None or whole is None:
        return False
    return int(found[1]) == whole


def _whole_number(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return as_integer(value)


def _value_at(arguments: object, path: _Path) -> object:
    value = arguments
    for key in path:
        value = object_or_empty(value).get(key)
    return value


def mirroring_problem(schema: JsonObject) -> tuple[str, str] | None:
    """Return the reason not to offer a tool with this input schema over HTTP, and its JSON pointer; or None."""
    taken: dict[str, str] = {}
    for path, part in _schemas(schema):
        if _ANNOTATION not in part:
            continue
        if not path:
            return f"{_ANNOTATION} stands where no chain of properties leads", ""
        where = ".".join(path)
        name = part[_ANNOTATION]
        kind = part.get("type")
        pointer = "".join(f"/properties/{step.replace('~', '~0').replace('/', '~1')}" for step in path)
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            return f"property {where!r}: {_ANNOTATION} is not a header name", pointer
        if kind not in _TYPES:
            return f"property {where!r}: {_ANNOTATION} needs a type of {', '.join(_TYPES)}", pointer
        if name.lower() in taken:
            other = taken[name.lower()]
            return f"property {where!r}: {_ANNOTATION} {name!r} is the header of property {other!r} too", pointer
        taken[name.lower()] = where
    return None


def _schemas(root: Any) -> Iterator[tuple[_Path | None, JsonObject]]:
    """Yield every schema within a schema with its path, which is None off the chain of properties."""
    waiting: list[tuple[_Path | None, Any]] = [((), root)]
    while waiting:
        path, value = waiting.pop()
        part = as_object(value)
        if part is None:
            continue
        yield path, part
        for keyword, inner in part.items():
            # A look at the few that are there: lists have thousands of schemas.
            if type(inner) is str:
                continue
            if keyword == "properties":
                for name, one in _members(inner):
                    waiting.append(((*path, name) if path is not None else None, one))
            elif keyword in _ONE_SCHEMA:
                waiting.append((None, inner))
            elif keyword in _NAMED_SCHEMAS:
                waiting.extend((None, one) for _, one in _members(inner))
            elif keyword in _MANY_SCHEMAS:
                waiting.extend((None, one) for one in array_or_empty(inner))


def _members(value: object) -> Iterable[tuple[str, Any]]:
    return object_or_empty(value).items()
