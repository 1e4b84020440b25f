"""The second reading of a server's questions to its client, and of answers, that the specification does not allow.

Servers write the messages of `sampling/createMessage` as their model's API has them, numbers as texts, and the form of
`elicitation/create` under another name or as JSON in a text. The plain meaning is read, and each change is
reported. Nothing is read into the address of a page, or into what a user decided. Pure.
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
from toolweave.protocol.client_requests import REQUESTED_SCHEMA
from toolweave.protocol.lenient_numbers import number_in, whole_number_in
from toolweave.protocol.lenient_offers import NoteChange, decoded, object_schema, readable_block
from toolweave.protocol.spellings import FORM_NAMES, SAMPLING_NAMES, spelled

__all__ = [
    "CLIENT_ANSWER_REPAIRS",
    "QUESTION_REPAIRS",
    "readable_elicitation",
    "readable_sampling",
    "readable_sampling_result",
]

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
_HANDLER_GETS_IT = "nothing: a handler of yours waits for the answer"
_NEARLY_JSON = Repair(
    given="an answer of a client to your server's question that is nearly JSON, as above",
    read_as="null; U+FFFD; the character",
    limit="an id is never repaired; a request that is nearly JSON is refused",
    switch=_HANDLER_GETS_IT,
)
_SAMPLED = Repair(
    given="a client's answer to a sampling request with a text or a block without a type, or without its model",
    read_as="text blocks; the model `unknown`",
    limit="without any content it is an error",
    switch=_HANDLER_GETS_IT,
)
CLIENT_ANSWER_REPAIRS = (_NEARLY_JSON, _SAMPLED)
"""Every repair of an answer of a client."""
_FORM_MODE = "form"
_CONVERSATIONS = (str, dict, list)


def readable_sampling(params: JsonObject, note: NoteChange) -> JsonObject:
    """Return the parameters of `sampling/createMessage` with the messages and the numbers that are meant."""
    made = dict(spelled(params, SAMPLING_NAMES, note))
    given: object = made.get("messages")
    if type(given) in _CONVERSATIONS:
        messages = list(_conversation(given))
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


def _conversation(given: object) -> Iterator[Json]:
    """Yield the messages that are meant by a list of them, or by one."""
    items = as_array(given)
    if items is None:
        items = [given]
    for item in items:
        if item is not None:
            yield _message(item)


def _message(item: Any) -> Json:
    message = as_object(item)
    if message is None:
        return {"role": "user", "content": readable_block(item)}
    content: object = message.get("content", message.get("text"))
    blocks = as_array(content)
    made: Json = {"role": "user", **without_members(message, "text")}
    if blocks is None:
        made["content"] = readable_block(content)
    else:
        made["content"] = list(map(readable_block, blocks))
    return made


def readable_elicitation(params: JsonObject, note: NoteChange) -> JsonObject:
    """Return the parameters of `elicitation/create` with the mode and the form that are meant."""
    made = dict(spelled(params, FORM_NAMES, note))
    mode: object = made.get("mode", _FORM_MODE)
    if mode != _FORM_MODE:
        if mode is not None and text_or_empty(mode).lower() != _FORM_MODE:
            return made
        note(_MODE.problem.format(mode))
        made["mode"] = _FORM_MODE
    given: object = made.get(REQUESTED_SCHEMA)
    form = _form(given)
    if form is None:
        form = _form(made.get("schema"))
    if form is None or form == given:
        return made
    note(_FORM.problem)
    return {**without_members(made, "schema"), REQUESTED_SCHEMA: form}


def _form(value: object) -> JsonObject | None:
    """Return the form that is meant by a value, or None."""
    if isinstance(value, str):
        value = decoded(value)
    schema = object_schema(value)
    if schema is None or "type" in schema:
        return schema
    return {"type": "object", **schema}


def readable_sampling_result(answer: object) -> object:
    """Return a client's answer to a sampling request with its blocks and its model, as far as they are plain."""
    result = as_object(answer)
    if result is None:
        return answer
    content: object = result.get("content")
    if content is None:
        return answer
    blocks = as_array(content)
    if blocks is None:
        blocks = [content]
    made = {**result, "content": list(map(readable_block, blocks))}
    if as_text(result.get("model")) is None:
        made["model"] = "unknown"
    return made
