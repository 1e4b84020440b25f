"""Refusals whose reason is inside: of a provider behind a router, and of a call that a provider could not read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models import fake_openai
from tests.models.fake_openai import call, chat_turn, said
from tests.models.http_server import Answer, Received, error_answer, serve, stream_answer
from toolweave import Agent, tool
from toolweave.errors import ModelError
from toolweave.models import OpenAICompatibleModel
from toolweave.models._retry import NO_RETRY

pytestmark = pytest.mark.anyio


def model_at(url: str) -> OpenAICompatibleModel:
    return OpenAICompatibleModel(url, model="m", api_key=fake_openai.KEY, retry=NO_RETRY)


def routed(raw: Any, name: str | None = "Somebody") -> Answer:
    error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": name}}
    return error_answer(400, {"error": error})


async def failure(answer: Answer) -> ModelError:
    async def handle(_: Received) -> Answer:
        return answer

    async with serve(handle) as server, model_at(server.url) as model, Agent(model) as agent:
        with pytest.raises(ModelError) as raised:
            await agent.run("go")
    return raised.value


INNER = {"error": {"message": "At most 1 image per prompt.", "type": "invalid_request_error"}}
TOO_LONG = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens"}}


@pytest.mark.parametrize("raw", [INNER, json.dumps(INNER), "At most 1 image per prompt."])
async def test_the_reason_of_the_provider_behind_a_router_is_reported_with_its_name(raw: Any) -> None:
    error = await failure(routed(raw))

    assert "Somebody: At most 1 image per prompt." in error.message
    assert error.kind == "invalid_request"


@pytest.mark.parametrize("raw", [TOO_LONG, json.dumps(TOO_LONG), "maximum context length is 8192 tokens"])
async def test_a_conversation_that_is_too_long_behind_a_router_is_known_as_one(raw: Any) -> None:
    assert (await failure(routed(raw))).kind == "too_long"


@pytest.mark.parametrize("raw", [None, "", "{", [], 7])
async def test_a_router_that_gives_no_reason_is_quoted_itself(raw: Any) -> None:
    assert "Provider returned error" in (await failure(routed(raw, None))).message or raw == "{"


REFUSED = {
    "message": "tool call validation failed: parameters for tool add did not match schema",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": '<function=add{"a": 1}</function>',
}


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_that_its_provider_could_not_read_goes_back_to_the_model(streamed: bool) -> None:
    added: list[int] = []

    @tool
    def add(a: int) -> int:
        """Add."""
        added.append(a)
        return a

    refused = stream_answer([{"error": REFUSED}]) if streamed else error_answer(400, {"error": REFUSED})
    answers = [refused, chat_turn(call(0, "x", "add", '{"a":1}'), finish="tool_calls"), said("done")]

    async def handle(_: Received) -> Answer:
        return answers.pop(0)

    async with serve(handle) as server, model_at(server.url) as model, Agent(model, tools=[add]) as agent:
        result = await agent.run("go")

        assert (result.status, added) == ("completed", [1])
        _, wrote, complaint = server.requests[1].json["messages"]
        assert wrote["content"] == REFUSED["failed_generation"]
        assert "did not match schema" in complaint["content"]
