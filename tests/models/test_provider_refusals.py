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
from toolweave.models import OpenAICompatibleModel, Retry
from toolweave.models._retry import NO_RETRY
from toolweave.tools import ToolSpec


def model_at(url: str, retry: Retry = NO_RETRY) -> OpenAICompatibleModel:
    return OpenAICompatibleModel(url, model="m", api_key=fake_openai.KEY, retry=retry)


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
}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "generation", ['<function=add{"a": 1}</function>', "add(a=1)", '{"name": "add", "arguments": {"a": "x"}}']
)
async def test_a_call_that_its_provider_could_not_read_goes_back_to_the_model(streamed: bool, generation: str) -> None:
    given = {**REFUSED, "failed_generation": generation}
    added: list[int] = []

    @tool
    def add(a: int) -> int:
        """Add."""
        added.append(a)
        return a

    refused = stream_answer([{"error": given}]) if streamed else error_answer(400, {"error": given})
    answers = [refused, chat_turn(call(0, "x", "add", '{"a":1}'), finish="tool_calls"), said("done")]

    async def handle(_: Received) -> Answer:
        return answers.pop(0)

    async with serve(handle) as server, model_at(server.url) as model, Agent(model, tools=[add]) as agent:
        result = await agent.run("go")

        assert (result.status, added) == ("completed", [1])
        _, wrote, complaint = server.requests[1].json["messages"]
        assert wrote["content"] == generation
        assert "did not match schema" in complaint["content"]


async def test_a_provider_that_forbids_a_retry_is_not_asked_again() -> None:
    async def handle(_: Received) -> Answer:
        return error_answer(500, {"error": {"message": "no"}}, x_should_retry="false")

    async with (
        serve(handle) as server,
        model_at(server.url, Retry(attempts=3, first=0)) as model,
        Agent(model) as agent,
    ):
        with pytest.raises(ModelError) as raised:
            await agent.run("go")

        assert (raised.value.kind, len(server.requests)) == ("overloaded", 1)


LONG = ToolSpec(name="t", input_schema={"type": "object"}, description="x" * 3_000)


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    ("url", "provider", "bounded"),
    [
        ("https://api.openai.com/v1", None, True),
        ("https://res.openai.azure.com/openai/v1", None, True),
        ("https://res.cognitiveservices.azure.com/openai/v1", None, True),
        ("https://res.services.ai.azure.com/openai/v1", None, True),
        ("https://proxy.example/v1", "openai", True),
        ("https://proxy.example/v1", None, False),
        ("https://openai.azure.com.example/v1", None, False),
    ],
)
def test_the_bounds_of_openai_hold_for_azure_too(url: str, provider: str | None, bounded: bool, api: Any) -> None:
    model = OpenAICompatibleModel(url, model="m", api_key="k", provider=provider, api=api)

    (definition,) = model.wire_tools([LONG]).definitions
    assert (len(definition.get("function", definition)["description"]) <= 1024) == bounded
    assert model.max_tools == (128 if bounded else None)
