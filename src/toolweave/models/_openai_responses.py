"""Responses API: the input items of a request, and the parser of a turn from its events. Pure; sends nothing.

Nothing is stored at the provider: reasoning items come encrypted and are sent back unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    object_or_empty,
    text_or_empty,
    without_members,
    without_none,
)
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
from toolweave.models._history import CALL_ID, WireIds, added_members, pair_tool_calls
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
from toolweave.models._responses_items import StreamedItem, StreamedItems
from toolweave.providers import WireTools
from toolweave.providers._openai_content import responses_content, responses_parts
from toolweave.tools.arguments import fresh_id, json_text, read_arguments, wire_id

_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.done")
_INCOMPLETE: Mapping[str, StopReason] = {
    "content_filter": "refusal",
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
}
_CALL_MEMBERS = frozenset({"type", "id", "call_id", "name", "arguments", "status"})
_WHOLE = frozenset({"output", "output_text"})
"""The members that a response has, and no event."""
_TEXT_MEMBERS = frozenset({"type", "id", "role", "content", "status"})


def responses_input(request: ModelRequest, wire: WireTools, provider: str) -> list[Json]:
    """Return the conversation as input items, with the own parts of `provider`."""
    out: list[Json] = []
    ids = WireIds(request.messages, provider)
    for message in pair_tool_calls(request.messages):
        if isinstance(message, UserMessage):
            out.append({"type": "message", "role": "user", "content": _content(message)})
        elif isinstance(message, AssistantMessage):
            out += _assistant(message, wire, provider, ids)
        else:
            for one in message.outcomes:
                output = responses_content(one.result)
                out.append({"type": "function_call_output", "call_id": ids.wire(one.call_id), "output": output})
    return out


def responses_usage(usage: object) -> Usage:
    """Return the tokens of a `usage` member."""
    members = object_or_empty(usage)
    cached = object_or_empty(members.get("input_tokens_details")).get("cached_tokens")
    return Usage(
        input_tokens=_count(members.get("input_tokens")),
        output_tokens=_count(members.get("output_tokens")),
        cached_tokens=_count(cached),
    )


def _content(message: UserMessage) -> list[Json]:
    return responses_parts(message.content) or [{"type": "input_text", "text": ""}]


def _assistant(message: AssistantMessage, wire: WireTools, provider: str, ids: WireIds) -> list[Json]:
    out: list[Json] = []
    for part in message.parts:
        match part:
            case TextPart():
                if part.text:
                    out.append(
                        {**added_members(part, provider), "type": "message", "role": "assistant", "content": part.text}
                    )
            case ToolCallPart():
                out.append(
                    {
                        **added_members(part, provider),
                        "type": "function_call",
                        "call_id": ids.wire(part.id),
                        "name": wire.names.wire(part.name),
                        "arguments": json_text(wire.wire_arguments(part.name, part.arguments)),
                    }
                )
            case ThinkingPart():
                # The API stores nothing, so an item without its encrypted content would name an unknown one.
                raw = part.raw if part.provider == provider else None
                if raw is not None and raw.get("encrypted_content"):
                    out.append(dict(raw))
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
        self._items = StreamedItems()
        self._response: JsonObject = {}

    @property
    def empty(self) -> bool:
        """Whether no part of the response has come so far."""
        return not self._items

    def read(self, event: JsonObject) -> Iterator[ModelEvent]:
        """Yield our events for one event of the stream, or for a whole response."""
        kind = str(event.get("type") or "")
        name, _, step = kind.rpartition(".")
        if step == "delta":
            yield from self._read_piece(name, event)
        elif kind == "response.output_item.added":
            yield from self._announce(self._items.begin(event, done=False))
        elif kind == "response.output_item.done":
            self._items.begin(event, done=True)
        elif kind == "response.content_part.done":
            part = object_or_empty(event.get("part"))
            self._items.end_piece(f"response.{part.get('type')}", {**event, **part})
        elif kind == "error":
            self.failure = event
        elif kind in _ENDS:
            self._end(object_or_empty(event.get("response")))
        elif _is_whole(event, kind):
            # The whole of it, from a server that does not stream.
            self._end(event)
        elif step == "done":
            self._items.end_piece(name, event)

    def finish(self) -> Iterator[ModelEvent]:
        """Yield the remaining events of the turn, `Finished` last."""
        parts: list[AssistantPart] = []
        times = Counter(map(_given_id, self._items))
        for item in self._items:
            match item.kind:
                case "function_call":
                    yield from self._announce(item, at_end=True)
                    parts.append(self._call(item, unique=times[_given_id(item)] == 1))
                case "message":
                    parts.append(self._message(item))
                case "reasoning":
                    parts.append(ThinkingPart(text=item.thought, raw=item.raw, provider=self._provider))
                case _:
                    parts.append(ProviderPart(provider=self._provider, raw=item.raw))
        refused = any(item.kind == "message" and item.refused for item in self._items)
        reason = self._reason(parts, refused)
        yield Finished(
            message=AssistantMessage(parts=tuple(parts)),
            usage=responses_usage(self._response.get("usage")),
            stop_reason=reason,
            stop_detail=short(self._why) if reason == "other" else None,
        )

    def _read_piece(self, name: str, event: JsonObject) -> Iterator[ModelEvent]:
        item = self._items.add_piece(name, event)
        text = event.get("delta")
        if item is None or not text:
            return
        if item.kind == "function_call":
            if item.id:
                yield ToolCallDelta(id=item.id, arguments=text)
        else:
            yield StreamedText(text=text) if item.kind == "message" else StreamedThinking(text=text)

    def _end(self, response: JsonObject) -> None:
        self._response = response
        self.complete = True
        if response.get("status") == "failed" or response.get("error"):
            self.failure = {"error": response.get("error")}
        self._items.merge(array_or_empty(response.get("output")))
        text = text_or_empty(response.get("output_text"))
        if text:
            self._add_text(text)

    def _add_text(self, text: str) -> None:
        """Add the text of a response of which no item has come."""
        if not self._items:
            self._items.merge([{"type": "message", "content": text}])

    def _reason(self, parts: list[AssistantPart], refused: bool) -> StopReason:
        if self._is_incomplete:
            return _INCOMPLETE.get(self._why, "other")
        if refused:
            return "refusal"
        if not self.complete and any(not item.done for item in self._items):
            return "other"  # it may have been cut off
        if any(isinstance(part, ToolCallPart) for part in parts):
            return "tool_calls"
        return "end"

    @property
    def _is_incomplete(self) -> bool:
        return self._response.get("status") == "incomplete"

    @property
    def _why(self) -> str:
        if not self.complete:
            return "no end of the response"
        return str(object_or_empty(self._response.get("incomplete_details")).get("reason") or "incomplete")

    def _message(self, item: StreamedItem) -> TextPart:
        added = without_none(without_members(item.raw, *_TEXT_MEMBERS))
        return TextPart(text=item.text, extra=added, provider=self._provider if added else None)

    def _is_cut(self, item: StreamedItem) -> bool:
        """Return whether a call may be incomplete; if the server does not say so, only the last one can be.

        A call of which nothing but its beginning was reported is incomplete, too: its arguments are unknown.
        """
        status = item.raw.get("status")
        if status == "incomplete":
            return True
        if not item.is_reported:
            return True
        is_open = not self.complete and not item.done
        if is_open and read_arguments(item.arguments)[1] is not None:
            return True
        if status == "completed":
            return False
        return self._is_incomplete and item is self._items.last

    def _announce(self, item: StreamedItem, *, at_end: bool = False) -> Iterator[ModelEvent]:
        """Yield the beginning of a call, once; at the end of the turn also of one without a name."""
        if item.kind != "function_call" or item.id:
            return
        name = text_or_empty(item.raw.get("name"))
        # Without its name a call is not announced before the end: the name may come in a later event.
        if not name and not at_end:
            return
        given = _given_id(item)
        if given is not None and given not in self._ids:
            item.id = given
        else:
            item.id = fresh_id()
        self._ids.add(item.id)
        yield StreamedToolCall(id=item.id, name=self._wire.call_name(name))

    def _call(self, item: StreamedItem, *, unique: bool) -> ToolCallPart:
        given = item.raw.get("arguments")
        if given is None or isinstance(given, str):
            text = item.arguments
        else:
            text = json_text(given)
        arguments, malformed = read_arguments(text)
        name = self._wire.call_name(text_or_empty(item.raw.get("name")))
        extra: Json = without_none(without_members(item.raw, *_CALL_MEMBERS))
        given_id = _given_id(item)
        # The id by which this provider knows the call. One that it gave to two calls of a turn cannot pair their
        # results.
        if unique and given_id not in (None, wire_id(item.id)):
            extra[CALL_ID] = given_id
        return ToolCallPart(
            id=item.id,
            name=name,
            arguments=self._wire.arguments(name, arguments),
            malformed=malformed,
            cut=self._is_cut(item),
            extra=extra,
            provider=self._provider if extra else None,
        )


def _is_whole(event: JsonObject, kind: str) -> bool:
    """Return whether an event is a response that was not streamed."""
    if event.get("object") == "response":
        return True
    if kind:
        return False
    return not _WHOLE.isdisjoint(event)


def _given_id(item: StreamedItem) -> str | None:
    if item.kind != "function_call":
        return None
    return text_or_empty(item.raw.get("call_id") or item.raw.get("id")) or None


def _count(value: object) -> int:
    if type(value) is int and value >= 0:
        return value
    return 0
