"""The pages for users of other libraries: theirs runs as it is shown, and every name of ours exists.

Our programs are run by test_snippets.py, as all others are.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT, SNIPPETS, tables
from tests.docs.public_names import code_spans, unknown_names
from tests.docs.side_by_side import foreign_python, printed

FOLDER = SNIPPETS / "migrating"
THEIRS = sorted(FOLDER.glob("*_theirs.py"))
PAGES = sorted((CHECKOUT / "docs").glob("migrate-*.md"))
PARTS = (
    "## Names",
    "Before:",
    "After:",
    "## What behaves differently",
    " has and Toolweave does not",
)


def expected(snippet: Path) -> str:
    """Return what a program of theirs prints: its own output if it has one, else that of ours."""
    own = snippet.with_suffix(".out")
    shared = snippet.with_name(snippet.name.replace("_theirs.py", "_ours.out"))
    return (own if own.exists() else shared).read_text(encoding="utf-8")


@pytest.mark.reference
@pytest.mark.parametrize("snippet", THEIRS, ids=lambda path: path.stem)
async def test_the_program_before_prints_what_the_page_says(snippet: Path, tmp_path: Path) -> None:
    python = foreign_python(snippet)
    if python is None:  # its library cannot live in one environment with ours
        ast.parse(snippet.read_text(encoding="utf-8"))
    else:
        assert await printed((), snippet, python, tmp_path) == expected(snippet)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_name_that_theirs_is_mapped_to_is_public(page: Path) -> None:
    rows = list(tables(f"docs/{page.name}", "Names"))

    assert rows
    assert not [name for _, ours in rows for name in unknown_names(ours)]
    assert any(code_spans(theirs) for theirs, _ in rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_has_names_programs_differences_and_what_is_missing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    places = [text.find(part) for part in PARTS]
    assert -1 not in places
    assert places == sorted(places)


def test_every_program_of_theirs_is_on_a_page_with_ours() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert THEIRS
    for snippet in THEIRS:
        theirs, ours = (
            f"<!-- docs_src/migrating/{snippet.stem.removesuffix('theirs')}{side}.py -->" for side in ("theirs", "ours")
        )
        assert 0 <= text.find(theirs) < text.find(ours), snippet.name
