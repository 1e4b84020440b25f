"""Texts for property tests: a text, and what two people made of it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypothesis import strategies as st

from toolweave.components._merge import lines_of

__all__ = ["Three", "added", "texts", "three_texts"]


class Three(NamedTuple):
    """What was copied, what the user made of it, and what the catalog made of it."""

    base: str
    mine: str
    theirs: str


LINE = st.text(alphabet="ab\r\x0c é", max_size=3)
PLAIN = st.sampled_from(["a", "b", "c", "def f():", "    return 1", ""])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Return a text of few different lines, so that they repeat; the last may have no end."""
    lines = draw(st.lists(PLAIN | LINE, max_size=12))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"]))


@st.composite
def edited(draw: st.DrawFn, base: str, tag: str) -> str:
    """Return a text with some lines deleted, replaced and inserted."""
    lines: list[str] = []
    for number, line in enumerate(lines_of(base)):
        change = draw(st.sampled_from(["keep"] * 5 + ["delete", "replace", "before"]))
        if change == "before":
            lines.append(f"{tag} {number}\n")
        if change in ("keep", "before"):
            lines.append(line)
        elif change == "replace":
            lines.append(draw(PLAIN) + draw(st.sampled_from([f" {tag}", ""])) + "\n")
    end = draw(st.sampled_from(["", "", f"{tag} end", f"{tag} end\n", "same end\n"]))
    return "".join(lines) + end


@st.composite
def three_texts(draw: st.DrawFn) -> Three:
    """Return a text and two versions of it; now and then one that has nothing to do with it."""
    base = draw(texts())
    return Three(base, draw(edited(base, "mine") | texts()), draw(edited(base, "theirs") | texts()))


def added(base: str, mine: str) -> Counter[str]:
    """Return the lines that `mine` has beyond `base`, each as often as it has more of it; ends do not count."""
    return _counted(mine) - _counted(base)


def _counted(text: str) -> Counter[str]:
    return Counter(line.removesuffix("\n") for line in lines_of(text))
