"""Exports of a package that are imported when they are first used (PEP 562). Imports nothing of Toolweave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    The package imports the same names under `TYPE_CHECKING`, so that type checkers know them and no others.

    Args:
        package: Its `__name__`.
        modules: The names that each of its modules defines; a module of another package begins with a dot.
    """
    homes = {name: module for module, names in modules.items() for name in names}
    members = vars(sys.modules[package])

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{homes[name]}", package), name)
        members[name] = value  # asked for once
        return value

    def names() -> list[str]:
        return sorted({*members, *homes})

    return getattribute, names
