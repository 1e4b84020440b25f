"""Toolsets for tests: one that records and answers what it is told, and one that counts its guests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from toolweave import CallContext, ToolCall, ToolResult, ToolsChanged, ToolSpec
from toolweave.tools import ToolSnapshot
from toolweave.tools.toolset import Listeners, Unsubscribe

__all__ = ["Scripted", "spec"]


def spec(name: str, *, server: str | None = "files", **more: object) -> ToolSpec:
    """Return a definition as a server's connection would make it."""
    return ToolSpec(name=name, server=server, **more)  # type: ignore[arg-type]


class Scripted:
    """A toolset that answers with its tool's name, or raises what it is given, and remembers everything."""

    def __init__(self, specs: Sequence[ToolSpec] = (), *, fault: BaseException | None = None) -> None:
        self.fault = fault
        self.calls: list[tuple[ToolCall, CallContext]] = []
        self.open = 0
        self._listeners = Listeners()
        self._snapshot = ToolSnapshot(specs, version=1)

    def offer(self, *specs: ToolSpec) -> None:
        """Change what is offered and tell the listeners."""
        before = self._snapshot
        self._snapshot = ToolSnapshot(specs, version=before.version + 1)
        self._listeners.emit(ToolsChanged.between(before, self._snapshot))

    def snapshot(self) -> ToolSnapshot:
        return self._snapshot

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        self.calls.append((call, ctx))
        if self.fault is not None:
            raise self.fault
        return ToolResult.of(f"{call.name} ran")

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        return self._listeners.subscribe(listener)

    async def __aenter__(self) -> Self:
        if isinstance(self.fault, ConnectionError):
            raise self.fault
        self.open += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.open -= 1
