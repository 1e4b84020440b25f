"""The fake is like the real thing: OpenAI's own library understands it, and it refuses what the API refuses."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from tests.models.fake_openai import KEY, call, chat_turn, fake_openai, responses_turn
from tests.models.openai_rules import Refused, check_chat, check_responses

USER = {"role": "user", "content": "x"}
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def chat(messages: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": [USER, *(messages or [])], **more}


def tool(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": NO_PARAMETERS, **more}}


def asked(*ids: str, arguments: Any = "{}") -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": arguments}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def done(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@pytest.mark.slow
async def test_openais_library_reads_the_fakes_chat_streams() -> None:
    turn = chat_turn({"content": "Hi"}, call(0, "c", "f", '{"a"'), call(0, None, None, ": 1}"), finish="tool_calls")
    async with (
        fake_openai(turn) as fake,
        AsyncOpenAI(api_key=KEY, base_url=fake.url, max_retries=0) as client,
        client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "x"}]) as stream,
    ):
        final = await stream.get_final_completion()

    message = final.choices[0].message
    assert message.content == "Hi"
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"a": 1}'


@pytest.mark.slow
async def test_openais_library_reads_the_fakes_responses_streams() -> None:
    text: dict[str, Any] = {"type": "output_text", "text": "Hi", "annotations": []}
    message: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    wanted = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
    turn = responses_turn(message, wanted)
    async with fake_openai(turn) as fake, AsyncOpenAI(api_key=KEY, base_url=fake.url, max_retries=0) as client:
        stream = await client.responses.create(model="m", input="x", stream=True, store=False)
        events = [event async for event in stream]

    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["Hi"]
    (completed,) = [event.response for event in events if event.type == "response.completed"]
    assert completed.output_text == "Hi"
    assert completed.usage is not None
    assert completed.usage.input_tokens_details.cached_tokens == 5


async def test_openais_library_reads_the_fakes_refusals() -> None:
    async with fake_openai() as fake, AsyncOpenAI(api_key=KEY, base_url=fake.url, max_retries=0) as client:
        with pytest.raises(BadRequestError, match="maximum length 128") as caught:
            await client.chat.completions.create(
                model="m",
                stream=True,
                messages=[{"role": "user", "content": "x"}],
                tools=[{"type": "function", "function": {"name": f"t{n}"}} for n in range(129)],
            )

    assert caught.value.code == "array_above_max_length"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (chat(tools=[tool("a.b")]), "does not match pattern"),
        (chat(tools=[tool("x" * 65)]), "does not match pattern"),
        (chat(tools=[tool(), tool()]), "Duplicate"),
        (chat(tools=[]), "empty array"),
        (chat(tools=[tool(description="x" * 1025)]), "maximum length 1024"),
        (chat(tools=[tool(parameters={"type": "object"})]), "missing properties"),
        (chat(tools=[tool(parameters={"type": "array", "items": {}})]), "'type: \"object\"'"),
        (chat(tools=[tool(parameters={**NO_PARAMETERS, "anyOf": [{}]})]), "at the top level"),
        (chat(tools=[tool(parameters={"type": "object", "properties": {"a": {"type": "array"}}})]), "missing items"),
        (chat(tools=[tool(parameters={"type": "object", "properties": {"a": {"$ref": "#/x"}}})]), "reference"),
        (chat(tools=[tool(strict=True)]), "additionalProperties"),
        (chat(tool_choice="auto"), "only allowed when 'tools'"),
        (chat(tools=[tool()], tool_choice={"type": "function", "function": {"name": "g"}}), "not found in 'tools'"),
        (chat([asked("a", "b"), done("a")]), "did not have response messages: b"),
        (chat([asked("a"), USER, done("a")]), "did not have response messages: a"),
        (chat([asked("a"), done("a"), done("a")]), "must be a response"),
        (chat([done("a")]), "must be a response"),
        (chat([asked("a", arguments={}), done("a")]), "expected a string"),
        (chat([asked("a", arguments="{'a'"), done("a")]), "not valid JSON"),
        (chat([asked("x" * 41), done("x" * 41)]), "maximum length 40"),
        (chat([asked("a"), done("a", [{"type": "image_url"}])]), "text alone"),
        (chat([{"role": "function", "content": "x"}]), "Invalid value: 'function'"),
        (chat([{"role": "assistant", "content": None}]), "got null"),
        (chat([{"role": "user", "content": [{"type": "image"}]}]), "Invalid value: 'image'"),
        (chat(odd=1), "Unrecognized request argument"),
        (chat(messages=[{"role": "assistant", "content": "x", "reasoning_content": "y"}]), "Unknown parameter"),
    ],
)
def test_chat_completions_refuses(body: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        check_chat(body)


CALL: dict[str, Any] = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "c", "output": "ok"}
SAYS: dict[str, Any] = {"type": "message", "role": "user", "content": "x"}
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "g"}


BROKEN: list[tuple[list[Any], str]] = [
    ([CALL], "No tool output found"),
    ([CALL, SAYS, OUTPUT], "No tool output found"),
    ([OUTPUT], "No tool call found"),
    ([CALL, OUTPUT, OUTPUT], "No tool call found"),
    ([{**CALL, "arguments": {}}, OUTPUT], "expected a string"),
    ([{**THOUGHT, "encrypted_content": None}, SAYS], "not persisted"),
    ([SAYS, THOUGHT], "required following item"),
    ([{"type": "odd"}], "Invalid value: 'odd'"),
]


@pytest.mark.parametrize(("items", "words"), BROKEN)
def test_responses_refuses(items: list[Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        check_responses({"model": "m", "stream": True, "store": False, "input": items})


def test_what_is_in_order_is_taken() -> None:
    check_chat(chat([asked("a", "b"), done("b"), done("a"), USER], tools=[tool()], tool_choice="required"))
    check_responses({"model": "m", "stream": True, "store": False, "input": [SAYS, THOUGHT, CALL, OUTPUT, SAYS]})
