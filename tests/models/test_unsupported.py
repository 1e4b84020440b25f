"""Servers that do not take all of an API: what they refuse is left out, and the answer comes all the same."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.models.http_server import Answer, Received, error_answer, serve
from toolweave import Agent, ImageContent, ModelError, RunResult
from toolweave.models import AnthropicModel, ModelSettings, ProviderTool

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
REFUSALS = (
    "This response_format type is unavailable now",
    "json mode cannot be combined with tool/function calling",
    "output_config.format: Extra inputs are not permitted",
    "'claude-old' does not support structured outputs.",
    "Unsupported parameter: 'text.format'",
    "Failed to initialize samplers: failed to parse grammar",
)


@dataclass
class Number:
    n: int


def look() -> ImageContent:
    """Take a screenshot."""
    return ImageContent(data=PNG, mime_type="image/png")


async def run(
    wire: Wire, answer: Callable[[dict[str, Any]], Answer], *, times: int = 1, model: str = "m", **options: Any
) -> tuple[RunResult, list[dict[str, Any]]]:
    """Return the last of several runs with one model, and what its endpoint was asked."""
    bodies: list[dict[str, Any]] = []

    async def handle(request: Received) -> Answer:
        bodies.append(request.json)
        return answer(request.json)

    async with serve(handle) as server, wires.model_at(wire, server.url, model=model) as asked:
        agent = Agent(asked, **options)
        with anyio.fail_after(60):
            for _ in range(times - 1):
                await agent.send("q")
            return await agent.send("q"), bodies


def asks_for_schema(body: dict[str, Any]) -> bool:
    return bool(body.keys() & {"response_format", "output_config", "text"})


@pytest.mark.parametrize("words", REFUSALS)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_takes_no_schema_is_asked_for_it_in_words_and_not_twice(wire: Wire, words: str) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if asks_for_schema(body):
            return error_answer(400, {"error": {"message": words, "type": "invalid_request_error"}})
        assert '"n"' in str(body)
        return wires.says(wire, '{"n": 3}')

    result, bodies = await run(wire, answer, times=2, output_type=Number, system="Be brief.")

    assert result.output == Number(3)
    assert [asks_for_schema(body) for body in bodies] == [True, False, False]
    assert "Be brief." in str(bodies[-1])


async def test_a_server_that_takes_a_schema_but_not_with_tools_gets_it_without() -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if asks_for_schema(body) and "tools" in body:
            return error_answer(400, {"error": {"message": REFUSALS[1]}})
        return wires.says("chat", '{"n": 3}')

    bodies: list[dict[str, Any]] = []

    async def handle(request: Received) -> Answer:
        bodies.append(request.json)
        return answer(request.json)

    async with serve(handle) as server, wires.model_at("chat", server.url) as model:
        await Agent(model, tools=[look], output_type=Number).send("q")
        result = await Agent(model, output_type=Number).send("q")

    assert result.output == Number(3)
    assert [asks_for_schema(body) for body in bodies] == [True, False, True]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_of_something_else_is_an_error(wire: Wire) -> None:
    def answer(_: dict[str, Any]) -> Answer:
        return error_answer(400, {"error": {"message": "Unknown model"}})

    with pytest.raises(ModelError, match="Unknown model"):
        await run(wire, answer, output_type=Number)


@pytest.mark.parametrize(
    "text",
    [
        'Here:\n```json\n{"n": 3}\n``` ',
        'Here it is: {"n": 3}. Is that fine?',
        'First\n```\n[1]\n```\nand then\n```json\n{"n": 3}\n```',
        '```{"n": 3}```',
    ],
)
async def test_json_in_prose_is_read(text: str) -> None:
    result, bodies = await run("chat", lambda _: wires.says("chat", text), output_type=Number)

    assert (result.output, len(bodies)) == (Number(3), 1)


def image_parts(body: dict[str, Any]) -> list[Any]:
    said = (one["content"] for one in body["messages"] if isinstance(one["content"], list))
    return [part for parts in said for part in parts if part["type"] == "image_url"]


def looks_once(body: dict[str, Any]) -> Answer:
    return wires.calls("chat", "look") if body["messages"][-1]["role"] == "user" and len(body["messages"]) == 1 else (
        wires.says("chat", "red")
    )  # fmt: skip


async def test_the_images_of_a_result_follow_it_in_a_users_message() -> None:
    result, bodies = await run("chat", looks_once, tools=[look])

    assert result.text == "red"
    tool, user = bodies[1]["messages"][-2:]
    assert tool["role"] == "tool"
    assert "image" in tool["content"]
    assert user["role"] == "user"
    assert user["content"][0] == {"type": "text", "text": "From the result of tool 'look':"}
    assert user["content"][1] == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


async def test_what_the_user_says_next_stands_in_the_same_message() -> None:
    result, _ = await run("chat", looks_once, tools=[look])
    before = result.messages[:-1]

    _, bodies = await run("chat", lambda _: wires.says("chat", "ok"))
    assert len(bodies) == 1

    async def handle(request: Received) -> Answer:
        bodies.append(request.json)
        return wires.says("chat", "ok")

    async with serve(handle) as server, wires.model_at("chat", server.url) as model:
        await Agent(model).send([*before, "what colour?"])

    roles = [one["role"] for one in bodies[1]["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]
    assert bodies[1]["messages"][-1]["content"][-1] == {"type": "text", "text": "what colour?"}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "unknown variant `image_url`, expected `text`"),
        (400, "messages[3].content must be a string"),
        (404, "No endpoints found that support image input"),
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    ],
)
async def test_a_model_that_sees_nothing_reads_a_note_instead(status: int, words: str) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return error_answer(status, {"error": {"message": words}}) if image_parts(body) else looks_once(body)

    result, bodies = await run("chat", answer, tools=[look], times=2)

    assert result.text == "red"
    assert [bool(image_parts(body)) for body in bodies] == [False, True, False, False, False]
    assert "[image: image/png" in bodies[-1]["messages"][2]["content"]


MISTRAL: list[tuple[str, dict[str, Any]]] = [("m", {"provider": "mistral"}), ("mistralai/Devstral-Small", {})]


@pytest.mark.parametrize(("model", "options"), MISTRAL)
async def test_mistral_gets_ids_that_it_takes_and_nothing_that_it_does_not_know(
    model: str, options: dict[str, Any]
) -> None:
    bodies: list[dict[str, Any]] = []

    async def handle(request: Received) -> Answer:
        bodies.append(request.json)
        return wires.calls("chat", "look") if len(bodies) == 1 else wires.says("chat", "red")

    async with serve(handle) as server, wires.model_at("chat", server.url, model=model, **options) as asked:
        assert (await Agent(asked, tools=[look]).send("q")).text == "red"

    call, tool = bodies[1]["messages"][1]["tool_calls"][0], bodies[1]["messages"][2]
    assert call["id"] == tool["tool_call_id"]
    assert len(call["id"]) == 9
    assert call["id"].isalnum()
    assert not any("stream_options" in body for body in bodies)


async def test_an_image_of_a_result_reaches_a_model_of_mistrals_in_the_order_that_it_takes() -> None:
    def answer(body: dict[str, Any]) -> Answer:
        roles = [one["role"] for one in body["messages"]]
        if ("tool", "user") in itertools.pairwise(roles):  # as its API does
            message = "Unexpected role 'user' after role 'tool'"
            return error_answer(400, {"object": "error", "message": message, "type": "invalid_request_message_order"})
        return wires.says("chat", "red") if image_parts(body) else wires.calls("chat", "look")

    result, bodies = await run("chat", answer, model="pixtral-large", tools=[look])

    assert result.text == "red"
    assert [one["role"] for one in bodies[1]["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert len(image_parts(bodies[1])) == 1


@pytest.mark.parametrize(
    ("bound", "thinking", "expected"),
    [
        (1000, 2048, None),
        (1500, 2048, {"type": "enabled", "budget_tokens": 1499}),
        (4000, 2048, {"type": "enabled", "budget_tokens": 2048}),
        (1000, "adaptive", {"type": "adaptive"}),
    ],
)
async def test_thoughts_stay_within_the_bound_on_a_turn_and_take_no_temperature(
    bound: int, thinking: Any, expected: Any
) -> None:
    bodies: list[dict[str, Any]] = []

    async def handle(request: Received) -> Answer:
        bodies.append(request.json)
        return wires.says("anthropic", "hello")

    settings = ModelSettings(max_tokens=bound, temperature=0.2, top_p=0.5)
    async with serve(handle) as server, AnthropicModel("m", "key", server.url, thinking=thinking) as model:
        await Agent(model, settings=settings).send("q")

    (body,) = bodies
    assert body.get("thinking") == expected
    assert ("temperature" in body, "top_p" in body) == (expected is None, expected is None)
    assert body["max_tokens"] == bound


async def test_code_that_ran_in_a_container_goes_on_in_it() -> None:
    bodies: list[dict[str, Any]] = []
    start = wires.fake_anthropic.turn_events()[0]
    start["message"]["container"] = {"id": "container_1", "expires_at": "2999-01-01T00:00:00Z"}
    events = [
        start,
        *wires.fake_anthropic.turn_events({"type": "tool_use", "id": "t", "name": "look", "input": {}})[1:],
    ]

    async def handle(request: Received) -> Answer:
        bodies.append(request.json)
        return wires.streamed(events) if len(bodies) == 1 else wires.says("anthropic", "done")

    code = ProviderTool(provider="anthropic", definition={"type": "code_execution_20250825", "name": "code_execution"})
    async with serve(handle) as server, AnthropicModel("m", "key", server.url) as model:
        await Agent(model, tools=[look, code]).send("q")

    assert [body.get("container") for body in bodies] == [None, "container_1"]
    assert not any(block["type"] == "container" for one in bodies[1]["messages"] for block in one["content"])
