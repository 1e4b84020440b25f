"""Toolsets around toolsets: other names, fewer tools, other schemas and results, spans.

Every wrapper forwards what it does not change; none knows what it wraps.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from toolweave.errors import DuplicateToolError, ErrorKind, as_tool_error
from toolweave.tools.call import CallContext, ToolCall
from toolweave.tools.names import GivenNames, selected, unknown_tool
from toolweave.tools.registry import ToolRegistry
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import ToolsChanged, Toolset, ToolSnapshot, Unsubscribe

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

__all__ = ["combined", "enhanced", "filtered", "joined", "prefixed", "renamed", "traced", "transformed"]

_log = logging.getLogger("toolweave.tools")

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

    A name that a tool was given stays that tool's, also while it is gone.

    Args:
        *toolsets: What is joined.
        on_conflict: `"rename"` exposes the later one as `server_name` or `name_2`, `"skip"` leaves
            it out, `"error"` raises. Tools that arrive later are renamed rather than raised for.

    Raises:
        DuplicateToolError: Two tools have one name now and `on_conflict` is `"error"`.
    """
    view = _Combined(toolsets, on_conflict, GivenNames(), range(len(toolsets)))
    view.snapshot()
    if on_conflict == "error":
        view.on_conflict = "rename"
    return view


def joined(toolsets: Mapping[Hashable, Toolset], given: GivenNames) -> Toolset:
    """Return several toolsets as one, for toolsets that come and go: names stay with the pair of a key and a tool.

    Args:
        toolsets: By keys that stay the same when a toolset is opened anew.
        given: The names that were given so far; what is named later is added.
    """
    return _Combined(tuple(toolsets.values()), "rename", given, toolsets)


class _Part:
    """What a wrapper offers of one toolset beneath it.

    Attributes:
        seen: The snapshot that this was made of.
        specs: The definitions offered, by the names they are offered under.
        made: The definitions that are not those of `seen` themselves, by the names there.
        inner: The names in `seen` of what is offered under another name.
    """

    __slots__ = ("inner", "made", "seen", "specs")

    def __init__(self, seen: ToolSnapshot) -> None:
        self.seen = seen
        self.specs: dict[str, ToolSpec] = {}
        self.made: dict[str, ToolSpec] = {}
        self.inner: dict[str, str] = {}

    def known(self, inner: ToolSpec) -> ToolSpec | None:
        """Return what was made of this very definition, or None."""
        if self.seen.by_name.get(inner.name) is not inner:
            return None
        made = self.made.get(inner.name)
        return inner if made is None and self.specs.get(inner.name) is inner else made

    def add(self, inner: ToolSpec, spec: ToolSpec) -> None:
        """Offer a definition as another."""
        self.specs[spec.name] = spec
        if spec is not inner:
            self.made[inner.name] = spec
        if spec.name != inner.name:
            self.inner[spec.name] = inner.name


class _Joined(ABC):
    """What all wrappers share: a cached view of the snapshots beneath, and the forwarding.

    A definition that did not change beneath stays the same object, so a change costs no more than looking for it.
    """

    __slots__ = ("_parts", "_run", "_toolsets", "_view")

    def __init__(self, toolsets: tuple[Toolset, ...], run: _Run | None = None) -> None:
        self._toolsets = toolsets
        self._run = run
        self._parts = [_Part(ToolSnapshot()) for _ in toolsets]
        self._view: ToolSnapshot | None = None

    @abstractmethod
    def _offered(self, index: int, inner: ToolSpec, known: ToolSpec | None) -> ToolSpec | None:
        """Return what is offered of a definition of the toolset of this index, or None for nothing.

        `known` is what was returned the last time, if the definition has not changed since.
        """

    @abstractmethod
    def _forget(self, index: int, present: Collection[str]) -> None:
        """Take note of all names that a toolset offers."""

    def snapshot(self) -> ToolSnapshot:
        parts, view = self._parts, self._view
        for index, toolset in enumerate(self._toolsets):
            snapshot = toolset.snapshot()
            if view is None or snapshot is not parts[index].seen:
                parts[index] = self._part(index, snapshot)
                self._view = None
        if self._view is None:
            specs = (spec for part in parts for spec in part.specs.values())
            self._view = ToolSnapshot(specs, version=sum(part.seen.version for part in parts))
        return self._view

    def _part(self, index: int, snapshot: ToolSnapshot) -> _Part:
        before, part = self._parts[index], _Part(snapshot)
        for inner in snapshot:
            spec = self._offered(index, inner, before.known(inner))
            if spec is not None:
                part.add(inner, spec)
        self._forget(index, snapshot.by_name)
        return part

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
        index = next(index for index, part in enumerate(self._parts) if spec.name in part.specs)
        toolset, name = self._toolsets[index], self._parts[index].inner.get(spec.name, spec.name)
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

    __slots__ = ("_change", "_given")

    def __init__(
        self, toolset: Toolset, spec: Callable[[ToolSpec], ToolSpec | None] | None = None, run: _Run | None = None
    ) -> None:
        super().__init__((toolset,), run)
        self._change = spec
        self._given = GivenNames()

    def _offered(self, index: int, inner: ToolSpec, known: ToolSpec | None) -> ToolSpec | None:
        if known is not None and known is not inner:
            return known
        changed = inner if self._change is None else self._change(inner)
        return None if changed is None else _named(changed, self._given, (None, inner.name))

    def _forget(self, index: int, present: Collection[str]) -> None:
        self._given.forget(None, present)


class _Combined(_Joined):
    """Several toolsets as one; the names in `given` belong to the pairs of a toolset's key and a tool's name in it."""

    __slots__ = ("_given", "_keys", "on_conflict")

    def __init__(
        self, toolsets: tuple[Toolset, ...], on_conflict: str, given: GivenNames, keys: Iterable[Hashable]
    ) -> None:
        super().__init__(toolsets)
        self._given = given
        self._keys = tuple(keys)
        self.on_conflict = on_conflict

    def _offered(self, index: int, inner: ToolSpec, known: ToolSpec | None) -> ToolSpec | None:
        if known is not None:
            return known
        who = self._keys[index], inner.name
        if self.on_conflict != "rename" and self._given.holder(inner.name) not in (None, who):
            if self.on_conflict == "skip":
                return None
            raise DuplicateToolError(inner.name, where="an earlier toolset")
        return _named(inner, self._given, who)

    def _forget(self, index: int, present: Collection[str]) -> None:
        self._given.forget(self._keys[index], present)


def _named(spec: ToolSpec, given: GivenNames, who: tuple[Hashable, str]) -> ToolSpec:
    name = given.give(who, spec.name, spec.server)
    return spec if name == spec.name else replace(spec, name=name)
