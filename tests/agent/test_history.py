"""Conversations that grow too long for a model, and the hook that decides what it is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.models.http_server import Answer, Received, error_answer, serve
from toolweave import Agent, ModelError, ScriptedModel, ToolResult, tool_call
from toolweave.agent import trim_history
from toolweave.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.state import MemoryStore

TOO_LONG = {"error": {"message": "too long", "code": "context_length_exceeded", "type": "invalid_request_error"}}


def said(text: str) -> AssistantMessage:
    return AssistantMessage(parts=(TextPart(text=text),))


def called(name: str) -> list[Message]:
    outcome = ToolOutcome(call_id=name, name="look", result=ToolResult.of("x" * 100))
    call = ToolCallPart(id=name, name="look", arguments={"about": name * 20})
    return [AssistantMessage(parts=(call,)), ToolMessage(outcomes=(outcome,))]


def limited(most: int) -> Any:
    """Return an answer for each request: one that is too long for this model is refused."""

    def answer(request: ModelRequest) -> str | ModelError:
        texts = [one.text for one in request.messages if isinstance(one, (UserMessage, AssistantMessage))]
        if len(texts) > most:
            return ModelError("it does not fit", model="small", kind="too_long")
        return f"answer to {texts[-1]}"

    return answer


async def test_a_session_that_grew_too_long_goes_on_and_is_kept_whole() -> None:
    model = ScriptedModel(limited(5))
    agent = Agent(model, store=MemoryStore())

    results = [await agent.send(f"question {number}", session="s") for number in range(8)]

    assert [one.text for one in results] == [f"answer to question {number}" for number in range(8)]
    assert len(results[-1].messages) == 16
    assert model.requests[-1].messages[-1] == UserMessage.of("question 7")
    assert isinstance(model.requests[-1].messages[0], UserMessage)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_conversation_that_the_endpoint_finds_too_long_is_sent_shorter(wire: Wire) -> None:
    sizes: list[int] = []

    async def answer(request: Received) -> Answer:
        messages = request.json["input" if wire == "responses" else "messages"]
        sizes.append(len(messages))
        return error_answer(400, TOO_LONG) if len(messages) > 5 else wires.says(wire, "hello")

    async with serve(answer) as server, wires.model_at(wire, server.url) as model:
        talk = [one for number in range(5) for one in (UserMessage.of(f"q{number}"), said(f"a{number}"))]
        result = await Agent(model).send([*talk, "and now?"])

    assert result.text == "hello"
    assert sizes[0] == 11
    assert sizes[-1] <= 5
    assert len(sizes) <= 3


async def test_a_long_run_goes_on_with_its_question_and_its_newest_calls() -> None:
    def turn(request: ModelRequest) -> Any:
        if len(request.messages) > 7:
            return ModelError("it does not fit", model="small", kind="too_long")
        return tool_call("look") if len(model.requests) < 12 else "found"

    def look() -> str:
        return "x" * 50

    model = ScriptedModel(turn)

    result = await Agent(model, tools=[look]).send("what is there?")

    assert (result.status, result.text) == ("completed", "found")
    last = model.requests[-1].messages
    assert last[0] == UserMessage.of("what is there?")
    assert isinstance(last[1], AssistantMessage)
    assert isinstance(last[-1], ToolMessage)
    refused = sum(1 for one in model.requests if len(one.messages) > 7)
    assert refused <= 2  # the run remembers what fits


async def test_what_cannot_be_made_shorter_is_an_error() -> None:
    model = ScriptedModel(limited(0))

    with pytest.raises(ModelError) as caught:
        await Agent(model).send("q")

    assert caught.value.kind == "too_long"
    assert len(model.requests) == 1


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_hook_decides_what_the_model_is_shown_and_the_conversation_stays_whole(asynchronous: bool) -> None:
    def last(messages: Sequence[Message]) -> Sequence[Message]:
        return messages[-1:]

    async def later(messages: Sequence[Message]) -> Sequence[Message]:
        await anyio.lowlevel.checkpoint()
        return last(messages)

    model = ScriptedModel(["one", "two"])
    agent = Agent(model, history=later if asynchronous else last)

    await agent.send("first", session="s")
    result = await agent.send("second", session="s")

    assert [len(one.messages) for one in model.requests] == [1, 1]
    assert len(result.messages) == 4


async def test_a_hook_that_raises_is_the_error_of_the_run() -> None:
    def broken(_: Sequence[Message]) -> Sequence[Message]:
        raise LookupError("no summary")

    with pytest.raises(LookupError, match="no summary"):
        await Agent(ScriptedModel(["x"]), history=broken).send("q")


def test_results_stay_with_their_calls_and_a_user_begins() -> None:
    messages = [UserMessage.of("old"), said("old"), UserMessage.of("task"), *called("a"), *called("b"), *called("c")]

    shorter = trim_history(messages, keep=0.5)

    assert shorter == [UserMessage.of("task"), *called("c")]


turns = st.lists(
    st.sampled_from("uac").map(
        lambda kind: [UserMessage.of("ask")] if kind == "u" else [said("answer")] if kind == "a" else called("c")
    ),
    max_size=12,
)


@pytest.mark.slow
@given(turns, st.sampled_from([0.5, 0.25, 0.1]))
def test_whatever_is_left_out_begins_with_a_user_and_parts_no_pair(blocks: list[list[Message]], keep: float) -> None:
    messages: list[Message] = [UserMessage.of("begin"), *(one for block in blocks for one in block)]

    shorter = trim_history(messages, keep=keep)

    assert isinstance(shorter[0], UserMessage)
    assert shorter[-1] is messages[-1]
    assert len(shorter) <= len(messages)
    for before, one in zip([None, *shorter], shorter, strict=False):
        if isinstance(one, ToolMessage):
            assert isinstance(before, AssistantMessage)
            assert [call.id for call in before.tool_calls] == [outcome.call_id for outcome in one.outcomes]


@pytest.mark.parametrize("keep", [0, 1, -0.5, 2])
def test_a_share_that_is_none_is_refused(keep: float) -> None:
    with pytest.raises(ValueError, match="keep"):
        trim_history([UserMessage.of("x")], keep=keep)
