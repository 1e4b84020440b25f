"""Members are put into files that people edit: everything else stays as they wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.cli._exit_codes import CommandError
from toolweave.cli._serve.editor_config import read_object, with_item, with_member

PATH = ("mcpServers", "mine")
ENTRY = {"command": "py", "args": ["-m"]}

COMMENTED = """\
// servers that I use
{
    "theme": "dark", /* keep */
    "mcpServers": {
        // the other one
        "other": { "command": "x" }, // last, with a comma
    },
    "tail": [1, 2,], // end
}
"""

ADDED = """\
// servers that I use
{
    "theme": "dark", /* keep */
    "mcpServers": {
        // the other one
        "other": { "command": "x" }, // last, with a comma
        "mine": {
            "command": "py",
            "args": [
                "-m"
            ]
        }
    },
    "tail": [1, 2,], // end
}
"""


def test_comments_trailing_commas_and_indentation_stay() -> None:
    assert with_member(COMMENTED, PATH, ENTRY, "f") == ADDED


def test_the_same_member_again_changes_nothing() -> None:
    assert with_member(ADDED, PATH, ENTRY, "f") == ADDED


def test_a_member_that_is_there_is_replaced_in_its_place() -> None:
    changed = with_member(ADDED, PATH, {"command": "other"}, "f")

    assert changed == ADDED.replace('"py",\n            "args": [\n                "-m"\n            ]', '"other"')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "{}",
        "{ }\n",
        '{"a": 1}',
        '{"a": 1,}',
        '{"mcpServers": {}}',
        '{"mcpServers": {"x": {}}}',
        '{\n\t"mcpServers": {\n\t\t"x": {} // tail\n\t}\n}\n',
        '{\r\n  "a": "//, no comment"\r\n}\r\n',
        '{"a": {"mcpServers": {"mine": 1}}}',
        '{"mcpServers": {"mine": 1, "mine": 2}}',
        '{"mcpServers": {"x": "}" /* } */ } /* , */ }',
        '{"a": 1 // , \n}',
    ],
)
def test_whatever_the_form_only_the_member_is_added(text: str) -> None:
    made = with_member(text, PATH, ENTRY, "f")

    before: dict[str, Any] = read_object(text, "f")
    assert read_object(made, "f") == {**before, "mcpServers": {**before.get("mcpServers", {}), "mine": ENTRY}}
    assert with_member(made, PATH, ENTRY, "f") == made
    assert ("\r\n" in made) == ("\r\n" in text)
    assert made.count("\n") == made.count("\r\n") or "\r\n" not in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.slow
@given(
    other=st.dictionaries(st.text(), JSON),
    servers=st.none() | st.dictionaries(st.text(), JSON),
    indent=st.none() | st.integers(0, 4) | st.just("\t"),
    name=st.text(),
)
def test_any_object_keeps_all_its_other_members(
    other: dict[str, Any], servers: dict[str, Any] | None, indent: int | str | None, name: str
) -> None:
    before = {**other, **({"mcpServers": servers} if servers is not None else {})}
    if not isinstance(before.get("mcpServers", {}), dict):
        return

    made = with_member(json.dumps(before, indent=indent), ("mcpServers", name), ENTRY, "f")

    assert json.loads(made) == {**before, "mcpServers": {**before.get("mcpServers", {}), name: ENTRY}}


@pytest.mark.parametrize(
    "text, says",
    [
        ('{"a": ', "f: this is not valid JSON: .*line 1"),
        ("[1]", "f: it holds no JSON object"),
        ('{"mcpServers": []}', "f: 'mcpServers' is not an object"),
        ('{"mcpServers": null}', "f: 'mcpServers' is not an object"),
        ("{" * 100_000, "f: this is not valid JSON"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(text: str, says: str) -> None:
    with pytest.raises(CommandError, match=says):
        with_member(text, PATH, ENTRY, "f")


def test_an_empty_file_says_nothing_and_is_no_error() -> None:
    assert read_object("", "f") == {}


ITEM = {"id": "mine", "type": "x"}


@pytest.mark.parametrize(
    "before, after",
    [
        ('{"inputs": []}', [ITEM]),
        ("{}", [ITEM]),
        ("", [ITEM]),
        ('{\n  "inputs": [\n    {"id": "a"} // keep\n  ]\n}\n', [{"id": "a"}, ITEM]),
        ('{\r\n\t"inputs": [{"id": "a"},]\r\n}\r\n', [{"id": "a"}, ITEM]),
        ('{"inputs": [5, {"id": "mine"}, {"id": "b"}]}', [5, {"id": "b"}, ITEM]),
        ('{"inputs": [{"id": "mine", "type": "x"}, 1]}', [ITEM, 1]),
    ],
    ids=range(7),
)
def test_an_item_is_added_to_a_list_or_replaces_that_of_its_id(before: str, after: list[Any]) -> None:
    text = with_item(before, "inputs", ITEM, "f")

    assert read_object(text, "f")["inputs"] == after
    assert ("// keep" in text) == ("// keep" in before)
    assert ("\r\n" in text) == ("\r\n" in before)
    assert with_item(text, "inputs", ITEM, "f") == text


def test_a_list_that_is_none_is_refused() -> None:
    with pytest.raises(CommandError, match="'inputs' is not a list"):
        with_item('{"inputs": {}}', "inputs", ITEM, "f")
