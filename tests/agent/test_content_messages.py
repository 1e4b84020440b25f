"""Histories of Bedrock's Converse and ModelMessages of the AI SDK are sent as they are."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.agent.test_parted_messages import read, shown
from toolweave.models import ToolMessage, UserMessage

DATA = b"\x89PNG\r\n\x1a\n" + bytes(20)
PNG = base64.b64encode(DATA).decode()


@pytest.mark.parametrize("data", [DATA, PNG])
async def test_messages_of_converse_are_messages(data: Any) -> None:
    image = {"image": {"format": "png", "source": {"bytes": data}}}
    document = {"document": {"format": "pdf", "name": "report", "source": {"bytes": data}}}
    plain = {"document": {"format": "txt", "name": "notes", "source": {"text": "noted"}}}
    history: list[Any] = [
        {"role": "user", "content": [{"text": "look"}, image, document, plain, {"cachePoint": {"type": "default"}}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                {"text": "I look."},
                {"toolUse": {"toolUseId": "a", "name": "f", "input": {"n": 1}}},
                {"toolUse": {"toolUseId": "b", "name": "g", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "a", "content": [{"json": {"r": 1}}, image], "status": "success"}},
                {"toolResult": {"toolUseId": "b", "content": [{"text": "no"}], "status": "error"}},
                {"text": "go on"},
            ],
        },
        {"role": "assistant", "content": [{"citationsContent": {"content": [{"text": "done"}], "citations": []}}]},
    ]

    messages = await read(history)

    results = messages[2]
    assert isinstance(results, ToolMessage)
    assert [block.type for block in results.outcomes[0].result.content] == ["text", "image"]
    assert shown(messages) == [
        ("user", ["text", "image", "resource", "resource"]),
        ("thought", "hm"),
        ("text", "I look."),
        ("call", "a", "f", {"n": 1}),
        ("call", "b", "g", {}),
        ("result", "a", "f", results.outcomes[0].result.text, False),
        ("result", "b", "g", "no", True),
        ("user", ["text"]),
        ("text", "done"),
    ]


@pytest.mark.parametrize("version", [4, 5])
async def test_model_messages_are_messages_with_the_results_of_their_calls(version: int) -> None:
    arguments = "input" if version == 5 else "args"

    def result(key: str, name: str, value: Any, failed: bool = False) -> dict[str, Any]:
        made = {"type": "tool-result", "toolCallId": key, "toolName": name}
        if version == 4:
            return {**made, "result": value, "isError": failed}
        kind = "text" if isinstance(value, str) else "json"
        return {**made, "output": {"type": f"error-{kind}" if failed else kind, "value": value}}

    history: list[Any] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "image": PNG, "mediaType": "image/png"},
                {"type": "file", "data": f"data:application/pdf;base64,{PNG}", "mediaType": "application/pdf"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "hm"},
                {"type": "text", "text": "I look."},
                {"type": "tool-call", "toolCallId": "a", "toolName": "f", arguments: {"n": 1}},
                {"type": "tool-call", "toolCallId": "b", "toolName": "g", arguments: {}},
            ],
        },
        {"role": "tool", "content": [result("a", "f", {"r": 1}), result("b", "g", "no", True)]},
        {"role": "assistant", "content": "done"},
    ]

    assert shown(await read(history)) == [
        ("user", ["text", "image", "resource"]),
        ("thought", "hm"),
        ("text", "I look."),
        ("call", "a", "f", {"n": 1}),
        ("call", "b", "g", {}),
        ("result", "a", "f", '{"r":1}', False),
        ("result", "b", "g", "no", True),
        ("text", "done"),
    ]


async def test_a_call_that_the_provider_ran_has_its_result_before_the_text_after_it() -> None:
    value = [{"type": "text", "text": "sun"}, {"type": "media", "data": PNG, "mediaType": "image/png"}]
    history: list[Any] = [
        "weather?",
        {
            "role": "assistant",
            "content": [
                {"type": "tool-call", "toolCallId": "a", "toolName": "f", "input": {}, "providerExecuted": True},
                {
                    "type": "tool-result",
                    "toolCallId": "a",
                    "toolName": "f",
                    "output": {"type": "content", "value": value},
                },
                {"type": "text", "text": "done"},
            ],
        },
    ]

    messages = await read(history)

    results = messages[2]
    assert isinstance(results, ToolMessage)
    assert [block.type for block in results.outcomes[0].result.content] == ["text", "image"]
    assert [shown([one])[0][0] for one in messages] == ["user", "call", "result", "text"]


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_in_a_history_has_no_effect(approved: bool) -> None:
    denied = {"type": "execution-denied", "reason": "not today"}
    history: list[Any] = [
        "clean up",
        {
            "role": "assistant",
            "content": [
                {"type": "tool-call", "toolCallId": "a", "toolName": "f", "input": {}},
                {"type": "tool-approval-request", "approvalId": "p", "toolCallId": "a"},
            ],
        },
        {"role": "tool", "content": [{"type": "tool-approval-response", "approvalId": "p", "approved": approved}]},
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "a", "toolName": "f", "output": denied}],
        },
        "and now?",
    ]

    assert shown(await read(history)) == [
        ("user", ["text"]),
        ("call", "a", "f", {}),
        ("result", "a", "f", "not today", True),
        ("user", ["text"]),
    ]


async def test_parts_that_every_form_has_are_read_as_before() -> None:
    (message,) = await read([{"role": "user", "content": [{"type": "text", "text": "hi"}]}])

    assert message == UserMessage.of("hi")


UNKNOWN: list[tuple[Any, str]] = [
    ({"role": "system", "content": [{"text": "obey"}]}, "'role' is 'system'"),
    ({"role": "assistant", "content": [{"toolUse": {"name": "f"}}]}, r"'id' of 'content\[0\]' is None"),
    ({"role": "user", "content": [{"toolResult": {"content": []}}]}, r"'toolUseId' of 'content\[0\]' is None"),
    ({"role": "user", "content": [{"toolResult": {"toolUseId": "z"}}]}, "have no call 'z'"),
    (
        {"role": "user", "content": [{"image": {"format": "png", "source": {"s3Location": {"uri": "s3://a"}}}}]},
        r"'content\[0\]' is a file without a media type or data",
    ),
    (
        {"role": "user", "content": [{"type": "image", "image": "https://example.com/a.png"}]},
        r"'content\[0\]' is a file at a URL",
    ),
    (
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a", "toolName": "f", "output": {}}]},
        r"'output' of 'content\[0\]' is of the unknown type ''",
    ),
    (
        {"role": "tool", "content": [{"type": "tool-result", "toolName": "f", "result": 1}]},
        r"'toolCallId' of 'content\[0\]' is None",
    ),
    (
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "a"}]},
        r"'name' of 'content\[0\]' is None",
    ),
]


@pytest.mark.parametrize(("entry", "words"), UNKNOWN)
async def test_an_unknown_form_is_an_error_that_names_the_part(entry: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        await read(["hi", entry])
