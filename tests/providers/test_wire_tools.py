"""Tools on their way into a request: names, schemas, what is left out, and what is not done twice."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from toolweave.providers._wire_tools import ToolWriter, WireTool
from toolweave.tools import ToolSnapshot, ToolSpec

BAD = {"type": "array"}


def tools(count: int) -> list[ToolSpec]:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    return [ToolSpec(name=f"server.tool-{number}", input_schema=schema) for number in range(count)]


def function_form(tool: WireTool) -> dict[str, Any]:
    """Return a tool as OpenAI's chat completions have it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


class Counting:
    """A form that counts how often it is asked."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, tool: WireTool) -> dict[str, Any]:
        self.names.append(tool.name)
        return {"name": tool.name}


def test_names_are_legal_and_lead_back() -> None:
    wire = ToolWriter("openai", function_form).of([ToolSpec(name="a/b"), ToolSpec(name="a b")])

    names = [one["function"]["name"] for one in wire.definitions]
    assert len(set(names)) == 2
    assert [wire.call_name(name) for name in names] == ["a/b", "a b"]
    assert wire.call_name("invented") == "invented"


def test_a_tool_that_cannot_be_said_is_left_out_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    writer = ToolWriter("openai", function_form)
    given = [ToolSpec(name="good"), ToolSpec(name="bad", input_schema=BAD)]

    wire = writer.of(given)
    writer.of(given)

    assert [one["function"]["name"] for one in wire.definitions] == ["good"]
    assert list(wire.quarantined) == ["bad"]
    assert "must be an object" in wire.quarantined["bad"]
    assert len(caplog.records) == 1


def test_what_was_changed_is_told_by_tool() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "int"}}}

    wire = ToolWriter("openai", function_form).of([ToolSpec(name="t", input_schema=schema), ToolSpec(name="u")])

    assert wire.changes == {"t": ("/properties/a: type 'int' is read as 'integer'",)}


def test_the_same_tools_are_written_once_whatever_sequence_holds_them() -> None:
    form = Counting()
    writer = ToolWriter("openai", form)
    specs = tools(20)

    first = writer.of(ToolSnapshot(specs, version=1))

    assert writer.of(ToolSnapshot(specs, version=2)) is first
    assert writer.of(list(specs)) is first
    assert writer.of(tuple(specs)) is first
    assert len(form.names) == 20


def test_a_list_that_changes_in_place_is_noticed() -> None:
    writer = ToolWriter("openai", function_form)
    given = tools(3)
    assert len(writer.of(given).definitions) == 3

    given.append(ToolSpec(name="new"))
    assert len(writer.of(given).definitions) == 4
    given[0] = ToolSpec(name="other")
    assert writer.of(given).definitions[0]["function"]["name"] == "other"


def test_agents_with_different_tools_share_a_writer_without_undoing_each_others_work() -> None:
    form = Counting()
    writer = ToolWriter("openai", form)
    one, other = tools(5), [ToolSpec(name="x"), *tools(2)]

    for _ in range(3):
        writer.of(one)
        writer.of(other)

    assert len(form.names) == 8


def test_the_lists_that_are_remembered_are_bounded() -> None:
    form = Counting()
    writer = ToolWriter("openai", form)
    first = [ToolSpec(name="first")]

    writer.of(first)
    for number in range(20):
        writer.of([ToolSpec(name=f"t{number}")])
    writer.of(first)

    assert form.names.count("first") == 2


def test_the_encoded_definitions_are_the_definitions() -> None:
    wire = ToolWriter("openai", function_form).of([*tools(2), ToolSpec(name="odd", description="half \ud83d")])

    assert [json.loads(bytes(one)) for one in wire.encoded][:2] == list(wire.definitions)[:2]
    assert json.loads(bytes(wire.encoded[2]))["function"]["description"] == r"half \ud83d"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="unique"):
        ToolWriter("openai", function_form).of([ToolSpec(name="t", server="a"), ToolSpec(name="t", server="b")])


@pytest.mark.slow
def test_all_real_tools_are_written_at_once(definitions: list[dict[str, Any]]) -> None:
    given = {f"{one['server']}.{one['name']}": one for one in definitions if isinstance(one["inputSchema"], dict)}
    specs = [
        ToolSpec(name=name, description=one["description"] or "", input_schema=one["inputSchema"])
        for name, one in given.items()
    ]

    wire = ToolWriter("anthropic", function_form, strict="anthropic-strict").of(specs)

    assert len(wire.definitions) + len(wire.quarantined) == len(specs)
    assert len({one["function"]["name"] for one in wire.definitions}) == len(wire.definitions)
    assert all(json.loads(bytes(one)) for one in wire.encoded)
    assert all(reasons for reasons in wire.quarantined.values())
    assert set(wire.losses) <= set(wire.changes)


def test_a_schema_of_ten_thousand_levels_is_quarantined_with_its_reason() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(10_000):
        deep = {"type": "array", "items": deep}
    specs = [ToolSpec(name="deep", input_schema={"type": "object", "properties": {"a": deep}}), *tools(1)]

    wire = ToolWriter("gemini", function_form, strict="openai-strict").of(specs)

    assert len(wire.definitions) == 1
    assert "nested deeper than 128 levels" in wire.quarantined["deep"]


def test_what_a_schema_may_not_say_at_its_top_is_said_of_the_tool() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}, "description": "At least one.", "minProperties": 1}

    wire = ToolWriter("bedrock", function_form).of([ToolSpec(name="t", description="Does it.", input_schema=schema)])

    assert wire.definitions[0]["function"] == {
        "name": "t",
        "description": "Does it.\nAt least one. (minProperties: 1)",
        "parameters": {"type": "object", "properties": {}},
    }
    assert wire.losses == {"t": ("the arguments: minProperties is stated in the description",)}
