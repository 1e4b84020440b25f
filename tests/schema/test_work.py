"""Schemas and values that would take a validator very long: what is too much is refused, what is meant is checked."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import anyio
import pytest

from tests.connect.scripted import legacy_answer
from tests.connect.targets import ChannelServer, Json, connected, initialized
from toolweave import ErrorKind
from toolweave.schema.limits import MAX_STEPS
from toolweave.schema.problems import MAX_PROBLEMS, describe
from toolweave.schema.validate import Validator

pytestmark = pytest.mark.slow

TOO_LARGE = "is too large to be checked against this schema"
NOT_EXPLAINED = "the two are too large together to find out where"
NODE: Json = {"properties": {"a": {"$ref": "#/$defs/node"}}, "required": ["b"]}
TREE: Json = {"$defs": {"node": {"anyOf": [NODE, NODE, {"type": "integer"}]}}, "$ref": "#/$defs/node"}
"""Each level of a value that does not fit takes twice as long to explain as the one below."""


def nested(levels: int, value: Any = 1) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def evaluated_again(levels: int) -> Json:
    """A schema each level of which checks the one below again, to know what is evaluated there."""
    schema: Json = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


def peak_memory() -> int:
    """Return the most memory that this process has used, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)


HEAVY: dict[str, tuple[Json, Any, str]] = {
    "ways that double with each level": (TREE, nested(100), NOT_EXPLAINED),
    "the same by anchors": (
        {"$defs": {"x": {"$anchor": "n", "oneOf": [{"properties": {"a": {"$ref": "#n"}}, "required": ["b"]}] * 2}}}
        | {"$ref": "#n"},
        nested(100),
        NOT_EXPLAINED,
    ),
    "the same without a reference to itself": (
        {
            "$defs": {
                f"d{level}": {
                    "anyOf": [{"properties": {"a": {"$ref": f"#/$defs/d{level + 1}"}}, "required": ["b"]}] * 3
                }
                for level in range(60)
            }
            | {"d60": {}},
            "$ref": "#/$defs/d0",
        },
        nested(60),
        NOT_EXPLAINED,
    ),
    "alternatives by items": (
        {"items": {"anyOf": [{"const": number} for number in range(5_000)]}},
        ["x"] * 4_000,
        f"{TOO_LARGE}|{NOT_EXPLAINED}",
    ),
    "patterns by names": (
        {"patternProperties": {f"^(?=k{number}x)": {} for number in range(4_000)}},
        {f"k{number}": 1 for number in range(4_000)},
        TOO_LARGE,
    ),
    "patterns that go back and forth": (
        {"items": {"pattern": r"^(?:(a|aa)+\1)*c"}},
        ["a" * 60 + "b"] * 100_000,
        TOO_LARGE,
    ),
    "one pattern that goes back and forth": ({"items": {"pattern": r"^(?:(a|aa)+\1)*c"}}, ["a" * 60] * 10, "pattern"),
    "objects to choose from": (
        {"items": {"enum": [{"a": number} for number in range(10_000)]}},
        [{"a": 9_999}] * 10_000,
        TOO_LARGE,
    ),
    "unknown names beside known ones": (
        {"additionalProperties": False, "properties": {f"{'a' * 190}{number}": {} for number in range(5_000)}},
        {f"{'a' * 189}{number}": 1 for number in range(5_000)},
        "is not a known property",
    ),
    "unknown names in many places": (
        {"items": {"additionalProperties": False, "properties": {f"name{number}": {} for number in range(2_000)}}},
        [{f"nam{number}": 1} for number in range(2_000)],
        "is not a known property",
    ),
    "missing names in many places": (
        {"items": {"required": [f"name{number}" for number in range(1_500)]}},
        [{}] * 1_500,
        'missing required property "name',
    ),
    "missing names that others demand": (
        {"items": {"dependentRequired": {"a": [f"name{number}" for number in range(1_500)]}}},
        [{"a": 1}] * 1_500,
        'missing required property "name',
    ),
    "wrong texts, each with a list of the right ones": (
        {"items": {"enum": [f"right{number}" for number in range(4_900)]}},
        [f"wrong{number}" for number in range(4_900)],
        "must be one of",
    ),
    "wrong names, each with a list of the right ones": (
        {"propertyNames": {"enum": [f"right{number}" for number in range(4_900)]}},
        {f"wrong{number}": 1 for number in range(4_900)},
        "whose name is not allowed",
    ),
    "rights to one name each": (
        {"allOf": [{"properties": {f"k{number}": {}}} for number in range(4_000)], "unevaluatedProperties": False},
        {f"k{number}": 1 for number in range(4_001)},
        f'"k4000" is not a known property|{TOO_LARGE}',
    ),
    "a long list that must contain something": (
        {"contains": {"const": 1}},
        [0] * 1_000_000,
        "does not contain the items it must",
    ),
    "a long constant beside many values": (
        {"items": {"const": "x" * 1_000_000}},
        [1] * 4_900,
        "must be",
    ),
    "a long value beside many subschemas": (
        {"allOf": [{"type": "integer"}] * 4_900},
        "x" * 1_000_000,
        "expected integer",
    ),
    "a large value beside many subschemas": (
        {"allOf": [{"required": ["a"]}] * 4_900},
        {f"k{number}": 1 for number in range(4_000)},
        'missing required property "a"',
    ),
    "a long name above many values": (
        {"additionalProperties": {"items": {"type": "integer"}}},
        {"x" * 1_000_000: ["y"] * 4_900},
        "expected integer",
    ),
    "values to choose from of several types": (
        {"items": {"enum": [None, *range(10_000)]}},
        [9_999] * 10_000,
        TOO_LARGE,
    ),
    "what is unevaluated, by a reference to itself": (
        {"$defs": {"x": {"anyOf": [{"properties": {"a": {"$ref": "#/$defs/x"}}}] * 2, "unevaluatedProperties": False}}}
        | {"$ref": "#/$defs/x"},
        nested(60, {}),
        TOO_LARGE,
    ),
    "lists that contain lists, and what is unevaluated": (
        {"allOf": [{"contains": {"const": number}} for number in range(4_000)], "unevaluatedItems": False},
        list(range(4_001)),
        TOO_LARGE,
    ),
}


