"""Messages of LlamaIndex and Haystack, in the form that their `model_dump` and `to_dict` write. Pure.

A message of LlamaIndex has `blocks`, or one text and calls in `additional_kwargs`. A part of Haystack has one member,
which names its kind. `parted_messages.py` has the turn that both fill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolweave._json_types import JsonObject, as_text, object_or_empty, text_or_empty
from toolweave.agent._messages.content import UnknownForm, part_members, parts_of
from toolweave.agent._messages.forms import ReadMessages, by_role, call_of, listed_call, outcome_of
from toolweave.agent._messages.parted_messages import PartedTurn, file_block
from toolweave.models import ThinkingPart, ToolCallPart
from toolweave.protocol.content import ContentBlock, TextContent

_ROLES: Mapping[str, str] = {
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""Roles of both libraries, with the role that an agent has for them."""
_MEDIA: Mapping[str, tuple[str, str]] = {
    "image": ("image", "image_mimetype"),
    "audio": ("audio", "format"),
    "video": ("video", "video_mimetype"),
    "document": ("data", "document_mimetype"),
}
"""Blocks of LlamaIndex that are files, with the members of their data and of their media type."""
_FORMATS: Mapping[str, str] = {"mp3": "audio/mpeg", "m4a": "audio/mp4"}
"""Media types of sounds that are not `audio/` and the format."""


def read_framework(members: JsonObject) -> ReadMessages | None:
    """Return the messages of one entry in the form of LlamaIndex or Haystack; None for an entry of another form.

    Raises:
        UnknownForm: A part is of no known form, or the entry is a system message.
    """
    if _is_llama_index(members):
        return _llama_index(members)
    # Versions 2.9 to 2.11 of Haystack write the names of their private attributes.
    content = members.get("content", members.get("_content"))
    if isinstance(content, str) and "_content" not in members:
        return None
    parts = [object_or_empty(part_members(part)) for part in parts_of(content)]
    if "_content" in members or any(map(_is_haystack, parts)):
        return _haystack(members.get("role", members.get("_role")), parts)
    return None


def _role_of(role: object) -> str:
    """Return the role that an agent has for a role.

    Raises:
        UnknownForm: It is that of a system message, or not known.
    """
    known = _ROLES.get(str(getattr(role, "value", role)))
    if known is None:
        by_role("role", getattr(role, "value", role), {})
        raise UnknownForm(f"'role' is {role!r}.")
    return known


# LlamaIndex


def _is_llama_index(members: JsonObject) -> bool:
    if "type" in members or "role" not in members:
        # A message of LangChain has `additional_kwargs` as well, and a type.
        return False
    return isinstance(members.get("blocks"), (list, tuple)) or "additional_kwargs" in members


def _llama_index(members: JsonObject) -> ReadMessages:
    role = _role_of(members.get("role"))
    options = object_or_empty(members.get("additional_kwargs"))
    # Until version 0.12 a message has one text in place of blocks.
    given = members.get("blocks", [{"block_type": "text", "text": members.get("content")}])
    blocks = [object_or_empty(part_members(block)) for block in parts_of(given)]
    turn = PartedTurn(is_user=role != "assistant")
    if role == "tool":
        content: list[ContentBlock] = []
        for place, block in enumerate(blocks):
            content += _content(block, f"'blocks[{place}]'")
        key = text_or_empty(options.get("tool_call_id"))
        name = text_or_empty(options.get("name"))
        turn.add_outcome(outcome_of(key, name, tuple(content), is_error=False))
    else:
        _add_blocks(turn, blocks, parts_of(options.get("tool_calls")))
    return ReadMessages(messages=tuple(turn.finish()))


def _add_blocks(turn: PartedTurn, blocks: Sequence[JsonObject], calls: Sequence[object]) -> None:
    known: set[str] = set()
    for place, block in enumerate(blocks):
        where = f"'blocks[{place}]'"
        if block.get("block_type") == "tool_call":
            call = _call(block.get("tool_call_id"), block.get("tool_name"), block.get("tool_kwargs"), where)
            known.add(call.id)
            turn.add_part(call)
        elif block.get("block_type") == "thinking":
            # Its signature does not say which provider signed it, so the thought is sent to no provider.
            turn.add_part(ThinkingPart(text=text_or_empty(block.get("content"))))
        else:
            for one in _content(block, where):
                turn.add_block(one)
    # Packages for some APIs write each call twice: as a block, and where older versions look for it.
    for entry in calls:
        call = _listed_call(entry)
        if call.id not in known:
            turn.add_part(call)


