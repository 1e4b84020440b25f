"""A compiled schema says yes or no, and why not, in words a model can act on."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.errors import SchemaError
from toolweave.providers import SchemaProfile, lower
from toolweave.schema import Problem, Validator, describe
from toolweave.schema.limits import MAX_INSTANCE_DEPTH, MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES
from toolweave.schema.problems import MAX_PROBLEMS, path_text

SEARCH = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["text"],
    "additionalProperties": False,
}


def said(schema: Mapping[str, Any] | bool, instance: Any) -> str:
    return describe(Validator(schema).problems(instance))


@pytest.mark.requirement("R46", "C10")
def test_arguments_that_fit_have_no_problems() -> None:
    validator = Validator(SEARCH)

    assert validator.is_valid({"text": "fjord", "count": 3})
    assert validator.problems({"text": "fjord", "count": 3}) == ()


@pytest.mark.requirement("R94", "C10")
def test_a_misspelt_property_is_answered_with_the_near_one_and_the_allowed_ones() -> None:
    text = said(SEARCH, {"text": "fjord", "cout": 3})

    assert text == '"cout" is not a known property; did you mean "count"? (allowed: count, text)'


@pytest.mark.requirement("R94")
@pytest.mark.parametrize(
    "schema, instance, expected",
    [
        (SEARCH, {}, 'missing required property "text"'),
        (SEARCH, {"text": 3}, '"text": expected string, got integer 3'),
        (SEARCH, {"text": "a", "count": "ten"}, '"count": expected integer, got string "ten"'),
        (SEARCH, {"text": "a", "count": 0}, '"count": must be at least 1, got integer 0'),
        (SEARCH, {"text": "a", "count": None}, '"count": expected integer, got null'),
        (SEARCH, {"text": "a", "count": True}, '"count": expected integer, got boolean true'),
        (SEARCH, {"text": "a", "count": 1.5}, '"count": expected integer, got number 1.5'),
        (SEARCH, ["text"], "expected object, got array"),
        (SEARCH, {"text": "a", "zzz": 1}, '"zzz" is not a known property (allowed: count, text)'),
        ({"additionalProperties": False}, {"a": 1}, "takes no properties"),
        (
            {"properties": {}, "additionalProperties": False},
            {"a": 1},
            '"a" is not a known property; this object has no properties',
        ),
        ({"unevaluatedProperties": False}, {"a": 1}, '"a" is not a known property; this object has no properties'),
        ({"enum": ["a", "b"]}, "c", 'must be one of "a", "b"; got string "c"'),
        (
            {"enum": list(range(30))},
            99,
            f"must be one of {', '.join(map(str, range(20)))}, ... (30 in all); got integer 99",
        ),
        ({"const": 1}, 2, "must be 1; got integer 2"),
        ({"type": ["string", "null"]}, 1, "expected null or string, got integer 1"),
        ({"maximum": 3}, 4.5, "must be at most 3, got number 4.5"),
        ({"minItems": 2}, [1], "must have at least 2 items"),
        ({"maxLength": 2}, "abc", 'must have at most 2 characters, got string "abc"'),
        ({"pattern": "^a"}, "b", 'must match the pattern "^a", got string "b"'),
        ({"uniqueItems": True}, [1, 1], "must not contain the same item twice"),
        ({"multipleOf": 2}, 3, "must be a multiple of 2, got integer 3"),
        ({"not": {"type": "string"}}, "x", 'has a form that is not allowed, got string "x"'),
        ({"contains": {"const": 1}}, [2], "does not contain the items it must"),
        ({"properties": {"a": False}}, {"a": 1}, '"a": is not allowed here'),
        (False, 1, "is not allowed here"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "contentEncoding": "base64"},
            "?",
            "does not satisfy 'contentEncoding' of the schema",
        ),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "has a property whose name is not allowed"),
        ({"prefixItems": [{"type": "string"}]}, [1], '"[0]": expected string, got integer 1'),
        ({"additionalProperties": {"type": "string"}}, {"a b": 1}, '"["a b"]": expected string, got integer 1'),
    ],
)
def test_each_problem_says_where_what_was_wrong_and_what_is_allowed(schema: Any, instance: Any, expected: str) -> None:
    assert said(schema, instance) == expected


def test_a_problem_deep_inside_names_its_path_as_a_person_writes_it() -> None:
    schema: dict[str, Any] = {
        "$defs": {"Filter": {"type": "object", "properties": {"name": {}}, "additionalProperties": False}},
        "properties": {"filters": {"type": "array", "items": {"$ref": "#/$defs/Filter"}}},
    }

    assert said(schema, {"filters": [{}, {"nam": 1}]}) == (
        '"filters[1]": "nam" is not a known property; did you mean "name"? (allowed: name)'
    )


def test_several_problems_are_a_line_each() -> None:
    assert said(SEARCH, {"count": "x"}) == (
        '- "count": expected integer, got string "x"\n- missing required property "text"'
    )


def test_no_more_than_ten_problems_are_told_and_the_rest_is_counted() -> None:
    problems = Validator({"items": {"type": "string"}}).problems(list(range(25)))

    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == Problem(path="", message="... and 15 more problems")


def test_of_a_huge_value_only_the_first_problem_is_told() -> None:
    problems = Validator({"items": {"type": "string"}}).problems([1] * 20_000)

    assert [str(problem) for problem in problems] == ['"[0]": expected string, got integer 1']


def test_a_long_value_is_shown_only_in_part() -> None:
    text = said({"type": "integer"}, "x" * 5000)

    assert len(text) < 100
    assert text.endswith('..."')


def test_a_value_whose_name_says_it_is_secret_is_never_shown() -> None:
    schema = {"properties": {"api_key": {"type": "integer"}, "auth": {"properties": {"token": {"maxLength": 3}}}}}

    text = said(schema, {"api_key": "hunter2", "auth": {"token": "hunter2"}})

    assert "hunter2" not in text
    assert '"api_key": expected integer, got string' in text


def test_the_alternative_that_was_meant_is_the_one_explained() -> None:
    schema = {
        "anyOf": [
            {"type": "null"},
            {"type": "object", "properties": {"q": {"type": "number"}}, "required": ["q"]},
        ]
    }

    assert said(schema, {}) == 'missing required property "q"'
    assert said(schema, "x") == 'expected null or object, got string "x"'


def test_a_tagged_alternative_is_found_by_its_tag() -> None:
    schema = {
        "oneOf": [
            {"properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
            {"properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
        ]
    }

    assert said(schema, {"kind": "square"}) == 'missing required property "side"'
    assert said(schema, {"kind": "line"}) == 'expected kind = "circle" or kind = "square", got object'


def test_alternatives_that_all_could_be_meant_are_all_explained() -> None:
    schema = {"anyOf": [{"required": ["path"]}, {"required": ["url"]}]}

    assert said(schema, {}) == (
        'fits none of 2 alternatives: missing required property "path"; or missing required property "url"'
    )


def test_alternatives_of_fixed_values_are_listed() -> None:
    assert said({"anyOf": [{"enum": ["a", "b"]}, {"const": 3}]}, "c") == (
        'expected one of "a", "b" or 3, got string "c"'
    )


def test_a_value_that_fits_two_exclusive_alternatives_is_told_so() -> None:
    assert said({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1) == (
        "fits more than one of the alternatives, exactly one is wanted"
    )


def test_what_is_no_json_value_is_a_problem_and_no_crash() -> None:
    validator = Validator(SEARCH)

    assert not validator.is_valid({"text": {1, 2}})
    assert "is not a JSON value" in describe(validator.problems({"text": {1, 2}}))


def test_any_mapping_is_taken_as_an_object() -> None:
    validator = Validator(MappingProxyType(SEARCH))

    assert validator.is_valid(MappingProxyType({"text": "a"}))
    assert validator.problems(MappingProxyType({"text": "a"})) == ()
    assert repr(validator).startswith("Validator(")


def test_a_value_nested_without_end_is_refused_instead_of_exhausting_the_stack() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    validator = Validator({"properties": {"a": {"$ref": "#"}}})

    assert not validator.is_valid(deep)
    assert not validator.is_valid(endless)
    assert str(MAX_INSTANCE_DEPTH) in describe(validator.problems(deep))


@pytest.mark.requirement("C10")
def test_problems_inside_a_schema_with_an_id_of_its_own_are_told_as_well() -> None:
    part = {
        "$id": "https://example.org/part",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": False,
    }

    text = said({"$defs": {"part": part}, "$ref": "https://example.org/part"}, {"n": "x", "m": 1})

    assert text == '- "n": expected integer, got string "x"\n- "m" is not a known property'


def test_unknown_keywords_and_formats_never_block() -> None:
    validator = Validator({"type": "string", "format": "date", "optional": True, "x-order": 3})

    assert validator.is_valid("no date at all")


@pytest.mark.parametrize(
    "dialect",
    [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
        "https://json-schema.org/draft/2019-09/schema",
    ],
)
def test_an_older_dialect_is_honoured(dialect: str) -> None:
    validator = Validator({"$schema": dialect, "items": [{"type": "string"}]})

    assert validator.is_valid(["a", 1])
    assert not validator.is_valid([1])


def test_an_unknown_dialect_is_read_as_the_current_one_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "toolweave"):
        validator = Validator({"$schema": "https://example.org/mine", "prefixItems": [{"type": "string"}]})

    assert not validator.is_valid([1])
    assert "https://example.org/mine" in caplog.text


@pytest.fixture
def web() -> Iterator[tuple[str, list[str]]]:
    """A web server that would serve a schema, and the requests it got."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.mark.slow
