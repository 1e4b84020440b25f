"""Messages of Bedrock's Converse and ModelMessages of the AI SDK, whose `content` is a list of parts. Pure.

A part of Converse has one member, which names its kind. A message of the AI SDK is recognized by a part that only it
has, because it shares `text` with the other forms. `parted_messages.py` has the turn that both fill.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolweave._json_types import JsonObject, as_object, as_sequence, as_text, object_or_empty, text_or_empty
from toolweave.agent._messages.content import UnknownForm, block_of, members_of, part_type, parts_of
from toolweave.agent._messages.forms import ReadMessages, call_of, outcome_of, text_of
from toolweave.agent._messages.parted_messages import PartedTurn, file_block
from toolweave.models import ThinkingPart
from toolweave.protocol.content import ContentBlock, EmbeddedResource, TextContent
from toolweave.tools.arguments import json_text

_ROLES = ("user", "assistant", "tool")
_CONVERSE = frozenset(
    {
        "text",
        "image",
        "document",
        "video",
        "audio",
        "toolUse",
        "toolResult",
        "reasoningContent",
        "guardContent",
        "citationsContent",
        "cachePoint",
        "json",
    }
)
"""Kinds of parts of Converse."""
_FORMATS: Mapping[str, str] = {
    "jpg": "image/jpeg",
    "pdf": "application/pdf",
    "csv": "text/csv",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
"""Media types of the formats of Converse that are not the second half of theirs."""
_APPROVALS = ("tool-approval-request", "tool-approval-response")
_TOOL_PARTS = ("tool-call", "tool-result", *_APPROVALS)
"""Types of parts that only a ModelMessage has."""


def read_content(members: JsonObject) -> ReadMessages | None:
    """Return the messages of one entry in the form of Converse or of the AI SDK; None for an entry of another form.

    Raises:
        UnknownForm: A part is of no known form.
    """
    role = members.get("role")
    content = as_sequence(members.get("content"))
    if role not in _ROLES or not content:
        return None
    parts = list(map(members_of, content))
    if all(map(_is_converse, parts)):
        add = _add_converse_part
    elif any(map(_is_model_part, parts)):
        add = _add_model_part
        # Approvals are the business of the program that asked for them: a result says what came of a call.
        parts = [part for part in parts if part_type(part) not in _APPROVALS]
    else:
        return None
    if not parts:
        return ReadMessages(messages=())
    turn = PartedTurn(is_user=role != "assistant")
    for place, part in enumerate(parts):
        add(turn, part, f"'content[{place}]'")
    return ReadMessages(messages=tuple(turn.finish()))


# Converse


def _is_converse(part: JsonObject) -> bool:
    return len(part) == 1 and next(iter(part)) in _CONVERSE


def _add_converse_part(turn: PartedTurn, part: JsonObject, where: str) -> None:
    kind, value = next(iter(part.items()))
    held = object_or_empty(value)
    if kind == "toolUse":
        named = {"id": held.get("toolUseId"), "name": held.get("name"), "input": held.get("input")}
        turn.add_part(call_of(named, "id", "input", within=where))
    elif kind == "toolResult":
        key = text_of(held, "toolUseId", where)
        blocks = tuple(_converse_block(one, where) for one in parts_of(held.get("content")))
        turn.add_outcome(outcome_of(key, "", blocks, is_error=held.get("status") == "error"))
    elif kind == "reasoningContent":
        # Its signature is of the model behind Bedrock, and is not sent to another API.
        turn.add_part(ThinkingPart(text=_inner_text(held.get("reasoningText"))))
    elif kind != "cachePoint":
        turn.add_block(_converse_block(part, where))


def _converse_block(part: object, where: str) -> ContentBlock:
    members = members_of(part)
    kind, value = next(iter(members.items()), ("", None))
    held = object_or_empty(value)
    match kind:
        case "text" if isinstance(value, str):
            return TextContent(text=value)
        case "json":
            return TextContent(text=json_text(value))
        case "guardContent":
            if held.get("text"):
                return _converse_block({"text": _inner_text(held["text"])}, where)
            return _converse_block(held, where)
        case "citationsContent":
            return TextContent(text="".join(map(_inner_text, parts_of(held.get("content")))))
        case "image" | "document" | "video" | "audio":
            return _converse_file(kind, held, where)
        case _:
            raise UnknownForm(f"{where} has {kind!r}, which is not a part of Bedrock's Converse with its content.")


def _inner_text(part: object) -> str:
    """Return the member `text` of an object, or an empty text."""
    return text_or_empty(object_or_empty(part).get("text"))


def _converse_file(kind: str, held: JsonObject, where: str) -> ContentBlock:
    source = object_or_empty(held.get("source"))
    name = as_text(held.get("name"))
    text = as_text(source.get("text"))
    if text is None and "content" in source:
        text = "\n\n".join(map(_inner_text, parts_of(source["content"])))
    if text is not None:
        return EmbeddedResource(uri=name or "", text=text, mime_type="text/plain")
    form = text_or_empty(held.get("format"))
    mime_type = _FORMATS.get(form, f"{kind}/{form}")
    return file_block(mime_type, source.get("bytes"), where, name)


# ModelMessages


def _is_model_part(part: JsonObject) -> bool:
    kind = part_type(part)
    if kind in _TOOL_PARTS or "mediaType" in part:
        return True
    return kind == "image" and "image" in part


def _add_model_part(turn: PartedTurn, part: JsonObject, where: str) -> None:
    match part_type(part):
        case "tool-call":
            given = part.get("input", part.get("args"))
            named = {"id": part.get("toolCallId"), "name": part.get("toolName"), "input": given}
            turn.add_part(call_of(named, "id", "input", within=where))
        case "tool-result":
            _add_model_result(turn, part, where)
        case "reasoning":
            turn.add_part(ThinkingPart(text=text_or_empty(part.get("text"))))
        case "image" | "file":
            turn.add_block(_model_file(part, where))
        case _:
            turn.add_block(block_of(part))


def _add_model_result(turn: PartedTurn, part: JsonObject, where: str) -> None:
    """Add a result; before version 5 of the AI SDK, its value is `result`, and `isError` marks an error."""
    key = text_of(part, "toolCallId", where)
    name = text_of(part, "toolName", where)
    output = as_object(part.get("output"))
    if output is None:
        blocks: tuple[ContentBlock, ...] = (_value(part.get("result")),)
        turn.add_outcome(outcome_of(key, name, blocks, is_error=part.get("isError") is True))
        return
    kind = text_or_empty(output.get("type"))
    value = output.get("value")
    match kind:
        case "text" | "json" | "error-text" | "error-json":
            blocks = (_value(value),)
        case "content":
            blocks = tuple(_output_block(members_of(one), where) for one in parts_of(value))
        case "execution-denied":
            blocks = (TextContent(text=as_text(output.get("reason")) or "the call was denied"),)
        case _:
            raise UnknownForm(f"'output' of {where} is of the unknown type {kind!r}.")
    turn.add_outcome(outcome_of(key, name, blocks, is_error=kind.startswith(("error-", "execution-"))))


def _output_block(part: JsonObject, where: str) -> ContentBlock:
    if "data" in part:
        return _model_file(part, where)
    return block_of(part, "output")


def _value(value: object) -> ContentBlock:
    if isinstance(value, str):
        return TextContent(text=value)
    return TextContent(text=json_text(value))


def _model_file(part: JsonObject, where: str) -> ContentBlock:
    data = part.get("image", part.get("data"))
    mime_type = part.get("mediaType", part.get("mimeType"))
    if mime_type is None and part_type(part) == "image":
        mime_type = "image/png"
    if text_or_empty(data).startswith(("http://", "https://")):
        raise UnknownForm(f"{where} is a file at a URL. Send its data, which is a text in base64.")
    return file_block(mime_type, data, where, as_text(part.get("filename")))
