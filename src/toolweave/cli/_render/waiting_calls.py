"""Calls of a run that wait for a person, as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.agent import WaitingCall


def waiting_lines(call: WaitingCall, run_id: str) -> list[str]:
    """Return the lines that show a call that waits, and how it is answered."""
    if call.question is None:
        return [
            f"waits for a yes: {_call_text(call)}",
            f"  toolweave runs approve {run_id} {call.call_id}   (or: deny)",
        ]
    lines = [f"waits for an answer: {_call_text(call)}", f"  the server asks: {call.question.message}"]
    if call.question.mode == "url":
        lines.append(f"  visit, if you trust it: {call.question.url}")
    else:
        lines.append(f"  form: {json.dumps(call.question.schema, ensure_ascii=False)}")
    return [*lines, f"  toolweave runs answer {run_id} {call.call_id} ...   (or: --decline, --cancel)"]


def _call_text(call: WaitingCall) -> str:
    """Return a call with all of its arguments, however long: a person decides on it."""
    if call.arguments:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
    else:
        arguments = ""
    if call.server is None:
        where = ""
    else:
        where = f" (server {call.server})"
    repeated = ""
    if call.repeats and call.question is None:
        repeated = "; it had begun when its worker died, and may have been carried out"
    elif call.repeats:
        repeated = "; with an answer it is made again from its start, and may repeat its effects before the question"
    return f"{call.tool}{where} {arguments}".rstrip() + repeated
