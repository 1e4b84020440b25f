"""The base class of toolsets, and wrappers around toolsets: other names, fewer tools, other schemas and results, spans.

Every toolset of this package is a `BaseToolset`, so that wrappers chain; those of users need to be a `Toolset` only. A
wrapper forwards whatever it does not change, and is independent of the toolset within.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from toolweave._json_types import JsonObject
from toolweave._option_checks import check_choice, check_predicate, decided
from toolweave.errors import DuplicateToolError, ErrorKind, as_tool_error, printable
from toolweave.protocol.component_meta import versioned, with_versions
from toolweave.tools._call import NO_CONTEXT, CallContext, ToolCall
from toolweave.tools._tool_span import in_tool_span
from toolweave.tools.names import ANY_TOOL, AssignedNames, aliases, given_names, unknown_tool
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import (
    ToolList,
    ToolsChanged,
    Toolset,
    ToolSnapshot,
    Unsubscribe,
    entered,
    leave,
    tools_of,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_log = logging.getLogger("toolweave.tools")

_RunCall: TypeAlias = Callable[[Toolset, ToolCall, CallContext, ToolSpec], Awaitable[ToolResult]]
"""Makes a call; the call carries the tool's name in the toolset, the definition is the exposed one."""


class BaseToolset(ABC):
    """Base class of toolsets: a `Toolset` that lists its tools, runs them by name, and can be wrapped.

    A subclass needs `snapshot` and `call`. By default it never changes, and entering it opens nothing. One that opens
    something is entered by count: the last exit closes it, and a toolset that was open before stays open.
    """

    __slots__ = ()

    @abstractmethod
    def snapshot(self) -> ToolSnapshot:
        """Return the tools offered now; see `Toolset.snapshot`."""

    @abstractmethod
    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool; see `Toolset.call`."""

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the tools; see `Toolset.subscribe`."""
        return lambda: None  # by default there is nothing to stop

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return None

    @property
    def tools(self) -> ToolList:
        """The tools offered now, as callable objects: a sequence that is also indexed by name and alias."""
        return tools_of(self)

    async def execute(
        self, name: str, arguments: JsonObject | None = None, ctx: CallContext | None = None
    ) -> ToolResult:
        """Run one tool by its name or an alias; faults of the tool and the transport are error results.

        The arguments are one mapping, so that a parameter may have any name.
        """
        call = ToolCall(name=name, arguments={} if arguments is None else arguments)
        return await self.call(call, NO_CONTEXT if ctx is None else ctx)

    def prefixed(self, prefix: str, separator: str = "_") -> BaseToolset:
        """Return this toolset with other names; see `prefixed`."""
        return prefixed(self, prefix, separator)

    def renamed(self, names: Mapping[str, str] | Callable[[ToolSpec], str]) -> BaseToolset:
        """Return this toolset with other names; see `renamed`."""
        return renamed(self, names)

    def filtered(
        self,
        include: Collection[str] = (),
        exclude: Collection[str] = (),
        predicate: Callable[[ToolSpec], bool] | None = None,
    ) -> BaseToolset:
        """Return this toolset with some tools only; see `filtered`."""
        return filtered(self, include, exclude, predicate)

    def enhanced(self, schema: Callable[[ToolSpec], JsonObject]) -> BaseToolset:
        """Return this toolset with other input schemas; see `enhanced`."""
        return enhanced(self, schema)

    def transformed(self, result: Callable[[ToolResult, ToolSpec], ToolResult | Awaitable[ToolResult]]) -> BaseToolset:
        """Return this toolset with other results; see `transformed`."""
        return transformed(self, result)

    def traced(self, tracer: Tracer | None = None) -> BaseToolset:
        """Return this toolset with a span around every call; see `traced`."""
        return traced(self, tracer)

    def combined(self, *others: Toolset, on_conflict: Literal["rename", "skip", "error"] = "rename") -> BaseToolset:
        """Return this toolset and others as one; see `combined`."""
        return combined(self, *others, on_conflict=on_conflict)


