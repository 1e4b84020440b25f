"""Schemas as LLM APIs take them: on a copy, with every loss reported."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any, get_args

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.models.openai_rules import Refused, check_chat
from tests.providers.api_rules import violations
from toolweave.errors import SchemaError
from toolweave.providers._lowering import LoweredSchema, lower
from toolweave.providers._profiles import SchemaProfile
from toolweave.providers._strict import drop_fillers

PROFILES: tuple[SchemaProfile, ...] = get_args(SchemaProfile)


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


@pytest.mark.parametrize("profile", PROFILES)
def test_a_plain_schema_stays_as_it_is_and_the_original_is_left_alone(profile: SchemaProfile) -> None:
    schema = obj(("a",), a={"type": "string", "description": "A.", "enum": ["x", "y"]})
    before = deepcopy(schema)

    lowered = lower(schema, profile)

    extra = {"additionalProperties": False} if profile.endswith("strict") else {}
    assert lowered == LoweredSchema(schema={**before, **extra})
    assert schema == before
    lowered.schema["properties"]["a"]["enum"].append("z")
    assert schema == before


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"type": ["object", "null"]}, {"$schema": "x", "title": "t"}]
)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_tool_without_parameters_is_an_object_without_properties(
    schema: dict[str, Any], profile: SchemaProfile
) -> None:
    lowered = lower(schema, profile).schema

    assert (lowered["type"], lowered["properties"]) == ("object", {})


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": "string"}, {"anyOf": [{"type": "string"}]}])
def test_arguments_that_are_no_object_are_refused(schema: dict[str, Any], profile: SchemaProfile) -> None:
    with pytest.raises(SchemaError, match="must be an object"):
        lower(schema, profile)


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


def test_arguments_whose_names_an_api_refuses_have_legal_ones_for_it() -> None:
    names = ["$top", "filter[name]", "filter_name", "a b", "a+b", "\u00e9", "x" * 70, "x" * 71, "fine"]
    schema = obj(("a b",), **{name: {"type": "string"} for name in names})
    schema["dependentRequired"] = {"$top": ["a+b"]}

    lowered = lower(schema, "anthropic")

    assert list(lower(schema, "openai").schema["properties"]) == names
    sent = list(lowered.schema["properties"])
    long = "x" * 56
    assert sent == ["top", "filter_name_2", "filter_name", "a_b", "a_b_2", "argument", long, f"{long}_2", "fine"]
    assert [lowered.renamed.get(name, name) for name in sent] == names
    assert lowered.schema["required"] == ["a_b"]
    assert lowered.schema["dependentRequired"] == {"top": ["a_b_2"]}
    assert "the arguments: the argument '$top' is called 'top'" in lowered.changes
    assert not lowered.losses


@pytest.mark.parametrize("name", ["filter[name]", "uids[]", "$top", "@type", "x" * 65, "a b", "\u00e9", "a/b", ""])
@pytest.mark.parametrize("required", [True, False])
def test_a_name_that_an_api_refuses_costs_no_tool_and_comes_back_as_it_was(name: str, required: bool) -> None:
    lowered = lower(obj((name,) if required else (), **{name: {"type": "integer"}}), "anthropic")

    (sent,) = lowered.schema["properties"]
    assert re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", sent)
    assert lowered.renamed == {sent: name}
    assert list(lowered.schema.get("required", ())) == ([sent] if required else [])
    assert refusal_of(lowered) is None


@pytest.mark.parametrize("profile", ["openai", "openai-strict", "gpt-oss", "mistral", "bedrock", "vllm"])
@pytest.mark.parametrize("pattern", [r"^(?!\.)x", r"^\d+(?<!0)$", r"(a)\1", r"^(?=x)", r"(?<=a)b"])
def test_a_pattern_with_look_around_is_said_in_the_description(profile: SchemaProfile, pattern: str) -> None:
    lowered = lower(obj(("x",), x={"type": "string", "pattern": pattern}), profile)

    assert "pattern" not in lowered.schema["properties"]["x"]
    assert "pattern: " in lowered.schema["properties"]["x"]["description"]
    assert lowered.losses == ("/properties/x: pattern is stated in the description",)


@pytest.mark.parametrize("profile", ["openai", "gpt-oss", "mistral"])
def test_names_by_a_pattern_with_look_around_are_said_in_the_description(profile: SchemaProfile) -> None:
    members = {"^(?!x-)": {"type": "string"}}
    schema = obj(
        (),
        plain={"type": "object", "patternProperties": {"^x-": {"type": "string"}}},
        odd={"type": "object", "patternProperties": members, "additionalProperties": False},
        named={"type": "object", "propertyNames": {"pattern": "^(?!x-)"}},
    )

    sent = lower(schema, profile).schema["properties"]

    assert sent["plain"]["patternProperties"] == {"^x-": {"type": "string"}}
    assert "patternProperties: " in sent["odd"]["description"]
    assert sent["odd"]["additionalProperties"] is True
    assert "pattern" not in sent["named"]["propertyNames"]


@pytest.mark.parametrize("never", [False, {"not": {}}, {"not": True}])
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("profile", get_args(SchemaProfile))
def test_an_alternative_that_nothing_fits_is_dropped(profile: SchemaProfile, keyword: str, never: Any) -> None:
    schema = obj(("a",), a={keyword: [never, {"type": "string"}], "description": "A."})

    assert lower(schema, profile).schema["properties"]["a"] == {"type": "string", "description": "A."}


@pytest.mark.parametrize(
    "reference", ["#/definitions/Page%3CItem%3E", "#/definitions/Page<Item>", "s.json#/definitions/Page%3CItem%3E"]
)
@pytest.mark.parametrize("profile", get_args(SchemaProfile))
def test_a_reference_is_followed_in_every_spelling(profile: SchemaProfile, reference: str) -> None:
    page = obj(("page",), page={"type": "integer"}) | {"additionalProperties": False}
    schema = obj(("a",), a={"$ref": reference})
    schema |= {"$id": "https://example.com/s.json", "definitions": {"Page<Item>": page}}

    lowered = lower(schema, profile)

    assert "page" in str(lowered.schema)
    assert not any("leads out" in loss for loss in lowered.losses)


def test_a_reference_to_an_anchor_of_draft_7_is_followed() -> None:
    schema = obj(("a",), a={"$ref": "#part"}) | {"definitions": {"p": {"$id": "#part", "type": "integer"}}}

    lowered = lower(schema, "bedrock")

    assert lowered.schema["properties"]["a"] == {"type": "integer"}
    assert not lowered.losses


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
        "b": {"type": "string", "enum": ["only"]},
        "c": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "d": {"type": "string", "description": '(format: "uri")'},
        "e": {"type": "boolean", "description": "(enum: [true, false])"},
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
        "b": {"type": ["string", "null"], "minLength": 1},
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
        ({"type": "array", "prefixItems": [{"type": "string"}, True]}, "any value"),
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


@pytest.mark.parametrize("profile", PROFILES)
def test_a_schema_that_is_too_deep_is_refused(profile: SchemaProfile) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}

    with pytest.raises(SchemaError, match="nested deeper"):
        lower(obj((), a=deep), profile)


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"$ref": "#/$defs/A"}])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_schema_that_is_nothing_but_itself_is_refused(schema: dict[str, Any], profile: SchemaProfile) -> None:
    with pytest.raises(SchemaError):
        lower({**schema, "$defs": {"A": {"$ref": "#/$defs/A"}}}, profile)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("length", [50, 99])
def test_a_chain_of_references_to_an_object_is_followed_to_its_end(length: int, profile: SchemaProfile) -> None:
    chain = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(length)}
    definitions = {**chain, f"d{length}": {"type": "object", "properties": {"a": {"type": "string"}}}}

    lowered = lower({"$ref": "#/$defs/d0", "$defs": definitions}, profile)

    assert list(lowered.schema["properties"]) == ["a"]


@pytest.mark.parametrize("length", [101, 120])
def test_a_chain_of_references_that_is_too_long_is_refused_for_its_length(length: int) -> None:
    chain = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(length)}

    with pytest.raises(SchemaError, match="more than 100 levels once its references are in their places"):
        lower({"$ref": "#/$defs/d0", "$defs": {**chain, f"d{length}": {"type": "object"}}}, "openai")


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


@pytest.mark.slow
@example(schema={"minimum": float("inf")}, profile="openai")  # what Python calls a number, and JSON does not
@given(schema=st.dictionaries(KEYWORDS, ANYTHING, max_size=6), profile=st.sampled_from(PROFILES))
def test_whatever_stands_in_a_schema_it_is_lowered_to_a_valid_one_or_refused(
    schema: dict[str, Any], profile: SchemaProfile
) -> None:
    try:
        lowered = lower(schema, profile)
    except SchemaError:
        return

    assert jsonschema_rs.meta.is_valid(lowered.schema)
    if profile.startswith("openai"):
        assert refusal_of(lowered, strict=profile == "openai-strict") is None


@pytest.mark.slow
def test_real_tools_are_lowered_to_what_openai_takes(definitions: list[dict[str, Any]]) -> None:
    schemas: list[Any] = [one["inputSchema"] for one in definitions if isinstance(one["inputSchema"], dict)]

    refused = [reason for schema in schemas if (reason := refusal_of(lower(schema, "openai"))) is not None]

    assert not refused[:3]


PLAIN: tuple[SchemaProfile, ...] = tuple(one for one in PROFILES if not one.endswith("strict"))
TREE = {
    **obj((), tree={"$ref": "#/definitions/Node"}, spare={"$ref": "https://example.com/schema.json"}),
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {
        "Node": obj(
            ("name",), name={"type": "string"}, children={"type": "array", "items": {"$ref": "#/definitions/Node"}}
        )
    },
}


@pytest.mark.parametrize("profile", PLAIN)
def test_a_recursive_schema_of_draft_7_with_a_reference_to_the_network_is_lowered_everywhere(
    profile: SchemaProfile,
) -> None:
    lowered = lower(TREE, profile)

    assert not violations(profile, lowered.schema)
    assert any("https://example.com/schema.json" in loss for loss in lowered.losses)
    leaf: dict[str, Any] = {"name": "b", "children": []}
    tree = {"tree": {"name": "a", "children": [leaf]}}
    assert jsonschema_rs.Draft202012Validator(lowered.schema).is_valid(tree)


def test_what_sees_no_definitions_gets_them_in_place_and_one_within_itself_by_its_type() -> None:
    lowered = lower(TREE, "bedrock")

    node = lowered.schema["properties"]["tree"]
    assert "$defs" not in lowered.schema
    assert node["properties"]["name"] == {"type": "string"}
    assert node["properties"]["children"]["items"] == {
        "type": "object",
        "description": "($ref: the form of Node again)",
    }
    assert "/properties/tree/properties/children/items: $ref is stated in the description" in lowered.losses


def test_a_definition_that_is_used_twice_is_put_in_both_places_without_a_loss() -> None:
    part = {"type": "string", "minLength": 2}
    schema = obj(
        (),
        a={"$ref": "#/$defs/P"},
        b={"$ref": "#/$defs/P", "description": "B."},
        c={"allOf": [{"$ref": "#/$defs/P"}] * 2},
    )

    lowered = lower({**schema, "$defs": {"P": part}}, "llama.cpp")

    assert lowered.schema["properties"] == {"a": part, "b": {**part, "description": "B."}, "c": part}
    assert not lowered.losses


@pytest.mark.parametrize("profile", ["gemini", "openai-strict", "llama.cpp"])
def test_what_stands_beside_a_reference_is_not_lost(profile: SchemaProfile) -> None:
    schema = obj(("a",), a={"$ref": "#/$defs/P", "maximum": 5})

    lowered = lower({**schema, "$defs": {"P": {"type": "integer", "minimum": 1}}}, profile)

    assert lowered.schema["properties"]["a"] == {"type": "integer", "minimum": 1, "maximum": 5}
    assert not lowered.losses


@pytest.mark.parametrize("profile", PROFILES)
def test_a_described_reference_of_older_pydantic_may_recur(profile: SchemaProfile) -> None:
    node = obj((), child={"allOf": [{"$ref": "#/definitions/Node"}], "description": "The next."})
    schema = {**obj((), node={"$ref": "#/definitions/Node"}), "definitions": {"Node": node}}

    if profile in ("anthropic-strict", "gpt-oss-strict"):
        with pytest.raises(SchemaError, match=r"themselves|any name"):
            lower(schema, profile)
        return
    lowered = lower(schema, profile)

    assert not violations(profile, lowered.schema)
    assert "The next." in str(lowered.schema)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("gemini", {"prefixItems": [{"type": "number"}, {"type": "string"}], "maxItems": 2, "items": {}}),
        ("anthropic-strict", {"items": {"anyOf": [{"type": "number"}, {"type": "string"}]}}),
        ("openai-strict", {"items": {"anyOf": [{"type": "number"}, {"type": "string"}]}, "maxItems": 2}),
        ("ollama", {"items": {"anyOf": [{"type": "number"}, {"type": "string"}]}}),
    ],
)
def test_a_list_with_a_schema_for_each_place_keeps_its_kinds(profile: SchemaProfile, expected: dict[str, Any]) -> None:
    pair = {"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": False}

    lowered = lower(obj(("pair",), pair=pair), profile)

    made = lowered.schema["properties"]["pair"]
    said = made.pop("description", "")
    assert made == {"type": "array", **expected}
    assert ("prefixItems" in said) == (profile != "gemini")
    assert bool(lowered.losses) == (profile != "gemini")


@pytest.mark.parametrize("pattern", ["^(?=a)", "(?!b)x", "(?<=c)", "(?<!d)", r"(a)\1", r"\\(?=x)"])
def test_strict_mode_is_told_of_look_around_in_words(pattern: str) -> None:
    lowered = lower(obj(("a",), a={"type": "string", "pattern": pattern}), "openai-strict")

    assert "pattern" not in lowered.schema["properties"]["a"]
    assert "(pattern: " in lowered.schema["properties"]["a"]["description"]
    assert lowered.losses == ("/properties/a: pattern is stated in the description",)


@pytest.mark.parametrize("pattern", [r"^a(?:b|c)$", r"\(?=x", r"[a-z]{2,}\d+", ""])
def test_a_pattern_without_look_around_stays(pattern: str) -> None:
    lowered = lower(obj(("a",), a={"type": "string", "pattern": pattern}), "openai-strict")

    assert lowered.schema["properties"]["a"]["pattern"] == pattern


def test_the_top_of_a_schema_for_bedrock_has_three_members_and_the_rest_is_said_of_the_tool() -> None:
    schema = {
        **obj(("a",), a={"type": "string"}),
        "description": "Own.",
        "additionalProperties": False,
        "minProperties": 1,
    }

    lowered = lower(schema, "bedrock")

    assert lowered.schema == obj(("a",), a={"type": "string"})
    assert lowered.description == "Own. (minProperties: 1)"
    assert lowered.losses == (
        "the arguments: additionalProperties is left out",
        "the arguments: minProperties is stated in the description",
    )


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (obj((), a={"type": "string", "enum": ["x" * 60 + str(one) for one in range(260)]}), "15000 characters"),
        (obj((), **{"p" * 60 + str(one): {"type": "string"} for one in range(2_000)}), "120000 characters"),
    ],
)
def test_the_characters_of_strict_mode_are_counted(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        lower(schema, "openai-strict")


@pytest.mark.parametrize("profile", ["openai-strict", "anthropic-strict"])
def test_a_member_that_is_required_and_has_no_schema_cannot_be_strict(profile: SchemaProfile) -> None:
    with pytest.raises(SchemaError, match="required member 'b'"):
        lower({**obj(("a", "b"), a={"type": "string"}), "additionalProperties": False}, profile)


@pytest.mark.parametrize("part", [{}, True, {"type": "array"}, {"description": "Anything."}])
def test_structured_outputs_of_claude_name_every_type(part: Any) -> None:
    with pytest.raises(SchemaError, match=r"any value|type of item"):
        lower(obj((), a=part), "anthropic-strict")


def test_members_of_a_pattern_are_not_forbidden_where_the_pattern_is_lost() -> None:
    schema = obj(
        (), a={"type": "object", "patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}
    )

    lowered = lower(schema, "gemini")

    assert lowered.schema["properties"]["a"]["additionalProperties"] is True
    assert any("patternProperties" in loss for loss in lowered.losses)


def nested(levels: int, keyword: str) -> dict[str, Any]:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        deep = {"type": "array", "items": deep} if keyword == "items" else {keyword: [deep]}
    return obj((), a=deep)


def doubling(count: int, part: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return a schema of definitions each of which refers to the next twice."""
    definitions = {f"d{one}": part({"$ref": f"#/$defs/d{one + 1}"}) for one in range(count)}
    return {**obj((), a={"$ref": "#/$defs/d0"}), "$defs": {**definitions, f"d{count}": {"type": "string"}}}