@pytest.mark.parametrize(("schema", "value", "said"), HEAVY.values(), ids=list(HEAVY))
async def test_an_answer_whose_check_would_take_very_long_is_refused_with_a_reason(
    schema: Json, value: Any, said: str
) -> None:
    tool: Json = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"properties": {"value": schema}}}
    if "$defs" in schema:
        tool["outputSchema"] = {"$defs": schema["$defs"], "properties": {"value": {"$ref": schema["$ref"]}}}

    def script(message: Json) -> Json | None:
        match message["method"]:
            case "tools/list":
                return {"result": {"tools": [tool]}}
            case "tools/call" if message["params"]["arguments"]:
                return {"result": {"content": [], "structuredContent": {"value": value}}}
            case "tools/call":
                return {"result": {"content": [], "structuredContent": {}}}
            case _:
                return legacy_answer(message)

    async with connected({"server": ChannelServer(initialized(script)), "validate_output": "error"}) as connection:
        with anyio.fail_after(60):  # where nothing is bounded it takes hours at least, in one piece
            memory, processor = peak_memory(), time.process_time()
            result = await connection.call_tool("t", {"heavy": True})
            assert time.process_time() - processor < 15, "a second or two are meant; this machine may be slow"
            assert peak_memory() - memory < 500
        assert result.error is not None
        assert result.error.kind is ErrorKind.INVALID_OUTPUT
        assert any(part in result.error.message for part in said.split("|"))
        assert len(result.error.message) < (MAX_PROBLEMS + 1) * 1_300
        assert not (await connection.call_tool("t")).is_error


def test_rows_that_lack_much_are_answered_with_the_first_problem_and_short_ones_with_all() -> None:
    columns = Validator({"items": {"required": [f"column{number}" for number in range(20)]}})
    many = describe(columns.problems([{}] * 4_900))
    assert many == '"[0]": missing required property "column0"'
    assert "... and 390 more problems" in describe(columns.problems([{}] * 20))


