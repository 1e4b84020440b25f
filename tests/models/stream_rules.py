"""The rules of provider streams as tables: each rule that servers break, with the bytes of each wire."""

from __future__ import annotations

import json
from typing import Any

from tests.agent import wires
from tests.agent.wires import Wire
from tests.models.fake_openai import call, chat_chunk
from tests.models.http_server import Answer, stream_answer

__all__ = [
    "ARGUMENTS",
    "BROKEN",
    "ONE_CALL",
    "PATH",
    "START",
    "TWO_CALLS",
    "added",
    "argued",
    "chat",
    "chat_call",
    "delta",
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
    "a name and an id in every piece": {
        "chat": chat(chat_call(0, "c", "wipe", '{"path"'), chat_call(0, "c", "wipe", ':"a"}')),
        "responses": responses(added(item()), finished(item()), finished(item())),
    },
    "a name in two pieces": {
        "chat": chat(chat_call(0, "c", "wi", ""), chat_call(0, None, "pe", ARGUMENTS)),
    },
    "a name in a later piece": {
        "chat": chat(chat_call(0, "c", None, '{"path"'), chat_call(0, None, "wipe", ':"a"}')),
        "responses": responses(added(item(name="")), argued(ARGUMENTS), finished(item())),
    },
    "empty names in later pieces": {
        "chat": chat(chat_call(0, "c", "wipe", '{"path"'), chat_call(0, None, "", ':"a"}')),
    },
    "pieces of one character": {
        "chat": chat(chat_call(0, "c", "wipe", ""), *(chat_call(0, None, None, one) for one in ARGUMENTS)),
        "anthropic": messages(start(), *map(delta, ARGUMENTS), stop()),
        "responses": responses(added(item()), *map(argued, ARGUMENTS), finished(item())),
    },
    "no index": {
        "chat": chat(chat_call(None, "c", "wipe", ARGUMENTS)),
        "anthropic": messages(start(None), delta(ARGUMENTS, None), stop(None)),
        "responses": responses(added(item(), None), argued(ARGUMENTS, None), finished(item(), None)),
    },
    "no id": {
        "chat": chat(chat_call(0, None, "wipe", ARGUMENTS)),
        "anthropic": messages(start(id=None), delta(ARGUMENTS), stop()),
        "responses": responses(finished(item(call_id=None, id=None))),
    },
    "an empty id": {
        "chat": chat(chat_call(0, "", "wipe", ARGUMENTS)),
        "anthropic": messages(start(id=""), delta(ARGUMENTS), stop()),
        "responses": responses(finished(item(call_id="", id=""))),
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
    "arguments encoded twice": {
        "chat": chat(chat_call(0, "c", "wipe", json.dumps(ARGUMENTS))),
        "anthropic": messages(start(), delta(json.dumps(ARGUMENTS)), stop()),
        "responses": responses(finished(item(json.dumps(ARGUMENTS)))),
    },
    "arguments in their pieces alone": {
        "responses": responses(added(item()), argued(ARGUMENTS)),
    },
    "arguments at once": {
        "responses": responses(
            added(item()),
            {
                "type": "response.function_call_arguments.done",
                "output_index": 0,
                "item_id": "fc_1",
                "arguments": ARGUMENTS,
            },
        ),
    },
    "the form before tool calls": {
        "chat": chat(
            chat_chunk({"function_call": {"name": "wipe", "arguments": '{"path"'}}),
            chat_chunk({"function_call": {"arguments": ':"a"}'}}),
            finish="function_call",
        ),
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
