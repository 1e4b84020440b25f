"""Many MCP servers as one `Toolset`: started at once, failing alone, changed while running."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self

import anyio
import anyio.to_thread

from toolweave.config import LoadedConfig, ServerConfig, load_config, server_config
from toolweave.connect.client_features.callbacks import NO_CALLBACKS, Callbacks
from toolweave.connect.connecting import Connecting
from toolweave.connect.connection import McpConnection
from toolweave.connect.state import ConnectionState, StateChanged
from toolweave.errors import AuthRequiredError, ConnectionClosedError, DuplicateToolError, ErrorKind, ToolError
from toolweave.hub.fanout import for_each
from toolweave.hub.hooks import Hooks
from toolweave.hub.naming import Named, name_tools
from toolweave.hub.refusal import missing_tool
from toolweave.hub.starts import Starts, Wait, check_wait
from toolweave.tools.call import CallContext, ToolCall
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolList
from toolweave.tools.toolset import Listeners, ToolsChanged, ToolSnapshot, Unsubscribe, tools_of

__all__ = ["Hub", "connect_mcp_servers"]

_log = logging.getLogger("toolweave.hub")

_USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})
_STARTING = frozenset({ConnectionState.IDLE, ConnectionState.CONNECTING})
_FAILED = frozenset({ConnectionState.FAILED, ConnectionState.AUTH_REQUIRED})
_OVER = _FAILED | {ConnectionState.CLOSED}


class Hub(Hooks):
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
        callbacks: Callbacks = NO_CALLBACKS,
    ) -> None:
        if on_error not in ("skip", "raise"):
            raise ValueError(f"on_error must be 'skip' or 'raise', not {on_error!r}")
        check_wait(wait)
        super().__init__()
        self.warnings: list[str] = []
        self._source = LoadedConfig() if source is None else source
        self._callbacks = callbacks
        self._on_error = on_error
        self._wait: str | float = wait
        self._names = (names,) if isinstance(names, str) else None if names is None else tuple(names)
        self._starts = Starts()
        self._prefixes: dict[str, str] = {}
        self._errors: dict[str, Exception] = {}
        self._awaited: dict[McpConnection, int] = {}
        self._snapshot = ToolSnapshot()
        self._seen: tuple[ToolSnapshot, ...] = ()
        self._routes: dict[str, tuple[McpConnection, str]] = {}
        self._told: set[str] = set()
        self._listeners = Listeners()
        self._moved = anyio.Event()
        self._entered = 0
        self._opened = False
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
            name: ConnectionState.AUTH_REQUIRED if isinstance(error, AuthRequiredError) else ConnectionState.FAILED
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
        if spec is None:
            return ToolResult.failure(self._why_not(call.name))
        client, name = self._routes[spec.name]
        return await client.call(replace(call, name=name), ctx)

    async def execute(
        self, name: str, arguments: Mapping[str, Any] | None = None, ctx: CallContext | None = None
    ) -> ToolResult:
        """Run one tool and return its result; tool and transport faults come back as error results.

        `name` is `server_tool`, `server:tool` or `server/tool`; arguments travel as one mapping (requirement D16).
        """
        return await self.call(ToolCall(name=name, arguments=arguments or {}), ctx or CallContext())

    # life

    async def open(self) -> None:
        """Start all servers concurrently and wait as `wait` says; does nothing when it was done before.

        Raises:
            ConfigError: The config as a whole cannot be read, or a name in `names` is not in it.
            ConnectionClosedError: The hub is closed.
            ExceptionGroup: Some server failed and `on_error="raise"`; the others are closed.
        """
        self._check_open()
        if self._opened:
            return
        self._opened = True
        try:
            loaded = await anyio.to_thread.run_sync(load_config, self._source)
            self._check_open()
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
        # they stay listed until they are closed, so that a second caller waits for them too
        await for_each(list(self._clients.values()), McpConnection.close)
        self._clients.clear()
        self._rebuild()

    async def __aenter__(self) -> Self:
        await self.open()
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

        One that failed or was closed is begun anew. Callers that ask for one name at once share one
        connection; it is given up when all of them are cancelled. `config` is whatever `connect_mcp` takes.

        Raises:
            ConfigError: The config cannot be right.
            DuplicateToolError: A tool's name is taken and the server's `on_conflict` is `"error"`; it
                stays connected without tools.
            ServerError: It cannot be reached; it is in `errors` too.
        """
        self._check_open()
        client = self._clients.get(name)
        if client is None or client.state in _OVER:
            client = self._begin(server_config(config, name=name))
            self._awaited[client] = 0
        client.start()  # nothing when it has begun
        await self._arrival(client)
        await client.open()  # at once: it is usable, or it says why not
        refused = self._errors.get(name)
        if isinstance(refused, DuplicateToolError):
            raise refused
        return client

    async def disconnect(self, name: str) -> None:
        """Close one server; its tools go with it (requirements R19, D2).

        Raises:
            KeyError: There is no such server.
        """
        client = self._clients.pop(name, None)
        error = self._errors.pop(name, None)
        if client is None and error is None:
            raise self._no_server(name)
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
            raise self._errors.get(name) or self._no_server(name)
        chosen = list(self._clients.values()) if name is None else [self._clients[name]]
        failures = await for_each(chosen, McpConnection.refresh)
        failed = {client.name: exc for client, exc in failures}
        for client in chosen:
            if self._clients.get(client.name) is client:  # else it was disconnected meanwhile
                self._note(client.name, failed.get(client.name))
        if name in failed:
            raise failed[name]
        return ToolsChanged.between(before, self._snapshot)

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {state.value}" for name, state in self.states().items())
        return f"<Hub {{{states}}} {len(self._snapshot)} tools>"

    # inside

    def _adopt(self, loaded: LoadedConfig) -> None:
        self.warnings.extend(loaded.warnings)
        if self._names is not None:
            loaded = loaded.select(self._names)
        for name, error in loaded.errors.items():
            self._fail(name, error)
        for config in loaded.servers.values():
            if not config.disabled:
                self._starts.begin(self._begin(config))

    def _begin(self, config: ServerConfig) -> McpConnection:
        name = config.name
        self._errors.pop(name, None)
        self._prefixes[name] = f"{name}_" if config.tool_prefix is None else config.tool_prefix
        client = self._clients[name] = McpConnection(config, callbacks=self._callbacks)

        def moved(change: StateChanged) -> None:
            if change.previous is ConnectionState.CONNECTING or change.state is ConnectionState.CLOSED:
                self._starts.settled(client)
            if self._clients.get(name) is client:
                self._on_state(client, change)
            event, self._moved = self._moved, anyio.Event()
            event.set()

        client.on("state", moved)
        client.subscribe(lambda _change: self._rebuild())
        self._hook(client)
        return client

    async def _arrival(self, client: McpConnection) -> None:
        """Wait until a connection is usable or over; the last to give up waiting for a new one ends it."""
        if client in self._awaited:
            self._awaited[client] += 1
        try:
            while client.state not in _USABLE | _OVER:
                await self._moved.wait()
        except BaseException:
            if client in self._awaited:
                self._awaited[client] -= 1
                if not self._awaited[client]:
                    del self._awaited[client]
                    await self._abandon(client)
            raise
        self._awaited.pop(client, None)

    async def _abandon(self, client: McpConnection) -> None:
        if self._clients.get(client.name) is client:
            del self._clients[client.name]
            self._rebuild()
        with anyio.CancelScope(shield=True):
            await client.close()

    def _on_state(self, client: McpConnection, change: StateChanged) -> None:
        if change.state is ConnectionState.READY:
            self._note(client.name, None)
        elif change.error is not None and change.state in _FAILED and client.snapshot().version == 0:
            self._fail(client.name, change.error)
        elif change.error is not None and change.state in (ConnectionState.DEGRADED, *_FAILED):
            self._note(client.name, change.error)

    def _fail(self, name: str, error: Exception) -> None:
        """Take a server that never came up out of the hub; its error stays."""
        self._errors[name] = error
        self._clients.pop(name, None)
        _log.warning("%s", error)
        self._rebuild()

    def _note(self, name: str, error: Exception | None) -> None:
        """Remember how a server that has come up fares; a conflict of names is for `_rebuild` to end."""
        if error is not None:
            self._errors[name] = error
        elif not isinstance(self._errors.get(name), DuplicateToolError):
            self._errors.pop(name, None)
        self._rebuild()  # a listing that only changed the order is told to nobody

    async def _settled(self, wait: str | float) -> None:
        seconds = wait if isinstance(wait, (int, float)) else None
        with anyio.move_on_after(seconds):
            while True:
                moved = self._moved
                waiting = [client for client in self._clients.values() if client.state in _STARTING]
                usable = any(client.state in _USABLE for client in self._clients.values())
                if not waiting or (wait == "any" and usable):
                    return
                await moved.wait()

    def _rebuild(self) -> None:
        seen = tuple(client.snapshot() for client in self._clients.values())
        if seen == self._seen:
            return
        self._seen = seen
        named = name_tools((client.config, client.snapshot()) for client in self._clients.values())
        self._tell(named)
        before = self._snapshot
        self._snapshot = ToolSnapshot(named.specs, version=before.version + 1)
        self._routes = {name: (self._clients[server], inner) for name, (server, inner) in named.origins.items()}
        self._listeners.emit(ToolsChanged.between(before, self._snapshot))

    def _tell(self, named: Named) -> None:
        """Log each conflict of names once, and keep the refused servers' in `errors`."""
        for server in [name for name, error in self._errors.items() if isinstance(error, DuplicateToolError)]:
            del self._errors[server]
        for server, name in named.refused.items():
            self._errors[server] = DuplicateToolError(name, where=f"the hub, so server {server!r} has no tools in it")
        conflicts = {f"server {server!r}: {text}" for server, texts in named.conflicts.items() for text in texts}
        for conflict in sorted(conflicts - self._told):
            _log.warning("%s", conflict)
        self._told = conflicts

    def _why_not(self, name: str) -> ToolError:
        if self._closed:
            return ToolError("MCP error: the hub is closed; connect again", kind=ErrorKind.CLOSED)
        return missing_tool(
            name,
            known=self._snapshot.by_name,
            starting=[server for server, client in self._clients.items() if client.state in _STARTING],
            errors=self._errors,
            prefixes=self._prefixes,
        )

    def _no_server(self, name: str) -> KeyError:
        return KeyError(f"no server {name!r}; there are {', '.join(sorted(self._clients)) or 'none'}")

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosedError("the hub is closed; connect again", server="hub")


def connect_mcp_servers(
    source: Any,
    *,
    on_error: Literal["skip", "raise"] = "skip",
    wait: Wait = "all",
    names: Iterable[str] | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Connecting[Hub]:
    """Connect to many MCP servers at once: `await` it, or `async with` it.

    Args:
        source: A config file of any editor, a mapping of any shape, or a `LoadedConfig`.
        on_error: `"skip"` keeps failures in `hub.errors`; `"raise"` raises an `ExceptionGroup` and closes the others.
        wait: `"all"` until every server is ready or has failed, `"any"` until one is ready, or at most so
            many seconds; those that come later arrive as a change.
        names: Only these servers; a name that is not in the config, or is switched off there, is an error.
        callbacks: What every server may ask of this client; each request says which server asks.

    Raises:
        ValueError: An argument is wrong. Awaiting raises `ConfigError` for a file that cannot be read.
    """
    return Connecting(Hub(source, on_error=on_error, wait=wait, names=names, callbacks=callbacks))
