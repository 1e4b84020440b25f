"""Many MCP servers as one `Toolset`: started concurrently, failing independently, changed at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread

from toolweave._json_types import as_number
from toolweave._option_checks import choice_error, type_error
from toolweave._text import counted
from toolweave.config import LoadedConfig, ServerConfig, load_config, server_config
from toolweave.connect import Callbacks, ConnectionState, McpConnection, StateChanged
from toolweave.connect._client_features.callbacks import NO_CALLBACKS
from toolweave.connect._connecting import Openable
from toolweave.connect._diagnosis import again
from toolweave.definitions import Finding
from toolweave.errors import AuthRequiredError, ConnectionClosedError, DuplicateToolError, ErrorKind, ToolError
from toolweave.hub._caller_servers import CallerServers
from toolweave.hub._down_servers import DownServers
from toolweave.hub._events import HubEvents, HubEventSubscriptions
from toolweave.hub._fan_out import for_each
from toolweave.hub._naming import NameConflict
from toolweave.hub._offers import HubOffers, OfferNames
from toolweave.hub._server_features import HubFeatures
from toolweave.hub._starting import FAILED, OVER, STARTING, ServerStarts, Wait, check_wait, chosen_names
from toolweave.hub._tools import HubTools, missing_tool
from toolweave.hub._warnings import HubWarnings, log_failure, lost_pins
from toolweave.tools import CallContext, ToolCall, ToolResult, ToolsChanged, ToolSnapshot, Unsubscribe, aliases, expose
from toolweave.tools.owner_loop import OwnerLoop
from toolweave.tools.toolset import Listeners


class Hub(HubEventSubscriptions, Openable, HubFeatures):
    """Many connections as one `Toolset`.

    Made by `connect_mcp_servers`. Iterating `snapshot()` gives the definitions of all servers' tools.

    An exposed name stays reserved for its tool as long as the hub lives, also while the tool or its server is gone:
    a later tool of the same name is renamed, and `warnings` says so.

    A hub that is opened again starts the servers of its source, which is read again, and those that were added by
    `connect` and `replace`.

    Prompts are named as tools are. Resources and templates keep their URIs; where two servers have one, that of the
    later is `server+uri`. A server that fails costs the lists only its entries that were not known.
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
            raise choice_error("on_error", on_error, ("skip", "raise"))
        if not isinstance(callbacks, Callbacks):  # pyright: ignore[reportUnnecessaryIsInstance]  # given in Python
            raise type_error("callbacks", callbacks, "Callbacks(...)")
        if as_number(patience) is None:
            raise type_error("patience", patience, "a number of seconds")
        check_wait(wait)
        self._source = LoadedConfig() if source is None else source
        self._callbacks = callbacks
        self._on_error = on_error
        self._wait: Wait = wait
        self._names = None if names is None else chosen_names(names)
        self._clients: dict[str, McpConnection] = {}
        self._clients_shown: Mapping[str, McpConnection] = MappingProxyType(self._clients)
        self._prefixes: dict[str, str] = {}
        self._errors: dict[str, Exception] = {}
        self._caller_servers = CallerServers(self._prefixes, self._errors)
        self._config_warnings: tuple[str, ...] = ()
        self._configured: frozenset[str] = frozenset()
        self._patience = patience
        self._starts = ServerStarts(self._clients, patience)
        self._added: dict[str, ServerConfig] = {}
        self._down = DownServers(
            self._clients, self._errors, self._prefixes, self._caller_servers, settled=self._settles, place=self._place
        )
        self._awaited: dict[McpConnection, int] = {}
        self._tools = HubTools(self._clients, self._prefixes)
        self._listeners = Listeners()
        self._events = HubEvents(self._clients)
        self._warnings = HubWarnings(self._events.warn)
        self._offer_names = OfferNames(self._offer_conflicts)
        self._offers = HubOffers(self._clients, self._offer_names)
        self._starting = self._opened = self._closed = False
        self._settled = anyio.Event()
        self._home = OwnerLoop("hub")

    # inspection

    @property
    def clients(self) -> Mapping[str, McpConnection]:
        """The connections by server name: open, connecting or lost; a live view.

        A server that never came up is in it while it is tried again.
        """
        return self._clients_shown

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The servers that could not be used, each with its error."""
        return MappingProxyType(self._errors)

    @property
    def warnings(self) -> list[str]:
        """Human-readable warnings, for as long as they last.

        Those of the config, names in filters that are of no tool, name conflicts, differences from the pins, and
        definitions that reference another server.
        """
        offered = self.snapshot()
        names = [str(one) for one in self._tools.conflicts if one.lasting or offered.find(one.name)]
        others = [str(one) for one in self._offer_names.conflicts if one.server in self._clients]
        filters: list[str] = []
        pins: list[str] = []
        for name, client in self._clients.items():
            filters += [f"server {name!r}: {text}" for text in client.filter_problems]
            pins += [f"server {name!r}: {text}" for text in client.pin_problems]
        pins += lost_pins(self._clients, self._configured)
        return [*self._config_warnings, *filters, *names, *others, *pins, *self._warnings.shadows]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings in the servers' definitions and results, definitions that reference another server included."""
        self.snapshot()
        found = chain.from_iterable(client.findings for client in self._clients.values())
        return (*found, *self._warnings.findings)

    @property
    def silences(self) -> Mapping[str, float]:
        """Seconds without a sign of life of each starting server, as of the last check."""
        return self._starts.silences

    def states(self) -> dict[str, ConnectionState]:
        """Return the state of every server, the failed ones included."""
        states = {name: client.state for name, client in self._clients.items()}
        for name, error in self._errors.items():
            needs_sign_in = isinstance(error, AuthRequiredError)
            states.setdefault(name, ConnectionState.AUTH_REQUIRED if needs_sign_in else ConnectionState.FAILED)
        return states

    # Toolset

    def snapshot(self) -> ToolSnapshot:
        """Return the tools of all servers known now; see `Toolset.snapshot`."""
        self._end_start()
        return self._tools.snapshot()

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the tools; see `Toolset.subscribe`."""
        return self._listeners.subscribe(listener)

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool by its exposed name or an alias; see `Toolset.call`.

        If the server of such names is down, it is tried again first, at most every 30 s.
        """
        spec = self.snapshot().find(call.name)
        if spec is None and self._down.owner(call.name) in self._errors:
            await self._home.run(self._down.reach(call.name))
            spec = self.snapshot().find(call.name)
        if spec is None:
            return ToolResult.failure(self._missing_tool_error(call.name))
        server, name = self._tools.route(spec.name)
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
        while self._opened and not self._settled.is_set():
            # Two tasks that enter a hub at once: the second waits for the first one's opening and does not begin its
            # own, unless that failed.
            await self._home.run(self._settled.wait())  # another task is about to open it
        if self._final:
            self._check_open()
        if self._opened:
            return
        self._begin_life()
        try:
            loaded = await anyio.to_thread.run_sync(load_config, self._source)
            self._check_open()
            self._starting = True
            self._adopt(loaded)
            await self.settled(self._wait)
            self._end_start()
            # Naming 100,000 tools takes long enough: let others run before the caller.
            await anyio.lowlevel.checkpoint()
            if self._on_error == "raise" and self._errors:
                raise ExceptionGroup("some MCP servers could not be used", list(self._errors.values()))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._close()
            raise
        finally:
            self._settled.set()

    def _begin_life(self) -> None:
        """Be open on the running event loop, with nothing of a previous life but names and added servers."""
        self._home.settle()
        self._opened = True
        self._closed = False
        self._settled = anyio.Event()
        if not self._clients:  # else a server was connected before the hub was opened
            self._starts = ServerStarts(self._clients, self._patience)
            self._errors.clear()

    async def settled(self, wait: Wait = "all") -> None:
        """Wait until the starting servers are ready or have failed, as `wait` defines it."""
        check_wait(wait)
        await self._starts.until_settled(wait)

    async def keep_trying(self) -> None:
        """Give no server up while the hub is open, as with `restart="always"`; gateways and servers do so."""
        self._down.endless = True
        await self._home.run(self._down.keep_trying())

    async def close(self) -> None:
        """Close all connections concurrently, finally; idempotent, from any task or thread, bounded."""
        await super().close()

    async def _close(self) -> None:
        await (self._close_all() if self._home.ended else self._home.run(self._close_all()))

    async def _close_all(self) -> None:
        self._closed = True
        await self._warnings.finish_in_steps()  # a program may be shorter than the comparison of many definitions
        # they stay listed until they are closed, so that a second caller waits for them too
        # All at once: a server that takes its whole bound to end must not delay the others by it.
        await for_each([*self._clients.values(), *self._down.given_up.values()], McpConnection.close)
        self._clients.clear()
        self._down.given_up.clear()
        self._starting = self._opened = False
        self._rename(*self._tools.servers)
        self._home.leave()

    # changes at run time

    async def connect(self, name: str, config: Any) -> McpConnection:
        """Connect one more server, or return the connection of this name when it is open.

        A connection that failed or was closed is replaced. Concurrent callers of one name share one connection;
        it is closed when all of them are cancelled. `config` is anything that `connect_mcp` accepts.

        Raises:
            ConfigError: The config cannot be right.
            DuplicateToolError: A tool's name is taken and the server's `on_conflict` is `"error"`; it
                stays connected without tools.
            ServerError: It cannot be reached; the error is also in `errors`.
        """
        return await self._home.run(self._connect(name, config))

    async def _connect(self, name: str, config: Any) -> McpConnection:
        self._check_open()
        self._home.settle()
        client = self._clients.get(name)
        if client is not None and client.away:
            await client.close()  # it waits for a server that the new settings may not mean
        added = client is None or client.state in OVER
        if client is None or added:
            self._caller_servers.forget(name)
            client = self._begin(server_config(config, name=name))
            self._awaited[client] = 0
        # The waiters are counted from here on. A connection that nobody waits for any more is closed; one that was
        # started by the config is not counted and stays.
        client.start()  # nothing when it has begun
        await self._until_usable(client)
        failed = client.state in OVER or client.away
        if failed and client.error is not None:  # another waiter may have closed it meanwhile
            raise again(client.error, name)
        await client.open()  # at once: it is usable
        if added:
            self._added[name] = client.config
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
        self._added.pop(name, None)
        self._down.given_up.pop(name, None)
        self._caller_servers.forget(name)
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
        client = self._made(server_config(config, name=name))
        await client.open()
        if self._closed:
            await client.close()
            self._check_open()
        self._end_start()
        # Read after the new one is ready, not before: another `replace` may have finished meanwhile, and its connection
        # would be lost.
        old = self._clients.get(name)
        self._join(client)
        self._added[name] = client.config
        self._note(name, None)
        return old

    async def refresh(self, name: str | None = None) -> ToolsChanged:
        """List the tools of one server or of all servers again; return the change.

        Servers that are down, or never came up, are tried again. A server that fails is in `errors` until a later
        refresh succeeds; its last known tools stay.

        Raises:
            KeyError: There is no such server.
            ServerError: The one server that was named could not be asked.
        """
        return await self._home.run(self._refresh(name))

    async def _refresh(self, name: str | None) -> ToolsChanged:
        self._check_open()
        before = self.snapshot()
        await self._down.retry(name)
        chosen = self._chosen(name)
        failed = {client.name: exc for client, exc in await for_each(chosen, McpConnection.refresh)}
        for client in chosen:
            if self._clients.get(client.name) is client:  # else it was disconnected meanwhile
                self._note(client.name, failed.get(client.name))
        if name in failed:
            raise failed[name]
        return ToolsChanged.between(before, self.snapshot())

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {state.value}" for name, state in self.states().items())
        return f"<Hub {{{states}}} {counted(len(self._tools), 'tool')}>"

    # inside

    def _adopt(self, loaded: LoadedConfig) -> None:
        self._config_warnings = tuple(loaded.warnings)
        self._configured = frozenset((*loaded.servers, *loaded.disabled))
        if self._names is not None:
            loaded = loaded.select(self._names)
        for name, error in loaded.errors.items():
            self._fail(name, error)
        for name, config in {**loaded.servers, **self._added}.items():
            there = self._clients.get(name)
            is_running = there is not None and there.state not in OVER
            if config.disabled or is_running:
                continue
            if not self._caller_servers.takes(config):
                self._starts.begin(self._begin(config))

    def _begin(self, config: ServerConfig) -> McpConnection:
        client = self._made(config)
        self._join(client)
        return client

    def _made(self, config: ServerConfig) -> McpConnection:
        return McpConnection(config, callbacks=self._callbacks, endless=self._down.endless)

    def _join(self, client: McpConnection) -> None:
        """Make a connection that of its server."""
        config = client.config
        name = client.name
        known = name in self._prefixes
        self._errors.pop(name, None)
        self._down.given_up.pop(name, None)
        self._prefixes[name] = f"{name}_" if config.tool_prefix is None else config.tool_prefix
        self._place(client, known=known)

        def moved(change: StateChanged) -> None:
            self._starts.changed(client, change)
            if self._clients.get(name) is client:
                self._on_state(client, change)

        client.on("state", moved)
        client.on("problem", lambda text: self._problem(client, text))
        client.subscribe(lambda _change: self._rename(name))
        self._events.attach(client)

    async def _settles(self, client: McpConnection) -> None:
        await self._starts.until_usable_or_over(client)

    def _place(self, client: McpConnection, *, known: bool = True) -> None:
        """Add a connection to the hub's; that of a server that was known takes the position it had."""
        returns = known and client.name not in self._clients
        self._clients[client.name] = client
        # A dict keeps the order of insertion, and the order of the servers is that of their tools. A server that failed
        # and came back would be last.
        if returns:  # to its position: faults do not change the order of the servers
            for one in self._prefixes:
                if one in self._clients:
                    self._clients[one] = self._clients.pop(one)

    def _problem(self, client: McpConnection, text: str) -> None:
        if text in client.pin_problems or text in client.filter_problems:
            self._events.warn(client.name, f"server {client.name!r}: {text}")

    async def _until_usable(self, client: McpConnection) -> None:
        """Wait until a connection is usable or has ended; a new one is closed when its last waiter is cancelled."""
        if client in self._awaited:
            self._awaited[client] += 1
        try:
            await self._starts.until_usable_or_over(client)
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
            return
        if change.error is None:
            return
        # Version 0: it has never listed its tools, so nothing is lost by leaving it out. One that has keeps them: its
        # calls fail with the error, and it may come back.
        if change.state in FAILED and client.snapshot().version == 0:
            self._down.given_up[client.name] = client
            self._fail(client.name, change.error)
        elif client.away or change.state in (ConnectionState.DEGRADED, *FAILED):
            if client.away and str(self._errors.get(client.name)) != str(change.error):
                log_failure(change.error, client.config, is_retried=True)
            self._note(client.name, change.error)

    def _fail(self, name: str, error: Exception) -> None:
        """Remove a server that never became ready from the hub; its error stays."""
        self._errors[name] = error
        client = self._clients.pop(name, None)
        log_failure(error, None if client is None else client.config)
        self._rename(name)

    def _note(self, name: str, error: Exception | None) -> None:
        """Set or clear the error of a server that has been ready; only `_rename` clears a name conflict."""
        if error is not None:
            self._errors[name] = error
        elif not isinstance(self._errors.get(name), DuplicateToolError):
            self._errors.pop(name, None)
        self._rename(name)  # a listing that only changed the order notifies no listener

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
        update = self._tools.update(servers)
        # All names, errors and warnings are in place before the first listener is called: it may look at them.
        for server, named in update.servers.items():
            if isinstance(self._errors.get(server), DuplicateToolError):
                del self._errors[server]
            if named.refused is not None:
                where = f"the hub, so server {server!r} has no tools in it"
                self._errors[server] = DuplicateToolError(named.refused, where=where)
        for server, named in update.servers.items():
            self._warnings.update(server, server, named.conflicts)
        if update.change is not None:
            self._warnings.compare({name: self._tools.scanned(name) for name in servers})
            self._listeners.emit(update.change)

    def _offer_conflicts(self, kind: str, server: str, conflicts: Sequence[NameConflict]) -> None:
        self._warnings.update(f"{kind} of {server}", server, conflicts)

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
            starting=[server for server, client in self._clients.items() if client.state in STARTING],
            errors=self._errors,
            prefixes=self._prefixes,
        )

    def _chosen(self, server: str | None) -> list[McpConnection]:
        self._check_open()
        if server is None:
            return list(self._clients.values())
        if server not in self._clients:
            raise self._errors.get(server) or self._no_server(server)
        return [self._clients[server]]

    def _no_server(self, name: str) -> KeyError:
        return KeyError(f"no server {name!r}; there are {', '.join(sorted(self._clients)) or 'none'}")

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosedError("the hub is closed; connect again", server="hub")


def offer_names(hub: Hub) -> OfferNames:
    """Return the names of a hub's prompts and resources, for the rooms above."""
    return hub._offer_names  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its room


def hub_tools(hub: Hub) -> HubTools:
    """Return the named tools of a hub's servers, for the rooms above."""
    return hub._tools  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its room


def config_source(hub: Hub) -> Any:
    """Return the source of a hub's config, for the rooms above."""
    return hub._source  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its room


def caller_servers(hub: Hub) -> CallerServers:
    """Return the servers of a hub that are called as each caller of a gateway, for the rooms above."""
    return hub._caller_servers  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its room


def down_servers(hub: Hub) -> DownServers:
    """Return the servers of a hub that are down, for the rooms above."""
    return hub._down  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its room
