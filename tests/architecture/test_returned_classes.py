"""All that a public method or attribute gives has a public name."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.source import Module, modules

pytestmark = pytest.mark.slow

MODULES = {module.name: module for module in modules()}
ROOMS = [name for name in MODULES if name.count(".") <= 1 and not name.rpartition(".")[2].startswith("_")]

ClassName = tuple[str, str]
"""The module and the name of a class."""

INTERNAL = {
    "Changes": "McpServer.changes",  # who hears of changes, for carriers
    "GatewaySide": "McpConnection.gateway_side",  # the handshake, the lists and direct calls, for hub and gateway
    "SentCall": "Request.sent",  # what a fast path sent already, for the gateway
    "ServedEndpoint": "McpServer.http_endpoint",  # what carriers of HTTP serve
}
"""Classes without a public name, each with the method that returns it to other rooms. None may be added."""


@cache
def class_called(module: str, name: str) -> ClassName | None:
    """Return the class of ours that a name stands for in a module, or None."""
    source = MODULES.get(module)
    if source is None:
        return None
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("toolweave"):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return class_called(node.module, alias.name)
    defined = any(isinstance(node, ast.ClassDef) and node.name == name for node in source.tree.body)
    return (module, name) if defined else None


def names_in(annotation: ast.expr) -> Iterator[str]:
    """Yield the names in an annotation, also in the texts of one that is not evaluated."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


def returned_annotations(module: Module, cls: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the annotations of what the public methods and attributes of a class return."""
    for node in cls.body:
        match node:
            case ast.FunctionDef(name=name, returns=ast.expr() as returned):
                yield name, returned
            case ast.AsyncFunctionDef(name=name, returns=ast.expr() as returned):
                yield name, returned
            case ast.AnnAssign(target=ast.Name(id=name), annotation=returned):
                yield name, returned
            case _:
                pass


def returned_by(key: ClassName) -> Iterator[tuple[str, ClassName]]:
    """Yield the classes of ours that public members of a class and its bases give, each with the member's name."""
    module = MODULES[key[0]]
    cls = next(node for node in module.tree.body if isinstance(node, ast.ClassDef) and node.name == key[1])
    for base in cls.bases:
        for name in names_in(base):
            above = class_called(module.name, name)
            if above is not None and above != key:
                yield from returned_by(above)
    for member, annotation in returned_annotations(module, cls):
        if not member.startswith("_"):
            for name in names_in(annotation):
                found = class_called(module.name, name)
                if found is not None:
                    yield member, found


def exported() -> dict[ClassName, str]:
    """Return the classes that the rooms export."""
    found: dict[ClassName, str] = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if isinstance(value, type) and value.__module__ in MODULES:
                found[value.__module__, value.__name__] = room
    return found


def test_what_a_public_method_returns_has_a_public_name() -> None:
    public = exported()
    hidden: dict[str, set[str]] = defaultdict(set)
    for key in public:
        for member, found in returned_by(key):
            if found not in public:
                hidden[found[1]].add(f"{key[1]}.{member}")

    assert {name: members for name, members in hidden.items() if name not in INTERNAL} == {}
    assert INTERNAL.keys() <= hidden.keys(), "these have a public name now, or nothing returns them"
