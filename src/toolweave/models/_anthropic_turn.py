"""Parser of one turn from the events of Anthropic's Messages API. Pure: takes API events, returns ours.

A block is known by its index while it is open. Servers that speak this API deviate: one index for all blocks, a block
that begins twice, a call's arguments at its beginning and in deltas, no end of the message after the stop reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from toolweave._json_types import Json, JsonObject, as_object, without_members
from toolweave.models._anthropic_messages import CONTAINER
from toolweave.models._base import (
    Finished,
    ModelEvent,
    StopReason,
    StreamedText,
    StreamedThinking,
    StreamedToolCall,
    ToolCallDelta,
    Usage,
)
from toolweave.models._history import CALL_ID
from toolweave.models._messages import (
    AssistantMessage,
    AssistantPart,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from toolweave.models._provider_errors import short
from toolweave.providers import WireTools
from toolweave.tools.arguments import fresh_id, json_text, read_arguments, wire_id

_CALL_MEMBERS = frozenset({"type", "id", "name", "input"})
_STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "pause_turn": "pause",
    "refusal": "refusal",
}


@dataclass(slots=True)
class _PartialBlock:
    """A content block that is still streaming: its start, and the deltas since."""

    raw: Json
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    signature: str = ""
    closed: bool = False
    begun_whole: bool = False


class TurnReader:
    """Reads the events of one turn.

    Args:
        tools: The tools of the request.
        provider: Marker of the parts that only this server understands.
        taken: The call ids of the conversation so far.

    Attributes:
        complete: Whether the end of the message has come.
    """

    def __init__(self, tools: WireTools, provider: str, *, taken: Collection[str] = ()) -> None:
        self.complete = False
        self._tools = tools
        self._provider = provider
        self._ids = set(taken)
        self._blocks: list[_PartialBlock] = []
        self._at: dict[int, _PartialBlock] = {}
        self._usage: dict[str, int] = {}
        self._stop_reason: str | None = None
        self._container: Json | None = None

    @property
    def ended(self) -> bool:
        """Whether the turn is whole: its stop reason, or the end of the message, has come."""
        return self.complete or self._stop_reason is not None

    def read(self, event: JsonObject) -> list[ModelEvent]:
        """Return our events for one event of the stream; none for an unknown type.

        Raises:
            ValueError: The event is malformed or comes out of order.
        """
        match event.get("type"):
            case "content_block_start":
                return self._start(_index(event, len(self._blocks)), _object(event, "content_block"))
            case "content_block_delta":
                return self._delta(self._block(event), _object(event, "delta"))
            case "content_block_stop":
                self._block(event).closed = True
            case "message_start":
                message = _object(event, "message")
                self._count(message.get("usage"))
                self._keep_container(message.get("container"))
            case "message_delta":
                delta = _object(event, "delta")
                self._end(delta.get("stop_reason"), event.get("usage"))
                self._keep_container(delta.get("container"))
            case "message_stop":
                self.complete = True
            case _:
                pass
        return []

    def read_message(self, message: JsonObject) -> list[ModelEvent]:
        """Return our events for an answer that was not streamed.

        Raises:
            ValueError: The answer is not a message.
        """
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list):
            raise ValueError("the answer is not a message: it has no list `content`")
        events: list[ModelEvent] = []
        for index, block in enumerate(cast("list[Any]", content)):
            if not isinstance(block, dict):
                raise ValueError(f"content {index} is not an object")
            events += self._start(index, cast("dict[str, Any]", block))
            self._at[index].closed = True
        self._end(message.get("stop_reason"), message.get("usage"))
        self._keep_container(message.get("container"))
        self.complete = True
        return events

    def finished(self) -> Finished:
        """Return the whole turn."""
        reason = self._reason()
        parts: list[AssistantPart] = []
        for block in self._blocks:
            part = self._part(block, reason)
            if part is not None:
                parts.append(part)
        if self._container is not None:
            parts.append(ProviderPart(provider=self._provider, raw={"type": CONTAINER, **self._container}))
        read = self._usage.get("cache_read_input_tokens", 0)
        written = self._usage.get("cache_creation_input_tokens", 0)
        usage = Usage(
            input_tokens=self._usage.get("input_tokens", 0) + read + written,
            output_tokens=self._usage.get("output_tokens", 0),
            cached_tokens=read,
            cache_written_tokens=written,
        )
        if reason == "other":
            detail = short(self._stop_reason or "")
        else:
            detail = None
        message = AssistantMessage(parts=tuple(parts))
        return Finished(message=message, usage=usage, stop_reason=reason, stop_detail=detail)

    def _reason(self) -> StopReason:
        if self._stop_reason is None:
            # The turn is complete, its server only does not say why.
            calls = any(block.raw.get("type") == "tool_use" for block in self._blocks)
            if calls:
                return "tool_calls"
            return "end"
        return _STOP_REASONS.get(self._stop_reason, "other")

    def _is_cut(self, block: _PartialBlock, reason: StopReason) -> bool:
        """Return whether a call may be incomplete: one that was not closed, or the last block at the token limit.

        https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
        """
        if reason == "max_tokens" and block is self._blocks[-1]:
            return True
        return reason in ("max_tokens", "other") and not block.closed

    def _keep_container(self, container: Any) -> None:
        if isinstance(container, dict) and cast("dict[str, Any]", container).get("id"):
            self._container = cast("dict[str, Any]", container)

    def _start(self, index: int, raw: Json) -> list[ModelEvent]:
        known = self._at.get(index)
        if known is not None and _begins_twice(known, raw):
            return []
        block = self._at[index] = _PartialBlock(raw=raw)
        self._blocks.append(block)
        match raw.get("type"):
            case "text":
                return _text_delta(block, _text(raw, "text"))
            case "thinking":
                block.signature = _text(raw, "signature")
                return _thinking_delta(block, _text(raw, "thinking"))
            case "tool_use":
                block.id, block.name = self._free_id(_text(raw, "id")), self._tools.call_name(_text(raw, "name"))
                events: list[ModelEvent] = [StreamedToolCall(id=block.id, name=block.name)]
                # Some servers write no deltas.
                whole = raw.get("input")
                if whole:
                    events += _arguments_delta(block, json_text(whole))
                    block.begun_whole = True
                return events
            case _:
                return []

    def _free_id(self, given: str) -> str:
        if not given or given in self._ids:
            # Some servers count from zero in every turn.
            given = fresh_id()
        self._ids.add(given)
        return given

    def _delta(self, block: _PartialBlock, delta: JsonObject) -> list[ModelEvent]:
        match delta.get("type"):
            case "text_delta":
                return _text_delta(block, _text(delta, "text"))
            case "thinking_delta":
                return _thinking_delta(block, _text(delta, "thinking"))
            case "signature_delta":
                block.signature += _text(delta, "signature")
            case "input_json_delta":
                text = _text(delta, "partial_json")
                # Some servers give the whole object in place of a piece of its text.
                whole = as_object(delta.get("partial_json"))
                is_again = block.begun_whole and text
                if whole is not None:
                    text = json_text(whole)
                    is_again = True
                if is_again:
                    block.pieces.clear()
                    block.begun_whole = False
                return _arguments_delta(block, text)
            case _:
                # Citations, and kinds that the API may add.
                pass
        return []

    def _block(self, event: JsonObject) -> _PartialBlock:
        last = next((index for index, block in self._at.items() if block is self._blocks[-1]), 0)
        index = _index(event, last)
        if index not in self._at:
            raise ValueError(f"a delta for content block {index}, which has not begun")
        return self._at[index]

    def _part(self, block: _PartialBlock, reason: StopReason) -> AssistantPart | None:
        raw = block.raw
        text = "".join(block.pieces)
        match raw.get("type"):
            case "text":
                if text:
                    return TextPart(text=text)
                return None
            case "thinking":
                kept = {**raw, "thinking": text}
                if block.signature:
                    kept["signature"] = block.signature
                return ThinkingPart(text=text, raw=kept, provider=self._provider)
            case "redacted_thinking":
                return ThinkingPart(text="", raw=raw, provider=self._provider)
            case "tool_use":
                return self._call(block, text, reason)
            case _:
                # A step of the provider's own tools.
                if text:
                    whole = {**raw, "input": read_arguments(text)[0]}
                else:
                    whole = raw
                return ProviderPart(provider=self._provider, raw=whole)

    def _call(self, block: _PartialBlock, text: str, reason: StopReason) -> ToolCallPart:
        arguments, malformed = read_arguments(text)
        added = without_members(block.raw, *_CALL_MEMBERS)
        given = _text(block.raw, "id")
        # The id by which this server knows the call. One that it gave to two calls of a turn cannot pair their results.
        if given not in ("", wire_id(block.id)):
            times = Counter(_text(one.raw, "id") for one in self._blocks)
            if times[given] == 1:
                added[CALL_ID] = given
        return ToolCallPart(
            id=block.id,
            name=block.name,
            arguments=self._tools.arguments(block.name, arguments),
            malformed=malformed,
            cut=self._is_cut(block, reason),
            extra=added,
            provider=self._provider if added else None,
        )

    def _end(self, stop_reason: Any, usage: Any) -> None:
        if isinstance(stop_reason, str):
            self._stop_reason = stop_reason
        self._count(usage)

    def _count(self, usage: Any) -> None:
        """Store the usage, which is that of the whole turn so far."""
        if isinstance(usage, dict):
            counts = cast("dict[str, Any]", usage)
            self._usage |= {name: count for name, count in counts.items() if isinstance(count, int)}


def _text_delta(block: _PartialBlock, text: str) -> list[ModelEvent]:
    block.pieces.append(text)
    if text:
        return [StreamedText(text=text)]
    return []


def _thinking_delta(block: _PartialBlock, text: str) -> list[ModelEvent]:
    block.pieces.append(text)
    if text:
        return [StreamedThinking(text=text)]
    return []


def _arguments_delta(block: _PartialBlock, text: str) -> list[ModelEvent]:
    block.pieces.append(text)
    if text and block.id:
        return [ToolCallDelta(id=block.id, arguments=text)]
    return []


def _begins_twice(block: _PartialBlock, raw: JsonObject) -> bool:
    """Return whether a block that begins is one that is open already, and not another one of the same index."""
    if block.closed:
        return False
    has_content = any(map(raw.get, ("text", "thinking", "input")))
    same = block.raw.get("type") == raw.get("type") and block.raw.get("id") == raw.get("id")
    return same and not has_content


def _index(event: JsonObject, missing: int) -> int:
    """Return the index of an event's content block; `missing` if a server leaves it out."""
    index = event.get("index", missing)
    if not isinstance(index, int):
        raise ValueError(f"an event {event.get('type')!r} without the index of its content block")
    return index


def _object(event: JsonObject, name: str) -> Json:
    value = event.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"an event {event.get('type')!r} without an object {name!r}")
    return cast("dict[str, Any]", value)


def _text(members: JsonObject, name: str) -> str:
    value = members.get(name)
    if isinstance(value, str):
        return value
    return ""
