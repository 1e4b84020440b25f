"""A toolset for Anthropic's API, with the SDK's own types."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from anthropic.types import Message, ToolParam, ToolResultBlockParam
from pydantic import TypeAdapter

from tests.export.offers import PNG, Rendezvous, registry
from tests.tools.doubles import Scripted, spec
from toolweave import CallContext
from toolweave.providers import AnthropicTools
from toolweave.tools import EmbeddedResource

TOOL = TypeAdapter[Any](ToolParam)
RESULT = TypeAdapter[Any](ToolResultBlockParam)


def used(*calls: tuple[str, str, Any]) -> Message:
    return Message.model_validate(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "content": [
                {"type": "text", "text": "Let me see."},
                *({"type": "tool_use", "id": one, "name": name, "input": given} for one, name, given in calls),
            ],
        }
    )


@pytest.mark.requirement("R80", "C1")
def test_definitions_are_what_the_sdk_takes_under_names_that_the_api_takes() -> None:
    nameless = spec("no.text", description=" ")
    definitions = AnthropicTools([registry(), Scripted([nameless])]).definitions()

    assert [one["name"] for one in definitions] == ["add", "broken", "picture", "whoami", "odd_name", "no_text"]
    assert [TOOL.validate_python(one) for one in definitions] == definitions
    assert definitions[0].get("description") == "Adds two numbers."
    assert "description" not in definitions[-1]
    assert definitions[0]["input_schema"] == registry().snapshot()[0].input_schema


def test_strict_tools_are_those_whose_schemas_structured_outputs_can_express() -> None:
    anything = spec("anything", input_schema={"type": "object", "properties": {"x": {}}})
    definitions = AnthropicTools([registry(), Scripted([anything])], strict=True).definitions()

    strict = {one["name"]: one.get("strict", False) for one in definitions}
    assert (strict["add"], strict["anything"]) == (True, False)
    assert [TOOL.validate_python(one) for one in definitions] == definitions


async def test_arguments_with_names_that_the_api_refuses_reach_the_tool_under_their_own() -> None:
    names = ["$top", "filter[name]", "a b", "x" * 70]
    given = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": ["a b"]}
    toolset = Scripted([spec("odd", input_schema=given)])
    tools = AnthropicTools(toolset)

    [definition] = tools.definitions()
    schema: Any = definition["input_schema"]
    sent = schema["properties"]
    await tools.dispatch(used(("c", definition["name"], dict.fromkeys(sent, "v"))))

    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in sent)
    assert schema["required"] == ["a_b"]
    assert [call.arguments for call, _ in toolset.calls] == [dict.fromkeys(names, "v")]


def test_a_tool_that_the_api_has_no_words_for_is_left_out_with_its_reason() -> None:
    bad = spec("bad", input_schema={"type": "array"})
    tools = AnthropicTools(Scripted([spec("good"), bad]))

    assert [one["name"] for one in tools.definitions()] == ["good"]
    assert "array" in tools.quarantined["bad"]


@pytest.mark.requirement("R57", "C28")
async def test_the_calls_of_a_message_run_at_the_same_time_and_are_answered_in_order() -> None:
    tools = AnthropicTools([Rendezvous(4).meet])

    blocks = await tools.dispatch(used(*((f"t{n}", "meet", {"number": n}) for n in range(4))))

    assert [(one["tool_use_id"], one.get("content")) for one in blocks] == [
        (f"t{n}", [{"type": "text", "text": f"number {n}"}]) for n in range(4)
    ]
    assert not any("is_error" in one for one in blocks)


@pytest.mark.requirement("D18", "C17")
async def test_errors_are_flagged_and_images_are_images_of_the_type_they_are() -> None:
    message = used(("t1", "broken", {"reason": "rain"}), ("t2", "picture", {}), ("t3", "gone", {}), ("t4", "add", {}))

    blocks = await AnthropicTools(registry()).dispatch(message)
    (malformed,) = await AnthropicTools(registry()).dispatch(
        [{"type": "tool_use", "id": "t5", "name": "whoami", "input": [1]}]
    )

    assert malformed.get("is_error") is True
    assert "not a JSON object" in str(malformed.get("content"))
    assert [json.loads(RESULT.dump_json(RESULT.validate_python(one))) for one in blocks] == blocks
    assert blocks[0] == {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "it broke: rain"}],
        "is_error": True,
    }
    assert blocks[1].get("content") == [
        {"type": "text", "text": "here it is"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    ]
    assert [one.get("is_error", False) for one in blocks] == [True, False, True, True]


async def test_a_document_is_a_document() -> None:
    def read() -> EmbeddedResource:
        return EmbeddedResource(uri="file:///a.txt", mime_type="text/plain", text="the text")

    (block,) = await AnthropicTools([read]).dispatch(used(("t1", "read", {})))

    assert "the text" in str(block.get("content"))
    assert json.loads(RESULT.dump_json(RESULT.validate_python(block))) == block


async def test_a_message_its_blocks_and_the_same_as_json_are_taken() -> None:
    message = used(("t1", "add", {"a": 1}))

    for given in (message, message.content, message.model_dump(), message.model_dump()["content"]):
        (block,) = await AnthropicTools(registry()).dispatch(given, CallContext(timeout=3))
        assert block.get("content") == [{"type": "text", "text": "3"}]


async def test_a_tool_that_came_since_is_in_the_next_listing_and_one_that_went_is_an_error() -> None:
    inner = registry()
    tools = AnthropicTools(inner)
    tools.definitions()[-1]["cache_control"] = {"type": "ephemeral"}
    inner.remove("add")
    inner.add(lambda_free)

    (block,) = await tools.dispatch(used(("t1", "add", {"a": 1})))

    assert "no tool 'add'" in str(block.get("content"))
    assert [one["name"] for one in tools.definitions()][-1] == "lambda_free"
    assert not any("cache_control" in one for one in tools.definitions())


def lambda_free() -> str:
    """Came later."""
    return "later"
