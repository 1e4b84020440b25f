"""A pydantic model for a JSON Schema, as far as pydantic can say it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError, field_validator

from toolweave.schema import schema_to_model

NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
    "required": ["name"],
}


def accepts(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    try:
        schema_to_model(schema).model_validate(value)
    except ValidationError:
        return False
    return True


def of_property(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"p": schema}, "required": ["p"]}


KINDS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "string"}, ["a"], [1, None, []]),
    ({"type": "integer"}, [1], ["a", 1.5]),
    ({"type": "number"}, [1, 1.5], ["a"]),
    ({"type": "boolean"}, [True], ["maybe"]),
    ({"type": "null"}, [None], [1]),
    ({"type": "array"}, [[1, "a"]], ["a"]),
    ({"type": "array", "items": {"type": "integer"}}, [[1]], [["a"]]),
    ({"items": {"type": "integer"}}, [[1]], [["a"]]),
    ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, [[["a"]]], [[[1]]]),
    ({"type": "object"}, [{"a": 1}], [1]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "x"}]),
    ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, [{"n": 1}], [{}, {"n": "x"}]),
    ({"properties": {"n": {"type": "integer"}}}, [{}, {"n": 1, "more": 2}], [{"n": "x"}, 1]),
    ({"enum": ["a", 1, None]}, ["a", 1, None], ["b"]),
    ({"const": "a"}, ["a"], ["b"]),
    ({"type": ["string", "null"]}, ["a", None], [1]),
    ({"type": "string", "nullable": True}, ["a", None], [1]),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["x"]),
    ({"oneOf": [{"type": "integer"}, {"type": "array"}]}, [1, []], ["x"]),
    ({"type": "integer", "minimum": 1, "exclusiveMaximum": 5, "multipleOf": 2}, [2, 4], [0, 1, 3, 5, 6]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab"], ["a", "abcd"]),
    ({"type": "string", "pattern": "^a+$"}, ["aa"], ["b"]),
    ({"type": "array", "minItems": 1, "maxItems": 2}, [[1]], [[], [1, 2, 3]]),
    (
        {"$ref": "#/$defs/Node", "description": "x"},
        [{"name": "a", "children": [{"name": "b"}]}],
        [{"children": []}],
    ),
    ({"$ref": "#/$defs/Word"}, ["a"], [1]),
    (
        {"allOf": [{"$ref": "#/$defs/Node"}, {"properties": {"n": {"type": "integer"}}, "required": ["n"]}]},
        [{"name": "a", "n": 1}],
        [{"name": "a"}, {"n": 1}],
    ),
    (
        {
            "type": "object",
            "properties": {"kind": {"type": "string"}},
            "oneOf": [
                {"properties": {"r": {"type": "number"}}, "required": ["r"]},
                {"properties": {"s": {"type": "number"}}, "required": ["s"]},
            ],
        },
        [{"kind": "x", "r": 1}, {"s": 2}],
        [{"kind": "x"}, {"r": "no"}],
    ),
    (True, [1, None, {}], []),
    ({}, [1, None, {}], []),
]


@pytest.mark.requirement("R43", "R44", "R47")
@pytest.mark.parametrize("schema, fit, unfit", KINDS, ids=repr)
def test_each_kind_of_schema_accepts_what_fits_and_refuses_what_does_not(
    schema: Any, fit: list[Any], unfit: list[Any]
) -> None:
    whole = {**of_property(schema), "$defs": {"Node": NODE, "Word": {"type": "string"}}}

    assert all(accepts(whole, {"p": value}) for value in fit)
    assert not any(accepts(whole, {"p": value}) for value in unfit)


def test_optional_properties_are_absent_until_set_and_defaults_are_kept() -> None:
    model = schema_to_model(
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 7}}}
    )

    instance = model.model_validate({})

    assert instance.model_dump() == {"a": None, "b": 7}
    assert instance.model_dump(exclude_unset=True) == {}


def test_property_names_that_are_no_python_names_keep_their_own_as_alias() -> None:
    names = ["a-b", "a_b", "a b", "class", "schema", "model_config", "_private", "1st", "", "Ünï", "__"]
    model = schema_to_model({"type": "object", "properties": {name: {"type": "integer"} for name in names}})
    value = dict.fromkeys(names, 1)

    assert model.model_validate(value).model_dump(by_alias=True) == value
    assert all(name.isidentifier() for name in model.model_fields)


def test_descriptions_and_titles_are_kept() -> None:
    model = schema_to_model(
        {"description": "All of it.", "properties": {"a": {"type": "string", "description": "An a.", "title": "A"}}},
        "search-files",
    )

    assert model.__name__ == "SearchFiles"
    assert model.__doc__ == "All of it."
    assert model.model_fields["a"].description == "An a."
    assert model.model_fields["a"].title == "A"


def test_other_properties_are_refused_only_where_the_schema_refuses_them() -> None:
    assert accepts({"type": "object", "properties": {}}, {"x": 1})
    assert not accepts({"type": "object", "properties": {}, "additionalProperties": False}, {"x": 1})


@pytest.mark.requirement("R47")
def test_recursion_through_the_root_and_through_each_other_works() -> None:
    schema = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "a": {"$ref": "#/$defs/A"}},
        "$defs": {
            "A": {"type": "object", "properties": {"b": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]}}},
            "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "nullable": True}}, "required": ["a"]},
        },
    }

    assert accepts(schema, {"next": {"next": {"a": {"b": {"a": {"b": None}}}}}})
    assert accepts(schema, {"a": {"b": {"a": {}}}})
    assert not accepts(schema, {"next": {"next": {"a": {"b": {}}}}})


def test_a_root_that_is_a_reference_or_a_merge_is_followed() -> None:
    assert not accepts({"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}, {})
    assert not accepts({"allOf": [{"$ref": "#/$defs/Node"}], "$defs": {"Node": NODE}}, {})


ODD: list[tuple[Any, str]] = [
    (of_property({"not": {"type": "string"}}), "not cannot be expressed"),
    (
        of_property({"type": "object", "propertyNames": {}, "patternProperties": {}}),
        "patternProperties, propertyNames",
    ),
    (of_property({"$ref": "http://127.0.0.1:9/x"}), "http://127.0.0.1:9/x"),
    (of_property({"$ref": "#/$defs/none"}), "#/$defs/none"),
    (of_property({"type": "objekt"}), "objekt"),
    (of_property({"type": {"odd": 1}}), "unknown"),
    (of_property({"enum": [[1]]}), "enum"),
    (of_property({"const": 1.5}), "const"),
    (of_property({"prefixItems": [{}], "type": "array"}), "by position"),
    (of_property({"items": [{}]}), "by position"),
    (of_property("a string"), "is not a schema"),
    (of_property({"type": "string", "pattern": "(?=x)"}), "pattern"),
    (of_property({"type": "string", "pattern": "("}), "pattern"),
    (
        of_property({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
        "further",
    ),
    (of_property({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}), "anyOf"),
    (of_property({"anyOf": [1]}), "anyOf"),
    ({**of_property({"$ref": "#/$defs/J"}), "$defs": {"J": {"items": {"$ref": "#/$defs/J"}}}}, "contains itself"),
    ({"type": "string"}, "not describe an object"),
    ({"anyOf": [NODE, {"type": "object", "properties": {"b": {}}}]}, "not describe an object"),
    ({"allOf": [{"$ref": "#"}]}, "deeper"),
    ({"type": "object", "properties": "none"}, ""),
    ({"type": "object", "properties": {"a": {}}, "required": [["a"]]}, "required has entries that are not names"),
    ("no schema at all", "str"),
    (None, "NoneType"),
    ([], "list"),
]


@pytest.mark.requirement("R45", "R62", "D12")
@pytest.mark.parametrize("schema, said", ODD, ids=repr)
def test_what_cannot_be_said_is_permissive_and_logged_and_never_raises(
    schema: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "toolweave.schema"):
        model = schema_to_model(schema, "odd")

    assert issubclass(model, BaseModel)
    assert said in caplog.text
    assert not said or "'odd'" in caplog.text


@pytest.mark.requirement("R44", "R45")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://elsewhere.example/schema.json"},
        {"anyOf": [1]},
        {"type": "no such type"},
        {"$defs": {}, "$ref": "#/$defs/Missing"},
    ],
    ids=repr,
)
def test_what_is_too_complex_takes_any_value_and_leaves_its_neighbours_and_its_description_as_they_are(
    schema: dict[str, Any],
) -> None:
    plain = {"type": "integer", "description": "How many."}
    model = schema_to_model(
        {"properties": {"odd": {**schema, "description": "What."}, "count": plain}, "required": ["odd", "count"]}
    )

    values: list[Any] = ["text", 1, None, True, [1, "a"], {"a": {"b": []}}]
    for value in values:
        assert model.model_validate({"odd": value, "count": 1}).model_dump() == {"odd": value, "count": 1}
    with pytest.raises(ValidationError):
        model.model_validate({"odd": 1, "count": "many"})
    with pytest.raises(ValidationError):
        model.model_validate({"count": 1})
    assert (model.model_fields["odd"].description, model.model_fields["count"].description) == ("What.", "How many.")


@pytest.mark.requirement("R44")
def test_a_model_is_extended_like_any_other_of_pydantic() -> None:
    made: Any = schema_to_model(
        {"type": "object", "properties": {"path": {"type": "string"}, "odd": {"anyOf": [1]}}, "required": ["path"]}
    )

    class Stricter(made):
        odd: int | None = None  # what the conversion could not say
        deep: bool = False

        @field_validator("path")
        @classmethod
        def below_the_root(cls, path: str) -> str:
            if not path.startswith("/srv/"):
                raise ValueError("is not below /srv")
            return path

    kept: BaseModel = Stricter.model_validate({"path": "/srv/a", "odd": 3, "deep": True})
    assert kept.model_dump() == {"path": "/srv/a", "odd": 3, "deep": True}
    for wrong in ({"path": "/etc/passwd"}, {"path": "/srv/a", "odd": "x"}, {"path": "/srv/a", "deep": "x"}, {}):
        with pytest.raises(ValidationError):
            Stricter.model_validate(wrong)
    assert made.model_validate({"path": "/etc/passwd", "odd": "x"})  # the one that was made is as it was


@pytest.mark.requirement("R45")
def test_a_schema_that_passes_the_bounds_gives_a_permissive_model() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"properties": {"a": deep}}

    assert schema_to_model(deep).model_validate({"x": 1}).model_dump() == {"x": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["object", "string", "array", "#", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "allOf", "$ref", "enum", "required", "a", "nullable"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@pytest.mark.requirement("R45")
@given(schema=JSON)
def test_no_schema_is_too_odd_for_a_model(schema: Any) -> None:
    assert issubclass(schema_to_model(schema), BaseModel)


@pytest.mark.slow
@pytest.mark.requirement("R43", "R45", "R47")
def test_every_real_definition_has_a_model(definitions: list[dict[str, Any]], caplog: pytest.LogCaptureFixture) -> None:
    permissive = 0
    for definition in definitions:
        schema: Any = definition["inputSchema"]
        caplog.clear()
        model = schema_to_model(schema, definition["name"])
        permissive += "any object" in caplog.text
        if "any object" not in caplog.text:
            assert {field.alias for field in model.model_fields.values()} == set(schema.get("properties", ()))

    assert permissive < 20
