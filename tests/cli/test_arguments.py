"""From typed words to one arguments object."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.cli._arguments import fit_arguments, missing_arguments, read_arguments
from toolweave.cli._exit_codes import CommandError, ExitCode

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "none": {"type": "null"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "filter": {"type": "object", "properties": {"owner": {"type": "string"}, "max": {"type": "integer"}}},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "level": {"enum": ["low", 2, True, None]},
        "shared": {"$ref": "#/$defs/count~1er"},
        "loop": {"$ref": "#/properties/loop"},
        "dangling": {"$ref": "#/nowhere"},
        "remote": {"$ref": "https://example.org/schema"},
        "dotted.name": {"type": "integer"},
        "any": {},
    },
    "required": ["text", "count"],
    "$defs": {"count/er": {"type": "integer"}},
}


def no_stdin() -> str:
    raise AssertionError("standard input must not be read")


def fit(*tokens: str, json_args: str | None = None, stdin: str = "") -> dict[str, Any]:
    return fit_arguments(read_arguments(tokens, json_args=json_args, stdin=lambda: stdin), SCHEMA)


def refusal(*tokens: str, json_args: str | None = None) -> CommandError:
    with pytest.raises(CommandError) as caught:
        fit(*tokens, json_args=json_args)
    return caught.value


@pytest.mark.parametrize(
    "token, expected",
    [
        ("text=12", {"text": "12"}),
        ("text=", {"text": ""}),
        ("text=a=b", {"text": "a=b"}),
        ("text==b", {"text": "=b"}),
        ("text=true", {"text": "true"}),
        ("text=two\nlines", {"text": "two\nlines"}),
        ("count=12", {"count": 12}),
        ("count=+3", {"count": 3}),
        ("count=-3", {"count": -3}),
        ("count=2.0", {"count": 2}),
        ("ratio=2", {"ratio": 2}),
        ("ratio=1e-3", {"ratio": 0.001}),
        ("deep=yes", {"deep": True}),
        ("deep=OFF", {"deep": False}),
        ("none=null", {"none": None}),
        ('tags=["a","b"]', {"tags": ["a", "b"]}),
        ('filter={"owner":"me"}', {"filter": {"owner": "me"}}),
        ("filter.owner=me", {"filter": {"owner": "me"}}),
        ("filter.max=3", {"filter": {"max": 3}}),
        ("dotted.name=3", {"dotted.name": 3}),
        ("unknown.key=3", {"unknown.key": "3"}),
        ("text.key=3", {"text.key": "3"}),
        (".x=3", {".x": "3"}),
        ("maybe=5", {"maybe": 5}),
        ("maybe=null", {"maybe": None}),
        ("either=5", {"either": "5"}),
        ("level=low", {"level": "low"}),
        ("level=2", {"level": 2}),
        ("level=true", {"level": True}),
        ("shared=4", {"shared": 4}),
        ("loop=x", {"loop": "x"}),
        ("dangling=x", {"dangling": "x"}),
        ("remote=x", {"remote": "x"}),
        ("any=5", {"any": "5"}),
        ("other=5", {"other": "5"}),
        ("text:=5", {"text": 5}),
        ('any:=[1,{"a":null}]', {"any": [1, {"a": None}]}),
        ("日本=x", {"日本": "x"}),
    ],
)
def test_a_word_becomes_the_value_that_the_schema_asks_for(token: str, expected: dict[str, Any]) -> None:
    actual = fit(token)

    assert json.dumps(actual) == json.dumps(expected)


@pytest.mark.parametrize(
    "token, expected",
    [
        ("count=many", "expected integer, got 'many'"),
        ("count=1.5", "expected integer"),
        ("count=true", "expected integer"),
        ("count=", "expected integer"),
        ("ratio=NaN", "expected number"),
        ("ratio=1e999", "expected number"),
        ("deep=maybe", "expected boolean"),
        ("none=nil", "expected null"),
        ("tags=a,b", "expected array"),
        ("tags={}", "expected array"),
        ('filter={"a":1,"a":2}', "expected object"),
        ("maybe=x", "expected integer or null"),
        ("filter.max=x", "argument 'filter.max'"),
    ],
)
def test_a_word_of_the_wrong_type_does_not_fit_the_tool(token: str, expected: str) -> None:
    error = refusal(token)

    assert expected in error.message
    assert error.code is ExitCode.TOOL_ERROR


@pytest.mark.parametrize(
    "tokens, expected",
    [
        (["text"], "argument 'text' is not understood"),
        (["=x"], "argument '=x' is not understood"),
        (["text=a", "text=b"], "argument 'text' was given twice"),
        (["text=a", "text:=1"], "argument 'text' was given twice"),
        (["count:=[1"], "argument 'count': not valid JSON: Expecting ',' delimiter (line 1, column 3)"),
        (["count:=NaN"], "NaN is not a JSON number"),
        (["count:=1e999"], "1e999 is not a JSON number"),
        (['filter:={"a":1,"a":2}'], "key 'a' is given twice"),
        (["count:=" + "[" * 200_000], "not valid JSON"),
        (["@/does/not/exist"], "cannot read file '/does/not/exist': No such file"),
        (["text=@/does/not/exist"], "cannot read file"),
        (["text=@a\0b"], "cannot read file"),
        (["-"], "standard input: not valid JSON"),
    ],
)
def test_words_that_cannot_be_read_are_wrong_usage(tokens: list[str], expected: str) -> None:
    error = refusal(*tokens)

    assert expected in error.message
    assert error.code is ExitCode.USAGE


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[1]", "--json-args: expected a JSON object of arguments, got a list"),
        ("null", "got null"),
        ("true", "got a boolean"),
        ("1", "got a number"),
        ('"x"', "got a string"),
        ("{", "--json-args: not valid JSON"),
    ],
)
def test_the_whole_arguments_must_be_one_json_object(text: str, expected: str) -> None:
    error = refusal(json_args=text)

    assert expected in error.message
    assert error.code is ExitCode.USAGE


def test_single_arguments_override_the_whole_object() -> None:
    whole = '{"text": "a", "count": 1, "filter": {"owner": "me", "max": 1}}'

    assert fit("count=2", "filter.max=5", json_args=whole) == {
        "text": "a",
        "count": 2,
        "filter": {"owner": "me", "max": 5},
    }


def test_the_whole_object_may_come_from_a_file_or_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "arguments.json"
    file.write_text('\ufeff{"text": "ä"}', "utf-8")

    assert fit(f"@{file}") == {"text": "ä"}
    assert fit("-", stdin='{"text": "b"}') == {"text": "b"}


def test_two_whole_objects_are_wrong_usage() -> None:
    error = refusal("-", json_args="{}")

    assert "given twice, by --json-args and standard input" in error.message


def test_one_value_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("two\nlines\n", "utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", "utf-8")

    assert fit(f"text=@{tmp_path / 'text'}", f"any:=@{tmp_path / 'list.json'}") == {
        "text": "two\nlines\n",
        "any": [1, 2],
    }


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")

    assert "is not UTF-8 text" in refusal(f"text=@{tmp_path / 'binary'}").message


def test_a_missing_file_says_how_to_write_a_text_that_starts_with_an_at_sign() -> None:
    assert refusal("text=@nobody").hint == "for a text that starts with @ write it as JSON: key:='\"@nobody\"'"


def test_nothing_given_is_false() -> None:
    assert not read_arguments([], json_args=None, stdin=no_stdin)
    assert read_arguments([], json_args="{}", stdin=no_stdin)


@pytest.mark.parametrize(
    "arguments, schema, expected",
    [
        ({}, SCHEMA, ["text", "count"]),
        ({"text": None}, SCHEMA, ["count"]),
        ({}, {}, []),
        ({}, {"required": True}, []),
        ({}, {"required": ["a", 5]}, ["a"]),
    ],
)
def test_missing_arguments_are_the_required_ones_not_given(
    arguments: dict[str, Any], schema: dict[str, Any], expected: list[str]
) -> None:
    assert missing_arguments(arguments, schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": []},
        {"properties": {"a": True}},
        {"properties": {"a": {"type": 5}}},
        {"properties": {"a": {"anyOf": 3}}},
    ],
)
def test_an_odd_schema_leaves_the_word_a_string(schema: dict[str, Any]) -> None:
    assert fit_arguments(read_arguments(["a=1"], json_args=None, stdin=no_stdin), schema) == {"a": "1"}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.slow
@given(JSON_VALUES)
def test_any_json_value_travels_by_colon_equals(value: Any) -> None:
    assert fit(f"any:={json.dumps(value)}") == {"any": value}


@pytest.mark.slow
@given(st.integers(-(10**15), 10**15) | st.booleans() | st.none() | st.text())
def test_a_value_of_a_declared_type_travels_as_a_plain_word(value: Any) -> None:
    key = {int: "count", bool: "deep", type(None): "none", str: "text"}[type(value)]
    word = value if isinstance(value, str) and not value.startswith("@") else json.dumps(value)
    expected = word if isinstance(value, str) else value

    assert fit(f"{key}={word}") == {key: expected}


@pytest.mark.slow
@given(st.lists(st.text(), max_size=4))
def test_any_words_are_read_or_refused(tokens: list[str]) -> None:
    with contextlib.suppress(CommandError):
        read_arguments([token for token in tokens if "@" not in token], json_args=None, stdin=lambda: "{}")
