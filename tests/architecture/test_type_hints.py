"""The annotations of what rooms export can be resolved, as pydantic and FastAPI do."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any, get_type_hints

import pytest

from tests.architecture.source import modules
from toolweave.tools import CallContext, Caller

pytestmark = pytest.mark.slow

MODULES = {module.name: module for module in modules()}
ROOMS = [name for name in MODULES if name.count(".") <= 1 and not name.rpartition(".")[2].startswith("_")]

LOADED_LATER = {
    "toolweave.agent._events": "components are declared without an agent",
    "toolweave.agent._run": "components are declared without an agent",
    "toolweave.gateway._callers.auth": "a gateway's config is read without the HTTP server",
    "toolweave.gateway._observe.runs": "a gateway without a console knows no agents",
    "toolweave.jobs._worker": "only a worker executes jobs",
    "toolweave.serve._auth.token_auth": "a server over stdio needs no HTTP",
    "toolweave.serve._http.app": "a server over stdio needs no HTTP",
    "toolweave.serve._http.options": "a server over stdio needs no HTTP",
    "toolweave.tools._client_requests": "few tools ask their client",
}
"""Modules of ours that are imported for type checkers alone, each with the reason why it is loaded only when needed."""


def imports_of_type_checkers(name: str) -> Iterator[ast.ImportFrom]:
    """Yield the imports of a module that are for type checkers alone."""
    for block in MODULES[name].tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            yield from (node for node in block.body if isinstance(node, ast.ImportFrom))


def home(source: str, name: str) -> str:
    """Return the module that a name comes from, which is another one if `source` is the face of a room."""
    if source not in ROOMS:
        return source
    faced = (node for node in imports_of_type_checkers(source) if any(one.name == name for one in node.names))
    return next((str(node.module) for node in faced), source)


@cache
def loaded_later(name: str) -> dict[str, Any]:
    """Return the names that a module has only for type checkers, from packages of others or `LOADED_LATER`."""
    found: dict[str, Any] = {}
    for node in imports_of_type_checkers(name):
        source = str(node.module)
        # packages of others are those of extras, or cost much to import: pydantic, openai, opentelemetry
        foreign = not source.startswith("toolweave")
        for one in node.names:
            if foreign or home(source, one.name) in LOADED_LATER:
                found[one.asname or one.name] = getattr(importlib.import_module(source), one.name)
    return found


def annotated(room: str) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions that a room exports, and the public methods of the classes."""
    module = importlib.import_module(room)
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value
        if not inspect.isclass(value):
            continue
        for member in dir(value):
            if member.startswith("_") and member not in ("__init__", "__call__"):
                continue
            method = inspect.getattr_static(value, member)
            method = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
            if inspect.isfunction(method):
                yield f"{name}.{member}", method


@pytest.mark.parametrize("room", ROOMS)
def test_the_annotations_of_what_a_room_exports_resolve(room: str) -> None:
    failed: dict[str, str] = {}
    for name, value in annotated(room):
        if value.__module__ not in MODULES:
            continue
        try:
            get_type_hints(value)
        except NameError:
            later = loaded_later(value.__module__)
            try:
                get_type_hints(value, localns=later)
            except NameError as error:
                failed[name] = str(error)

    assert failed == {}, "import these where they cost nothing, or give a reason in LOADED_LATER"


def test_the_context_that_handlers_declare_resolves_without_further_names() -> None:
    assert get_type_hints(CallContext)["caller"] == Caller | None


def test_each_module_that_is_loaded_later_is_needed_by_an_export() -> None:
    modules_of_exports = {value.__module__ for room in ROOMS for _, value in annotated(room)} & MODULES.keys()

    sources = {
        home(str(node.module), one.name)
        for name in modules_of_exports
        for node in imports_of_type_checkers(name)
        for one in node.names
    }

    assert LOADED_LATER.keys() <= sources
