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


RIDDLES = re.compile(
    r"\b(?:whoever|whatever|(?:no|some|every)body\w*|(?:goes|go|going) on|told|tells?|heard|said|anew|"
    r"(?:comes|came|come) to|here|what(?! to do)|the long way|lets? go)\b",
    re.IGNORECASE,
)
"""Words that say less than the field's noun: name the thing, and use notified, reported, received, continues."""
CODE = re.compile(r"``?[^`]+``?")
ADDRESSED = re.compile(r"toolweave\.components\.catalog\.")
"""Modules that are copied into projects, and speak to the person who edits them."""


def test_the_first_line_of_a_docstring_has_no_riddles() -> None:
    found = [
        f"{module.name}: {line}"
        for module in modules()
        if not ADDRESSED.match(module.name)
        for line in (text.splitlines()[0] for text in docstrings(module.tree))
        if RIDDLES.search(CODE.sub("", line))
    ]

    assert not found, "\n".join(found)


def test_no_docstring_begins_like_a_question() -> None:
    found = [
        f"{module.name}: {text.splitlines()[0]}"
        for module in modules()
        for text in docstrings(module.tree)
        if QUESTIONS.match(text)
    ]

    assert not found, "\n".join(found)
