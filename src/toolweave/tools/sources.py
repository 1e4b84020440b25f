"""Conversion of tools, functions and sequences of them to a `Toolset`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from toolweave.tools._registry import ToolRegistry, no_tools
from toolweave.tools._wrappers import combined
from toolweave.tools.toolset import Tool, Toolset

__all__ = ["ToolItem", "ToolSource", "UnopenedTools", "as_toolset", "borrowed_toolset", "with_registry"]


@runtime_checkable
class UnopenedTools(Protocol):
    """The return value of `connect_mcp` and its like until it is awaited: a toolset can be made of it."""

    def unopened(self) -> Toolset:
        """Return a toolset that is not open: the code that uses it enters and leaves it."""
        ...


ToolItem: TypeAlias = Toolset | UnopenedTools | Tool | Callable[..., Any]
"""One of the values that `as_toolset` accepts."""

ToolSource: TypeAlias = ToolItem | Iterable[ToolItem]
"""The values that `as_toolset` accepts."""


def as_toolset(source: ToolSource) -> Toolset:
    """Return a toolset for a toolset, a tool, a function, or a sequence of any of them.

    What `connect_mcp`, `connect_mcp_servers` and `discover_mcp_tools` return need not be awaited: entering the toolset
    connects, and leaving it disconnects. In a sequence, tools and functions come before whole toolsets. A server's tool
    whose name is taken is renamed; nothing that a server sends can raise here.

    Raises:
        DuplicateToolError: Two local tools have one name.
        SchemaError: A function's signature cannot be described.
        TypeError: The source offers no tools.
    """
    return _toolset(source, _make)


def borrowed_toolset(source: ToolSource) -> Toolset:
    """Return a toolset as `as_toolset`, for code that neither opens nor closes it.

    Raises:
        DuplicateToolError, SchemaError: As `as_toolset`.
        TypeError: The source offers no tools, or none before it is awaited.
    """
    return _toolset(source, _refuse)


def with_registry(source: ToolSource) -> tuple[ToolRegistry, Toolset]:
    """Return a new registry for tools that are added later, and the toolset that it is part of.

    Functions and tools go into the registry, toolsets beside it: a given registry is followed, but never written to.

    Raises:
        DuplicateToolError, SchemaError, TypeError: As `as_toolset`.
    """
    if isinstance(source, (Toolset, UnopenedTools, Tool)) or callable(source):
        source = (source,)
    registry, toolsets = _sorted(source, _make)
    return registry, combined(registry, *toolsets) if toolsets else registry


def _toolset(source: ToolSource, make: Callable[[UnopenedTools], Toolset]) -> Toolset:
    if isinstance(source, Toolset):
        return source
    if isinstance(source, UnopenedTools):
        return make(source)
    if isinstance(source, Tool) or callable(source):
        return ToolRegistry([source])
    registry, toolsets = _sorted(source, make)
    if len(registry) or not toolsets:
        toolsets.insert(0, registry)
    if len(toolsets) == 1:
        return toolsets[0]
    return combined(*toolsets)


def _make(source: UnopenedTools) -> Toolset:
    return source.unopened()


def _refuse(source: UnopenedTools) -> Toolset:
    raise no_tools(source, "a Toolset, a Tool or a function")


def _sorted(source: Iterable[ToolItem], make: Callable[[UnopenedTools], Toolset]) -> tuple[ToolRegistry, list[Toolset]]:
    if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise no_tools(source, "a Toolset, a Tool, a function or a sequence of them")
    registry = ToolRegistry()
    toolsets: list[Toolset] = []
    for item in source:
        if isinstance(item, Toolset):
            toolsets.append(item)
        elif isinstance(item, UnopenedTools):
            toolsets.append(make(item))
        elif isinstance(item, Tool) or callable(item):
            local = not isinstance(item, Tool) or item.server is None
            registry.add(item, on_conflict="error" if local else "rename")
        else:
            raise no_tools(item, "a Toolset, a Tool or a function")
    return registry, toolsets
