"""Chat Completions: the request body, and the parser of a turn from response chunks. Pure; sends nothing.

Accepts the variants of Ollama, llama.cpp, vLLM, LM Studio and OpenRouter too: calls without an index, all with the same
index, or without an id; usage in a chunk of its own; a stream without `[DONE]`. One that ends with `[DONE]` but without
a finish reason may have been cut off before: its stop reason is `"other"`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from toolweave.models._base import (
    Finished,
    ModelEvent,
    ModelRequest,
    StopReason,
    StreamedText,
    StreamedThinking,
    Usage,
)
from toolweave.models._chat_calls import StreamedCalls
from toolweave.models._history import WireIds, added_members, pair_tool_calls
from toolweave.models._inline_thoughts import INLINE
from toolweave.models._messages import (
    AssistantMessage,
    AssistantPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserMessage,
)
from toolweave.models._provider_errors import MALFORMED, short
from toolweave.tools._arguments import alphanumeric_id, json_text
from toolweave.tools._openai_content import chat_images, chat_parts, chat_text
from toolweave.tools._wire_tools import WireTools

_STOPS: Mapping[str, StopReason] = {
    "stop": "end",
    "eos": "end",
    "eos_token": "end",
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",  # Mistral
    "content_filter": "refusal",
    "safety": "refusal",
}
"""Stop reasons by finish reason, of OpenAI and of other servers, in lower case."""

_FAILURES = ("error", "insufficient_system_resource")
"""Finish reasons of a turn that its server aborted; the second one is DeepSeek's."""

_NO_REASON = "no finish reason"

_THOUGHTS = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"
_CHUNKS = "thinking"
_ADDED = "extra_content"
"""Member in which Gemini sends the signature of a thought."""
_FRAGMENTS = ("text", "summary", "data")
"""Members of `reasoning_details` that are joined; the others come whole."""
_MISTRAL = re.compile(r"(?:mi|min|magi|dev|code)stral|mixtral|pixtral|voxtral", re.IGNORECASE)
_MISTRAL_ID = 9

_NOTHING: Mapping[str, Any] = {}


def is_mistral(*names: str) -> bool:
    """Return whether a provider's or a model's name is Mistral's, whose API and templates are stricter."""
    return any(_MISTRAL.search(name) for name in names)


def chat_messages(
    request: ModelRequest, wire: WireTools, provider: str, *, images: bool = True, mistral: bool = False
) -> list[dict[str, Any]]:
    """Return the conversation.

    Args:
        request: The request.
        wire: Its tools.
        provider: Provider whose own parts of the conversation are sent back.
        images: Whether images of tools' results follow in a user message, the only place for them in this API.
        mistral: Whether it is Mistral's API, whose call ids are 9 letters and digits, and which refuses a user's
            message straight after a tool's ("Unexpected role 'user' after role 'tool'").
    """
    if mistral:
        ids = WireIds((), None, legal=lambda given: alphanumeric_id(given, _MISTRAL_ID))
    else:
        ids = WireIds(request.messages, provider)
    out: list[dict[str, Any]] = []
    if request.system:
        out.append({"role": "system", "content": request.system})
    messages = pair_tool_calls(request.messages)
    # thoughts are for the turns of one tool loop: before the last question they only cost tokens (DeepSeek, OpenAI)
    asked = max((at for at, one in enumerate(messages) if isinstance(one, UserMessage)), default=0)
    waiting: list[dict[str, Any]] = []
    for at, message in enumerate(messages):
        if isinstance(message, UserMessage):
            out.append({"role": "user", "content": _content(message, waiting)})
            waiting = []
        elif isinstance(message, AssistantMessage):
            out += [{"role": "user", "content": waiting}] if waiting else []
            out.append(_assistant(message, wire, provider, ids, thoughts=at > asked))
            waiting = []
        else:
            out += [
                {"role": "tool", "tool_call_id": ids.wire(one.call_id), "content": chat_text(one.result)}
                for one in message.outcomes
            ]
            if images:
                waiting = chat_images((one.name, one.result) for one in message.outcomes)
            else:
                waiting = []
    if waiting:
        out.append({"role": "user", "content": waiting})
    if mistral:
        return _bridged(out)
    return out


