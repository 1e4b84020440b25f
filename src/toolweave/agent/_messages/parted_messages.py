"""Messages whose content is a list `parts`: contents of Gemini, and UI messages of the AI SDK. Pure.

`content_messages.py` reads the messages of Bedrock and of the AI SDK whose list is named `content`.

Gemini's calls may have no id: results follow in the order of the calls of a name, and `with_ids` names both.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from toolweave._json_types import (
    JsonObject,
    as_object,
    as_sequence,
    as_text,
    object_or_empty,
    text_or_empty,
    without_none,
)
from toolweave.agent._messages.content import UnknownForm, block_of, blocks_of, part_members, part_type
from toolweave.agent._messages.forms import ReadMessages, by_role, call_of, outcome_of
from toolweave.models import (
    AssistantMessage,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.models._messages import AssistantPart
from toolweave.protocol.content import ContentBlock
from toolweave.tools import ToolResult
from toolweave.tools.arguments import json_text

_ROLES = {"user": "user", "model": "assistant", "assistant": "assistant", "function": "user", "tool": "user"}
_NOT_SENT = ("step-start", "source-url", "source-document")
"""Types of parts of a UI message that are for the page alone, beside `data-*`."""
_UNFINISHED = ("input-streaming", "partial-call")


def read_parts(members: JsonObject) -> ReadMessages | None:
    """Return the messages of one entry whose content is `parts`; None for an entry of another form.

    Raises:
        UnknownForm: A part is of no known form, or it is a system message.
    """
    parts = as_sequence(members.get("parts"))
    # Pydantic AI's messages have `parts` as well as a `kind`, and are read elsewhere.
    if "kind" in members:
        return None
    if parts is None:
        return _read_older_ui_message(members)
    role = _ROLES.get(str(members.get("role")))
    if role is None:
        content = members.get("content") or ""
        return by_role("role", members.get("role"), {**members, "content": content})
    turn = PartedTurn(is_user=role == "user")
    for place, part in enumerate(parts):
        found = part_members(part)
        if found is None:
            raise UnknownForm(f"'parts[{place}]' is not an object.")
        if "type" in found:
            _add_ui_part(turn, found, f"'parts[{place}]'")
        else:
            _add_gemini_part(turn, found, place)
    return ReadMessages(messages=tuple(turn.finish()))


class PartedTurn:
    """Collects the messages of one entry: a turn of the model has results of tools between its parts."""

    def __init__(self, *, is_user: bool) -> None:
        self._is_user = is_user
        self._messages: list[Message] = []
        self._blocks: list[ContentBlock] = []
        self._parts: list[AssistantPart] = []
        self._outcomes: list[ToolOutcome] = []

    def add_block(self, block: ContentBlock) -> None:
        """Add a block of the entry's author."""
        if self._is_user:
            self._blocks.append(block)
        else:
            self.add_part(TextPart(text=block.render()))

    def add_part(self, part: AssistantPart) -> None:
        """Add a part of the model's turn."""
        # Text after results is the model's next step. Calls may follow each other, with their results between them.
        if self._outcomes and not isinstance(part, ToolCallPart):
            self.end_step()
        self._parts.append(part)

    def add_outcome(self, outcome: ToolOutcome) -> None:
        """Add the result of a call."""
        self._outcomes.append(outcome)

    def finish(self) -> list[Message]:
        """Return the messages."""
        self.end_step()
        if self._blocks:
            # Only an entry of the user has them.
            self._messages.append(UserMessage(content=tuple(self._blocks)))
        elif not self._messages:
            self._messages.append(self._empty_message())
        return self._messages

    def _empty_message(self) -> Message:
        if self._is_user:
            return UserMessage(content=())
        return AssistantMessage(parts=())

    def end_step(self) -> None:
        """End a message of the model, and the results of its calls."""
        if self._parts:
            self._messages.append(AssistantMessage(parts=tuple(self._parts)))
        if self._outcomes:
            self._messages.append(ToolMessage(outcomes=tuple(self._outcomes)))
        self._parts = []
        self._outcomes = []


# Gemini