@pytest.mark.requirement("C10")
@pytest.mark.parametrize(
    "text",
    [
        '{"$ref": "URL/schema.json"}',
        '{"properties": {"a": {"items": {"$ref": "URL/schema.json#/a"}}}}',
        '{"$id": "URL/root.json", "$ref": "other.json"}',
        '{"$dynamicRef": "URL/schema.json"}',
        '{"$schema": "URL/dialect"}',
        '{"$defs": {"a": {"$schema": "URL/dialect", "$id": "x:y"}}, "$ref": "x:y"}',
    ],
)
def test_nothing_is_ever_fetched_from_the_network(web: tuple[str, list[str]], text: str) -> None:
    url, requests = web
    try:
        Validator(json.loads(text.replace("URL", url))).is_valid({"a": [1]})
    except SchemaError:
        pass  # what matters is that nobody asked

    assert requests == []


@pytest.mark.requirement("C10")
def test_a_reference_out_of_the_schema_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    uri = (tmp_path / "a.json").as_uri()

    with pytest.raises(SchemaError, match=r"http://127\.0\.0\.1:9/x.*never fetched"):
        Validator({"$ref": "http://127.0.0.1:9/x"})
    with pytest.raises(SchemaError, match=r"a\.json"):
        Validator({"$ref": uri})
    with pytest.raises(SchemaError, match=r"beside\.json"):
        Validator({"$ref": "beside.json"})