def _listed_call(entry: object) -> ToolCallPart:
    """Return an entry of `additional_kwargs["tool_calls"]`: of the chat API, or a block of the Messages API."""
    members = object_or_empty(part_members(entry))
    if "input" in members:
        return _call(members.get("id"), members.get("name"), members.get("input"), "'tool_calls'")
    return listed_call(entry)


def _content(block: JsonObject, where: str) -> list[ContentBlock]:
    """Return the content of a block; none for a mark that caches the blocks before it, and for an empty text."""
    kind = text_or_empty(block.get("block_type"))
    match kind:
        case "text":
            text = text_or_empty(block.get("text"))
            return [TextContent(text=text)] if text else []
        case "cache":
            return []
        case "citation":
            return _content(object_or_empty(part_members(block.get("cited_content"))), where)
        case "citable":
            found: list[ContentBlock] = []
            for one in parts_of(block.get("content")):
                found += _content(object_or_empty(part_members(one)), where)
            return found
        case _ if kind in _MEDIA:
            return [_file(kind, block, where)]
        case _:
            raise UnknownForm(f"{where} has the block type {kind!r}, which is not a block of LlamaIndex.")


def _file(kind: str, block: JsonObject, where: str) -> ContentBlock:
    data_member, type_member = _MEDIA[kind]
    data = block.get(data_member)
    if isinstance(data, bytes):
        data = data.decode("ascii", "replace")  # which LlamaIndex keeps in base64
    url = str(block.get("url") or "")
    if data is None and url.startswith("data:"):
        data = url
    if data is None:
        raise UnknownForm(f"{where} is a file at a URL or a path. Send its data, which is a text in base64.")
    mime_type = as_text(block.get(type_member))
    if kind == "audio":
        form = mime_type or "wav"
        mime_type = _FORMATS.get(form, f"audio/{form}")
    elif mime_type is None:
        mime_type = data.removeprefix("data:").partition(";")[0] if data.startswith("data:") else "image/png"
    return file_block(mime_type, data, where, as_text(block.get("title")))


# Haystack


def _is_haystack(part: JsonObject) -> bool:
    if "base64_image" in object_or_empty(part.get("image")):
        return True
    return len(part) == 1 and not part.keys().isdisjoint(("tool_call", "tool_call_result", "reasoning", "file"))


def _haystack(role: object, parts: Sequence[JsonObject]) -> ReadMessages:
    turn = PartedTurn(is_user=_role_of(role) != "assistant")
    for place, part in enumerate(parts):
        _add_haystack_part(turn, part, f"'content[{place}]'")
    return ReadMessages(messages=tuple(turn.finish()))


def _add_haystack_part(turn: PartedTurn, part: JsonObject, where: str) -> None:
    kind = next(iter(part), "")
    held = object_or_empty(part.get(kind))
    match kind:
        case "tool_call":
            turn.add_part(_call(held.get("id"), held.get("tool_name"), held.get("arguments"), where))
        case "tool_call_result":
            origin = object_or_empty(held.get("origin"))
            call = _call(origin.get("id"), origin.get("tool_name"), {}, where)
            result = held.get("result")
            if isinstance(result, str):
                result = [{"text": result}]
            blocks = tuple(_haystack_block(object_or_empty(one), where) for one in parts_of(result))
            turn.add_outcome(outcome_of(call.id, call.name, blocks, is_error=held.get("error") is True))
        case "reasoning":
            turn.add_part(ThinkingPart(text=text_or_empty(held.get("reasoning_text"))))
        case _:
            turn.add_block(_haystack_block(part, where))


def _haystack_block(part: JsonObject, where: str) -> ContentBlock:
    kind = next(iter(part), "")
    held = object_or_empty(part.get(kind))
    match kind:
        case "text":
            return TextContent(text=text_or_empty(part.get("text")))
        case "image":
            return file_block(held.get("mime_type") or "image/png", held.get("base64_image"), where)
        case "file":
            return file_block(held.get("mime_type"), held.get("base64_data"), where, as_text(held.get("filename")))
        case _:
            raise UnknownForm(f"{where} has {kind!r}, which is not a part of a message of Haystack with its content.")


def _call(key: object, name: object, arguments: object, where: str) -> ToolCallPart:
    """Return a call; one without an id is paired with its result by the name of the tool."""
    return call_of({"id": key or "", "name": name, "input": arguments}, "id", "input", within=where)
