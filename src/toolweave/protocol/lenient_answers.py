"""The second reading of completions, tasks and errors that the specification does not allow.

The plain meaning is read, and each change is reported. The id of a task is never repaired. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolweave._json_types import Json, JsonObject, as_array, as_integer, as_object, as_text, object_or_empty
from toolweave._repairs import Repair
from toolweave.protocol.lenient_numbers import number_in, whole_number_in
from toolweave.protocol.lenient_offers import NoteChange
from toolweave.protocol.lenient_results import BareResult
from toolweave.protocol.spellings import COMPLETION_NAMES, ERROR_NAMES, TASK_NAMES, spelled

__all__ = ["ANSWER_REPAIRS", "is_empty_error", "readable_completion", "readable_error", "readable_task"]

_SWITCH = '`"repair_messages": false`'
_COMPLETION = Repair(
    given="values of a completion that are the whole result, one text, numbers or objects; its total as a text",
    read_as="a list of texts; the number",
    limit="an object has a `value`, a `label` or a `text`",
    switch=_SWITCH,
    problem="has a completion that is not as the specification has it",
)
_ERROR = Repair(
    given="an error whose code is a text or a fraction, or whose message is missing or data",
    read_as="the whole number; the text of `error` or `detail`, or that in its data, or its JSON",
    limit="any other code is that of an internal error",
    switch=_SWITCH,
    problem="has an error that is not as the specification has it",
)
_STATUS = Repair(
    given="a status of a task in another word, such as `Completed`, `running` or `canceled`",
    read_as="the status of the specification",
    limit="an unknown one is an error",
    switch=_SWITCH,
    problem="has a task with the status {!r}, read as {!r}",
)
_TASK = Repair(
    given="a task in an object `task` of the answer to `tasks/get`, or with numbers as texts",
    read_as="the task; the numbers",
    limit="its id is never repaired",
    switch=_SWITCH,
    problem="has a task that is not as the specification has it",
)
ANSWER_REPAIRS = (_COMPLETION, _ERROR, _STATUS, _TASK)
"""Every repair of a completion, a task or an error."""
_TEXTS = ("value", "label", "text")
_WORDS = ("message", "error", "detail", "details", "msg")
_NUMBERS = ("ttl", "ttlMs", "pollInterval", "pollIntervalMs")
_MAX_SHOWN = 40
_STATUSES: Mapping[str, str] = {
    **dict.fromkeys(("working", "submitted", "queued", "pending", "running", "inprogress"), "working"),
    **dict.fromkeys(("completed", "complete", "done", "finished", "success", "succeeded"), "completed"),
    **dict.fromkeys(("failed", "failure", "error"), "failed"),
    **dict.fromkeys(("cancelled", "canceled"), "cancelled"),
    "inputrequired": "input_required",
}
"""The statuses, by the letters of the words that other protocols have for them."""


def readable_completion(result: JsonObject, note: NoteChange) -> Json:
    """Return the completion in a result of `completion/complete`, with the values that are meant."""
    given: object = result
    if isinstance(result, BareResult):
        given = result.value
    else:
        result = spelled(result, COMPLETION_NAMES, note)
        given = result.get("completion", result)
    found = as_object(given)
    made: Json = {"values": given}
    if found is not None:
        made = dict(spelled(found, COMPLETION_NAMES, note))
    values: object = made.get("values")
    listed = as_array(values)
    if listed is None:
        listed = [values]
    texts = [text for text in map(_value, listed) if text is not None]
    total = whole_number_in(made.get("total"))
    has_more = str(made.get("hasMore")).lower() == "true"
    right = [found is not None, "completion" in result, texts == values, _is_plain(made)]
    if "values" in made and not all(right):
        note(_COMPLETION.problem)
    return {"values": texts, "total": total, "hasMore": has_more}


def _is_plain(completion: JsonObject) -> bool:
    """Return whether the total and the flag of a completion are a number and a boolean, or missing."""
    if isinstance(completion.get("hasMore"), str):
        return False
    total: object = completion.get("total")
    return total is None or as_integer(total) is not None


def _value(item: Any) -> str | None:
    """Return the value that an item of a completion is."""
    if isinstance(item, (int, float)):
        return json.dumps(item)
    entry = as_object(item)
    if entry is None:
        return as_text(item)
    for name in _TEXTS:
        text = as_text(entry.get(name))
        if text is not None:
            return text
    return None


def is_empty_error(error: object) -> bool:
    """Return whether the error beside a result stands for none: empty, or without a code and a message."""
    found = as_object(error)
    if found is None:
        return not error
    return not any(found.values())


def readable_error(error: JsonObject, note: NoteChange) -> tuple[int | None, str | None]:
    """Return the code and the message of an error; None for one that cannot be read."""
    named = spelled(error, ERROR_NAMES, note)
    code = as_integer(named.get("code"))
    message = as_text(named.get("message"))
    if code is not None and message is not None:
        return code, message
    note(_ERROR.problem)
    if code is None:
        code = whole_number_in(named.get("code"))
    if message is None:
        message = _words(named)
    return code, message


def _words(error: JsonObject) -> str | None:
    for part in (error, object_or_empty(error.get("data"))):
        for name in _WORDS:
            value: object = part.get(name)
            if isinstance(value, str):
                return value
            if value:
                return json.dumps(value, ensure_ascii=False)
    return as_text(error.get("data"))


def readable_task(raw: JsonObject, note: NoteChange) -> JsonObject:
    """Return a task with its members under their names, the status and the numbers that are meant."""
    inner = as_object(raw.get("task"))
    if inner is not None and "status" not in raw:
        note(_TASK.problem)
        raw = inner
    made = dict(spelled(raw, TASK_NAMES, note))
    status = as_text(made.get("status"))
    if status is not None:
        meant = _STATUSES.get(status.replace("_", "").replace("-", "").lower(), status)
        if meant != status:
            note(_STATUS.problem.format(status[:_MAX_SHOWN], meant))
            made["status"] = meant
    for name in _NUMBERS:
        if isinstance(made.get(name), str):
            number = number_in(made[name])
            if number is not None:
                note(_TASK.problem)
                made[name] = number
    return made
