"""Toolsets around toolsets: other names, fewer tools, other schemas and results, spans.

Every wrapper forwards what it does not change; none knows what it wraps.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from toolweave.errors import DuplicateToolError, ErrorKind, as_tool_error
from toolweave.tools.call import CallContext, ToolCall
from toolweave.tools.names import free_name, selected, unknown_tool
from toolweave.tools.registry import ToolRegistry
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import ToolsChanged, Toolset, ToolSnapshot, Unsubscribe

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

__all__ = ["combined", "enhanced", "filtered", "prefixed", "renamed", "traced", "transformed"]

_log = logging.getLogger("toolweave.tools")

_Source: TypeAlias = tuple[Toolset, str]
"""Where a tool of a view comes from: the toolset, and the tool's name there."""

_Run: TypeAlias = Callable[[Toolset, ToolCall, CallContext, ToolSpec], Awaitable[ToolResult]]
"""Makes a call; the call carries the tool's name in the toolset, the definition is the exposed one."""


def prefixed(toolset: Toolset, prefix: str, separator: str = "_") -> Toolset:
    """Return the toolset with `prefix` and `separator` before every name: `fs` gives `fs_read_file` (R38)."""
    return _View(toolset, lambda spec: replace(spec, name=f"{prefix}{separator}{spec.name}"))


def renamed(toolset: Toolset, names: Mapping[str, str] | Callable[[ToolSpec], str]) -> Toolset:
    """Return the toolset with other names, by a mapping from exposed names or by a function (R32, R42)."""
    if callable(names):
        return _View(toolset, lambda spec: replace(spec, name=names(spec)))
    return _View(toolset, lambda spec: replace(spec, name=names.get(spec.name, spec.name)))


def filtered(
    toolset: Toolset,
    include: Collection[str] = (),
    exclude: Collection[str] = (),
    predicate: Callable[[ToolSpec], bool] | None = None,
) -> Toolset:
    """Return the toolset with some tools only; what is filtered out cannot be called either.

    Args:
        toolset: What is filtered.
        include: A whitelist that wins over `exclude`; empty is no filter (requirement R31). Names are
            the producers' own, or `server:tool` and `server/tool`.
        exclude: Names of the same forms to leave out.
        predicate: Keeps what it returns true for, among what the names keep.
    """
    wanted, unwanted = frozenset(include), frozenset(exclude)

    def keep(spec: ToolSpec) -> ToolSpec | None:
        named = selected(spec.original_name, include=wanted, exclude=unwanted, server=spec.server)
        return spec if named and (predicate is None or predicate(spec)) else None

    return _View(toolset, keep)


def enhanced(toolset: Toolset, schema: Callable[[ToolSpec], Mapping[str, Any]]) -> Toolset:
    """Return the toolset with the input schemas that `schema` returns; one that raises changes nothing (R112)."""

    def enhance(spec: ToolSpec) -> ToolSpec:
        try:
            return replace(spec, input_schema=schema(spec))
        except Exception:  # boundary: user code
            _log.exception("the schema of tool %r could not be enhanced", spec.name)
            return spec

    return _View(toolset, enhance)


def transformed(
    toolset: Toolset, result: Callable[[ToolResult, ToolSpec], ToolResult | Awaitable[ToolResult]]
) -> Toolset:
    """Return the toolset with every result put through `result`, error results too (requirements R54, R112)."""

    async def run(toolset: Toolset, call: ToolCall, ctx: CallContext, spec: ToolSpec) -> ToolResult:
        outcome = result(await toolset.call(call, ctx), spec)
        return await outcome if inspect.isawaitable(outcome) else outcome

    return _View(toolset, run=run)


def traced(toolset: Toolset, tracer: Tracer | None = None) -> Toolset:
    """Return the toolset with an OpenTelemetry span `tool:run` around every call (requirement R49).

    The span carries `toolweave.server`, `gen_ai.tool.name` and `gen_ai.tool.call.id`; an error
    result sets `error.type` and the span's status. Arguments and results are not recorded.
    """
    from opentelemetry import trace  # whoever traces has it loaded already

    spans = tracer if tracer is not None else trace.get_tracer("toolweave")

    async def run(toolset: Toolset, call: ToolCall, ctx: CallContext, spec: ToolSpec) -> ToolResult:
        attributes = {"gen_ai.tool.name": spec.original_name}
        if spec.server is not None:
            attributes["toolweave.server"] = spec.server
        if call.id is not None:
            attributes["gen_ai.tool.call.id"] = call.id
        with spans.start_as_current_span("tool:run", attributes=attributes) as span:
            result = await toolset.call(call, ctx)
            if result.is_error:
                error = result.require_error()
                span.set_attribute("error.type", error.kind.value)
                span.set_status(trace.StatusCode.ERROR, error.message)
            return result

    return _View(toolset, run=run)


