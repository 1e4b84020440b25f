"""Many MCP servers as one `Toolset`: started at once, failing alone, changed while running."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self

import anyio
import anyio.to_thread

from toolweave.config import LoadedConfig, ServerConfig, load_config, server_config
from toolweave.connect.connecting import Connecting
from toolweave.connect.connection import McpConnection
from toolweave.connect.state import ConnectionState, StateChanged
from toolweave.errors import ConfigError, ConnectionClosedError, DuplicateToolError, ErrorKind, ToolError
from toolweave.hub.fanout import for_each
from toolweave.hub.naming import name_tools
from toolweave.tools.call import CallContext, ToolCall
from toolweave.tools.names import aliases, unknown_tool
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolList
from toolweave.tools.toolset import Listeners, ToolsChanged, ToolSnapshot, Unsubscribe, tools_of

__all__ = ["Hub", "connect_mcp_servers"]

_log = logging.getLogger("toolweave.hub")

Wait = Literal["all", "any"] | float
_USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})
_FAILED = frozenset({ConnectionState.FAILED, ConnectionState.AUTH_REQUIRED})


class Hub:
    """Many connections as one `Toolset` (requirements R18-R22, C3).

    Made by `connect_mcp_servers`. Iterating `snapshot()` gives the definitions of all servers' tools.

    Attributes:
        warnings: What was odd in the config, for people.
    """

    def __init__(
        self,
        source: Any = None,
        *,
        on_error: Literal["skip", "raise"] = "skip",
        wait: Wait = "all",
        names: Iterable[str] | None = None,
    ) -> None:
        if on_error not in ("skip", "raise"):
            raise ValueError(f"on_error must be 'skip' or 'raise', not {on_error!r}")
        if wait not in ("all", "any") and (isinstance(wait, (str, bool)) or wait < 0):
            raise ValueError(f"wait must be 'all', 'any' or seconds, not {wait!r}")
        self.warnings: list[str] = []
        self._source = source
        self._on_error = on_error
        self._wait: str | float = wait
        self._names = None if names is None else tuple(names)
        self._clients: dict[str, McpConnection] = {}
        self._errors: dict[str, Exception] = {}
        self._snapshot = ToolSnapshot()
        self._seen: tuple[tuple[str, int], ...] = ()
        self._routes: dict[str, McpConnection] = {}
        self._listeners = Listeners()
        self._moved = anyio.Event()
        self._entered = 0
        self._closed = False

    # what there is

    @property
    def clients(self) -> Mapping[str, McpConnection]:
        """The connections by server name: open, connecting or lost, but not those that never came up."""
        return MappingProxyType(self._clients)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The servers that could not be used, each with its error (requirements R64, C3)."""
        return MappingProxyType(self._errors)

    @property
    def tools(self) -> ToolList:
        """The tools of all servers as callable objects, indexed by name, `server:tool` and `server/tool`."""
        return tools_of(self)

    def states(self) -> dict[str, ConnectionState]:
        """Return the state of every server, the failed ones included."""
        failed = {
            name: getattr(error, "state", ConnectionState.FAILED)
            for name, error in self._errors.items()
            if name not in self._clients
        }
        return {name: client.state for name, client in self._clients.items()} | failed

    # Toolset

    def snapshot(self) -> ToolSnapshot:
        """Return the tools of all servers known now; see `Toolset.snapshot`."""
        return self._snapshot

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the tools; see `Toolset.subscribe`."""
        return self._listeners.subscribe(listener)

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool by its exposed name or an alias; see `Toolset.call`."""
        spec = self._snapshot.find(call.name)
        client = self._routes.get(spec.name) if spec is not None else None
        if spec is None or client is None:
            return ToolResult.failure(self._why_not(call.name))
        return await client.call(ToolCall(name=spec.original_name, arguments=call.arguments, id=call.id), ctx)

    async def execute(
        self, name: str, arguments: Mapping[str, Any] | None = None, ctx: CallContext | None = None
    ) -> ToolResult:
        """Run one tool and return its result; tool and transport faults come back as error results.

        `name` is `server_tool`, `server:tool` or `server/tool`; arguments travel as one mapping (requirement D16).
        """
        return await self.call(ToolCall(name=name, arguments=arguments or {}), ctx or CallContext())

    # life

    async def open(self) -> None:
        """Start all servers concurrently and wait as `wait` says.

        Raises:
            ConfigError: The config as a whole cannot be read, or a name in `names` is not in it.
            ExceptionGroup: Some server failed and `on_error="raise"`; the others are closed.
        """
        try:
            loaded = await anyio.to_thread.run_sync(_load, self._source)
            self._adopt(loaded)
            await self._settled(self._wait)
            if self._on_error == "raise" and self._errors:
                raise ExceptionGroup("some MCP servers could not be used", list(self._errors.values()))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def close(self) -> None:
        """Close all connections concurrently; idempotent, from any task, bounded."""
        self._closed = True
        clients = list(self._clients.values())
        self._clients.clear()
        await for_each(clients, McpConnection.close)
        self._rebuild()

    async def __aenter__(self) -> Self:
        if self._closed:
            raise ConnectionClosedError("the hub is closed; connect again", server="hub")
        self._entered += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._entered == 0:
            await self.close()

    # changes at run time

    async def connect(self, name: str, config: Any) -> McpConnection:
        """Connect one more server, or return the connection of this name when it is open (requirement R18).

        `config` is whatever `connect_mcp` takes.

        Raises:
            ConfigError: The config cannot be right.
            ServerError: It cannot be reached; it is in `errors` too.
        """
        self._check_open()
        client = self._clients.get(name)
        if client is None:
            client = self._begin(server_config(config, name=name))
        try:
            await client.open()
        except Exception as exc:
            self._fail(name, exc)
            raise
        self._check_names(name)
        return client

    async def disconnect(self, name: str) -> None:
        """Close one server; its tools go with it (requirements R19, D2).

        Raises:
            KeyError: There is no such server.
        """
        client = self._clients.pop(name, None)
        error = self._errors.pop(name, None)
        if client is None and error is None:
            raise KeyError(f"no server {name!r}; there are {', '.join(sorted(self._clients)) or 'none'}")
        if client is not None:
            self._rebuild()
            await client.close()

    async def refresh(self, name: str | None = None) -> ToolsChanged:
        """Ask one server or all of them for their tools again; returns what changed (requirements C9, D22).

        A server that fails is in `errors` until a later refresh succeeds; its last known tools stay.

        Raises:
            KeyError: There is no such server.
            ServerError: The one server that was named could not be asked.
        """
        self._check_open()
        before = self._snapshot
        if name is not None and name not in self._clients:
            raise KeyError(f"no server {name!r}; there are {', '.join(sorted(self._clients)) or 'none'}")
        chosen = list(self._clients.values()) if name is None else [self._clients[name]]
        failures = await for_each(chosen, McpConnection.refresh)
        failed = {client.name: exc for client, exc in failures}
        for client in chosen:
            if client.name in failed:
                self._errors[client.name] = failed[client.name]
            else:
                self._errors.pop(client.name, None)
        self._rebuild()
        if name is not None and name in failed:
            raise failed[name]
        return ToolsChanged.between(before, self._snapshot)

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {state.value}" for name, state in self.states().items())
        return f"<Hub {{{states}}} {len(self._snapshot)} tools>"

    # inside

    def _adopt(self, loaded: LoadedConfig) -> None:
        self.warnings.extend(loaded.warnings)
        chosen = self._names if self._names is not None else (*loaded.servers, *loaded.errors)
        known = {*loaded.servers, *loaded.errors, *loaded.disabled}
        for name in chosen:
            if name not in known:
                raise ConfigError(f"there is no server {name!r}; there are {', '.join(sorted(known)) or 'none'}")
        for name in dict.fromkeys(chosen):
            if name in loaded.errors:
                self._fail(name, loaded.errors[name])
            elif name in loaded.servers:
                config = loaded.servers[name]
                if not config.disabled or self._names is not None:
                    self._begin(config).start()

    def _begin(self, config: ServerConfig) -> McpConnection:
        name = config.name
        self._errors.pop(name, None)
        client = self._clients[name] = McpConnection(config)

        def moved(change: StateChanged) -> None:
            if self._clients.get(name) is client:
                self._on_state(change)

        client.on("state", moved)
        client.subscribe(lambda _change: self._rebuild())
        return client

    def _on_state(self, change: StateChanged) -> None:
        name = change.server
        if change.state is ConnectionState.READY:
            self._errors.pop(name, None)
            self._check_names(name)
        elif change.error is not None:
            if change.state in _FAILED and self._clients[name].snapshot().version == 0:
                self._fail(name, change.error)
            elif change.state in (ConnectionState.DEGRADED, *_FAILED):
                self._errors[name] = change.error
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def _fail(self, name: str, error: Exception) -> None:
        self._errors[name] = error
        self._clients.pop(name, None)
        _log.warning("%s", error)
        self._rebuild()

    def _check_names(self, name: str) -> None:
        self._rebuild()
        if isinstance(self._errors.get(name), DuplicateToolError):
            raise self._errors[name]

    async def _settled(self, wait: str | float) -> None:
        seconds = wait if isinstance(wait, (int, float)) else None
        with anyio.move_on_after(seconds):
            while True:
                moved = self._moved
                waiting = [client for client in self._clients.values() if _is_starting(client)]
                usable = any(client.state in _USABLE for client in self._clients.values())
                if not waiting or (wait == "any" and usable):
                    return
                await moved.wait()

    def _rebuild(self) -> None:
        seen = tuple((name, client.snapshot().version) for name, client in self._clients.items())
        if seen == self._seen:
            return
        self._seen = seen
        named = name_tools((client.config, client.snapshot()) for client in self._clients.values())
        for server, name in named.refused.items():
            self._errors[server] = DuplicateToolError(name, where="the hub")
        for server, conflicts in named.conflicts.items():
            for conflict in conflicts:
                _log.warning("server %r: %s", server, conflict)
        before = self._snapshot
        self._snapshot = ToolSnapshot(named.specs, version=before.version + 1)
        self._routes = {spec.name: self._clients[spec.server] for spec in named.specs if spec.server is not None}
        self._listeners.emit(ToolsChanged.between(before, self._snapshot))

    def _why_not(self, name: str) -> ToolError:
        """Say why there is no such tool: its server may be one that failed (requirements R24, R69)."""
        if self._closed:
            return ToolError("MCP error: the hub is closed; connect again", kind=ErrorKind.CLOSED)
        for server, client in self._clients.items():
            if _is_starting(client) and name.startswith(_stems(server)):
                return ToolError(
                    f"MCP error: server {server!r} is still connecting", kind=ErrorKind.NOT_SENT, retryable=True
                )
        for server, error in self._errors.items():
            if name.startswith(_stems(server)):
                return ToolError(f"MCP error: {error}", kind=getattr(error, "kind", ErrorKind.NOT_FOUND))
        return ToolError(unknown_tool(name, self._snapshot.by_name), kind=ErrorKind.NOT_FOUND)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosedError("the hub is closed; connect again", server="hub")


