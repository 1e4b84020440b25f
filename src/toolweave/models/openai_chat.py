"""Chat Completions: a request's body, and a turn out of the chunks that come back. Pure; sends nothing.

Takes what OpenAI sends and what Ollama, llama.cpp, vLLM, LM Studio and OpenRouter send in its place: calls without an
index, all with the same one, or without an id; usage in a chunk of its own; a stream without `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from toolweave.models.base import (
    Finished,
    ModelEvent,
    ModelRequest,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from toolweave.models.history import paired
from toolweave.models.messages import AssistantMessage, AssistantPart, TextPart, ThinkingPart, ToolCallPart, UserMessage
from toolweave.tools.arguments import fresh_id, json_text, read_arguments, wire_id
from toolweave.tools.openai_forms import chat_parts, chat_text
from toolweave.tools.wire_tools import WireTool, WireTools

__all__ = ["ChatTurn", "chat_form", "chat_messages", "chat_usage"]

_STOPS: Mapping[str, StopReason] = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_THOUGHTS = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"


def chat_form(tool: WireTool) -> dict[str, Any]:
    """Return a tool's definition."""
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def chat_messages(request: ModelRequest, wire: WireTools, provider: str) -> list[dict[str, Any]]:
    """Return the conversation; `provider` is whose own parts of it go back."""
    out: list[dict[str, Any]] = []
    if request.system:
        out.append({"role": "system", "content": request.system})
    for message in paired(request.messages):
        if isinstance(message, UserMessage):
            out.append({"role": "user", "content": _content(message)})
        elif isinstance(message, AssistantMessage):
            out.append(_assistant(message, wire, provider))
        else:
            out += [
                {"role": "tool", "tool_call_id": wire_id(one.call_id), "content": chat_text(one.result)}
                for one in message.outcomes
            ]
    return out


