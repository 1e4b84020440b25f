"""Docstrings say what a thing is, in words that can be understood from the repository alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import modules

pytestmark = pytest.mark.slow

REFERENCE = re.compile(
    r"\b(?:requirements?|defects?) [RCDF]\d|\((?:[RCDF]|NG)\d{1,3}\b|"
    r"\b(?:DESIGN|PROTOCOL|RELIABILITY|PEERS|TARGETS)(?:\.md)? ?[\d(]"
)


def test_no_source_refers_to_a_paper_that_is_not_in_the_repository() -> None:
    found = [
        f"{module.name}:{number} {line.strip()}"
        for module in modules()
        for number, line in enumerate(module.text.splitlines(), 1)
        if REFERENCE.search(line)
    ]

    assert not found, "\n".join(found)


QUESTIONS = re.compile(r"(?:What|Who|Whose|Whom|How|Where|When|Why|Whoever|Whatever)\b")


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and functions, and those below attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield text
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, (ast.Assign, ast.AnnAssign)) and isinstance(after, ast.Expr):
                    value = getattr(after.value, "value", None)
                    if isinstance(value, str):
                        yield value


def test_no_docstring_begins_like_a_question() -> None:
    found = [
        f"{module.name}: {text.splitlines()[0]}"
        for module in modules()
        for text in docstrings(module.tree)
        if QUESTIONS.match(text)
    ]

    assert not found, "\n".join(found)
