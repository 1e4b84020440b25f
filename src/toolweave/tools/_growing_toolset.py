"""A toolset of several to which others are added while it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from toolweave.tools._wrappers import JoinedToolset, OfferedPart
from toolweave.tools.names import AssignedNames
from toolweave.tools.toolset import Listeners, ToolsChanged, Toolset, ToolSnapshot, Unsubscribe


class GrowingToolset(JoinedToolset):
    """Several toolsets as one, to which others are added while it is used; of two tools of one name the first keeps it.

    Args:
        *toolsets: The first ones.
    """

    __slots__ = ("_added",)

    def __init__(self, *toolsets: Toolset) -> None:
        super().__init__(toolsets, "rename", AssignedNames(), range(len(toolsets)))
        self._added = Listeners()

    def add(self, toolset: Toolset) -> None:
        """Add a toolset behind the others, and notify subscribers; its owner opens it."""
        self._toolsets = (*self._toolsets, toolset)
        self._keys = (*self._keys, len(self._keys))
        self._parts.append(OfferedPart(ToolSnapshot()))
        self._view = None
        toolset.subscribe(self._added.emit)
        self._added.emit(ToolsChanged(added=tuple(toolset.snapshot().by_name)))

    def _feeds(self) -> Iterable[Callable[[Callable[[ToolsChanged], None]], Unsubscribe]]:
        return [self._added.subscribe, *super()._feeds()]
