"""Thoughts between tags in a model's text are thoughts for every API, streamed or not; texts about tags stay texts."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.models import fake_anthropic, fake_openai
from tests.models.fake_openai import call, chat_turn
from tests.models.http_server import Answer, Received, Server, json_answer, serve
from toolweave import Agent, tool
from toolweave.models import AnthropicModel, OpenAICompatibleModel
from toolweave.models._base import Finished, ModelEvent, ModelRequest, StreamedText, StreamedThinking
from toolweave.models._messages import ThinkingPart, UserMessage
from toolweave.models._retry import NO_RETRY

Model = OpenAICompatibleModel | AnthropicModel
APIS = ("chat", "responses", "anthropic")
SPLIT: dict[str, tuple[str, str]] = {
    "<think>hm</think>Answer": ("hm", "Answer"),
    "\n <think>\nhm\n</think>\n\nAnswer": ("hm", "Answer"),
    "<think></think>\n\nAnswer": ("", "Answer"),
    "<think>a</think>One <think>b</think>Two": ("ab", "One Two"),
    "<think>never closed": ("never closed", ""),
    "hm\n</think>\n\nAnswer": ("hm", "Answer"),
    'maybe {"n": 1}?</think>{"n": 2}': ('maybe {"n": 1}?', '{"n": 2}'),
    "[THINK]hm[/THINK]Answer": ("hm", "Answer"),
    "◁think▷hm◁/think▷Answer": ("hm", "Answer"),
}
KEPT = [
    "The `<think>` tag opens a thought.",
    "Write <think> first and </think> last.",
    "Close it with `</think>` at the end.",
    "The tag </think> closes a thought.",
    "```\n<think>\nhm\n</think>\n```",
    "<thin air>",
    "<",
]


def model_at(url: str, api: str) -> Model:
    if api == "anthropic":
        return AnthropicModel("m", fake_anthropic.KEY, url, retry=NO_RETRY)
    kind: Literal["chat", "responses"] = "chat" if api == "chat" else "responses"
    return OpenAICompatibleModel(url, model="m", api_key=fake_openai.KEY, api=kind, retry=NO_RETRY)


def saying(api: str, text: str, *, streamed: bool) -> Answer:
    """Return a turn of a text, in pieces of three characters or as a whole."""
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}]}
    if streamed and api == "chat":
        return fake_openai.said(*pieces)
    if streamed and api == "responses":
        return fake_openai.responses_turn(item)
    if streamed:
        return fake_anthropic.said(text)
    bodies: dict[str, Any] = {
        "chat": {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]},
        "responses": {"object": "response", "status": "completed", "output": [item]},
        "anthropic": {"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"},
    }
    return json_answer(bodies[api])


async def turn(server: Server, api: str) -> tuple[list[ModelEvent], Finished]:
    async with model_at(server.url, api) as model:
        *events, last = [event async for event in model.stream(ModelRequest(messages=[UserMessage.of("hello")]))]
    assert isinstance(last, Finished)
    return events, last


async def read(api: str, text: str, *, streamed: bool) -> tuple[list[ModelEvent], str, str]:
    """Return the events of a turn, its thoughts and its text."""

    async def handle(_: Received) -> Answer:
        return saying(api, text, streamed=streamed)

    async with serve(handle) as server:
        events, last = await turn(server, api)
    thoughts = "".join(part.text for part in last.message.parts if isinstance(part, ThinkingPart))
    return events, thoughts, last.message.text


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("text", SPLIT)
async def test_a_thought_in_the_text_is_a_thought(api: str, text: str, streamed: bool) -> None:
    _, thoughts, answer = await read(api, text, streamed=streamed)

    assert (thoughts, answer) == SPLIT[text]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("text", KEPT)
async def test_a_text_about_tags_stays_as_it_is(api: str, text: str) -> None:
    events, thoughts, answer = await read(api, text, streamed=True)

    assert (thoughts, answer) == ("", text)
    assert "".join(event.text for event in events if isinstance(event, StreamedText)) == text


async def test_a_streamed_thought_is_streamed_as_one_however_its_tags_are_cut() -> None:
    events, _, _ = await read("chat", "<think>hm, well</think>Answer", streamed=True)

    assert "".join(event.text for event in events if isinstance(event, StreamedThinking)) == "hm, well"
    assert "".join(event.text for event in events if isinstance(event, StreamedText)) == "Answer"


async def test_a_thought_goes_back_between_the_calls_of_one_answer_and_not_after_it() -> None:
    @tool
    def f() -> str:
        """Return a number."""
        return "1"

    answers = [
        chat_turn({"content": "<think>hm</think>Let me see."}, call(0, "x", "f", "{}"), finish="tool_calls"),
        fake_openai.said("One."),
        fake_openai.said("Bye."),
    ]

    async def handle(_: Received) -> Answer:
        return answers.pop(0)

    async with serve(handle) as server, model_at(server.url, "chat") as model:
        async with Agent(model, tools=[f]) as agent:
            first = await agent.send("hello")
            await agent.send([*first.messages, UserMessage.of("bye")])
        _, within, after = [request.json["messages"][1] for request in (server.requests[1], *server.requests[1:])]

    assert within["content"] == "<think>hm</think>Let me see."
    assert after["content"] == "Let me see."
