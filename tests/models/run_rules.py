"""The rules of provider streams about whole runs: the first answers of the endpoint, and the right end of the run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import Any, TypeAlias, cast

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.models import fake_anthropic, fake_openai
from tests.models.fake_openai import call, chat_chunk
from tests.models.http_server import Answer, error_answer, json_answer, stream_answer
from tests.models.stream_rules import (
    ARGUMENTS,
    PATH,
    START,
    added,
    argued,
    chat,
    chat_call,
    delta,
    finished,
    item,
    messages,
    responses,
    start,
    stop,
)

__all__ = ["RUNS", "Answers", "Ended", "RunRule", "answer_of"]

Answers: TypeAlias = Sequence[Answer | Callable[[], Answer]]
"""Answers of an endpoint; one with a time in it is made when it is sent."""


def answer_of(given: Answer | Callable[[], Answer]) -> Answer:
    """Return an answer to send now."""
    return given if isinstance(given, Answer) else given()


@dataclass(slots=True)
class Ended:
    """The end of an agent's run.

    Attributes:
        runs: The calls of its tools.
        text: Its answer, or "" if it failed.
        is_whole: Whether the library reports the answer as a whole one.
        value: Its structured answer, if one was requested.
        input_tokens: Number of input tokens that the library counted.
        bodies: The requests that the endpoint received.
        times: When each of them arrived, in seconds.
        elsewhere: The requests that the next endpoint of the conversation received.
    """

    runs: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    error: Exception | None = None
    text: str = ""
    is_whole: bool = True
    value: Any = None
    input_tokens: int = 0
    bodies: list[Any] = field(default_factory=list[Any])
    times: list[float] = field(default_factory=list[float])
    elsewhere: list[Any] = field(default_factory=list[Any])

    @property
    def is_done(self) -> bool:
        """Whether it ended with the text of the last answer."""
        return self.error is None and self.text == "done"


@dataclass(frozen=True)
class RunRule:
    """A rule about a whole run.

    Attributes:
        answers: Of each wire the first answers; after them a text, "done".
        right: Whether an end is as the rule says.
        retries: Whether the library may send requests again.
        is_structured: Whether an object with a number `n` is requested as the answer.
        moves: Whether the conversation continues at another endpoint.
        is_endless: Whether the last answer is given to every further request.
        is_slow: Whether it needs seconds.
    """

    answers: Mapping[Wire, Answers]
    right: Callable[[Ended], bool]
    retries: bool = False
    is_structured: bool = False
    moves: bool = False
    is_endless: bool = False
    is_slow: bool = False


def _one_call(end: Ended) -> bool:
    return end.is_done and end.runs == [("wipe", PATH)]


def _without_arguments(end: Ended) -> bool:
    return end.is_done and end.runs == [("wipe", {})]


def _nothing_run(end: Ended) -> bool:
    return not end.runs


def _told_and_done(end: Ended) -> bool:
    return end.is_done and not end.runs


def _is_not_whole(end: Ended) -> bool:
    return end.error is not None or not end.is_whole


def _fails_at_once(end: Ended) -> bool:
    return end.error is not None and len(end.bodies) == 1


def _answers(text: str) -> Callable[[Ended], bool]:
    return lambda end: end.error is None and end.text == text and len(end.bodies) == 1


def _is_value(end: Ended) -> bool:
    return end.error is None and end.value == 2 and len(end.bodies) == 1


def _waits(seconds: float) -> Callable[[Ended], bool]:
    return lambda end: end.is_done and end.times[-1] - end.times[0] >= seconds


def _went_back(*words: str) -> Callable[[Ended], bool]:
    def right(end: Ended) -> bool:
        sent = json.dumps(end.bodies[1:])
        return _one_call(end) and any(f'"{word}"' in sent for word in words)

    return right


def _stays_away(*words: str) -> Callable[[Ended], bool]:
    def right(end: Ended) -> bool:
        sent = json.dumps(end.elsewhere)
        return end.error is None and bool(end.elsewhere) and not any(word in sent for word in words)

    return right


def _members(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value."""
    within: Iterable[Any] = ()
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        yield held
        within = held.values()
    elif isinstance(value, list):
        within = cast("list[Any]", value)
    for one in within:
        yield from _members(one)


