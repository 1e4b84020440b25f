"""Which names of the package are public, for pages that map the names of others to ours."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from typing import Any

from tests.docs.site import modules

__all__ = ["code_spans", "is_public", "unknown_names"]

NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


def code_spans(cell: str) -> list[str]:
    """Return what stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def is_public(path: str) -> bool:
    """Tell whether the root or a room exports the first name, and the rest are its attributes."""
    return _found(path) is not None


def unknown_names(cell: str) -> list[str]:
    """Return the names in a cell of a table, calls and their keywords included, that are not public.

    What is neither a name nor a call, such as a key of a config, is not looked at.
    """
    return [name for span in code_spans(cell) for name in _unknown(span)]


def _unknown(span: str) -> list[str]:
    if span.startswith("toolweave."):
        room, _, name = span.rpartition(".")
        return [] if name in importlib.import_module(room).__all__ else [span]
    try:
        node = ast.parse(span.removeprefix("@"), mode="eval").body
    except SyntaxError:
        return []
    keywords = [one.arg for one in node.keywords] if isinstance(node, ast.Call) else []
    path = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    if not NAME.fullmatch(path):
        return []
    found = _found(path)
    if found is None:
        return [span]
    return [f"{path}({name}=)" for name in keywords if name and not _takes(found, name)]


def _takes(function: Any, keyword: str) -> bool:  # any public object
    """Tell whether a function has a parameter, or takes further ones that a typed mapping declares."""
    if hasattr(function, "__struct_fields__"):
        return keyword in function.__struct_fields__
    parameters = inspect.signature(function).parameters.values()
    further = [one for one in parameters if one.kind is one.VAR_KEYWORD]
    return keyword in {one.name for one in parameters} or bool(further)


@cache
def _rooms() -> tuple[str, ...]:
    return ("toolweave", *(room for room in modules().values() if room != "toolweave"))


@cache
def _found(path: str) -> Any:  # any public object
    first, *rest = path.split(".")
    for room in _rooms():
        module = importlib.import_module(room)
        if first in module.__all__:
            value = getattr(module, first)
            if not rest:
                return value
            fields = getattr(value, "__dataclass_fields__", {})
            if all(hasattr(value, name) or name in fields for name in rest):
                return getattr(value, rest[0], value)
    return None
