"""An agent's tools: functions, tools and toolsets, which can be added and removed at run time.

A toolset itself. Knows no run; the agent's lifespan opens its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from toolweave._json_types import JsonObject, text_or_empty
from toolweave.agent._lifespan import ToolsetSource
from toolweave.errors import ErrorKind, ToolError
from toolweave.models import ProviderTool
from toolweave.tools import (
    BaseToolset,
    CallContext,
    RoutingToolset,
    Tool,
    ToolCall,
    ToolList,
    ToolRegistry,
    ToolResult,
    ToolsChanged,
    Toolset,
    ToolSnapshot,
    ToolSpec,
    Unsubscribe,
    combined,
    prefixed,
)
from toolweave.tools._registry import no_tools
from toolweave.tools._wrappers import joined, route_of
from toolweave.tools.names import AssignedNames
from toolweave.tools.toolset import Listeners


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTool:
    """A tool that the caller of the agent runs itself: its calls are passed through.

    A run ends with `stop_reason="client_tools"` and the calls in `RunResult.pending`; answer with a `ToolMessage`.
    """

    name: str
    description: str = ""
    input_schema: JsonObject | None = None


Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Toolset]]
"""Factory of an async context manager whose value is a toolset, such as `lambda: connect_mcp(config)`."""


class SyncWrapped(Protocol):
    """A toolset or tool wrapped for synchronous code; see `toolweave.sync`."""

    @property
    def wrapped(self) -> Toolset | Tool:
        """The async toolset or tool."""
        ...


@runtime_checkable
class HasServerErrors(Protocol):
    """A toolset over several servers, some of which may be down: a `Hub`."""

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The errors of the servers that are down, by name."""
        ...


class ServerConfigLike(Protocol):
    """A server's config as a value: a `ServerConfig`."""

    @property
    def endpoint(self) -> str:
        """The command or URL."""
        ...


ServerLike: TypeAlias = str | PurePath | JsonObject | ServerConfigLike | AbstractAsyncContextManager[Any]
"""A server that is not a toolset yet: a URL, a command, a file, a config, an object in process."""

ToolLike: TypeAlias = Toolset | Tool | ClientTool | ProviderTool | SyncWrapped | ServerLike | Callable[..., Any]
"""A tool, or a source of tools, for an agent; servers only where configs are known, as in `toolweave.Agent`."""


