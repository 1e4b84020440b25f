"""The same turn as each of the three APIs streams it: Chat Completions, Messages, Responses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from tests.models import fake_anthropic, fake_openai
from tests.models.http_server import Answer, json_answer, stream_answer
from toolweave.models import AnthropicModel, OpenAICompatibleModel, Retry

__all__ = [
    "DONE",
    "WIRES",
    "Wire",
    "anthropic",
    "anthropic_events",
    "broken",
    "call_item",
    "calls",
    "chat",
    "chunk",
    "model_at",
    "responses",
    "responses_events",
    "says",
    "streamed",
    "whole",
]

OurModel: TypeAlias = OpenAICompatibleModel | AnthropicModel
Wire: TypeAlias = Literal["chat", "anthropic", "responses"]
WIRES: Sequence[Wire] = ("chat", "anthropic", "responses")
DONE = b"data: [DONE]\n\n"

chunk = fake_openai.chat_chunk
streamed = fake_anthropic.streamed


def model_at(wire: Wire, url: str, *, retry: Retry | None = None, model: str = "m", **more: Any) -> OurModel:
    """Return the model behind an endpoint."""
    retry = retry or Retry(attempts=3, first=0)
    if wire == "anthropic":
        return AnthropicModel(model, fake_anthropic.KEY, url, retry=retry, **more)
    api: Literal["chat", "responses"] = "chat" if wire == "chat" else "responses"
    return OpenAICompatibleModel(url, model=model, api_key=fake_openai.KEY, api=api, retry=retry, **more)


def says(wire: Wire, text: str, stop: str | None = None) -> Answer:
    """Return a turn of one text, which ends for the reason that is given in the API's own word."""
    if wire == "chat":
        return chat(chunk({"content": text}), chunk({}, stop or "stop"))
    if wire == "anthropic":
        return fake_anthropic.turn({"type": "text", "text": text}, stop=stop or "end_turn")
    return responses(*([_message(text)] if text else []), incomplete=stop)


def calls(wire: Wire, name: str, arguments: Any = None) -> Answer:
    """Return a turn of one whole call."""
    arguments = {} if arguments is None else arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if wire == "chat":
        return chat(chunk(fake_openai.call(0, "call_1", name, text)), chunk({}, "tool_calls"))
    if wire == "anthropic":
        return anthropic(*anthropic_events(name, text), stop="tool_use")
    return responses(call_item(name, text))


def broken(wire: Wire, text: str, then: Literal["end", "drop"]) -> Answer:
    """Return a turn that ends, or loses its connection, after this text; there may be none."""
    events: list[Any] = []
    if wire == "chat":
        events = [chunk({"role": "assistant"}), *([chunk({"content": text})] if text else [])]
    elif wire == "anthropic":
        events = anthropic_start()
        events += fake_anthropic.turn_events({"type": "text", "text": text})[1:-3] if text else []
        return fake_anthropic.streamed(events, then)
    else:
        delta = {"type": "response.output_text.delta", "output_index": 0, "item_id": "m1", "delta": text}
        events = [{"type": "response.created", "response": {"status": "in_progress"}}, *([delta] if text else [])]
    return stream_answer(events, then)


def whole(wire: Wire, text: str) -> Answer:
    """Return a turn of one text as a server sends it that does not stream."""
    if wire == "chat":
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return json_answer({"object": "chat.completion", "choices": [choice]})
    if wire == "anthropic":
        return json_answer(
            {"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": {}}
        )
    return json_answer({"object": "response", "status": "completed", "output": [_message(text)]})


def chat(*chunks: Mapping[str, Any] | bytes) -> Answer:
    """Return these chunks and the end."""
    return stream_answer([*chunks, DONE])


def anthropic_start() -> list[dict[str, Any]]:
    """Return how every turn of Messages begins."""
    return fake_anthropic.turn_events()[:1]


def anthropic_events(name: str, arguments: str, *, closed: bool = True, **more: Any) -> list[dict[str, Any]]:
    """Return the events of one call; `more` are members of its block."""
    block: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}, **more}
    delta = {"type": "input_json_delta", "partial_json": arguments}
    return [
        {"type": "content_block_start", "index": 0, "content_block": block},
        *([{"type": "content_block_delta", "index": 0, "delta": delta}] if arguments else []),
        *([{"type": "content_block_stop", "index": 0}] if closed else []),
    ]


def anthropic(*events: Mapping[str, Any], stop: str | None) -> Answer:
    """Return a turn of these blocks' events."""
    delta = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}}
    return fake_anthropic.streamed([*anthropic_start(), *events, delta, {"type": "message_stop"}])


def call_item(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    """Return a call as an item of Responses."""
    named = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name}
    return {**named, "arguments": arguments, "status": "completed", **more}


def responses(*items: Mapping[str, Any], incomplete: str | None = None) -> Answer:
    """Return a whole response, or one that is incomplete for this reason."""
    return stream_answer(responses_events(*items, incomplete=incomplete))


def responses_events(*items: Mapping[str, Any], incomplete: str | None = None) -> list[Any]:
    """Return the events of a response."""
    status = "completed" if incomplete is None else "incomplete"
    more = {} if incomplete is None else {"incomplete_details": {"reason": incomplete}}
    events = [event for index, item in enumerate(items) for event in _item(index, item)]
    response = {"id": "r", "object": "response", "status": status, "output": list(items), **more}
    return [*events, {"type": f"response.{status}", "response": response}]


def _item(index: int, item: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for part in item.get("content", ()) if item["type"] == "message" else ():
        if "text" in part:
            yield {"type": "response.output_text.delta", "output_index": index, "delta": part["text"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _message(text: str) -> dict[str, Any]:
    content: Iterable[Any] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
