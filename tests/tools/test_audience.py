"""A result's readers: what a model is given and what a person is shown, by the annotations of its blocks."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent import wires
from tests.agent.wires import WIRES, Wire
from tests.json_strategies import JSON
from tests.models.http_server import Answer, Received, serve
from tests.serve.serving import served_http
from tests.tools.readers import COMPACT, MODEL, PRETTY, SUM, USER, assert_for_the_model, picture, report, text, twice
from toolweave import Agent, ToolError, ToolResult, connect_mcp, create_mcp_server
from toolweave.agent import ToolFinished
from toolweave.models import ScriptedModel, ToolMessage, tool_call
from toolweave.tools import ContentBlock, EmbeddedResource, ResourceLink, ResultPolicy, UnknownContent
from toolweave.tools._truncation import fitted

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
    assert hidden.for_model().text == "(the tool failed; its message is for the user)"
    assert hidden.for_model().is_error


DETAILS = {"field": "date", "allowed": ["2026-12-01", "2026-12-02"]}


def refused(structured: Any = DETAILS, words: str = "the booking failed") -> ToolResult:
    return ToolResult(content=(text(words),), structured_content=structured, is_error=True, error=ToolError(words))


def book() -> ToolResult:
    """Book a table."""
    return refused()


def test_details_of_an_error_that_only_its_structured_content_has_are_read() -> None:
    result = refused()

    assert result.for_model().text == f"the booking failed\n{json.dumps(DETAILS)}"
    assert result.for_person().text == result.for_model().text
    assert result.for_model().for_model() == result.for_model()
    assert result.text == "the booking failed"


@pytest.mark.parametrize(
    "structured, words",
    [
        (DETAILS, json.dumps(DETAILS, indent=2)),
        (DETAILS, "date: choose 2026-12-01 or 2026-12-02"),
        ({"result": "no table\u202e"}, "Error: no table\u202e"),
        ({"code": 404, "ratio": 0.5, "ok": False, "next": None}, "code 404, ratio 0.5, ok false, next null"),
        ({}, "no"),
    ],
)
def test_details_that_the_text_of_an_error_has_are_not_repeated(structured: Any, words: str) -> None:
    result = refused(structured, words).for_model()

    assert len(result.content) == 1
    assert result.for_model() == result


@pytest.mark.parametrize("structured", [{"code": 4}, {"ok": True}, [False], 0, {"seen": "\u202e"}])
def test_a_detail_of_any_type_is_read(structured: Any) -> None:
    result = refused(structured, "error 404 of 44.4").for_model()

    assert len(result.content) == 2
    assert json.loads(result.content[1].render()) == structured
    assert result.for_model() == result


def test_details_of_an_error_have_a_greatest_length() -> None:
    result = refused({"trace": "x" * 50_000}).for_model()

    assert result.text.endswith("... (50,013 characters in all)")
    assert len(result.text) < 4_100
    assert result.for_model() == result


def test_a_shortened_error_has_its_details_once() -> None:
    policy = ResultPolicy(max_chars=600)
    cut, whole = fitted(refused(words="no " * 1_000), policy)

    assert whole is not None
    assert whole.endswith(json.dumps(DETAILS))
    assert len(cut.for_model().text) <= 600
    assert cut.for_model().text.count("2026-12-02") == 1


def test_details_that_are_no_json_do_not_hide_an_error() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert refused(deep).for_model().text.startswith("the booking failed\n[structured content")


@pytest.mark.parametrize("wire", WIRES)
async def test_every_wire_carries_the_details_of_an_error(wire: Wire) -> None:
    bodies: list[str] = []

    async def handle(request: Received) -> Answer:
        bodies.append(json.dumps(request.json))
        return wires.calls(wire, "book") if len(bodies) == 1 else wires.says(wire, "ok")

    server = create_mcp_server("tables", tools=[book])
    async with serve(handle) as api, wires.model_at(wire, api.url) as model, connect_mcp(server) as tools:
        await Agent(model, tools=[tools]).send("go")

    assert bodies[1].count("2026-12-02") == 1
    assert bodies[1].count("the booking failed") == 1


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


@pytest.mark.slow
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


@pytest.mark.parametrize("wire", WIRES)
async def test_no_wire_carries_what_is_for_the_user_and_events_do(wire: Wire) -> None:
    bodies: list[str] = []

    async def handle(request: Received) -> Answer:
        bodies.append(json.dumps(request.json, ensure_ascii=False))
        return wires.calls(wire, "report") if len(bodies) == 1 else wires.says(wire, "ok")

    async with serve(handle) as server, wires.model_at(wire, server.url) as model:
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
        await Agent(model, tools=[twice]).send("go")

    assert bodies[1].count("sum") == 1
    assert "in words" in bodies[1]


# from servers


@asynccontextmanager
async def reporting(protocol: str) -> AsyncGenerator[Any]:
    server = create_mcp_server("reports", tools=[report])
    async with served_http(server) as url, connect_mcp({"url": url, "protocol": protocol}) as tools:
        yield tools


@pytest.mark.parametrize("protocol", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_the_readers_of_a_servers_blocks_arrive_in_every_revision(protocol: str) -> None:
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