def _two_results(end: Ended) -> bool:
    """Return whether both calls ran, and the ids of their results differ."""
    keys: set[Any] = set()
    for one in _members(end.bodies[1:2]):
        keys.add(one.get("tool_call_id") or one.get("tool_use_id"))
        if one.get("type") == "function_call_output":
            keys.add(one.get("call_id"))
    return end.is_done and sorted(name for name, _ in end.runs) == ["get", "wipe"] and len(keys - {None}) == 2


def _thoughts_sent(end: Ended) -> list[tuple[str, str]]:
    """Return the text and the signature of each block of thought in the second request."""
    found: list[tuple[str, str]] = []
    for one in _members(end.bodies[1:2]):
        if one.get("type") == "reasoning.text":
            found.append((one.get("text", ""), one.get("signature", "")))
        elif one.get("type") == "thinking":
            found.append((one["thinking"], one.get("signature", "")))
    return found


def _on_all(answer: Callable[[Wire], Sequence[Answer]]) -> Mapping[Wire, Answers]:
    return {wire: answer(wire) for wire in WIRES}


def _as_sent(change: Callable[[bytes], Sequence[bytes]], text: str = "done") -> Mapping[Wire, Answers]:
    """Return an answer of a text on each wire, whose bytes are changed."""

    def changed(wire: Wire) -> Sequence[Answer]:
        answer = wires.says(wire, text)
        return [replace(answer, pieces=[new for one in answer.pieces if isinstance(one, bytes) for new in change(one)])]

    return _on_all(changed)


def _said(wire: Wire, text: str) -> Answer:
    """Return a turn of one text, in which each tag of a thought is a piece, as the tokens of models are."""
    pieces = [piece for piece in re.split("(</?think>)", text) if piece]
    if wire == "chat":
        return chat(*(chat_chunk({"content": piece}) for piece in pieces), finish="stop")
    if wire == "anthropic":
        deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
        events = [{"type": "content_block_delta", "index": 0, "delta": one} for one in deltas]
        opened = start(type="text", text="", id=None, name=None, input=None)
        return messages(opened, *events, stop(), stop_reason="end_turn")
    delta_of = {"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1", "content_index": 0}
    whole: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    message: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [whole],
    }
    events = [{**delta_of, "delta": piece} for piece in pieces]
    return responses(*events, finished(message), output=[message])


def _with_id(name: str) -> Mapping[Wire, Answers]:
    return {
        "chat": [chat(chat_call(0, name, "wipe", ARGUMENTS))],
        "anthropic": [messages(start(id=name), delta(ARGUMENTS), stop())],
        "responses": [responses(finished(item(call_id=name)))],
    }


def _cut(reasons: Mapping[Wire, str], arguments: str = "") -> Mapping[Wire, Answers]:
    """Return a call that was cut off, for a reason in the word of each API."""
    cut = wires.call_item("wipe", arguments, status="incomplete")
    return {
        "chat": [chat(chat_call(0, "c", "wipe", arguments), finish=reasons["chat"])],
        "anthropic": [messages(start(), *([delta(arguments)] if arguments else []), stop_reason=reasons["anthropic"])],
        "responses": [wires.responses(cut, incomplete=reasons["responses"])],
    }


def _ends_for(reasons: Mapping[Wire, str]) -> Mapping[Wire, Answers]:
    return {wire: [wires.says(wire, "half an ans", reason)] for wire, reason in reasons.items()}


def _then(then: Any, **more: Any) -> Mapping[Wire, Answers]:
    """Return a whole turn on each wire, and what follows it."""
    return _on_all(lambda wire: [replace(wires.says(wire, "done"), then=then, **more)])


def _unended(then: Any, ping: bytes) -> Mapping[Wire, Answers]:
    """Return a turn that has its stop reason and not its last event, which only Responses needs."""
    whole = _then(then, ping=ping)
    made: dict[Wire, Answers] = {}
    for wire, (answer,) in whole.items():
        assert isinstance(answer, Answer)
        made[wire] = [answer if wire == "responses" else replace(answer, pieces=answer.pieces[:-1])]
    return made


def _busy_until_a_date() -> Answer:
    until = formatdate(time.time() + 3, usegmt=True)
    return error_answer(429, {"error": {"message": "slow down"}}, retry_after=until)


