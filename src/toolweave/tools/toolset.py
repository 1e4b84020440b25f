"""The contract of this package: every producer of tools is a `Toolset`, every consumer takes one.

Independent of producers and consumers.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Generic, Protocol, Self, TypeAlias, TypeVar, overload, runtime_checkable

from toolweave._json_types import JsonObject
from toolweave._value import Value
from toolweave.errors import ErrorKind, as_tool_error
from toolweave.tools._call import NO_CONTEXT, CallContext, ToolCall
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec

__all__ = [
    "ChangeListeners",
    "ChangeT",
    "Listeners",
    "Tool",
    "ToolList",
    "ToolSnapshot",
    "ToolsChanged",
    "Toolset",
    "Unsubscribe",
    "changes",
    "entered",
    "leave",
    "tools_of",
]

Unsubscribe: TypeAlias = Callable[[], None]
"""Ends a subscription; calling it again does nothing."""


_NONE_OLDER: Mapping[str, Sequence[ToolSpec]] = MappingProxyType({})


class ToolSnapshot(Sequence[ToolSpec]):
    """An immutable, ordered list of tool definitions with a version that grows with every change.

    Attributes:
        version: Starts at 0 for "nothing known yet".
        by_name: Exposed names to definitions; aliases are found by `find`.
        older: Older versions of tools, newest first, by the exposed name; they are not listed, and each is found and
            called by its own name, as `add@1.2`.
    """

    __slots__ = ("_aliases", "_by_name", "_specs", "by_name", "older", "version")

    def __init__(
        self, specs: Iterable[ToolSpec] = (), *, version: int = 0, older: Mapping[str, Sequence[ToolSpec]] | None = None
    ) -> None:
        self._specs = tuple(specs)
        self.version: int = version
        self.older: Mapping[str, Sequence[ToolSpec]] = _NONE_OLDER if older is None else older
        self._by_name = {spec.name: spec for spec in self._specs}
        self.by_name: Mapping[str, ToolSpec] = MappingProxyType(self._by_name)
        self._aliases: dict[str, ToolSpec] | None = None

    def find(self, name: str) -> ToolSpec | None:
        """Return the definition of this exposed name or alias, or None."""
        spec = self._by_name.get(name)
        if spec is not None:
            return spec
        if self._aliases is None:
            # Reversed, so that of two tools with one alias the first one gets it.
            self._aliases = {alias: spec for spec in reversed(self._specs) for alias in spec.aliases}
            for versions in self.older.values():
                self._aliases |= {spec.name: spec for spec in versions}
        return self._aliases.get(name)

    def find_version(self, name: str, version: str) -> ToolSpec | None:
        """Return the definition of one version of the tool of this exposed name or alias, or None."""
        newest = self.find(name)
        if newest is None or newest.version == version:
            return newest
        for spec in self.older.get(newest.name, ()):
            if spec.version == version:
                return spec
        return None

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


class ToolsChanged(Value, frozen=True, kw_only=True):
    """The tools of a toolset changed.

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
            if before is spec:
                # Most are the same object, and comparing all the rest of them is not cheap.
                continue
            if before is None:
                added.append(name)
            elif before != spec:
                changed.append(name)
        # Mostly nothing is gone, which the numbers show without a walk through all names.
        fewer = len(old) + len(added) > len(new)
        if fewer:
            removed = tuple(name for name in old if name not in new)
        else:
            removed = ()
        return cls(added=tuple(added), removed=removed, changed=tuple(changed), version=version)


