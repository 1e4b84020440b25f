"""An offline model that follows commands: calls the named tools, and lists or searches tools. No I/O."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    StreamedText,
    StreamedToolCall,
    ToolCallDelta,
)
from toolweave.models._messages import AssistantMessage, TextPart, ToolCallPart, ToolMessage, ToolOutcome, UserMessage
from toolweave.models._prices import FREE
from toolweave.tools import ToolSnapshot, ToolSpec
from toolweave.tools._search import ToolIndex
from toolweave.tools.names import unknown_tool

_MOST = 10
"""Maximum number of tools that an answer names."""
_HELP = "`/call TOOL {JSON}` runs one, `/tools` lists all, any other text searches them; no model is asked."


class CommandModel:
    """Answers offline, by rule: `/call tool {json}` calls the tool, `/tools` lists them, other text searches them.

    After a tool call it answers with the result.
    """

    native_tool_search = True
    price = FREE

    @property
    def name(self) -> str:
        """`"command"`."""
        return "command"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the answer to the last message."""
        said = _answer(request)
        if isinstance(said, ToolCallPart):
            yield StreamedToolCall(id=said.id, name=said.name)
            yield ToolCallDelta(id=said.id, arguments=json.dumps(said.arguments, ensure_ascii=False))
            yield Finished(message=AssistantMessage(parts=(said,)), stop_reason="tool_calls")
            return
        yield StreamedText(text=said)
        yield Finished(message=AssistantMessage(parts=(TextPart(text=said),)))

    def __repr__(self) -> str:
        return "CommandModel()"


def _answer(request: ModelRequest) -> str | ToolCallPart:
    match request.messages[-1] if request.messages else None:
        case ToolMessage(outcomes=outcomes):
            return "\n".join(map(_spoken_outcome, outcomes))
        case UserMessage() as message:
            text = message.text.strip()
        case _:
            text = ""
    command, _, rest = text.partition(" ")
    if command == "/call":
        return _call(rest.strip(), request)
    if command == "/tools":
        return _listed(request.tools)
    if command == "/help":
        return _HELP
    if text.startswith("/"):
        return f"no command {command!r}. {_HELP}"
    return _found(text, request.tools)


def _spoken_outcome(outcome: ToolOutcome) -> str:
    result = outcome.result.for_model()
    if result.is_error:
        return f"{outcome.name} failed: {result.text}"
    if result.text.strip():
        return result.text
    return f"{outcome.name} is done; it returned no text."


def _call(rest: str, request: ModelRequest) -> str | ToolCallPart:
    name, _, written = rest.partition(" ")
    if not name:
        return f"which tool? {_HELP}"
    tool = next((one for one in request.tools if name == one.name or name in one.aliases), None)
    if tool is None:
        return unknown_tool(name, [one.name for one in request.tools])
    try:
        arguments: Any = json.loads(written.strip() or "{}")
    except ValueError as exc:
        return f"the arguments of {tool.name} are not JSON: {exc}. {_usage(tool)}"
    if not isinstance(arguments, dict):
        return f"the arguments of {tool.name} must be a JSON object. {_usage(tool)}"
    number = sum(len(one.tool_calls) for one in request.messages if isinstance(one, AssistantMessage)) + 1
    return ToolCallPart(id=f"command_{number}", name=tool.name, arguments=cast("dict[str, Any]", arguments))


def _usage(tool: ToolSpec) -> str:
    properties = tool.input_schema.get("properties")
    members = cast("Mapping[str, Any]", properties if isinstance(properties, Mapping) else {})
    needed = ", ".join(f'"{name}": ...' for name in members)
    return f"Write `/call {tool.name} {{{needed}}}`."


def _listed(tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return "there are no tools."
    return "\n".join(map(_line, tools))


def _found(text: str, tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return "there are no tools, and without a model nothing else can answer."
    found = [one.tool for one in ToolIndex(ToolSnapshot(tools)).search(text, limit=_MOST)]
    if not found:
        if text:
            return f"none of the {len(tools)} tools fits {text!r}. {_HELP}"
        return _HELP
    return "\n".join([*map(_line, found), _usage(found[0])])


def _line(tool: ToolSpec) -> str:
    first = tool.description.strip().partition("\n")[0]
    if first:
        return f"{tool.name}: {first}"
    return tool.name
