"""Imports point down: the table of the rooms in ARCHITECTURE.md, enforced.

Imports inside functions and under TYPE_CHECKING count like any other.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.neighbours import MIN_ROOMS, imported, listed, rooms_by_module
from tests.architecture.source import PACKAGE, Module, is_private, modules

ARROWS: dict[str, set[str]] = {
    # room: the rooms it may import beside itself, `errors`, `version` and the modules with an underscore that every
    # room may import
    "_text": set(),
    "_value": set(),
    "_backoff": set(),
    "_json": set(),
    "_json_types": set(),
    "_files": set(),
    "_masking": set(),
    "_repairs": set(),
    "_option_checks": set(),
    "errors": set(),
    "version": set(),
    "_lazy": set(),
    "protocol": set(),
    "schema": set(),
    "config": set(),
    "state": set(),
    "http": set(),
    "oauth": {"config", "http", "protocol", "state"},
    "install": {"config", "oauth"},
    "openapi": {"tools", "schema", "config", "http", "protocol", "oauth"},
    "definitions": {"tools", "schema", "protocol", "config"},
    "jobs": {"state"},
    "components": set(),
    "tools": {"schema", "protocol"},
    "providers": {"tools", "schema", "protocol"},
    "models": {"providers", "tools", "schema", "protocol", "http"},
    "export": {"providers", "tools", "schema", "protocol"},
    "agent": {"models", "tools", "schema", "protocol", "state", "jobs"},
    "durability": {"agent", "models", "tools", "state", "jobs"},
    "connect": {"config", "tools", "schema", "protocol", "http", "oauth", "definitions"},
    "hub": {"connect", "config", "tools", "protocol", "state", "definitions"},
    "serve": {"tools", "schema", "protocol", "config", "state", "jobs", "http", "oauth", "definitions"},
    "middleware": {"serve", "tools", "schema", "protocol", "config", "state"},
    "gateway": {
        "agent",
        "schema",
        "jobs",
        "hub",
        "connect",
        "serve",
        "middleware",
        "config",
        "tools",
        "protocol",
        "state",
        "oauth",
        "definitions",
        "http",
    },
    "testing": {"connect", "serve", "models", "tools", "protocol"},
    "compose": {
        "config",
        "hub",
        "models",
        "agent",
        "serve",
        "middleware",
        "gateway",
        "tools",
        "state",
        "jobs",
        "oauth",
        "definitions",
    },
    "sync": {
        "compose",
        "connect",
        "config",
        "definitions",
        "hub",
        "models",
        "agent",
        "serve",
        "gateway",
        "tools",
        "state",
        "jobs",
    },
}
"""`cli` and the root `__init__` may import anything; nothing may import them."""

TOP = {"", "cli", "__main__"}

SDK_MODULES = {"toolweave.connect._sdk"}
"""The only module that knows the MCP SDK."""

SDK = {"mcp", "mcp_types"}


def rooms_imported(module: Module) -> list[tuple[str, int]]:
    """Return the rooms of ours that a module imports, each with its line."""
    names = [imported for imported in module.imports() if imported.target.split(".")[0] == PACKAGE]
    return [(".".join(imported.target.split(".")[1:2]), imported.line) for imported in names]


FOR_ALL = {
    "errors",
    "version",
    "_lazy",
    "_text",
    "_value",
    "_backoff",
    "_json",
    "_json_types",
    "_files",
    "_masking",
    "_repairs",
    "_option_checks",
}


def violations(module: Module) -> list[str]:
    """Return one line per import that breaks the table."""
    if module.room in TOP:
        return []
    allowed = ARROWS[module.room] | {module.room} | FOR_ALL
    return [
        f"{module.name}:{line} imports {room or 'the root'!r}; {module.room} may import {sorted(allowed)}"
        for room, line in rooms_imported(module)
        if room not in allowed
    ]


def test_every_room_stands_in_the_table() -> None:
    rooms = {module.room for module in modules()} - TOP

    assert rooms <= ARROWS.keys(), "add the room to ARROWS and to ARCHITECTURE.md"


def test_the_table_itself_has_no_cycle() -> None:
    done: set[str] = set()
    while layer := {room for room, targets in ARROWS.items() if room not in done and targets <= done}:
        done |= layer

    assert done == ARROWS.keys()


@pytest.mark.slow
def test_every_import_follows_the_arrows() -> None:
    broken = [line for module in modules() for line in violations(module)]

    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_only_the_sdk_modules_import_the_mcp_sdk() -> None:
    broken = [
        f"{module.name}:{imported.line} imports {imported.target}"
        for module in modules()
        if module.name not in SDK_MODULES
        for imported in module.imports()
        if imported.target.split(".")[0] in SDK
    ]

    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "source",
    [
        "from toolweave.hub import Hub",
        "import toolweave.hub._naming",
        "from toolweave import hub",
        "from ..hub import Hub",
        "def late():\n    from toolweave.hub import Hub",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toolweave.hub import Hub",
        "import importlib\nimportlib.import_module('toolweave.hub')",
    ],
)
def test_an_arrow_that_points_up_is_found_wherever_it_hides(source: str) -> None:
    module = Module("toolweave.tools.spec", Path("spec.py"), source, ast.parse(source))

    assert len(violations(module)) == 1


def imported_modules() -> dict[str, set[str]]:
    """Return for each module the others that it imports, inside functions and under TYPE_CHECKING too."""
    names = {module.name for module in modules()}
    found: dict[str, set[str]] = {}
    for module in modules():
        targets = (imported.target for imported in module.imports())
        found[module.name] = {
            target if target in names else target.rpartition(".")[0]
            for target in targets
            if target in names or target.rpartition(".")[0] in names
        } - {module.name}
    return found


def cycles(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules that import one another in a circle: what is left once all others are taken out."""
    left = dict(imports)
    while ends := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in ends}
    while unused := left.keys() - set[str]().union(*left.values()):
        left = {name: targets for name, targets in left.items() if name not in unused}
    return sorted(left)


@pytest.mark.slow
def test_no_two_files_import_one_another_in_a_circle() -> None:
    assert cycles(imported_modules()) == []


def test_a_circle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}) == ["b", "c"]


def test_a_room_says_which_of_its_modules_neighbours_may_use() -> None:
    hint = (
        "neighbours.json is the contract between rooms: the private modules that a neighbour may use. Import the name "
        "from the face of the room, or else list the module: python -m tests.architecture.neighbours --write"
    )
    assert imported() == listed(), hint


def test_a_module_that_several_rooms_import_is_a_door_and_has_no_underscore() -> None:
    hidden = {
        name: sorted(rooms)
        for name, rooms in rooms_by_module().items()
        if len(rooms) >= MIN_ROOMS and name.count(".") == 2 and is_private(name)
    }

    assert hidden == {}, "rename these without the underscore and give them `__all__`, or export the name from the face"
