"""The outcome of a request in a word, the name of its subject, and its arguments without their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from toolweave.config.secret_args import mask_url
from toolweave.protocol import methods
from toolweave.protocol.input_required import INPUT_REQUIRED
from toolweave.protocol.jsonrpc import value_of
from toolweave.protocol.tasks import TASK_ID
from toolweave.serve import Request
from toolweave.serve.request import Json

MAX_NAME = 1024
_MAX_MEMBERS = 50
_DEEPEST = 4
_TRUE = msgspec.Raw(b"true")


def is_failed(result: Mapping[str, Any]) -> bool:
    """Whether a result is that of a failed tool; its `isError` may be left as a JSON text."""
    failed = result.get("isError")
    return failed is True or (type(failed) is msgspec.Raw and failed == _TRUE)


def outcome_of(result: Mapping[str, Any]) -> str:
    """Return `ok`, `tool_error`, `input_required` or `task`."""
    if is_failed(result):
        return "tool_error"
    kind = result.get("resultType", "complete")
    if kind == INPUT_REQUIRED:
        return INPUT_REQUIRED
    if kind == "task" or isinstance(result.get("task"), dict):
        return "task"
    return "ok"


def first_text(result: Mapping[str, Any]) -> str:
    """Return the first text in a result, which says of a failed tool why."""
    content: Any = result.get("content")
    # Results of the fast path leave their content as JSON text. Only failed calls get here, so it is seldom read.
    if isinstance(content, msgspec.Raw):
        try:
            content = value_of(content)
        except ValueError:
            # A number that is out of range.
            return ""
    for block in cast("list[Any]", content) if isinstance(content, list) else ():
        text: Any = cast("dict[str, Any]", block).get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            return text
    return ""


def subject_of(request: Request) -> str | None:
    """Return the name, the URI without its secrets, the reference or the id that a request is about."""
    params = request.params
    found: Any = None
    if request.method == methods.COMPLETION_COMPLETE and isinstance(params.get("ref"), dict):
        ref = cast("Mapping[str, Any]", params["ref"])
        found = ref.get("name", ref.get("uri"))
    else:
        found = params.get("name", params.get("uri", params.get(TASK_ID)))
    if isinstance(found, str):
        return shown_name(found)
    return None


def shown_name(name: str) -> str:
    """Return a name or a URI without secrets."""
    if "://" in name:
        return mask_url(name)
    return name


_WORDS: Mapping[object, str] = {bool: "boolean", int: "number", float: "number"}


def word_of(kind: object) -> str:
    """Return the type of a value that has no members, given its Python type, or its length if it is a text."""
    if isinstance(kind, int):
        return f"string({kind})"
    return _WORDS.get(kind, "null")


def shape_of(value: object, depth: int = _DEEPEST) -> Any:
    """Return the types of a value, and the names of its members down to a depth; texts with their length."""
    if isinstance(value, str):
        return word_of(len(value))
    if isinstance(value, list):
        return f"array({len(cast('list[Any]', value))})"
    if not isinstance(value, dict):
        return word_of(type(value))
    members = cast("Json", value)
    # A caller chooses the names of members: without bounds it could fill the log with them.
    if depth == 0 or len(members) > _MAX_MEMBERS:
        return f"object({len(members)})"
    return {name[:MAX_NAME]: shape_of(one, depth - 1) for name, one in members.items()}
