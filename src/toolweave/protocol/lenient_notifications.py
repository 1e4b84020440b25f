"""The second reading of a server's notifications that the specification does not allow.

Servers write the numbers of progress as texts, and severities as their logging library has them. The plain meaning is
read, and each change is reported. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from toolweave._json_types import JsonObject, as_number, as_text
from toolweave._repairs import Repair
from toolweave.protocol.lenient_numbers import number_in
from toolweave.protocol.lenient_offers import NoteChange
from toolweave.protocol.logs import LEVELS
from toolweave.protocol.spellings import PROGRESS_NAMES, spelled

__all__ = ["NOTIFICATION_REPAIRS", "readable_log", "readable_progress"]

_SWITCH = '`"repair_messages": false`'
_AMOUNT = Repair(
    given="numbers of a progress notification as texts, or its message as another value",
    read_as="the numbers; the message as JSON",
    limit="without a number, it is ignored",
    switch=_SWITCH,
    problem="has {!r} of another type",
)
_SEVERITY = Repair(
    given="a severity of a log message in another spelling, such as `WARN` or `fatal`",
    read_as="the severity of the specification",
    limit="an unknown one stays as it is",
    switch=_SWITCH,
    problem="has the level {!r}, read as {!r}",
)
_DATA = Repair(
    given="a log message with `message` or `text` in place of `data`",
    read_as="its `data`",
    limit="only if `data` is missing",
    switch=_SWITCH,
    problem="has {!r} in place of 'data'",
)
NOTIFICATION_REPAIRS = (_AMOUNT, _SEVERITY, _DATA)
"""Every repair of a notification."""
_LEVELS: Mapping[str, str] = {
    **{level: level for level in LEVELS},
    "trace": "debug",
    "verbose": "debug",
    "information": "info",
    "informational": "info",
    "warn": "warning",
    "err": "error",
    "crit": "critical",
    "fatal": "critical",
    "emerg": "emergency",
    "panic": "emergency",
}
"""The severities, by the names that logging libraries have for them."""
_MAX_SHOWN = 40


def readable_progress(params: JsonObject, note: NoteChange) -> JsonObject:
    """Return the parameters of `notifications/progress` with the numbers and the text that are meant."""
    made = dict(spelled(params, PROGRESS_NAMES, note))
    for name in ("progress", "total"):
        given = made.get(name)
        meant = number_in(given)
        if meant is not None and as_number(given) is None:
            note(_AMOUNT.problem.format(name))
            made[name] = meant
    message: object = made.get("message")
    if message is not None and as_text(message) is None:
        note(_AMOUNT.problem.format("message"))
        made["message"] = json.dumps(message, ensure_ascii=False)
    return made


def readable_log(params: JsonObject, note: NoteChange) -> JsonObject:
    """Return the parameters of `notifications/message` with the severity and the data that are meant."""
    made = dict(params)
    level = as_text(made.get("level"))
    if level is not None and level not in LEVELS:
        meant = _LEVELS.get(level.strip().lower())
        if meant is not None:
            note(_SEVERITY.problem.format(level[:_MAX_SHOWN], meant))
            made["level"] = meant
    if "data" not in made:
        for name in ("message", "text"):
            if name in made:
                note(_DATA.problem.format(name))
                made["data"] = made.pop(name)
                break
    return made
