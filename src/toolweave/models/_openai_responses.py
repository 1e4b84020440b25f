"""Responses API: the input items of a request, and the parser of a turn from its events. Pure; sends nothing.

Nothing is stored at the provider: reasoning items come encrypted and are sent back unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    StopReason,
    StreamedText,
    StreamedThinking,
    StreamedToolCall,
    ToolCallDelta,
    Usage,
)
from toolweave.models._history import pair_tool_calls
from toolweave.models._messages import (
    AssistantMessage,
    AssistantPart,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserMessage,
)
from toolweave.models._provider_errors import short
from toolweave.tools._arguments import fresh_id, json_text, read_arguments, wire_id
from toolweave.tools._openai_content import responses_content, responses_parts
from toolweave.tools._wire_tools import WireTools

_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_INCOMPLETE: Mapping[str, StopReason] = {
    "content_filter": "refusal",
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
}
_CALL_MEMBERS = frozenset({"type", "id", "call_id", "name", "arguments", "status"})
_TEXT_MEMBERS = frozenset({"type", "id", "role", "content", "status"})


def responses_input(request: ModelRequest, wire: WireTools, provider: str) -> list[dict[str, Any]]:
    """Return the conversation as input items, with the own parts of `provider`."""
    out: list[dict[str, Any]] = []
    for message in pair_tool_calls(request.messages):
        if isinstance(message, UserMessage):
            out.append({"type": "message", "role": "user", "content": _content(message)})
        elif isinstance(message, AssistantMessage):
            out += _assistant(message, wire, provider)
        else:
            out += [
                {
                    "type": "function_call_output",
                    "call_id": wire_id(one.call_id),
                    "output": responses_content(one.result),
                }
                for one in message.outcomes
            ]
    return out


def responses_usage(usage: Any) -> Usage:
    """Return the tokens of a `usage` member."""
    if not isinstance(usage, dict):
        return Usage()
    members = cast("dict[str, Any]", usage)
    details = members.get("input_tokens_details")
    cached = cast("dict[str, Any]", details).get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(
        input_tokens=_count(members.get("input_tokens")),
        output_tokens=_count(members.get("output_tokens")),
        cached_tokens=_count(cached),
    )


def _content(message: UserMessage) -> list[dict[str, Any]]:
    return responses_parts(message.content) or [{"type": "input_text", "text": ""}]


def _assistant(message: AssistantMessage, wire: WireTools, provider: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case TextPart():
                if part.text:
                    out.append({**_added(part, provider), "type": "message", "role": "assistant", "content": part.text})
            case ToolCallPart():
                out.append(
                    {
                        **_added(part, provider),
                        "type": "function_call",
                        "call_id": wire_id(part.id),
                        "name": wire.names.wire(part.name),
                        "arguments": json_text(part.arguments),
                    }
                )
            case ThinkingPart():
                # nothing is stored there, so an item without its content would name an unknown one
                if part.provider == provider and part.raw is not None and part.raw.get("encrypted_content"):
                    out.append(dict(part.raw))
            case ProviderPart():
                if part.provider == provider:
                    out.append(dict(part.raw))
    return out


class ResponsesTurn:
    """The parser of one turn from its events.

    Attributes:
        complete: Whether the response has ended.
        failure: The error body that came in the stream, or None.
    """

    def __init__(self, wire: WireTools, provider: str, *, taken: Collection[str] = ()) -> None:
        self.complete = False
        self.failure: Any = None
        self._wire = wire
        self._provider = provider
        self._ids = set(taken)
        self._items: dict[int, Mapping[str, Any]] = {}
        self._calls: dict[int, str] = {}
        self._pieces: dict[int, list[str]] = {}
        self._response: Mapping[str, Any] = {}

    @property
    def empty(self) -> bool:
        """Whether no part of the response has come so far."""
        return not self._items

    def take(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield our events for one event of the stream, or for a whole response."""
        kind = event.get("type")
        index = _count(event.get("output_index"))
        delta = event.get("delta")
        if kind in _TEXTS and isinstance(delta, str) and delta:
            yield StreamedText(text=delta)
        elif kind in _THOUGHTS and isinstance(delta, str) and delta:
            yield StreamedThinking(text=delta)
        elif kind == "response.output_item.added":
            yield from self._begin(index, _members(event.get("item")))
        elif kind == "response.function_call_arguments.delta":
            if index in self._calls and isinstance(delta, str) and delta:
                self._pieces.setdefault(index, []).append(delta)
                yield ToolCallDelta(id=self._calls[index], arguments=delta)
        elif kind == "response.output_item.done":
            self._items[index] = _members(event.get("item"))
        elif kind == "error":
            self.failure = event
        elif kind in _ENDS:
            self._end(_members(event.get("response")))
        elif event.get("object") == "response":  # the whole of it, from a server that does not stream
            self._end(event)

    def finish(self) -> Iterator[ModelEvent]:
        """Yield the remaining events of the turn, `Finished` last."""
        parts: list[AssistantPart] = []
        refused = False
        for index, item in sorted(self._items.items()):
            if item.get("type") == "function_call":
                yield from self._begin(index, item)
                parts.append(self._call(index, item))
            elif item.get("type") == "message":
                refused = refused or any(_members(one).get("type") == "refusal" for one in _list(item.get("content")))
                parts.append(self._message(item))
            elif item.get("type") == "reasoning":
                text = "\n\n".join(_texts(item.get("summary"))) or "".join(_texts(item.get("content")))
                parts.append(ThinkingPart(text=text, raw=item, provider=self._provider))
            else:
                parts.append(ProviderPart(provider=self._provider, raw=item))
        yield Finished(
            message=AssistantMessage(parts=tuple(parts)),
            usage=responses_usage(self._response.get("usage")),
            stop_reason=(reason := self._reason(parts, refused)),
            stop_detail=short(self._why) if reason == "other" else None,
        )

    def _end(self, response: Mapping[str, Any]) -> None:
        self._response, self.complete = response, True
        if response.get("status") == "failed" or response.get("error"):
            self.failure = {"error": response.get("error")}
        output = _list(response.get("output"))
        if len(output) > len(self._items):  # a server that does not tell of every single item
            self._items = {index: _members(item) for index, item in enumerate(output)}

    def _reason(self, parts: list[AssistantPart], refused: bool) -> StopReason:
        if self._is_incomplete:
            return _INCOMPLETE.get(self._why, "other")
        if refused:
            return "refusal"
        return "tool_calls" if any(isinstance(part, ToolCallPart) for part in parts) else "end"

    @property
    def _is_incomplete(self) -> bool:
        return self._response.get("status") == "incomplete"

    @property
    def _why(self) -> str:
        return str(_members(self._response.get("incomplete_details")).get("reason") or "incomplete")

    def _message(self, item: Mapping[str, Any]) -> TextPart:
        added = {name: value for name, value in item.items() if name not in _TEXT_MEMBERS and value is not None}
        text = "".join(_texts(item.get("content")))
        return TextPart(text=text, extra=added, provider=self._provider if added else None)

    def _is_cut(self, index: int, item: Mapping[str, Any]) -> bool:
        """Return whether a call may be incomplete; if the server does not say so, only the last one can be."""
        status = item.get("status")
        if status == "incomplete":
            return True
        return self._is_incomplete and status != "completed" and index == max(self._items)

    def _begin(self, index: int, item: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if item.get("type") != "function_call" or index in self._calls:
            return
        given = item.get("call_id") or item.get("id")
        if not isinstance(given, str) or given in self._ids:
            given = fresh_id()
        self._ids.add(given)
        self._calls[index] = given
        yield StreamedToolCall(id=given, name=self._wire.call_name(str(item.get("name") or "")))

    def _call(self, index: int, item: Mapping[str, Any]) -> ToolCallPart:
        given = item.get("arguments") or "".join(self._pieces.get(index, []))
        arguments, malformed = read_arguments(given if isinstance(given, str) else json_text(given))
        name = self._wire.call_name(str(item.get("name") or ""))
        added = {key: value for key, value in item.items() if key not in _CALL_MEMBERS and value is not None}
        return ToolCallPart(
            id=self._calls[index],
            name=name,
            arguments=self._wire.arguments(name, arguments),
            malformed=malformed,
            cut=self._is_cut(index, item),
            extra=added,
            provider=self._provider if added else None,
        )


def _added(part: TextPart | ToolCallPart, provider: str) -> Mapping[str, Any]:
    return part.extra if part.provider == provider else {}


def _members(value: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _texts(value: Any) -> Iterator[str]:
    for one in _list(value):
        members = _members(one)
        text = members.get("text") or members.get("refusal")
        if isinstance(text, str):
            yield text


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
