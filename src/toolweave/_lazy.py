"""Exports of a package that are imported when they are first used (PEP 562). Imports nothing of Toolweave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any


def lazy_exports(
    package: str, modules: Mapping[str, Iterable[str]], *, moved: Mapping[str, Iterable[str]] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    The package imports the same names under `TYPE_CHECKING`, so that type checkers know them and no others.

    Args:
        package: Its `__name__`.
        modules: The names that each of its modules defines; a module of another package begins with a dot.
        moved: Names that the package offered once, by the package of ours that has them now. They are found, but
            neither listed nor known to type checkers. The package itself never uses them, so it does not depend on that
            package.
    """
    homes = {name: module for module, names in modules.items() for name in names}
    former: dict[str, str] = {}
    for room, names_there in moved.items():
        former.update(dict.fromkeys(names_there, f".{room}"))
    members = vars(sys.modules[package])

    def getattribute(name: str) -> Any:
        home = homes.get(name, former.get(name))
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home}", package), name)
        members[name] = value  # asked for once
        return value

    def names() -> list[str]:
        return sorted({*members, *homes})

    return getattribute, names
