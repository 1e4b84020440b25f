"""Dependencies are used by their public names: what begins with an underscore may change in any release."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.architecture.source import PACKAGE, modules

STILL_USED = {
    # what its documentation asks every tool to define
    "export._langchain": {"langchain_core.tools.BaseTool._arun", "langchain_core.tools.BaseTool._run"},
    "tools._worker_threads": {
        "anyio._core._eventloop.claim_worker_thread",
        "anyio._core._eventloop.get_async_backend",
        "anyio._core._eventloop.set_current_async_library",
        "anyio._core._eventloop.threadlocals",
    },
}
"""Private names that are used, by module. Entries only go: a use that has ended is taken out."""


def is_private(name: str) -> bool:
    """Whether a part of a dotted name is private."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what a module imports from elsewhere: the name here, and the dotted name there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.split(".")[0]
                yield alias.asname or whole, whole
                yield alias.name, alias.name


def is_foreign(name: str) -> bool:
    """Whether a dotted name is a dependency's."""
    top = name.split(".")[0]
    return top != PACKAGE and top not in sys.stdlib_module_names


def private_uses(tree: ast.AST) -> set[str]:
    """Return the private modules, names and attributes of dependencies that a module uses."""
    names = {here: there for here, there in imported(tree) if is_foreign(there)}
    found = {there for there in names.values() if is_private(there)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            first, _, rest = ast.unparse(node).partition(".")
            if first in names and rest.replace(".", "").isidentifier():
                found.add(f"{names[first]}.{rest}")
        elif isinstance(node, ast.ClassDef):
            found |= {f"{base}.{name}" for base, name in inherited_uses(node, names)}
    return found


def inherited_uses(node: ast.ClassDef, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the private attributes that a class uses, or hides, of its base classes in dependencies."""
    used = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in ("self", "cls")
    }
    used |= {one.name for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for base in node.bases:
        first, _, rest = ast.unparse(base).partition("[")[0].partition(".")
        if first not in names:
            continue
        whole = f"{names[first]}.{rest}" if rest else names[first]
        known = private_attributes(whole)
        yield from ((whole, name) for name in used & known)


def private_attributes(name: str) -> set[str]:
    """Return the private attributes that a class of a dependency, and its base classes there, have or set."""
    module, _, cls = name.rpartition(".")
    found: Any = getattr(importlib.import_module(module), cls)
    bases: tuple[type, ...] = getattr(found, "__mro__", ())
    known: set[str] = set()
    for one in bases:
        if not is_foreign(one.__module__):
            continue
        known |= {attribute for attribute in vars(one) if is_private(attribute)}
        try:
            source = ast.parse(inspect.cleandoc("\n" + inspect.getsource(one)))
        except (OSError, TypeError):  # it is written in C
            continue
        known |= {
            target.attr
            for target in ast.walk(source)
            if isinstance(target, ast.Attribute)
            and isinstance(target.ctx, ast.Store)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
            and is_private(target.attr)
        }
    return known


@pytest.mark.slow  # it imports every dependency that has a subclass here
def test_no_private_name_of_a_dependency_is_used_beyond_those_that_are_listed() -> None:
    uses = {module.name: private_uses(module.tree) for module in modules()}

    assert {name.removeprefix(f"{PACKAGE}."): found for name, found in uses.items() if found} == STILL_USED


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from anyio._core import _eventloop", {"anyio._core._eventloop"}),
        ("import redis\nredis.client._log", {"redis.client._log"}),
        (
            "from docket import Docket\nclass D(Docket):\n    def f(self):\n        return self._redis",
            {"docket.Docket._redis"},
        ),
        ("from docket import Docket\nclass D(Docket):\n    def f(self):\n        return self._own", set[str]()),
        ("import os\nos._exit(0)", set[str]()),
        ("from toolweave.agent._run import Run", set[str]()),
    ],
)
def test_a_use_of_a_private_name_is_found(source: str, found: set[str]) -> None:
    assert private_uses(ast.parse(source)) == found
