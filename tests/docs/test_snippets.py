"""Each file of docs_src is a whole program that, pasted alone into a folder, prints what its `.out` file says.

It uses public names only.
"""

from __future__ import annotations

import ast
import importlib
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT, SNIPPETS, pages, printed_by, source_of

FILES = sorted([*SNIPPETS.glob("*.py"), *SNIPPETS.glob("migrating/*_ours.py"), *SNIPPETS.glob("tutorial/*.py")])

UNSHOWN = sorted([*SNIPPETS.glob("designs/*.py"), *SNIPPETS.glob("more/*.py")])
"""Programs that no page shows: those of the five designs in our words, and further examples."""


@pytest.mark.slow
@pytest.mark.parametrize("snippet", [*FILES, *UNSHOWN], ids=lambda path: path.stem)
def test_a_snippet_runs_and_prints_what_it_promises(snippet: Path, tmp_path: Path) -> None:
    for example in SNIPPETS.glob("*.json"):
        (tmp_path / example.name).write_bytes(example.read_bytes())
    shutil.copytree(SNIPPETS / "cassettes", tmp_path / "cassettes")
    pasted = tmp_path / snippet.name
    pasted.write_text(source_of(snippet.relative_to(CHECKOUT).as_posix()), encoding="utf-8")
    assert printed_by(pasted, tmp_path) == snippet.with_suffix(".out").read_text(encoding="utf-8")


@pytest.mark.parametrize("snippet", [*FILES, *UNSHOWN], ids=lambda path: path.stem)
def test_a_snippet_imports_only_what_is_public(snippet: Path) -> None:
    for node in ast.walk(ast.parse(snippet.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "toolweave":
            assert (node.module or "").count(".") <= 1, f"{node.module} is inside a room; import from the room"
            public = importlib.import_module(node.module or "").__all__
            assert {alias.name for alias in node.names} <= set(public), ast.unparse(node)
        elif isinstance(node, ast.Import):
            assert all(alias.name.count(".") <= 1 for alias in node.names), ast.unparse(node)


def test_every_snippet_is_shown_on_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())

    assert not [snippet.name for snippet in FILES if snippet.relative_to(CHECKOUT).as_posix() not in text]