def _unescaped(piece: bytes) -> bytes:
    """Return an event with its characters themselves in place of their escapes in JSON."""
    before, mark, data = piece.partition(b"data: ")
    if not data.startswith(b"{"):
        return piece
    return before + mark + json.dumps(json.loads(data), ensure_ascii=False).encode() + b"\n\n"


TEXT = "\u00e9\u6f22\U0001f600"
TOKENS: Mapping[Wire, str] = {"chat": "length", "anthropic": "max_tokens", "responses": "max_output_tokens"}
UNKNOWN: Mapping[Wire, str] = dict.fromkeys(WIRES, "something_new")
FILTERED: Mapping[Wire, str] = {"chat": "content_filter", "anthropic": "refusal", "responses": "content_filter"}
PAUSE = 2.0
"""Seconds."""
CUT = '{"path":"a"'
REASONED: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"}
UNREADABLE = {"error": {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<x>"}}
NESTED = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": '{"message": "one image"}'}}}
THOUGHT = "<think>hm</think>done"
LATER: Any = {"tool_calls": [{"index": 0, "function": {"name": "wipe", "arguments": ':"a"}'}}]}
NAMELESS: Any = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"arguments": '{"path"'}}]}
HALF = chat_chunk({"content": "half an ans"})
LOST = chat_chunk({"content": ""}, "error", error={"code": 502, "message": "Provider disconnected"})
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
FAILED = {"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error"}}}
MALFORMED = "function_call_filter: MALFORMED_FUNCTION_CALL"
SIGNED = {"google": {"thought_signature": "SIGNED-CALL"}}
EXTENDED: Any = {"tool_calls": [{**call(0, "c", "wipe", ARGUMENTS)["tool_calls"][0], "extra_content": SIGNED}]}
CALLER = {"type": "code_execution_20250825", "tool_id": "SIGNED-CALL"}
HTML = b"<html><body>no</body></html>"
QUOTA = {
    "error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
}
BILLING = {"type": "error", "error": {"type": "billing_error", "message": "Your credit balance is too low"}}
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}
GOOGLE = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota.", "details": [RETRY_INFO]}}
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "done"}]
GROQ = {"usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}}
FENCED = '```json\n{"n": 2}\n```'
DRAFT = 'try ```json\n{"n": 1}\n``` no, maybe {"n": 3}?'
REFUSED_TOOL: Mapping[Wire, Answer] = {
    "chat": json_answer(
        {"error": {"message": "Invalid schema for function 'get'.", "param": "tools[1].function.parameters"}},
        status=400,
    ),
    "anthropic": json_answer(
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "tools.1.custom.input_schema.properties: Property keys should match pattern",
            },
        },
        status=400,
    ),
    "responses": json_answer({"error": {"message": "Invalid schema.", "param": "tools[1].parameters"}}, status=400),
}


def _thinks(text: str, signature: str | None = "SIG", index: int = 0) -> list[dict[str, Any]]:
    """Return the events of a thought of Messages, in two pieces."""
    half = len(text) // 2
    pieces: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": one} for one in (text[:half], text[half:])]
    if signature is not None:
        pieces.append({"type": "signature_delta", "signature": signature})
    return [
        start(index, type="thinking", id=None, name=None, input=None, thinking="", signature=""),
        *({"type": "content_block_delta", "index": index, "delta": one} for one in pieces),
        stop(index),
    ]


def _paused(answer: Answer) -> Answer:
    """Return an answer with a pause in its middle."""
    half = len(answer.pieces) // 2
    return replace(answer, pieces=[*answer.pieces[:half], PAUSE, *answer.pieces[half:]])


def _details(index: int = 0, **members: Any) -> Any:
    """Return a chunk with a fragment of a thought in OpenRouter's form."""
    detail = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": index, **members}
    return chat_chunk({"reasoning_details": [detail]})


