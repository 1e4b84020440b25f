"""A toolset for OpenAI's APIs, with the SDK's own types."""

from __future__ import annotations

import json
import logging
from typing import Any

import anyio
import pytest
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessage,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.chat.chat_completion import Choice
from openai.types.responses import FunctionToolParam, Response, ResponseFunctionToolCall
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import TypeAdapter

from tests.export.offers import PNG, Rendezvous, registry
from tests.tools.doubles import Scripted, spec
from toolweave import CallContext, ToolRegistry, tool
from toolweave.providers import OpenAIChatTools, OpenAIResponsesTools

RESPONSES_TOOL = TypeAdapter[Any](FunctionToolParam)
CHAT_TOOL = TypeAdapter[Any](ChatCompletionFunctionToolParam)
OUTPUT = TypeAdapter[Any](FunctionCallOutput)
MESSAGE = TypeAdapter[Any](ChatCompletionToolMessageParam)


def call(name: str, arguments: Any = None, call_id: str = "c1") -> ResponseFunctionToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ResponseFunctionToolCall(type="function_call", name=name, arguments=text, call_id=call_id)


def message(*calls: tuple[str, str, str]) -> ChatCompletionMessage:
    return ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in calls
            ],
        }
    )


@pytest.mark.requirement("R80", "C1")
def test_definitions_are_what_the_sdk_takes_under_names_that_the_api_takes() -> None:
    responses = OpenAIResponsesTools(registry()).definitions()
    chat = OpenAIChatTools(registry()).definitions()

    assert [RESPONSES_TOOL.validate_python(one) for one in responses] == responses
    assert [CHAT_TOOL.validate_python(one) for one in chat] == chat
    names = ["add", "broken", "picture", "whoami", "odd_name"]
    assert [one["name"] for one in responses] == names
    assert [one["function"]["name"] for one in chat] == names
    assert responses[0]["parameters"] == chat[0]["function"].get("parameters")
    assert responses[0].get("description") == "Adds two numbers."
    assert (responses[0]["parameters"] or {})["properties"] == registry().snapshot()[0].input_schema["properties"]


async def test_a_call_by_the_legal_name_reaches_the_tool_of_the_real_one() -> None:
    tools = OpenAIResponsesTools(registry())
    tools.definitions()

    (output,) = await tools.dispatch([call("odd_name", {"self": "1", "config": "2", "a-b": "3"})])

    assert output == {"type": "function_call_output", "call_id": "c1", "output": "a-b=3, config=2, self=1"}
    assert OUTPUT.validate_python(output) == output


async def test_a_name_keeps_its_meaning_for_the_model_that_was_shown_it() -> None:
    inner = Scripted([spec("a.b")])
    tools = OpenAIResponsesTools(inner)
    (shown,) = tools.definitions()
    inner.offer(spec("a.b"), spec("a_b"))

    await tools.dispatch([call(shown["name"])])

    assert [made.name for made, _ in inner.calls] == ["a.b"]


@pytest.mark.requirement("R57", "C28")
async def test_the_calls_of_a_turn_run_at_the_same_time_and_are_answered_in_order() -> None:
    tools = OpenAIResponsesTools([Rendezvous(5).meet])

    outputs = await tools.dispatch([call("meet", {"number": n}, f"c{n}") for n in range(5)])

    assert [(one.get("call_id"), one["output"]) for one in outputs] == [(f"c{n}", f"number {n}") for n in range(5)]


@pytest.mark.requirement("C28")
async def test_a_sequential_tool_runs_alone_between_the_others() -> None:
    seen: list[str] = []

    async def note(name: str) -> str:
        seen.append(f"+{name}")
        await anyio.lowlevel.checkpoint()
        seen.append(f"-{name}")
        return name

    alone = tool(note, name="alone", annotations={"sequential": True})
    tools = OpenAIResponsesTools([note, alone])
    names = ["note", "note", "alone", "note", "note"]

    outputs = await tools.dispatch([call(name, {"name": str(n)}) for n, name in enumerate(names)])

    assert [one["output"] for one in outputs] == list("01234")
    assert sorted(seen[:2]) == ["+0", "+1"]
    assert seen[4:6] == ["+2", "-2"]
    assert sorted(seen[6:8]) == ["+3", "+4"]


@pytest.mark.requirement("C28")
async def test_no_more_than_a_few_calls_run_on_one_server_at_a_time() -> None:
    most = 0
    now = 0

    async def busy() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        now -= 1

    await OpenAIResponsesTools([busy]).dispatch([call("busy", call_id=str(n)) for n in range(40)])

    assert most == 8


@pytest.mark.requirement("D18")
@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("broken", '{"reason": "rain"}', "Error: it broke: rain"),
        ("nothing", "{}", "Error: no tool 'nothing'"),
        ("add", '{"a": "x"}', "Error: invalid arguments for tool 'add'"),
        ("add", '{"a": 1', "Error: invalid arguments for tool 'add'"),
        ("add", "[1]", "Error: invalid arguments for tool 'add'"),
    ],
)
async def test_every_fault_is_an_answer_that_says_it_is_an_error(name: str, arguments: str, says: str) -> None:
    (output,) = await OpenAIResponsesTools(registry()).dispatch([call(name, arguments)])
    (answer,) = await OpenAIChatTools(registry()).dispatch(message(("c1", name, arguments)))

    assert str(output["output"]).startswith(says)
    assert answer["content"] == output["output"]


async def test_no_arguments_at_all_are_no_arguments() -> None:
    (output,) = await OpenAIResponsesTools(registry()).dispatch([call("whoami", "")])

    assert output["output"] == "timeout None"


