"""Tables are put into TOML that people edit: everything else stays as they wrote it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.cli._exit_codes import CommandError
from toolweave.cli._install.toml_text import with_table

PATH = ("servers", "mine")
ENTRY: dict[str, Any] = {"command": "py", "args": ["-m"], "env": {"A b": 'x"\\\n'}, "on": True, "at": 5}
WRITTEN = '[servers.mine]\ncommand = "py"\nargs = ["-m"]\nenv = { "A b" = "x\\"\\\\\\n" }\non = true\nat = 5\n'


@pytest.mark.parametrize(
    "before, after",
    [
        ("", WRITTEN),
        ("# mine\n", f"# mine\n\n{WRITTEN}"),
        ("a = 1", f"a = 1\n\n{WRITTEN}"),
        ("a = 1\r\n", f"a = 1\n\n{WRITTEN}".replace("\n", "\r\n")),
        ("[servers.mine]\nb = 1\n\n# of x\n[x]\n", f"{WRITTEN}\n# of x\n[x]\n"),
        ("[servers . 'mine'] # old\nb = 1\n[servers.mine.env]\nC = '2'\n[[x]]\n", f"{WRITTEN}[[x]]\n"),
        ("[servers.mine2]\nb = 1\n", f"[servers.mine2]\nb = 1\n\n{WRITTEN}"),
        ("[[x]]\ny = '''\n[not a header\n'''\n", f"[[x]]\ny = '''\n[not a header\n'''\n\n{WRITTEN}"),
    ],
    ids=range(8),
)
def test_a_table_is_put_in_its_place_or_at_the_end(before: str, after: str) -> None:
    assert with_table(before, PATH, ENTRY, "f") == after
    assert with_table(after, PATH, ENTRY, "f") == after


@pytest.mark.parametrize(
    "text, says",
    [
        ("servers = 5\n", "'servers' is not a table"),
        ("servers = { mine = { a = 1 } }\n", "cannot be edited safely"),
        ("servers.mine.a = 1\n", "cannot be edited safely"),
        ("[servers]\nmine = { a = 1 }\n", "cannot be edited safely"),
        ("[servers.mine]\na = '''\n[x]\n'''\n", "cannot be edited safely"),
        ("[", "not valid TOML"),
    ],
    ids=range(6),
)
def test_what_cannot_be_edited_safely_is_refused(text: str, says: str) -> None:
    with pytest.raises(CommandError, match=says):
        with_table(text, PATH, ENTRY, "f")


TEXTS = st.text(max_size=10)
VALUES = st.recursive(
    TEXTS | st.booleans() | st.integers(-(2**60), 2**60),
    lambda inner: st.lists(TEXTS, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(TEXTS.filter(bool), st.dictionaries(TEXTS.filter(bool), VALUES, max_size=4))
def test_any_entry_is_read_back_as_it_was(name: str, entry: dict[str, Any]) -> None:
    text = with_table("a = 1  # mine\n", ("servers", name), entry, "f")

    assert text.startswith("a = 1  # mine\n")
    assert tomllib.loads(text) == {"a": 1, "servers": {name: entry}}
