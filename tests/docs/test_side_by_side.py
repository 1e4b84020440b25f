"""docs/side-by-side.md: theirs and ours print the same, and ours is never longer."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT
from tests.docs.side_by_side import FOLDER, SERVERS, TASKS, code_lines, foreign_python, printed, served

PAGE = CHECKOUT / "docs" / "side-by-side.md"


async def outcome(task: str, side: str, python: str, folder: Path) -> str:
    """Return what the program of one side prints, or what a client gets of it if it is a server."""
    snippet = FOLDER / f"{task}_{side}.py"
    return await (served(snippet, python) if task in SERVERS else printed(TASKS[task], snippet, python, folder))


def expected(task: str) -> str:
    """Return what both sides are to print."""
    return (FOLDER / f"{task}.out").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
async def test_our_program_does_the_task(task: str, tmp_path: Path) -> None:
    python = foreign_python(FOLDER / f"{task}_ours.py")
    assert python is not None

    assert await outcome(task, "ours", python, tmp_path) == expected(task)


@pytest.mark.reference
@pytest.mark.parametrize("task", TASKS)
async def test_their_program_does_the_same(task: str, tmp_path: Path) -> None:
    snippet = FOLDER / f"{task}_theirs.py"
    python = foreign_python(snippet)
    if python is None:  # FastMCP has an environment of its own, made by scripts/reference-servers
        ast.parse(snippet.read_text(encoding="utf-8"))
    else:
        assert await outcome(task, "theirs", python, tmp_path) == expected(task)


@pytest.mark.parametrize("task", TASKS)
def test_our_program_has_no_more_lines(task: str) -> None:
    theirs, ours = (code_lines((FOLDER / f"{task}_{side}.py").read_text("utf-8")) for side in ("theirs", "ours"))

    assert 0 < ours <= theirs


@pytest.mark.parametrize("task", TASKS)
def test_our_program_uses_public_names_only(task: str) -> None:
    tree = ast.parse((FOLDER / f"{task}_ours.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    for node in imports:
        if (node.module or "").startswith("toolweave"):
            assert {alias.name for alias in node.names} <= set(importlib.import_module(node.module or "").__all__)


def test_the_page_counts_the_lines_of_all_twelve_tasks() -> None:
    text = PAGE.read_text(encoding="utf-8")
    files = {path.name for path in FOLDER.glob("*.py")}

    assert len(TASKS) == 12
    assert files == {f"{task}_{side}.py" for task in TASKS for side in ("theirs", "ours")}
    assert not [task for task in TASKS if f"| {task.replace('_', ' ')} |" not in text]
