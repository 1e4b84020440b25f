"""The rules of provider streams as tables: each rule that servers break, with the bytes of each wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.models import fake_anthropic, fake_openai
from tests.models.fake_openai import call, chat_chunk
from tests.models.http_server import Answer, error_answer, json_answer, stream_answer

__all__ = [
    "ARGUMENTS",
    "BROKEN",
    "ONE_CALL",
    "PATH",
    "RUNS",
    "TWO_CALLS",
    "Ended",
    "RunRule",
    "chat",
    "chat_call",
    "finished",
    "item",
    "messages",
    "responses",
    "start",
    "stop",
]

ARGUMENTS = '{"path":"a"}'
PATH = {"path": "a"}


def chat(*pieces: Any, finish: str | None = "tool_calls", done: bool = True) -> Answer:
    """Return a stream of Chat Completions."""
    end = [] if finish is None else [chat_chunk({}, finish)]
    return stream_answer([*pieces, *end, *([wires.DONE] if done else [])])


def chat_call(*arguments: Any) -> Any:
    return chat_chunk(call(*arguments))


def start(index: int | None = 0, **block: Any) -> dict[str, Any]:
    """Return the start of a block of Messages; a call, unless something else is said."""
    made: dict[str, Any] = {"type": "tool_use", "id": "c", "name": "wipe", "input": {}, **block}
    event = {"type": "content_block_start", "content_block": {key: one for key, one in made.items() if one is not None}}
    return event if index is None else {**event, "index": index}


def delta(text: str | None, index: int | None = 0) -> dict[str, Any]:
    event = {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": text}}
    return event if index is None else {**event, "index": index}


def stop(index: int | None = 0) -> dict[str, Any]:
    return {"type": "content_block_stop"} if index is None else {"type": "content_block_stop", "index": index}


def messages(*events: Any, stop_reason: str | None = "tool_use", last: bool = True) -> Answer:
    """Return a stream of Messages."""
    end: list[Any] = []
    if stop_reason is not None:
        end.append({"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 5}})
    return wires.streamed([*START, *events, *end, *([LAST] if last else [])])


START: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}}
]
LAST = {"type": "message_stop"}


def item(arguments: Any = ARGUMENTS, **more: Any) -> dict[str, Any]:
    made = {**wires.call_item("wipe", arguments), **more}
    return {key: one for key, one in made.items() if one is not None}


def responses(*events: Any, output: list[Any] | None = None, completed: bool = True) -> Answer:
    """Return a stream of Responses."""
    end = {"type": "response.completed", "response": {"status": "completed", "output": output or []}}
    return stream_answer([*events, *([end] if completed else [])])


def added(made: dict[str, Any], index: int | None = 0) -> dict[str, Any]:
    event = {"type": "response.output_item.added", "item": {**made, "arguments": "", "status": "in_progress"}}
    return event if index is None else {**event, "output_index": index}


def argued(text: str, index: int | None = 0, item_id: str = "fc_1") -> dict[str, Any]:
    event = {"type": "response.function_call_arguments.delta", "item_id": item_id, "delta": text}
    return event if index is None else {**event, "output_index": index}


def finished(made: dict[str, Any], index: int | None = 0) -> dict[str, Any]:
    event = {"type": "response.output_item.done", "item": made}
    return event if index is None else {**event, "output_index": index}


OTHER = item(id="fc_2", call_id="call_2", name="get")
ONE_CALL: dict[str, dict[Wire, Answer]] = {
    "a name in every piece": {
        "chat": chat(chat_call(0, "c", "wipe", ""), chat_call(0, None, "wipe", ARGUMENTS)),
        "anthropic": messages(start(), start(), delta(ARGUMENTS), stop()),
        "responses": responses(added(item()), added(item()), argued(ARGUMENTS), finished(item())),
    },
    "pieces of one character": {
        "chat": chat(chat_call(0, "c", "wipe", ""), *(chat_call(0, None, None, one) for one in ARGUMENTS)),
        "anthropic": messages(start(), *map(delta, ARGUMENTS), stop()),
        "responses": responses(added(item()), *map(argued, ARGUMENTS), finished(item())),
    },
    "no index": {
        "chat": chat(chat_call(None, "c", "wipe", ARGUMENTS)),
        "responses": responses(added(item(), None), argued(ARGUMENTS, None), finished(item(), None)),
    },
    "no id": {
        "chat": chat(chat_call(0, None, "wipe", ARGUMENTS)),
        "anthropic": messages(start(id=None), delta(ARGUMENTS), stop()),
        "responses": responses(finished(item(call_id=None, id=None))),
    },
    "arguments with the name": {
        "chat": chat(chat_call(0, "c", "wipe", ARGUMENTS)),
        "anthropic": messages(start(input=PATH), stop()),
        "responses": responses(finished(item())),
    },
    "arguments as an object": {
        "chat": chat(chat_call(0, "c", "wipe", PATH)),
        "anthropic": messages(start(input=PATH), stop()),
        "responses": responses(finished(item(PATH))),
    },
    "the call in the last event alone": {
        "responses": responses(output=[item()]),
    },
    "no end of the block": {
        "anthropic": messages(start(), delta(ARGUMENTS)),
        "responses": responses(added(item()), argued(ARGUMENTS), output=[item()]),
    },
    "events that nobody knows": {
        "chat": chat(b": ping\n\n", chat_chunk({"role": "assistant"}), chat_call(0, "c", "wipe", ARGUMENTS)),
        "anthropic": messages({"type": "ping"}, {"type": "news"}, start(), delta(ARGUMENTS), stop()),
        "responses": responses({"type": "response.news", "output_index": 0}, finished(item())),
    },
    "a stop reason without the last event": {
        "chat": chat(chat_call(0, "c", "wipe", ARGUMENTS), done=False),
        "anthropic": messages(start(), delta(ARGUMENTS), stop(), last=False),
    },
    "another stop reason than that of calls": {
        "chat": chat(chat_call(0, "c", "wipe", ARGUMENTS), finish="stop"),
        "anthropic": messages(start(), delta(ARGUMENTS), stop(), stop_reason="end_turn"),
    },
}
TWO_CALLS: dict[str, dict[Wire, Answer]] = {
    "one place for both": {
        "chat": chat(chat_call(0, "x", "wipe", ARGUMENTS), chat_call(0, "y", "get", ARGUMENTS)),
        "anthropic": messages(
            *(start(), delta(ARGUMENTS), stop()), *(start(id="d", name="get"), delta(ARGUMENTS), stop())
        ),
        "responses": responses(finished(item()), finished(OTHER)),
    },
    "no place": {
        "chat": chat(chat_call(None, "x", "wipe", ARGUMENTS), chat_call(None, "y", "get", ARGUMENTS)),
        "responses": responses(finished(item(), None), finished(OTHER, None)),
    },
    "side by side": {
        "chat": chat(
            *(chat_call(0, "x", "wipe", '{"path"'), chat_call(1, "y", "get", '{"path"')),
            *(chat_call(0, None, None, ':"a"}'), chat_call(1, None, None, ':"a"}')),
        ),
        "anthropic": messages(
            *(start(), start(1, id="d", name="get"), delta('{"path"'), delta('{"path"', 1)),
            *(delta(':"a"}'), delta(':"a"}', 1), stop(), stop(1)),
        ),
        "responses": responses(
            *(added(item()), added(OTHER, 1), argued('{"path"'), argued('{"path"', 1, "fc_2")),
            *(argued(':"a"}'), argued(':"a"}', 1, "fc_2"), finished(item()), finished(OTHER, 1)),
        ),
    },
}
BROKEN: dict[str, dict[Wire, Answer]] = {
    "no stop reason": {
        "chat": chat(chat_chunk({"content": "half"}), finish=None, done=False),
        "anthropic": messages(start(type="text", text=""), stop_reason=None, last=False),
        "responses": responses({"type": "response.created"}, completed=False),
    },
    "an error within the stream": {
        "chat": chat({"error": {"message": "overloaded", "code": 503}}, finish=None, done=False),
        "anthropic": messages({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}),
        "responses": responses({"type": "error", "message": "overloaded", "code": "server_error"}, completed=False),
    },
    "no JSON": {
        "chat": chat(b"data: {half\n\n", finish=None, done=False),
        "anthropic": stream_answer([b"event: x\ndata: {half\n\n"]),
        "responses": stream_answer([b"data: {half\n\n"]),
    },
}


@dataclass(slots=True)
class Ended:
    """The end of an agent's run.

    Attributes:
        runs: The calls of its tools.
        text: Its answer, or "" if it failed.
        bodies: The requests that the endpoint received.
    """

    runs: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    error: Exception | None = None
    text: str = ""
    bodies: list[Any] = field(default_factory=list[Any])

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
    """

    answers: Mapping[Wire, Sequence[Answer]]
    right: Callable[[Ended], bool]
    retries: bool = False


