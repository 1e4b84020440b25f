"""Tables are put into TOML that people edit: everything else stays as they wrote it."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolweave.cli._exit_codes import CommandError
from toolweave.cli._install.toml_text import with_table

PATH = ("servers", "mine")
ENTRY: dict[str, Any] = {"command": "py", "args": ["-m"], "env": {"A b": 'x"\\\n'}, "on": True, "at": 5}
BODY = 'command = "py"\nargs = ["-m"]\nenv = { "A b" = "x\\"\\\\\\n" }\non = true\nat = 5\n'
WRITTEN = f"[servers.mine]\n{BODY}"


@pytest.mark.parametrize(
    "before, after",
    [
        ("", WRITTEN),
        ("# mine\n", f"# mine\n\n{WRITTEN}"),
        ("a = 1", f"a = 1\n\n{WRITTEN}"),
        ("a = 1\r\n", f"a = 1\n\n{WRITTEN}".replace("\n", "\r\n")),
        ("[servers.mine]\nb = 1\n\n# of x\n[x]\n", f"{WRITTEN}\n# of x\n[x]\n"),
        (
            "[servers . 'mine'] # old\nb = 1\n[servers.mine.env]\nC = '2'\n[[x]]\n",
            f"[servers . 'mine'] # old\n{BODY}[[x]]\n",
        ),
        ("[servers.mine2]\nb = 1\n", f"[servers.mine2]\nb = 1\n\n{WRITTEN}"),
        ("[[x]]\ny = '''\n[not a header\n'''\n", f"[[x]]\ny = '''\n[not a header\n'''\n\n{WRITTEN}"),
        ("[servers.mine]\na = '''\n[x]\n'''\n# of y\n[y]\n", f"{WRITTEN}# of y\n[y]\n"),
        (
            "[servers.a]\n# of x\n[x]\n[servers.mine]\nb = 1\n# of c\n[servers.c]\n",
            f"[servers.a]\n# of x\n[x]\n{WRITTEN}# of c\n[servers.c]\n",
        ),
        ("[servers.mine.env]\na = 1\n[servers.mine]\nb = 2\n", WRITTEN),
        ("[servers.mine]\na = 1\n[x]\n[servers.mine.env]\nb = 1\n# of y\n[y]\n", f"{WRITTEN}[x]\n# of y\n[y]\n"),
        ("a = '''x\ny'''\r\nb = 1\r\n", f"a = '''x\ny'''\r\nb = 1\r\n\n{WRITTEN}"),
        ("[x]\n\n\n", f"[x]\n\n\n{WRITTEN}"),
        ("a = '\u2028'\n[servers]\n", f"a = '\u2028'\n[servers]\n\n{WRITTEN}"),
    ],
    ids=range(15),
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
        ("[servers]\nmine.a = 1\nb = 1\n", "cannot be edited safely"),
        ("[[servers.mine]]\na = 1\n", "cannot be edited safely"),
        ("[", "not valid TOML"),
    ],
    ids=range(7),
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
@given(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=4))
def test_any_entry_is_read_back_as_it_was(name: str, entry: dict[str, Any]) -> None:
    text = with_table("a = 1  # mine\n", ("servers", name), entry, "f")

    assert text.startswith("a = 1  # mine\n")
    assert tomllib.loads(text) == {"a": 1, "servers": {name: entry}}


LINES: tuple[str, ...] = (
    "a = 1  # mine",
    "b.c = 2",
    'b."d e".f = [ ]',
    "e = '''\n[servers.mine]\n# not a comment\n'''",
    "f = [\n  1, # one\n\n  { g = 2 },\n]",
    'g = "\\u0000 # not a comment"',
    "h = 1979-05-27T07:32:00Z",
    "\t'i' = 0x1F",
)
AFTER: tuple[str, ...] = ("", "# of the next one", "  # [servers.mine]", "\t")
OTHERS = ("[servers.other]", "[servers.mine2] # two", "[ x . 'y z' ]", "[[many]]", "  [servers.other.env]", "[mine]")
UNUSUAL: tuple[str, ...] = (
    "[servers.mine]",
    "[servers.mine.env]",
    "[servers.mine.env.'x.y']",
    "[[servers.mine]]",
    "[servers]",
    "servers.mine.a = 1",
    "servers.b = 2",
    "mine = { a = 1 }",
    "mine.a = 1",
    "servers = { mine = { a = 1 }, b = 2 }",
)


def lines(text: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in text)


KEYS = st.lists(st.sampled_from(LINES), unique=True, max_size=4).map(lines)
TAILS = st.lists(st.sampled_from(AFTER), max_size=3).map(lines)
"""Comments and empty lines after the keys of a table, which belong to the next one."""


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and the same with the entry in the place of its table or, if it has none, at the end."""
    heads = draw(st.lists(st.sampled_from(OTHERS), unique=True, max_size=5))
    blocks = [draw(KEYS) + draw(TAILS)]
    blocks += [f"{head}\n{draw(KEYS)}{draw(TAILS)}" for head in heads]
    before, after = list(blocks), list(blocks)
    if draw(st.booleans()):
        at = draw(st.integers(1, len(blocks)))
        head = draw(st.sampled_from(["[servers.mine]", "[ servers.'mine' ] # here", " [servers.mine]"]))
        own, tail = draw(KEYS), draw(TAILS)
        if draw(st.booleans()):
            own += f"{tail}[servers.mine.env]\n{draw(KEYS)}"
            tail = draw(TAILS)
        before.insert(at, f"{head}\n{own}{tail}")
        after.insert(at, f"{head}\n{BODY}{tail}")
    else:
        last = "".join(blocks).split("\n")[-2:-1]
        needs_gap = any(line.strip() for line in last)
        after.append(f"\n{WRITTEN}" if needs_gap else WRITTEN)
    end = draw(st.sampled_from(["\n", "\r\n"])) if any(before) else "\n"
    return "".join(before).replace("\n", end), "".join(after).replace("\n", end)


@pytest.mark.slow
@settings(max_examples=400)
@given(edits())
def test_everything_else_stays_byte_for_byte(edit: tuple[str, str]) -> None:
    before, after = edit

    assert with_table(before, PATH, ENTRY, "f") == after
    assert tomllib.loads(after)["servers"]["mine"] == ENTRY


@pytest.mark.slow
@settings(max_examples=600)
@given(st.lists(st.sampled_from([*LINES, *AFTER, *OTHERS, *UNUSUAL]), max_size=8).map("\n".join), st.booleans())
def test_what_is_not_refused_is_right_however_unusual_the_text_is(text: str, ends: bool) -> None:
    if ends:
        text += "\n"
    try:
        before = tomllib.loads(text)
        made = with_table(text, PATH, ENTRY, "f")
    except (ValueError, CommandError):
        return
    found = tomllib.loads(made)

    assert found["servers"].pop("mine") == ENTRY
    before.get("servers", {}).pop("mine", None)
    assert {"servers": {}, **found} == {"servers": {}, **before}
    if "mine" not in text:
        assert made.startswith(text)