def _add_gemini_part(turn: PartedTurn, members: JsonObject, place: int) -> None:
    call = as_object(_either(members, "functionCall", "function_call"))
    response = as_object(_either(members, "functionResponse", "function_response"))
    data = as_object(_either(members, "inlineData", "inline_data"))
    text = as_text(members.get("text"))
    if call is not None:
        named = {"id": "", **without_none(call)}
        turn.add_part(call_of(named, "id", "args", within=f"'parts[{place}].functionCall'"))
    elif response is not None:
        name = text_or_empty(response.get("name"))
        value = response.get("response")
        made = outcome_of(text_or_empty(response.get("id")), name, ToolResult.of_json(value).content, is_error=False)
        turn.add_outcome(made)
    elif data is not None:
        mime_type = _either(data, "mimeType", "mime_type")
        turn.add_block(file_block(mime_type, data.get("data"), f"'parts[{place}]'"))
    elif text is not None and members.get("thought") is True:
        turn.add_part(ThinkingPart(text=text))
    elif text is not None:
        turn.add_block(block_of(text))
    else:
        known = "'text', 'inlineData', 'functionCall' or 'functionResponse'"
        raise UnknownForm(f"'parts[{place}]' has the members {sorted(members)}. A part of Gemini has {known}.")


def _either(members: JsonObject, one: str, other: str) -> Any:
    return members.get(one, members.get(other))


def file_block(mime_type: object, data: object, where: str, name: str | None = None) -> ContentBlock:
    """Return an image, a sound or another file.

    Args:
        mime_type: Its media type.
        data: Its data: bytes, a text in base64, or a data URL.
        where: The place of its part in the message, for an error.
        name: Name of the file, or None.

    Raises:
        UnknownForm: The media type is missing, or the data is elsewhere.
    """
    if isinstance(data, bytes):
        data = base64.b64encode(data).decode()
    if isinstance(data, str) and data.startswith("data:"):
        data = data.partition("base64,")[2]
    if not isinstance(mime_type, str) or not isinstance(data, str):
        raise UnknownForm(f"{where} is a file without a media type or data, which are texts.")
    kind = mime_type.partition("/")[0]
    if kind in ("image", "audio"):
        return block_of({"type": kind, "data": data, "mimeType": mime_type})
    held = {"file_data": f"data:{mime_type};base64,{data}", "filename": name}
    return block_of({"type": "file", "file": held})


