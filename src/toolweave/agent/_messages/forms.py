"""Messages in the forms of other libraries and APIs, read as ours. Pure.

Reads the mappings of the chat API, the Messages API and the Responses API, and those of messages of LangChain and
Pydantic AI. An object of a library is converted to such a mapping first, so no library is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, cast

from toolweave._json_types import Json, JsonObject, as_object, as_sequence, as_text, text_or_empty
from toolweave.agent._messages.content import (
    UnknownForm,
    block_of,
    blocks_of,
    members_of,
    part_members,
    part_type,
    parts_of,
)
from toolweave.errors import ToolError
from toolweave.models import (
    AssistantMessage,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.models._anthropic_messages import PROVIDER as ANTHROPIC
from toolweave.models._messages import AssistantPart
from toolweave.models._pydantic_ai import PROVIDER as PYDANTIC_AI
from toolweave.models._pydantic_ai import additions_to_next
from toolweave.models._responses_items import texts
from toolweave.protocol.content import ContentBlock
from toolweave.tools import ToolResult
from toolweave.tools.arguments import json_text, read_arguments

_OPENAI = "openai"
_SYSTEM = ("system", "developer")
_LANGCHAIN_ROLES: Mapping[str, str] = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "tool": "tool",
    "ToolMessageChunk": "tool",
    "system": "system",
    "SystemMessageChunk": "system",
}
_OPENAI_STEPS = re.compile(r"(?!function_call)(?:\w+_call(?:_output)?|mcp_\w+)")
"""Types of output items of the Responses API that are steps of OpenAI's own tools."""
_ANTHROPIC_STEPS = re.compile(r"(?:server|mcp)_tool_use|\w+_tool_result")
"""Types of blocks of the Messages API that are steps of Anthropic's own tools."""
_SETTINGS = re.compile(r"instruction(?:-\w+)?|[\w-]+-delta")
"""Kinds of parts of Pydantic AI that record the settings of an agent, which are not a part of the conversation."""
_THOUGHT_MEMBERS = ("type", "thinking", "signature", "data")
_REASONING_MEMBERS = ("type", "id", "summary", "content", "encrypted_content")
FITTING = (
    "A message has the role 'user', 'assistant' or 'tool', or is an item of the Responses API, a content of Gemini, a "
    "message of Bedrock's Converse or of the AI SDK, or a message of LangChain, LlamaIndex, Haystack or Pydantic AI."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessages:
    """The messages that one entry of a history is.

    Attributes:
        messages: The messages, one for most entries.
        is_item: Whether the entry is an item of the Responses API, in which a turn of the model is several.
        continues: Whether such an item can only be a further part of the turn before it.
    """

    messages: tuple[Message, ...]
    is_item: bool = False
    continues: bool = False


def as_members(item: object) -> JsonObject | None:
    """Return the members of a message of another library; None for a value of another kind."""
    if isinstance(item, tuple):
        return _pair(cast("tuple[Any, ...]", item))
    members = part_members(item)
    if members is not None:
        return members
    if _is_pydantic_ai_message(item):
        return _dataclass_dump(type(item))(item)
    to_dict = getattr(item, "to_dict", None)
    if is_dataclass(item) and callable(to_dict):  # of Haystack
        return as_object(to_dict())
    role = getattr(item, "role", None)
    if isinstance(role, str) and hasattr(item, "content"):
        return {"role": role, "content": getattr(item, "content")}  # noqa: B009 - of any type
    return None


def _is_pydantic_ai_message(item: object) -> bool:
    if not is_dataclass(item) or not hasattr(item, "kind"):
        return False
    return isinstance(getattr(item, "parts", None), Sequence)


def _pair(item: tuple[Any, ...]) -> JsonObject | None:
    """Return the members of a role and its content, such as `("human", "hi")` of LangChain."""
    if len(item) != 2 or not isinstance(item[0], str):
        return None
    role, content = item
    return {"role": _LANGCHAIN_ROLES.get(role, role), "content": content}


def read_message(members: JsonObject) -> ReadMessages:
    """Return the messages of one entry of a history.

    Raises:
        UnknownForm: The entry is of no known form, or is a system message.
    """
    parts = as_sequence(members.get("parts"))
    if members.get("kind") in ("request", "response") and parts is not None:
        return ReadMessages(messages=_pydantic_ai_messages(parts))
    role = members.get("role")
    kind = members.get("type")
    if role is None and isinstance(kind, str):
        if kind in _LANGCHAIN_ROLES:
            return by_role("type", _LANGCHAIN_ROLES[kind], as_object(members.get("data")) or members)
        return _item(kind, members)
    found = by_role("role", role, members)
    return ReadMessages(messages=found.messages, is_item=kind == "message" and role == "assistant")


def spoken(role: str, blocks: tuple[ContentBlock, ...]) -> Message:
    """Return a message of blocks alone."""
    if role != "assistant":
        return UserMessage(content=blocks)
    return AssistantMessage(parts=tuple(TextPart(text=block.render()) for block in blocks))


def by_role(member: str, role: object, members: JsonObject) -> ReadMessages:
    match role:
        case "user":
            found = _user(members)
        case "assistant":
            found = (_assistant(members),)
        case "tool":
            found = (_tool(members),)
        case _ if role in _SYSTEM:
            raise UnknownForm(
                f"{member!r} is {role!r}. An agent accepts no system message in a history, because a history must not "
                "change its instructions: give the text to Agent(..., system=...) and leave this message out."
            )
        case _:
            raise UnknownForm(f"{member!r} is {role!r}. {FITTING}")
    return ReadMessages(messages=found)


def _user(members: JsonObject) -> tuple[Message, ...]:
    """Return a message of the user; results of tools, which the Messages API has in it, are a message of their own."""
    _require(members, "content")
    outcomes: list[ToolOutcome] = []
    blocks: list[ContentBlock] = []
    for part in parts_of(members["content"]):
        held = members_of(part)
        if part_type(held) == "tool_result":
            key = text_of(held, "tool_use_id", "a part of type 'tool_result'")
            failed = bool(held.get("is_error"))
            outcomes.append(outcome_of(key, "", blocks_of(held.get("content")), is_error=failed))
        else:
            blocks.append(block_of(part))
    if not outcomes:
        return (UserMessage(content=tuple(blocks)),)
    results = ToolMessage(outcomes=tuple(outcomes))
    if not blocks:
        return (results,)
    return (results, UserMessage(content=tuple(blocks)))


def _assistant(members: JsonObject) -> AssistantMessage:
    # An error and no guess: without an id, a result could be given to the wrong one of two calls.
    if members.get("function_call") is not None:
        raise UnknownForm("'function_call' has no id that its result could name. Calls are in 'tool_calls'.")
    calls = [*_listed_calls(members, "tool_calls"), *_listed_calls(members, "invalid_tool_calls")]
    if not calls and members.get("refusal") is None:
        _require(members, "content")
    parts = [_assistant_part(part) for part in parts_of(members.get("content")) if part != ""]
    refusal = as_text(members.get("refusal"))
    if refusal:
        parts.append(TextPart(text=refusal))
    # LangChain has a call in both places: as its provider wrote it, and in its own form.
    known = {part.id for part in parts if isinstance(part, ToolCallPart)}
    parts += [call for call in calls if call.id not in known]
    return AssistantMessage(parts=tuple(parts))


def _listed_calls(members: JsonObject, name: str) -> Sequence[ToolCallPart]:
    """Return the calls of a list beside the content."""
    listed = members.get(name)
    if not listed:
        return ()
    return list(map(listed_call, parts_of(listed)))


def _assistant_part(part: object) -> AssistantPart:
    members = members_of(part)
    match part_type(members):
        case "tool_use":
            return call_of(members, "id", "input")
        case "tool_call":
            return call_of(members, "id", "args")
        case "function_call":
            return call_of(members, "call_id", "arguments")
        case "thinking" | "redacted_thinking":
            return _thought(members)
        case "reasoning":
            return _reasoning(members)
        case kind if _ANTHROPIC_STEPS.fullmatch(kind):
            return ProviderPart(provider=ANTHROPIC, raw=dict(members))
        case kind if _OPENAI_STEPS.fullmatch(kind):
            return ProviderPart(provider=_OPENAI, raw=dict(members))
        case _:
            return TextPart(text=block_of(part).render())


def _thought(members: JsonObject) -> ThinkingPart:
    """Return a thought of the Messages API; without its signature it is sent to no provider."""
    text = "".join(texts(members.get("thinking")))
    if not members.get("signature") and not members.get("data"):
        return ThinkingPart(text=text)
    return ThinkingPart(text=text, raw=_only(members, _THOUGHT_MEMBERS), provider=ANTHROPIC)


def _reasoning(members: JsonObject) -> ThinkingPart:
    """Return a thought of the Responses API; without its encrypted content it is sent to no provider."""
    text = "\n\n".join(texts(members.get("summary")))
    if not text:
        text = "".join(texts(members.get("content")))
    if not text:
        text = text_or_empty(members.get("reasoning"))
    if not members.get("encrypted_content"):
        return ThinkingPart(text=text)
    return ThinkingPart(text=text, raw=_only(members, _REASONING_MEMBERS), provider=_OPENAI)


def _only(members: JsonObject, names: Iterable[str]) -> Json:
    """Return the members that an API accepts: libraries add others, such as an index."""
    return {name: members[name] for name in names if members.get(name) is not None}


def listed_call(call: object) -> ToolCallPart:
    """Return an entry of `tool_calls`, in the form of the chat API or of LangChain."""
    members = members_of(call)
    function = as_object(members.get("function"))
    if function is not None:
        return call_of({**function, "id": members.get("id")}, "id", "arguments", within="'tool_calls'")
    if "args" in members:
        return call_of(members, "id", "args", within="'tool_calls'")
    raise UnknownForm(
        "'tool_calls' has an entry that is not a call. A call is {'id': ..., 'function': {'name': ..., 'arguments': "
        "...}}, {'id': ..., 'name': ..., 'args': ...}, or a part of an AssistantMessage."
    )


def call_of(members: JsonObject, key: str, arguments: str, within: str | None = None) -> ToolCallPart:
    """Return a call; arguments that are not a JSON object are kept as the text that they are."""
    where = f"a part of type {part_type(members)!r}" if within is None else within
    call_id = text_of(members, key, where)
    name = text_of(members, "name", where)
    given = members.get(arguments)
    given_object = as_object(given)
    if given_object is not None:
        return ToolCallPart(id=call_id, name=name, arguments=dict(given_object))
    if given is not None and not isinstance(given, str):
        given = json_text(given)
    # Kept as text and not refused: a model may have written them so, and its history must stay what it was.
    read, malformed = read_arguments(text_or_empty(given))
    return ToolCallPart(id=call_id, name=name, arguments=read, malformed=malformed)


def _tool(members: JsonObject) -> ToolMessage:
    """Return the result of one call, in the form of the chat API or of LangChain."""
    key = text_of(members, "tool_call_id", "a message of a tool")
    _require(members, "content")
    name = text_or_empty(members.get("name"))
    failed = members.get("status") == "error"
    return ToolMessage(outcomes=(outcome_of(key, name, blocks_of(members["content"]), is_error=failed),))


def _item(kind: str, members: JsonObject) -> ReadMessages:
    """Return an item of the Responses API."""
    if kind == "function_call_output":
        key = text_of(members, "call_id", "an item of type 'function_call_output'")
        outcome = outcome_of(key, "", blocks_of(members.get("output"), "output"), is_error=False)
        return ReadMessages(messages=(ToolMessage(outcomes=(outcome,)),), is_item=True)
    is_turn = kind in ("function_call", "reasoning")
    if not is_turn and not _OPENAI_STEPS.fullmatch(kind):
        raise UnknownForm(f"'type' is {kind!r}. {FITTING}")
    part = _assistant_part(members)
    return ReadMessages(messages=(AssistantMessage(parts=(part,)),), is_item=True, continues=True)


def _pydantic_ai_messages(pydantic_ai_parts: Sequence[Any]) -> tuple[Message, ...]:
    """Return a request or a response of Pydantic AI, whose parts are of one or more messages of ours."""
    found: list[Message] = []
    for part in pydantic_ai_parts:
        members = members_of(part)
        if _SETTINGS.fullmatch(str(members.get("part_kind"))):
            continue
        message = _pydantic_ai_part(members)
        match (found[-1:], message):
            case ([ToolMessage(outcomes=outcomes)], ToolMessage()):
                found[-1] = ToolMessage(outcomes=(*outcomes, *message.outcomes))
            case ([AssistantMessage(parts=parts)], AssistantMessage()):
                found[-1] = AssistantMessage(parts=(*parts, *message.parts))
            case _:
                found.append(message)
    return tuple(found)


def _pydantic_ai_part(members: JsonObject) -> Message:
    content = members.get("content")
    match members.get("part_kind"):
        case "system-prompt":
            return by_role("part_kind", "system", members).messages[0]
        case "user-prompt":
            return UserMessage(content=blocks_of(content))
        case "tool-return":
            failed = members.get("outcome", "success") != "success"
            return _pydantic_ai_outcome(members, _returned(content), is_error=failed)
        case "retry-prompt" if members.get("tool_name"):
            return _pydantic_ai_outcome(members, blocks_of(_as_text(content)), is_error=True)
        case "retry-prompt" | "retry-feedback":
            return UserMessage.of(_as_text(content))
        case kind:
            return AssistantMessage(parts=_pydantic_ai_response_part(kind, members))


def _pydantic_ai_outcome(members: JsonObject, blocks: tuple[ContentBlock, ...], *, is_error: bool) -> ToolMessage:
    where = f"a part of kind {members.get('part_kind')!r}"
    key = text_of(members, "tool_call_id", where)
    name = text_of(members, "tool_name", where)
    return ToolMessage(outcomes=(outcome_of(key, name, blocks, is_error=is_error),))


def _pydantic_ai_response_part(kind: object, members: JsonObject) -> tuple[AssistantPart, ...]:
    content = text_or_empty(members.get("content"))
    match kind:
        case "text":
            return (*additions_to_next(members), TextPart(text=content))
        case "thinking":
            return (ThinkingPart(text=content, raw=dict(members), provider=PYDANTIC_AI),)
        case "tool-call":
            named = {**members, "name": members.get("tool_name")}
            call = call_of(named, "tool_call_id", "args", within="a part of kind 'tool-call'")
            return (*additions_to_next(members), call)
        case "builtin-tool-call" | "builtin-tool-return" | "file" | "compaction":
            return (ProviderPart(provider=PYDANTIC_AI, raw=dict(members)),)
        case _:
            raise UnknownForm(f"'parts' has a part whose 'part_kind' is {kind!r}. {FITTING}")


def _returned(content: object) -> tuple[ContentBlock, ...]:
    """Return the value that a tool of Pydantic AI returned."""
    if all(map(_is_text_or_binary, parts_of(content))):
        return blocks_of(content)
    return ToolResult.of_json(content).content


def _is_text_or_binary(part: object) -> bool:
    if isinstance(part, str):
        return True
    return members_of(part).get("kind") == "binary"


def _as_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return json_text(content)


def outcome_of(key: str, name: str, blocks: tuple[ContentBlock, ...], *, is_error: bool) -> ToolOutcome:
    result = ToolResult(content=blocks)
    if is_error:
        result = result.replace(is_error=True, error=ToolError(result.text))
    return ToolOutcome(call_id=key, name=name, result=result)


def text_of(members: JsonObject, name: str, where: str) -> str:
    """Return a member that names a call or a tool.

    Raises:
        UnknownForm: It is not a text.
    """
    value = members.get(name)
    if not isinstance(value, str):
        raise UnknownForm(f"{name!r} of {where} is {value!r}. It names the call or the tool, as a text.")
    return value


def _require(members: JsonObject, name: str) -> None:
    if members.get(name) is None:
        raise UnknownForm(f"{name!r} is missing. {FITTING}")


@cache
def _dataclass_dump(kind: type[Any]) -> Callable[[object], JsonObject]:
    """Return a function that converts dataclasses of a type of Pydantic AI to JSON values."""
    import pydantic

    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
    return lambda item: adapter.dump_python(item, mode="json", exclude_none=True)
