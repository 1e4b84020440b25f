"""The second reading of a server's questions to its client that the specification does not allow.

Servers write the messages of `sampling/createMessage` as their model's API has them, numbers as texts, and the form of
`elicitation/create` under another name or as JSON in a text. The plain meaning is read, and each change is
reported. Nothing is read into the address of a page, or into an answer. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolweave._json_types import (
    Json,
    JsonObject,
    as_array,
    as_integer,
    as_number,
    as_object,
    as_text,
    text_or_empty,
    without_members,
)
from toolweave._repairs import Repair
from toolweave.protocol.lenient_numbers import number_in, whole_number_in
from toolweave.protocol.lenient_offers import NoteChange, decoded, object_schema, readable_block
from toolweave.protocol.spellings import FORM_NAMES, SAMPLING_NAMES, spelled

__all__ = ["QUESTION_REPAIRS", "readable_elicitation", "readable_sampling"]

_SWITCH = '`"repair_messages": false`'
_CONVERSATION = Repair(
    given="messages of a sampling request that are a text or one message, or have a text or no role",
    read_as="a list of messages with blocks, of the role `user`",
    limit="null is left out",
    switch=_SWITCH,
    problem="has messages that are not as the specification has them",
)
_NUMBER = Repair(
    given="`maxTokens` or `temperature` of a sampling request as a text, or a whole number with a fraction",
    read_as="the number",
    limit="any other value counts as missing",
    switch=_SWITCH,
    problem="has {!r} that is not a number of the specification",
)
_FORM = Repair(
    given="the form of an elicitation that is JSON as a text, is named `schema`, or has no type",
    read_as="the form",
    limit="it has `properties`",
    switch=_SWITCH,
    problem="has 'requestedSchema' that is not as the specification has it",
)
_MODE = Repair(
    given="null or `Form` as the mode of an elicitation",
    read_as="`form`",
    limit="any other mode is an error; the address of a page is never repaired",
    switch=_SWITCH,
    problem="has the mode {!r}",
)
QUESTION_REPAIRS = (_CONVERSATION, _NUMBER, _FORM, _MODE)
"""Every repair of a question."""
_REQUESTED_SCHEMA = "requestedSchema"


def readable_sampling(params: JsonObject, note: NoteChange) -> JsonObject:
    """Return the parameters of `sampling/createMessage` with the messages and the numbers that are meant."""
    made = dict(spelled(params, SAMPLING_NAMES, note))
    given: object = made.get("messages")
    listed = as_array(given)
    if as_text(given) is not None or as_object(given) is not None:
        listed = [given]
    if listed is not None:
        messages = [message for item in listed for message in _messages(item)]
        if messages != given:
            note(_CONVERSATION.problem)
            made["messages"] = messages
    if as_integer(made.get("maxTokens")) is None:
        _set_number(made, "maxTokens", whole_number_in(made.get("maxTokens")), note)
    if as_number(made.get("temperature")) is None:
        _set_number(made, "temperature", number_in(made.get("temperature")), note)
    return made


def _set_number(made: Json, name: str, meant: float | None, note: NoteChange) -> None:
    if meant is not None:
        note(_NUMBER.problem.format(name))
        made[name] = meant


def _messages(item: Any) -> Iterator[Json]:
    """Yield the message that is meant by an item; none for null."""
    if item is None:
        return
    message = as_object(item)
    if message is None:
        yield {"role": "user", "content": readable_block(item)}
        return
    content: object = message.get("content", message.get("text"))
    blocks = as_array(content)
    meant: object = readable_block(content) if blocks is None else list(map(readable_block, blocks))
    yield {
        **without_members(message, "text"),
        "role": text_or_empty(message.get("role")) or "user",
        "content": meant,
    }


def readable_elicitation(params: JsonObject, note: NoteChange) -> JsonObject:
    """Return the parameters of `elicitation/create` with the mode and the form that are meant."""
    made = dict(spelled(params, FORM_NAMES, note))
    if "mode" in made:
        mode: object = made["mode"]
        if mode is None or (text_or_empty(mode).lower() == "form" and mode != "form"):
            note(_MODE.problem.format(mode))
            made["mode"] = "form"
    if made.get("mode", "form") != "form":
        return made
    given: object = made.get(_REQUESTED_SCHEMA)
    form = _form(made.get("schema") if given is None else given)
    if form is not None and form != given:
        note(_FORM.problem)
        made = {**without_members(made, "schema"), _REQUESTED_SCHEMA: form}
    return made


def _form(value: object) -> JsonObject | None:
    """Return the form that is meant by a value, or None."""
    text = as_text(value)
    schema = object_schema(value if text is None else decoded(text))
    if schema is None or "type" in schema:
        return schema
    return {"type": "object", **schema}
