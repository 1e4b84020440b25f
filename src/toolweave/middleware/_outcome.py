"""The outcome of a request in a word, and the name of what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolweave.protocol import methods
from toolweave.protocol.input_required import INPUT_REQUIRED
from toolweave.protocol.tasks import TASK_ID
from toolweave.serve._request import Request

__all__ = ["outcome_of", "subject_of"]


def outcome_of(result: Mapping[str, Any]) -> str:
    """Return `ok`, `tool_error`, `input_required` or `task`."""
    if result.get("isError") is True:
        return "tool_error"
    kind = result.get("resultType", "complete")
    if kind == INPUT_REQUIRED:
        return INPUT_REQUIRED
    return "task" if kind == "task" or isinstance(result.get("task"), dict) else "ok"


def subject_of(request: Request) -> str | None:
    """Return the name, the URI, the reference or the id that a request is about."""
    params = request.params
    found: Any = None
    if request.method == methods.COMPLETION_COMPLETE and isinstance(params.get("ref"), dict):
        ref = cast("Mapping[str, Any]", params["ref"])
        found = ref.get("name", ref.get("uri"))
    else:
        found = params.get("name", params.get("uri", params.get(TASK_ID)))
    return found if isinstance(found, str) else None
