"""Chat Completions: the request body, and the parser of a turn from response chunks. Pure; sends nothing.

Accepts the variants of Ollama, llama.cpp, vLLM, LM Studio and OpenRouter too: calls without an index, all with the same
index, or without an id; usage in a separate chunk; a stream without `[DONE]`. One that ends with `[DONE]` but without
a finish reason may have been cut off before: its stop reason is `"other"`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_object,
    finite_number,
    object_entries,
    object_or_empty,
    only_members,
    text_or_empty,
)
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
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolOutcome,
    UserMessage,
)
from toolweave.models._provider_errors import MALFORMED, short
from toolweave.providers import WireTools
from toolweave.providers._openai_content import chat_images, chat_parts, chat_text
from toolweave.tools.arguments import alphanumeric_id, json_text

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


def is_mistral(*names: str) -> bool:
    """Return whether a provider's or a model's name is Mistral's, whose API and templates are stricter."""
    return any(map(_MISTRAL.search, names))


def chat_messages(
    request: ModelRequest, wire: WireTools, provider: str, *, images: bool = True, mistral: bool = False
) -> list[Json]:
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
    out: list[Json] = []
    if request.system:
        out.append({"role": "system", "content": request.system})
    messages = pair_tool_calls(request.messages)
    # Thoughts are for the turns of one tool loop: before the last question they only cost tokens (DeepSeek, OpenAI).
    last_question = _last_question(messages)
    # Images of results wait for the next user message: this API has no place for them in the message of a tool.
    waiting: list[Json] = []
    for place, message in enumerate(messages):
        if isinstance(message, UserMessage):
            out.append({"role": "user", "content": _content(message, waiting)})
            waiting = []
        elif isinstance(message, AssistantMessage):
            if waiting:
                out.append({"role": "user", "content": waiting})
            out.append(_assistant(message, wire, provider, ids, thoughts=place > last_question))
            waiting = []
        else:
            out += [_result(one, ids) for one in message.outcomes]
            waiting = []
            if images:
                waiting = chat_images((one.name, one.result) for one in message.outcomes)
    if waiting:
        out.append({"role": "user", "content": waiting})
    if mistral:
        return _bridged(out)
    return out


def _last_question(messages: Sequence[Message]) -> int:
    """Return the place of the last message of a user; 0 without one."""
    for place in range(len(messages) - 1, 0, -1):
        if isinstance(messages[place], UserMessage):
            return place
    return 0


def _result(outcome: ToolOutcome, ids: WireIds) -> Json:
    return {"role": "tool", "tool_call_id": ids.wire(outcome.call_id), "content": chat_text(outcome.result)}


def _bridged(messages: Iterable[Json]) -> list[Json]:
    """Return the messages with one of the assistant between a tool's and a user's."""
    out: list[Json] = []
    for message in messages:
        if out and (out[-1]["role"], message["role"]) == ("tool", "user"):
            out.append({"role": "assistant", "content": "OK"})
        out.append(message)
    return out


def chat_usage(usage: object) -> Usage:
    """Return the tokens of a `usage` member."""
    members = object_or_empty(usage)
    cached = object_or_empty(members.get("prompt_tokens_details")).get("cached_tokens")
    cost = finite_number(members.get("cost"))
    return Usage(
        input_tokens=_count(members.get("prompt_tokens")),
        output_tokens=_count(members.get("completion_tokens")),
        cached_tokens=_count(cached),
        cost=None if cost is None else float(cost),
    )


