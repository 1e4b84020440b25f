"""A gateway while it is served: its config, its upstreams, its virtual servers, and the changes to all of them.

The rule of every change: new objects are started first, then replace the old in one step, and the old are
closed when the requests that may still use them have ended. A server that a change does not concern keeps its
connection. A config that is wrong in any part is refused as a whole, and the one before stays.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from toolweave.config import LoadedConfig, ServerConfig, server_config
from toolweave.connect import ConnectionState
from toolweave.errors import ConfigError
from toolweave.gateway._admin.extras import prometheus_metrics, spans_middleware
from toolweave.gateway._admin.in_flight import InFlightRequests
from toolweave.gateway._admin.status import (
    GatewayStatus,
    Readiness,
    UpstreamStatus,
    readiness,
    upstream_statuses,
)
from toolweave.gateway._admin.upstream_changes import UpstreamChanges
from toolweave.gateway._callers.followed_auth import FollowedAuth
from toolweave.gateway._callers.pin_warnings import without_known
from toolweave.gateway._callers.revoked_keys import RevokedKeys
from toolweave.gateway._config.config import GatewayConfig, GatewaySource, VirtualServer, load_gateway_config
from toolweave.gateway._config.losses import ConfigLoss, LossGuard, ReloadTrigger, strongest
from toolweave.gateway._config.options import GatewayOptions, add_http_options, replicas_of, runs_of, tokens_in
from toolweave.gateway._config.reload import ConfigChange, compare, file_stamps, warn_of_restart, when_changed
from toolweave.gateway._console.access import add_console, wants_console
from toolweave.gateway._gateway import Gateway, create_gateway
from toolweave.gateway._observe.recent_calls import RecentCalls
from toolweave.gateway._observe.runs import StoredRuns
from toolweave.gateway._replicas.fleet import Fleet
from toolweave.gateway._replicas.pin_decisions import PinDecisions
from toolweave.gateway._replicas.workers import WorkerChanges
from toolweave.gateway._views import Mount, ViewMiddleware, caller_view, virtual_tools
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.middleware import Observers, middleware_from_config
from toolweave.serve import Middleware
from toolweave.tools import Toolset

if TYPE_CHECKING:
    from toolweave.gateway._console.app import ConsoleApp
    from toolweave.gateway._observe.metrics import MetricsPage
    from toolweave.serve import HttpApp, HttpOptions, TokenAuth

_log = logging.getLogger("toolweave.gateway")

Rules: TypeAlias = "dict[str, tuple[tuple[Any, ...], tuple[Middleware, ...]]]"
"""The middleware of a config, with its entries there, by virtual server; that of the gateway is `""`."""


class GatewayManager:
    """Runs a gateway from a config, and changes it while it is served.

    Args:
        source: The config: a file, several, or the content of one. Files are read again when they change.
        options: Everything else.

    Attributes:
        name: The gateway's name.
        hub: The upstreams.
        config: The config in use.
        generation: The number of the config in use; it grows with each change.
        problem: The reason why the last change of the config was refused, or None.
        needs_confirmation: Whether it was refused because it loses most of the current servers.
        server: The gateway as one server; serve it by the methods of this class.
        in_flight: Counts the requests under way.
        auth: The authorization of requests over HTTP, or None.
        keys: The API keys, which can be revoked.
        pins: The differences from the pins, which can be allowed.
        fleet: The replicas, as the console shows them.
        recent_calls: Keeps the last calls and tasks, where there is a console.
        runs: The runs of agents that the console shows, if a store of them is named.

    Raises:
        ConfigError: The config cannot be read, its section `gateway` is wrong, or a package is not installed.
    """

    def __init__(
        self,
        source: GatewaySource,
        options: GatewayOptions | None = None,
    ) -> None:
        self._source = source
        self._options = options = options or GatewayOptions()
        self._rules: Rules = {}
        if options.metrics:
            self._metrics = prometheus_metrics()
        else:
            self._metrics = None
        self._outer, self._inner, self._sessions = spans_middleware() if options.tracing else ((), (), None)
        self._known = file_stamps(self._paths)  # before they are read: a change in between is seen
        self.config: GatewayConfig = load_gateway_config(source, names=options.names)
        self.generation: int = 1
        self.problem: str | None = None
        self.needs_confirmation: bool = False
        self.hub: Hub = Hub(self.config.servers, wait="alive" if options.wait is None else options.wait)
        if self._sessions is not None:
            self.hub.on("state", self._sessions.upstream_moved)
        self.in_flight: InFlightRequests = InFlightRequests()
        self._replicas = replicas_of(self.config, options)
        self.runs: StoredRuns | None = runs_of(self.config, options)
        grouped = self._replicas is not None and self._replicas.group
        if self._replicas is not None and grouped:
            self._workers = WorkerChanges(self, self._replicas)
        else:
            self._workers = None
        self.recent_calls: RecentCalls | None = None
        self.name: str = options.name or self.config.name or "toolweave"
        self._followed = FollowedAuth(options.auth, self.config.auth)
        self.auth: TokenAuth | None = self._followed.auth
        self.keys: RevokedKeys = RevokedKeys(self.auth, self._replicas)
        self.pins: PinDecisions = PinDecisions(self.hub, self._replicas)
        self.fleet: Fleet = Fleet(self._replicas)
        self._rules = self._rules_of(self.config)
        self.server: Gateway = self._made(self.name, title=self.config.title, instructions=self.config.instructions)
        self._wanted: dict[str, ServerConfig] = dict(self.config.servers.servers)
        self._added: dict[str, ServerConfig] = {}
        self._changes = UpstreamChanges(self.hub, self.in_flight)
        self._mounts: dict[str, Mount] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._app: HttpApp | None = None
        self._page: MetricsPage | None = None
        self._starting = True
        self._console: ConsoleApp | None = None
        self._wanted_reload = anyio.Event()
        self._trigger: ReloadTrigger = "watch"
        self._losses = LossGuard()
        self._reading = anyio.Lock()
        for warning in self.config.warnings[len(self.config.servers.warnings) :]:
            _log.warning("%s", warning)

    def _made(
        self,
        name: str,
        *,
        title: str | None,
        instructions: str | None,
        tools: Toolset | None = None,
        view: VirtualServer | None = None,
    ) -> Gateway:
        server = create_gateway(
            self.hub,
            name=name,
            tools=tools,
            title=title,
            instructions=instructions,
            state_keys=self._options.state_keys,
            url=self.config.url,
            token_store=self._options.token_store or tokens_in(self._replicas),
            replicas=self._replicas,
            slow_call_seconds=self.config.slow_call_seconds,
            task_seconds=self.config.task_seconds,
        )
        if self._sessions is not None:
            server.changes.on_left = self._sessions.caller_left
        if view is not None:
            server.share_callers(self.server, caller_view(view))
        self._put_rules(server, view)
        return server

    def _rules_of(self, config: GatewayConfig) -> Rules:
        """Return the middleware of a config, with its entries there, by virtual server; that of the gateway is "".

        Unchanged middleware stays the same object: it may count something.

        Raises:
            ConfigError: Some of it is wrong.
        """
        wanted = {"": config.middleware, **{name: view.middleware for name, view in config.virtual.items()}}
        store = None if self._replicas is None else self._replicas.store
        found: Rules = {}
        for name, entries in wanted.items():
            known = self._rules.get(name)
            if known is not None and known[0] == entries:
                found[name] = known
            elif entries:
                if name:
                    where = f"gateway.virtual.{name}.middleware"
                else:
                    where = "gateway.middleware"
                made = middleware_from_config(
                    entries, where=where, state_keys=self._options.state_keys, store=store, watch=self._replicas
                )
                found[name] = entries, made
        return found

    def _put_rules(self, server: Gateway, view: VirtualServer | None) -> None:
        """Put the middleware of the config around a server, and show its tools in the form of the config."""
        own = None if view is None else view.disclosure
        server.use(self._chain(server, view), disclosure=own or self.config.disclosure)

    def _chain(self, server: Gateway, view: VirtualServer | None) -> list[Middleware]:
        """Return the middleware of a server, outermost first: figures, the gateway's rules, the view's own, spans."""
        if self.recent_calls is None:
            observers = []
        else:
            observers = [*self.recent_calls.observers(server.endpoint)]
        if self._metrics is not None:
            observers.append(self._metrics.request_ended)
        observed = [Observers(*observers)] if observers else []
        shared = (*self._options.middleware, *self._rules.get("", ((), ()))[1])
        if view is None:
            own = ()
        else:
            own = self._rules.get(view.name, ((), ()))[1]
        if view is not None and view.servers:
            viewed = (ViewMiddleware(view),)
        else:
            viewed = ()
        return [self.in_flight, *observed, *self._outer, *viewed, *shared, *own, *self._inner]

    # serving

    def asgi_app(
        self, *, host: str = "127.0.0.1", admin_token: str | None = None, **options: Unpack[HttpOptions]
    ) -> HttpApp:
        """Return the gateway as an ASGI app: `/mcp`, its virtual servers at `/mcp/NAME`, and `/readyz`.

        Args:
            host: The address that will be bound; it decides which Host headers are right.
            admin_token: The token of the admin API at `/admin`; without one the API is off.
            **options: See `HttpOptions`.

        Raises:
            ConfigError: An option is wrong.
        """
        from toolweave.gateway._admin.probes import ReadinessProbe
        from toolweave.serve._http.app import http_app

        options["auth"] = options.get("auth") or self.auth
        add_http_options(options, self.config, shared=self._replicas is not None)
        served = self.server.http_endpoint()
        app: HttpApp | None = None

        def running() -> AbstractAsyncContextManager[object]:
            return self.running(app)

        app = http_app(replace(served, lifespan=running), host=host, options=options)
        app.on_hangup = self.request_reload
        self.server.serve_sign_ins(app, options.get("auth"))
        app.route("/readyz", ReadinessProbe(self, app), guarded=False)
        if admin_token is not None:
            from toolweave.gateway._admin.api import AdminApi

            app.route("/admin", AdminApi(self, admin_token))
        if self._options.ui is None:
            wanted = self.config.ui
        else:
            wanted = self._options.ui
        hosts = options.get("allowed_hosts")
        if wants_console(wanted, host=host, token=admin_token, hosts=hosts) and admin_token is not None:
            self.recent_calls = RecentCalls(self.hub)
            self._console = add_console(self, app, admin_token, self.recent_calls)
            self._put_rules(self.server, None)
        if self._metrics is not None:
            from toolweave.gateway._observe.metrics import MetricsPage

            self._page = MetricsPage(self, app, self._metrics)
            app.route("/metrics", self._page)
        return app

    @property
    def has_console(self) -> bool:
        """Whether a console is served."""
        return self._console is not None

    def console_link(self) -> str | None:
        """Return the path of a link that signs in to the console once, within an hour; None without a console."""
        if self._console is None:
            return None
        return self._console.link()

    @asynccontextmanager
    async def running(self, app: HttpApp | None = None) -> AsyncGenerator[anyio.abc.TaskGroup]:
        """Run the gateway for the block: connect its upstreams, mount its virtual servers, follow its config.

        Args:
            app: Where virtual servers are mounted; without one they are not served.
        """
        runs = nullcontext() if self.runs is None else self.runs.open()
        async with runs, self.server.running(), anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._app = app
            self._changes.open(tasks)
            tasks.start_soon(self._settle)
            tasks.start_soon(self._reload_when_asked)
            if self._page is not None:
                tasks.start_soon(self._page.keep_fresh)
            if self._console is not None:
                tasks.start_soon(self._console.run)
            ends = [self.fleet.listen(), await self.keys.start(tasks)]
            tasks.start_soon(self.pins.follow)
            if self._workers is not None:
                ends.append(self._workers.listen())
                tasks.start_soon(self._workers.catch_up)
            if self._options.watch and self._paths:
                tasks.start_soon(when_changed, self._paths, self._known, partial(self._reload_here, "watch"))
            try:
                await self._remount(self.config)
                yield tasks
            finally:
                for end in ends:
                    end()
                self._tasks = self._app = None
                self._changes.close()
                for mount in self._mounts.values():
                    mount.ended.set()
                self._mounts.clear()
                tasks.cancel_scope.cancel()

    async def _settle(self) -> None:
        """Note when every upstream of the start is ready or has failed once; later ones do not count."""
        await self.hub.settled("all")
        self._starting = False

    async def serve_stdio(self) -> None:
        """Serve one client over standard input and output, without the virtual servers; see `McpServer.serve_stdio`."""
        async with self.running():
            await self.server.serve_stdio()

    # changes

    def request_reload(self, trigger: ReloadTrigger = "signal") -> None:
        """Read the config again soon; returns at once, for handlers of signals.

        A config that loses most of the current one is refused at the first signal. The second applies it, if its
        content is still the same.

        Args:
            trigger: The reason; by default a signal.
        """
        self._trigger = strongest(self._trigger, trigger)
        self._wanted_reload.set()

    async def reload(self, *, confirmed: bool = False) -> ConfigChange:
        """Reload the config and apply it; return the changes, once new servers are connected or have failed.

        A config with an error anywhere is refused: `error` and `problem` say why, and all stays as it is. So is one
        that loses most of the current one: more than half of the servers, the section `gateway`, or its rules. Servers
        that had failed are tried again. Workers of the same gateway also read it.

        Args:
            confirmed: Apply a config that loses most of the current one.
        """
        trigger: ReloadTrigger = "confirmed" if confirmed else "call"
        if self._workers is not None:
            await self._workers.reload(confirmed=confirmed)
        return await self._reload_here(trigger)

    async def _reload_here(self, trigger: ReloadTrigger) -> ConfigChange:
        async with self._reading:  # two readings that overtake each other could end with the older one
            try:
                config, rules = await self._read_again(trigger)
            except ConfigError as error:
                return self._kept(error, trigger)
            self.problem = None
            self.needs_confirmation = False
            self._rules = rules
            warn_of_restart(self.config, config)
            self._losses.applied()
            self._followed.apply(config.auth)
            change = compare(self._wanted, {**config.servers.servers, **self._still_added(config)})
            self._wanted = {**config.servers.servers, **self._still_added(config)}
            if config != self.config:
                self.generation += 1
            self.config = config
        retried = [name for name in change.unchanged if name in self._failed]
        self._put_rules(self.server, None)  # before a server is there that rules may be about
        for mount in self._mounts.values():
            self._put_rules(mount.server, mount.view)
        await self._remount(config)
        failed = await self._apply(change, retried)
        counts = len(change.added), len(change.changed), len(change.removed)
        _log.info("the config was read again: %d added, %d changed, %d removed", *counts)
        return msgspec.structs.replace(change, failed={one: str(error) for one, error in failed.items()})

    async def _read_again(self, trigger: ReloadTrigger) -> tuple[GatewayConfig, Rules]:
        """Read the config again, and make the rules of those that it has.

        Raises:
            ConfigError: It cannot be read, some of it is wrong, or it needs to be confirmed.
        """
        try:
            config = await anyio.to_thread.run_sync(
                partial(load_gateway_config, self._source, names=self._options.names)
            )
            for error in config.servers.errors.values():
                raise error
            self._followed.check(config.auth)
            rules = self._rules_of(config)
            self._losses.check(self.config, config, trigger)  # the last: a yes helps no config with a mistake
            return config, rules
        except ConfigError:
            raise
        except Exception as error:  # boundary: a file can make its readers raise anything
            raise ConfigError(f"it cannot be read: {type(error).__name__}") from error

    def _kept(self, error: ConfigError, trigger: ReloadTrigger) -> ConfigChange:
        """Keep the config in use, and log the error; an error that the watch finds again is not logged again."""
        needs_confirmation = isinstance(error, ConfigLoss)
        text = str(error)
        if trigger != "watch" or text != self.problem:
            _log.error("the config was not changed: %s", text)
        self.problem = text
        self.needs_confirmation = needs_confirmation
        return ConfigChange(error=text, needs_confirmation=needs_confirmation, unchanged=tuple(self._wanted))

    async def add(self, name: str, config: Any) -> UpstreamStatus:
        """Add a server, or give one that was added before other settings; returns once it is connected.

        It stays through reloads, until it is removed or the process ends. Workers of the same gateway also add it.

        Args:
            name: Its name.
            config: Anything that `connect_mcp` accepts.

        Raises:
            ConfigError: The config cannot be right, or the name is that of a server in the config file.
            ServerError: It cannot be reached; it is not added.
        """
        await self.add_here(name, config)
        if self._workers is not None:
            await self._workers.added(name, config)
        return self.upstream(name)

    async def add_here(self, name: str, config: Any) -> UpstreamStatus:
        """Add a server in this process alone; see `add`.

        Raises:
            ConfigError: As `add`.
            ServerError: As `add`.
        """
        wanted = server_config(config, name=name)
        if name in self.config.servers.servers and name in self._wanted and name not in self._added:
            raise ConfigError("the config file has a server of this name; change it there", server=name)
        change = compare(self._wanted, {**self._wanted, name: wanted})
        before = self._added.get(name)
        self._added[name] = self._wanted[name] = wanted
        failed = await self._apply(change)
        if name in failed:
            if before is None:
                await self._forget(name)
            else:
                self._added[name] = self._wanted[name] = before
            raise failed[name]
        self.generation += 1
        return self.upstream(name)

    async def remove(self, name: str) -> None:
        """Remove a server: its tools are gone at once, its requests may finish.

        One that is in a config file comes back when that is read again and still has it.

        Raises:
            KeyError: The gateway has no such server.
        """
        await self.remove_here(name)
        if self._workers is not None:
            await self._workers.removed(name)

    async def remove_here(self, name: str) -> None:
        """Remove a server in this process alone; see `remove`.

        Raises:
            KeyError: The gateway has no such server.
        """
        if name not in self._wanted and name not in self.hub.states():
            raise KeyError(f"no server {name!r}; there are {', '.join(sorted(self._wanted)) or 'none'}")
        await self._forget(name)
        self.generation += 1

    async def restart(self, name: str) -> UpstreamStatus:
        """Reconnect a server: its successor replaces it once it is ready, and its requests may finish.

        Raises:
            KeyError: The gateway has no such server.
            ServerError: It cannot be reached; an existing connection stays in use.
        """
        if name not in self._wanted:
            raise KeyError(f"no server {name!r}; there are {', '.join(sorted(self._wanted)) or 'none'}")
        failed = await self._apply(ConfigChange(changed=(name,)))
        if name in failed:
            raise failed[name]
        return self.upstream(name)

    async def _forget(self, name: str) -> None:
        self._added.pop(name, None)
        self._wanted.pop(name, None)
        await self._changes.remove(name)

    async def _apply(self, change: ConfigChange, retried: Sequence[str] = ()) -> dict[str, Exception]:
        """Apply a change to the hub; return the servers that could not be connected, each with the error."""
        return await self._changes.apply(change, self._wanted, retried)

    # inspection

    def upstream(self, name: str) -> UpstreamStatus:
        """Return the state of one upstream.

        Raises:
            KeyError: The gateway has no such server.
        """
        found = next((one for one in self.status().upstreams if one.name == name), None)
        if found is None:
            raise KeyError(f"no server {name!r}")
        return found

    def status(self) -> GatewayStatus:
        """Return the state of the gateway."""
        ready = self.readiness()
        servers = (self.server, *(one.server for one in self._mounts.values()))
        pins = without_known(self.hub.warnings, [one.pin_warnings() for one in servers])
        return GatewayStatus(
            name=self.name,
            ready=ready.ready,
            draining=ready.draining,
            generation=self.generation,
            problem=self.problem,
            needs_confirmation=self.needs_confirmation,
            warnings=(*self.config.warnings, *self.hub.warnings, *pins, *self._view_warnings(), *self._away),
            requests=self.in_flight.count,
            retiring=self._changes.retiring,
            upstreams=upstream_statuses(
                self.hub,
                added=frozenset(self._added),
                required=self.config.required,
                changes=self._changes,
                restarts=[one.restarts for one in servers],
                only_here=frozenset() if self._workers is None else self._workers.unpublished,
            ),
            virtual=tuple(mount.status(name, self._path_of(name)) for name, mount in self._mounts.items()),
        )

    def readiness(self) -> Readiness:
        """Return whether the gateway is ready for requests, and which servers are missing."""
        return readiness(
            self.hub,
            self.config.required,
            draining=self._app is not None and self._app.draining,
            problem=self.problem,
            not_applied=self._changes.not_applied,
            generation=self.generation,
            shared=None if self._replicas is None else "ready" if self._replicas.away is None else "away",
            starting=self._starting,
        )

    # inside

    def _view_warnings(self) -> list[str]:
        """Return the warnings about virtual servers whose servers are all there: else a name may only come later."""
        states = self.hub.states()
        found = list[str]()
        for mount in self._mounts.values():
            names = mount.view.servers or tuple(states)
            if all(states.get(name) is ConnectionState.READY for name in names):
                found += mount.warnings(self.hub.snapshot())
        return found

    @property
    def _away(self) -> tuple[str, ...]:
        if self._replicas is None or self._replicas.away is None:
            return ()
        return (self._replicas.away,)

    @property
    def _failed(self) -> set[str]:
        """The upstreams that could not be connected, or not with their new settings."""
        clients = self.hub.clients
        connected = {name for name, client in clients.items() if not client.away}
        others = connected | caller_servers(self.hub).configs.keys()
        return {*self._changes.not_applied, *(name for name in self.hub.errors if name not in others)}

    @property
    def _paths(self) -> tuple[Path, ...]:
        source = self._source
        if isinstance(source, LoadedConfig | Mapping):
            return ()
        if isinstance(source, str | PurePath):
            named = [source]
        else:
            named = source
        return tuple(Path(one).expanduser() for one in named)

    def _still_added(self, config: GatewayConfig) -> Mapping[str, ServerConfig]:
        """Return the servers that were added at run time and are in no file."""
        for name in [name for name in self._added if name in config.servers.servers]:
            _log.warning("server %r was added at run time and is in the config now, which counts", name)
            del self._added[name]
        return self._added

    async def _reload_when_asked(self) -> None:
        while True:
            await self._wanted_reload.wait()
            trigger = self._trigger
            self._trigger = "watch"
            self._wanted_reload = anyio.Event()
            await self._reload_here(trigger)

    def _path_of(self, name: str) -> str:
        return f"{'/mcp' if self._app is None else self._app.path}/{name}"

    async def _remount(self, config: GatewayConfig) -> None:
        """Serve the virtual servers of a config: start new ones, and replace those that changed."""
        if self._app is None or self._tasks is None:
            return
        for name, view in config.virtual.items():
            before = self._mounts.get(name)
            if before is not None and before.view == view:
                continue
            tools = virtual_tools(self.hub, view)
            server = self._made(name, title=view.title, instructions=view.instructions, tools=tools, view=view)
            mount = Mount(view, server, tools)
            await self._tasks.start(self._serve_mount, self._app, mount)
            self._mounts[name] = mount
            if before is not None:
                before.ended.set()
        for name in [name for name in self._mounts if name not in config.virtual]:
            self._mounts.pop(name).ended.set()

    async def _serve_mount(
        self, app: HttpApp, mount: Mount, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        async with app.mounted(f"{app.path}/{mount.view.name}", mount.server.http_endpoint()):
            task_status.started()
            await mount.ended.wait()
