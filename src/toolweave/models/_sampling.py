"""A model that answers `sampling/createMessage`, for clients that cannot.

Knows the protocol's values, and no server and no client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from toolweave._json_types import (
    JsonObject,
    array_or_empty,
    as_object,
    object_entries,
    object_or_empty,
    text_or_empty,
)
from toolweave.models._base import Finished, Model, ModelRequest, ModelSettings, complete
from toolweave.models._messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.models._parse_model import model_from
from toolweave.protocol.client_requests import (
    STOPPED_AT_END,
    STOPPED_AT_TOKENS,
    STOPPED_FOR_TOOLS,
    SamplingMessage,
    SamplingResult,
    sampling_fields,
    sampling_stops,
)
from toolweave.protocol.content import ContentBlock, UnknownContent, content_block
from toolweave.tools import ToolResult, ToolSpec

_REASONS = {"end": STOPPED_AT_END, "tool_calls": STOPPED_FOR_TOOLS, "max_tokens": STOPPED_AT_TOKENS}


class SamplingModel:
    """Answers questions for a client's language model by a model of the server's; give it to `sampling=` of a server.

    Args:
        model: The model, or a string that names one; see `model_from`.
        max_tokens: The most tokens that one answer may have, whatever a handler asks for.
        always: Answer also for clients that have a model of their own.

    Raises:
        ConfigError: The string does not name a model, or its key or package is missing.
        ValueError: `max_tokens` is less than 1.
    """

    def __init__(self, model: Model | str, *, max_tokens: int = 4096, always: bool = False) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be 1 or more, not {max_tokens!r}")
        self.model: Model = model_from(model)
        self.max_tokens = max_tokens
        self.always = always

    async def answer(self, params: JsonObject) -> SamplingResult:
        """Return the answer to the parameters of `sampling/createMessage`.

        Raises:
            ModelError: The provider refused or could not be reached.
            ValueError: The parameters have no list of messages.
        """
        asked = sampling_fields(params)
        most = min(asked["max_tokens"] or self.max_tokens, self.max_tokens)
        settings = ModelSettings(max_tokens=most, temperature=asked["temperature"], stop=sampling_stops(params))
        tools = list(map(_tool, object_entries(params.get("tools"))))
        request = ModelRequest(
            messages=_messages(asked["messages"]),
            system=asked["system_prompt"],
            tools=tools,
            tool_choice=asked["tool_choice"] if tools else "auto",
            settings=settings,
        )
        return _result(await complete(self.model, request), self.model.name)

    def __repr__(self) -> str:
        return f"SamplingModel({self.model.name!r}, max_tokens={self.max_tokens})"


def _tool(definition: JsonObject) -> ToolSpec:
    schema = as_object(definition.get("inputSchema")) or {"type": "object", "properties": {}}
    description = text_or_empty(definition.get("description"))
    return ToolSpec(name=text_or_empty(definition.get("name")), description=description, input_schema=schema)


def _messages(asked: Sequence[SamplingMessage]) -> list[Message]:
    """Return the conversation as models have it: results of tools are a message of their own."""
    names: dict[str, str] = {}
    found: list[Message] = []
    for message in asked:
        if message.role == "assistant":
            parts = tuple(map(_part, message.content))
            names |= {part.id: part.name for part in parts if isinstance(part, ToolCallPart)}
            found.append(AssistantMessage(parts=parts))
            continue
        outcomes: list[ToolOutcome] = []
        content: list[ContentBlock] = []
        for block in message.content:
            if _is(block, "tool_result"):
                outcomes.append(_outcome(block, names))
            else:
                content.append(block)
        # The results first: they answer the calls of the turn before, and providers refuse other content between.
        if outcomes:
            found.append(ToolMessage(outcomes=tuple(outcomes)))
        if content:
            found.append(UserMessage(content=tuple(content)))
    return found


def _is(block: ContentBlock, kind: str) -> bool:
    return isinstance(block, UnknownContent) and block.type == kind


def _part(block: ContentBlock) -> TextPart | ToolCallPart:
    if isinstance(block, UnknownContent) and block.type == "tool_use":
        called = block.raw
        arguments = object_or_empty(called.get("input"))
        return ToolCallPart(
            id=text_or_empty(called.get("id")), name=text_or_empty(called.get("name")), arguments=arguments
        )
    return TextPart(text=block.render())


def _outcome(block: ContentBlock, names: Mapping[str, str]) -> ToolOutcome:
    raw = cast("UnknownContent", block).raw
    call = text_or_empty(raw.get("toolUseId"))
    content = tuple(map(content_block, array_or_empty(raw.get("content"))))
    result = ToolResult(content=content, structured_content=raw.get("structuredContent"))
    if raw.get("isError") is True:
        result = ToolResult.failure(result.text)
    return ToolOutcome(call_id=call, name=names.get(call, ""), result=result)


def _result(turn: Finished, model: str) -> SamplingResult:
    content: list[ContentBlock | JsonObject] = []
    for part in turn.message.parts:
        if isinstance(part, TextPart):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCallPart):
            content.append({"type": "tool_use", "id": part.id, "name": part.name, "input": dict(part.arguments)})
    reason = _REASONS.get(turn.stop_reason, turn.stop_detail or turn.stop_reason)
    return SamplingResult(content=content or "", model=turn.model or model, stop_reason=reason)
