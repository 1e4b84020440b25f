"""Conversion of a JSON-RPC response to a result, or to the error of its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from toolweave._json_types import Json, as_array, as_integer, as_object, as_text
from toolweave.connect._repairs import NOT_JSON, NULL_ERROR
from toolweave.errors import ProtocolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.jsonrpc import value_of
from toolweave.protocol.lenient_answers import is_empty_error, readable_error, readable_task
from toolweave.protocol.lenient_messages import LenientMessage, MendedMessage
from toolweave.protocol.lenient_offers import BARE_RESULT, ignore_change
from toolweave.protocol.lenient_results import BareResult, has_odd_outcome, is_data, readable_outcome, readable_result

_MEMBER_OF: Mapping[str, str] = {
    methods.PROMPTS_GET: "messages",
    methods.RESOURCES_READ: "contents",
    methods.COMPLETION_COMPLETE: "values",
}
"""The list that the result of a request holds, by its method."""
_OF_TASKS = frozenset({methods.TASKS_GET, methods.TASKS_CANCEL})


def result_of(message: LenientMessage, server: str, note: Callable[[str], None] = ignore_change) -> Json:
    """Return the result of a response; a result that is not an object is a `BareResult`.

    Args:
        message: The answer.
        server: The name of the server.
        note: Called with each part of it that is outside of the specification and is still read.

    Raises:
        ProtocolError: It is an error, or no proper answer.
    """
    if isinstance(message, MendedMessage):
        note(NOT_JSON.problem)
    if message.error is not msgspec.UNSET:
        # Serializers of JSON-RPC 1 write both members.
        has_result = message.result is not msgspec.UNSET and message.result is not None
        if not has_result or not _is_no_error(message.error):
            raise _peer_error(message.error, server, note)
        note(NULL_ERROR.problem)
    result: Any = message.result
    if isinstance(result, msgspec.Raw):
        try:
            result = value_of(result)
        except ValueError as exc:
            raise invalid(server, str(exc)) from None
    if isinstance(result, dict):
        return result  # pyright: ignore[reportUnknownVariableType]
    if result is msgspec.UNSET:
        raise invalid(server, "it has neither 'result' nor 'error'")
    if result is None:
        raise invalid(server, "its 'result' is not an object: None")
    return BareResult(result)


def object_result(result: Json, method: str, server: str, note: Callable[[str], None] = ignore_change) -> Json:
    """Return a result for other clients, which is an object; one of a call has its own names and a boolean flag.

    Raises:
        ProtocolError: The result is not an object, and that of no request which a list or a text can answer.
    """
    if not isinstance(result, BareResult):
        if method == methods.TOOLS_CALL:
            return _plain_outcome(result, note)
        if method in _OF_TASKS:
            return dict(readable_task(result, note))
        return result
    member = _MEMBER_OF.get(method)
    if member is not None:
        for read in (as_text, as_array):
            if read(result.value) is not None:
                note(BARE_RESULT.problem.format(member))
                return {member: result.value}
    if method != methods.TOOLS_CALL:
        raise invalid(server, f"its 'result' is not an object: {str(result.value)[:100]}")
    made, changes = readable_result(result)
    for change in changes:
        note(change)
    return made


def _plain_outcome(result: Json, note: Callable[[str], None]) -> Json:
    """Return the result of a call with its members under their names and a boolean as error flag, or its task."""
    task = as_object(result.get("task"))
    if task is not None:
        return {**result, "task": readable_task(task, note)}
    if result.get("resultType") == "task":
        return dict(readable_task(result, note))
    if not has_odd_outcome(result):
        return result
    changes: dict[str, None] = {}
    made = dict(readable_outcome(result, changes))
    if is_data(made):
        # Other clients would see an empty content, and not the data beside it.
        made, found = readable_result(made)
        changes.update(dict.fromkeys(found))
    for change in changes:
        note(change)
    return made


def _is_no_error(raw: msgspec.Raw) -> bool:
    try:
        return is_empty_error(value_of(raw))
    except ValueError:
        return False


def _peer_error(raw: msgspec.Raw, server: str, note: Callable[[str], None]) -> ProtocolError:
    try:
        value = value_of(raw)
    except ValueError as exc:
        return invalid(server, str(exc))
    error = as_object(value)
    if error is None:
        return invalid(server, f"its 'error' is not an object: {str(value)[:100]}")
    code = as_integer(error.get("code"))
    message = as_text(error.get("message"))
    if None in (code, message):
        with suppress(ProtocolError):  # its owner wants no repairs
            code, message = readable_error(error, lambda change: note(f"its answer {change}"))
    return ProtocolError(
        message or "an error without a message",
        server=server,
        code=INTERNAL_ERROR if code is None else code,
        data=error.get("data"),
    )


def invalid(server: str, why: str) -> ProtocolError:
    """Return the error for an invalid answer."""
    return ProtocolError(f"it sent an invalid answer: {why}", server=server, code=INTERNAL_ERROR)