@pytest.mark.requirement("C17")
async def test_an_image_goes_to_the_responses_api_and_is_a_note_for_the_chat_api() -> None:
    (output,) = await OpenAIResponsesTools(registry()).dispatch([call("picture")])
    (answer,) = await OpenAIChatTools(registry()).dispatch(message(("c1", "picture", "{}")))

    assert output["output"] == [
        {"type": "input_text", "text": "here it is"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
    ]
    assert OUTPUT.validate_python(output)
    assert answer == {"role": "tool", "tool_call_id": "c1", "content": "here it is\n[image: image/jpeg, 69 B]"}
    assert MESSAGE.validate_python(answer) == answer


async def test_a_model_that_sees_gets_the_images_of_the_chat_api_in_a_users_message() -> None:
    tools = OpenAIChatTools(registry(), images=True)
    text, picture, user = await tools.dispatch(message(("c1", "whoami", "{}"), ("c2", "picture", "{}")))

    assert (text["role"], picture["role"], user["role"]) == ("tool", "tool", "user")
    assert user.get("content") == [
        {"type": "text", "text": "From the result of tool 'picture':"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]
    assert TypeAdapter[Any](ChatCompletionUserMessageParam).validate_python(user)
    assert [one["role"] for one in await tools.dispatch(message(("c1", "whoami", "{}")))] == ["tool"]


async def test_a_whole_response_is_taken_and_what_is_no_call_is_left_alone() -> None:
    response = Response.model_validate(
        {
            "id": "r",
            "created_at": 0,
            "model": "m",
            "object": "response",
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "output": [
                {"type": "reasoning", "id": "x", "summary": []},
                {"type": "function_call", "name": "add", "arguments": '{"a": 1}', "call_id": "c9"},
            ],
        }
    )

    for given in (response, response.output, response.model_dump(), response.model_dump()["output"]):
        (output,) = await OpenAIResponsesTools(registry()).dispatch(given)
        assert output == {"type": "function_call_output", "call_id": "c9", "output": "3"}


async def test_a_chat_message_its_calls_and_the_same_as_json_are_taken() -> None:
    made = message(("c1", "add", '{"a": 1}'), ("c2", "add", '{"a": 2}'))
    expected = [{"role": "tool", "tool_call_id": f"c{n}", "content": str(n + 2)} for n in (1, 2)]

    choice = Choice(index=0, finish_reason="tool_calls", message=made)
    whole = ChatCompletion(id="x", created=0, model="m", object="chat.completion", choices=[choice])
    without_role = {"tool_calls": made.model_dump()["tool_calls"]}
    givens = [made, made.tool_calls, made.model_dump(), without_role["tool_calls"], without_role]
    for given in (*givens, whole, whole.model_dump()):
        assert await OpenAIChatTools(registry()).dispatch(given) == expected
    assert await OpenAIChatTools(registry()).dispatch(ChatCompletionMessage(role="assistant", content="hi")) == []


async def test_a_call_that_is_no_functions_is_answered_too() -> None:
    custom = {"id": "c1", "type": "custom", "custom": {"name": "x", "input": "y"}}

    (answer,) = await OpenAIChatTools(registry()).dispatch([custom])

    assert "Error" in str(answer["content"])
    assert "'custom'" in str(answer["content"])


async def test_strict_mode_is_asked_for_where_it_can_be_and_its_nulls_do_not_reach_the_tool() -> None:
    inner = registry()
    responses = OpenAIResponsesTools(inner, strict=True)
    (add, *_) = responses.definitions()
    (chat_add, *_) = OpenAIChatTools(inner, strict=True).definitions()

    (output,) = await responses.dispatch([call("add", {"a": 1, "b": None})])

    assert add["strict"] is True
    assert chat_add["function"].get("strict") is True
    assert set((add["parameters"] or {})["required"]) == {"a", "b"}  # type: ignore[call-overload]
    assert output["output"] == "3"


async def test_what_surrounds_the_calls_is_passed_on() -> None:
    tools = OpenAIResponsesTools(registry())

    (output,) = await tools.dispatch([call("whoami")], CallContext(timeout=7))

    assert output["output"] == "timeout 7"


def test_a_listing_shows_the_toolset_of_that_moment_and_is_the_callers_own() -> None:
    inner = ToolRegistry([tool(lambda: 1, name="one")])
    tools = OpenAIResponsesTools(inner)
    before = tools.definitions()
    before[0]["name"] = "mine"

    inner.add(tool(lambda: 2, name="two"))
    inner.remove("one")

    assert [one["name"] for one in tools.definitions()] == ["two"]
    assert [one["name"] for one in tools.definitions()] == ["two"]


def test_a_tool_that_the_api_cannot_take_is_left_out_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    inner = Scripted([spec("good"), spec("list", input_schema={"type": "array"})])

    with caplog.at_level(logging.WARNING, "toolweave"):
        tools = OpenAIResponsesTools(inner)

        assert [one["name"] for one in tools.definitions()] == ["good"]
    assert "must be an object" in tools.quarantined["list"]
    assert "list" in caplog.text


async def test_an_export_neither_opens_nor_closes_what_it_borrowed() -> None:
    inner = Scripted([spec("one")])
    tools = OpenAIResponsesTools(inner)

    tools.definitions()
    await tools.dispatch([call("one")])

    assert inner.open == 0


async def test_a_toolset_that_raises_is_answered_for_and_a_cancellation_is_not_swallowed() -> None:
    tools = OpenAIResponsesTools(Scripted([spec("one")], fault=RuntimeError("boom")))
    (output,) = await tools.dispatch([call("one")])
    assert "boom" in str(output["output"])

    async def forever() -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0) as scope:
        await OpenAIResponsesTools([forever]).dispatch([call("forever")])
    assert scope.cancelled_caught
