"""Histories of pairs, of Gemini's contents and of UI messages of the AI SDK are sent as they are."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from toolweave import Agent
from toolweave.models import (
    AssistantMessage,
    Message,
    ScriptedModel,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()


async def read(sent: Any) -> list[Message]:
    """Return the messages that a model is given of a history."""
    model = ScriptedModel(["ok"])
    await Agent(model).send(sent)
    return list(model.requests[0].messages)


def shown(messages: list[Message]) -> list[Any]:
    """Return the calls, results and texts of messages in a form that can be compared."""
    found: list[Any] = []
    for message in messages:
        if isinstance(message, UserMessage):
            found.append(("user", [block.type for block in message.content]))
        elif isinstance(message, ToolMessage):
            found += [_result(one) for one in message.outcomes]
        else:
            found += [_part(part) for part in message.parts]
    return found


def _result(one: ToolOutcome) -> Any:
    return "result", one.call_id, one.name, one.result.text, one.result.is_error


def _part(part: object) -> Any:
    if isinstance(part, ToolCallPart):
        return "call", part.id, part.name, dict(part.arguments)
    assert isinstance(part, (TextPart, ThinkingPart))
    return "thought" if isinstance(part, ThinkingPart) else "text", part.text


@pytest.mark.parametrize("roles", [("human", "ai"), ("user", "assistant")])
async def test_pairs_of_a_role_and_a_text_are_messages(roles: tuple[str, str]) -> None:
    messages = await read([(roles[0], "hi"), (roles[1], "hello"), (roles[0], [{"type": "text", "text": "bye"}])])

    assert [type(one) for one in messages] == [UserMessage, AssistantMessage, UserMessage]


@pytest.mark.parametrize("camel", [True, False])
async def test_contents_of_gemini_are_messages_and_calls_without_an_id_have_one(camel: bool) -> None:
    call, response, data = ("functionCall", "functionResponse", "inlineData")
    if not camel:
        call, response, data = ("function_call", "function_response", "inline_data")
    mime_type = "mimeType" if camel else "mime_type"
    history: list[Any] = [
        {"role": "user", "parts": [{"text": "look"}, {data: {mime_type: "image/png", "data": PNG}}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {call: {"name": "f", "args": {"n": 1}}}]},
        {"role": "user" if camel else "function", "parts": [{response: {"name": "f", "response": {"r": 1}}}]},
        {"role": "model", "parts": [{call: {"name": "f", "args": {"n": 2}}}, {call: {"name": "g", "id": "own"}}]},
        {
            "role": "user",
            "parts": [
                {response: {"name": "g", "id": "own", "response": {"r": 3}}},
                {response: {"name": "f", "response": {"r": 2}}},
            ],
        },
        {"role": "model", "parts": [{"text": "done"}]},
    ]

    assert shown(await read(history)) == [
        ("user", ["text", "image"]),
        ("thought", "hm"),
        ("call", "call_1", "f", {"n": 1}),
        ("result", "call_1", "f", '{"r": 1}', False),
        ("call", "call_2", "f", {"n": 2}),
        ("call", "own", "g", {}),
        ("result", "own", "g", '{"r": 3}', False),
        ("result", "call_2", "f", '{"r": 2}', False),
        ("text", "done"),
    ]


async def test_ui_messages_are_messages_with_the_results_of_their_calls() -> None:
    history: list[Any] = [
        {
            "id": "1",
            "role": "user",
            "parts": [
                {"type": "text", "text": "look"},
                {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}"},
                {"type": "data-weather", "data": {}},
            ],
        },
        {
            "id": "2",
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "hm"},
                {
                    "type": "tool-f",
                    "toolCallId": "a",
                    "state": "output-available",
                    "input": {"n": 1},
                    "output": {"r": 1},
                },
                {
                    "type": "dynamic-tool",
                    "toolName": "g",
                    "toolCallId": "b",
                    "state": "output-error",
                    "errorText": "no",
                },
                {"type": "tool-f", "toolCallId": "c", "state": "input-streaming"},
                {"type": "step-start"},
                {"type": "text", "text": "done"},
                {
                    "type": "tool-invocation",
                    "toolInvocation": {
                        "state": "result",
                        "toolCallId": "d",
                        "toolName": "h",
                        "args": {},
                        "result": "r",
                    },
                },
            ],
        },
    ]

    assert shown(await read(history)) == [
        ("user", ["text", "image"]),
        ("thought", "hm"),
        ("call", "a", "f", {"n": 1}),
        ("call", "b", "g", {}),
        ("result", "a", "f", '{"r":1}', False),
        ("result", "b", "g", "no", True),
        ("text", "done"),
        ("call", "d", "h", {}),
        ("result", "d", "h", "r", False),
    ]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (("narrator", "hi"), "'role' is 'narrator'"),
        (("system", "obey"), "'role' is 'system'"),
        ({"role": "system", "parts": [{"type": "text", "text": "obey"}]}, "'role' is 'system'"),
        ({"role": "model", "parts": [{"hologram": 1}]}, r"'parts\[0\]' has the members \['hologram'\]"),
        ({"role": "model", "parts": [{"text": "a"}, 5]}, r"'parts\[1\]' is not an object"),
        ({"role": "assistant", "parts": [{"type": "hologram"}]}, r"'parts\[0\]' is of the unknown type 'hologram'"),
        ({"role": "assistant", "parts": [{"type": "tool-f", "state": "input-available"}]}, r"'id' of 'parts\[0\]'"),
        ({"role": "user", "parts": [{"inlineData": {"data": 5}}]}, r"'parts\[0\]' is a file without a media type"),
        ({"role": "user", "parts": [{"functionResponse": {"name": "f"}}]}, "have no call of 'f'"),
    ],
)
async def test_an_unknown_form_is_an_error_that_names_the_member(entry: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        await read(["hi", entry])


def invocation(key: str, **more: Any) -> dict[str, Any]:
    """Return an entry of `toolInvocations`, as version 4 of the AI SDK stores it."""
    return {"toolCallId": key, "toolName": "f", "args": {"n": 1}, "state": "result", "result": key, **more}


async def test_a_ui_message_with_its_calls_beside_its_text_is_the_calls_their_results_and_the_text() -> None:
    history = [
        {"id": "1", "role": "user", "content": "go"},
        {
            "id": "2",
            "role": "assistant",
            "content": "done",
            "reasoning": "hm",
            "toolInvocations": [invocation("a", result={"r": 1}), invocation("b", result="two")],
        },
    ]

    assert shown(await read(history)) == [
        ("user", ["text"]),
        ("thought", "hm"),
        ("call", "a", "f", {"n": 1}),
        ("call", "b", "f", {"n": 1}),
        ("result", "a", "f", '{"r":1}', False),
        ("result", "b", "f", "two", False),
        ("text", "done"),
    ]


async def test_the_calls_of_a_ui_message_are_grouped_by_the_steps_of_its_turn() -> None:
    calls = [invocation("a", step=0), invocation("c", step=1), invocation("b", step=0)]
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "toolInvocations": calls},
    ]

    found = shown(await read(history))

    assert [one[:2] for one in found[1:]] == [
        ("call", "a"),
        ("call", "b"),
        ("result", "a"),
        ("result", "b"),
        ("call", "c"),
        ("result", "c"),
    ]


@pytest.mark.parametrize("members", [{"toolInvocations": []}, {"toolInvocations": None}, {"parts": []}, {}])
async def test_a_ui_message_without_calls_is_its_text(members: dict[str, Any]) -> None:
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "yes", **members}]

    found = shown(await read(history))

    assert found == [("user", ["text"])] + ([] if "parts" in members else [("text", "yes")])


async def test_a_call_whose_arguments_were_still_streamed_is_left_out() -> None:
    calls = [invocation("a"), invocation("b", state="partial-call", result=None)]
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "done", "toolInvocations": calls},
    ]

    assert [one[:2] for one in shown(await read(history))[1:]] == [("call", "a"), ("result", "a"), ("text", "done")]


async def test_files_beside_the_text_of_a_ui_message_are_blocks_after_it() -> None:
    files = [{"name": "a.png", "contentType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="}]
    history = [{"role": "user", "content": "look", "experimental_attachments": files}]

    assert shown(await read(history)) == [("user", ["text", "image"])]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"toolInvocations": ["a"]}, "'toolInvocations[0]' is not an object"),
        ({"toolInvocations": [invocation("a", toolCallId=None)]}, "'id' of 'toolInvocations[0]' is None"),
    ],
)
async def test_a_call_of_a_ui_message_that_is_not_one_is_named(entry: Any, words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        await read([{"role": "user", "content": "go"}, {"role": "assistant", "content": "", **entry}])