@runtime_checkable
class Toolset(Protocol):
    """A producer of tools: functions, one MCP connection, a hub of many, an agent.

    Entering is re-entrant by count: the last to leave closes.
    """

    def snapshot(self) -> ToolSnapshot:
        """Return the tools offered now: immutable, ordered and cheap."""
        ...

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool; faults of the tool and the transport are error results, cancellation propagates."""
        ...

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the snapshot, synchronously and in order."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


ChangeT = TypeVar("ChangeT")


@asynccontextmanager
async def entered(toolsets: Iterable[Toolset]) -> AsyncGenerator[None]:
    """Enter toolsets, which stay entered after the block; if it raises, those that were entered are left."""
    async with AsyncExitStack() as stack:
        for toolset in toolsets:
            await stack.enter_async_context(toolset)
        yield
        stack.pop_all()


async def leave(
    toolsets: Iterable[Toolset],
    exc_type: type[BaseException] | None,
    exc: BaseException | None,
    traceback: TracebackType | None,
) -> bool | None:
    """Leave toolsets that `entered` entered, the last first, each even if another raises."""
    stack = AsyncExitStack()
    for toolset in toolsets:
        stack.push_async_exit(toolset)
    return await stack.__aexit__(exc_type, exc, traceback)


class ChangeListeners(Generic[ChangeT]):
    """The listeners for one kind of change; an exception of one is logged and does not affect the others."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[ChangeT], None]] = []

    def subscribe(self, listener: Callable[[ChangeT], None]) -> Unsubscribe:
        """Add a listener and return its unsubscribe."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def emit(self, change: ChangeT) -> None:
        """Notify every listener of a change, unless it is empty."""
        if not change:
            return
        # A copy, because a listener may unsubscribe while it is called.
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except SystemExit:  # what ends with the program changes, too: another one would break off its clean-up
                self._listeners = [other for other in self._listeners if other is not listener]
                raise
            except Exception:  # boundary: user code
                import logging  # only ever needed here

                logging.getLogger("toolweave").exception("a listener for %s raised", type(change).__name__)


Listeners: TypeAlias = ChangeListeners[ToolsChanged]
"""The listeners of one toolset."""


class Tool:
    """A tool that can be called: a `ToolSpec` and the `Toolset` it came from.

    The same for a consumer, whether a function or a server runs it.
    """

    __slots__ = ("spec", "toolset")

    def __init__(self, spec: ToolSpec, toolset: Toolset) -> None:
        self.spec: ToolSpec = spec
        self.toolset: Toolset = toolset

    @property
    def name(self) -> str:
        """The exposed name."""
        return self.spec.name

    @property
    def server(self) -> str | None:
        """The key of the MCP server, or None for a local tool."""
        return self.spec.server

    @property
    def original_name(self) -> str:
        """The producer's own name of the tool."""
        return self.spec.original_name

    @property
    def title(self) -> str | None:
        """A human-readable name, or None."""
        return self.spec.title

    @property
    def description(self) -> str:
        """The tool's description for a model; `""` when unknown."""
        return self.spec.description

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema of the arguments object."""
        return self.spec.input_schema

    @property
    def parameters(self) -> JsonObject:
        """The same as `input_schema`, under the name LLM APIs use."""
        return self.spec.input_schema

    @property
    def output_schema(self) -> JsonObject | bool | None:
        """JSON Schema of the structured content, or None."""
        return self.spec.output_schema

    @property
    def annotations(self) -> JsonObject | None:
        """Behaviour hints as they came; untrusted."""
        return self.spec.annotations

    @property
    def icons(self) -> tuple[JsonObject, ...]:
        """Icon objects as they came."""
        return self.spec.icons

    @property
    def raw(self) -> JsonObject:
        """The whole definition as received."""
        return self.spec.raw

    async def execute(self, arguments: JsonObject | None = None, ctx: CallContext | None = None) -> ToolResult:
        """Run the tool and return its result; faults of the tool and the transport are error results.

        The arguments are one mapping, so a parameter may have any name.
        Only cancellation and programming errors such as a non-mapping argument propagate. A removed tool is not found,
        even if another one has its name by now.
        """
        call = ToolCall(name=self.spec.name, arguments={} if arguments is None else arguments)
        try:
            now = self.toolset.snapshot().find(call.name)
            if now is not None and now is not self.spec and not self._is(now):
                return ToolResult.failure(f"{self!r} is gone; {now.name!r} is another tool", kind=ErrorKind.NOT_FOUND)
            return await self.toolset.call(call, NO_CONTEXT if ctx is None else ctx)
        except Exception as exc:
            # Boundary: a third-party Toolset may raise where ours returns.
            return ToolResult.failure(as_tool_error(exc))

    async def call(self, arguments: JsonObject | None = None, ctx: CallContext | None = None) -> ToolResult:
        """Run the tool and return its result.

        Raises:
            ToolExecutionError: The result is an error; it is on the exception as `result`.
        """
        return (await self.execute(arguments, ctx)).raise_for_error(tool=self.name)

    def _is(self, spec: ToolSpec) -> bool:
        """Whether a definition, even if it changed, is that of this tool: the same original name and server."""
        return (spec.server, spec.original_name) == (self.spec.server, self.spec.original_name)

    def __repr__(self) -> str:
        origin = f" from server {self.server!r}" if self.server else ""
        return f"<Tool {self.name!r}{origin}>"

    def _repr_html_(self) -> str:
        from toolweave.tools._notebook import tool_html  # for notebooks alone

        return tool_html(self.spec)


class ToolList(Sequence[Tool]):
    """An immutable sequence of tools that is also indexed by name: `tools["fs_read_file"]`."""

    __slots__ = ("_by_name", "_tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)
        self._by_name: dict[str, Tool] = {}
        for tool in self._tools:
            self._by_name.setdefault(tool.name, tool)
        # After all names, because an alias must not hide the tool that has this name.
        for tool in self._tools:
            for alias in tool.spec.aliases:
                self._by_name.setdefault(alias, tool)

    @overload
    def __getitem__(self, key: int) -> Tool: ...
    @overload
    def __getitem__(self, key: slice) -> ToolList: ...
    @overload
    def __getitem__(self, key: str) -> Tool: ...
    def __getitem__(self, key: int | slice | str) -> Tool | ToolList:
        if isinstance(key, slice):
            return ToolList(self._tools[key])
        if isinstance(key, int):
            return self._tools[key]
        try:
            return self._by_name[key]
        except KeyError:
            raise KeyError(f"no tool {key!r}; there are {', '.join(sorted(self.names)) or 'none'}") from None

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name or alias, or None."""
        return self._by_name.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The exposed names, in order."""
        return tuple(tool.name for tool in self._tools)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return item in self._by_name
        return item in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __repr__(self) -> str:
        return f"ToolList({list(self.names)!r})"

    def _repr_html_(self) -> str:
        from toolweave.tools._notebook import tools_html  # for notebooks alone

        return tools_html(tool.spec for tool in self._tools)


def tools_of(toolset: Toolset) -> ToolList:
    """Return the tools of a toolset as callable `Tool` objects."""
    return ToolList(Tool(spec, toolset) for spec in toolset.snapshot())


def changes(toolset: Toolset) -> AsyncGenerator[ToolsChanged, None]:
    """Iterate over the changes of a toolset; none is lost between this call and the first iteration."""
    import anyio  # 15 ms, and a toolset is used without it

    # Without a bound: a change is published synchronously, so the toolset cannot wait for a slow reader.
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
