"""The one idea: everything that offers tools is a `Toolset`, everything that uses tools takes one.

This room's contract; knows no producer and no consumer.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Protocol, Self, TypeAlias, overload, runtime_checkable

from toolweave.tools.call import CallContext, ToolCall
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import Tool, ToolList, ToolSpec

__all__ = ["Listeners", "ToolSnapshot", "ToolsChanged", "Toolset", "Unsubscribe", "changes", "tools_of"]

Unsubscribe: TypeAlias = Callable[[], None]
"""Ends a subscription; calling it again does nothing."""


class ToolSnapshot(Sequence[ToolSpec]):
    """An immutable, ordered list of tool definitions with a version that grows with every change.

    Attributes:
        version: Starts at 0 for "nothing known yet".
        by_name: Exposed names to definitions; aliases are found by `find`.
    """

    __slots__ = ("_aliases", "_by_name", "_specs", "by_name", "version")

    def __init__(self, specs: Iterable[ToolSpec] = (), *, version: int = 0) -> None:
        self._specs = tuple(specs)
        self.version = version
        self._by_name = {spec.name: spec for spec in self._specs}
        self.by_name: Mapping[str, ToolSpec] = MappingProxyType(self._by_name)
        self._aliases: dict[str, ToolSpec] | None = None

    def find(self, name: str) -> ToolSpec | None:
        """Return the definition of this exposed name or alias, or None."""
        spec = self._by_name.get(name)
        if spec is not None:
            return spec
        if self._aliases is None:
            self._aliases = {alias: spec for spec in reversed(self._specs) for alias in spec.aliases}
        return self._aliases.get(name)

    @overload
    def __getitem__(self, index: int) -> ToolSpec: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ToolSpec]: ...
    def __getitem__(self, index: int | slice) -> ToolSpec | Sequence[ToolSpec]:
        return self._specs[index]

    def __len__(self) -> int:
        return len(self._specs)

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self._specs)

    def __repr__(self) -> str:
        return f"ToolSnapshot(version={self.version}, {[spec.name for spec in self._specs]!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChanged:
    """The tools of a toolset changed (requirement C9).

    Attributes:
        added: Exposed names that are new.
        removed: Exposed names that are gone.
        changed: Exposed names whose definition differs.
        version: The version of the snapshot after the change.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    version: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @classmethod
    def between(cls, old: ToolSnapshot, new: ToolSnapshot) -> ToolsChanged:
        """Return the difference of two snapshots, names in their snapshots' order."""
        return cls.of(old.by_name, new.by_name, version=new.version)

    @classmethod
    def of(cls, old: Mapping[str, ToolSpec], new: Mapping[str, ToolSpec], *, version: int) -> ToolsChanged:
        """Return the difference of two sets of definitions by exposed name, names in their order."""
        added: list[str] = []
        changed: list[str] = []
        for name, spec in new.items():
            before = old.get(name)
            if before is spec:  # most are the same object, and comparing all the rest of them is not cheap
                continue
            if before is None:
                added.append(name)
            elif before != spec:
                changed.append(name)
        fewer = len(old) + len(added) > len(new)
        removed = tuple(name for name in old if name not in new) if fewer else ()
        return cls(added=tuple(added), removed=removed, changed=tuple(changed), version=version)


@runtime_checkable
class Toolset(Protocol):
    """What offers tools: functions, one MCP connection, a hub of many, an agent (DESIGN, "The one idea").

    Entering is re-entrant by count: the last to leave closes.
    """

    def snapshot(self) -> ToolSnapshot:
        """Return what is offered now: immutable, ordered and cheap to ask for."""
        ...

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool; tool and transport faults come back as error results, cancellation propagates."""
        ...

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the snapshot, synchronously and in order."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


class Listeners:
    """The subscribers of one toolset; a listener that raises is logged and costs nobody else the event."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[ToolsChanged], None]] = []

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Add a listener and return what removes it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def emit(self, change: ToolsChanged) -> None:
        """Tell every listener of a change; an empty change is told to nobody."""
        if not change:
            return
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:  # boundary: user code
                import logging  # only ever needed here

                logging.getLogger("toolweave").exception("a tools-changed listener raised")


def tools_of(toolset: Toolset) -> ToolList:
    """Return the tools of a toolset as callable `Tool` objects."""
    return ToolList(Tool(spec, toolset) for spec in toolset.snapshot())


def changes(toolset: Toolset) -> AsyncGenerator[ToolsChanged, None]:
    """Iterate over the changes of a toolset; none is lost between this call and the first iteration."""
    import anyio  # 15 ms, and a toolset is used without it

    send, receive = anyio.create_memory_object_stream[ToolsChanged](math.inf)
    unsubscribe = toolset.subscribe(send.send_nowait)

    async def iterate() -> AsyncGenerator[ToolsChanged, None]:
        try:
            async with receive:
                while True:
                    yield await receive.receive()
        finally:
            unsubscribe()
            send.close()

    return iterate()
