"""Schemas as LLM APIs take them: on a copy, with every loss reported."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, get_args

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.models.openai_rules import Refused, check_chat
from toolweave.errors import SchemaError
from toolweave.schema._lowering import Dialect, LoweredSchema, lower
from toolweave.schema._strict import drop_fillers

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)


def obj(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def refusal_of(lowered: LoweredSchema, *, strict: bool = False) -> str | None:
    """Return what OpenAI says against a lowered schema, or None."""
    function = {"name": "f", "parameters": lowered.schema, "strict": strict}
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    try:
        check_chat({**body, "tools": [{"type": "function", "function": function}]})
    except Refused as exc:
        return str(exc)
    return None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_plain_schema_stays_as_it_is_and_the_original_is_left_alone(dialect: Dialect) -> None:
    schema = obj(("a",), a={"type": "string", "description": "A.", "enum": ["x", "y"]})
    before = deepcopy(schema)

    lowered = lower(schema, dialect)

    extra = {"additionalProperties": False} if dialect.endswith("strict") else {}
    assert lowered == LoweredSchema(schema={**before, **extra})
    assert schema == before
    lowered.schema["properties"]["a"]["enum"].append("z")
    assert schema == before


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"type": ["object", "null"]}, {"$schema": "x", "title": "t"}]
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tool_without_parameters_is_an_object_without_properties(schema: dict[str, Any], dialect: Dialect) -> None:
    lowered = lower(schema, dialect).schema

    assert (lowered["type"], lowered["properties"]) == ("object", {})


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": "string"}, {"anyOf": [{"type": "string"}]}])
def test_arguments_that_are_no_object_are_refused(schema: dict[str, Any], dialect: Dialect) -> None:
    with pytest.raises(SchemaError, match="must be an object"):
        lower(schema, dialect)


def test_alternatives_of_the_arguments_become_one_object_that_says_so() -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "required": ["kind"],
        "oneOf": [
            {"properties": {"path": {"type": "string"}}, "required": ["path", "kind"]},
            {"properties": {"url": {"type": "string"}}, "required": ["url"]},
        ],
    }

    lowered = lower(schema, "openai")

    assert set(lowered.schema["properties"]) == {"kind", "path", "url"}
    assert lowered.schema["required"] == ["kind"]
    assert lowered.schema["description"] == "(one of these forms: path; or url)"
    assert any("oneOf" in change for change in lowered.changes)


def test_alternatives_with_a_discriminator_keep_both_of_its_values() -> None:
    schema = {
        "anyOf": [
            obj(("kind",), kind={"const": "file"}, path={"type": "string"}),
            obj(("kind",), kind={"const": "web"}, url={"type": "string"}),
        ]
    }

    lowered = lower(schema, "openai").schema

    assert lowered["properties"]["kind"] == {"anyOf": [{"const": "file"}, {"const": "web"}]}
    assert lowered["required"] == ["kind"]
    assert 'kind = "file"' in lowered["description"]


def test_parts_of_the_arguments_are_joined() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/A"}, obj(("b",), b={"type": "integer"})],
        "$defs": {"A": obj(("a",), a={"type": "string"})},
    }

    lowered = lower(schema, "anthropic").schema

    assert lowered == obj(("a", "b"), a={"type": "string"}, b={"type": "integer"})


def test_a_root_that_refers_to_a_definition_is_put_in_its_place_and_may_recur() -> None:
    node = obj(("name",), name={"type": "string"}, children={"type": "array", "items": {"$ref": "#/definitions/Node"}})

    lowered = lower({"$ref": "#/definitions/Node", "definitions": {"Node": node}}, "openai").schema

    assert lowered["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert lowered["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


@pytest.mark.parametrize("reference", ["#/properties/a", "#here", "#"])
def test_references_to_anywhere_in_the_schema_become_definitions(reference: str) -> None:
    schema = obj((), a={"$anchor": "here", "type": "string"}, b={"$ref": reference})

    lowered = lower(schema, "openai").schema

    name = lowered["properties"]["b"]["$ref"].removeprefix("#/$defs/")
    expected = "object" if reference == "#" else "string"
    assert lowered["$defs"][name]["type"] == expected


@pytest.mark.parametrize("reference", ["https://example.com/schema.json", "other.json", "#/nowhere", "#/$defs/gone"])
def test_a_reference_that_leads_outside_is_never_fetched_but_left_open_and_reported(reference: str) -> None:
    lowered = lower(obj((), a={"$ref": reference, "description": "A."}), "openai")

    assert lowered.schema["properties"]["a"] == {"description": "A."}
    assert any(reference in change for change in lowered.changes)


def test_drafts_of_old_are_said_in_todays_words() -> None:
    schema = obj(
        (),
        a={"type": "number", "minimum": 0, "exclusiveMinimum": True},
        b={"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
        c={"type": "string", "nullable": True, "enum": ["x"]},
        d={"type": "str", "required": True},
        e={"type": "any"},
    )

    lowered = lower({**schema, "dependentRequired": {"c": ["d"]}, "dependencies": {"a": ["b"]}}, "anthropic")

    assert lowered.schema["properties"] == {
        "a": {"type": "number", "exclusiveMinimum": 0},
        "b": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"not": {}}},
        "c": {"type": ["string", "null"], "enum": ["x", None]},
        "d": {"type": "string"},
        "e": {},
    }
    assert lowered.schema["dependentRequired"] == {"c": ["d"], "a": ["b"]}
    assert [change.partition(":")[0] for change in lowered.changes] == [
        "/properties/d", "/properties/d", "/properties/e"
    ]  # fmt: skip


def test_malformed_keywords_cost_themselves_and_nothing_else() -> None:
    schema = obj((), a={"type": "string", "enum": [], "pattern": 5, "description": None, "anyOf": {}, "minLength": -1})

    lowered = lower(schema, "openai")

    assert lowered.schema["properties"]["a"] == {"type": "string"}
    assert len(lowered.changes) == 5


def test_an_array_without_items_gets_some_for_apis_that_insist() -> None:
    lowered = lower(obj((), a={"type": ["array", "null"]}), "openai")

    assert lowered.schema["properties"]["a"] == {"type": ["array", "null"], "items": {}}
    assert refusal_of(lowered) is None


def test_a_name_that_an_api_refuses_is_the_reason_to_leave_the_tool_out() -> None:
    schema = obj((), **{"$schema": {"type": "string"}})

    assert lower(schema, "openai").schema["properties"]
    with pytest.raises(SchemaError, match=r"\$schema"):
        lower(schema, "anthropic")


def test_what_gemini_has_no_keyword_for_is_said_in_the_description() -> None:
    schema = obj(
        (),
        a={"type": "string", "description": "A.", "minLength": 2, "pattern": "^x", "title": "T", "examples": ["xy"]},
        b={"const": "only"},
        c={"oneOf": [{"type": "string"}, {"type": "integer"}]},
        d={"type": "string", "format": "uri"},
        e={"enum": [True, False]},
    )

    lowered = lower(schema, "gemini")

    assert lowered.schema["properties"] == {
        "a": {"type": "string", "description": 'A. (minLength: 2; pattern: "^x")'},
        "b": {"enum": ["only"]},
        "c": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "d": {"type": "string", "description": '(format: "uri")'},
        "e": {"description": "(enum: [true, false])"},
    }
    assert "/properties/a: title is left out" in lowered.changes


def test_strict_mode_requires_every_member_and_lets_null_stand_for_the_optional() -> None:
    schema = obj(
        ("a",),
        a={"type": "integer"},
        b={"type": "string", "minLength": 1},
        c={"enum": ["x", "y"]},
        d={"$ref": "#/$defs/D", "description": "D."},
        e={"type": ["string", "null"]},
        f={"const": 1},
    )

    lowered = lower({**schema, "$defs": {"D": obj(("n",), n={"type": "number"})}}, "openai-strict")

    assert lowered.fillers
    assert lowered.schema["required"] == ["a", "b", "c", "d", "e", "f"]
    assert lowered.schema["properties"] == {
        "a": {"type": "integer"},
        "b": {"type": ["string", "null"], "description": "(minLength: 1)"},
        "c": {"type": ["string", "null"], "enum": ["x", "y", None]},
        "d": {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}], "description": "D."},
        "e": {"type": ["string", "null"]},
        "f": {"anyOf": [{"const": 1, "type": "integer"}, {"type": "null"}]},
    }
    assert refusal_of(lowered, strict=True) is None


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "object"}, "members of any name"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "members of any name"),
        ({}, "any value"),
        (True, "any value"),
        ({"type": "array"}, "one type of item"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "one type of item"),
    ],
)
def test_what_strict_mode_cannot_say_is_refused_with_the_reason(part: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        lower(obj((), a=part), "openai-strict")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (obj((), **{f"p{number}": {"type": "string"} for number in range(5001)}), "5000 properties"),
        (obj((), a={"type": "string", "enum": [str(number) for number in range(1001)]}), "1000 enum values"),
    ],
)
def test_the_bounds_of_strict_mode_are_kept(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        lower(schema, "openai-strict")


def test_strict_mode_ends_at_ten_levels() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        deep = obj(("a",), a=deep)

    with pytest.raises(SchemaError, match="10 levels"):
        lower(deep, "openai-strict")


def test_anthropics_structured_outputs_keep_what_is_optional_and_refuse_recursion() -> None:
    schema = obj(("a",), a={"type": "array", "items": {"type": "string"}, "minItems": 3}, b={"type": "integer"})

    lowered = lower(schema, "anthropic-strict").schema

    assert lowered["required"] == ["a"]
    assert lowered["properties"]["a"]["description"] == "(minItems: 3)"
    with pytest.raises(SchemaError, match="within themselves"):
        lower(obj((), child={"$ref": "#"}), "anthropic-strict")


def test_nulls_that_strict_mode_made_a_model_write_are_taken_out_again() -> None:
    schema = obj(
        ("a",),
        a={"type": "string"},
        b={"type": "string"},
        c={"type": ["string", "null"]},
        d={"type": "array", "items": {"$ref": "#/$defs/D"}},
        e={"anyOf": [obj((), x={"type": "integer"}), {"type": "null"}]},
        f={},
    )
    schema["$defs"] = {"D": obj((), n={"type": "integer"}, m={"nullable": True, "type": "integer"})}
    wrote = {"a": None, "b": None, "c": None, "d": [{"n": None, "m": None}], "e": {"x": None}, "f": None, "g": None}

    kept = drop_fillers(wrote, schema)

    assert kept == {"c": None, "d": [{"m": None}], "e": {}, "f": None, "g": None}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_schema_that_is_too_deep_is_refused(dialect: Dialect) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}

    with pytest.raises(SchemaError, match="nested deeper"):
        lower(obj((), a=deep), dialect)


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"$ref": "#/$defs/A"}])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_schema_that_is_nothing_but_itself_is_refused(schema: dict[str, Any], dialect: Dialect) -> None:
    with pytest.raises(SchemaError):
        lower({**schema, "$defs": {"A": {"$ref": "#/$defs/A"}}}, dialect)


KEYWORDS = st.sampled_from(
    [
        *(
            "type",
            "properties",
            "required",
            "items",
            "enum",
            "const",
            "anyOf",
            "oneOf",
            "allOf",
            "$ref",
            "$defs",
            "not",
        ),
        *("additionalProperties", "minLength", "minimum", "exclusiveMinimum", "description", "format", "if", "x-odd"),
        *("prefixItems", "nullable", "default", "pattern", "$anchor", "definitions", "dependencies", "multipleOf"),
        *("dependentRequired", "dependentSchemas", "patternProperties", "maxItems", "uniqueItems", "examples", "title"),
    ]
)
WORDS = st.sampled_from(["object", "string", "#", "a"])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-2, 5), st.floats(allow_nan=False), WORDS)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4), max_leaves=25
)


@example(schema={"minimum": float("inf")}, dialect="openai")  # what Python calls a number, and JSON does not
@given(schema=st.dictionaries(KEYWORDS, ANYTHING, max_size=6), dialect=st.sampled_from(DIALECTS))
def test_whatever_stands_in_a_schema_it_is_lowered_to_a_valid_one_or_refused(
    schema: dict[str, Any], dialect: Dialect
) -> None:
    try:
        lowered = lower(schema, dialect)
    except SchemaError:
        return

    assert jsonschema_rs.meta.is_valid(lowered.schema)
    if dialect.startswith("openai"):
        assert refusal_of(lowered, strict=dialect == "openai-strict") is None


def test_real_tools_are_lowered_to_what_openai_takes(definitions: list[dict[str, Any]]) -> None:
    schemas: list[Any] = [one["inputSchema"] for one in definitions if isinstance(one["inputSchema"], dict)]

    refused = [reason for schema in schemas if (reason := refusal_of(lower(schema, "openai"))) is not None]

    assert not refused[:3]