class AgentTools(RoutingToolset):
    """The tools of an agent (`agent.tools`), or of one run.

    Entering it opens nothing: the agent opens its toolsets, and closes those that it opened.
    """

    def __init__(
        self, items: ToolLike | Iterable[ToolLike] = (), *, server: Callable[[Any], Toolset | Opener] | None = None
    ) -> None:
        self._server = server
        self._registry = ToolRegistry()
        self._client: dict[str, ToolSpec] = {}
        self._provider: list[ProviderTool] = []
        self._sources: list[tuple[ToolsetSource, Toolset | Opener, str | None]] = []
        self._listeners = Listeners()
        self._given = AssignedNames()
        self._whole: Toolset = self._registry
        self._inner: ToolSnapshot | None = None
        self._view = ToolSnapshot()
        self._hides = False
        self._announced = self._view
        self._unsubscribe: Unsubscribe | None = None
        for item in _listed(items):
            self.add(item)

    def add(self, item: ToolLike, *, prefix: str | None = None) -> None:
        """Add a tool, a function, a whole toolset, a server, or a tool that the caller or the provider runs.

        An active run sees it at its next turn; a toolset that is not open yet is opened then.

        Args:
            item: The tool, toolset or server to add.
            prefix: For a toolset: prefix of every name, joined with `_`.

        Raises:
            DuplicateToolError: It is a local tool, and one of this name is there already; a server's is renamed.
            SchemaError: A function's signature cannot be described.
            TypeError: It offers no tools.
        """
        item = cast("ToolLike", _unwrapped(item))
        if isinstance(item, ProviderTool):
            self._provider.append(item)
        elif isinstance(item, ClientTool):
            made = _passed_through(item)
            self._registry.add(made)
            self._client[made.name] = made.spec
        elif isinstance(item, Tool):
            self._registry.add(item, on_conflict="error" if item.server is None else "rename")
        elif callable(item) and not isinstance(item, Toolset):
            self._registry.add(item, on_conflict="error")
        else:
            self._add_toolset(item, prefix)

    def add_opener(self, opener: Opener, *, name: str, prefix: str | None = None) -> None:
        """Add a factory of a toolset, called whenever the agent opens, such as of the agent's own connection."""
        self._join(opener, ToolsetSource(name=name, make=opener), prefix)

    def remove(self, item: str | Toolset | Opener) -> None:
        """Remove a tool by its name, or a whole toolset; a toolset that the agent opened is closed with the agent.

        Raises:
            KeyError: It is not there, or it is one tool of a toolset.
        """
        if isinstance(item, str):
            self._registry.remove(item)
            self._client.pop(item, None)
            return
        item = cast("Toolset | Opener", _unwrapped(item))
        kept = [entry for entry in self._sources if entry[1] is not item]
        if len(kept) == len(self._sources):
            raise KeyError(f"{item!r} is not among the agent's tools")
        self._sources = kept
        self._rebuild()

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name or alias, or None."""
        spec = self.snapshot().find(name)
        if spec is None:
            return None
        return Tool(spec, self)

    def list(self) -> ToolList:
        """Return `tools`."""
        return self.tools

    @property
    def client(self) -> Mapping[str, ToolSpec]:
        """The client's own tools, by name."""
        return self._client

    @property
    def provider(self) -> tuple[ProviderTool, ...]:
        """Tools that providers run themselves."""
        return tuple(self._provider)

    @property
    def sources(self) -> tuple[ToolsetSource, ...]:
        """The toolsets that have to be open for its tools to be available."""
        return tuple(source for source, _, _ in self._sources)

    def unopened(self, tool: str) -> Sequence[str]:
        """Return the names of the toolsets that may have a tool of this name, and are not open."""
        names: list[str] = []
        for source, _, prefix in self._sources:
            may_have = prefix is None or tool.startswith(f"{prefix}_")
            if may_have and source.live is None:
                names.append(source.name)
        return names

    def server_errors(self) -> dict[str, Exception]:
        """Return the errors of servers that are down in its open toolsets, such as hubs, by server."""
        found: dict[str, Exception] = {}
        for source, _, _ in self._sources:
            if isinstance(source.live, HasServerErrors):
                found.update(source.live.errors)
        return found

    def snapshot(self) -> ToolSnapshot:
        """Return the present tools; the same object as long as nothing changes."""
        inner = self._whole.snapshot()
        if inner is not self._inner:
            self._inner = inner
            shown = [spec for spec in inner if spec.for_models]
            self._hides = len(shown) < len(inner)
            self._view = ToolSnapshot(shown, version=max(inner.version, self._view.version + 1))
        return self._view

    def route(self, name: str) -> tuple[Toolset, str] | None:
        """Return where a call by this name ends, if a model may call it; see `RoutingToolset.route`."""
        view = self.snapshot()
        if self._hides and view.find(name) is None:
            return None
        return route_of(self._whole, name)

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change."""
        if self._unsubscribe is None:
            self._announced = self.snapshot()
            self._unsubscribe = self._whole.subscribe(self._announce)
        return self._listeners.subscribe(listener)

    def __repr__(self) -> str:
        names = ", ".join(spec.name for spec in self.snapshot())
        return f"<agent tools: {names or 'none'}>"

    def _add_toolset(self, item: Any, prefix: str | None) -> None:
        if callable(getattr(item, "as_tool", None)):
            raise TypeError(f"{item!r} offers tools to its own runs; pass its as_tool() instead")
        if item is None:
            raise no_tools(item, "a function, a Tool, a Toolset or a server")
        if not isinstance(item, Toolset):
            if self._server is None:
                raise no_tools(item, "a Toolset, a Tool or a function")
            item = self._server(item)
        if not isinstance(item, Toolset):
            self.add_opener(item, name="mcp server", prefix=prefix)
            return
        name = text_or_empty(getattr(item, "name", None))
        self._join(item, ToolsetSource(name=name or repr(item), make=lambda: item), prefix)

    def _join(self, item: Toolset | Opener, source: ToolsetSource, prefix: str | None) -> None:
        if not isinstance(item, Toolset):
            # A toolset is used as it is, open or not.
            source.changed = self._rebuild
        self._sources.append((source, item, prefix))
        self._rebuild()

    def _rebuild(self) -> None:
        parts: dict[Hashable, Toolset] = {None: self._registry}
        for source, item, prefix in self._sources:
            live = item if isinstance(item, Toolset) else source.live
            if live is not None:
                parts[source] = prefixed(live, prefix) if prefix else live
        self._whole = joined(parts, self._given) if self._sources else self._registry
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = self._whole.subscribe(self._announce)
            self._announce()

    def _announce(self, change: ToolsChanged | None = None) -> None:
        before = self._announced
        self._announced = self.snapshot()
        self._listeners.emit(ToolsChanged.between(before, self._announced))


class CombinedToolset(RoutingToolset):
    """Several toolsets as one; as long as all but the first are empty, it has exactly the snapshot of the first.

    The snapshot then is the same object from run to run, so that models can cache their form of it.
    """

    def __init__(self, first: Toolset, *others: Toolset) -> None:
        self._first = first
        self._others = others
        self._whole = combined(first, *others)

    def snapshot(self) -> ToolSnapshot:
        """Return the tools of all of them."""
        return self._now().snapshot()

    def route(self, name: str) -> tuple[Toolset, str] | None:
        """Return where a call by this name ends; see `RoutingToolset.route`."""
        return route_of(self._now(), name)

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of any of them."""
        return self._whole.subscribe(listener)

    def _now(self) -> Toolset:
        for other in self._others:
            if len(other.snapshot()):
                return self._whole
        return self._first


def _unwrapped(item: object) -> object:
    wrapped = getattr(item, "wrapped", None)
    if isinstance(wrapped, (Toolset, Tool)):
        return wrapped
    return item


def _listed(items: ToolLike | Iterable[ToolLike]) -> Iterable[ToolLike]:
    if isinstance(_unwrapped(items), (Toolset, Tool, ClientTool, ProviderTool, str, PurePath, Mapping)):
        return (cast("ToolLike", items),)
    if callable(items) or not isinstance(items, Iterable):
        return (items,)
    return items


def _passed_through(item: ClientTool) -> Tool:
    spec = ToolSpec(name=item.name, description=item.description)
    if item.input_schema is not None:
        spec = spec.replace(input_schema=item.input_schema)
    return Tool(spec, _ClientToolset(spec))


class _ClientToolset(BaseToolset):
    """A toolset of one client tool, which the agent cannot call itself."""

    def __init__(self, spec: ToolSpec) -> None:
        self._snapshot = ToolSnapshot((spec,), version=1)

    def snapshot(self) -> ToolSnapshot:
        return self._snapshot

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        text = f"tool {call.name!r} is executed by the client"
        return ToolResult.failure(ToolError(text, kind=ErrorKind.NOT_SENT))
