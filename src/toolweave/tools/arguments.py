"""Arguments of tool calls between a model's text and JSON values; call ids that every provider accepts. Pure."""

from __future__ import annotations

import re
import string
import uuid
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, cast

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import Json
from toolweave._repairs import Repair
from toolweave._text import without_code_block

__all__ = ["ARGUMENTS_IN_TEXT", "alphanumeric_id", "encode", "fresh_id", "json_text", "read_arguments", "wire_id"]

ARGUMENTS_IN_TEXT = Repair(
    given="arguments of a call as JSON in a text, or in a code block",
    read_as="the object in it",
    limit="the block is the whole text; other text goes back to the model as an error",
    switch="nothing: arguments are an object",
)
_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def read_arguments(text: str) -> tuple[Json, str | None]:
    """Return the arguments in a model's text, and the text itself when it is not a JSON object.

    An empty text means no arguments: some providers send `""` or `null` for a tool without parameters. A string that
    holds the object, or a code block around it, which some models write, is parsed as the object.
    """
    if not text.strip():
        return {}, None
    try:
        value = decode_json(without_code_block(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}, text
    if value is None:
        return {}, None
    if isinstance(value, str) and value.lstrip().startswith(("{", "```")):
        inner, malformed = read_arguments(value)
        if malformed is None:
            return (inner, None)
        return ({}, text)
    if isinstance(value, dict):
        return (cast("dict[str, Any]", value), None)
    return ({}, text)


def json_text(value: Any) -> str:
    """Return a value as JSON text, never as Python's."""
    return encode(value).decode()


def encode(value: Any) -> bytes:
    """Return a value as JSON; halves of surrogate pairs, which no JSON can carry, are replaced.

    Raises:
        TypeError, ValueError: It is not JSON value.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(value))


def fresh_id() -> str:
    """Return an id for a call that came without one."""
    return f"call_{uuid.uuid4().hex[:24]}"


def wire_id(call_id: str) -> str:
    """Return a call's id in a form that every provider accepts; deterministic, for the call and its answer."""
    if _LEGAL_ID.fullmatch(call_id):
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def alphanumeric_id(call_id: str, length: int) -> str:
    """Return a call's id as `length` letters and digits; deterministic, and unchanged if it has that form."""
    if len(call_id) == length and call_id.isascii() and call_id.isalnum():
        return call_id
    number = int.from_bytes(sha256(call_id.encode("utf-8", "surrogatepass")).digest())
    digits = string.digits + string.ascii_letters
    return "".join(digits[number // 62**place % 62] for place in range(length))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_whole(name): _whole(one) for name, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return list(map(_whole, cast("list[Any]", value)))
    return value
