"""Calls that Chat Completions streams in pieces: each piece goes to its call, however a server cuts and labels it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models.fake_openai import KEY, FakeOpenAI, call, chat_turn, fake_openai, said
from tests.models.http_server import Answer, json_answer
from toolweave import Agent, tool
from toolweave.models import OpenAICompatibleModel
from toolweave.models._base import Finished, ModelEvent, ModelRequest, StreamedToolCall
from toolweave.models._messages import UserMessage
from toolweave.models._retry import NO_RETRY
from toolweave.tools import ToolSpec

OFFERED = [ToolSpec(name=name, input_schema={"type": "object"}) for name in ("wipe", "get", "get_weather", "gone")]
WHOLE = '{"path":"a"}'

ONE_CALL: dict[str, list[Any]] = {
    "name twice": [call(0, "x", "wipe", ""), call(0, None, "wipe", WHOLE)],
    "name in each piece": [call(0, "x", "wipe", ""), call(0, None, "wipe", '{"path"'), call(0, None, "wipe", ':"a"}')],
    "one character a piece": [call(0, "x", "wipe", ""), *(call(0, None, "wipe", one) for one in WHOLE)],
    "name and empty pieces": [call(0, "x", "wipe", WHOLE), call(0, None, "wipe", ""), call(0, None, "wipe", "\n")],
    "name, no index": [
        call(None, "x", "wipe", ""),
        call(None, None, "wipe", '{"path":'),
        call(None, None, "wipe", '"a"}'),
    ],
    "name, neither": [
        call(None, None, "wipe", ""),
        call(None, None, "wipe", '{"path":'),
        call(None, None, "wipe", '"a"}'),
    ],
    "no id from the second piece on": [call(0, "x", "wipe", '{"path"'), call(0, None, None, ':"a"}')],
    "id only": [call(None, "x", "wipe", ""), call(None, "x", None, '{"path"'), call(None, "x", None, ':"a"}')],
    "id in each piece": [call(0, "x", "wipe", ""), call(0, "x", "wipe", '{"path"'), call(0, "x", "wipe", ':"a"}')],
    "id late": [call(0, None, "wipe", ""), call(0, "x", "wipe", '{"path"'), call(0, "x", None, ':"a"}')],
    "another id in each piece": [
        call(0, "x", "wipe", '{"path"'),
        call(0, "y", "wipe", ":"),
        call(0, "z", "wipe", '"a"}'),
    ],
    "another index in each piece": [call(0, "x", "wipe", '{"path"'), call(1, "x", None, ':"a"}')],
    "told again": [call(0, "x", "wipe", '{"path"'), call(0, None, None, ':"a"}'), call(0, "x", "wipe", WHOLE)],
    "told again without an id": [call(0, "x", "wipe", WHOLE), call(0, None, "wipe", WHOLE)],
    "told again without a name": [call(0, "x", "wipe", WHOLE), call(0, None, None, WHOLE)],
    "all so far in each piece": [call(0, "x", "wipe", text) for text in ('{"pa', '{"path":', WHOLE)],
    "all so far, no name": [
        call(0, "x", "wipe", ""),
        *(call(0, None, None, text) for text in ('{"pa', '{"path":', WHOLE)),
    ],
    "an empty object first": [
        call(0, "x", "wipe", "{}"),
        call(0, None, "wipe", '{"path"'),
        call(0, None, "wipe", ':"a"}'),
    ],
    "an empty object first, no name": [call(0, "x", "wipe", "{}"), call(0, None, None, WHOLE)],
    "an empty object last": [call(0, "x", "wipe", WHOLE), call(0, None, "wipe", "{}")],
    "null last": [call(0, "x", "wipe", WHOLE), call(0, None, "wipe", "null")],
    "name in two parts": [call(0, "x", "wi", ""), call(0, None, "pe", WHOLE)],
    "name in two parts, id again": [call(0, "x", "wi", ""), call(0, "x", "pe", WHOLE)],
    "name late": [call(0, "x", None, ""), call(0, None, "wipe", WHOLE)],
}
TWO_CALLS: dict[str, list[Any]] = {
    "two ids of one index": [call(0, "x", "get", '{"n":1}'), call(0, "y", "get", '{"n":2}')],
    "one index, no ids": [call(0, None, "get", '{"n":1}'), call(0, None, "get", '{"n":2}')],
    "id with the first only": [call(0, "x", "get", '{"n":1}'), call(0, None, "get", '{"n":2}')],
    "neither index nor id": [call(None, None, "get", '{"n":1}'), call(None, None, "get", '{"n":2}')],
    "one id for both": [call(None, "x", "get", '{"n":1}'), call(None, "x", "get", '{"n":2}')],
    "two ids, pieces": [
        *(call(0, "x", "get", '{"n"'), call(0, None, "get", ":1}")),
        *(call(0, "y", "get", '{"n"'), call(0, None, "get", ":2}")),
    ],
}  # fmt: skip


def model_of(fake: FakeOpenAI) -> OpenAICompatibleModel:
    return OpenAICompatibleModel(fake.url, model="m", api_key=KEY, retry=NO_RETRY)


async def turn(answer: Answer) -> tuple[list[ModelEvent], Finished]:
    """Return the events of a turn and its end."""
    request = ModelRequest(messages=[UserMessage.of("hello")], tools=OFFERED)
    async with fake_openai(answer) as fake, model_of(fake) as model:
        *events, last = [event async for event in model.stream(request)]
    assert isinstance(last, Finished)
    return events, last


def calls(events: list[ModelEvent], last: Finished) -> list[tuple[str, Any, str | None]]:
    """Return the calls of a turn; each was announced once, under its own name and id."""
    made = last.message.tool_calls
    announced = [(event.id, event.name) for event in events if isinstance(event, StreamedToolCall)]
    assert announced == [(one.id, one.name) for one in made]
    assert len({one.id for one in made}) == len(made)
    return [(one.name, dict(one.arguments), one.malformed) for one in made]


@pytest.mark.parametrize("row", ONE_CALL)
async def test_pieces_of_one_call_are_one_call(row: str) -> None:
    assert calls(*await turn(chat_turn(*ONE_CALL[row], finish="tool_calls"))) == [("wipe", {"path": "a"}, None)]


@pytest.mark.parametrize("row", TWO_CALLS)
async def test_two_calls_stay_two(row: str) -> None:
    found = calls(*await turn(chat_turn(*TWO_CALLS[row], finish="tool_calls")))

    assert found == [("get", {"n": 1}, None), ("get", {"n": 2}, None)]


async def test_a_name_that_another_one_begins_with_is_not_announced_before_it_is_whole() -> None:
    pieces = [call(0, "x", "get", ""), call(0, None, "_weather", '{"n":1}')]

    assert calls(*await turn(chat_turn(*pieces, finish="tool_calls"))) == [("get_weather", {"n": 1}, None)]


async def test_two_calls_without_arguments_of_two_tools_are_not_one_name() -> None:
    pieces = [call(0, None, "get", ""), call(0, None, "gone", "")]

    assert calls(*await turn(chat_turn(*pieces, finish="tool_calls"))) == [("get", {}, None), ("gone", {}, None)]


async def test_arguments_within_arguments_are_not_taken_for_a_repetition() -> None:
    pieces = [
        call(0, "x", "wipe", '{"a":'),
        call(0, None, None, '{"a":'),
        call(0, None, None, "1}"),
        call(0, None, None, "}"),
    ]
    events, last = await turn(chat_turn(*pieces, finish="tool_calls"))

    assert calls(events, last) == [("wipe", {"a": {"a": 1}}, None)]


@pytest.mark.parametrize(
    "entries",
    [
        [{"id": "x", "function": {"name": "get", "arguments": ""}}, {"function": {"name": "get", "arguments": ""}}],
        [{"index": 0, "function": {"name": "get", "arguments": "{}"}}] * 2,
        [{"id": "x", "index": 0, "function": {"name": "get", "arguments": "{}"}}] * 2,
    ],
)
async def test_each_entry_of_a_message_that_was_not_streamed_is_a_call(entries: list[Any]) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": entries}
    answer = json_answer({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})

    assert calls(*await turn(answer)) == [("get", {}, None), ("get", {}, None)]


async def test_a_tool_without_required_arguments_runs_once_with_its_own() -> None:
    wiped: list[str | None] = []

    @tool
    def wipe(path: str | None = None) -> str:
        """Remove a path, or everything."""
        wiped.append(path)
        return "ok"

    for row in ("name twice", "name in each piece", "an empty object first", "an empty object last"):
        wiped.clear()
        answers = chat_turn(*ONE_CALL[row], finish="tool_calls"), said("done")
        async with fake_openai(*answers) as fake, model_of(fake) as model:
            await Agent(model, tools=[wipe]).send("go")
        assert wiped == ["a"]


@pytest.mark.parametrize(
    "name",
    [
        "functions.get",
        "function.get",
        " get\n",
        "get<|channel|>commentary",
        "functions.get<|channel|>json",
        "get <|constrain|>json",
        "functions.get:0",
    ],
)
async def test_the_marks_of_a_template_are_not_part_of_a_name(name: str) -> None:
    events, last = await turn(chat_turn(call(0, "x", name, '{"n":1}'), finish="tool_calls"))

    assert calls(events, last) == [("get", {"n": 1}, None)]


@pytest.mark.parametrize(
    "name",
    ["functions.nothing", "GET", "ge", "get_", "xfunctions.get", "functions.functions.get", "mcp__s__get", "get.x"],
)
async def test_a_name_that_is_nearly_one_is_never_another_tools(name: str) -> None:
    events, last = await turn(chat_turn(call(0, "x", name, '{"n":1}'), finish="tool_calls"))

    assert calls(events, last) == [(name, {"n": 1}, None)]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('```json\n{"n":1}\n```', 1),
        ('```\n{"n": 1}```', 1),
        (' \n```JSON {"n": 1} ```\n', 1),
        ('```tool_code\r\n{\r\n  "n": 1\r\n}\r\n```', 1),
        ('```json\n{"n": "```\\n{}\\n```"}\n```', "```\n{}\n```"),
        (json.dumps('```json\n{"n": 1}\n```'), 1),
    ],
)
async def test_arguments_in_a_code_block_are_the_arguments(text: str, meant: object) -> None:
    events, last = await turn(chat_turn(call(0, "x", "get", text), finish="tool_calls"))

    assert calls(events, last) == [("get", {"n": meant}, None)]


@pytest.mark.parametrize(
    "text",
    [
        'Here: ```json\n{"n":1}\n```',
        '```json\n{"n":1}',
        "```json\n[1]\n```",
        '```json\n{"n":1}\n```\n```json\n{"n":2}\n```',
        "```json\n{'n': 1}\n```",
    ],
)
async def test_a_code_block_that_is_not_the_whole_object_goes_back_to_the_model(text: str) -> None:
    events, last = await turn(chat_turn(call(0, "x", "get", text), finish="tool_calls"))

    assert calls(events, last) == [("get", {}, text)]


@pytest.mark.parametrize("text", ['{"n":1}{"n":2}', '{"n":1}\n{"n":2}', '{"n":1},{"n":2}', '[{"n":1}]', '"n"', "5"])
async def test_arguments_that_are_not_one_object_go_back_to_the_model(text: str) -> None:
    events, last = await turn(chat_turn(call(0, "x", "get", text), finish="tool_calls"))

    assert calls(events, last) == [("get", {}, text)]


@pytest.mark.parametrize("finish", ["tool_calls", "stop", "function_call", "tool_use", "eos", "end_turn", "STOP", ""])
async def test_a_whole_call_counts_whatever_its_finish_reason_is_called(finish: str) -> None:
    events, last = await turn(chat_turn(call(0, "x", "get", '{"n":1}'), finish=finish))

    assert calls(events, last) == [("get", {"n": 1}, None)]
    assert [one.cut for one in last.message.tool_calls] == [False]


@pytest.mark.parametrize("given", [None, "", 7, "call 1/2", "x" * 200])
async def test_a_call_has_an_id_whatever_its_server_gives(given: Any) -> None:
    piece = {"index": 0, "id": given, "type": "function", "function": {"name": "get", "arguments": '{"n":1}'}}
    events, last = await turn(chat_turn({"tool_calls": [piece]}, finish="tool_calls"))

    assert calls(events, last) == [("get", {"n": 1}, None)]
    assert all(one.id for one in last.message.tool_calls)
