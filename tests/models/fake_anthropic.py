"""Anthropic's API on a real socket: requests are checked by its rules, answers are scripted and come in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from tests.models.anthropic_rules import Refused, check, signature
from tests.models.http_server import Answer, Received, error_answer
from tests.models.scripted_endpoint import ScriptedEndpoint, serving

__all__ = [
    "KEY",
    "FakeAnthropic",
    "call",
    "fake_anthropic",
    "refused",
    "said",
    "streamed",
    "thought",
    "turn",
    "turn_events",
]

KEY = "sk-ant-test-0123456789"
USAGE = {"input_tokens": 12, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 100, "output_tokens": 1}


class FakeAnthropic(ScriptedEndpoint):
    """The Messages API of Anthropic."""

    async def handle(self, request: Received) -> Answer:
        if request.path != "/v1/messages":
            return refused(404, "not_found_error", "Not found")
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY:
            return refused(401, "authentication_error", f"invalid x-api-key {key}")
        if "anthropic-version" not in request.headers:
            return refused(400, "invalid_request_error", "anthropic-version: header is required")
        try:
            check(request.json)
        except Refused as exc:
            return refused(400, "invalid_request_error", str(exc))
        self.checked.append(request.json)
        return self.answers.pop(0) if self.answers else refused(400, "invalid_request_error", "nothing is scripted")


def fake_anthropic(*answers: Answer) -> AbstractAsyncContextManager[FakeAnthropic]:
    """Serve the API on a real socket during the block."""
    return serving(FakeAnthropic(answers))


def refused(status: int, kind: str, message: str, **headers: str) -> Answer:
    """Return a refusal in the API's own shape; `retry_after="1"` becomes the header."""
    error = {"type": kind, "message": message}
    return error_answer(status, {"type": "error", "error": error, "request_id": "req_011"}, **headers)


def thought(text: str) -> dict[str, Any]:
    """Return a block of signed thinking."""
    return {"type": "thinking", "thinking": text, "signature": signature(text)}


def call(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block with a tool call."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def turn(*blocks: Mapping[str, Any], stop: str | None = None) -> Answer:
    """Return a whole turn as the API streams it."""
    return streamed(turn_events(*blocks, stop=stop))


def said(text: str) -> Answer:
    """Return a turn of one text."""
    return turn({"type": "text", "text": text})


def streamed(events: Sequence[Mapping[str, Any]], then: Literal["end", "drop", "hang"] = "end") -> Answer:
    """Return these events as a stream."""
    pieces = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events]
    return Answer(200, {"content-type": "text/event-stream; charset=utf-8"}, pieces, then)


def turn_events(*blocks: Mapping[str, Any], stop: str | None = None) -> list[dict[str, Any]]:
    """Return the events of a whole turn."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": USAGE,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        place = {"index": index}
        events.append({"type": "content_block_start", **place, "content_block": _begun(block)})
        events += [{"type": "content_block_delta", **place, "delta": delta} for delta in _deltas(block)]
        events.append({"type": "content_block_stop", **place})
    reason = stop or ("tool_use" if calls else "end_turn")
    usage = {"output_tokens": 25}
    events.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage})
    return [*events, {"type": "message_stop"}]


def _begun(block: Mapping[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items()}


def _deltas(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            for piece in _halves(block["text"]):
                yield {"type": "text_delta", "text": piece}
        case "thinking":
            for piece in _halves(block["thinking"]):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            if block["input"]:
                for piece in _halves(json.dumps(block["input"])):
                    yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            pass


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]]