def _content(message: UserMessage, before: Sequence[Json]) -> str | list[Json]:
    """Return the content of a user message: one string if all of it is text, which every server accepts."""
    parts = [*before, *chat_parts(message.content)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _arguments_text(call: ToolCallPart, wire: WireTools) -> str:
    return json_text(wire.wire_arguments(call.name, call.arguments))


def _call(call: ToolCallPart, wire: WireTools, provider: str, ids: WireIds) -> Json:
    function = {"name": wire.names.wire(call.name), "arguments": _arguments_text(call, wire)}
    own = {"id": ids.wire(call.id), "type": "function", "function": function}
    return added_members(call, provider) | own


def _assistant(message: AssistantMessage, wire: WireTools, provider: str, ids: WireIds, *, thoughts: bool) -> Json:
    out: Json = {"role": "assistant", "content": message.text or None}
    calls = [_call(call, wire, provider, ids) for call in message.tool_calls]
    if calls:
        out["tool_calls"] = calls
    # Null is accepted beside calls only: some servers refuse a message that has neither.
    elif out["content"] is None:
        out["content"] = ""
    for part in message.parts:
        if isinstance(part, ThinkingPart) and part.provider == provider:
            out |= _thought(part, message.text, thoughts=thoughts)
    return out


def _thought(part: ThinkingPart, text: str, *, thoughts: bool) -> Json:
    """Return the members that send a thought back; without `thoughts` only those that a provider verifies."""
    raw = part.raw or {}
    if not thoughts:
        return only_members(raw, (_DETAILS, _ADDED))
    made = only_members(raw, (*_THOUGHTS, _DETAILS, _ADDED))
    if INLINE in raw:
        made["content"] = raw[INLINE]
    if _CHUNKS in raw:
        made["content"] = _with_text(raw[_CHUNKS], text)
    return made


def _with_text(chunks: Iterable[Json], text: str) -> list[Json]:
    """Return the content of a message of Mistral, where thoughts and text are parts."""
    if text:
        return [*chunks, {"type": "text", "text": text}]
    return list(chunks)


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
        self._details: list[Json] = []
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

    def read(self, chunk: JsonObject) -> Iterator[ModelEvent]:
        """Yield the events of one chunk, or of a whole completion; of several choices the first counts."""
        choice = _first_choice(chunk.get("choices"))
        for usage in (object_or_empty(chunk.get("x_groq")).get("usage"), chunk.get("usage"), choice.get("usage")):
            if usage:
                self._usage = chat_usage(usage)
        delta = object_or_empty(choice.get("delta"))
        yield from self._read_delta(delta or object_or_empty(choice.get("message")), streamed=bool(delta))
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
        thought = self._thought()
        if thought is not None:
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
        # Without a finish reason the turn may have been cut off, so it is also "other".
        reason = _STOPS.get(self._stop.lower(), "other")
        # Local servers send "stop" for a turn that calls tools, and some the reverse: the calls themselves decide.
        if reason in ("end", "tool_calls"):
            return "tool_calls" if self._calls else "end"
        return reason

    def _thought(self) -> ThinkingPart | None:
        raw: Json = {}
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

    def _read_delta(self, delta: JsonObject, *, streamed: bool) -> Iterator[ModelEvent]:
        """Yield the events of a delta, or of the whole message of a server that does not stream."""
        for name in _THOUGHTS:
            thought = text_or_empty(delta.get(name))
            if thought:
                self._thoughts_member = name
                self._thoughts.append(thought)
                yield StreamedThinking(text=thought)
                # Servers that send both members send the same text in both.
                break
        self._read_details(array_or_empty(delta.get(_DETAILS)), streamed=streamed)
        if delta.get(_ADDED):
            self._added = delta[_ADDED]
        refused = delta.get("refusal")
        self._refused = self._refused or bool(refused)
        for said in (delta.get("content"), refused):
            yield from self._read_content(said)
        for number, piece in enumerate(_listed(delta.get("tool_calls"))):
            members = object_or_empty(piece)
            if not streamed:
                # in a whole message each entry is a call, whatever its index and id
                members = {**members, "index": number}
            yield from self._calls.read(members)
        legacy = as_object(delta.get("function_call"))
        if legacy is not None:
            # The form of calls before a turn could have several.
            yield from self._calls.read({"index": 0, "function": legacy})

    def _read_details(self, details: Iterable[Any], *, streamed: bool) -> None:
        """Collect thoughts in the form of OpenRouter, in which they have to be sent back.

        In a stream each block comes in fragments of one type and index, its signature alone in the last: the
        upstream verifies the signature of the whole block.
        """
        for detail in map(object_or_empty, details):
            begun = self._block_of(detail)
            if begun is None or not streamed:
                self._details.append(dict(detail))
                continue
            for name, value in detail.items():
                if name in _FRAGMENTS and isinstance(value, str) and isinstance(begun.get(name), str):
                    begun[name] += value
                elif value is not None:
                    begun[name] = value

    def _block_of(self, detail: JsonObject) -> Json | None:
        """Return the newest block that a fragment belongs to, or None for the first of a block."""
        for block in reversed(self._details):
            if _is_same_block(block, detail):
                return block
        return None

    def _read_content(self, content: Any) -> Iterator[ModelEvent]:
        """Process a text delta, or the parts that Mistral sends instead."""
        if isinstance(content, str) and content:
            self._text.append(content)
            yield StreamedText(text=content)
        for part in map(object_or_empty, _listed(content)):
            if part.get("type") == "text":
                yield from self._read_content(text_or_empty(part.get("text")))
            elif part.get("type") == "thinking":
                chunks = object_entries(part.get("thinking"))
                text = "".join(text_or_empty(chunk.get("text")) for chunk in chunks)
                self._thoughts.append(text)
                self._add_chunk(part, text)
                yield StreamedThinking(text=text)

    def _add_chunk(self, part: JsonObject, text: str) -> None:
        """Collect a thought in the form in which it has to be sent back: its deltas are joined."""
        if self._chunks:
            self._chunks[-1]["thinking"][0]["text"] += text
        else:
            self._chunks.append({**part, "thinking": [{"type": "text", "text": text}]})


def _listed(value: object) -> list[Any]:
    """Return a list, or a list of the one object in its place."""
    found = as_object(value)
    if found is None:
        return array_or_empty(value)
    return [found]


def _is_same_block(begun: JsonObject, detail: JsonObject) -> bool:
    """Return whether two fragments of `reasoning_details` are of one block."""
    if begun.get("type") != detail.get("type"):
        return False
    if begun.get("index") != detail.get("index"):
        return False
    known_id = begun.get("id")
    if known_id and detail.get("id", known_id) not in (None, "", known_id):
        return False
    # Blocks without an index follow one another, and a signature ends a block.
    return detail.get("index") is not None or not begun.get("signature")


def _first_choice(choices: Any) -> JsonObject:
    """Return the choice of index 0, which some servers leave out; a request asks for no second one."""
    for choice in map(object_or_empty, array_or_empty(choices)):
        if choice.get("index") in (0, None):
            return choice
    return {}


def _count(value: object) -> int:
    # Exactly `int`: a provider's `true` would count as one token.
    if type(value) is int and value >= 0:
        return value
    return 0
