"""The package as source: its modules, and what each of them imports."""

from __future__ import annotations

import ast
import gc
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Import", "Module", "is_private", "modules", "package_folder"]

PACKAGE = "toolweave"


class Import(NamedTuple):
    """One imported name: `toolweave.tools.spec` for `from toolweave.tools.spec import ToolSpec`."""

    target: str
    line: int


class Module(NamedTuple):
    """One file of the package."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The first name below the package: `connect` for `toolweave.connect._wire.http`, `` for the root."""
        return ".".join(self.name.split(".")[1:2])

    def imports(self) -> Iterator[Import]:
        """Yield every import, those inside functions and under TYPE_CHECKING included."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    # `from toolweave import tools` imports a room, `from toolweave.tools import Tool` a name of one
                    yield Import(f"{base}.{alias.name}", node.lineno)
            elif isinstance(node, ast.Call) and _is_import_module(node):
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield Import(first.value, node.lineno)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        if self.path.name != "__init__.py":
            parts = parts[:-1]
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, node.module] if node.module else parts)


def _is_import_module(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in {"import_module", "__import__"} and bool(node.args)


def is_private(name: str) -> bool:
    """Whether a part of the name of a module begins with an underscore."""
    return any(part.startswith("_") for part in name.split("."))


def package_folder() -> Path:
    """Return the folder of the package that the tests run against: the checkout's or the installed wheel's."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the package, by name.

    What `toolweave add` copies is a text of the package, not a module of it.
    """
    folder = package_folder()
    found: list[Module] = []
    for path in sorted(path for path in folder.rglob("*.py") if folder / "components" / "catalog" not in path.parents):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found.append(Module(name, path, text, ast.parse(text, str(path))))
    gc.freeze()  # millions of nodes that stay: every later collection would look at all of them
    return tuple(found)
