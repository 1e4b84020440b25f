"""The path, query, headers and cookies of a request, from the arguments of a call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

from toolweave.openapi._bodies import UnusableArgument
from toolweave.openapi._body_schemas import is_json
from toolweave.openapi._operations import ApiParameter, Operation
from toolweave.openapi._styles import in_cookie, in_header, in_path, in_query, text_of
from toolweave.tools._arguments import json_text


@dataclass(slots=True)
class RequestParts:
    """The parts of a request that parameters are in; path and query are percent-encoded."""

    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[str] = field(default_factory=list[str])


def request_parts(operation: Operation, arguments: Mapping[str, Any]) -> RequestParts:
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
        if one.media_type is not None:
            is_json_body = is_json(one.media_type)
            if is_json_body or (one.place != "querystring" and not isinstance(value, str)):
                value = json_text(value)
        if one.place == "path":
            text = in_path(one.name, value, style=one.style, explode=one.explode)
            if not text.strip(".;"):
                raise UnusableArgument(f"/{one.argument}", "is part of a path, where it cannot be empty or only dots")
            made.path = made.path.replace(f"{{{one.name}}}", text)
        elif one.place == "header":
            made.headers[one.name.lower()] = _header(one, value)
        elif one.place == "cookie":
            made.cookies += in_cookie(one.name, value, style=one.style, explode=one.explode)
        elif one.place == "querystring":
            query.append(_querystring(value))
        else:
            pairs = in_query(one.name, value, style=one.style, explode=one.explode, reserved=one.reserved)
            query += [f"{name}={text}" for name, text in pairs]
    made.query = "&".join(query)
    return made


def _header(one: ApiParameter, value: Any) -> str:
    text = in_header(value, explode=one.explode)
    if any(char in text for char in "\r\n\0"):
        raise UnusableArgument(f"/{one.argument}", "is a header, which is one line")
    return text


def _querystring(value: Any) -> str:
    """Return a whole query (OpenAPI 3.2): a form of an object, else the text."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return "&".join(f"{k}={v}" for key, one in members for k, v in in_query(key, one, style="form", explode=True))
    return quote(text_of(value), safe="")
