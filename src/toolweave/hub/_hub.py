"""Many MCP servers as one `Toolset`: started concurrently, failing independently, changed at run time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import anyio
import anyio.to_thread

from toolweave.config import LoadedConfig, ServerConfig, load_config, server_config
from toolweave.connect._activity import ActivityMonitor
from toolweave.connect._client_features.callbacks import NO_CALLBACKS, Callbacks
from toolweave.connect._connecting import Connecting, Openable
from toolweave.connect._connection import McpConnection
from toolweave.connect._diagnosis import again
from toolweave.connect._state import ConnectionState, StateChanged
from toolweave.errors import (
    AuthRequiredError,
    ConnectionClosedError,
    DuplicateToolError,
    ErrorKind,
    ToolError,
    printable,
)
from toolweave.hub._caller_servers import CallerServers
from toolweave.hub._fan_out import for_each, missing_tool
from toolweave.hub._features import HubFeatures
from toolweave.hub._hooks import HubEvents
from toolweave.hub._naming import NameConflict, NamedServer, name_others, name_server
from toolweave.hub._shadows import HubShadows
from toolweave.hub._start_limiter import StartLimiter, Wait, check_wait
from toolweave.tools._call import CallContext, ToolCall
from toolweave.tools._names import AssignedNames, aliases, expose
from toolweave.tools._owner_loop import OwnerLoop
from toolweave.tools._result import ToolResult
from toolweave.tools._spec import ToolSpec
from toolweave.tools._toolset import Listeners, ToolsChanged, ToolSnapshot, Unsubscribe
from toolweave.tools._wrappers import BaseToolset
from toolweave.trust._scan import Finding

_log = logging.getLogger("toolweave.hub")

_LOOK_SECONDS = 0.5
_USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})
_STARTING = frozenset({ConnectionState.IDLE, ConnectionState.CONNECTING})
_FAILED = frozenset({ConnectionState.FAILED, ConnectionState.AUTH_REQUIRED})
_OVER = _FAILED | {ConnectionState.CLOSED}


class Hub(HubFeatures, HubEvents, Openable, BaseToolset):
    """Many connections as one `Toolset`.

    Made by `connect_mcp_servers`. Iterating `snapshot()` gives the definitions of all servers' tools.

    An exposed name stays reserved for its tool as long as the hub lives, also while the tool or its server is gone:
    a later tool of the same name is renamed, and `warnings` says so.
    """

    def __init__(
        self,
        source: Any = None,
        *,
        on_error: Literal["skip", "raise"] = "skip",
        wait: Wait = "alive",
        names: Iterable[str] | None = None,
        callbacks: Callbacks = NO_CALLBACKS,
        patience: float = 5.0,
    ) -> None:
        if on_error not in ("skip", "raise"):
            raise ValueError(f"on_error must be 'skip' or 'raise', not {on_error!r}")
        check_wait(wait)
        super().__init__()
        self._config_warnings: tuple[str, ...] = ()
        self._source = LoadedConfig() if source is None else source
        self._callbacks = callbacks
        self._on_error, self._patience = on_error, patience
        self._wait: Wait = wait
        self._silent: set[str] = set()
        self._silences: Mapping[str, float] = {}
        self._names = (names,) if isinstance(names, str) else None if names is None else tuple(names)
        self._starts, self._shadows = StartLimiter(), HubShadows()
        self._prefixes: dict[str, str] = {}
        self._errors: dict[str, Exception] = {}
        self.of_callers = CallerServers(self._prefixes, self._errors)
        self._awaited: dict[McpConnection, int] = {}
        self._given = AssignedNames()
        self._given_others: dict[str, AssignedNames] = {}
        self._other_conflicts: dict[tuple[str, str], list[NameConflict]] = {}
        self._named: dict[str, NamedServer] = {}
        self._snapshot: ToolSnapshot | None = ToolSnapshot()  # None: changed, and made again on request
        self._version = 0
        self._routes: dict[str, tuple[str, str]] = {}
        self._told: dict[str, set[str]] = {}
        self._starting = self._opened = self._closed = False
        self._listeners = Listeners()
        self._moved, self._settled = anyio.Event(), anyio.Event()
        self._home = OwnerLoop("hub")

    # inspection

    @property
    def clients(self) -> Mapping[str, McpConnection]:
        """The connections by server name: open, connecting or lost, but not those that never came up; a live view."""
        return self._clients_shown

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The servers that could not be used, each with its error."""
        return MappingProxyType(self._errors)

    @property
    def warnings(self) -> list[str]:
        """Warnings for people, for as long as they last.

        Those of the config, name conflicts, differences from the pins, and definitions that reference another server.
        """
        offered = self.snapshot()
        conflicts = [conflict for named in self._named.values() for conflict in named.conflicts]
        others = [conflict for found in self._other_conflicts.values() for conflict in found]
        names = [str(one) for one in conflicts if one.lasting or offered.find(one.name)]
        pins = [f"server {name!r}: {text}" for name, client in self._clients.items() for text in client.pin_problems]
        others_named = (str(one) for one in others if one.server in self._clients)
        return [*self._config_warnings, *names, *others_named, *pins, *self._shadows.warnings]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings in the servers' definitions and results, definitions that reference another server included."""
        self.snapshot()
        return (*(one for client in self._clients.values() for one in client.findings), *self._shadows.findings)

    @property
    def silences(self) -> Mapping[str, float]:
        """Seconds without a sign of life of each starting server, as of the last check."""
        return {name: seconds for name, seconds in self._silences.items() if name in self._clients}

    def given(self, kind: str) -> AssignedNames:
        """Return the exposed names given to the servers' `"prompt"`s, `"resource"`s or `"resource template"`s."""
        return self._given_others.setdefault(kind, AssignedNames())

    def name_others(self, kind: str, server: str, names: Iterable[str]) -> dict[str, str]:
        """Map exposed to own names of a server's prompts, resources or templates; see `hub.naming.name_others`."""
        exposed, conflicts = name_others(kind, self._clients[server].config, names, self.given(kind))
        self._other_conflicts[kind, server] = conflicts
        self._warn(f"{kind} of {server}", server, conflicts)
        return exposed

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
        self._end_start()
        if self._snapshot is None:
            named = (self._named.get(name) for name in self._clients)
            specs = (spec for one in named if one is not None for spec in one.specs.values())
            self._snapshot = ToolSnapshot(specs, version=self._version)
        return self._snapshot

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the tools; see `Toolset.subscribe`."""
        return self._listeners.subscribe(listener)

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool by its exposed name or an alias; see `Toolset.call`."""
        spec = self.snapshot().find(call.name)
        if spec is None:
            return ToolResult.failure(self._missing_tool_error(call.name))
        server, name = self._routes[spec.name]
        return await self._clients[server].call(call.replace(name=name), ctx)

    # life

    async def open(self) -> None:
        """Start all servers concurrently and wait as `wait` says; they stay until `close()`.

        Has no effect on an open hub.

        Raises:
            ConfigError: The config as a whole cannot be read, or a name in `names` is not in it.
            ConnectionClosedError: The hub is closed.
            ExceptionGroup: Some server failed and `on_error="raise"`; the others are closed.
        """
        await super().open()

    async def _open(self) -> None:
        if self._opened and not self._settled.is_set():
            await self._home.run(self._settled.wait())  # another task is about to open it
        self._check_open()
        if self._opened:
            return
        self._home.settle()
        self._opened = True
        try:
            loaded = await anyio.to_thread.run_sync(load_config, self._source)
            self._check_open()
            self._starting = True
            self._adopt(loaded)
            await self.settled(self._wait)
            self._end_start()
            if self._on_error == "raise" and self._errors:
                raise ExceptionGroup("some MCP servers could not be used", list(self._errors.values()))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise
        finally:
            self._settled.set()

    async def settled(self, wait: Wait = "all") -> None:
        """Wait until the starting servers are ready or have failed, as `wait` defines it."""
        check_wait(wait)
        async with anyio.create_task_group() as tasks:
            if wait == "alive":
                self._silent.clear()
                tasks.start_soon(self._watch)
            with anyio.move_on_after(wait if isinstance(wait, (int, float)) else None):
                await self._until_settled(wait)
            tasks.cancel_scope.cancel()

    async def close(self) -> None:
        """Close all connections concurrently; idempotent, from any task or thread, bounded."""
        await (self._close() if self._home.ended else self._home.run(self._close()))

    async def _close(self) -> None:
        self._closed = True
        # they stay listed until they are closed, so that a second caller waits for them too
        await for_each(list(self._clients.values()), McpConnection.close)
        self._clients.clear()
        self._starting = False
        self._rename(*self._named)

    # changes at run time

    async def connect(self, name: str, config: Any) -> McpConnection:
        """Connect one more server, or return the connection of this name when it is open.

        A connection that failed or was closed is replaced. Concurrent callers of one name share one connection;
        it is closed when all of them are cancelled. `config` is anything that `connect_mcp` accepts.

        Raises:
            ConfigError: The config cannot be right.
            DuplicateToolError: A tool's name is taken and the server's `on_conflict` is `"error"`; it
                stays connected without tools.
            ServerError: It cannot be reached; it is in `errors` too.
        """
        return await self._home.run(self._connect(name, config))

    async def _connect(self, name: str, config: Any) -> McpConnection:
        self._check_open()
        self._home.settle()
        client = self._clients.get(name)
        if client is None or client.state in _OVER:
            self.of_callers.forget(name)
            client = self._begin(server_config(config, name=name))
            self._awaited[client] = 0
        client.start()  # nothing when it has begun
        await self._until_usable(client)
        if client.state in _OVER and client.error is not None:  # another waiter may have closed it meanwhile
            raise again(client.error, name)
        await client.open()  # at once: it is usable
        self._end_start()
        refused = self._errors.get(name)
        if isinstance(refused, DuplicateToolError):
            raise refused
        return client

    async def disconnect(self, name: str) -> None:
        """Close one server; its tools go with it.

        Raises:
            KeyError: There is no such server.
        """
        await self._home.run(self._disconnect(name))

    async def _disconnect(self, name: str) -> None:
        client = await self._detach(name)
        if client is not None:
            await client.close()

    async def detach(self, name: str) -> McpConnection | None:
        """Take one server and its tools out of the hub; its running requests continue.

        Returns the open connection, which is now the caller's to close; None if it could not be used.

        Raises:
            KeyError: There is no such server.
        """
        return await self._home.run(self._detach(name))

    async def _detach(self, name: str) -> McpConnection | None:
        client = self._clients.pop(name, None)
        error = self._errors.pop(name, None)
        self.of_callers.forget(name)
        if client is None and error is None:
            raise self._no_server(name)
        if client is not None:
            self._rename(name)
        return client

    async def replace(self, name: str, config: Any) -> McpConnection | None:
        """Connect a server with another config, and replace the one of this name by it once it is ready.

        Until then the old connection serves, and it stays if the new one fails. It is returned open, the caller's to
        close when its requests have ended; None if there was none.

        Raises:
            ConfigError: The config cannot be right.
            ServerError: The server cannot be reached with it.
        """
        return await self._home.run(self._replace(name, config))

    async def _replace(self, name: str, config: Any) -> McpConnection | None:
        self._check_open()
        self._home.settle()
        client = McpConnection(server_config(config, name=name), callbacks=self._callbacks)
        await client.open()
        if self._closed:
            await client.close()
            self._check_open()
        self._end_start()
        old = self._clients.get(name)
        self._join(client)
        self._note(name, None)
        return old

    async def refresh(self, name: str | None = None) -> ToolsChanged:
        """List the tools of one server or of all servers again; return the change.

        A server that fails is in `errors` until a later refresh succeeds; its last known tools stay.

        Raises:
            KeyError: There is no such server.
            ServerError: The one server that was named could not be asked.
        """
        return await self._home.run(self._refresh(name))

    async def _refresh(self, name: str | None) -> ToolsChanged:
        self._check_open()
        before = self.snapshot()
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
        return ToolsChanged.between(before, self.snapshot())

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {state.value}" for name, state in self.states().items())
        return f"<Hub {{{states}}} {len(self._routes)} tool{'s' * (len(self._routes) != 1)}>"

    # inside

    def _adopt(self, loaded: LoadedConfig) -> None:
        self._config_warnings = tuple(loaded.warnings)
        if self._names is not None:
            loaded = loaded.select(self._names)
        for name, error in loaded.errors.items():
            self._fail(name, error)
        for config in loaded.servers.values():
            if not config.disabled and not self.of_callers.takes(config):
                self._starts.begin(self._begin(config))

    def _begin(self, config: ServerConfig) -> McpConnection:
        client = McpConnection(config, callbacks=self._callbacks)
        self._join(client)
        return client

    def _join(self, client: McpConnection) -> None:
        """Make a connection that of its server."""
        config, name = client.config, client.name
        returns = name in self._prefixes and name not in self._clients
        self._errors.pop(name, None)
        self._prefixes[name] = f"{name}_" if config.tool_prefix is None else config.tool_prefix
        self._clients[name] = client
        if returns:  # to its position: faults do not change the order of the servers
            for known in [one for one in self._prefixes if one in self._clients]:
                self._clients[known] = self._clients.pop(known)

        def moved(change: StateChanged) -> None:
            if change.previous is ConnectionState.CONNECTING or change.state is ConnectionState.CLOSED:
                self._starts.settled(client)
            if self._clients.get(name) is client:
                self._on_state(client, change)
            event, self._moved = self._moved, anyio.Event()
            event.set()

        client.on("state", moved)
        client.on("problem", lambda text: self._problem(client, text))
        client.subscribe(lambda _change: self._rename(name))
        self._hook(client)

    def _problem(self, client: McpConnection, text: str) -> None:
        if text in client.pin_problems:
            self._warned(client.name, f"server {client.name!r}: {text}")

    async def _until_usable(self, client: McpConnection) -> None:
        """Wait until a connection is usable or has ended; a new one is closed when its last waiter is cancelled."""
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
            self._rename(client.name)
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
        """Remove a server that never became ready from the hub; its error stays."""
        self._errors[name] = error
        self._clients.pop(name, None)
        _log.warning("%s", error)
        self._rename(name)

    def _note(self, name: str, error: Exception | None) -> None:
        """Set or clear the error of a server that has been ready; only `_rename` clears a name conflict."""
        if error is not None:
            self._errors[name] = error
        elif not isinstance(self._errors.get(name), DuplicateToolError):
            self._errors.pop(name, None)
        self._rename(name)  # a listing that only changed the order notifies no listener

    async def _watch(self) -> None:
        """Detect starting servers without a sign of life: waiters skip them, and their start slots are freed."""
        silences = ActivityMonitor()
        while True:
            await anyio.sleep(min(_LOOK_SECONDS, self._patience / 4))
            starting = [client for client in self._clients.values() if client.state is ConnectionState.CONNECTING]
            self._silences = await silences.look(starting)
            for name, seconds in self._silences.items():
                if seconds >= self._patience and name not in self._silent:
                    _log.warning("server %r: no sign of life for %.3g s; others do not wait for it", name, seconds)
                    self._silent.add(name)
                    if (client := self._clients.get(name)) is not None:
                        self._starts.settled(client)
                    event, self._moved = self._moved, anyio.Event()
                    event.set()

    async def _until_settled(self, wait: str | float) -> None:
        while True:
            moved = self._moved
            waiting = [client for client in self._clients.values() if client.state in _STARTING]
            if wait == "alive":
                waiting = [client for client in waiting if client.name not in self._silent]
            usable = any(client.state in _USABLE for client in self._clients.values())
            if not waiting or (wait == "any" and usable):
                return
            await moved.wait()

    def _end_start(self) -> None:
        """Name the tools of the servers that are ready, in the order of the config.

        Done when starting ends or at the first snapshot, so that no name depends on which server was faster.
        """
        if self._starting:
            self._starting = False
            self._rename(*self._clients)

    def _rename(self, *servers: str) -> None:
        """Update the tools of these servers from their snapshots and notify listeners; other servers keep theirs."""
        if self._starting:
            return
        old: dict[str, ToolSpec] = {}
        new: dict[str, ToolSpec] = {}
        for server in servers:
            before, after = self._updated_names(server)
            if before is not after:
                old |= before.specs
                new |= after.specs
                self._snapshot = None
        if old or new:
            for server, texts in self._shadows.update({name: self._scanned(name) for name in servers}).items():
                self._warn(f"shadows of {server}", server, texts)
        if self._snapshot is None and (old or new):
            self._version += 1
            self._listeners.emit(ToolsChanged.of(old, new, version=self._version))

    def _updated_names(self, server: str) -> tuple[NamedServer, NamedServer]:
        """Return a server's named tools before and after an update; the same object twice when nothing changed."""
        client = self._clients.get(server)
        before = self._named.get(server, NamedServer())
        if client is not None and before.seen is client.snapshot():
            return before, before
        after = NamedServer()
        if client is not None:
            after = name_server(client.config, client.snapshot(), self._given, before, self._prefixes)
            self._named[server] = after
        else:
            self._named.pop(server, None)
        for name in before.inner:
            self._routes.pop(name, None)
        self._routes.update((name, (server, inner)) for name, inner in after.inner.items())
        if isinstance(self._errors.get(server), DuplicateToolError):
            del self._errors[server]
        if after.refused is not None:
            where = f"the hub, so server {server!r} has no tools in it"
            self._errors[server] = DuplicateToolError(after.refused, where=where)
        self._warn(server, server, after.conflicts)
        return before, after

    def _scanned(self, server: str) -> Iterable[ToolSpec]:
        client, named = self._clients.get(server), self._named.get(server)
        return named.specs.values() if client is not None and named is not None and client.config.scan else ()

    def _warn(self, about: str, server: str, conflicts: Iterable[NameConflict | str]) -> None:
        """Log each warning about one thing once, and again when it recurs after it was gone."""
        texts = {str(conflict) for conflict in conflicts}
        told = self._told.get(about, set())
        for text in sorted(texts - told):
            _log.warning("%s", printable(text))
            self._warned(server, text)
        self._told[about] = texts

    def _missing_tool_error(self, name: str) -> ToolError:
        if self._closed:
            return ToolError("MCP error: the hub is closed; connect again", kind=ErrorKind.CLOSED)
        for client in self._clients.values():
            for own, reason in client.withheld.items():
                exposed = expose(client.name, own, client.config.tool_prefix)
                if name in (exposed, *aliases(client.name, own)):
                    return ToolError(reason, kind=ErrorKind.DENIED)
        return missing_tool(
            name,
            known=self.snapshot().by_name,
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
    wait: Wait = "alive",
    names: Iterable[str] | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    patience: float = 5.0,
) -> Connecting[Hub]:
    """Connect to many MCP servers at once: `await` it, or `async with` it.

    Args:
        source: A config file of any editor, a mapping of any shape, or a `LoadedConfig`.
        on_error: `"skip"` keeps failures in `hub.errors`; `"raise"` raises an `ExceptionGroup` and closes the others.
        wait: `"alive"` until every server with signs of life is ready or has failed, however slowly; `"all"` until
            every server is ready or has failed, `"any"` until one is ready, or a maximum of seconds. The tools of
            later servers arrive as a change.
        names: Only these servers; a name that is not in the config, or is switched off there, is an error.
        callbacks: Handlers for the servers' requests to this client; each request names its server.
        patience: Seconds without output, an answer or CPU time of its process after which a server shows no life.

    Raises:
        ValueError: An argument is wrong. Awaiting raises `ConfigError` for a file that cannot be read.
    """
    chosen = names if names is None or isinstance(names, str) else tuple(names)
    return Connecting(
        lambda: Hub(source, on_error=on_error, wait=wait, names=chosen, callbacks=callbacks, patience=patience)
    )