def connect_mcp_servers(
    source: Any,
    *,
    on_error: Literal["skip", "raise"] = "skip",
    wait: Wait = "all",
    names: Iterable[str] | None = None,
) -> Connecting[Hub]:
    """Connect to many MCP servers at once: `await` it, or `async with` it.

    Args:
        source: A config file of any editor, a mapping of any shape, or a `LoadedConfig`.
        on_error: `"skip"` keeps failures in `hub.errors`; `"raise"` raises an `ExceptionGroup` and closes the others.
        wait: `"all"` until every server is ready or has failed, `"any"` until one is ready, or at most so
            many seconds; those that come later arrive as a change.
        names: Only these servers; also those the config disables.

    Raises:
        ValueError: An argument is wrong. Awaiting raises `ConfigError` for a file that cannot be read.
    """
    return Connecting(Hub(source, on_error=on_error, wait=wait, names=names))


def _stems(server: str) -> tuple[str, ...]:
    return f"{server}_", *aliases(server, "")


def _is_starting(client: McpConnection) -> bool:
    return client.state in (ConnectionState.IDLE, ConnectionState.CONNECTING)


def _load(source: Any) -> LoadedConfig:
    if source is None:
        return LoadedConfig()
    return source if isinstance(source, LoadedConfig) else load_config(source)