def test_references_inside_the_schema_work_by_pointer_anchor_and_id() -> None:
    schema = {
        "$defs": {
            "a": {"$anchor": "named", "type": "string"},
            "b": {"$id": "https://example.org/b", "type": "integer"},
        },
        "properties": {
            "p": {"$ref": "#/$defs/a"},
            "q": {"$ref": "#named"},
            "r": {"$ref": "https://example.org/b"},
        },
    }
    validator = Validator(schema)

    assert validator.is_valid({"p": "x", "q": "x", "r": 1})
    assert len(validator.problems({"p": 1, "q": 1, "r": "x"})) == 3


@pytest.mark.requirement("D12")
@pytest.mark.parametrize(
    "schema",
    [
        "a string",
        ["a list"],
        None,
        7,
        {"type": "objekt"},
        {"properties": []},
        {"required": True},
        {"properties": {"a": {"type": 3}}},
        {"minLength": -1},
        {"pattern": "(unclosed"},
        {"$ref": "#/$defs/nowhere"},
        {"default": {1, 2}},
        {1: 2},
    ],
    ids=repr,
)
def test_an_odd_schema_is_refused_by_name_and_never_crashes(schema: Any) -> None:
    with pytest.raises(SchemaError):
        Validator(schema)


def test_an_error_in_a_schema_says_where_and_is_short() -> None:
    with pytest.raises(SchemaError) as caught:
        Validator({"properties": {"a": {"type": "x" * 1000}}})

    assert caught.value.pointer == "/properties/a/type"
    assert len(str(caught.value)) < 300


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels // 2):
        schema = {"properties": {"a": schema}}
    return schema