def with_ids(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages whose calls and results without an id have one, paired by name in their order.

    Raises:
        TypeError: A result has no call.
    """
    if not any(map(_without_id, messages)):
        return messages
    waiting: dict[str, deque[str]] = {}
    found: list[Message] = []
    number = 0
    for message in messages:
        if isinstance(message, AssistantMessage):
            parts: list[AssistantPart] = []
            for part in message.parts:
                if isinstance(part, ToolCallPart) and not part.id:
                    number += 1
                    part = replace(part, id=f"call_{number}")
                    waiting.setdefault(part.name, deque()).append(part.id)
                parts.append(part)
            message = AssistantMessage(parts=tuple(parts))
        elif isinstance(message, ToolMessage):
            message = ToolMessage(outcomes=tuple(_identified(one, waiting) for one in message.outcomes))
        found.append(message)
    return found


def _without_id(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        return not all(call.id for call in message.tool_calls)
    if isinstance(message, ToolMessage):
        return not all(outcome.call_id for outcome in message.outcomes)
    return False


def _identified(outcome: ToolOutcome, waiting: Mapping[str, deque[str]]) -> ToolOutcome:
    if outcome.call_id:
        return outcome
    ids = waiting.get(outcome.name)
    if not ids:
        raise TypeError(
            f"the messages have no call of {outcome.name!r} that a result without an id is of. Send the message with "
            "the call before it."
        )
    return replace(outcome, call_id=ids.popleft())


# UI messages


def _read_older_ui_message(members: JsonObject) -> ReadMessages | None:
    """Return the messages of a UI message without `parts`, of version 4 of the AI SDK; None for another form.

    Its calls are in `toolInvocations` and its files in `experimental_attachments`. The text is the end of its turn.
    """
    calls = _objects_in(members, "toolInvocations")
    files = _objects_in(members, "experimental_attachments")
    role = _ROLES.get(str(members.get("role")))
    if role is None or not (calls or files):
        return None
    turn = PartedTurn(is_user=role == "user")
    reasoning = as_text(members.get("reasoning"))
    if reasoning and role == "assistant":
        turn.add_part(ThinkingPart(text=reasoning))
    # A stable sort: calls of one step keep their order.
    for _, of_step in groupby(sorted(calls, key=_step_of), _step_of):
        turn.end_step()
        for call, where in of_step:
            _add_ui_call(turn, call, where)
    text = as_text(members.get("content"))
    if text:
        turn.add_block(block_of(text))
    for file, where in files:
        turn.add_block(_ui_file({"mediaType": file.get("contentType"), "filename": file.get("name"), **file}, where))
    return ReadMessages(messages=tuple(turn.finish()))


def _step_of(found: tuple[JsonObject, str]) -> int:
    """Return the number of the request to the model that made a call; the first is 0."""
    step = found[0].get("step")
    return step if isinstance(step, int) else 0


def _objects_in(members: JsonObject, name: str) -> list[tuple[JsonObject, str]]:
    """Return the entries of a list, each with its place for an error.

    Raises:
        UnknownForm: An entry is not an object.
    """
    found: list[tuple[JsonObject, str]] = []
    for place, entry in enumerate(as_sequence(members.get(name)) or ()):
        held = part_members(entry)
        where = f"'{name}[{place}]'"
        if held is None:
            raise UnknownForm(f"{where} is not an object.")
        found.append((held, where))
    return found


def _add_ui_part(turn: PartedTurn, members: JsonObject, where: str) -> None:
    kind = part_type(members)
    text = as_text(members.get("text"))
    if kind == "text" and text is not None:
        turn.add_block(block_of(text))
    elif kind == "reasoning":
        thought = text or text_or_empty(members.get("reasoning"))
        turn.add_part(ThinkingPart(text=thought))
    elif kind == "file":
        turn.add_block(_ui_file(members, where))
    elif kind == "tool-invocation":
        _add_ui_call(turn, object_or_empty(members.get("toolInvocation")), where)
    elif kind == "dynamic-tool":
        _add_ui_call(turn, members, where)
    elif kind.startswith("tool-"):
        _add_ui_call(turn, {"toolName": kind.removeprefix("tool-"), **members}, where)
    elif kind not in _NOT_SENT and not kind.startswith("data-"):
        raise UnknownForm(f"{where} is of the unknown type {kind!r}.")


def _ui_file(members: JsonObject, where: str) -> ContentBlock:
    mime_type = members.get("mediaType", members.get("mimeType"))
    url = as_text(members.get("url"))
    if url is None:
        return file_block(mime_type, members.get("data"), where)
    if url.startswith("data:") and str(mime_type).startswith("audio/"):
        return file_block(mime_type, url, where)
    if str(mime_type).startswith("image/"):
        return block_of({"type": "image_url", "image_url": {"url": url}})
    return block_of({"type": "file", "file": {"file_data": url, "filename": members.get("filename")}})


def _add_ui_call(turn: PartedTurn, members: JsonObject, where: str) -> None:
    """Add a call, and its result if it has ended."""
    state = text_or_empty(members.get("state"))
    # Its arguments are incomplete, and no API accepts a call without a result.
    if state in _UNFINISHED:
        return
    given = members.get("input", members.get("args"))
    named = {"id": members.get("toolCallId"), "name": members.get("toolName"), "input": given}
    call = call_of(named, "id", "input", within=where)
    turn.add_part(call)
    if state == "output-error":
        blocks: Iterable[ContentBlock] = blocks_of(as_text(members.get("errorText")) or "the tool failed")
        turn.add_outcome(outcome_of(call.id, call.name, tuple(blocks), is_error=True))
    elif state in ("output-available", "result"):
        value = members.get("output", members.get("result"))
        if not isinstance(value, str):
            value = json_text(value)
        turn.add_outcome(outcome_of(call.id, call.name, blocks_of(value), is_error=False))
