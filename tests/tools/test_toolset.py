"""The contract of toolsets: snapshots, changes, tools, and what turns into a toolset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.tools.doubles import Scripted, spec
from toolweave import CallContext, ErrorKind, Tool, ToolList, ToolRegistry, ToolsChanged, Toolset, ToolSpec, tool
from toolweave.errors import DuplicateToolError, ToolExecutionError
from toolweave.tools import ToolSnapshot, as_toolset, changes, combined, tools_of


def names(source: Any) -> list[str]:
    return [one.name for one in as_toolset(source).snapshot()]


@tool
def add(a: int) -> int:
    return a


def plain() -> None: ...


def test_a_snapshot_is_a_sequence_that_knows_names_and_aliases() -> None:
    first, second = spec("a", aliases=("s:a", "x")), spec("b", aliases=("x",))
    snapshot = ToolSnapshot([first, second], version=7)

    assert list(snapshot) == [first, second]
    assert (snapshot[0], list(snapshot[1:]), len(snapshot)) == (first, [second], 2)
    assert (snapshot.find("b"), snapshot.find("s:a"), snapshot.find("x"), snapshot.find("?")) == (
        second,
        first,
        first,
        None,
    )
    assert repr(snapshot) == "ToolSnapshot(version=7, ['a', 'b'])"


@pytest.mark.requirement("C9")
def test_the_difference_of_two_snapshots_says_what_came_went_and_changed() -> None:
    old = ToolSnapshot([spec("a"), spec("b"), spec("c")], version=1)
    new = ToolSnapshot([spec("d"), spec("b", description="new"), spec("a")], version=2)

    change = ToolsChanged.between(old, new)

    assert change == ToolsChanged(added=("d",), removed=("c",), changed=("b",), version=2)
    assert not ToolsChanged.between(new, new)


@pytest.mark.requirement("R29")
def test_a_definition_without_details_has_the_defaults() -> None:
    bare = ToolSpec(name="x")

    assert (bare.description, bare.original_name, bare.input_schema) == ("", "x", {"type": "object", "properties": {}})


@pytest.mark.requirement("R48")
def test_a_tool_shows_everything_of_its_definition() -> None:
    definition = spec("a", icons=({"src": "x"},), annotations={"a": 1}, output_schema={"b": 2}, raw={"c": 3}, title="A")
    shown = Tool(definition, Scripted())

    assert (shown.icons, shown.annotations, shown.output_schema, shown.raw, shown.title, shown.server) == (
        ({"src": "x"},),
        {"a": 1},
        {"b": 2},
        {"c": 3},
        "A",
        "files",
    )
    assert repr(shown) == "<Tool 'a' from server 'files'>"


@pytest.mark.requirement("R65", "C2")
async def test_a_tool_whose_toolset_raises_answers_with_an_error() -> None:
    broken = Tool(spec("a"), Scripted(fault=TimeoutError()))

    result = await broken.execute()

    assert result.require_error().kind is ErrorKind.TIMEOUT
    with pytest.raises(ToolExecutionError):
        await broken.call()


async def test_a_tool_passes_on_arguments_and_context() -> None:
    toolset = Scripted()
    ctx = CallContext(timeout=3)

    await Tool(spec("a"), toolset).execute({"x": 1}, ctx)
    await Tool(spec("a"), toolset).call()

    assert [(call.arguments, seen is ctx) for call, seen in toolset.calls] == [({"x": 1}, True), ({}, False)]


@pytest.mark.requirement("R16")
def test_a_list_of_tools_is_indexed_by_place_name_and_alias() -> None:
    toolset = Scripted([spec("a", aliases=("s:a", "b")), spec("b")])
    tools = tools_of(toolset)

    assert (tools[0].name, tools["b"].name, tools["s:a"].name, tools[1:].names) == ("a", "b", "a", ("b",))
    assert (len(tools), [one.name for one in tools], tools.get("?")) == (2, ["a", "b"], None)
    assert "a" in tools
    assert tools[0] in tools
    assert repr(tools) == "ToolList(['a', 'b'])"
    with pytest.raises(KeyError, match=r"'c'.*a, b"):
        tools["c"]
    with pytest.raises(KeyError, match="none"):
        ToolList([])["c"]


async def test_no_change_is_lost_between_subscribing_and_the_first_iteration() -> None:
    toolset = Scripted()
    feed = changes(toolset)
    toolset.offer(spec("a"))
    toolset.offer(spec("b"))

    with anyio.fail_after(5):
        first = await anext(feed)
        second = await anext(feed)
        await feed.aclose()
    toolset.offer()

    assert (first.added, second.added, second.removed) == (("a",), ("b",), ("a",))
    with pytest.raises(StopAsyncIteration):
        await anext(feed)


def test_a_listener_that_raises_costs_nobody_else_the_event(caplog: pytest.LogCaptureFixture) -> None:
    toolset = Scripted()
    seen: list[ToolsChanged] = []

    def broken(change: ToolsChanged) -> None:
        raise RuntimeError("listener")

    toolset.subscribe(broken)
    unsubscribe = toolset.subscribe(seen.append)
    toolset.offer(spec("a"))
    toolset.offer(spec("a"))
    unsubscribe()
    unsubscribe()
    toolset.offer()

    assert [change.added for change in seen] == [("a",)]
    assert "a listener for ToolsChanged raised" in caplog.text


@pytest.mark.requirement("R22", "R37")
def test_whatever_offers_tools_turns_into_a_toolset() -> None:
    toolset = Scripted([spec("read")])
    listed = tools_of(toolset)

    assert as_toolset(toolset) is toolset
    assert as_toolset([toolset]) is toolset
    assert names(add) == ["add"]
    assert names(plain) == ["plain"]
    assert names(listed) == ["read"]
    assert names(listed[0]) == ["read"]
    assert names([add, plain, *listed]) == ["add", "plain", "read"]
    assert names([toolset, add, Scripted([spec("write")])]) == ["add", "read", "write"]
    assert names([toolset, Scripted([spec("write")])]) == ["read", "write"]
    assert names([]) == []
    assert names(one for one in (add, plain)) == ["add", "plain"]
    assert isinstance(as_toolset([add]), Toolset)


@pytest.mark.requirement("C20", "D15")
async def test_equal_names_are_an_error_in_code_and_a_new_name_for_servers() -> None:
    one, other = Scripted([spec("read")]), Scripted([spec("read", server="web")])

    with pytest.raises(DuplicateToolError, match="add"):
        as_toolset([add, add])
    assert names([*tools_of(one), *tools_of(other)]) == ["read", "web_read"]
    assert names([one, other, tool(plain, name="read")]) == ["read", "files_read", "web_read"]
    together = tools_of(as_toolset([*tools_of(one), *tools_of(other)]))
    await together["web_read"].execute()
    assert [call.name for call, _ in other.calls] == ["read"]


@pytest.mark.parametrize("source", [3, None, "read", b"read", [3], ["read"]], ids=repr)
def test_what_offers_no_tools_is_refused_with_its_type(source: Any) -> None:
    with pytest.raises(TypeError, match="offers no tools"):
        as_toolset(source)


@pytest.mark.requirement("R37")
async def test_functions_and_servers_mix_behind_one_call() -> None:
    mixed = as_toolset([Scripted([spec("read")]), add])
    by_name: dict[str, Callable[..., Any]] = {one.name: one.execute for one in tools_of(mixed)}

    assert (await by_name["read"]()).text == "read ran"
    assert (await by_name["add"]({"a": 1})).structured_content == 1


def test_a_registry_joined_with_a_toolset_follows_both() -> None:
    registry, toolset = ToolRegistry([add]), Scripted([spec("read")])
    both = combined(registry, toolset)

    registry.add(plain)
    toolset.offer(spec("write"))

    assert [one.name for one in both.snapshot()] == ["add", "plain", "write"]
