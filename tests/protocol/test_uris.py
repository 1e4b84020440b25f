"""The normal form of URIs: which spellings are one, which are two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.protocol.uris import normal_literal, normal_uri

ALIKE = [
    ("file:///docs/café", "file:///docs/caf%C3%A9"),
    ("file:///docs/café", "file:///docs/caf%c3%a9"),
    ("file:///my docs/x", "file:///my%20docs/x"),
    ("file://localhost/x", "file:///x"),
    ("Notes://all", "notes://all"),
    ("notes://Überblick", "notes://%C3%9Cberblick"),
    ("notes://%41ll", "notes://All"),
    ("http://docs.example", "http://docs.example/"),
    ("http://docs.example?q=1", "http://docs.example/?q=1"),
    ("HTTP://Docs.Example:80/a", "http://docs.example/a"),
    ("https://docs.example:443", "https://docs.example/"),
    ("https://user@docs.example/", "https://user@DOCS.example"),
    ("http://münchen.example/", "http://xn--mnchen-3ya.example"),
    ("http://[::1]:80/", "http://[::1]"),
    ("a|b", "a%7Cb"),
    ("x:a<b>", "x:a%3Cb%3E"),
]
APART = [
    ("notes://All", "notes://all"),
    ("notes://a", "notes://a/"),
    ("http://docs.example/a", "http://docs.example/a/"),
    ("http://docs.example:8080/", "http://docs.example/"),
    ("file:///a%2Fb", "file:///a/b"),
    ("file:///a%3Fb", "file:///a?b"),
    ("file:///a%23b", "file:///a#b"),
    ("file:///a%25b", "file:///a%b"),
    ("file:///a/../b", "file:///b"),
    ("https://docs.example/", "http://docs.example/"),
]


@pytest.mark.parametrize(("first", "second"), ALIKE)
def test_spellings_of_one_uri_have_one_normal_form(first: str, second: str) -> None:
    assert normal_uri(first) == normal_uri(second)


@pytest.mark.parametrize(("first", "second"), APART)
def test_other_uris_stay_apart(first: str, second: str) -> None:
    assert normal_uri(first) != normal_uri(second)


def test_the_beginning_of_a_template_is_normal_as_far_as_it_is_known() -> None:
    assert normal_literal("HTTP://Docs.Example/a b/", first=True) == "http://docs.example/a%20b/"
    assert normal_literal("HTTP://Docs.", first=True) == "http://Docs."
    assert normal_literal("/A b", first=False) == "/A%20b"


@given(st.text(max_size=50) | st.from_regex(r"[a-zA-Z]{1,5}:(//)?[a-zA-Z0-9%@:/?#\[\]. -]{0,30}", fullmatch=True))
def test_a_normal_form_is_ascii_and_its_own_normal_form(text: str) -> None:
    normal = normal_uri(text)
    assert normal.isascii()
    assert normal_uri(normal) == normal
