"""Tools that are loaded when they are wanted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.doubles import Scripted, spec
from toolweave import CallContext, ErrorKind, TextContent, ToolCall, ToolResult, ToolsChanged, Toolset, ToolSpec
from toolweave.agent._loop.tool_search import ToolSearchToolset
from toolweave.models import AssistantMessage, Message, ToolCallPart, ToolMessage, ToolOutcome, UserMessage

SMALL = [spec(name, description="Small.") for name in ("one", "two")]
MANY = [
    spec("read_file", description="Returns what a file holds.\n\nMore about it."),
    spec("write_file", description="Puts text into a file."),
    spec("forecast", server="weather", description="Says how warm it will be."),
    spec("local", server=None, description="A function of this process."),
]


def deferred(*specs: ToolSpec, budget: int = 20, **more: Any) -> tuple[Scripted, ToolSearchToolset]:
    inner = Scripted(specs)
    return inner, ToolSearchToolset(inner, budget_tokens=budget, **more)


def names(toolset: Toolset) -> list[str]:
    return [tool.name for tool in toolset.snapshot()]


async def run(toolset: Toolset, name: str, **arguments: Any) -> ToolResult:
    return await toolset.call(ToolCall(name=name, arguments=arguments, id="id-1"), CallContext(timeout=2))


def test_below_the_budget_nothing_changes() -> None:
    inner, view = deferred(*SMALL, budget=1000)

    assert isinstance(view, Toolset)
    assert view.snapshot() is inner.snapshot()
    assert not view.active
    assert view.offered(native=True).tools is inner.snapshot()
    assert view.offered(native=True).deferred == frozenset()


def test_above_the_budget_there_is_one_tool_that_says_where_the_others_are() -> None:
    _, view = deferred(*MANY)

    (search,) = view.snapshot()

    assert view.active
    assert search.name == "search_tools"
    assert search.hint("readOnlyHint") is True
    assert "4 tools" in search.description
    assert "files (2), weather (1), no server (1)" in search.description


def test_more_tools_than_a_provider_takes_are_deferred_whatever_their_size() -> None:
    inner, view = deferred(*(spec(f"t{number}") for number in range(128)), budget=10**9)
    assert not view.active

    inner.offer(*(spec(f"t{number}") for number in range(129)))

    assert view.active


async def test_what_a_search_finds_is_there_from_then_on() -> None:
    inner, view = deferred(*MANY)

    result = await run(view, "search_tools", query="what a file holds", limit=1)

    assert not result.is_error
    assert result.structured_content == {"tools": [{"name": "read_file"}]}
    assert "- read_file: Returns what a file holds." in result.text
    assert "More about it" not in result.text
    assert names(view) == ["search_tools", "read_file"]
    assert view.snapshot()[1] is inner.snapshot()[0]
    await run(view, "search_tools", query="warm")
    assert names(view) == ["search_tools", "read_file", "forecast"]
    assert inner.calls == []


async def test_a_search_without_a_hit_says_what_to_try() -> None:
    _, view = deferred(*MANY)

    result = await run(view, "search_tools", query="zebra")

    assert not result.is_error
    assert result.structured_content == {"tools": []}
    assert "other words" in result.text


@pytest.mark.parametrize("arguments", [{}, {"query": 3}, {"query": "a", "limit": 0}, {"query": "a", "words": "b"}])
async def test_malformed_arguments_of_a_search_are_a_result_the_model_can_read(arguments: dict[str, Any]) -> None:
    _, view = deferred(*MANY)

    result = await run(view, "search_tools", **arguments)

    assert result.require_error().kind is ErrorKind.INVALID_INPUT
    assert names(view) == ["search_tools"]


async def test_a_tool_that_was_not_loaded_can_be_called_and_stays() -> None:
    inner, view = deferred(*MANY)

    result = await run(view, "forecast", city="Oslo")

    assert result.text == "forecast ran"
    assert inner.calls[0][0] == ToolCall(name="forecast", arguments={"city": "Oslo"}, id="id-1")
    assert inner.calls[0][1].timeout == 2
    assert names(view) == ["search_tools", "forecast"]


async def test_a_name_that_no_tool_has_is_not_loaded() -> None:
    _, view = deferred(*MANY)

    await run(view, "frobnicate")

    assert view.loaded == ()


def test_definitions_are_found_shown_or_not() -> None:
    inner, view = deferred(*MANY)

    assert view.find("forecast") is inner.snapshot().find("forecast")
    assert view.find("search_tools") is view.snapshot()[0]
    assert view.find("frobnicate") is None


async def conversation(view: ToolSearchToolset) -> list[Message]:
    """A user's question, a search, a call of something else, and an answer."""
    found = await run(view, "search_tools", query="warm")
    return [
        UserMessage.of("hi"),
        AssistantMessage(
            parts=(
                ToolCallPart(id="1", name="search_tools", arguments={"query": "warm"}),
                ToolCallPart(id="2", name="write_file"),
            )
        ),
        ToolMessage(
            outcomes=(
                ToolOutcome(call_id="1", name="search_tools", result=found),
                ToolOutcome(call_id="2", name="write_file", result=ToolResult.of("done")),
            )
        ),
    ]


