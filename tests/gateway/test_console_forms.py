"""Forms from schemas: whatever a server calls a schema has a form or none, and never an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.gateway._console.forms import FormField, fields_of, read_fields, read_json

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plain": {"type": "string", "title": "Plain", "description": "A text.", "default": "x"},
        "content": {"type": "string"},
        "when": {"type": "string", "format": "date"},
        "whole": {"$ref": "#/$defs/whole", "description": "Its own."},
        "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "either": {"oneOf": [{"const": "a"}, {"enum": ["b", 1]}]},
        "types": {"type": ["boolean", "null"], "default": False},
        "mixed": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "list": {"type": "array", "default": [1]},
        "fixed": {"const": {"deep": True}},
        "endless": {"$ref": "#/properties/endless"},
        "elsewhere": {"$ref": "https://example.org/schema"},
    },
    "required": ["plain", 7],
    "$defs": {"whole": {"type": "integer", "minimum": 1, "maximum": 5, "description": "Another's."}},
}


def by_name(schema: dict[str, Any]) -> dict[str, FormField]:
    return {field.name: field for field in fields_of(schema) or ()}


def test_each_kind_of_value_has_its_field() -> None:
    fields = by_name(TREE)

    assert {name: field.kind for name, field in fields.items()} == {
        "plain": "line",
        "content": "text",
        "when": "line",
        "whole": "integer",
        "maybe": "number",
        "either": "choice",
        "types": "choice",
        "mixed": "json",
        "list": "json",
        "fixed": "choice",
        "endless": "json",
        "elsewhere": "json",
    }
    assert [name for name, field in fields.items() if field.required] == ["plain"]
    assert (fields["whole"].description, fields["whole"].minimum, fields["whole"].maximum) == ("Its own.", 1, 5)
    assert {name: field.value for name, field in fields.items() if field.value} == {
        "plain": "x",
        "types": "1",
        "list": "[1]",
    }
    assert list(fields["either"].labels) == ["a", "b", "1"]
    assert list(fields["fixed"].labels) == ['{"deep": true}']
    assert [fields[name].hint for name in ("when", "whole", "list", "mixed")] == [
        "date",
        "a whole number",
        "a list, as JSON",
        "any value, as JSON",
    ]


def test_a_schema_that_is_no_object_of_properties_has_no_fields() -> None:
    assert fields_of({"type": "object"}) == ()
    assert fields_of({"anyOf": [{"type": "object"}]}) is None
    assert fields_of({"properties": [1]}) is None
    assert fields_of({"properties": {str(number): {} for number in range(101)}}) is None


@pytest.mark.parametrize(
    "schema, text, value",
    [
        ({"type": "string"}, "a\r\nb", "a\nb"),
        ({"type": "integer"}, " -12 ", -12),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "1", False),
        ({"enum": [None, "x"]}, "0", None),
        ({}, '{"a": [1]}', {"a": [1]}),
    ],
)
def test_a_text_becomes_the_value_that_it_means(schema: Any, text: str, value: object) -> None:
    fields = fields_of({"properties": {"x": schema}}) or ()

    assert read_fields(fields, {"f0": text}) == ({"x": value}, {})


@pytest.mark.parametrize(
    "schema, text, told",
    [
        ({"type": "integer"}, "1.5", "whole number"),
        ({"type": "integer"}, "9" * 500, "whole number"),
        ({"type": "number"}, "true", "number is expected"),
        ({"type": "number"}, "NaN", "NaN is not JSON"),
        ({"enum": ["x"]}, "1", "one of the values"),
        ({"enum": ["x"]}, "²", "one of the values"),
        ({}, "{", "in line 1, column 2"),
        ({}, "[" * 100_000, "too deep"),
    ],
)
def test_a_text_that_fits_nothing_is_told(schema: Any, text: str, told: str) -> None:
    fields = fields_of({"properties": {"x": schema}}) or ()

    arguments, wrong = read_fields(fields, {"f0": text})

    assert arguments == {}
    assert told in wrong["f0"]


def test_what_is_not_given_is_not_sent_and_what_is_required_is() -> None:
    fields = fields_of({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}) or ()

    assert read_fields(fields, {}) == ({"b": ""}, {})


def test_all_arguments_as_json_are_an_object() -> None:
    assert read_json(" ") == {}
    assert read_json('{"a": null}') == {"a": None}
    with pytest.raises(ValueError, match="a JSON object is expected"):
        read_json("[]")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "enum", "const", "anyOf", "oneOf", "$ref", "default", "minimum", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(parts=st.dictionaries(st.text(max_size=5), JSON, max_size=4), required=JSON)
def test_no_schema_is_an_error(parts: dict[str, Any], required: Any) -> None:
    fields = fields_of({"properties": parts, "required": required})

    assert fields is not None
    assert [field.name for field in fields] == list(parts)
    for field in fields:
        assert all(isinstance(label, str) for label in field.labels)
    sent = {field.key: field.value for field in fields}
    arguments, wrong = read_fields(fields, sent)
    assert {*arguments} | {field.name for field in fields if field.key in wrong} <= {*parts}


@pytest.mark.slow
@given(value=st.one_of(st.text(min_size=1), st.integers(), st.booleans()))
def test_a_default_comes_back_as_it_is(value: Any) -> None:
    kind = {str: "string", int: "integer", bool: "boolean"}[type(value)]
    field = by_name({"properties": {"x": {"type": kind, "default": value}}})["x"]

    arguments, wrong = read_fields([field], {field.key: field.value})

    assert wrong == {}
    assert arguments == {"x": value.replace("\r\n", "\n") if isinstance(value, str) else value}
