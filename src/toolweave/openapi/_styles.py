"""Values of parameters as the text of a request, by style and explode (OpenAPI 3.1, "Style Values"). Pure.

Every character of a value that is not unreserved is percent-encoded, so that none acts as a delimiter.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from toolweave._json_types import JsonObject, as_array, as_object
from toolweave.tools.arguments import json_text

_RESERVED = ":/?@!$'()*,;"
"""Reserved characters that `allowReserved` keeps; the others would end the value (RFC 3986, 2.2)."""
_PATH = {"simple": ("", ","), "label": (".", "."), "matrix": (";", ";")}
_QUERY = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def text_of(value: object) -> str:  # any JSON value
    """Return a value as text: a string as it is, null as nothing, all others as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json_text(value)


def in_path(name: str, value: object, *, style: str, explode: bool) -> str:
    """Return the text that replaces a template's expression, percent-encoded."""
    prefix, separator = _PATH.get(style, _PATH["simple"])
    name = _quoted(name)
    members = as_object(value)
    listed = as_array(value)
    if explode and members is not None:
        return _exploded(prefix, separator, map("=".join, _member_pairs(members)))
    if explode and listed is not None:
        if style == "matrix":
            return _exploded(prefix, separator, map("=".join, _item_pairs(name, listed)))
        return _exploded(prefix, separator, map(_quoted, listed))
    text = ",".join(_flat(value))
    if style != "matrix":
        return prefix + text
    if text:
        return f";{name}={text}"
    return f";{name}"


def _exploded(prefix: str, separator: str, items: Iterable[str]) -> str:
    text = separator.join(items)
    if text:
        return prefix + text
    return ""


def in_query(name: str, value: object, *, style: str, explode: bool, reserved: bool = False) -> list[tuple[str, str]]:
    """Return the members of the query for a value, percent-encoded; none for null and for empty values."""
    # Also with `allowReserved`, `&`, `#`, `+` and `%` are encoded: they would end the value, or be read as another.
    safe = _RESERVED if reserved else ""
    name = _quoted(name)
    if value is None or value in ([], {}):
        return []
    members = as_object(value)
    listed = as_array(value)
    if members is None and listed is None:
        return [(name, _quoted(value, safe))]
    if style == "deepObject":
        return _deep(name, value, safe)
    if explode and listed is not None:
        return _item_pairs(name, listed, safe)
    has_pairs = explode and style == "form"
    if has_pairs and members is not None:
        return _member_pairs(members, safe)
    # The separator of the style is the one character that items must not contain, so it is encoded in them.
    return [(name, _QUERY.get(style, ",").join(_flat(value, safe.replace(",", ""))))]


def joined(pairs: Iterable[tuple[str, str]]) -> str:
    """Return encoded pairs as the text of a query or of a form."""
    return "&".join(map("=".join, pairs))


def in_header(value: object, *, explode: bool) -> str:
    """Return the value of a header, which is not percent-encoded."""
    members = as_object(value)
    if members is not None:
        joint = "=" if explode else ","
        return ",".join(f"{key}{joint}{text_of(one)}" for key, one in members.items())
    listed = as_array(value)
    if listed is not None:
        return ",".join(map(text_of, listed))
    return text_of(value)


def in_cookie(name: str, value: object, *, style: str, explode: bool) -> list[str]:
    """Return the pairs of a cookie header for a value."""
    if style == "cookie":  # OpenAPI 3.2: as it is
        return [f"{name}={text_of(value)}"]
    return list(map("=".join, in_query(name, value, style="form", explode=explode)))


def _quoted(value: object, safe: str = "") -> str:
    return quote(text_of(value).encode("utf-8", "surrogatepass"), safe=safe)


def _member_pairs(members: JsonObject, safe: str = "") -> list[tuple[str, str]]:
    return [(_quoted(key), _quoted(one, safe)) for key, one in members.items()]


def _item_pairs(name: str, items: Iterable[object], safe: str = "") -> list[tuple[str, str]]:
    return [(name, _quoted(one, safe)) for one in items]


def _flat(value: object, safe: str = "") -> list[str]:
    """Return the parts of a value in one list: names and values of an object in turn."""
    members = as_object(value)
    if members is not None:
        parts: list[str] = []
        for key, one in members.items():
            parts.append(_quoted(key))
            parts.append(_quoted(one, safe))
        return parts
    listed = as_array(value)
    if listed is not None:
        return [_quoted(one, safe) for one in listed]
    return [_quoted(value)]


def _deep(name: str, value: object, safe: str) -> list[tuple[str, str]]:
    """Return `name[key]=value` for each member of an object; the specification leaves deeper ones open."""
    if value is None:
        return []
    members = as_object(value)
    if members is not None:
        pairs: list[tuple[str, str]] = []
        for key, one in members.items():
            pairs += _deep(f"{name}%5B{_quoted(key)}%5D", one, safe)
        return pairs
    listed = as_array(value)
    if listed is not None:
        return _item_pairs(name, listed, safe)
    return [(name, _quoted(value, safe))]
