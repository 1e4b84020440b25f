"""Long results: the model reads head and tail, and the rest with a tool; binary never becomes text."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave import Agent, ImageContent, TextContent, ToolError, ToolResult, tool
from toolweave.agent import ResultPolicy, ToolFinished
from toolweave.agent._truncation import fitted
from toolweave.models import ModelRequest, ScriptedModel, ToolMessage, tool_call
from toolweave.tools import AudioContent, EmbeddedResource, ResourceLink

pytestmark = pytest.mark.anyio

SMALL = ResultPolicy(max_chars=1000)


def read_by(request: ModelRequest) -> ToolResult:
    """Return the first result in the last message of a request."""
    told = request.messages[-1]
    assert isinstance(told, ToolMessage)
    return told.outcomes[0].result


def long_text() -> str:
    return "\n".join(f"line {number}" for number in range(1000))


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


def test_a_short_result_is_left_as_it_is() -> None:
    result = ToolResult.of({"a": 1})

    assert fitted(result, SMALL)[0] is result


def test_links_texts_and_resources_count_together_and_images_stay_images() -> None:
    image = ImageContent(data=base64.b64encode(b"x" * 3000).decode(), mime_type="image/png")
    result = ToolResult(
        content=(
            TextContent(text="a" * 600),
            image,
            EmbeddedResource(uri="file:///b", text="b" * 600),
            ResourceLink(uri="file:///c", name="c"),
        )
    )

    shown, whole = fitted(result, SMALL, result_id="r")

    assert whole is not None
    assert len(whole) > 1200
    assert [type(block) for block in shown.content] == [TextContent, ImageContent]
    assert shown.content[1] is image
    assert shown.text.count("x") < 10


@pytest.mark.parametrize("kind", ["image", "audio", "blob"])
def test_binary_that_is_too_large_becomes_a_note_and_never_text(kind: str) -> None:
    data = base64.b64encode(bytes(3000)).decode()
    block = {
        "image": ImageContent(data=data, mime_type="image/png"),
        "audio": AudioContent(data=data, mime_type="audio/wav"),
        "blob": EmbeddedResource(uri="file:///b", blob=data),
    }[kind]

    shown, _ = fitted(ToolResult(content=(block,)), ResultPolicy(max_chars=1000, max_binary=2000))
    kept, _ = fitted(ToolResult(content=(block,)), ResultPolicy(max_chars=1000, max_binary=4000))

    assert data[:20] not in shown.text
    assert "left out: larger than 2,000 bytes" in shown.text
    assert kept.content == (block,)


def test_structured_content_alone_is_cut_as_its_text() -> None:
    shown, whole = fitted(ToolResult(structured_content=["word"] * 1000), SMALL)

    assert len(shown.text) <= 1000
    assert whole is not None


def test_an_error_stays_an_error_when_it_is_cut() -> None:
    shown, _ = fitted(ToolResult.failure(ToolError("x" * 5000)), SMALL)

    assert shown.is_error
    assert len(shown.text) <= 1000


@given(text=st.text(max_size=5000), size=st.integers(400, 2000), head=st.floats(0, 1))
def test_whatever_the_text_it_is_within_the_bound_and_begins_and_ends_as_it_did(
    text: str, size: int, head: float
) -> None:
    shown, whole = fitted(
        ToolResult(content=(TextContent(text=text),)), ResultPolicy(max_chars=size, head=head), result_id="call_1"
    )

    assert len(shown.text) <= size
    if whole is None:
        assert shown.text == text
    else:
        assert whole == text
        before, _, after = shown.text.partition("\n[... ")
        assert text.startswith(before)
        assert text.endswith(after.partition(" ...]\n")[2])


def test_a_policy_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_chars"):
        ResultPolicy(max_chars=10)