CALLS: Mapping[str, RunRule] = {
    "arguments that are not JSON run nothing, and the model reads an error": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "wipe", '{"path": a}')]), _told_and_done
    ),
    "arguments that are a list run nothing, and the model reads an error": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "wipe", '["a"]')]), _told_and_done
    ),
    "a call cut off by the bound on tokens runs nothing": RunRule(_cut(TOKENS, CUT), _nothing_run),
    "a call cut off before its arguments runs nothing": RunRule(_cut(TOKENS), _nothing_run),
    "a call cut off for an unknown reason runs nothing": RunRule(_cut(UNKNOWN), _nothing_run),
    "a call in a filtered turn runs nothing": RunRule(_cut(FILTERED, ARGUMENTS), _nothing_run),
    "calls that are cut off again and again end the run": RunRule(
        _cut(TOKENS, CUT), lambda end: not end.runs and len(end.bodies) <= 5, is_endless=True
    ),
    "a whole call before one that was cut off runs": RunRule(
        {
            "chat": [chat(chat_call(0, "c", "wipe", ARGUMENTS), chat_call(1, "d", "get", CUT), finish="length")],
            "anthropic": [
                messages(
                    *(start(), delta(ARGUMENTS), stop(), start(1, id="d", name="get"), delta(CUT, 1)),
                    stop_reason="max_tokens",
                )
            ],
            "responses": [
                wires.responses(
                    wires.call_item("wipe", ARGUMENTS),
                    wires.call_item("get", CUT, id="fc_2", call_id="call_2", status="incomplete"),
                    incomplete="max_output_tokens",
                )
            ],
        },
        _one_call,
    ),
    "a tool that is not there is an answer to the model": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "gone")]), _told_and_done
    ),
    "null in place of arguments means no arguments": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "wipe", "null")]), _without_arguments
    ),
    "an empty text in place of arguments means no arguments": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "wipe", "")]), _without_arguments
    ),
    "a blank text in place of arguments means no arguments": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "wipe", "  ")]), _without_arguments
    ),
    "a call without a member for arguments has none": RunRule(
        {
            "chat": [chat(chat_call(0, "c", "wipe", None))],
            "anthropic": [messages(start(input=None), stop())],
            "responses": [responses(finished(item(None)))],
        },
        _without_arguments,
    ),
    "two calls of one id run, and their results are told apart": RunRule(
        {
            "chat": [chat(chat_call(0, "c", "wipe", ARGUMENTS), chat_call(1, "c", "get", ARGUMENTS))],
            "anthropic": [
                messages(*(start(), delta(ARGUMENTS), stop(), start(1, name="get"), delta(ARGUMENTS, 1), stop(1)))
            ],
            "responses": [responses(finished(item()), finished(item(name="get", id="fc_2"), 1))],
        },
        _two_results,
    ),
    "the id of a call goes back as it came": RunRule(_with_id("functions.wipe:0"), _went_back("functions.wipe:0")),
    "a long id of a call goes back as it came": RunRule(
        _with_id(f"chatcmpl-tool-{'0' * 32}"), _went_back(f"chatcmpl-tool-{'0' * 32}")
    ),
    "an id with an unusual character goes back as it came": RunRule(_with_id("call|1"), _went_back("call|1")),
    "a member that the provider adds to a call goes back with it": RunRule(
        {
            "chat": [chat(chat_chunk(EXTENDED))],
            "anthropic": [messages(start(caller=CALLER), delta(ARGUMENTS), stop())],
            "responses": [responses(finished(item(namespace="SIGNED-CALL")))],
        },
        _went_back("SIGNED-CALL"),
    ),
    "a call that the provider could not read is asked for again": RunRule(
        _on_all(lambda wire: [json_answer(UNREADABLE, status=400), wires.calls(wire, "wipe", ARGUMENTS)]),
        _one_call,
        retries=True,
    ),
    "a call that the provider reports within the stream as unreadable is asked for again": RunRule(
        {
            "chat": [chat(UNREADABLE, finish=None), wires.calls("chat", "wipe", ARGUMENTS)],
            "responses": [
                stream_answer([{"type": "response.failed", "response": {"status": "failed", **UNREADABLE}}]),
                wires.calls("responses", "wipe", ARGUMENTS),
            ],
        },
        _one_call,
        retries=True,
    ),
    "a turn that ends for a malformed call is asked for again": RunRule(
        {"chat": [wires.says("chat", "", MALFORMED), wires.calls("chat", "wipe", ARGUMENTS)]}, _one_call
    ),
    "a tool that the API refuses costs no other tool": RunRule(
        _on_all(lambda wire: [REFUSED_TOOL[wire], wires.calls(wire, "wipe", ARGUMENTS)]), _one_call
    ),
    "a connection lost within a call runs nothing": RunRule(
        {
            "chat": [stream_answer([chat_call(0, "c", "wipe", CUT)], "drop")],
            "anthropic": [wires.streamed([*START, start(), delta(CUT)], "drop")],
            "responses": [stream_answer([added(item()), argued(CUT)], "drop")],
        },
        _nothing_run,
    ),
}
"""Rules about calls."""