def _bridged(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with one of the assistant between a tool's and a user's."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if out and (out[-1]["role"], message["role"]) == ("tool", "user"):
            out.append({"role": "assistant", "content": "OK"})
        out.append(message)
    return out


def chat_usage(usage: Any) -> Usage:
    """Return the tokens of a `usage` member."""
    if not isinstance(usage, dict):
        return Usage()
    members = cast("dict[str, Any]", usage)
    details = members.get("prompt_tokens_details")
    if isinstance(details, dict):
        cached = cast("dict[str, Any]", details).get("cached_tokens")
    else:
        cached = 0
    cost = members.get("cost")
    return Usage(
        input_tokens=_count(members.get("prompt_tokens")),
        output_tokens=_count(members.get("completion_tokens")),
        cached_tokens=_count(cached),
        cost=float(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None,
    )


def _content(message: UserMessage, before: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the content of a user message: one string if all of it is text, which every server accepts."""
    parts = [*before, *chat_parts(message.content)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _arguments_text(call: ToolCallPart, wire: WireTools) -> str:
    return json_text(wire.wire_arguments(call.name, call.arguments))


def _assistant(
    message: AssistantMessage, wire: WireTools, provider: str, ids: WireIds, *, thoughts: bool
) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls = [
        {
            **added_members(call, provider),
            "id": ids.wire(call.id),
            "type": "function",
            "function": {"name": wire.names.wire(call.name), "arguments": _arguments_text(call, wire)},
        }
        for call in message.tool_calls
    ]
    if calls:
        out["tool_calls"] = calls
    elif out["content"] is None:
        out["content"] = ""
    for part in message.parts:
        if isinstance(part, ThinkingPart) and part.raw is not None and part.provider == provider:
            kept = (*(_THOUGHTS if thoughts else ()), _DETAILS, _ADDED)
            out.update({key: value for key, value in part.raw.items() if key in kept})
            if thoughts and INLINE in part.raw:
                out["content"] = part.raw[INLINE]
            if thoughts and _CHUNKS in part.raw:
                if message.text:
                    said = [{"type": "text", "text": message.text}]
                else:
                    said = []
                out["content"] = [*part.raw[_CHUNKS], *said]
    return out


class ChatTurn:
    """The parser of one turn from its chunks.

    Attributes:
        complete: Whether the finish reason has come.
        failure: The error body with which the server aborted the turn, or None.
    """

    def __init__(self, wire: WireTools, provider: str, *, taken: Collection[str] = ()) -> None:
        self.complete = False
        self.failure: Any = None
        self._wire = wire
        self._provider = provider
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._thoughts_member = ""
        self._details: list[dict[str, Any]] = []
        self._chunks: list[Any] = []
        self._added: Any = None
        self._calls = StreamedCalls(wire, provider, taken)
        self._refused = False
        self._stop = ""
        self._usage = Usage()

    @property
    def empty(self) -> bool:
        """Whether the turn has no content so far."""
        return not (self._text or self._calls or self._thoughts)

    def take(self, chunk: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield the events of one chunk, or of a whole completion; of several choices the first counts."""
        choice = _first_choice(chunk.get("choices"))
        for usage in (_members(chunk.get("x_groq")).get("usage"), chunk.get("usage"), choice.get("usage")):
            if usage:
                self._usage = chat_usage(usage)
        delta = _members(choice.get("delta"))
        yield from self._take_delta(delta or _members(choice.get("message")), streamed=bool(delta))
        if choice.get("finish_reason"):
            self._stop = str(choice["finish_reason"])
            self.complete = True
        if choice.get("error"):
            self.failure = {"error": choice["error"]}
        elif self._stop.lower() in _FAILURES:
            self.failure = {"error": {"type": "server_error", "message": f"the turn was broken off: {self._stop}"}}

    def finish(self) -> Iterator[ModelEvent]:
        """Yield the remaining events of the turn, `Finished` last."""
        yield from self._calls.announce()
        reason = self._reason()
        parts: list[AssistantPart] = []
        if (thought := self._thought()) is not None:
            parts.append(thought)
        if self._text:
            parts.append(TextPart(text="".join(self._text)))
        parts += self._calls.parts(reason)
        yield Finished(
            message=AssistantMessage(parts=tuple(parts)),
            usage=self._usage,
            stop_reason=reason,
            stop_detail=short(self._stop or _NO_REASON) if reason in ("other", "malformed_call") else None,
        )

    def _reason(self) -> StopReason:
        if self._refused:
            return "refusal"
        if MALFORMED.search(self._stop):
            return "malformed_call"
        reason = _STOPS.get(self._stop.lower(), "other")  # without a finish reason too: it may have been cut off
        if self._calls and reason == "end":
            return "tool_calls"  # local servers say "stop" of a turn that calls tools
        if reason == "tool_calls" and not self._calls:
            return "end"
        return reason

    def _thought(self) -> ThinkingPart | None:
        raw: dict[str, Any] = {}
        thoughts = "".join(self._thoughts)
        if self._details:
            raw[_DETAILS] = self._details
        elif self._chunks:
            raw[_CHUNKS] = self._chunks
        elif thoughts:
            raw[self._thoughts_member] = thoughts
        if self._added is not None:
            raw[_ADDED] = self._added
        if raw:
            return ThinkingPart(text=thoughts, raw=raw, provider=self._provider)
        return None

    def _take_delta(self, delta: Mapping[str, Any], *, streamed: bool) -> Iterator[ModelEvent]:
        thought = next((name for name in _THOUGHTS if isinstance(delta.get(name), str) and delta[name]), None)
        if thought is not None:
            self._thoughts_member = thought
            self._thoughts.append(delta[thought])
            yield StreamedThinking(text=delta[thought])
        self._take_details(_list(delta.get(_DETAILS)), streamed=streamed)
        if delta.get(_ADDED):
            self._added = delta[_ADDED]
        refused = delta.get("refusal")
        self._refused = self._refused or bool(refused)
        for said in (delta.get("content"), refused):
            yield from self._take_content(said)
        for number, piece in enumerate(_list(delta.get("tool_calls"))):
            # in a whole message each entry is a call, whatever its index and id
            yield from self._calls.take(_members(piece) if streamed else {**_members(piece), "index": number})
        if isinstance(legacy := delta.get("function_call"), dict):  # what calls were before there could be several
            yield from self._calls.take({"index": 0, "function": legacy})

    def _take_details(self, details: Iterable[Any], *, streamed: bool) -> None:
        """Collect thoughts in the form of OpenRouter, in which they have to be sent back.

        In a stream each block comes in fragments of one type and index, its signature alone in the last: the
        upstream verifies the signature of the whole block.
        """
        for detail in map(_members, details):
            begun = next((one for one in reversed(self._details) if _is_same_block(one, detail)), None)
            if begun is None or not streamed:
                self._details.append(dict(detail))
                continue
            for name, value in detail.items():
                if name in _FRAGMENTS and isinstance(value, str) and isinstance(begun.get(name), str):
                    begun[name] += value
                elif value is not None:
                    begun[name] = value

    def _take_content(self, content: Any) -> Iterator[ModelEvent]:
        """Process a text delta, or the parts that Mistral sends instead."""
        if isinstance(content, str) and content:
            self._text.append(content)
            yield StreamedText(text=content)
        for part in map(_members, _list(content)):
            if part.get("type") == "text":
                yield from self._take_content(str(part.get("text") or ""))
            elif part.get("type") == "thinking":
                text = "".join(str(_members(one).get("text") or "") for one in _list(part.get("thinking")))
                self._thoughts.append(text)
                self._take_chunk(part, text)
                yield StreamedThinking(text=text)

    def _take_chunk(self, part: Mapping[str, Any], text: str) -> None:
        """Collect a thought in the form in which it has to be sent back: its deltas are joined."""
        if self._chunks:
            self._chunks[-1]["thinking"][0]["text"] += text
        else:
            self._chunks.append({**part, "thinking": [{"type": "text", "text": text}]})


def _is_same_block(begun: Mapping[str, Any], detail: Mapping[str, Any]) -> bool:
    """Return whether two fragments of `reasoning_details` are of one block."""
    if begun.get("type") != detail.get("type") or begun.get("index") != detail.get("index"):
        return False
    ids = {one["id"] for one in (begun, detail) if one.get("id")}
    numbered = detail.get("index") is not None
    return len(ids) < 2 and (numbered or not begun.get("signature"))


def _first_choice(choices: Any) -> Mapping[str, Any]:
    """Return the choice of index 0, which some servers leave out; a request asks for no second one."""
    return next((one for one in map(_members, _list(choices)) if one.get("index") in (0, None)), _NOTHING)


def _members(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return _NOTHING


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return []


def _count(value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    return 0
