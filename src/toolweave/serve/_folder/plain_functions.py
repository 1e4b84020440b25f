"""The public functions of a module as tools, if none is decorated with `@tool`."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any, cast

from toolweave.errors import ToolweaveError
from toolweave.tools import FunctionTool, tool

_FRAMEWORKS = frozenset(("fastmcp", "mcp", "fastapi", "starlette", "flask", "django", "litestar", "typer", "click"))
_ENTRY_POINT = "main"
"""The name of the function that runs a program, which is not meant as a tool."""


def plain_functions(module: ModuleType) -> tuple[list[FunctionTool[..., Any]], list[str]]:
    """Return the public functions that a module defines as tools, and the reasons for those that cannot be.

    They are those in `__all__`, if the module has it, else those whose names do not begin with `_`.
    """
    tools: list[FunctionTool[..., Any]] = []
    problems: list[str] = []
    listed = getattr(module, "__all__", None)
    for name, value in vars(module).items():
        if listed is not None and name not in listed:
            continue
        if name.startswith("_") or name == _ENTRY_POINT:
            continue
        if not _is_defined_in(module, value):
            continue
        try:
            tools.append(tool(name=name)(value))
        except (ToolweaveError, TypeError, ValueError) as error:
            problems.append(f"function {name!r} is left out: {error}")
    return tools, problems


def _is_defined_in(module: ModuleType, value: object) -> bool:
    """Return whether a value is a function of this module, maybe under decorators."""
    if inspect.isclass(value) or not callable(value):
        return False
    function = inspect.unwrap(value)
    # Imported functions are not offered: a helper such as `subprocess.run` would become a tool by its import.
    return inspect.isfunction(function) and function.__module__ == module.__name__


def packages_of(kind: type[Any]) -> set[str]:
    """Return the names of the packages that define a class and its bases."""
    return {cls.__module__.partition(".")[0] for cls in kind.__mro__}


def made_by_framework(module: ModuleType) -> str | None:
    """Return the name and the kind of an object of a framework that a module makes; None without one."""
    for name, value in vars(module).items():
        kind = cast("type[Any]", type(value))
        if not isinstance(value, type) and packages_of(kind) & _FRAMEWORKS:
            return f"{name!r} of {kind.__name__}"
    return None
