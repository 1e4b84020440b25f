"""Arguments that nearly fit a schema: what is repaired, and what stays an error."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import enum
import json
import pathlib
import uuid
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings

from tests.json_strategies import JSON
from toolweave.schema import Validator
from toolweave.schema.fitting import fitted, json_values

INT = {"type": "integer"}
TEXT = {"type": "string"}
LIST = {"type": "array", "items": INT}
OBJECT = {"type": "object", "properties": {"ids": LIST, "name": TEXT}, "required": ["ids"]}
REF = {"$ref": "#/$defs/Ids"}
EITHER = {"anyOf": [OBJECT, {"type": "null"}]}

REPAIRED: list[tuple[Any, Any, Any]] = [
    (LIST, "[1, 2]", [1, 2]),
    (LIST, " [1, 2]\n", [1, 2]),
    (LIST, ["1", 2], [1, 2]),
    (LIST, '["1", 2]', [1, 2]),
    (INT, "5", 5),
    (INT, "-5", -5),
    ({"type": "number"}, "1.5", 1.5),
    ({"type": "boolean"}, "true", True),
    ({"type": ["integer", "null"]}, "null", None),
    ({"anyOf": [INT, {"type": "null"}]}, "7", 7),
    ({"oneOf": [LIST, {"type": "null"}]}, "[7]", [7]),
    ({"enum": [1, 2]}, "2", 2),
    ({"const": 3}, "3", 3),
    ({"allOf": [INT, {"minimum": 3}]}, "3", 3),
    (OBJECT, '{"ids": [1], "name": "x"}', {"ids": [1], "name": "x"}),
    (OBJECT, {"ids": "[1]", "name": "[1]"}, {"ids": [1], "name": "[1]"}),
    (OBJECT, '{"ids": "[1]"}', {"ids": [1]}),
    (REF, "[1]", [1]),
    (EITHER, {"ids": "[1]"}, {"ids": [1]}),
    ({"type": "array", "items": OBJECT}, [{"ids": "[]"}], [{"ids": []}]),
    (OBJECT, {"ids": [1], "name": None}, {"ids": [1]}),
    ({"type": "number"}, decimal.Decimal("1.5"), 1.5),
    (TEXT, pathlib.PurePosixPath("/a"), "/a"),
    ({"type": "array"}, (1, 2), [1, 2]),
]
UNREPAIRED: list[tuple[Any, Any]] = [
    (INT, "five"),
    (INT, "1.5"),
    (INT, "1,5"),
    (INT, "0x10"),
    (INT, "NaN"),
    (INT, ""),
    (INT, '"5"'),
    (LIST, "1,2"),
    (LIST, '["a"]'),
    (LIST, "5"),
    ({"type": "boolean"}, "1"),
    ({"type": "boolean"}, "True"),
    ({"type": "boolean"}, 1),
    (INT, True),
    (TEXT, 5),
    (TEXT, [1]),
    # texts stay texts wherever one may be wanted
    ({"type": "string", "maxLength": 2}, "[1]"),
    ({"anyOf": [{"type": "string", "maxLength": 2}, LIST]}, "[1]"),
    ({"enum": ["a", 5]}, "5"),
    ({"not": TEXT}, "5"),
    # several objects may be meant
    ({"anyOf": [OBJECT, {"type": "object", "properties": {"ids": TEXT, "n": INT}, "required": ["n"]}]}, {"ids": "[1]"}),
    # a null of a required member, or in a list, means something
    ({**OBJECT, "required": ["ids", "name"]}, {"ids": [1], "name": None}),
    (LIST, [1, None]),
]


def schema_of(part: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": part}, "required": ["x"], "$defs": {"Ids": LIST}}


@pytest.mark.parametrize(("part", "value", "wanted"), REPAIRED)
def test_arguments_that_nearly_fit_are_made_to_fit(part: Any, value: Any, wanted: Any) -> None:
    validator = Validator(schema_of(part))
    before = copy.deepcopy(value)

    found = fitted(validator, {"x": value})

    assert found is not None
    assert found[0] == {"x": wanted}
    assert json.dumps(found[0]) == json.dumps({"x": wanted})  # True is not 1
    assert validator.is_valid(found[0])
    assert value == before


@pytest.mark.parametrize(("part", "value"), UNREPAIRED)
def test_everything_else_stays_an_error(part: Any, value: Any) -> None:
    assert fitted(Validator(schema_of(part)), {"x": value}) is None


def test_the_changes_name_the_places_and_no_value() -> None:
    found = fitted(Validator(schema_of(OBJECT)), {"x": {"ids": "[123]", "name": None}})

    assert found is not None
    assert sorted(found[1]) == ["x.ids is a text that holds JSON", "x.name is null and left out"]


def test_a_null_that_is_required_by_a_rule_is_kept_an_error() -> None:
    schema = {"type": "object", "properties": {"a": INT, "b": INT}, "dependentRequired": {"b": ["a"]}}

    assert fitted(Validator(schema), {"a": None, "b": 1}) is None


@pytest.mark.parametrize("text", ["[" * 100_000, "[1" + ",1" * 600_000 + "]", '{"a":' * 600 + "1" + "}" * 600])
def test_a_huge_or_deep_text_is_an_error(text: str) -> None:
    assert fitted(Validator(schema_of({"type": "array", "maxItems": 1})), {"x": text}) is None


class Filter(pydantic.BaseModel):
    since: dt.date = pydantic.Field(alias="from")


@dataclass
class Point:
    x: int


class Color(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Filter.model_validate({"from": "2024-01-01"}), {"from": "2024-01-01"}),
        (pathlib.PurePosixPath("/srv/x"), "/srv/x"),
        (Point(1), {"x": 1}),
        (Color.RED, "red"),
        (uuid.UUID(int=7), str(uuid.UUID(int=7))),
        (dt.date(2024, 1, 2), "2024-01-02"),
        ({"deep": [Filter.model_validate({"from": "2024-01-01"})]}, {"deep": [{"from": "2024-01-01"}]}),
        ((1, (2,)), [1, [2]]),
        (b"ab", "YWI="),
    ],
)
def test_values_of_python_have_their_form_in_json(value: Any, wanted: Any) -> None:
    assert json_values({"v": value}) == {"v": wanted}


def test_a_value_without_a_form_in_json_has_none() -> None:
    assert json_values({"v": object()}) is None


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_what_fits_is_never_changed_and_what_is_changed_fits(value: Any) -> None:
    for part in (INT, LIST, OBJECT, EITHER, {}, TEXT, {"enum": [1, "a", None]}):
        validator = Validator(schema_of(part))
        arguments = {"x": value}
        found = fitted(validator, arguments)
        if validator.is_valid(arguments):
            assert found == (arguments, ())
        elif found is not None:
            assert validator.is_valid(found[0])


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_a_text_that_may_be_a_text_is_never_read(value: Any) -> None:
    arguments = {"x": json.dumps(value), "n": "5"}
    schema = {"type": "object", "properties": {"x": {"type": ["string", "array", "object"]}, "n": INT}}

    found = fitted(Validator(schema), arguments)

    assert found is not None
    assert found[0] == {"x": json.dumps(value), "n": 5}