THOUGHTS: Mapping[str, RunRule] = {
    "a thought goes back with its signature": RunRule(
        {
            "chat": [chat(_details(text="hm"), _details(signature="SIG"), chat_call(0, "c", "wipe", ARGUMENTS))],
            "anthropic": [
                fake_anthropic.turn(
                    fake_anthropic.thought("hm"), fake_anthropic.call("c", "wipe", PATH), stop="tool_use"
                )
            ],
            "responses": [fake_openai.responses_turn(REASONED, wires.call_item("wipe", ARGUMENTS))],
        },
        _went_back("SIG", "SEALED", "rs_1", str(fake_anthropic.thought("hm").get("signature"))),
    ),
    "a thought without a signature goes back between the calls of a turn": RunRule(
        {"chat": [chat(chat_chunk({"reasoning_content": "OPEN-THOUGHT"}), chat_call(0, "c", "wipe", ARGUMENTS))]},
        _went_back("OPEN-THOUGHT"),
    ),
    "pieces of one thought go back as one block": RunRule(
        {
            "chat": [
                chat(
                    *(_details(text="Let"), _details(text=" me"), _details(signature="SIG")),
                    chat_call(0, "c", "wipe", ARGUMENTS),
                )
            ],
            "anthropic": [messages(*_thinks("Let me"), start(1), delta(ARGUMENTS, 1), stop(1))],
        },
        lambda end: _one_call(end) and _thoughts_sent(end) == [("Let me", "SIG")],
    ),
    "two thoughts go back as two blocks": RunRule(
        {
            "chat": [
                chat(
                    *(_details(text="A", signature="S1"), _details(1, text="B", signature="S2")),
                    chat_call(0, "c", "wipe", ARGUMENTS),
                )
            ],
            "anthropic": [
                messages(
                    *(*_thinks("A", "S1"), *_thinks("B", "S2", 1)),
                    *(start(2), delta(ARGUMENTS, 2), stop(2)),
                )
            ],
        },
        lambda end: _one_call(end) and _thoughts_sent(end) == [("A", "S1"), ("B", "S2")],
    ),
    "a thought that came as a part goes back as one": RunRule(
        {"chat": [chat(chat_chunk({"content": PARTS[:1]}), chat_call(0, "c", "wipe", ARGUMENTS))]},
        lambda end: _one_call(end) and any(one.get("content") == PARTS[:1] for one in _members(end.bodies[1:2])),
    ),
    "a signed thought goes to no other endpoint": RunRule(
        {
            "chat": [chat(_details(text="hm", signature="MINE"), chat_call(0, "c", "wipe", ARGUMENTS))],
            "anthropic": [messages(*_thinks("hm", "MINE"), start(1), delta(ARGUMENTS, 1), stop(1))],
            "responses": [
                responses(finished({**REASONED, "encrypted_content": "MINE"}), finished(item(), 1), output=[])
            ],
        },
        _stays_away("MINE"),
        moves=True,
    ),
    "a thought without a signature goes to no other endpoint as a thought": RunRule(
        {
            "chat": [chat(chat_chunk({"reasoning_content": "hm"}), chat_call(0, "c", "wipe", ARGUMENTS))],
            "anthropic": [messages(*_thinks("hm", None), start(1), delta(ARGUMENTS, 1), stop(1))],
        },
        _stays_away('"thinking"', '"reasoning_content"'),
        moves=True,
    ),
    "a member that the provider adds to a call goes to no other endpoint": RunRule(
        {
            "chat": [chat(chat_chunk(EXTENDED))],
            "anthropic": [messages(start(caller=CALLER), delta(ARGUMENTS), stop())],
            "responses": [responses(finished(item(namespace="SIGNED-CALL")))],
        },
        _stays_away("SIGNED-CALL"),
        moves=True,
    ),
    "a thought in the text is not the answer": RunRule(
        _on_all(lambda wire: [_said(wire, THOUGHT)]),
        lambda end: end.error is None and end.text.strip() == "done",
    ),
    "a thought in the text in one piece with the answer is not the answer": RunRule(
        _on_all(lambda wire: [wires.says(wire, THOUGHT)]),
        lambda end: end.error is None and end.text.strip() == "done",
    ),
    "a thought in the text whose tags are cut is not the answer": RunRule(
        {"chat": [chat(*(chat_chunk({"content": one}) for one in THOUGHT), finish="stop")]},
        lambda end: end.error is None and end.text.strip() == "done",
    ),
}
"""Rules about thoughts."""