def test_a_schema_that_is_too_deep_is_refused_before_anything_recurses() -> None:
    assert Validator(nested(MAX_SCHEMA_DEPTH)).is_valid({})
    for levels in (MAX_SCHEMA_DEPTH + 2, 100_000):
        with pytest.raises(SchemaError, match="deeper"):
            Validator(nested(levels))


def test_a_schema_that_contains_itself_in_memory_is_refused() -> None:
    schema: dict[str, Any] = {"properties": {}}
    schema["properties"]["self"] = schema

    with pytest.raises(SchemaError, match="deeper"):
        Validator(schema)


def test_a_schema_with_too_many_parts_is_refused() -> None:
    with pytest.raises(SchemaError, match=str(MAX_SCHEMA_NODES)):
        Validator({"properties": {f"p{number}": {} for number in range(MAX_SCHEMA_NODES)}})


def test_a_schema_whose_combinations_explode_is_refused() -> None:
    steps = {f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(40)}

    with pytest.raises(SchemaError, match="apply to one value"):
        Validator({"$defs": {**steps, "s40": {}}, "$ref": "#/$defs/s0"})


def test_a_chain_of_references_that_is_too_long_is_refused() -> None:
    steps = {f"s{n}": {"$ref": f"#/$defs/s{n + 1}"} for n in range(3_000)}

    with pytest.raises(SchemaError, match="chain"):
        Validator({"$defs": {**steps, "s3000": {}}, "$ref": "#/$defs/s0"})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"anyOf": [True, {"not": {"if": {"const": 1}, "then": {"$ref": "#"}}}]},
        {"anyOf": "no list", "$defs": {"a": {"allOf": [{"$ref": "#/allOf/7/x"}, {"$ref": "#/$defs/a/allOf/0"}]}}},
    ],
)
def test_a_schema_that_refers_to_itself_compiles_or_is_refused_but_returns(schema: dict[str, Any]) -> None:
    try:
        Validator(schema).is_valid({"a": 1})
    except SchemaError:
        pass  # either answer is one


def test_a_pattern_with_runaway_backtracking_answers_at_once() -> None:
    validator = Validator({"pattern": r"^(?=(a+)+$)(a+)+b$"})

    assert not validator.is_valid("a" * 60)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.slow
@given(instance=JSON)
def test_a_value_is_valid_exactly_when_it_has_no_problems(instance: Any) -> None:
    schema = {"anyOf": [SEARCH, {"type": "array", "items": {"type": ["integer", "null"]}}, {"enum": [1, "a"]}]}
    validator = Validator(schema)

    assert validator.is_valid(instance) == (not validator.problems(instance))


@pytest.mark.slow
@given(schema=st.dictionaries(st.sampled_from(["type", "properties", "items", "anyOf", "$ref", "enum"]), JSON))
def test_any_json_value_as_a_schema_compiles_or_is_refused_by_name(schema: dict[str, Any]) -> None:
    try:
        validator = Validator(schema)
    except SchemaError:
        return
    validator.problems({"a": [1, None]})


@given(parts=st.lists(st.text(min_size=1, max_size=4) | st.integers(0, 9)))
def test_a_path_is_written_the_same_way_for_the_same_parts_only(parts: list[str | int]) -> None:
    text = path_text(parts)

    assert (text == "") == (not parts)
    assert path_text([*parts, "x"]) != text


@pytest.mark.slow
@pytest.mark.requirement("R47")
def test_every_real_definition_compiles_or_is_refused_by_name(definitions: list[dict[str, Any]]) -> None:
    compiled = refused = 0
    for definition in definitions:
        for schema in (definition["inputSchema"], definition["outputSchema"]):
            if schema is None:
                continue
            try:
                validator = Validator(schema)
            except SchemaError:
                refused += 1
            else:
                compiled += 1
                validator.problems({"no such property": 1})

    assert compiled > 0.99 * len(definitions)
    assert refused < 50


