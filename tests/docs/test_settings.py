"""docs/settings.md names every variable of the environment that is ours."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import toolweave
from tests.docs.pages import tables
from tests.docs.test_pages import code_spans

pytestmark = pytest.mark.slow

OURS = re.compile(r"TOOLWEAVE_[A-Z]+(_[A-Z]+)*")


def named_in(source: Path) -> set[str]:
    """Return the variables that a module has as constants."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and OURS.fullmatch(text)}


def test_the_table_has_every_variable_of_ours() -> None:
    (package,) = toolweave.__path__
    sources = [one for one in Path(package).rglob("*.py") if "testing/servers" not in one.as_posix()]
    rows = list(tables("docs/settings.md", "Environment variables"))

    shown = {name for row in rows for name in code_spans(row[0]) if OURS.fullmatch(name)}
    assert shown == {name for source in sources for name in named_in(source)}
