"""A result's readers: what a model is given and what a person is shown, by the annotations of its blocks."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.export import test_openai_agents, test_pydantic_ai
from tests.export.offers import PNG
from tests.json_strategies import JSON
from tests.models.http_server import Answer, Received, serve
from tests.serve.serving import served_http
from toolweave import Agent, ImageContent, TextContent, ToolError, ToolResult, connect_mcp, create_mcp_server
from toolweave.agent import ToolFinished
from toolweave.export import (
    AnthropicTools,
    OpenAIChatTools,
    OpenAIResponsesTools,
    langchain_tools,
    plain_functions,
)
from toolweave.models import ScriptedModel, ToolMessage, tool_call
from toolweave.tools import ContentBlock, EmbeddedResource, ResourceLink, UnknownContent

pytestmark = pytest.mark.anyio

USER = {"audience": ["user"]}
MODEL = {"audience": ["assistant"], "priority": 0.5}
SUM = {"sum": 42, "of": ["a", True]}
PRETTY, COMPACT = json.dumps(SUM, indent=2), json.dumps(SUM, separators=(",", ":"))


def text(words: str, annotations: Any = None) -> TextContent:
    return TextContent(text=words, annotations=annotations)


def picture(annotations: Any = None) -> ImageContent:
    return ImageContent(data=PNG, mime_type="image/png", annotations=annotations)


def report() -> list[ContentBlock]:
    """Report."""
    return [text("raw figures", MODEL), text("a fine table", USER), picture(USER), text("done")]


def twice() -> ToolResult:
    """Add."""
    return ToolResult(content=(text(PRETTY), text("in words"), text(COMPACT)), structured_content=SUM)


NAMES: list[Any] = [[], "user", ["nobody"], [1, ["user"]]]
NAMES_NOBODY: list[Any] = [None, {}, *({"audience": named} for named in NAMES)]


@pytest.mark.parametrize("annotations", NAMES_NOBODY)
def test_a_block_that_names_no_reader_is_for_both(annotations: Any) -> None:
    result = ToolResult(content=(text("a", annotations), text("b", {"audience": ["user", "assistant"]})))

    assert result.for_model() is result
    assert result.for_person() is result


def test_each_reader_gets_the_blocks_that_name_it_in_their_order() -> None:
    result = ToolResult.of(report())

    assert result.for_model().text == "raw figures\ndone"
    assert [block.type for block in result.for_person().content] == ["text", "image", "text"]
    assert len(result.content) == 4


def test_a_block_of_an_unknown_type_has_its_readers_too() -> None:
    raw = {"type": "hologram", "annotations": USER}
    result = ToolResult(content=(UnknownContent(type="hologram", raw=raw), text("x")))

    assert result.for_model().text == "x"


@pytest.mark.parametrize("structured, read", [(None, "(the result is for the user to see)"), (SUM, json.dumps(SUM))])
def test_a_model_of_whom_all_is_kept_reads_the_structured_content_or_a_note(structured: Any, read: str) -> None:
    result = ToolResult(content=(picture(USER), text("a fine table", USER)), structured_content=structured)

    assert result.for_model().text == read


def test_structured_content_beside_a_picture_alone_is_read_with_it() -> None:
    result = ToolResult(content=(picture(),), structured_content=SUM).for_model()

    assert [block.type for block in result.content] == ["text", "image"]
    assert json.loads(result.content[0].render()) == SUM


def test_an_error_is_never_silent_for_anybody() -> None:
    result = ToolResult(content=(text("for you", USER), text("for the model", MODEL)), is_error=True)
    hidden = ToolResult(content=(text("for you", USER),), is_error=True)

    assert result.for_model().text == "for the model"
    assert result.for_person() is result
    assert hidden.for_model().text == "(the tool failed; what it says of it is for the user to see)"
    assert hidden.for_model().is_error


def test_texts_that_repeat_the_structured_content_count_once() -> None:
    result = twice()

    assert result.for_model().text == f"{PRETTY}\nin words"
    assert result.for_person().text == f"{PRETTY}\nin words"
    assert result.text.count("sum") == 2


@pytest.mark.parametrize(
    "other",
    ['{"sum": 42, "of": ["a", 1]}', '{"sum": 42}', '{"sum": 42, "of": "a"}', "{", "[" * 100_000, " " * 1_000_001],
)
def test_a_text_that_says_anything_else_is_kept(other: str) -> None:
    result = ToolResult(content=(text(PRETTY), text(other)), structured_content=SUM)

    assert result.for_model() is result


def test_a_resource_or_a_link_with_the_same_words_is_no_repetition() -> None:
    resource = EmbeddedResource(uri="file:///sum.json", text=COMPACT)
    result = ToolResult(content=(text(PRETTY), resource, ResourceLink(uri=COMPACT)), structured_content=SUM)

    assert result.for_model() is result


def test_structured_content_that_is_no_json_is_still_told() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    result = ToolResult(content=(picture(),), structured_content=deep)

    assert "nested too deeply" in result.for_model().text


blocks = st.builds(
    text,
    st.one_of(st.text(max_size=5), JSON.map(json.dumps)),
    st.sampled_from([None, USER, MODEL, {"audience": ["user", "assistant"]}]),
)


@given(content=st.lists(blocks, max_size=4), structured=st.one_of(st.none(), JSON), error=st.booleans())
def test_a_form_is_its_own_form_and_holds_no_block_of_the_others(
    content: list[ContentBlock], structured: Any, error: bool
) -> None:
    result = ToolResult(content=tuple(content), structured_content=structured, is_error=error)
    model, person = result.for_model(), result.for_person()

    assert model.for_model() == model
    assert person.for_person() == person
    assert all("assistant" in block.audience for block in model.content)
    assert error or all("user" in block.audience for block in person.content)
    assert not content or model.content
    assert (model.structured_content, model.is_error) == (structured, error)


# what leaves the house


SECRET = ("a fine table", PNG)


def assert_for_the_model(sent: str) -> None:
    assert "raw figures" in sent
    assert "done" in sent
    assert not any(words in sent for words in SECRET)


@pytest.mark.parametrize("wire", WIRES)
async def test_no_wire_carries_what_is_for_the_user_and_events_do(wire: Wire) -> None:
    bodies: list[str] = []

    async def handle(request: Received) -> Answer:
        bodies.append(json.dumps(request.json, ensure_ascii=False))
        return wires.calls(wire, "report") if len(bodies) == 1 else wires.says(wire, "ok")

    async with serve(handle) as server, wires.model_at(wire, server.url) as model:
        with anyio.fail_after(60):
            run = Agent(model, tools=[report]).send("go")
            (seen,) = [event.result async for event in run if isinstance(event, ToolFinished)]

    assert_for_the_model(bodies[1])
    assert "a fine table" in seen.for_person().text


async def test_an_agent_keeps_a_result_whole_for_its_user_when_the_rest_is_short() -> None:
    agent = Agent(ScriptedModel([tool_call("report"), "done"]), tools=[report])
    result = await agent.send("go")
    (message,) = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert "a fine table" in message.outcomes[0].result.for_person().text
    assert "a fine table" not in message.outcomes[0].result.for_model().text


@pytest.mark.parametrize("wire", WIRES)
async def test_every_wire_carries_a_repeated_text_once(wire: Wire) -> None:
    bodies: list[str] = []

    async def handle(request: Received) -> Answer:
        bodies.append(json.dumps(request.json))
        return wires.calls(wire, "twice") if len(bodies) == 1 else wires.says(wire, "ok")

    async with serve(handle) as server, wires.model_at(wire, server.url) as model:
        with anyio.fail_after(60):
            await Agent(model, tools=[twice]).send("go")

    assert bodies[1].count("sum") == 1
    assert "in words" in bodies[1]


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


EXPORTS = [anthropic, openai_chat, openai_responses, openai_agents, langchain, pydantic_ai, plain]


@pytest.mark.parametrize("export", EXPORTS)
async def test_no_export_gives_a_model_what_is_for_the_user(export: Any) -> None:
    assert_for_the_model(await export(report))


@pytest.mark.parametrize("export", EXPORTS)
async def test_every_export_gives_a_repeated_text_once(export: Any) -> None:
    assert (await export(twice)).count("sum") == 1


# from servers


@asynccontextmanager
async def reporting(protocol: str) -> AsyncGenerator[Any]:
    server = create_mcp_server("reports", tools=[report])
    async with served_http(server) as url, connect_mcp({"url": url, "protocol": protocol}) as tools:
        yield tools


@pytest.mark.parametrize("protocol", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_the_readers_of_a_servers_blocks_arrive_in_every_revision(protocol: str) -> None:
    with anyio.fail_after(60):
        async with reporting(protocol) as tools:
            result = await tools.execute("report")

    assert result.for_model().text == "raw figures\ndone"
    assert result.for_person().text.startswith("a fine table\n[image: image/png")


async def test_an_agent_whose_server_fails_for_the_user_alone_knows_that_it_failed() -> None:
    def fails() -> ToolResult:
        """Fail."""
        return ToolResult(content=(text("your card was refused", USER),), is_error=True, error=ToolError("refused"))

    async with served_http(create_mcp_server("bank", tools=[fails])) as url, connect_mcp(url) as tools:
        result = await tools.execute("fails")

    assert "your card was refused" in result.for_person().text
    assert "card" not in result.for_model().text
