"""Every style of every kind of parameter: what was encoded, an independent decoder reads back."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import parse_qs, parse_qsl, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.openapi.mock_api import decoded
from toolweave.openapi._styles import in_cookie, in_header, in_path, in_query, text_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
LISTS = st.lists(TEXTS, min_size=1, max_size=4)
OBJECTS = st.dictionaries(KEYS, TEXTS, min_size=1, max_size=4)


# the dot is unreserved, and `label` separates by it: the specification leaves such values undefined
@pytest.mark.parametrize("explode", [False, True])
@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
@pytest.mark.parametrize("kind", ["text", "array", "object"])
@settings(max_examples=40)
@given(data=st.data())
def test_a_path_parameter_comes_back(style: str, explode: bool, kind: str, data: st.DataObject) -> None:
    made: st.SearchStrategy[Any] = {"text": TEXTS, "array": LISTS, "object": OBJECTS}[kind]
    value = data.draw(made.filter(lambda one: style != "label" or kind == "text" or "." not in str(one)))

    text = in_path("color", value, style=style, explode=explode)

    assert not set(text) & set("/?#%") - {"%"}
    assert decoded(text, name="color", style=style, explode=explode, kind=kind) == value


@settings(max_examples=40)
@given(value=LISTS, reserved=st.booleans())
def test_an_exploded_array_in_the_query_comes_back(value: list[str], reserved: bool) -> None:
    pairs = in_query("color[]", value, style="form", explode=True, reserved=reserved)

    assert parse_qs(joined(pairs), keep_blank_values=True) == {"color[]": value}


@pytest.mark.parametrize(("style", "separator"), [("form", ","), ("spaceDelimited", "%20"), ("pipeDelimited", "%7C")])
@settings(max_examples=40)
@given(value=st.lists(TEXTS.filter(lambda one: not set(one) & set(" |")), min_size=1, max_size=4))
def test_a_delimited_array_in_the_query_comes_back(style: str, separator: str, value: list[str]) -> None:
    ((name, text),) = in_query("color", value, style=style, explode=False)

    assert name == "color"
    assert [unquote(item) for item in text.split(separator)] == value


@settings(max_examples=40)
@given(value=OBJECTS)
def test_an_exploded_object_in_the_query_comes_back(value: dict[str, str]) -> None:
    assert dict(parse_qsl(joined(in_query("c", value, style="form", explode=True)), keep_blank_values=True)) == value


@settings(max_examples=40)
@given(value=OBJECTS)
def test_an_object_that_is_not_exploded_comes_back(value: dict[str, str]) -> None:
    ((_, text),) = in_query("c", value, style="form", explode=False)
    words = iter([unquote(item) for item in text.split(",")])

    assert dict(zip(words, words, strict=True)) == value


@settings(max_examples=40)
@given(value=OBJECTS)
def test_a_deep_object_comes_back(value: dict[str, str]) -> None:
    pairs = parse_qsl(joined(in_query("c", value, style="deepObject", explode=True)), keep_blank_values=True)

    assert {key.removeprefix("c[").removesuffix("]"): text for key, text in pairs} == value


@settings(max_examples=40)
@given(value=OBJECTS)
def test_a_cookie_comes_back(value: dict[str, str]) -> None:
    pairs = [pair.partition("=") for pair in in_cookie("c", value, style="form", explode=True)]

    assert {unquote(key): unquote(text) for key, _, text in pairs} == value
    assert not any(set(";\r\n ") & set(key + text) for key, _, text in pairs)


@pytest.mark.parametrize(
    ("value", "text"),
    [("blue", "blue"), (True, "true"), (None, ""), (1, "1"), (1.5, "1.5"), ({"a": [1]}, '{"a":[1]}')],
)
def test_a_value_that_is_no_text_is_sent_as_json_has_it(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("value", "explode", "text"),
    [
        ("blue", False, "blue"),
        (["blue", "black"], False, "blue,black"),
        ({"R": 100, "G": 200}, False, "R,100,G,200"),
        ({"R": 100, "G": 200}, True, "R=100,G=200"),
    ],
)
def test_a_header_is_written_as_the_table_of_the_specification_has_it(value: Any, explode: bool, text: str) -> None:
    assert in_header(value, explode=explode) == text


def test_reserved_characters_are_kept_where_that_is_allowed_but_for_those_that_end_a_value() -> None:
    ((_, kept),) = in_query("q", "a/b?c&d=e#f+g", style="form", explode=True, reserved=True)
    ((_, coded),) = in_query("q", "a/b?c&d=e#f+g", style="form", explode=True)

    assert kept == "a/b?c%26d%3De%23f%2Bg"
    assert coded == "a%2Fb%3Fc%26d%3De%23f%2Bg"


def test_what_is_nested_below_a_deep_object_is_written_alike() -> None:
    pairs = in_query("f", {"a": {"b": 1}, "c": ["x", "y"]}, style="deepObject", explode=True)

    assert parse_qsl(joined(pairs)) == [("f[a][b]", "1"), ("f[c]", "x"), ("f[c]", "y")]


def test_null_and_what_is_empty_are_not_in_the_query() -> None:
    for value in cast("tuple[Any, ...]", (None, [], {})):
        assert in_query("q", value, style="form", explode=True) == []


def joined(pairs: list[tuple[str, str]]) -> str:
    return "&".join(f"{name}={value}" for name, value in pairs)
