"""The model that answers offline, by rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from toolweave.models import CommandModel, complete
from toolweave.models._base import Finished, ModelEvent, ModelRequest, StreamedText, StreamedToolCall, ToolCallDelta
from toolweave.models._messages import AssistantMessage, Message, ToolCallPart, ToolMessage, ToolOutcome, UserMessage
from toolweave.tools import ToolResult, ToolSpec

READ = ToolSpec(
    name="fs_read_file",
    aliases=("fs:read_file",),
    description="Reads a file.\nAll of it.",
    input_schema={"type": "object", "properties": {"path": {"type": "string"}}},
)
CLOCK = ToolSpec(name="clock", description="Tells the time.")
TOOLS = [READ, CLOCK]


async def answer(said: str, *earlier: Message, tools: Sequence[ToolSpec] = TOOLS) -> Finished:
    return await complete(CommandModel(), ModelRequest(messages=[*earlier, UserMessage.of(said)], tools=tools))


async def text_after(*outcomes: ToolOutcome) -> str:
    message = ToolMessage(outcomes=outcomes)
    return (await complete(CommandModel(), ModelRequest(messages=[message], tools=TOOLS))).message.text


async def test_a_call_is_made_as_it_is_written() -> None:
    request = ModelRequest(messages=[UserMessage.of('/call fs_read_file {"path": "å b"}')], tools=TOOLS)

    events: list[ModelEvent] = [event async for event in CommandModel().stream(request)]

    call = ToolCallPart(id="command_1", name="fs_read_file", arguments={"path": "å b"})
    assert events == [
        StreamedToolCall(id="command_1", name="fs_read_file"),
        ToolCallDelta(id="command_1", arguments='{"path": "å b"}'),
        Finished(message=AssistantMessage(parts=(call,)), stop_reason="tool_calls"),
    ]


async def test_a_tool_is_also_called_by_its_alias_and_without_arguments() -> None:
    finished = await answer("/call fs:read_file")

    assert finished.message.tool_calls == (ToolCallPart(id="command_1", name="fs_read_file"),)


async def test_every_call_of_a_conversation_has_an_id_of_its_own() -> None:
    first = (await answer("/call clock")).message

    second = (await answer("/call clock", UserMessage.of("/call clock"), first)).message

    assert first.tool_calls[0].id != second.tool_calls[0].id


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("/call", "which tool?"),
        ("/call fs_read_fil {}", "did you mean 'fs_read_file'?"),
        ("/call fs_read_file {path}", "are not JSON"),
        ("/call fs_read_file [1]", 'Write `/call fs_read_file {"path": ...}`'),
        ("/helpme", "no command '/helpme'. `/call TOOL {JSON}` runs one"),
        ("", "`/tools` lists all"),
        ("fly to the moon", "none of the 2 tools fits 'fly to the moon'"),
    ],
)
async def test_what_cannot_be_done_is_said_with_what_can(said: str, words: str) -> None:
    finished = await answer(said)

    assert words in finished.message.text
    assert not finished.message.tool_calls


async def test_the_tools_are_listed_with_the_first_line_of_what_they_do() -> None:
    assert (await answer("/tools")).message.text == "fs_read_file: Reads a file.\nclock: Tells the time."


async def test_any_other_text_searches_the_tools_and_says_how_to_call_the_best() -> None:
    finished = await answer("what time is it?")

    assert finished.message.text == "clock: Tells the time.\nWrite `/call clock {}`."


async def test_without_tools_it_says_so() -> None:
    for said in ("/tools", "what time is it?"):
        assert (await answer(said, tools=[])).message.text.startswith("there are no tools")


async def test_after_a_tool_ran_it_says_what_came_of_it() -> None:
    good = ToolOutcome(call_id="1", name="clock", result=ToolResult.of("noon"))
    silent = ToolOutcome(call_id="2", name="clock", result=ToolResult())
    bad = ToolOutcome(call_id="3", name="clock", result=ToolResult.failure("no battery"))

    assert await text_after(good) == "noon"
    assert await text_after(good, silent, bad) == "noon\nclock is done; it returned no text.\nclock failed: no battery"


async def test_the_text_is_streamed() -> None:
    request = ModelRequest(messages=[UserMessage.of("/tools")], tools=[CLOCK])

    events = [event async for event in CommandModel().stream(request)]

    assert events[0] == StreamedText(text="clock: Tells the time.")
