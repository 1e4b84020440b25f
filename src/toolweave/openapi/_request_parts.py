"""The path, query, headers and cookies of a request, from the arguments of a call. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote

from toolweave._json_types import JsonObject, as_object
from toolweave.openapi._bodies import UnusableArgument
from toolweave.openapi._body_schemas import is_json
from toolweave.openapi._operations import ApiParameter, Operation
from toolweave.openapi._styles import in_cookie, in_header, in_path, in_query, joined, text_of
from toolweave.tools.arguments import json_text

_LINE_END = re.compile(r"[\r\n\0]")


@dataclass(slots=True)
class RequestParts:
    """The parts of a request that parameters are in; path and query are percent-encoded."""

    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[str] = field(default_factory=list[str])


def request_parts(operation: Operation, arguments: JsonObject) -> RequestParts:
    """Return the parts for these arguments.

    Raises:
        UnusableArgument: One would change the path to another, or the head of the request.
    """
    made = RequestParts(path=operation.path.partition("#")[0])  # a fragment is never sent
    query: list[str] = []
    for one in operation.parameters:
        if one.argument not in arguments:
            continue
        value = arguments[one.argument]
        if _is_sent_as_json(one, value):
            value = json_text(value)
        if one.location == "path":
            text = in_path(one.name, value, style=one.style, explode=one.explode)
            # It would make another path: `/pets/..` is `/`. Percent-encoding does not help, because dots are unreserved
            # (RFC 3986, 2.3).
            if not text.strip(".;"):
                raise UnusableArgument(f"/{one.argument}", "is part of a path, where it cannot be empty or only dots")
            made.path = made.path.replace(f"{{{one.name}}}", text)
        elif one.location == "header":
            made.headers[one.name.lower()] = _header(one, value)
        elif one.location == "cookie":
            made.cookies += in_cookie(one.name, value, style=one.style, explode=one.explode)
        elif one.location == "querystring":
            query.append(_querystring(value))
        else:
            pairs = in_query(one.name, value, style=one.style, explode=one.explode, reserved=one.reserved)
            if pairs:
                query.append(joined(pairs))
    made.query = "&".join(query)
    return made


def _is_sent_as_json(one: ApiParameter, value: object) -> bool:
    if one.media_type is None:
        return False
    if is_json(one.media_type):
        return True
    return one.location != "querystring" and not isinstance(value, str)


def _header(one: ApiParameter, value: object) -> str:
    text = in_header(value, explode=one.explode)
    if _LINE_END.search(text) is not None:
        raise UnusableArgument(f"/{one.argument}", "is a header, which is one line")
    return text


def _querystring(value: object) -> str:
    """Return a whole query (OpenAPI 3.2): a form of an object, else the text."""
    members = as_object(value)
    if members is None:
        return quote(text_of(value), safe="")
    pairs: list[tuple[str, str]] = []
    for name, one in members.items():
        pairs += in_query(name, one, style="form", explode=True)
    return joined(pairs)