HOSTILE: dict[str, dict[str, Any]] = {
    "10,000 levels of items": nested(10_000, "items"),
    "10,000 levels of alternatives": nested(10_000, "anyOf"),
    "a chain of 10,000 references": doubling(10_000, lambda ref: ref),
    "a chain of 10,000 members": doubling(10_000, lambda ref: obj((), x=ref)),
    "parts that double in one value": doubling(40, lambda ref: {"allOf": [ref, ref]}),
    "alternatives that double in one value": doubling(40, lambda ref: {"anyOf": [ref, ref]}),
    "members that double": doubling(40, lambda ref: obj((), x=ref, y=ref)),
    "members that double, as parts": doubling(40, lambda ref: obj((), x={"allOf": [ref, {}]}, y={"allOf": [ref, {}]})),
    "a part of itself": doubling(1, lambda _: {"allOf": [{"$ref": "#/$defs/d0"}, {"minLength": 1}]}),
    "a member of itself beside more": doubling(
        1, lambda _: obj((), x={"allOf": [{"$ref": "#/$defs/d0"}, {"minProperties": 1}]})
    ),
    "thousands of references of one name": obj(
        (),
        **{f"p{one}": obj((), x={"type": "string"}) for one in range(2_000)},
        **{f"r{one}": {"$ref": f"#/properties/p{one}/properties/x"} for one in range(2_000)},
    ),
    "alternatives of alternatives at the top": {
        "anyOf": [{"$ref": "#/$defs/d0"}] * 50,
        "$defs": {
            "d0": {"oneOf": [{"$ref": "#/$defs/d1"}] * 50},
            "d1": {"allOf": [obj((), a={"type": "string"})] * 10},
        },
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_schema_made_to_hurt_is_lowered_or_refused_with_the_reason_and_soon(
    name: str, profile: SchemaProfile
) -> None:
    with contextlib.suppress(SchemaError):
        assert not violations(profile, lower(HOSTILE[name], profile).schema)


def test_arguments_for_alternatives_that_refer_to_themselves_are_read_at_once() -> None:
    form = {"anyOf": [*[{"$ref": "#/$defs/F"}] * 100, obj((), a={"$ref": "#/$defs/F"}, b={"type": "string"})]}
    wrote: Any = {"b": None}
    for _ in range(40):
        wrote = {"a": wrote, "b": None}

    kept = drop_fillers({"f": wrote}, {**obj((), f={"$ref": "#/$defs/F"}), "$defs": {"F": form}})

    assert "b" not in str(kept)


def test_nulls_in_lists_with_a_schema_for_each_place_are_taken_out_too() -> None:
    member = obj((), n={"type": "integer"})
    kept = drop_fillers(
        {"new": [{"n": None}, {"n": 1}], "old": [{"n": None}]},
        obj((), new={"prefixItems": [member], "items": member}, old={"items": [member]}),
    )

    assert kept == {"new": [{}, {"n": 1}], "old": [{}]}
