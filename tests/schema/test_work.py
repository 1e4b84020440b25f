"""Schemas and values that would take a validator very long: what is too much is refused, what is meant is checked."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.connect.scripted import legacy_answer
from tests.connect.targets import ChannelServer, Json, connected, initialized
from toolweave import ErrorKind
from toolweave.schema._limits import MAX_STEPS
from toolweave.schema._problems import MAX_PROBLEMS
from toolweave.schema._validate import Validator, describe

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
}


@pytest.mark.parametrize(("schema", "value", "said"), HEAVY.values(), ids=list(HEAVY))
@pytest.mark.anyio
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
            result = await connection.call_tool("t", {"heavy": True})
        assert result.error is not None
        assert result.error.kind is ErrorKind.INVALID_OUTPUT
        assert any(part in result.error.message for part in said.split("|"))
        assert len(result.error.message) < (MAX_PROBLEMS + 1) * 1_300
        assert not (await connection.call_tool("t")).is_error


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