def combined(*toolsets: Toolset, on_conflict: Literal["rename", "skip", "error"] = "rename") -> Toolset:
    """Return several toolsets as one, in their order; of two tools of one name the first keeps it (C20).

    Args:
        *toolsets: What is joined.
        on_conflict: `"rename"` exposes the later one as `server_name` or `name_2`, `"skip"` leaves
            it out, `"error"` raises. Tools that arrive later are renamed rather than raised for.

    Raises:
        DuplicateToolError: Two tools have one name now and `on_conflict` is `"error"`.
    """
    view = _Combined(toolsets, on_conflict)
    view.snapshot()
    if on_conflict == "error":
        view.on_conflict = "rename"
    return view


class _Joined(ABC):
    """What all wrappers share: a cached view of the snapshots beneath, and the forwarding."""

    __slots__ = ("_run", "_seen", "_sources", "_toolsets", "_view")

    def __init__(self, toolsets: tuple[Toolset, ...], run: _Run | None = None) -> None:
        self._toolsets = toolsets
        self._run = run
        self._seen: tuple[ToolSnapshot, ...] | None = None
        self._view = ToolSnapshot()
        self._sources: dict[str, _Source] = {}

    @abstractmethod
    def _specs(self, snapshots: tuple[ToolSnapshot, ...]) -> Iterable[tuple[ToolSpec, _Source]]:
        """Return the definitions offered, each with where it comes from."""

    def snapshot(self) -> ToolSnapshot:
        snapshots = tuple(toolset.snapshot() for toolset in self._toolsets)
        seen = self._seen
        if seen is None or any(new is not old for new, old in zip(snapshots, seen, strict=True)):
            offered = list(self._specs(snapshots))
            version = sum(snapshot.version for snapshot in snapshots)
            self._view = ToolSnapshot((spec for spec, _ in offered), version=version)
            self._sources = {spec.name: source for spec, source in offered}
            self._seen = snapshots
        return self._view

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        before = self.snapshot()

        def changed(_: ToolsChanged) -> None:
            nonlocal before
            after = self.snapshot()
            change = ToolsChanged.between(before, after)
            before = after
            if change:
                listener(change)

        ends = [toolset.subscribe(changed) for toolset in self._toolsets]

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        view = self.snapshot()
        spec = view.find(call.name)
        if spec is None:
            return ToolResult.failure(unknown_tool(call.name, view.by_name), kind=ErrorKind.NOT_FOUND)
        toolset, name = self._sources[spec.name]
        if call.name != spec.name and isinstance(toolset, (ToolRegistry, _Joined)):
            inside = toolset.snapshot()
            if inside.find(call.name) is inside.by_name.get(name):
                name = call.name  # the registry counts how often an old name is used (requirement R102)
        inner = call if call.name == name else replace(call, name=name)
        try:
            return await (toolset.call(inner, ctx) if self._run is None else self._run(toolset, inner, ctx, spec))
        except Exception as exc:  # boundary: user code, and third-party toolsets that raise (C2)
            return ToolResult.failure(as_tool_error(exc))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as entered:
            for toolset in self._toolsets:
                await entered.enter_async_context(toolset)
            entered.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        leaving = AsyncExitStack()
        for toolset in self._toolsets:
            leaving.push_async_exit(toolset)
        return await leaving.__aexit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"<toolset of {', '.join(repr(toolset) for toolset in self._toolsets)}>"


class _View(_Joined):
    """One toolset whose definitions go through `spec` (None hides) and whose calls go through `run`."""

    __slots__ = ("_change",)

    def __init__(
        self, toolset: Toolset, spec: Callable[[ToolSpec], ToolSpec | None] | None = None, run: _Run | None = None
    ) -> None:
        super().__init__((toolset,), run)
        self._change = spec

    def _specs(self, snapshots: tuple[ToolSnapshot, ...]) -> Iterable[tuple[ToolSpec, _Source]]:
        taken: set[str] = set()
        for inner in snapshots[0]:
            spec = inner if self._change is None else self._change(inner)
            if spec is None:
                continue
            if spec.name in taken:
                spec = replace(spec, name=free_name(spec.name, spec.server, taken))
            taken.add(spec.name)
            yield spec, (self._toolsets[0], inner.name)


class _Combined(_Joined):
    """Several toolsets as one."""

    __slots__ = ("on_conflict",)

    def __init__(self, toolsets: tuple[Toolset, ...], on_conflict: str) -> None:
        super().__init__(toolsets)
        self.on_conflict = on_conflict

    def _specs(self, snapshots: tuple[ToolSnapshot, ...]) -> Iterable[tuple[ToolSpec, _Source]]:
        taken: set[str] = set()
        for toolset, snapshot in zip(self._toolsets, snapshots, strict=True):
            for inner in snapshot:
                spec = inner
                if inner.name in taken:
                    if self.on_conflict == "skip":
                        continue
                    if self.on_conflict == "error":
                        raise DuplicateToolError(inner.name, where="an earlier toolset")
                    spec = replace(inner, name=free_name(inner.name, inner.server, taken))
                taken.add(spec.name)
                yield spec, (toolset, inner.name)