VALUES: Mapping[str, RunRule] = {
    f"structured: {rule}": RunRule(_on_all(lambda wire, text=text: [_said(wire, text)]), _is_value, is_structured=True)
    for rule, text in {
        "JSON alone": '{"n": 2}',
        "JSON in a fence": f"Here it is:\n{FENCED}\nBye.",
        "a draft in the thought before it": f"<think>{DRAFT}</think>\n{FENCED}",
        "a draft before the closing tag alone": f'{DRAFT}</think>\n{{"n": 2}}',
        "the same object twice": '{"n": 2}\n{"n": 2}',
        "prose with a brace before it": 'For {you}: {"n": 2}',
        "prose with a brace behind it": 'Sure! {"n": 2} Hope {that} helps',
    }.items()
}
"""Rules about structured answers."""

TURNS: Mapping[str, RunRule] = {
    "a turn that ends for calls and has none is not an answer": RunRule(
        {"chat": [chat(chat_chunk({"content": ""}))], "anthropic": [messages()], "responses": [responses()]},
        lambda end: end.error is not None or end.text != "",
    ),
    "an empty answer is asked for again": RunRule(
        _on_all(lambda wire: [wires.says(wire, "")]), lambda end: end.is_done and len(end.bodies) == 2
    ),
    "a text in its pieces alone is the answer": RunRule(
        {
            "responses": [
                responses(
                    {"type": "response.output_text.delta", "output_index": 0, "item_id": "m1", "delta": "do"},
                    {"type": "response.output_text.delta", "output_index": 0, "item_id": "m1", "delta": "ne"},
                )
            ]
        },
        _answers("done"),
    ),
    "an item that ends without its content has that of its pieces": RunRule(
        {
            "responses": [
                responses(
                    {"type": "response.output_text.delta", "output_index": 0, "item_id": "m1", "delta": "done"},
                    finished({"type": "message", "id": "m1", "role": "assistant", "content": []}),
                )
            ]
        },
        _answers("done"),
    ),
    "an answer in parts is read": RunRule(
        {"chat": [chat(chat_chunk({"content": PARTS}), finish="stop")]}, _answers("done")
    ),
    "a second choice is not a part of the answer": RunRule(
        {
            "chat": [
                chat(
                    {"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]},
                    chat_chunk({"content": "done"}),
                    finish="stop",
                )
            ]
        },
        _answers("done"),
    ),
    "a piece without choices is passed over": RunRule(
        {"chat": [chat({"choices": []}, chat_chunk({"content": "done"}), finish="stop")]}, _answers("done")
    ),
    "an answer that is not streamed is read": RunRule(
        _on_all(lambda wire: [wires.whole(wire, "done")]), _answers("done")
    ),
    "usage in Groq's place is counted": RunRule(
        {"chat": [wires.chat(chat_chunk({"content": "done"}), chat_chunk({}, "stop", x_groq=GROQ))]},
        lambda end: end.is_done and end.input_tokens == 5,
    ),
    "a text that ends for an unknown reason is not reported as whole": RunRule(_ends_for(UNKNOWN), _is_not_whole),
    "a text cut off by the bound on tokens is not reported as whole": RunRule(_ends_for(TOKENS), _is_not_whole),
    "a refusal is not reported as an answer": RunRule(
        {
            "chat": [chat(chat_chunk({"refusal": "I cannot."}), finish="stop")],
            "anthropic": [wires.says("anthropic", "I cannot.", "refusal")],
            "responses": [
                wires.responses(
                    {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "I cannot."}]}
                )
            ],
        },
        _is_not_whole,
    ),
    "a stream that stays open after its end has ended": RunRule(_then("hang"), _answers("done")),
    "signs of life after the stop reason do not keep a turn open": RunRule(
        _unended("ping", b": on\n\n"), _answers("done"), is_slow=True
    ),
    "a pause within a turn is waited for": RunRule(
        _on_all(lambda wire: [_paused(wires.says(wire, "done"))]), _answers("done"), is_slow=True
    ),
    "an error beside half an answer is asked for again": RunRule(
        {
            "chat": [wires.chat(HALF, LOST)],
            "anthropic": [
                wires.streamed([*START, *fake_anthropic.turn_events({"type": "text", "text": "ha"})[1:-3], OVERLOADED])
            ],
            "responses": [
                stream_answer([{"type": "response.output_text.delta", "output_index": 0, "delta": "ha"}, FAILED])
            ],
        },
        lambda end: end.is_done,
        retries=True,
    ),
    "a turn that breaks off after its first words is asked for again": RunRule(
        _on_all(lambda wire: [wires.broken(wire, "ha", "drop")]), lambda end: end.is_done, retries=True
    ),
}
"""Rules about turns and their ends."""

