"""Three-way merge of texts by lines: combines the changes of two sides where they do not overlap. Pure.

On `difflib`, because the one library for it (merge3) has a licence that this package cannot take on, and `git` is
not on every machine. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeConflict:
    """Lines that both sides changed, each in its own way.

    Attributes:
        line: First line in `mine`, counted from 1.
        mine: The lines of the one side.
        theirs: The lines of the other.
    """

    line: int
    mine: tuple[str, ...]
    theirs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The result of a merge: both sides' changes in one text, and the conflicts.

    Attributes:
        parts: The text in order: lines that are settled, and conflicts.
    """

    parts: tuple[tuple[str, ...] | MergeConflict, ...]

    @property
    def conflicts(self) -> tuple[MergeConflict, ...]:
        """The conflicts that a person must resolve."""
        return tuple(part for part in self.parts if isinstance(part, MergeConflict))

    def mine(self) -> str:
        """Return the text with every conflict resolved as `mine`."""
        return "".join("".join(part.mine if isinstance(part, MergeConflict) else part) for part in self.parts)

    def marked(self, mine: str, theirs: str) -> str:
        """Return the text with both sides of each conflict between markers, as git writes them.

        Args:
            mine: Label of the one side in the markers.
            theirs: Label of the other side.
        """
        return "".join(
            _between_markers(part, mine, theirs) if isinstance(part, MergeConflict) else "".join(part)
            for part in self.parts
        )


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends; only a line feed ends one, and the last may lack it."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]


def merge(base: str, mine: str, theirs: str) -> MergeResult:
    """Put the changes of `mine` and of `theirs` against `base` into one text.

    Every line that `mine` has beyond `base` is in the result, in its place or in a conflict.
    """
    old = lines_of(base)
    ours = lines_of(mine)
    others = lines_of(theirs)
    parts: list[tuple[str, ...] | MergeConflict] = []
    at_old = at_ours = at_others = 0
    for start, end, in_ours, in_others in _unchanged(old, ours, others):
        before = old[at_old:start]
        left = ours[at_ours:in_ours]
        right = others[at_others:in_others]
        if right in (left, before):
            parts.append(tuple(left))
        elif left == before:
            parts.append(tuple(right))
        else:
            parts.append(MergeConflict(line=at_ours + 1, mine=tuple(left), theirs=tuple(right)))
        parts.append(tuple(old[start:end]))
        at_old = end
        at_ours = in_ours + end - start
        at_others = in_others + end - start
    return MergeResult(parts=tuple(filter(None, parts)))


def _unchanged(base: Sequence[str], mine: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the runs of lines that all three have: start and end in `base`, start in `mine` and in `theirs`.

    The last one is empty, at the end of each text.
    """
    # With `autojunk`, lines that are frequent in a long file, such as empty ones, would match nothing.
    lefts = SequenceMatcher(None, base, mine, autojunk=False).get_matching_blocks()
    rights = SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    left = right = 0
    while left < len(lefts) and right < len(rights):
        a = lefts[left]
        b = rights[right]
        start = max(a.a, b.a)
        end = min(a.a + a.size, b.a + b.size)
        if start < end:
            yield start, end, a.b + start - a.a, b.b + start - b.a
        if a.a + a.size < b.a + b.size:
            left += 1
        else:
            right += 1
    yield len(base), len(base), len(mine), len(theirs)


def _between_markers(conflict: MergeConflict, mine: str, theirs: str) -> str:
    sides = (f"<<<<<<< {mine}\n", conflict.mine), ("=======\n", conflict.theirs)
    return "".join(marker + _ended("".join(lines)) for marker, lines in sides) + f">>>>>>> {theirs}\n"


def _ended(text: str) -> str:
    if text.endswith("\n") or not text:
        return text
    return text + "\n"