def chat_usage(usage: Any) -> Usage:
    """Return the tokens of a `usage` member."""
    if not isinstance(usage, dict):
        return Usage()
    members = cast("dict[str, Any]", usage)
    details = members.get("prompt_tokens_details")
    cached = cast("dict[str, Any]", details).get("cached_tokens") if isinstance(details, dict) else 0
    cost = members.get("cost")
    return Usage(
        input_tokens=_count(members.get("prompt_tokens")),
        output_tokens=_count(members.get("completion_tokens")),
        cached_tokens=_count(cached),
        cost=float(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None,
    )


def _content(message: UserMessage) -> str | list[dict[str, Any]]:
    """Return what the user says: one text where all is text, which every server takes."""
    parts = chat_parts(message.content)
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _assistant(message: AssistantMessage, wire: WireTools, provider: str) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls = [
        {
            "id": wire_id(call.id),
            "type": "function",
            "function": {"name": wire.names.wire(call.name), "arguments": json_text(call.arguments)},
        }
        for call in message.tool_calls
    ]
    if calls:
        out["tool_calls"] = calls
    elif out["content"] is None:
        out["content"] = ""
    for part in message.parts:
        if isinstance(part, ThinkingPart) and part.raw is not None and part.provider == provider:
            out.update({name: value for name, value in part.raw.items() if name in (*_THOUGHTS, _DETAILS)})
    return out


@dataclass(slots=True)
class _Call:
    id: str
    given: str | None
    index: int | None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    told: bool = False

    def goes_on(self, given: str | None, index: int | None, name: str, text: str) -> bool:
        """Tell whether a piece that says the name again, as some servers do with each, is no call of its own."""
        same = self.given == given and (given is not None or index is not None)
        return (
            same
            and self.name == name
            and (not text or not self.is_whole() or (given is not None and self.is_whole(text)))
        )

    def is_whole(self, text: str | None = None) -> bool:
        """Tell whether the arguments are complete, and, with a text, whether they are that text."""
        joined = "".join(self.pieces)
        return bool(joined) and text in (None, joined) and read_arguments(joined)[1] is None


class ChatTurn:
    """One turn, out of its chunks.

    Attributes:
        complete: The turn has said why it ended.
    """

    def __init__(self, wire: WireTools, provider: str, *, taken: Collection[str] = ()) -> None:
        self.complete = False
        self._wire = wire
        self._provider = provider
        self._ids = set(taken)
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._thoughts_member = ""
        self._details: list[Any] = []
        self._calls: list[_Call] = []
        self._refused = False
        self._stop = ""
        self._usage = Usage()

    @property
    def empty(self) -> bool:
        """Nothing was said so far."""
        return not (self._text or self._calls or self._thoughts)

    def take(self, chunk: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield the events of one chunk, or of a whole completion."""
        if chunk.get("usage"):
            self._usage = chat_usage(chunk["usage"])
        choices = chunk.get("choices")
        choice = next(iter(cast("list[Any]", choices)), None) if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            return
        members = cast("dict[str, Any]", choice)
        delta = members.get("delta") or members.get("message")
        if isinstance(delta, dict):
            yield from self._take_delta(cast("dict[str, Any]", delta))
        if members.get("finish_reason"):
            self._stop, self.complete = str(members["finish_reason"]), True
        if members.get("usage"):
            self._usage = chat_usage(members["usage"])

    def finish(self) -> Iterator[ModelEvent]:
        """Yield what is left of the turn, `Finished` last."""
        for call in self._calls:  # a call whose name never came is the agent's to answer
            yield from self._tell(call)
        calls = tuple(self._part(call) for call in self._calls)
        parts: list[AssistantPart] = []
        thoughts = "".join(self._thoughts)
        if thoughts or self._details:
            raw = {_DETAILS: self._details} if self._details else {self._thoughts_member: thoughts}
            parts.append(ThinkingPart(text=thoughts, raw=raw, provider=self._provider))
        if self._text:
            parts.append(TextPart(text="".join(self._text)))
        yield Finished(
            message=AssistantMessage(parts=(*parts, *calls)), usage=self._usage, stop_reason=self._reason(bool(calls))
        )

    def _reason(self, calls: bool) -> StopReason:
        if self._refused:
            return "refusal"
        reason = _STOPS.get(self._stop, "other" if self._stop else "end")
        if calls and reason in ("end", "other"):
            return "tool_calls"  # local servers say "stop" of a turn that calls tools
        return "end" if reason == "tool_calls" and not calls else reason

    def _take_delta(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        thought = next((name for name in _THOUGHTS if isinstance(delta.get(name), str) and delta[name]), None)
        if thought is not None:
            self._thoughts_member = thought
            self._thoughts.append(delta[thought])
            yield ThinkingDelta(text=delta[thought])
        if isinstance(details := delta.get(_DETAILS), list):
            self._details += cast("list[Any]", details)
        refusal = delta.get("refusal")
        self._refused = self._refused or bool(refusal)
        for text in (delta.get("content"), refusal):
            if isinstance(text, str) and text:
                self._text.append(text)
                yield TextDelta(text=text)
        if isinstance(calls := delta.get("tool_calls"), list):
            for piece in cast("list[Any]", calls):
                if isinstance(piece, dict):
                    yield from self._take_call(cast("dict[str, Any]", piece))

    def _take_call(self, piece: Mapping[str, Any]) -> Iterator[ModelEvent]:
        function = piece.get("function")
        said = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
        name, arguments = said.get("name"), said.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json_text(arguments)
        call = self._call(piece, name if isinstance(name, str) else "", text)
        if not call.name and isinstance(name, str):
            call.name = name
        if call.name:
            yield from self._tell(call)
        if not text or (name and call.is_whole(text)):  # some servers tell the whole call once more at its end
            return
        call.pieces.append(text)
        if call.told:
            yield ToolCallDelta(id=call.id, arguments=text)

    def _call(self, piece: Mapping[str, Any], name: str, text: str) -> _Call:
        """Return the call that a piece belongs to."""
        given = piece.get("id")
        given = given if isinstance(given, str) and given else None
        index = piece.get("index") if isinstance(piece.get("index"), int) else None
        known = self._of(given, index)
        if known is None or (name and known.name and not known.goes_on(given, index, name, text)):
            known = _Call(id=self._free_id(given), given=given, index=index)
            self._calls.append(known)
        return known

    def _of(self, given: str | None, index: int | None) -> _Call | None:
        """Return the last call of this id and index, of this index, of this id, or the last one."""
        last = self._calls[::-1]
        of_index = [call for call in last if index is None or call.index == index]
        of_id = [call for call in of_index if given is not None and call.given == given]
        return next(iter(of_id or of_index), None)

    def _free_id(self, given: str | None) -> str:
        if given is None or given in self._ids:  # some servers count from zero in every turn
            given = fresh_id()
        self._ids.add(given)
        return given

    def _tell(self, call: _Call) -> Iterator[ModelEvent]:
        if call.told:
            return
        call.told = True
        yield ToolCallStarted(id=call.id, name=self._wire.call_name(call.name))
        if call.pieces:
            yield ToolCallDelta(id=call.id, arguments="".join(call.pieces))

    def _part(self, call: _Call) -> ToolCallPart:
        arguments, malformed = read_arguments("".join(call.pieces))
        name = self._wire.call_name(call.name)
        return ToolCallPart(id=call.id, name=name, arguments=self._wire.arguments(name, arguments), malformed=malformed)


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
