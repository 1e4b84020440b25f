"""The scripted model says what it is told to, in the shape of a real one."""

from __future__ import annotations

import json

import pytest

from toolweave import ModelError
from toolweave.models import (
    AssistantMessage,
    Finished,
    Model,
    ModelRequest,
    StreamedText,
    StreamedThinking,
    StreamedToolCall,
    TextPart,
    ThinkingPart,
    ToolCallDelta,
    ToolCallPart,
    UserMessage,
    complete,
)
from toolweave.models._scripted import ScriptedModel, tool_call

REQUEST = ModelRequest(messages=(UserMessage.of("hi"),))


async def test_a_text_is_streamed_word_by_word_and_ends_the_turn() -> None:
    model = ScriptedModel(["so it is"])

    *words, last = [event async for event in model.stream(REQUEST)]

    assert words == [StreamedText(text="so"), StreamedText(text=" it"), StreamedText(text=" is")]
    assert last == Finished(message=AssistantMessage(parts=(TextPart(text="so it is"),)), stop_reason="end")


async def test_thoughts_and_calls_are_streamed_like_those_of_a_real_model() -> None:
    call = tool_call("read", {"path": "a"}, id="one")
    model = ScriptedModel([[ThinkingPart(text="hm"), "look", call]])

    *events, last = [event async for event in model.stream(REQUEST)]

    assert events[0] == StreamedThinking(text="hm")
    assert events[2] == StreamedToolCall(id="one", name="read")
    written = events[3]
    assert isinstance(written, ToolCallDelta)
    assert json.loads(written.arguments) == {"path": "a"}
    assert isinstance(last, Finished)
    assert (last.stop_reason, last.message.tool_calls) == ("tool_calls", (call,))


async def test_what_is_no_json_is_streamed_as_it_was_written() -> None:
    model = ScriptedModel([ToolCallPart(id="x", name="f", malformed="{oh")])

    events = [event async for event in model.stream(REQUEST)]

    assert ToolCallDelta(id="x", arguments="{oh") in events


async def test_a_function_of_the_request_may_say_each_turn() -> None:
    async def later(request: ModelRequest) -> str:
        return f"{len(request.messages)} so far"

    assert (await complete(ScriptedModel([later]), REQUEST)).message.text == "1 so far"
    assert (await complete(ScriptedModel(later), REQUEST)).message.text == "1 so far"


async def test_it_raises_what_is_in_its_script_and_says_when_that_is_over() -> None:
    model = ScriptedModel([ModelError("busy", model="scripted", kind="overloaded")])

    with pytest.raises(ModelError, match="busy"):
        await complete(model, REQUEST)
    with pytest.raises(ModelError, match="no turn 2"):
        await complete(model, REQUEST)
    assert model.requests == [REQUEST, REQUEST]
    assert isinstance(model, Model)


async def test_calls_get_ids_of_their_own() -> None:
    assert tool_call("f").id != tool_call("f").id
