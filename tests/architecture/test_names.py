"""Names say what is public, and each name of a type stands once."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.neighbours import MIN_ROOMS, rooms_by_module
from tests.architecture.source import Module, is_private, modules

PUBLIC_FOLDERS = {
    "toolweave.protocol": "its modules are namespaces: `methods.TOOLS_CALL`",
    "toolweave.testing.servers": "servers that misbehave, for the tests of others",
    "toolweave.cli.demo": "servers to start with `python -m`",
    "toolweave.components.catalog": "source code that is copied into projects",
}
PUBLIC_MODULES = {"toolweave.cli.main", "toolweave.testing.plugin"}
"""What an entry point of the distribution names."""

TESTS = Path(__file__).parents[1]
SAME_NAMES = {
    "Prompt": 2,  # what is sent to an agent, and what a server offers
    "Message": 2,  # one of a conversation with a model, and one of ASGI
    "OnConflict": 2,  # what a registry does with a name that is taken, and an update with a changed file
    "Scope": 2,  # what the variables in a config stand for, and the request of an ASGI server
    "Step": 2,  # one of a handshake in a report, and the next one of a run
    "StopReason": 2,  # why a run of an agent ended, and why a turn of a model did
}
"""Names of types that stand more than once, with how often: none may be added."""


def in_public_folder(name: str) -> bool:
    return any(name == folder or name.startswith(f"{folder}.") for folder in PUBLIC_FOLDERS)


def doors() -> set[str]:
    """Return the modules that have no underscore for the sake of other rooms."""
    inner = {module.name for module in modules() if module.name.count(".") >= 2}
    return {name for name in inner - PUBLIC_MODULES if not is_private(name) and not in_public_folder(name)}


def test_a_module_without_an_underscore_is_used_by_several_rooms() -> None:
    used = rooms_by_module()

    assert {name for name in doors() if len(used.get(name, ())) < MIN_ROOMS} == set(), "give these an underscore"


def imports_of_tests() -> Iterator[tuple[str, str]]:
    inside = doors()
    for path in sorted(TESTS.rglob("*.py")):
        parts = path.relative_to(TESTS).parts
        room = parts[0] if len(parts) > 1 else ""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("toolweave."):
                words = node.module.split(".")
                if words[1] != room != "docs" and (is_private(node.module) or node.module in inside):
                    yield path.relative_to(TESTS).as_posix(), node.module


@pytest.mark.slow
def test_no_test_imports_a_private_module_of_another_room() -> None:
    """But for those of the pages in `docs`, which compare the figures of a page with the constants."""
    assert sorted(imports_of_tests()) == []


def types(module: Module) -> Iterator[str]:
    """Yield the names of the classes, and of the aliases of types at the top of a module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    yield from filter(None, map(alias, module.tree.body))


def alias(node: ast.stmt) -> str | None:
    """Return the name of an alias: it says that it is one, or a name in the form of a class is `dict[...]` or such."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id if ast.unparse(node.annotation) == "TypeAlias" else None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Subscript):
        name = node.targets[0].id
        return None if name in (name.upper(), name.lower()) else name
    return None


def test_an_alias_counts_as_the_name_of_a_type() -> None:
    source = "Json: TypeAlias = dict[str, Any]\nSleep = Callable[[float], None]\n_LONGEST = SIZES[0]\nclass Tool: ..."

    assert [*types(Module("toolweave.x", Path("x.py"), source, ast.parse(source)))] == ["Tool", "Json", "Sleep"]


@pytest.mark.slow
def test_no_name_of_a_type_stands_twice() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        if not module.name.startswith(("toolweave.components.catalog", "toolweave.testing.servers", "toolweave.sync")):
            for name in types(module):
                found[name].append(module.name)

    twice = {name: len(where) for name, where in found.items() if len(where) > 1}

    assert twice == SAME_NAMES, {name: found[name] for name in twice.keys() ^ SAME_NAMES.keys()}


ROOMS = sorted({f"toolweave.{module.room}" for module in modules() if module.room and not module.room.startswith("_")})


@pytest.mark.parametrize("room", ["toolweave", *ROOMS])
def test_help_of_every_public_class_shows_its_own_arguments(room: str) -> None:
    exported = importlib.import_module(room)
    silent = [
        name
        for name in getattr(exported, "__all__", ())
        if isinstance(value := getattr(exported, name), type) and not value.__doc__
    ]

    assert not silent


def test_a_private_module_lists_no_exports() -> None:
    """The list of what a room offers is its `__init__`; a second one in a private file is a promise by accident."""
    listing = [
        module.name
        for module in modules()
        if is_private(module.name) and not in_public_folder(module.name) and module.path.name != "__init__.py"
        for node in module.tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]

    assert listing == []
