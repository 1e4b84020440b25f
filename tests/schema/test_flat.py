"""Values that are valid for certain are recognized without the validator, and no others."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.schema._flat import FlatObject

TEXTS = st.text(max_size=5)
NAMES = st.sampled_from(["a", "b", "c", "é"])
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 1.0, 2**53, -(2**60), 1e300])
VALUES: st.SearchStrategy[Any] = (
    TEXTS | NUMBERS | st.booleans() | st.none() | st.just("\ud800") | st.lists(st.integers(), max_size=2)
)
MEMBERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array"])},
    optional={
        "title": TEXTS,
        "description": TEXTS,
        "default": TEXTS,
        "minimum": st.integers(-3, 3) | st.floats(-3, 3),
        "maximum": st.integers(-3, 3),
        "pattern": st.just("^a"),
        "minLength": st.just(2),
    },
)
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"type": st.sampled_from(["object", "object", "object", "array"])},
    optional={
        "properties": st.dictionaries(NAMES, MEMBERS, max_size=3),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": st.booleans(),
        "$schema": st.sampled_from(["https://json-schema.org/draft/2020-12/schema", "https://example.com/own"]),
        "minProperties": st.just(2),
    },
)


@given(schema=SCHEMAS, instance=st.dictionaries(NAMES, VALUES, max_size=3))
def test_what_is_recognized_is_valid(schema: dict[str, Any], instance: dict[str, Any]) -> None:
    flat = FlatObject.of(schema)

    if flat is not None and flat.surely_takes(instance):
        body = {key: value for key, value in schema.items() if key != "$schema"}
        assert jsonschema_rs.Draft202012Validator(body).is_valid(instance)


@pytest.mark.parametrize(
    "member, value",
    [
        ({"type": "string", "description": "A text."}, "x"),
        ({"type": "integer", "minimum": 0, "maximum": 9}, 9),
        ({"type": "number", "default": 1}, 0.5),
        ({"type": "boolean", "title": "B"}, True),
    ],
)
def test_plain_members_are_recognized(member: dict[str, Any], value: Any) -> None:
    flat = FlatObject.of({"type": "object", "properties": {"a": member}, "required": ["a"]})

    assert flat is not None
    assert flat.surely_takes({"a": value})
    assert not flat.surely_takes({})
    assert not flat.surely_takes({"a": value, "b": 1})
    assert not flat.surely_takes({"a": None})
    assert not flat.surely_takes([value])


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"a": {"type": "string", "minimum": 1}}},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": "1"}}},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": True}}},
        {"type": "object", "properties": {1: {"type": "string"}}},
        {"type": "object", "properties": []},
        {"type": "object", "required": "a"},
        {"type": "object", "required": ["a", "a"]},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "title": 1},
        {"type": "object", "properties": {str(number): {"type": "string"} for number in range(101)}},
    ],
)
def test_schemas_that_say_more_or_are_not_surely_valid_are_left_to_the_validator(schema: Any) -> None:
    assert FlatObject.of(schema) is None


def test_a_program_that_only_makes_valid_calls_loads_no_validator() -> None:
    script = """
import sys
from toolweave.schema import Validator
plain = Validator({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
print(plain.is_valid({"n": 1}), "jsonschema_rs" in sys.modules)
print([str(one) for one in plain.problems({"n": 1})], plain.is_valid({"n": "x"}), "jsonschema_rs" in sys.modules)
print(plain.is_valid({"n": 1, "more": []}), plain.is_valid({}))
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)

    assert ended.stdout == "True False\n[] False True\nTrue False\n"