BYTES: Mapping[str, RunRule] = {
    "CR and LF, no space after a colon, and a byte order mark are read": RunRule(
        {
            wire: [replace(answer, pieces=[b"\xef\xbb\xbf", *answer.pieces])]
            for wire, (answer,) in _as_sent(
                lambda piece: [piece.replace(b"\n", b"\r\n").replace(b"data: ", b"data:")]
            ).items()
            if isinstance(answer, Answer)
        },
        _answers("done"),
    ),
    "an event of two lines of data is read": RunRule(
        _as_sent(lambda piece: [piece.replace(b", ", b",\ndata: ", 1)]), _answers("done")
    ),
    "a character cut between two packets is whole": RunRule(
        _as_sent(lambda piece: [bytes([one]) for one in _unescaped(piece)], TEXT), _answers(TEXT)
    ),
}
"""Rules about the bytes of a stream."""

ENDPOINTS: Mapping[str, RunRule] = {
    "a page of HTML with the status 401 is the error at once": RunRule(
        _on_all(lambda _: [Answer(401, {"content-type": "text/html"}, [HTML])]), _fails_at_once, retries=True
    ),
    "a page of HTML in place of a stream is an error": RunRule(
        _on_all(lambda _: [Answer(200, {"content-type": "text/html"}, [HTML])]),
        lambda end: end.error is not None,
        is_endless=True,
    ),
    "an endpoint that forbids a retry is not asked again": RunRule(
        _on_all(lambda _: [error_answer(500, {"error": {"message": "no"}}, x_should_retry="false")]),
        _fails_at_once,
        retries=True,
    ),
    "a quota that is used up is not asked for again": RunRule(
        {
            "chat": [error_answer(429, QUOTA)],
            "anthropic": [error_answer(402, BILLING)],
            "responses": [error_answer(429, QUOTA)],
        },
        _fails_at_once,
        retries=True,
    ),
    "a wait in seconds is kept": RunRule(
        _on_all(lambda _: [error_answer(429, {"error": {"message": "slow down"}}, retry_after="2")]),
        _waits(1.9),
        retries=True,
        is_slow=True,
    ),
    "a wait given as a date is kept": RunRule(
        {wire: [_busy_until_a_date] for wire in WIRES}, _waits(1.9), retries=True, is_slow=True
    ),
    "a wait in Google's place is kept": RunRule(
        {"chat": [error_answer(429, GOOGLE)]}, _waits(1.4), retries=True, is_slow=True
    ),
    "the reason of a provider behind the endpoint is in the error": RunRule(
        _on_all(lambda _: [json_answer(NESTED, status=400)]), lambda end: "one image" in str(end.error)
    ),
    "an endpoint that fails once is asked again": RunRule(
        _on_all(lambda wire: [error_answer(503, "busy")]), lambda end: end.is_done, retries=True
    ),
}
"""Rules about the endpoint and its errors."""

RUNS: Mapping[str, RunRule] = {**CALLS, **THOUGHTS, **VALUES, **TURNS, **BYTES, **ENDPOINTS}
"""Every rule about a whole run."""