def test_values_of_ordinary_size_are_explained_whole() -> None:
    choice = Validator({"items": {"properties": {"unit": {"enum": [f"unit{number}" for number in range(200)]}}}})
    rows: list[Json] = [{"unit": f"unit{number % 200}"} for number in range(2_400)]
    said = describe(choice.problems([*rows, {"unit": "inch"}, {"unit": "yard"}]))
    assert '"[2400].unit": must be one of "unit0"' in said
    assert '"[2401].unit": must be one of "unit0"' in said
    names = Validator({"propertyNames": {"pattern": "^k"}, "additionalProperties": {"type": "integer"}})
    said = describe(names.problems({f"k{number}": number for number in range(800)} | {"k801": "x", "x": 1}))
    assert '"k801": expected integer' in said
    assert "whose name is not allowed" in said


@pytest.mark.parametrize("levels", [1, 5, 10])
def test_what_is_unevaluated_is_found_at_ordinary_depths(levels: int) -> None:
    validator = Validator(evaluated_again(levels))
    assert validator.is_valid({"a": 1})
    assert '"b" is not a known property' in describe(validator.problems({"a": 1, "b": 2}))
    tree = Validator(
        {
            "$defs": {
                "node": {"allOf": [{"properties": {"a": {"$ref": "#/$defs/node"}}}], "unevaluatedProperties": False}
            },
            "$ref": "#/$defs/node",
        }
    )
    assert tree.is_valid(nested(levels, {}))
    assert '"b" is not a known property' in describe(tree.problems(nested(levels, {"b": 1})))


def test_a_schema_that_evaluates_again_at_forty_levels_checks_no_value() -> None:
    validator = Validator(evaluated_again(40))
    assert not validator.is_valid({"a": 1})
    assert TOO_LARGE in describe(validator.problems({"a": 1}))


def test_a_schema_that_refers_to_itself_elsewhere_is_checked_at_any_depth() -> None:
    tree = Validator(
        {
            "$defs": {
                "node": {"properties": {"a": {"$ref": "#/$defs/node"}}, "allOf": [{"$ref": "#/$defs/extra"}]}
                | {"unevaluatedProperties": False},
                "extra": {"patternProperties": {"^x-": {}}},
            },
            "$ref": "#/$defs/node",
        }
    )
    assert tree.is_valid(nested(100, {"x-b": 1}))
    assert not tree.is_valid(nested(100, {"b": 1}))


def test_large_values_of_ordinary_schemas_are_checked_whole() -> None:
    row: Json = {"type": "object", "properties": {f"column{number}": {"type": "string"} for number in range(200)}}
    rows = [{f"column{number}": "x" for number in range(8)} for _ in range(50_000)]
    validator = Validator({"items": row})
    assert len(rows) * 8 * 200 > MAX_STEPS  # more than every subschema times every value would allow
    assert validator.is_valid(rows)
    assert describe(validator.problems([*rows, {"column7": 1}])) == (
        '"[50000].column7": expected string, got integer 1'
    )


def test_values_of_schemas_that_refer_to_themselves_are_checked_and_explained() -> None:
    tree = Validator(
        {
            "$defs": {
                "node": {"properties": {"children": {"items": {"$ref": "#/$defs/node"}}, "n": {"type": "integer"}}}
            },
            "$ref": "#/$defs/node",
        }
    )
    value: Json = {"n": 1, "children": [{"n": 2, "children": [{"n": "x"}]}] * 3}
    assert 'children[2].children[0].n": expected integer' in describe(tree.problems(value))
    large: Json = {"n": 1, "children": [{"n": 2, "children": [{"n": 3}]}] * 100_000}
    assert tree.problems(large) == ()
    assert 'missing required property "b"' in describe(Validator(TREE).problems(nested(4)))


def test_what_alternatives_want_is_told_in_a_bounded_message() -> None:
    many = Validator({"anyOf": [{"const": f"value{number}"} for number in range(20_000)]})
    said = describe(many.problems("x"))
    assert said.startswith('expected "value0" or "value1" or ')
    assert "(20000 in all)" in said
    assert len(said) < 1_000
    long = Validator({"anyOf": [{"enum": ["y" * 1_000, number]} for number in range(1_000)]})
    assert len(describe(long.problems("x"))) < 1_500


def test_paths_of_long_names_are_cut() -> None:
    validator = Validator({"additionalProperties": {"additionalProperties": {"type": "integer"}}})
    (problem,) = validator.problems({"a" * 1_000_000: {"b" * 1_000_000: "x"}})
    assert len(str(problem)) < 500
    assert "2,000,001 characters in all" in problem.path
