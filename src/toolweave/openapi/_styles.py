"""Values of parameters as the text of a request, by style and explode (OpenAPI 3.1, "Style Values"). Pure.

Every character of a value that is not unreserved is percent-encoded, so that none acts as a delimiter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

from toolweave.tools._arguments import json_text

_RESERVED = ":/?@!$'()*,;"
"""Reserved characters that `allowReserved` keeps; the others would end the value (RFC 3986, 2.2)."""
_PATH = {"simple": ("", ","), "label": (".", "."), "matrix": (";", ";")}
_QUERY = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def text_of(value: Any) -> str:  # any JSON value
    """Return a value as text: a string as it is, null as nothing, all others as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json_text(value)


def in_path(name: str, value: Any, *, style: str, explode: bool) -> str:
    """Return the text that replaces a template's expression, percent-encoded."""
    prefix, separator = _PATH.get(style, _PATH["simple"])
    name = _quoted(name)
    if explode and isinstance(value, (Mapping, list)):
        if isinstance(value, Mapping):
            items = [f"{_quoted(key)}={_quoted(one)}" for key, one in cast("Mapping[str, Any]", value).items()]
        else:
            items = [_quoted(one) for one in cast("list[Any]", value)]
        if style == "matrix" and not isinstance(value, Mapping):
            items = [f"{name}={one}" for one in items]
        if items:
            return prefix + separator.join(items)
        return ""
    text = ",".join(_flat(value))
    if style == "matrix":
        if text:
            return f";{name}={text}"
        return f";{name}"
    return prefix + text


def in_query(name: str, value: Any, *, style: str, explode: bool, reserved: bool = False) -> list[tuple[str, str]]:
    """Return the members of the query for a value, percent-encoded; none for null and for empty values."""
    safe = _RESERVED if reserved else ""
    name = _quoted(name)
    if value is None or value in ([], {}):
        return []
    if style == "deepObject" and isinstance(value, (Mapping, list)):
        return _deep(name, value, safe)
    if isinstance(value, list) and (explode or style == "deepObject"):
        return [(name, _quoted(one, safe)) for one in cast("list[Any]", value)]
    if isinstance(value, Mapping) and explode and style == "form":
        return [(_quoted(key), _quoted(one, safe)) for key, one in cast("Mapping[str, Any]", value).items()]
    if isinstance(value, (Mapping, list)):
        return [(name, _QUERY.get(style, ",").join(_flat(value, safe.replace(",", ""))))]
    return [(name, _quoted(value, safe))]


def in_header(value: Any, *, explode: bool) -> str:
    """Return the value of a header, which is not percent-encoded."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return ",".join(f"{key}={text_of(one)}" if explode else f"{key},{text_of(one)}" for key, one in pairs)
    if isinstance(value, list):
        return ",".join(map(text_of, cast("list[Any]", value)))
    return text_of(value)


def in_cookie(name: str, value: Any, *, style: str, explode: bool) -> list[str]:
    """Return the pairs of a cookie header for a value."""
    if style == "cookie":  # OpenAPI 3.2: as it is
        return [f"{name}={text_of(value)}"]
    return [f"{key}={text}" for key, text in in_query(name, value, style="form", explode=explode)]


def _quoted(value: Any, safe: str = "") -> str:
    return quote(text_of(value).encode("utf-8", "surrogatepass"), safe=safe)


def _flat(value: Any, safe: str = "") -> list[str]:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return [text for key, one in pairs for text in (_quoted(key), _quoted(one, safe))]
    if isinstance(value, list):
        return [_quoted(one, safe) for one in cast("list[Any]", value)]
    return [_quoted(value)]


def _deep(name: str, value: Any, safe: str) -> list[tuple[str, str]]:
    """Return `name[key]=value` for each member of an object; deeper ones, left open by the specification, alike."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return [pair for key, one in members for pair in _deep(f"{name}%5B{_quoted(key)}%5D", one, safe)]
    if isinstance(value, list):
        return [(name, _quoted(one, safe)) for one in cast("list[Any]", value)]
    if value is None:
        return []
    return [(name, _quoted(value, safe))]
