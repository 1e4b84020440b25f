"""Frontmatter is read as JSON by YAML 1.2's core schema, and refused where two readers could differ."""

from __future__ import annotations

from typing import Any

import pytest

from toolweave.config._frontmatter import split_frontmatter


def read(yaml: str) -> dict[str, Any]:
    return split_frontmatter(f"---\n{yaml}\n---\nbody")[0]


@pytest.mark.parametrize(
    ("yaml", "value"),
    [
        ("yes", "yes"),
        ("2026-09-13", "2026-09-13"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("'007'", "007"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("-7", -7),
        ("007", 7),
        ("0o17", 15),
        ("0xfF", 255),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ("[a, 1, {b: null}]", ["a", 1, {"b": None}]),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("<<", "<<"),
    ],
)
def test_a_value_is_what_it_is_in_json(yaml: str, value: object) -> None:
    found = read(f"x: {yaml}")["x"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("line", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_text_behind_the_frontmatter_is_left_as_it_is(line: str, mark: str) -> None:
    text = f"{mark}---{line}name: a{line}---  {line}# Title{line}{line}---{line}end"

    assert split_frontmatter(text) == ({"name": "a"}, f"# Title{line}{line}---{line}end")


def test_keys_that_are_no_texts_become_texts() -> None:
    assert read("1: a\ntrue: b\nnull: c") == {"1": "a", "true": "b", "null": "c"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# no frontmatter", "does not begin with YAML frontmatter"),
        (" ---\na: 1\n---\n", "does not begin with YAML frontmatter"),
        ("---\na: 1\n", "does not begin with YAML frontmatter"),
        ("---\n---\n", "is not a mapping"),
        ("---\n- a\n---\n", "is not a mapping"),
        ("---\na: [\n---\n", "is not valid YAML"),
        ("---\na: 1\na: 2\n---\n", "the key 'a' twice"),
        ("---\na: &x [1]\nb: *x\n---\n", "an alias"),
        ("---\na: !!python/object:os.system x\n---\n", "that JSON has not"),
        ("---\na: !!binary aGk=\n---\n", "that JSON has not"),
        ("---\na: .inf\n---\n", "that JSON has not"),
        ("---\na: .nan\n---\n", "that JSON has not"),
        (f"---\na: {'[' * 100}{']' * 100}\n---\n", "deeper than 32 levels"),
        (f"---\na: {'[' * 20_000}{']' * 20_000}\n---\n", "not valid YAML"),
        (f"---\na: {'x' * 70_000}\n---\n", "longer than 64 KiB"),
        ("---\na: \x07\n---\n", "not valid YAML"),
    ],
)
def test_what_cannot_be_read_in_one_way_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        split_frontmatter(text)