NULLABLE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "typed": {"type": "string", "nullable": True},
        "items": {"type": "array", "items": {"type": "integer", "nullable": True}},
        "choice": {"type": "string", "enum": ["x"], "nullable": True},
        "choice_alone": {"enum": ["x"], "nullable": True},
        "referred": {"$ref": "#/$defs/Part", "nullable": True},
        "inside": {"$ref": "#/components/schemas/Other"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}], "nullable": True},
        "exactly": {"oneOf": [{"type": "integer"}, {"type": "boolean"}], "nullable": True},
        "all": {"allOf": [{"$ref": "#/$defs/Part"}], "nullable": True, "description": "A part."},
        "nullable": {"type": "boolean"},
    },
    "$defs": {"Part": {"type": "object", "required": ["n"]}},
    "components": {"schemas": {"Other": {"type": "integer", "nullable": True}}},
}


@pytest.mark.parametrize("name", [one for one in NULLABLE["properties"] if one not in ("items", "nullable")])
def test_null_is_valid_where_a_schema_of_openapi_says_so(name: str) -> None:
    validator = Validator(NULLABLE)

    assert validator.is_valid({name: None})
    assert not validator.problems({name: None})
    assert not validator.is_valid({name: 1.5})
    assert validator.problems({name: 1.5})


@pytest.mark.parametrize("profile", ["openai", "anthropic", "mistral"])
def test_what_the_model_is_told_about_null_is_what_is_checked(profile: SchemaProfile) -> None:
    told = Validator(lower(NULLABLE, profile).schema)
    checked = Validator(NULLABLE)

    for name in NULLABLE["properties"]:
        for value in (None, 1.5, [None], 1, True):
            assert told.is_valid({name: value}) <= checked.is_valid({name: value}), (name, value)
            assert told.is_valid({name: None}) == checked.is_valid({name: None}), name


def test_a_null_that_no_schema_allows_is_still_a_problem() -> None:
    validator = Validator({"type": "object", "properties": {"a": {"type": "string", "nullable": False}}})

    assert not validator.is_valid({"a": None})


@pytest.mark.parametrize(
    "bad",
    [
        {"exclusiveMinimum": True, "type": "integer"},
        {"type": "date"},
        {"type": "Str"},
        {"pattern": "["},
        {"pattern": "{,2}"},
        {"patternProperties": {"[": {"type": "string"}}},
        {"required": True},
        {"enum": "x"},
        {"minLength": "3"},
        {"properties": ["a"]},
        {"$ref": "#/$defs/Gone"},
        {"$ref": "https://example.com/elsewhere.json"},
        {"anyOf": []},
        {"multipleOf": 0},
    ],
    ids=str,
)
def test_one_bad_keyword_costs_no_other_check(bad: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {"odd": bad, "list": {"type": "array", "items": bad}, "count": {"type": "integer"}},
        "required": ["count"],
    }
    before = str(schema)

    with pytest.raises(SchemaError):
        Validator(schema)
    validator, changes = Validator.repaired(schema)

    assert changes or bad == {"exclusiveMinimum": True, "type": "integer"}  # of draft 4: half of a bound
    assert validator.is_valid({"count": 1})
    assert not validator.is_valid({"count": "many"})
    assert not validator.is_valid({})
    assert str(schema) == before


def test_a_sound_schema_is_repaired_to_one_that_takes_the_same() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/A", "maxLength": 1}, "t": {"items": [{"type": "integer"}]}},
        "definitions": {"A": {"$id": "#a", "type": "string"}},
    }

    validator, changes = Validator.repaired(schema)

    assert not changes
    assert validator.is_valid({"a": "longer", "t": [1, "x"]})  # until draft 7 all beside a reference is ignored
    assert not validator.is_valid({"a": 1})
    assert not validator.is_valid({"t": ["x"]})


def test_a_schema_of_which_nothing_can_be_read_is_an_error() -> None:
    with pytest.raises(SchemaError, match="no part"):
        Validator.repaired({"$ref": "https://example.com/elsewhere.json", "description": "Elsewhere."})


def test_a_schema_beyond_the_bounds_is_not_repaired() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"items": deep}

    with pytest.raises(SchemaError, match="nested deeper"):
        Validator.repaired(deep)
