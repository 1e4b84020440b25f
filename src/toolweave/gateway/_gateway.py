"""The public object: a gateway in front of the servers of a hub.

Puts the relay, the lists and the transports together; each feature is a file beside this one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

import anyio
import anyio.abc

from toolweave._json_types import object_or_empty
from toolweave._text import counted
from toolweave.config import ServerConfig
from toolweave.config.load import gateway_sections
from toolweave.gateway._callers.gateways import CallerGateways, InnerGateway
from toolweave.gateway._callers.hubs import CallerHubs, GatewayCaller
from toolweave.gateway._callers.perspective_layer import PerspectiveLayer
from toolweave.gateway._callers.perspectives import Perspectives
from toolweave.gateway._callers.pin_warnings import pin_differences
from toolweave.gateway._callers.requests import CallerLayer, CallerRequests
from toolweave.gateway._callers.updates import CallerUpdates, OwnChanges
from toolweave.gateway._config.config import check_section_applied
from toolweave.gateway._config.options import check_gateway_options
from toolweave.gateway._features.calls import Calls
from toolweave.gateway._features.capabilities import UpstreamCapabilities
from toolweave.gateway._features.disclosure import Disclosure, DisclosureMode
from toolweave.gateway._features.fast_calls import FastCalls, SentToolCall
from toolweave.gateway._features.fitting import ArgumentFitter, FittingLayer
from toolweave.gateway._features.lists import Lists
from toolweave.gateway._features.logs import UpstreamLogs
from toolweave.gateway._features.skills import UpstreamSkills
from toolweave.gateway._features.unreached import UnreachedUpstreams
from toolweave.gateway._features.updates import ResourceUpdates
from toolweave.gateway._parts import CallerView, GatewayParts, GatewaySecrets
from toolweave.gateway._relay.connections import AskingConnections
from toolweave.gateway._relay.relay import Relay
from toolweave.gateway._relay.routes import Routes
from toolweave.gateway._relay.sealed_state import StateCipher
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.gateway._replicas.shared_sessions import SealedSessions
from toolweave.gateway._sign_in.sign_in_first import SignInFirst
from toolweave.gateway._sign_in.sign_ins import SignIns
from toolweave.gateway._tasks.names import TaskNames
from toolweave.gateway._tasks.slow_calls import SlowCalls
from toolweave.gateway._tasks.tasks import UpstreamTasks
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers, config_source, offer_names
from toolweave.jobs.retention import TASK_SECONDS
from toolweave.oauth import TokenStore
from toolweave.protocol.eras import abilities
from toolweave.protocol.methods import NOTIFICATIONS_ROOTS_LIST_CHANGED, TOOLS_CALL
from toolweave.protocol.subscriptions import TASK_IDS
from toolweave.serve import Client, Endpoint, Middleware, Offered, Prompts, Request, Resources
from toolweave.serve._changes import Changes, nothing_to_end
from toolweave.serve._middleware import checked
from toolweave.serve._offers.pagination import DEFAULT_PAGE_SIZE
from toolweave.serve._operations import Operations
from toolweave.serve._plain_calls import PlainCalls
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._request_state import TTL_SECONDS
from toolweave.serve._runners import ServerRunners
from toolweave.serve._subscriptions import Listen
from toolweave.serve._tools import Tools
from toolweave.serve.request import Feature, Json, Method
from toolweave.state import Store
from toolweave.state.startup import opened_if_reached, opened_when_reached
from toolweave.tools import Toolset, ToolSpec
from toolweave.tools.sources import UnopenedTools
from toolweave.version import VERSION

if TYPE_CHECKING:
    from toolweave.serve import HttpApp, HttpOptions, TokenAuth
    from toolweave.serve._http.app import ServedEndpoint
    from toolweave.serve._http.asgi import App


def create_gateway(  # noqa: PLR0913  # keyword-only, each with a default
    source: Any,
    *,
    name: str = "toolweave",
    version: str = VERSION,
    title: str | None = None,
    instructions: str | None = None,
    tools: Toolset | None = None,
    state_keys: Sequence[str | bytes] | None = None,
    page_size: int | None = DEFAULT_PAGE_SIZE,
    patience: float = TTL_SECONDS,
    idle_seconds: float = 300.0,
    middleware: Sequence[Middleware] = (),
    auth: TokenAuth | None = None,
    url: str | None = None,
    token_store: TokenStore | None = None,
    replicas: Replicas | None = None,
    disclosure: DisclosureMode = "all",
    slow_call_seconds: float | None = None,
    task_store: Store | None = None,
    task_seconds: float = TASK_SECONDS,
) -> Gateway:
    """Return a gateway: one MCP server in front of many, in every revision on either side.

    Serving it opens the servers, and closes them if they were not open. Tools and prompts are named `server_name`, or
    by the server's `tool_prefix`; resources keep their URIs, unless two servers have the same one.

    Args:
        source: A `Hub`, or its source: a config file of any editor, a mapping, a `LoadedConfig`.
        name: Its name, for programs.
        version: Its own version.
        title: Its human-readable name.
        instructions: Its instructions for models; by default those of the upstreams.
        tools: The tools that callers see: a view of the hub, such as `hub.filtered([...])`; by default all.
        state_keys: Secrets of at least 32 bytes that seal the state passed through callers while an upstream waits for
            their input, make the sessions of older clients known to every replica, and sign the ids of tasks, the
            newest first; by default made for this process, so replicas must share some.
        page_size: Entries on a page of a list; None puts all on one.
        patience: Seconds for which an upstream's question waits for its caller; then the call is given up.
        idle_seconds: Seconds without a call after which a caller's own connections to servers are closed.
        middleware: Functions `async def middleware(request, call_next)` around every request, the first outermost, as
            those of `toolweave.middleware`.
        auth: The authorization of requests over HTTP, such as an `ApiKeyAuth`, a `JwtAuth` or an `OAuthServer`; serving
            it with another replaces it. None allows everyone.
        url: The address that callers know it by, such as `https://tools.example`, where their links to sign in lead; by
            default that of `auth`, or on this machine the one that a request came to.
        token_store: Keeps the tokens of callers who sign in at upstreams; by default the token store of this machine.
        replicas: The state that this replica shares with others beside the keys: parked calls, sessions.
        disclosure: The form in which callers learn of tools: `all` of them; `search`, a tool that searches the others;
            `groups`, a tool that lists those of one server; or `auto`, all up to about 10,000 tokens or 128 tools that
            a caller may use, and a search beyond that.
        slow_call_seconds: Seconds after which a call becomes a task, for callers that take tasks; None for never.
        task_store: Keeps how those tasks began and ended; by default the store of the replicas, else this process.
        task_seconds: Seconds from the start of such a task until it is cancelled and its result may be deleted. The
            result of a call that ended before it was a task, and of a task of a server in a process, is kept as long.

    Raises:
        ConfigError: The config has a section `gateway`, which only `GatewayManager` and `toolweave gateway` apply.
        TypeError: A middleware is not callable, or a setting has another type.
        ValueError: A setting is invalid.
    """
    check_gateway_options(locals())
    info: Json = {"name": name, "version": version} | ({} if title is None else {"title": title})
    if isinstance(source, UnopenedTools) and not isinstance(source, Toolset):
        source = source.unopened()  # of `connect_mcp_servers`, not awaited
    hub = source if isinstance(source, Hub) else Hub(source)
    check_section_applied(gateway_sections(config_source(hub)))
    secrets = GatewaySecrets(
        StateCipher(state_keys, view=name, ttl=patience),
        TaskNames(state_keys),
        None if state_keys is None else SealedSessions(state_keys, replicas),
    )
    parts = GatewayParts.made(secrets, AskingConnections(idle_seconds=idle_seconds), replicas)
    parts = parts._replace(task_seconds=task_seconds)
    gateway = Gateway(
        info,
        hub,
        tools=tools,
        instructions=instructions,
        parts=parts if slow_call_seconds is None else parts.with_slow_calls(slow_call_seconds, task_store),
        page_size=page_size,
        token_store=token_store,
    )
    gateway.auth = auth
    gateway.sign_ins.url = url
    gateway.use(middleware, disclosure=disclosure)
    return gateway


class Gateway(ServerRunners):
    """One endpoint in front of many servers, which loses nothing between them and its callers.

    Made by `create_gateway`.

    Attributes:
        updates: Subscriptions of callers to resources, at the upstreams that have them.
        hub: The upstreams; servers may be added and removed while it is served.
        tools: The tools that callers see: the hub, or a view of it.
        endpoint: Answers the requests of every transport.
        changes: The change notifications and their subscribers.
        perspectives: The lists of the upstreams as callers see them.
        relay: Sends requests to the upstreams.
        routes: Finds the upstream of a name or URI.
        callers: The gateways of its callers, before the servers that are called as them.
        sign_ins: The sign-ins of callers at these servers.
        of_caller: The principal of the only caller it serves; None if it is shared by all callers.
    """

    hub: Hub
    tools: Toolset
    endpoint: Endpoint

    def __init__(
        self,
        info: Mapping[str, Any],
        hub: Hub,
        *,
        tools: Toolset | None = None,
        instructions: str | None = None,
        parts: GatewayParts | None = None,
        page_size: int | None = DEFAULT_PAGE_SIZE,
        token_store: TokenStore | None = None,
        of_caller: str | None = None,
    ) -> None:
        super().__init__()
        self.name: str = str(info["name"])
        self.hub = hub
        self.tools = hub if tools is None else tools
        if parts is None:
            parts = GatewayParts.made(GatewaySecrets(StateCipher(), TaskNames()), AskingConnections())
        self._parts = parts
        self._info = info
        self._page_size = page_size
        self.of_caller: str | None = of_caller
        self.changes: Changes = parts.changes
        self._disclosure = Disclosure(self.tools, "all")
        self._methods: dict[bool, Mapping[str, Method]] = {}
        self._served = 0
        self._judges = False
        self._unheard: list[Callable[[], object]] = []
        self._pages_unheard: Callable[[], object] = nothing_to_end
        self.perspectives: Perspectives = self._made_perspectives()
        self.routes: Routes = self.perspectives.shared.routes
        self.relay: Relay = self._made_relay()
        self.relay.on_leased = self.perspectives.note_leased
        self.callers: CallerGateways = self._made_callers(CallerHubs(hub, token_store))
        self.sign_ins: SignIns = SignIns(self.callers.hubs, parts.groups, parts.replicas)
        self._view: CallerView | None = None
        self._fitter = ArgumentFitter()
        handlers = HandlerRunner(logs=parts.logs)
        local = Tools(self.tools, runner=handlers)
        self._operations = Operations(local, Resources(runner=handlers), Prompts(runner=handlers))
        self.updates: ResourceUpdates = ResourceUpdates(self.perspectives, parts.connections, parts.handshakes)
        self._features = self._made_features(local, instructions)
        features = [self._for_callers(), *self._features] if of_caller is None else self._features
        self.endpoint = Endpoint(
            self._about.info,
            instructions=self._about.instructions,
            features=features,
            before_handshake=self._before_handshake,
        )
        slow = parts.slow is not None
        self._fast = FastCalls(self.tools, self.routes, self.relay, self.endpoint, fitter=self._fitter, slow=slow)
        self._plain_calls = PlainCalls(takes=self._fast.takes, sender=self._fast)
        caller_servers(hub).on_change.append(self.changes.tools_changed)
        hub.on("notification", lambda one, notification: parts.visits.note_notification(one.name, notification))
        self.changes.on_client_notification = self._note_from_client
        for event in ("prompts_changed", "resources_changed", "state"):
            hub.on(event, lambda connection, change: self.routes.forget())

    def _made_relay(self) -> Relay:
        parts = self._parts
        return Relay(
            self.hub,
            logs=parts.logs,
            cipher=parts.secrets.cipher,
            connections=parts.connections,
            parked=parts.parked,
            handshakes=parts.handshakes,
            visits=parts.visits,
            of_caller=self.of_caller is not None,
        )

    def _made_callers(self, hubs: CallerHubs) -> CallerGateways:
        parts = self._parts
        return CallerGateways(hubs, self._before, parts.groups, idle_seconds=parts.connections.idle_seconds)

    def _made_perspectives(self) -> Perspectives:
        return Perspectives(
            self.hub,
            self.tools,
            connections=self._parts.connections,
            handshakes=self._parts.handshakes,
            changes=self.changes,
            stands_in=lambda: self._about.only is not None,
        )

    def _made_features(self, local: Tools, instructions: str | None) -> list[Feature]:
        parts = self._parts
        hub = self.hub
        tasks = self._tasks = UpstreamTasks(hub, self.relay, parts)
        self._lists = Lists(
            hub,
            self.perspectives,
            self.changes,
            support=tasks.support,
            page_size=self._page_size,
            seen=self._seen if self.of_caller is None else None,
            stands_in=lambda: self._about.only is not None,
        )
        handshakes = self.perspectives.handshake.clients
        down = UnreachedUpstreams(hub, self.serves_to_callers, self._view_prefix, self._relays_unlisted)
        about = UpstreamCapabilities(hub, self.tools, self._info, instructions, handshakes=handshakes, unreached=down)
        self._about = about
        listen = Listen(
            self.changes,
            declared=self._declared,
            handshake_declared=self._handshake_declared,
            filters={TASK_IDS: tasks},
            follower=CallerUpdates(self.updates, self.callers, self.is_of_caller),
            view=self._seen,
            own=self._topics,
        )
        return [
            Calls(
                self.perspectives,
                self.relay,
                tasks,
                local=local,
                unreached=down,
                fitter=self._fitter,
                send=self._send_plain,
                slow=self._slow_calls(tasks),
            ),
            self._lists,
            UpstreamSkills(hub, self.perspectives, self.relay, page_size=self._page_size),
            self._about,
            UpstreamLogs(hub, self.changes, parts.logs, parts.handshakes),
            tasks,
            listen,
        ]

    def _relays_unlisted(self) -> str | None:
        """Return the upstream whose unlisted offers callers may use, or None: unlisted offers cannot be judged."""
        return None if self._judges or self._disclosure.mode != "all" else self._about.unfiltered

    def _send_plain(self, request: Request) -> SentToolCall | None:
        """Send a plain call at once; those to the servers of one caller are completed by the gateway of all."""
        if self.of_caller is None:
            return self._fast.send_for(request)
        return None

    def _slow_calls(self, upstream: UpstreamTasks) -> SlowCalls | None:
        slow = self._parts.slow
        groups = self._parts.groups
        if slow is None:
            return None
        return SlowCalls(slow.seconds, tasks=slow.tasks.feature, upstream=upstream, relay=self.relay, groups=groups)

    def _topics(self, request: Request) -> Sequence[str]:
        """Return the names under which changes of a caller's own lists are published."""
        names = self.perspectives.topics(request.client)
        topic = self.callers.topic(request)
        if topic is None:
            return names
        return (*names, topic)

    def _declared(self) -> Json:
        return self.endpoint.capabilities(modern=True)

    def _handshake_declared(self) -> Json:
        return self.endpoint.capabilities(modern=False)

    def _note_from_client(self, method: str, client: Client) -> None:
        """Pass a change of a caller's roots on to the upstreams that can ask for them."""
        if method == NOTIFICATIONS_ROOTS_LIST_CHANGED and client.key is not None:
            self._parts.groups.current().start_soon(self._parts.connections.note_roots_changed, client.key)

    async def _before_handshake(self, request: Request) -> None:
        """Open the connections in the handshake era that a caller will use, whose capabilities its handshake declares.

        A caller that can be asked has its own processes, which start with the first call that needs one.
        """
        handshakes = self._parts.handshakes
        can_be_asked = bool(abilities(object_or_empty(request.params.get("capabilities"))))
        async with anyio.create_task_group() as tasks:
            for shared in self.hub.clients.values():
                own_process = can_be_asked and shared.config.transport == "stdio"
                if not own_process and handshakes.known(shared) is None:
                    tasks.start_soon(handshakes.opened, shared)

    # servers that are called as their callers

    def _for_callers(self) -> Feature:
        """Return the feature that comes before all others."""
        self._first = SignInFirst(self.sign_ins, self._parts.secrets.cipher, self.changes)
        self._requests = CallerRequests(self, self._features, first=self._first, names=self._parts.secrets.tasks)
        return self._requests

    def _before(self, caller: GatewayCaller, hub: Hub) -> Gateway:
        """Return a gateway before the hub of one caller."""
        shown = None if self._view is None else self._view.tools(hub)
        parts = self._parts._replace(changes=OwnChanges(self.changes, caller.topic), slow=None)
        return Gateway(self._info, hub, tools=shown, parts=parts, page_size=self._page_size, of_caller=caller.principal)

    def share_callers(self, other: Gateway, view: CallerView) -> None:
        """Show a part of the servers that another gateway calls as its callers, by the same connections."""
        self.callers.hubs = other.callers.hubs
        self._view = view
        self.sign_ins = self._first.sign_ins = other.sign_ins

    def serves_to_callers(self, server: str) -> bool:
        """Whether anything of a server that is called as its callers is shown."""
        return self._view is None or self._view.serves(server)

    def _view_prefix(self) -> str:
        if self._view is None:
            return ""
        return self._view.prefix

    @property
    def tasks_until(self) -> float:
        """The time until which an upstream may keep a task of this gateway."""
        return self._tasks.until

    async def is_of_caller(self, uri: str, inner: InnerGateway) -> bool:
        """Whether the gateway of a caller has a resource that this one has not."""
        if offer_names(self.hub).holder_of_uri(uri) is not None:
            return False
        await inner.routes.resources(uri)  # learns the names
        return offer_names(inner.hub).holder_of_uri(uri) is not None

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods of an era without middleware, for the gateway in front of this one."""
        if modern not in self._methods:
            found: dict[str, Method] = {}
            for feature in self._features:
                for name, answer in feature.methods(modern=modern).items():
                    found.setdefault(name, answer)
            self._methods[modern] = found
        return self._methods[modern]

    def use(self, middleware: Sequence[Middleware], *, disclosure: DisclosureMode | None = None) -> None:
        """Put middleware around every request from now on, instead of any that is there.

        Args:
            middleware: The middleware, outermost first.
            disclosure: See `create_gateway`; None leaves it as it is.

        Raises:
            TypeError: A middleware is not callable.
            ValueError: The disclosure is not known.
        """
        before = self._disclosure.mode
        given = checked(middleware)
        self._judges = any(getattr(one, "judges_offers", True) for one in given)
        self._disclosure = Disclosure(self.tools, before if disclosure is None else disclosure)
        if self._disclosure.mode == "all":
            outermost = ()
        else:
            outermost = (self._disclosure,)
        if given:
            shown = (PerspectiveLayer(self.perspectives, self), CallerLayer(self._requests))
            layered = (*shown, FittingLayer(self._fitter, self.hub, self.callers), *given)
        else:
            layered = ()
        self.endpoint.use([*outermost, *layered], self)
        self.changes.forget_views()
        if self._disclosure.mode != before:
            self.changes.tools_changed()

    def _seen(self, request: Request, notification: str) -> object:
        inner = self.callers.known(request)
        own = self._lists.view(request, notification)
        if inner is None:
            return own
        return (own, inner.seen(request, notification))

    def seen(self, request: Request, notification: str) -> object:
        """Return the caller's view of the list whose changes a notification announces, for comparison."""
        return self._lists.view(request, notification)

    def asgi_app(self, *, host: str = "127.0.0.1", **options: Unpack[HttpOptions]) -> HttpApp:
        """Return the gateway as an ASGI app; see `McpServer.asgi_app`.

        Raises:
            ConfigError: An option is wrong.
        """
        app = super().asgi_app(host=host, **options)
        self.serve_sign_ins(app, options.get("auth") or self.auth)
        return app

    def serve_sign_ins(self, app: HttpApp, auth: TokenAuth | None) -> None:
        """Serve the pages on which callers sign in, below `/auth`, where callers have names."""
        if auth is None:
            return
        from toolweave.gateway._sign_in.pages import SignInPages  # over HTTP alone

        if self.sign_ins.url is None and auth.resource is not None:
            parts = urlsplit(auth.resource)
            self.sign_ins.url = f"{parts.scheme}://{parts.netloc}"
        auth.kept.wanted = self.callers.hubs.exchange
        own = SignInPages(self.sign_ins, self.name)
        pages: App = own
        if self._parts.replicas is not None:
            from toolweave.gateway._sign_in.pages_elsewhere import PagesOfReplicas

            of_all = PagesOfReplicas(own, self._parts.replicas)
            self._pages_unheard()
            self._pages_unheard = of_all.listen()
            pages = of_all
        app.route("/auth", pages, forms=True)

    # serving

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[anyio.abc.TaskGroup, None]:
        """Open the upstreams and run the gateway's own work; each transport enters it once, any number may.

        Calls that wait for their callers end with it, and with the last of them the connections of callers.
        """
        async with AsyncExitStack() as stack:
            await self.hub.keep_trying()
            await stack.enter_async_context(self.hub)
            await stack.enter_async_context(self.tools)
            if self._parts.slow is None:
                slow = None
            else:
                slow = self._parts.slow.tasks
            if slow is not None and slow.store is not None:
                await stack.enter_async_context(opened_when_reached(slow.store))
            if self._parts.replicas is not None and self.of_caller is None:
                # An address or a password that cannot be right ends the start. Later it would look like an outage.
                await stack.enter_async_context(opened_if_reached(self._parts.replicas.store))
            self._served += 1
            if self._served == 1 and self.of_caller is None:
                own = None if self._view is not None else self.sign_ins
                listening = (self.relay, self._parts.secrets.sessions, own, slow, self._tasks.processes)
                self._unheard = [one.listen() for one in listening if one is not None]
            stack.push_async_callback(self._left)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(self._lists.watch)
            tasks.start_soon(self.perspectives.watch)
            if self.of_caller is None:
                stack.enter_context(self._parts.groups.within(tasks))
                if slow is not None:
                    stack.enter_context(slow.within(tasks))
                tasks.start_soon(self._parts.connections.sweep, self._is_current)
                tasks.start_soon(self._parts.handshakes.sweep)
                tasks.start_soon(self.callers.sweep)
                if self._parts.replicas is not None:
                    await tasks.start(self._parts.replicas.run)
            yield tasks

    def _is_current(self, config: ServerConfig) -> bool:
        """Whether a server is still there; one that is called as its callers is until its settings are gone."""
        connection = self.hub.clients.get(config.name)
        as_callers = caller_servers(self.hub).configs
        return config.name in as_callers or (connection is not None and connection.config is config)

    async def _left(self) -> None:
        self._served -= 1
        if not self._served and self.of_caller is None:
            for end in self._unheard:
                end()
            await self._parts.connections.close()
            await self._parts.handshakes.close()

    def http_endpoint(self) -> ServedEndpoint:
        """Return the gateway as `HttpApp.mounted` takes it, with the sessions that its replicas share."""
        return replace(super().http_endpoint(), peers=self._parts.secrets.sessions, offers=self._offers_before_callers)

    def _offers_before_callers(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, as far as they are known before its caller is looked at."""
        params = self._disclosure.plain(method, params)
        found = self.offers_of(method, params)
        name = params.get("name")
        if found or method != TOOLS_CALL or not isinstance(name, str):
            return found
        spec = self.perspectives.find_tool(name)
        if spec is not None:  # a tool that the connection of some caller has, and the shared one has not
            return (Offered("tools", spec.name, spec.scopes, spec.server),)
        if caller_servers(self.hub).configs or self._relays_unlisted() is not None:
            return (Offered("tools", name, ()),)  # it may exist without being listed, and needs the scopes of its name
        return found

    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, for each upstream that may have them."""
        return self.offers_in(self.routes, method, params)

    def offers_in(self, routes: Routes, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, as the callers see them whose requests take these routes."""
        return [one for offer in self._operations(method, params) for one in routes.offered(offer)]

    async def learn_offers(self, method: str, params: Mapping[str, Any]) -> None:
        """List the definitions that `offers_of` needs from the upstreams for this request."""
        await self.routes.learn(method)

    def restarts(self, server: str) -> int:
        """Return the number of reconnections to an upstream on connections beside that of the hub."""
        return self._parts.connections.restarts(server) + self._parts.handshakes.restarts(server)

    def pin_warnings(self) -> Iterable[str]:
        """Return the differences from the pins on connections beside those of the hub."""
        return pin_differences(self._parts.connections, self._parts.handshakes, self.callers.hubs)

    def find_tool(self, name: str, version: str | None = None) -> ToolSpec | None:
        """Return the definition of a tool that is offered under this name or alias, or None."""
        return self.tools.snapshot().find(name)

    def __repr__(self) -> str:
        tools = len(self.tools.snapshot())
        return f"<Gateway {self.name!r}, {counted(tools, 'tool')}>"
