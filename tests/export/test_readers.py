"""Every export gives a model what is for a model, and a repeated text once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.export import test_openai_agents, test_pydantic_ai
from tests.tools.readers import assert_for_the_model, report, twice
from toolweave import TextContent, ToolError, ToolResult
from toolweave.errors import ToolExecutionError
from toolweave.export import langchain_tools, plain_functions
from toolweave.providers import AnthropicTools, OpenAIChatTools, OpenAIResponsesTools
from toolweave.tools import ResourceLink


async def anthropic(tool: Any) -> str:
    block: dict[str, Any] = {"type": "tool_use", "id": "c", "name": tool.__name__, "input": {}}
    return json.dumps(await AnthropicTools([tool]).dispatch([block]))


async def openai_chat(tool: Any) -> str:
    call = {"type": "function", "id": "c", "function": {"name": tool.__name__, "arguments": "{}"}}
    return json.dumps(await OpenAIChatTools([tool]).dispatch({"role": "assistant", "tool_calls": [call]}))


async def openai_responses(tool: Any) -> str:
    item = {"type": "function_call", "call_id": "c", "name": tool.__name__, "arguments": "{}"}
    return json.dumps(await OpenAIResponsesTools([tool]).dispatch([item]))


async def openai_agents(tool: Any) -> str:
    model = await test_openai_agents.run([tool], test_openai_agents.call(tool.__name__))
    return str(list(model.outputs()))


async def langchain(tool: Any) -> str:
    (made,) = langchain_tools([tool])
    message = await made.ainvoke({"type": "tool_call", "id": "c", "name": made.name, "args": {}})
    return str(message.content)


async def pydantic_ai(tool: Any) -> str:
    _, (answer,) = await test_pydantic_ai.run([tool], [test_pydantic_ai.call(tool.__name__)])
    return str(answer.content)


async def plain(tool: Any) -> str:
    (function,) = plain_functions([tool])
    return str(await function())


def book() -> ToolResult:
    """Book a table."""
    words = "the booking failed"
    details = {"allowed": ["2026-12-02"]}
    return ToolResult(
        content=(TextContent(text=words),), structured_content=details, is_error=True, error=ToolError(words)
    )


EXPORTS = [anthropic, openai_chat, openai_responses, openai_agents, langchain, pydantic_ai, plain]


@pytest.mark.parametrize("export", EXPORTS)
async def test_no_export_gives_a_model_what_is_for_the_user(export: Any) -> None:
    assert_for_the_model(await export(report))


@pytest.mark.parametrize("export", EXPORTS)
async def test_every_export_gives_a_model_the_details_of_an_error(export: Any) -> None:
    try:
        read = await export(book)
    except ToolExecutionError as error:
        # The function itself raises; its frameworks give the message to a model.
        read = error.message

    assert read.count("the booking failed") == 1
    assert read.count("2026-12-02") == 1


@pytest.mark.parametrize("export", EXPORTS)
async def test_every_export_gives_a_repeated_text_once(export: Any) -> None:
    assert (await export(twice)).count("sum") == 1


HIDDEN = "\u202e\u200b\U000e0041\x1b\x7f\ud800"
WRITTEN = ("\\u202e", "\\u200b", "\\U000e0041", "\\x1b", "\\x7f", "\\ud800")


def hidden_text() -> ToolResult:
    """Report."""
    return ToolResult(content=(TextContent(text=f"seen{HIDDEN}"),))


def hidden_link() -> ToolResult:
    """Report."""
    return ToolResult(content=(ResourceLink(uri="file:///seen", name=f"seen{HIDDEN}"),))


def hidden_value() -> ToolResult:
    """Report."""
    return ToolResult(structured_content={"seen": HIDDEN.removesuffix("\ud800")})


@pytest.mark.parametrize("make", [hidden_text, hidden_link, hidden_value])
@pytest.mark.parametrize("export", EXPORTS)
async def test_every_export_writes_out_the_hidden_characters_of_every_kind_of_result(export: Any, make: Any) -> None:
    sent = (await export(make)).replace("\\\\", "\\")

    assert "seen" in sent
    assert not any(char in sent for char in HIDDEN)


@pytest.mark.parametrize("make", [hidden_text, hidden_link])
async def test_the_form_for_a_model_has_its_hidden_characters_written_out(make: Any) -> None:
    result = make().for_model()

    assert all(written in result.text for written in WRITTEN)
    assert result.for_model() is result
