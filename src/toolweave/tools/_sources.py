"""Conversion of tools, functions and sequences of them to a `Toolset`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from toolweave.tools._registry import ToolRegistry, no_tools
from toolweave.tools._toolset import Tool, Toolset
from toolweave.tools._wrappers import combined

ToolSource: TypeAlias = Toolset | Tool | Callable[..., Any] | Iterable[Toolset | Tool | Callable[..., Any]]
"""The values that `as_toolset` accepts."""


def as_toolset(source: ToolSource) -> Toolset:
    """Return a toolset for a toolset, a tool, a function, or a sequence of any of them.

    In a sequence, tools and functions come before whole toolsets. A server's tool whose name is
    taken is renamed; nothing that a server sends can raise here.

    Raises:
        DuplicateToolError: Two local tools have one name.
        SchemaError: A function's signature cannot be described.
        TypeError: The source offers no tools.
    """
    if isinstance(source, Toolset):
        return source
    if isinstance(source, Tool) or callable(source):
        return ToolRegistry([source])
    registry, toolsets = _sorted(source)
    if len(registry) or not toolsets:
        toolsets.insert(0, registry)
    return toolsets[0] if len(toolsets) == 1 else combined(*toolsets)


def with_registry(source: ToolSource) -> tuple[ToolRegistry, Toolset]:
    """Return a new registry for tools that are added later, and the toolset that it is part of.

    Functions and tools go into the registry, toolsets beside it: a given registry is followed, but never written to.

    Raises:
        DuplicateToolError, SchemaError, TypeError: As `as_toolset`.
    """
    if isinstance(source, (Toolset, Tool)) or callable(source):
        source = (source,)
    registry, toolsets = _sorted(source)
    return registry, combined(registry, *toolsets) if toolsets else registry


def _sorted(source: Iterable[Toolset | Tool | Callable[..., Any]]) -> tuple[ToolRegistry, list[Toolset]]:
    if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise no_tools(source, "a Toolset, a Tool, a function or a sequence of them")
    registry = ToolRegistry()
    toolsets: list[Toolset] = []
    for item in source:
        if isinstance(item, Toolset):
            toolsets.append(item)
        elif isinstance(item, Tool) or callable(item):
            local = not isinstance(item, Tool) or item.server is None
            registry.add(item, on_conflict="error" if local else "rename")
        else:
            raise no_tools(item, "a Toolset, a Tool or a function")
    return registry, toolsets