def _one_call(end: Ended) -> bool:
    return end.is_done and end.runs == [("wipe", PATH)]


def _without_arguments(end: Ended) -> bool:
    return end.is_done and end.runs == [("wipe", {})]


def _nothing_run(end: Ended) -> bool:
    return not end.runs


def _told_and_done(end: Ended) -> bool:
    return end.is_done and not end.runs


def _went_back(*words: str) -> Callable[[Ended], bool]:
    def right(end: Ended) -> bool:
        sent = json.dumps(end.bodies[1:])
        return _one_call(end) and any(f'"{word}"' in sent for word in words)

    return right


def _on_all(answer: Callable[[Wire], Sequence[Answer]]) -> Mapping[Wire, Sequence[Answer]]:
    return {wire: answer(wire) for wire in WIRES}


def _with_id(name: str) -> Mapping[Wire, Sequence[Answer]]:
    return {
        "chat": [chat(chat_call(0, name, "wipe", ARGUMENTS))],
        "anthropic": [messages(start(id=name), delta(ARGUMENTS), stop())],
        "responses": [responses(finished(item(call_id=name)))],
    }


CUT = '{"path":"a"'
REASONED: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"}
UNREADABLE = {"error": {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<x>"}}
NESTED = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": '{"message": "one image"}'}}}
THOUGHT = [chat_chunk({"content": text}) for text in ("<think>", "hm", "</think>", "done")]
LATER: Any = {"tool_calls": [{"index": 0, "function": {"name": "wipe", "arguments": ':"a"}'}}]}
NAMELESS: Any = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"arguments": '{"path"'}}]}
RUNS: Mapping[str, RunRule] = {
    "arguments that are not JSON run nothing, and the model is told": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "wipe", '{"path": a}')]), _told_and_done
    ),
    "a call cut off by the bound on tokens runs nothing": RunRule(
        {
            "chat": [chat(chat_call(0, "c", "wipe", CUT), finish="length")],
            "anthropic": [messages(start(), delta(CUT), stop(), stop_reason="max_tokens")],
            "responses": [
                wires.responses(wires.call_item("wipe", CUT, status="incomplete"), incomplete="max_output_tokens")
            ],
        },
        _nothing_run,
    ),
    "a tool that is not there is an answer to the model": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "gone")]), _told_and_done
    ),
    "null in place of arguments is none": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "wipe", "null")]), _without_arguments
    ),
    "an empty text in place of arguments is none": RunRule(
        _on_all(lambda wire: [wires.calls(wire, "wipe", "")]), _without_arguments
    ),
    "a name in the second piece": RunRule({"chat": [chat(chat_chunk(NAMELESS), chat_chunk(LATER))]}, _one_call),
    "the id of a call goes back as it came": RunRule(_with_id("functions.wipe:0"), _went_back("functions.wipe:0")),
    "a long id of a call goes back as it came": RunRule(
        _with_id(f"chatcmpl-tool-{'0' * 32}"), _went_back(f"chatcmpl-tool-{'0' * 32}")
    ),
    "a thought goes back with its signature": RunRule(
        {
            "anthropic": [
                fake_anthropic.turn(
                    fake_anthropic.thought("hm"), fake_anthropic.call("c", "wipe", PATH), stop="tool_use"
                )
            ],
            "responses": [fake_openai.responses_turn(REASONED, wires.call_item("wipe", ARGUMENTS))],
        },
        _went_back("SEALED", "rs_1", str(fake_anthropic.thought("hm").get("signature"))),
    ),
    "a thought in the text is not the answer": RunRule(
        {"chat": [chat(*THOUGHT, finish="stop")]},
        lambda end: end.error is None and end.text.strip() == "done",
    ),
    "an answer that is not streamed is read": RunRule(
        _on_all(lambda wire: [wires.whole(wire, "done")]), lambda end: end.is_done and len(end.bodies) == 1
    ),
    "a connection lost within a call runs nothing": RunRule(
        {
            "chat": [stream_answer([chat_call(0, "c", "wipe", CUT)], "drop")],
            "anthropic": [wires.streamed([*START, start(), delta(CUT)], "drop")],
            "responses": [stream_answer([added(item()), argued(CUT)], "drop")],
        },
        _nothing_run,
    ),
    "a call that the provider could not read is asked for again": RunRule(
        {"chat": [json_answer(UNREADABLE, status=400), wires.calls("chat", "wipe", ARGUMENTS)]}, _one_call, retries=True
    ),
    "the reason of a provider behind the endpoint is in the error": RunRule(
        {"chat": [json_answer(NESTED, status=400)]}, lambda end: "one image" in str(end.error)
    ),
    "an endpoint that fails once is asked again": RunRule(
        _on_all(lambda wire: [error_answer(503, "busy")]), lambda end: end.is_done, retries=True
    ),
    "a turn that breaks off after its first words is asked for again": RunRule(
        _on_all(lambda wire: [wires.broken(wire, "ha", "drop")]), lambda end: end.is_done, retries=True
    ),
}
"""Rules about a whole run, of which the first answers are given."""
