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
    # servers of the SDK and of FastMCP: neither has a public name for the low-level server that it wraps
    "connect._sdk": {"getattr(server, '_lowlevel_server')", "getattr(server, '_mcp_server')"},
    # its documentation asks every tool to define them
    "export._langchain": {"langchain_core.tools.BaseTool._arun", "langchain_core.tools.BaseTool._run"},
    # threads of our own look like those of anyio, so that `anyio.from_thread` works in them: no public name does that
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
        elif isinstance(node, ast.Call):
            found |= set(uses_by_string(node))
    return found


BY_STRING = {"getattr", "setattr", "hasattr", "delattr"}


def uses_by_string(node: ast.Call) -> Iterator[str]:
    """Yield the access to a private attribute of another object whose name is a string."""
    if not isinstance(node.func, ast.Name) or node.func.id not in BY_STRING or len(node.args) < 2:
        return
    owner, name = node.args[:2]
    if ast.unparse(owner) in ("self", "cls") or not isinstance(name, ast.Constant):
        return
    if isinstance(name.value, str) and is_private(name.value):
        yield f"{node.func.id}({ast.unparse(owner)}, {name.value!r})"


def names_defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module gives to functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


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


def test_every_private_attribute_that_is_read_or_set_is_defined_here() -> None:
    ours = {name for module in modules() for name in names_defined(module.tree)}
    strays = [
        f"{module.name}:{node.lineno} {ast.unparse(node)}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in ours
    ]

    assert not strays, "these are attributes of objects of a dependency: " + ", ".join(strays)


UNDOCUMENTED = ("uvicorn",)
"""Dependencies whose only useful parts have no documentation, so that any release may change them."""


def test_no_module_imports_a_dependency_whose_useful_parts_are_undocumented() -> None:
    strays = [
        f"{module.name}: {there}"
        for module in modules()
        for _, there in imported(module.tree)
        if there.split(".")[0] in UNDOCUMENTED
    ]

    assert not strays


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
        ("def f(server):\n    return getattr(server, '_inner', None)", {"getattr(server, '_inner')"}),
        ("def f(self):\n    return getattr(self, '_own', None)", set[str]()),
        ("from toolweave.agent._run import Run", set[str]()),
    ],
)
def test_a_use_of_a_private_name_is_found(source: str, found: set[str]) -> None:
    assert private_uses(ast.parse(source)) == found