async def test_a_resumed_conversation_has_what_it_loaded_from_its_messages_alone() -> None:
    _, before = deferred(*MANY)
    messages = await conversation(before)
    _, after = deferred(*MANY)

    after.restore(messages)
    again = names(after)
    after.restore(messages)

    assert again == ["search_tools", "write_file", "forecast"]
    assert after.loaded == ("write_file", "forecast")
    assert names(after) == again


@pytest.mark.parametrize(
    "data", [None, [], {"tools": 3}, {"tools": [3, {}, {"name": 4}]}, {"tools": [{"name": "gone"}]}]
)
async def test_an_odd_or_outdated_search_result_in_a_conversation_loads_nothing(data: Any) -> None:
    _, view = deferred(*MANY)
    odd = ToolResult(content=(TextContent(text="?"),), structured_content=data)

    view.restore([ToolMessage(outcomes=(ToolOutcome(call_id="1", name="search_tools", result=odd),))])

    assert names(view) == ["search_tools"]


def test_tools_that_are_always_wanted_are_always_shown() -> None:
    _, view = deferred(*MANY, always=("local", "absent"))

    assert names(view) == ["search_tools", "local"]


def test_a_provider_that_searches_by_itself_gets_all_tools_and_the_names_to_defer() -> None:
    inner, view = deferred(*MANY, always=("local",))
    view.load("forecast")

    offered = view.offered(native=True)

    assert offered.tools is inner.snapshot()
    assert offered.deferred == {"read_file", "write_file"}
    assert [tool.name for tool in view.offered().tools] == ["search_tools", "local", "forecast"]
    assert view.offered().deferred == frozenset()


async def test_tools_that_come_and_go_are_seen_and_the_version_only_grows() -> None:
    inner, view = deferred(*SMALL, budget=60)
    versions = [view.snapshot().version]
    seen: list[ToolsChanged] = []
    unsubscribe = view.subscribe(seen.append)

    inner.offer(*MANY)
    versions.append(view.snapshot().version)
    await run(view, "search_tools", query="warm")
    versions.append(view.snapshot().version)
    inner.offer(*MANY[:2])
    versions.append(view.snapshot().version)
    inner.offer(*SMALL)
    versions.append(view.snapshot().version)
    unsubscribe()
    inner.offer(*MANY)

    assert [(change.added, change.removed) for change in seen] == [
        (("search_tools",), ("one", "two")),
        (("forecast",), ()),
        (("read_file", "write_file"), ("search_tools", "forecast")),
        (("one", "two"), ("read_file", "write_file")),
    ]
    assert versions == sorted(set(versions))
    assert names(view) == ["search_tools", "forecast"]


async def test_a_tool_that_is_called_search_tools_keeps_its_name() -> None:
    inner, view = deferred(*MANY, spec("search_tools", description="The server's own."))

    assert names(view) == ["search_tools_2"]
    assert (await run(view, "search_tools", query="x")).text == "search_tools ran"
    assert (await run(view, "search_tools_2", query="warm")).structured_content == {"tools": [{"name": "forecast"}]}
    assert len(inner.calls) == 1


async def test_the_view_borrows_its_toolset_and_passes_entering_on() -> None:
    inner, view = deferred(*MANY)

    async with view as entered:
        assert entered is view
        assert inner.open == 1

    assert inner.open == 0


def test_never_more_are_shown_than_a_provider_takes_and_the_newest_stay() -> None:
    _, view = deferred(*(spec(f"t{number}") for number in range(300)))

    view.load(*(f"t{number}" for number in range(200)))

    assert len(view.snapshot()) == 128
    assert names(view)[1] == "t73"
    assert names(view)[-1] == "t199"
