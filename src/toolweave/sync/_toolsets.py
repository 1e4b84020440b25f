"""Toolsets and tools for synchronous code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from toolweave.sync._blocking import blocking
from toolweave.tools._notebook import tool_html, tools_html
from toolweave.tools._portal import PORTAL
from toolweave.tools._spec import ToolSpec
from toolweave.tools._toolset import Tool, ToolList, ToolsChanged, changes
from toolweave.tools._wrappers import BaseToolset

__all__ = ["SyncTool", "SyncToolList", "SyncToolset"]

ToolsetT_co = TypeVar("ToolsetT_co", bound=BaseToolset, covariant=True)


class SyncTool:
    """A tool that is called without awaiting it.

    Attributes:
        wrapped: The async tool; give either to an agent.
    """

    __slots__ = ("wrapped",)

    def __init__(self, wrapped: Tool) -> None:
        self.wrapped = wrapped

    @property
    def spec(self) -> ToolSpec:
        """The definition."""
        return self.wrapped.spec

    @property
    def name(self) -> str:
        """The exposed name."""
        return self.wrapped.name

    @property
    def description(self) -> str:
        """The tool's description for a model."""
        return self.wrapped.description

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments object."""
        return self.wrapped.input_schema

    execute = blocking(Tool.execute)
    call = blocking(Tool.call)

    def __repr__(self) -> str:
        return f"<Sync{repr(self.wrapped)[1:]}"

    def _repr_html_(self) -> str:
        return tool_html(self.spec)


class SyncToolList(Sequence[SyncTool]):
    """Tools in order, also indexed by name: `tools["fs_read_file"]`."""

    __slots__ = ("wrapped",)

    def __init__(self, wrapped: ToolList) -> None:
        self.wrapped = wrapped

    @property
    def names(self) -> tuple[str, ...]:
        """The exposed names, in order."""
        return self.wrapped.names

    @overload
    def __getitem__(self, key: int | str) -> SyncTool: ...
    @overload
    def __getitem__(self, key: slice) -> SyncToolList: ...
    def __getitem__(self, key: int | str | slice) -> SyncTool | SyncToolList:
        return SyncToolList(self.wrapped[key]) if isinstance(key, slice) else SyncTool(self.wrapped[key])

    def __contains__(self, item: object) -> bool:
        return (item.wrapped if isinstance(item, SyncTool) else item) in self.wrapped

    def __len__(self) -> int:
        return len(self.wrapped)

    def __iter__(self) -> Iterator[SyncTool]:
        return map(SyncTool, self.wrapped)

    def __repr__(self) -> str:
        return f"SyncToolList({list(self.names)!r})"

    def _repr_html_(self) -> str:
        return tools_html(tool.spec for tool in self.wrapped)


class SyncToolset(Generic[ToolsetT_co]):
    """A toolset for synchronous code; in a `with` block it is open.

    Attributes:
        wrapped: The async toolset; give either to an agent.
    """

    def __init__(self, wrapped: ToolsetT_co) -> None:
        self._wrapped = wrapped
        self._entered: list[AbstractContextManager[Any]] = []

    @property
    def wrapped(self) -> ToolsetT_co:
        """The async toolset."""
        return self._wrapped

    @property
    def tools(self) -> SyncToolList:
        """The tools offered now: a sequence that is also indexed by name and alias."""
        return SyncToolList(self._wrapped.tools)

    execute = blocking(BaseToolset.execute)

    def filtered(
        self,
        include: Collection[str] = (),
        exclude: Collection[str] = (),
        predicate: Callable[[ToolSpec], bool] | None = None,
    ) -> SyncToolset[BaseToolset]:
        """Return this toolset with some tools only; see `toolweave.tools.filtered`."""
        return SyncToolset(self._wrapped.filtered(include, exclude, predicate))

    def prefixed(self, prefix: str, separator: str = "_") -> SyncToolset[BaseToolset]:
        """Return this toolset with other names; see `toolweave.tools.prefixed`."""
        return SyncToolset(self._wrapped.prefixed(prefix, separator))

    def renamed(self, names: Mapping[str, str] | Callable[[ToolSpec], str]) -> SyncToolset[BaseToolset]:
        """Return this toolset with other names; see `toolweave.tools.renamed`."""
        return SyncToolset(self._wrapped.renamed(names))

    def changes(self) -> Generator[ToolsChanged, None, None]:
        """Iterate over the changes of the tools; none is lost between this call and the first iteration."""

        async def follow() -> Any:
            return changes(self._wrapped)

        return PORTAL.iterate(PORTAL.run(follow))

    def __enter__(self) -> Self:
        entered = PORTAL.enter(self._wrapped)
        entered.__enter__()
        self._entered.append(entered)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._wrapped!r}>"
