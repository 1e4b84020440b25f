"""Long results: the model reads head and tail, and the rest with a tool; binary never becomes text."""

from __future__ import annotations

from typing import Any

import pytest

from toolweave import Agent, ToolResult, tool
from toolweave.agent import ResultPolicy, ToolFinished
from toolweave.models import ModelRequest, ScriptedModel, ToolMessage, tool_call

SMALL = ResultPolicy(max_chars=1000)


def read_by(request: ModelRequest) -> ToolResult:
    """Return the first result in the last message of a request."""
    told = request.messages[-1]
    assert isinstance(told, ToolMessage)
    return told.outcomes[0].result


def long_text() -> str:
    return "\n".join(f"line {number}" for number in range(1000))


@pytest.mark.slow
@pytest.mark.requirement("C17")
async def test_a_model_reads_the_head_and_the_tail_and_the_rest_by_a_tool() -> None:
    text = long_text()

    def read_on(request: ModelRequest) -> Any:
        assert "read_tool_result" in [one.name for one in request.tools]
        return tool_call("read_tool_result", {"id": "big", "offset": 900, "length": 50})

    model = ScriptedModel([tool_call("long_text", id="big"), read_on, "done"])
    run = Agent(model, tools=[long_text], result_policy=SMALL).send("go")
    (whole, _) = [event.result.text async for event in run if isinstance(event, ToolFinished)]

    shown = read_by(model.requests[1]).text
    assert whole == text
    assert len(shown) <= 1000
    assert shown.startswith("line 0\n")
    assert shown.endswith("line 999")
    assert 'read_tool_result(id="big"' in shown
    assert read_by(model.requests[2]).text.startswith(text[900:950])
    assert [one.name for one in model.requests[0].tools] == ["long_text"]


@pytest.mark.requirement("C17")
async def test_what_was_kept_can_be_read_later_in_the_same_session_and_in_no_other() -> None:
    ask = tool_call("read_tool_result", {"id": "big"})
    model = ScriptedModel([tool_call("long_text", id="big"), "ok", ask, "ok", ask, "ok"])
    agent = Agent(model, tools=[long_text], result_policy=SMALL)

    await agent.send("go", session="mine")
    mine = await agent.send("go on", session="mine")
    other = await agent.send("go on", session="other")

    assert read_by(model.requests[3]).text.startswith("line 0")
    assert mine.text == other.text == "ok"
    assert read_by(model.requests[5]).is_error


async def test_the_oldest_are_forgotten_when_there_is_too_much() -> None:
    policy = ResultPolicy(max_chars=1000, keep_chars=10_000)
    model = ScriptedModel(
        [
            [tool_call("long_text", id="one"), tool_call("long_text", id="two")],
            [tool_call("read_tool_result", {"id": "one"}), tool_call("read_tool_result", {"id": "two"})],
            "done",
        ]
    )

    in_order = tool(long_text, annotations={"sequential": True})
    result = await Agent(model, tools=[in_order], result_policy=policy).send("go")

    told = result.messages[-2]
    assert isinstance(told, ToolMessage)
    assert [one.result.is_error for one in told.outcomes] == [True, False]
    assert "call its tool again" in told.outcomes[0].result.text


def test_a_policy_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_chars"):
        ResultPolicy(max_chars=10)
