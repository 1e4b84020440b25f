"""Which requirement has a test: ids of REQUIREMENTS.md against the `requirement` markers of the tests.

Run it from the checkout: `python -m tests.architecture.traceability`. An id counts when a test carries it in
`@pytest.mark.requirement(...)`, a module's `pytestmark`, or the marks of a `pytest.param`; a comment does not.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Report", "known_ids", "marked_ids", "report"]

TESTS = Path(__file__).resolve().parent.parent
LAST = {"R": 113, "C": 31, "D": 28, "F": 4}
"""The highest number of each kind: the list when REQUIREMENTS.md is not at hand."""


def _span(kind: str, *spans: tuple[int, int]) -> set[str]:
    return {f"{kind}{number}" for first, last in spans for number in range(first, last + 1)}


IN_SCOPE = {identifier for kind, last in LAST.items() for identifier in _span(kind, (1, last))}
"""What works must be proved: everything now."""


class Report(NamedTuple):
    """Ids by what is known of them."""

    covered: dict[str, list[str]]
    missing: list[str]
    later: list[str]
    unknown: dict[str, list[str]]


def order(identifier: str) -> tuple[str, int]:
    """Sort R2 before R10."""
    return identifier[0], int(identifier[1:])


def known_ids() -> set[str]:
    """Return every id that REQUIREMENTS.md defines, or the built-in list when the file is not at hand."""
    shared = Path(os.environ.get("TOOLWEAVE_SHARED") or TESTS.parent.parent / "shared")
    builtin = {identifier for kind, last in LAST.items() for identifier in _span(kind, (1, last))}
    try:
        text = (shared / "REQUIREMENTS.md").read_text(encoding="utf-8")
    except OSError:
        return builtin
    # `C6/C7` and `R89-R92` name ids too; numbers above the last one are section numbers or foreign
    return {match for match in re.findall(r"\b[RCDF][1-9]\d{0,2}\b", text) if match in builtin}


@cache
def marked_ids(folder: Path = TESTS) -> dict[str, list[str]]:
    """Return the ids that markers name, each with the places that do."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for identifier, line in _marks(tree):
            found.setdefault(identifier, []).append(f"{path.relative_to(folder)}:{line}")
    return found


def _marks(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        # by its last name first: it takes seconds to unparse every call of every test
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "requirement" and _is_marker(node.func):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, node.lineno


def _is_marker(node: ast.expr) -> bool:
    return ast.unparse(node) == "pytest.mark.requirement"


def report(known: Iterable[str], marked: dict[str, list[str]], in_scope: Iterable[str] = IN_SCOPE) -> Report:
    """Compare what is known, what is marked and what must be."""
    ids = set(known)
    scope = set(in_scope)
    return Report(
        covered={identifier: marked[identifier] for identifier in sorted(ids & marked.keys(), key=order)},
        missing=sorted(scope - marked.keys(), key=order),
        later=sorted(ids - scope - marked.keys(), key=order),
        unknown={identifier: marked[identifier] for identifier in sorted(marked.keys() - ids)},
    )


def text_of(result: Report) -> str:
    """Return the report in four lines a person reads."""
    lines = [
        f"covered: {len(result.covered)} ids",
        f"without a test: {' '.join(result.missing) or 'none'}",
        f"later: {' '.join(result.later) or 'none'}",
    ]
    lines += [f"no such id: {identifier} at {', '.join(places)}" for identifier, places in result.unknown.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(text_of(report(known_ids(), marked_ids())))