class RoutingToolset(BaseToolset):
    """A toolset that runs no tool itself: a call goes straight to the toolset that does, however many are between."""

    __slots__ = ()

    @abstractmethod
    def route(self, name: str) -> tuple[Toolset, str] | None:
        """Return the toolset that runs a call by this name or alias, and the tool's name in it, or None.

        Asked once for each call, which an alias may count.
        """

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool; see `Toolset.call`."""
        found = self.route(call.name)
        if found is None:
            return ToolResult.failure(unknown_tool(call.name, self.snapshot().by_name), kind=ErrorKind.NOT_FOUND)
        toolset, name = found
        try:
            return await toolset.call(call if call.name == name else call.replace(name=name), ctx)
        except Exception as exc:  # boundary: a third-party Toolset may raise where ours returns
            return ToolResult.failure(as_tool_error(exc))


def route_of(toolset: Toolset, name: str) -> tuple[Toolset, str] | None:
    """Return the toolset and name that a call ends at, as `RoutingToolset.route`; others run their own calls."""
    if isinstance(toolset, RoutingToolset):
        return toolset.route(name)
    return (toolset, name)


class WrapperToolset(BaseToolset):
    """A toolset around others: entering it enters them, and it changes when they do."""

    __slots__ = ("_toolsets",)

    def __init__(self, *toolsets: Toolset) -> None:
        self._toolsets = toolsets

    @property
    def wrapped(self) -> tuple[Toolset, ...]:
        """The toolsets that it is around."""
        return self._toolsets

    def around(self, *toolsets: Toolset) -> Toolset | None:
        """Return a copy around other toolsets, in which tools keep their names; None if it cannot be copied."""
        return None

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the offered tools; see `Toolset.subscribe`."""
        before = self.snapshot()

        def changed(_: ToolsChanged) -> None:
            nonlocal before
            after = self.snapshot()
            change = ToolsChanged.between(before, after)
            before = after
            if change:
                listener(change)

        ends = [follow(changed) for follow in self._feeds()]

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    def _feeds(self) -> Iterable[Callable[[Callable[[ToolsChanged], None]], Unsubscribe]]:
        """Return the `subscribe` methods of all objects whose changes may change this toolset."""
        return [toolset.subscribe for toolset in self._toolsets]

    async def __aenter__(self) -> Self:
        async with entered(self._toolsets):
            return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await leave(self._toolsets, exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"<toolset of {', '.join(map(repr, self._toolsets))}>"


def prefixed(toolset: Toolset, prefix: str, separator: str = "_") -> BaseToolset:
    """Return the toolset with `prefix` and `separator` before every name: `fs` gives `fs_read_file`."""
    how = f"prefixed {prefix!r}"
    return _MappedToolset(toolset, how, lambda spec: spec.replace(name=f"{prefix}{separator}{spec.name}"))


def renamed(toolset: Toolset, names: Mapping[str, str] | Callable[[ToolSpec], str]) -> BaseToolset:
    """Return the toolset with other names, by a mapping from exposed names or by a function."""
    if callable(names):
        return _MappedToolset(toolset, "renamed", lambda spec: spec.replace(name=names(spec)))
    return _MappedToolset(toolset, "renamed", lambda spec: spec.replace(name=names.get(spec.name, spec.name)))


def filtered(
    toolset: Toolset,
    include: Collection[str] = (),
    exclude: Collection[str] = (),
    predicate: Callable[[ToolSpec], bool] | None = None,
) -> BaseToolset:
    """Return the toolset with some tools only; the tools that are filtered out cannot be called either.

    Args:
        toolset: The toolset.
        include: A whitelist that wins over `exclude`; an empty one keeps all. Names are exposed ones, the producers'
            own, `server:tool` and `server/tool`, or `*` for all. A name of no tool is logged once.
        exclude: Names of the same forms to leave out.
        predicate: Keeps the tools that it returns true for, among those that the names keep.

    Raises:
        TypeError: The predicate is not a function, or it is async: what it returns would keep every tool.
    """
    check_predicate("predicate", predicate)
    return _FilteredToolset(toolset, frozenset(given_names(include)), frozenset(given_names(exclude)), predicate)


def enhanced(toolset: Toolset, schema: Callable[[ToolSpec], JsonObject]) -> BaseToolset:
    """Return the toolset with the input schemas that `schema` returns; one that raises changes nothing."""

    def enhance(spec: ToolSpec) -> ToolSpec:
        try:
            return spec.replace(input_schema=schema(spec))
        except Exception:  # boundary: user code
            _log.exception("the schema of tool %r could not be enhanced", spec.name)
            return spec

    return _MappedToolset(toolset, "enhanced", enhance)


def transformed(
    toolset: Toolset, result: Callable[[ToolResult, ToolSpec], ToolResult | Awaitable[ToolResult]]
) -> BaseToolset:
    """Return the toolset with every result put through `result`, also error results."""

    async def run(toolset: Toolset, call: ToolCall, ctx: CallContext, spec: ToolSpec) -> ToolResult:
        outcome = result(await toolset.call(call, ctx), spec)
        if inspect.isawaitable(outcome):
            return await outcome
        return outcome

    return _MappedToolset(toolset, "transformed", run=run)


def traced(toolset: Toolset, tracer: Tracer | None = None) -> BaseToolset:
    """Return the toolset with an OpenTelemetry span `tool:run` around every call.

    The span carries `toolweave.server`, `gen_ai.tool.name` and `gen_ai.tool.call.id`; an error
    result sets `error.type` and the status of the span, without its text. Arguments, results and exceptions are not
    recorded.
    """
    from opentelemetry import trace  # a tracing program has it loaded already

    spans = trace.get_tracer("toolweave") if tracer is None else tracer

    async def run(toolset: Toolset, call: ToolCall, ctx: CallContext, spec: ToolSpec) -> ToolResult:
        return await in_tool_span(spans, call, spec, lambda: toolset.call(call, ctx))

    return _MappedToolset(toolset, "traced", run=run)


def combined(*toolsets: Toolset, on_conflict: Literal["rename", "skip", "error"] = "rename") -> BaseToolset:
    """Return several toolsets as one, in their order; of two tools of one name the first keeps it.

    A tool keeps its name, even while it is gone.

    Args:
        *toolsets: The toolsets to join.
        on_conflict: `"rename"` exposes the later one as `server_name` or `name_2`, `"skip"` leaves
            it out, `"error"` raises. Tools that arrive later are renamed rather than raised for.

    Raises:
        DuplicateToolError: Two tools have one name now and `on_conflict` is `"error"`.
        ValueError: `on_conflict` is another word.
    """
    check_choice("on_conflict", on_conflict, ("rename", "skip", "error"))
    view = JoinedToolset(toolsets, on_conflict, AssignedNames(), range(len(toolsets)))
    view.snapshot()
    if on_conflict == "error":
        view.on_conflict = "rename"
    return view


def joined(toolsets: Mapping[Hashable, Toolset], given: AssignedNames) -> BaseToolset:
    """Return several toolsets as one, for toolsets that come and go: a name stays with a key and a tool of it.

    Args:
        toolsets: By keys that stay the same when a toolset is opened again.
        given: The names assigned so far; later ones are added.
    """
    return JoinedToolset(tuple(toolsets.values()), "rename", given, toolsets)


class OfferedPart:
    """The definitions that a wrapper offers of one wrapped toolset.

    Attributes:
        seen: The snapshot that they were made of.
        specs: The offered definitions by their offered names.
        made: The definitions that are not those of `seen` themselves, by the names there.
        inner: The names in `seen` of the definitions offered under another name.
        older: The older versions of offered tools, newest first, by the offered names.
    """

    __slots__ = ("inner", "made", "older", "seen", "specs")

    def __init__(self, seen: ToolSnapshot) -> None:
        self.seen = seen
        self.specs: dict[str, ToolSpec] = {}
        self.made: dict[str, ToolSpec] = {}
        self.inner: dict[str, str] = {}
        self.older: dict[str, list[ToolSpec]] = {}

    def known(self, inner: ToolSpec) -> ToolSpec | None:
        """Return the definition that was made of this object, or None."""
        if self.seen.by_name.get(inner.name) is not inner:
            return None
        made = self.made.get(inner.name)
        if made is None and self.specs.get(inner.name) is inner:
            return inner
        return made

    def add(self, inner: ToolSpec, spec: ToolSpec) -> None:
        """Offer a definition as another."""
        self.specs[spec.name] = spec
        if spec is not inner:
            self.made[inner.name] = spec
        if spec.name != inner.name:
            self.inner[spec.name] = inner.name

    def has(self, name: str) -> bool:
        """Whether a definition of this name, or a version of one, is offered."""
        if name in self.specs:
            return True
        return any(one.name == name for one in self.older.get(name.rpartition("@")[0], ()))

    def add_versions(self, name: str, kept: list[tuple[str, ToolSpec]]) -> None:
        """Offer the versions of a tool, newest first, each with its name in `seen`, under a name."""
        versions = [spec.version or "" for _, spec in kept]
        for place, (inner, spec) in enumerate(kept):
            if place == 0:
                offered = name
            else:
                offered = versioned(name, versions[place])
            self.inner[offered] = inner
            if place == 0:
                self.specs[name] = spec.replace(name=name, meta=with_versions(spec.meta, versions))
            else:
                self.older.setdefault(name, []).append(spec.replace(name=offered))


class _ForwardingToolset(WrapperToolset, RoutingToolset):
    """Base class of the wrappers of this module: a cached view of the wrapped snapshots, and the forwarding of calls.

    An unchanged definition stays the same object, so a change costs no more than finding it.
    """

    __slots__ = ("_parts", "_run", "_view")

    def __init__(self, toolsets: tuple[Toolset, ...], run: _RunCall | None = None) -> None:
        super().__init__(*toolsets)
        self._run = run
        self._parts = [OfferedPart(ToolSnapshot()) for _ in toolsets]
        self._view: ToolSnapshot | None = None

    def around(self, *toolsets: Toolset) -> Toolset | None:
        """Return a copy around other toolsets; see `WrapperToolset.around`."""
        made = copy(self)
        _ForwardingToolset.__init__(made, toolsets, self._run)  # nothing that is known of the others is kept
        return made

    @abstractmethod
    def _offered(self, index: int, inner: ToolSpec, known: ToolSpec | None) -> ToolSpec | None:
        """Return the offered form of a definition of the toolset of this index, or None to hide it.

        `known` is the last returned definition, if the definition has not changed since.
        """

    @abstractmethod
    def _forget(self, index: int, present: Collection[str]) -> None:
        """Note all names that a toolset offers now."""

    def snapshot(self) -> ToolSnapshot:
        parts = self._parts
        view = self._view
        for index, toolset in enumerate(self._toolsets):
            snapshot = toolset.snapshot()
            if view is None or snapshot is not parts[index].seen:
                parts[index] = self._part(index, snapshot)
                self._view = None
        if self._view is None:
            specs = (spec for part in parts for spec in part.specs.values())
            older: dict[str, Sequence[ToolSpec]] = {}
            for part in parts:
                older.update(part.older)
            self._view = ToolSnapshot(specs, version=sum(part.seen.version for part in parts), older=older)
        return self._view

    def _part(self, index: int, snapshot: ToolSnapshot) -> OfferedPart:
        before = self._parts[index]
        part = OfferedPart(snapshot)
        for inner in snapshot:
            older = snapshot.older.get(inner.name)
            if older is not None:
                self._add_versions(index, part, [inner, *older])
                continue
            spec = self._offered(index, inner, before.known(inner))
            if spec is not None:
                part.add(inner, spec)
        self._forget(index, snapshot.by_name)
        return part

    def _add_versions(self, index: int, part: OfferedPart, versions: list[ToolSpec]) -> None:
        """Offer the visible versions of a tool; the newest of these has its name."""
        kept: list[tuple[str, ToolSpec]] = []
        named = ""
        for inner in versions:
            spec = self._offered(index, inner.replace(name=versions[0].name), None)
            if spec is not None:
                named = spec.name
                kept.append((inner.name, spec))
        if kept:
            part.add_versions(named, kept)

    def route(self, name: str) -> tuple[Toolset, str] | None:
        spec = self.snapshot().find(name)
        if spec is None or self._run is not None:
            if spec is None:
                return None
            return (self, name)
        return route_of(*self._inside(spec, name))

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        if self._run is None:
            spec = None
        else:
            spec = self.snapshot().find(call.name)
        if self._run is None or spec is None:
            return await super().call(call, ctx)
        toolset, name = self._inside(spec, call.name)
        try:
            return await self._run(toolset, call if call.name == name else call.replace(name=name), ctx, spec)
        except Exception as exc:  # boundary: user code, and third-party toolsets that raise
            return ToolResult.failure(as_tool_error(exc))

    def _inside(self, spec: ToolSpec, called: str) -> tuple[Toolset, str]:
        """Return the wrapped toolset of an offered definition, and the name to call there, an alias if it knows it."""
        index = next(index for index, part in enumerate(self._parts) if part.has(spec.name))
        toolset = self._toolsets[index]
        name = self._parts[index].inner.get(spec.name, spec.name)
        if called != spec.name and isinstance(toolset, RoutingToolset):
            inside = toolset.snapshot()
            if inside.find(called) is inside.by_name.get(name):
                name = called
        return toolset, name


class _MappedToolset(_ForwardingToolset):
    """One toolset whose definitions are mapped by `spec` (None hides) and whose calls are made by `run`.

    `how` says so in its representation: `<toolset of ToolRegistry(['add']): prefixed 'x', filtered>`.
    """

    __slots__ = ("_change", "_given", "_how")

    def __init__(
        self,
        toolset: Toolset,
        how: str,
        spec: Callable[[ToolSpec], ToolSpec | None] | None = None,
        run: _RunCall | None = None,
    ) -> None:
        super().__init__((toolset,), run)
        self._how = how
        self._change = spec
        self._given = AssignedNames()

    def _offered(self, index: int, inner: ToolSpec, known: ToolSpec | None) -> ToolSpec | None:
        if known is not None and known is not inner:
            return known
        changed = inner if self._change is None else self._change(inner)
        if changed is None:
            return None
        return _named(changed, self._given, (None, inner.name))

    def _forget(self, index: int, present: Collection[str]) -> None:
        self._given.forget(None, present)

    def _described(self) -> tuple[Toolset, str]:
        """Return the toolset inside of all such wrappers, and the operation of each, the innermost first."""
        (inside,) = self._toolsets
        if not isinstance(inside, _MappedToolset):
            return inside, self._how
        core, how = inside._described()  # noqa: SLF001 - its own kind
        return core, f"{how}, {self._how}"

    def __repr__(self) -> str:
        core, how = self._described()
        return f"<toolset of {core!r}: {how}>"


class _FilteredToolset(_MappedToolset):
    """Some tools of a toolset, chosen by names and a predicate."""

    __slots__ = ("_exclude", "_include", "_predicate", "_unmatched")

    def __init__(
        self,
        toolset: Toolset,
        include: frozenset[str],
        exclude: frozenset[str],
        predicate: Callable[[ToolSpec], bool] | None,
    ) -> None:
        super().__init__(toolset, "filtered", self._keep)
        self._include = include
        self._exclude = exclude
        self._predicate = predicate
        self._unmatched: set[str] = {*include, *exclude}  # names of no tool so far, each until it is logged

    def _keep(self, spec: ToolSpec) -> ToolSpec | None:
        names = {ANY_TOOL, spec.name, spec.original_name}
        if spec.server is not None:
            names.update(aliases(spec.server, spec.original_name))
        self._unmatched -= names
        if self._include:
            named = not names.isdisjoint(self._include)
        else:
            named = names.isdisjoint(self._exclude)
        if named and (self._predicate is None or decided("predicate", self._predicate(spec))):
            return spec
        return None

    def _forget(self, index: int, present: Collection[str]) -> None:
        super()._forget(index, present)
        if present and self._unmatched:  # a toolset without tools may not have connected yet
            unmatched = self._unmatched
            self._unmatched = set[str]()
            for name in sorted(unmatched):
                field = "include" if name in self._include else "exclude"
                missing = printable(unknown_tool(name, present))
                _log.warning("a filter names a tool that there is not: %s: %s", field, missing)


class JoinedToolset(_ForwardingToolset):
    """Several toolsets as one; the names in `given` belong to the pairs of a toolset's key and a tool's name in it."""

    __slots__ = ("_given", "_keys", "on_conflict")

    def __init__(
        self, toolsets: tuple[Toolset, ...], on_conflict: str, given: AssignedNames, keys: Iterable[Hashable]
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


def _named(spec: ToolSpec, given: AssignedNames, who: tuple[Hashable, str]) -> ToolSpec:
    name = given.give(who, spec.name, spec.server)
    if name == spec.name:
        return spec
    return spec.replace(name=name)
