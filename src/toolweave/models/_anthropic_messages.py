"""A conversation in the form of Anthropic's Messages API, in the order that it requires. Pure; sends nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from toolweave._json_types import Json, JsonObject, not_none
from toolweave.models._history import WireIds, added_members, pair_tool_calls
from toolweave.models._messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.providers import WireTools
from toolweave.providers._anthropic_content import anthropic_content, anthropic_parts, anthropic_text

PROVIDER = "anthropic"
"""Name of the provider, for its own tools; and marker of the parts of a conversation from its own API."""

CONTAINER = "container"
"""Type of the part that records the container of a turn's code execution."""


_EMPTY = "(empty message)"
_EARLIER = "(earlier messages are left out)"


def wire_messages(messages: Sequence[Message], tools: WireTools, provider: str = PROVIDER) -> list[Json]:
    """Return the conversation in the form that the API requires.

    Roles alternate and the user begins; the results of a turn's calls come first in the next user message; thoughts,
    call ids and steps of the own tools of `provider`, which is one server, are sent back to it unchanged. Those of
    other servers are omitted: they could not verify the signature of a thought.
    """
    out: list[Json] = []
    ids = WireIds(messages, provider)
    for message in pair_tool_calls(messages):
        match message:
            case UserMessage():
                _append(out, "user", anthropic_parts(message.content) or [anthropic_text(_EMPTY)])
            case ToolMessage():
                _append(out, "user", [_tool_result(outcome, ids) for outcome in message.outcomes])
            case AssistantMessage():
                blocks = [_part(part, tools, provider, ids) for part in message.parts]
                _append(out, "assistant", not_none(blocks))
    if out and out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": [anthropic_text(_EARLIER)]})
    return out


def tools_used(messages: Iterable[Json]) -> list[str]:
    """Return the wire names of the tools that a conversation in the API's form calls, each once, in order."""
    names: dict[str, None] = {}
    for message in messages:
        for block in message["content"]:
            if block["type"] == "tool_use":
                names[block["name"]] = None
    return list(names)


def container_id(messages: Iterable[Message], provider: str, *, now: float) -> str | None:
    """Return the container in which the code of the conversation ran last, unless it expired before `now`."""
    found: JsonObject = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            for part in message.parts:
                if isinstance(part, ProviderPart) and part.provider == provider and part.raw.get("type") == CONTAINER:
                    found = part.raw
    try:
        expires = datetime.fromisoformat(found["expires_at"]).timestamp()
    except (KeyError, TypeError, ValueError):
        expires = math.inf
    if expires > now:
        return found.get("id")
    return None


def _append(out: list[Json], role: str, blocks: list[Json]) -> None:
    if not blocks:
        # Such as an assistant's message of another provider's thoughts alone.
        return
    if out and out[-1]["role"] == role:
        out[-1]["content"] += blocks
    else:
        out.append({"role": role, "content": blocks})


def _part(part: AssistantPart, tools: WireTools, provider: str, ids: WireIds) -> Json | None:
    match part:
        case TextPart():
            if part.text.strip():
                return anthropic_text(part.text)
            return None
        case ToolCallPart():
            call = {"type": "tool_use", "id": ids.wire(part.id), "name": tools.names.wire(part.name)}
            return {**added_members(part, provider), **call, "input": tools.wire_arguments(part.name, part.arguments)}
        case ProviderPart(raw={"type": "container"}):
            # It goes beside the messages.
            return None
        case ThinkingPart() | ProviderPart():
            if part.raw is not None and part.provider == provider:
                return dict(part.raw)
            return None


def _tool_result(outcome: ToolOutcome, ids: WireIds) -> Json:
    wire: Json = {"type": "tool_result", "tool_use_id": ids.wire(outcome.call_id)}
    content = anthropic_content(outcome.result)
    if content:
        wire["content"] = content
    if outcome.result.is_error:
        wire["is_error"] = True
    return wire
