"""OpenAI's API on a real socket: requests are checked by its rules, answers are scripted, first come first served."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.models.http_server import Answer, Received, error_answer, stream_answer
from tests.models.openai_rules import Refused, check_chat, check_responses
from tests.models.scripted_endpoint import ScriptedEndpoint, serving

__all__ = [
    "KEY",
    "FakeOpenAI",
    "call",
    "chat_chunk",
    "chat_turn",
    "fake_openai",
    "responses_turn",
    "said",
    "usage_chunk",
]

KEY = "sk-test-0123456789"


class FakeOpenAI(ScriptedEndpoint):
    """The Chat Completions and Responses APIs of OpenAI."""

    async def handle(self, request: Received) -> Answer:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            said = request.headers.get("authorization", "").removeprefix("Bearer ")
            message = f"Incorrect API key provided: {said}."
            body = {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
            return error_answer(401, {"error": body})
        checks = {"/v1/chat/completions": check_chat, "/v1/responses": check_responses}
        try:
            if request.path not in checks:
                return error_answer(404, {"error": {"message": f"Invalid URL (POST {request.path})"}})
            checks[request.path](request.json)
        except Refused as exc:
            return error_answer(400, exc.body)
        self.checked.append(request.json)
        return self.answers.pop(0) if self.answers else error_answer(400, Refused("nothing is scripted").body)


def fake_openai(*answers: Answer) -> AbstractAsyncContextManager[FakeOpenAI]:
    """Serve the API on a real socket during the block."""
    return serving(FakeOpenAI(answers))


def chat_chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one chunk of a completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def usage_chunk(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    """Return the chunk after the last, without choices."""
    details = {"cached_tokens": cached}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage}


def call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    """Return a delta with a piece of one tool call."""
    piece: dict[str, Any] = {"function": {"arguments": arguments, **({"name": name} if name else {})}}
    if index is not None:
        piece["index"] = index
    if call_id is not None:
        piece |= {"id": call_id, "type": "function"}
    return {"tool_calls": [piece]}


def chat_turn(*deltas: Mapping[str, Any], finish: str = "stop") -> Answer:
    """Return a whole turn as OpenAI streams it."""
    chunks = [chat_chunk({"role": "assistant", "content": ""}), *map(chat_chunk, deltas), chat_chunk({}, finish)]
    return stream_answer([*chunks, usage_chunk(12, 7, cached=4), b"data: [DONE]\n\n"])


def said(*texts: str) -> Answer:
    """Return a turn of text."""
    return chat_turn(*({"content": text} for text in texts))


def responses_turn(*items: dict[str, Any], status: str = "completed", **more: Any) -> Answer:
    """Return a whole turn of Responses as OpenAI streams it."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}]
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item.get("id", "")}
        begun: dict[str, Any] = {**item, "arguments" if item["type"] == "function_call" else "content": ""}
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        events += [{"type": kind, **place, "delta": delta} for kind, delta in _deltas(item)]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    usage = {"input_tokens": 20, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 5}}
    response = {"id": "resp_1", "object": "response", "status": status, "output": items, "usage": usage, **more}
    events.append({"type": f"response.{status}", "response": response})
    return stream_answer([f"event: {one['type']}\n".encode() + _data(one) for one in events])


def _data(event: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _deltas(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    match item["type"]:
        case "function_call":
            text = item["arguments"]
            return [("response.function_call_arguments.delta", piece) for piece in (text[:5], text[5:]) if piece]
        case "message":
            kinds = {"output_text": "response.output_text.delta", "refusal": "response.refusal.delta"}
            return [(kinds[part["type"]], part.get("text") or part["refusal"]) for part in item["content"]]
        case "reasoning":
            return [("response.reasoning_summary_text.delta", part["text"]) for part in item["summary"]]
        case _:
            return []
