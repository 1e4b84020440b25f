"""One endpoint over HTTP as an ASGI app: request checks, authorization, and the requests of both eras.

Assembles these parts and runs the server's lifespan. Any ASGI server
can run the app (`serve_http` does it with the server of this room), any framework can mount it.

A mounted app receives no ASGI lifespan; the outer app enters it instead::

    mcp_app = server.asgi_app(path="/mcp")
    app = FastAPI(lifespan=mcp_app.lifespan)      # or Starlette(lifespan=...), or `async with mcp_app.lifespan():`
    app.mount("/tools", mcp_app)                  # the endpoint is /tools/mcp
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from toolweave.errors import ConfigError
from toolweave.schema import load_validator
from toolweave.serve._auth.gate import OperationGate
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._http.asgi import App, Receive, Scope, Send, respond
from toolweave.serve._http.callers import Callers
from toolweave.serve._http.dispatcher import HttpDispatcher
from toolweave.serve._http.fast_path import FastPath
from toolweave.serve._http.guard import AppRoute, Guard, Paths
from toolweave.serve._http.layered import ResponseMaker
from toolweave.serve._http.legacy import LegacyHttp
from toolweave.serve._http.limits import HttpLimits
from toolweave.serve._http.mirrored_headers import MirroredArguments
from toolweave.serve._http.options import CompleteHttpOptions, HttpOptions, check_option_names
from toolweave.serve._http.origins import Origins
from toolweave.serve._http.response import ResponseLimits
from toolweave.serve._http.root_routes import TakesRoutes, add_routes
from toolweave.serve._http.server_cards import ServerCards, host_of_cards
from toolweave.serve._http.session_peers import SessionPeers
from toolweave.serve._http.sessions import HttpSessions
from toolweave.serve._http.shares import HttpShares
from toolweave.serve._plain_calls import PlainCalls
from toolweave.serve._task_spawner import SpawnsTasks, TaskSpawner
from toolweave.serve.request import ChangeSubscriptions, FindOffers
from toolweave.tools.owner_loop import running_loop

if TYPE_CHECKING:
    from toolweave.serve._auth.token_auth import TokenAuth

_log = logging.getLogger("toolweave.serve._http.app")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEndpoint:
    """An endpoint, with the objects that serve its requests over HTTP.

    Attributes:
        endpoint: Answers the requests.
        lifespan: Entered while it is served.
        offers: Returns the offers that a request is about; used to find the scopes that it needs.
        conversations: Notified of every legacy session.
        tool_schema: Returns a tool's input schema by name; used to find tools that mirror arguments into headers.
        on_drain: Called when the shutdown begins, to end idle streams; may be async.
        auth: The authorization of its server, which counts only where its app has it.
        peers: The other processes that serve the same sessions of legacy clients, or None.
        plain: Its plain calls; None where every call takes the way of all requests.
    """

    endpoint: Endpoint
    lifespan: Callable[[], AbstractAsyncContextManager[object]]
    offers: FindOffers
    conversations: ChangeSubscriptions | None = None
    tool_schema: Callable[[str], Mapping[str, Any] | None] | None = None
    on_drain: Sequence[Callable[[], object]] = ()
    auth: TokenAuth | None = None
    peers: SessionPeers | None = None
    plain: PlainCalls | None = None


class HttpApp:
    """The ASGI app of one endpoint, of those that are mounted beside it, and of other apps on the same port.

    All are behind one guard, one authorization and one set of limits.

    Attributes:
        limits: Its resource limits; `serve_http` also applies them.
        path: The path of the endpoint.
        shares: The shares of its callers in limited resources.
        authorizes: Whether requests need a token.
        draining: Whether the shutdown has begun.
        on_hangup: Called by `serve_http` on SIGHUP, which otherwise ends it as SIGTERM does.
    """

    def __init__(self, build: _AppParts) -> None:
        self.limits: HttpLimits = build.settings.limits
        self.path: str = build.settings.path
        self.shares: HttpShares = build.shares
        self.authorizes: bool = build.settings.auth is not None
        self.draining: bool = False
        self.on_hangup: Callable[[], object] | None = None
        self._build = build
        self._app: App | None = None
        self._served: list[tuple[ServedEndpoint, HttpDispatcher, HttpSessions | None]] = []
        self._routes: dict[str, AppRoute] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        kind = scope["type"]
        if kind == "http":
            await self.http(scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    @property
    def http(self) -> App:
        """The app of HTTP requests alone."""
        if self._app is None:
            return _not_running
        return self._app

    def route(
        self,
        path: str,
        app: App,
        *,
        below: bool = True,
        guarded: bool = True,
        authorized: bool = False,
        auth: TokenAuth | None = None,
        forms: bool = False,
        instead: bool = False,
    ) -> Callable[[], None]:
        """Serve another app at a path; return a function that stops it.

        Args:
            path: The path, such as `/metrics`.
            app: The app; it sees the whole path.
            below: Whether it also serves all paths below this one.
            guarded: Whether the guard checks its requests: Host, Origin, content types and sizes.
            authorized: Whether they need a token, where those of the endpoint do.
            auth: The authorization that judges it, instead of that of the endpoint.
            forms: Whether its POST requests may be forms; otherwise they are JSON.
            instead: Whether it replaces an app that is served there.

        Raises:
            ConfigError: The path is taken.
        """
        own = path in (self.path, self._build.settings.health_path)
        if own or (path in self._routes and not instead):
            raise ConfigError(f"path {path!r} is taken")
        if authorized:
            served = self._build.protected(app, auth)[0]
        else:
            served = app
        route = self._routes[path] = AppRoute(app=served, below=below, guarded=guarded, forms=forms)

        def end() -> None:
            if self._routes.get(path) is route:
                del self._routes[path]

        return end

    @property
    def public_paths(self) -> tuple[str, ...]:
        """The paths that clients look for at the root of the host, such as metadata for a sign-in; none without `auth`.

        If the app is mounted below another one, route them to the app there. `serve_at_root` does that in Starlette
        and FastAPI.
        """
        auth = self._build.settings.auth
        if auth is None:
            return ()
        return auth.public_paths()

    def serve_at_root(self, outer: TakesRoutes) -> None:
        """Route the `public_paths` to this app in the application that it is mounted in, after its own routes.

        `lifespan(outer)` does it for you. A path that the application serves itself stays with the application, and a
        warning names it.
        """
        add_routes(outer, self.public_paths, self)
        auth = self._build.settings.auth
        if auth is not None:
            auth.reachable_at_root()

    @asynccontextmanager
    async def mounted(self, path: str, served: ServedEndpoint) -> AsyncGenerator[None]:
        """Serve one more endpoint at a path for the block, replacing one that was mounted there before.

        When the block ends, further requests are answered with 404, unless another one has replaced it, and those
        that run have `HttpLimits.shutdown_seconds` to finish.

        Raises:
            ConfigError: The path is that of the app's own endpoint or health check, or the endpoint's server has an
                authorization, which would be ignored.
        """
        # An error and not a warning: the owner of the mounted server believes that it is protected by this.
        if served.auth is not None and served.auth is not self._build.settings.auth:
            raise ConfigError(
                f"the server at {path!r} has an `auth`, which would be ignored; give it to the app around it"
            )
        auth = self._build.auth_below(path)
        async with self._answering(path, served, auth) as dispatcher:
            fast = dispatcher.fast_path
            app = dispatcher if fast is None else fast.before(dispatcher)  # behind the authorization, as all of it
            end = self.route(path, app, below=False, authorized=True, auth=auth, instead=True)
            own = self._build.settings.auth
            if auth is None or auth is own:
                documents = {}
            else:
                documents = auth.documents()
            self._build.public.update(documents)
            try:
                yield
            finally:
                end()
                self._build.unpublish(documents)
                if self._app is not None and not self.draining:  # else the app ends, and has seen to it
                    with anyio.CancelScope(shield=True):
                        await _end_streams(served, dispatcher)
                        await dispatcher.finish(self.limits.shutdown_seconds)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:
        """Run the app's lifespan for the block; may be entered again afterwards.

        Args:
            app: The application that this one is mounted in, as in `FastAPI(lifespan=mcp_app.lifespan)`. What clients
                look for at the root of the host is served there: see `serve_at_root`.

        Raises:
            RuntimeError: It is entered already, or no asyncio event loop is running.
        """
        running_loop("the ASGI app of an MCP server")
        if self._app is not None:
            raise RuntimeError("the lifespan of this MCP app is entered already")
        if isinstance(app, TakesRoutes):
            self.serve_at_root(app)
        build = self._build
        self.draining = False
        async with AsyncExitStack() as stack:
            if build.settings.auth is not None:
                await stack.enter_async_context(build.settings.auth.running())
                self._end_streams_with_keys(build.settings.auth, stack)
            auth = build.settings.auth
            dispatcher = await stack.enter_async_context(self._answering(self.path, build.served, auth))
            # Last: until then, requests are answered by `_not_running`, and not by a half of the app.
            self._app = build.app(dispatcher, self._route_of)
            try:
                yield
            finally:
                self._app = None

    def _end_streams_with_keys(self, auth: TokenAuth, stack: AsyncExitStack) -> None:
        """End the streams of API keys that are not accepted any more, until the stack is closed."""
        keys = auth.api_keys
        if keys is not None:
            loop = asyncio.get_running_loop()
            # Keys may be replaced in any thread, and streams are cancelled in that of their event loop.
            stack.callback(keys.on_end(partial(loop.call_soon_threadsafe, self.shares.requests.end_streams_of)))

    @asynccontextmanager
    async def _answering(
        self, path: str, served: ServedEndpoint, auth: TokenAuth | None
    ) -> AsyncGenerator[HttpDispatcher]:
        """Run an endpoint for the block, with its sessions and its REST view."""
        build = self._build
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(served.lifespan())
            tasks = await stack.enter_async_context(anyio.create_task_group())
            sessions = build.sessions()
            if sessions is not None:
                tasks.start_soon(sessions.end_idle)
            spawner = TaskSpawner(tasks)
            stack.enter_context(build.described(path, served, auth))
            dispatcher = stack.enter_context(build.dispatcher(served, sessions, spawner, path, auth))
            answering = (served, dispatcher, sessions)
            self._served.append(answering)
            base = "" if served is build.served else path
            for where, view in build.rest(served, dispatcher, spawner, base, auth):
                stack.callback(self.route(where, view, authorized=True, auth=auth, instead=True))
            try:
                yield dispatcher
            finally:
                self._served.remove(answering)
                if sessions is not None:
                    # Before the tasks are cancelled: requests that wait for an answer of their client get an error that
                    # says why.
                    sessions.end_all()
                tasks.cancel_scope.cancel()

    @property
    def sessions(self) -> int:
        """The number of open sessions of legacy clients."""
        return self.shares.figures["sessions"].held

    @property
    def streams(self) -> int:
        """The number of open streams of notifications of legacy clients."""
        return sum(sessions.streams for _, _, sessions in self._served if sessions is not None)

    def serves_host(self, host: bytes | None) -> bool:
        """Whether requests with this `Host` header are served."""
        return self._build.origins.serves(host)

    def _route_of(self, path: str) -> AppRoute | None:
        """Return the route of a path: its own, or the longest above it."""
        above = path = path.rstrip("/")
        while above:
            route = self._routes.get(above)
            if route is not None and (route.below or above == path):
                return route
            above = above.rpartition("/")[0]
        return None

    async def drain(self) -> None:
        """Begin the shutdown: end idle streams, let running calls continue."""
        self.draining = True
        for served, dispatcher, _ in list(self._served):
            await _end_streams(served, dispatcher)

    def abort(self) -> None:
        """Cancel the calls that still run."""
        for _, dispatcher, _ in list(self._served):
            dispatcher.abort()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Speak the ASGI lifespan protocol."""
        await receive()
        started = False
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                started = True
                await receive()
        # Everything, because an ASGI server that gets neither "complete" nor "failed" waits for ever.
        except BaseException as exc:
            phase = "shutdown" if started else "startup"
            await send({"type": f"lifespan.{phase}.failed", "message": f"{type(exc).__name__}: {exc}"})
            raise
        await send({"type": "lifespan.shutdown.complete"})


async def _end_streams(served: ServedEndpoint, dispatcher: HttpDispatcher) -> None:
    """End the idle streams of an endpoint."""
    for end in served.on_drain:
        ended = end()
        if inspect.isawaitable(ended):
            await ended
    dispatcher.end_streams()


_NOT_ENTERED = (
    "the MCP app is not running: its lifespan was not entered. Below another app, enter `mcp_app.lifespan()` in the "
    "outer app's lifespan"
)


async def _not_running(scope: Scope, receive: Receive, send: Send) -> None:
    _log.error(_NOT_ENTERED)
    await respond(send, 500, _NOT_ENTERED)


def http_app(served: ServedEndpoint, *, host: str = "127.0.0.1", options: HttpOptions | None = None) -> HttpApp:
    """Return the ASGI app of an endpoint.

    Args:
        served: The endpoint.
        host: The address that is or will be bound; it determines the accepted Host headers.
        options: See `HttpOptions`.

    Raises:
        ConfigError: An option is wrong.
        TypeError: An option is unknown, or has another type.
    """
    check_option_names("an MCP server over HTTP", options or {})
    load_validator()  # a process that serves loads all of it before it accepts
    return HttpApp(_AppParts(served, host, CompleteHttpOptions(**(options or {}))))


class _AppParts:
    """The validated parts of an app."""

    def __init__(self, served: ServedEndpoint, host: str, settings: CompleteHttpOptions) -> None:
        self.served = served
        self.settings = settings
        self.origins: Origins = Origins(
            host, hosts=settings.allowed_hosts, origins=settings.allowed_origins, cors=settings.cors_origins
        )
        self.public: dict[str, App] = {}
        auth = settings.auth
        resource = None if auth is None else auth.resource
        self._cards = ServerCards(host_of_cards(settings.server_card, resource, settings.path), lists_all=auth is None)
        limits = settings.limits
        self.shares: HttpShares = HttpShares(
            Callers(settings.trusted_proxies), maximum=limits.connections, caller_share=limits.caller_share
        )
        self._bounds = ResponseLimits(
            body_bytes=limits.body_bytes,
            body=limits.body_seconds,
            keepalive=limits.ping_seconds,
            stalled=limits.stalled_seconds,
        )

    def sessions(self) -> HttpSessions | None:
        """Make the table of sessions; None for a stateless endpoint."""
        settings = self.settings
        limits = self.settings.limits
        if settings.stateless:
            return None
        store = settings.event_store
        retry = settings.retry_interval
        seconds = limits.session_idle_seconds
        return HttpSessions(limits.sessions, seconds, store=store, retry=retry, shares=self.shares)

    @contextmanager
    def dispatcher(
        self,
        served: ServedEndpoint,
        sessions: HttpSessions | None,
        spawner: SpawnsTasks,
        path: str,
        auth: TokenAuth | None,
    ) -> Generator[HttpDispatcher]:
        """Make the dispatcher for both eras at a path; for the block it receives messages about sessions."""
        streams = not self.settings.json_response
        gate = OperationGate(served.offers, auth)
        legacy = LegacyHttp(
            served.endpoint,
            spawner,
            sessions=sessions,
            bounds=self._bounds,
            conversations=served.conversations,
            streams=streams,
            peers=served.peers,
            path=path,
        )
        dispatcher = HttpDispatcher(
            served.endpoint,
            legacy,
            spawner,
            mirrored=MirroredArguments(served.tool_schema),
            gate=gate,
            bounds=self._bounds,
            places=self.shares.requests,
            streams=streams,
        )
        if served.plain is not None:
            dispatcher.fast_path = FastPath(
                served.plain,
                served.endpoint.answer,
                guard=self._guard(dispatcher, Paths(public={})),
                acceptable=dispatcher.acceptable,
                gate=gate,
                requests=dispatcher.requests,
                sessions=sessions,
                responses=ResponseMaker(spawner, self._bounds, streams),
            )
        shared = served.peers if sessions is not None else None
        # A stateless endpoint has no sessions, so messages of other processes about them have nobody here.
        with nullcontext() if shared is None else shared.serving(path, legacy.deliver):
            yield dispatcher

    def rest(
        self,
        served: ServedEndpoint,
        dispatcher: HttpDispatcher,
        spawner: SpawnsTasks,
        base: str,
        auth: TokenAuth | None,
    ) -> Sequence[tuple[str, App]]:
        """Return the apps of an endpoint's REST view by path, none unless it is wanted."""
        if not self.settings.rest:
            return ()
        from toolweave.serve._http.rest import RestView  # only where it is wanted

        gate = OperationGate(served.offers, auth)
        schema_of = served.tool_schema
        view = RestView(dispatcher, spawner, gate, self._bounds, schema_of=schema_of, base=base)
        return ((f"{base}/tools", view.call), (f"{base}/openapi.json", view.document))

    def auth_below(self, path: str) -> TokenAuth | None:
        """Return the authorization of an endpoint at another path: below the app's own it is a resource by itself."""
        auth = self.settings.auth
        own = self.settings.path
        # A token for one resource must not open another one (RFC 8707), so an endpoint below has a resource identifier
        # by itself.
        if auth is not None and path.startswith(f"{own}/"):
            return auth.below(path.removeprefix(own))
        return auth

    @contextmanager
    def described(self, path: str, served: ServedEndpoint, auth: TokenAuth | None) -> Generator[None]:
        """Publish the card of an endpoint for the block."""

        def info() -> Mapping[str, Any]:
            return served.endpoint.info

        # A client that can sign in learns from the endpoint how to; one that cannot has to be given a token.
        needs_token = auth is not None and not auth.authorization_servers
        documents = self._cards.add(path, info, needs_token=needs_token, own=served is self.served)
        self.public.update(documents)
        try:
            yield
        finally:
            self._cards.remove(path, info)
            self.unpublish(documents)

    def unpublish(self, documents: Mapping[str, App]) -> None:
        """Remove public documents, unless others have replaced them."""
        for path, document in documents.items():
            if self.public.get(path) is document:
                del self.public[path]

    def protected(self, app: App, auth: TokenAuth | None = None) -> tuple[App, dict[str, App]]:
        """Wrap an app in middleware and authorization; also return the public documents by path."""
        settings = self.settings
        public: dict[str, App] = {}
        if auth is not None:
            # Counted before the token is checked: the check costs work, and a caller without a valid token could ask
            # for it without a bound.
            app = self.shares.before_authorization(auth.authorized(app))
        elif settings.auth is not None:
            app, public = settings.auth.protect(app)
            app = self.shares.before_authorization(app)
        for wrap in reversed(settings.middleware):
            app = wrap(app)
        return app, public

    def app(self, dispatcher: HttpDispatcher, route_of: Callable[[str], AppRoute | None]) -> App:
        """Wrap the endpoint in middleware, authorization and the guard, outermost last.

        The fast path is in front of the guard, whose checks it makes itself, if no other layer has to see its requests.
        """
        settings = self.settings
        fast = dispatcher.fast_path
        # What stands between has to see every request. The fast path is behind it then, and saves only the rest of the
        # way.
        has_layers = settings.auth is not None or bool(settings.middleware)
        inner: App = dispatcher
        if fast is not None and has_layers:
            inner = fast.before(dispatcher)
        app, public = self.protected(inner)
        self.public.update(public)
        paths = Paths(endpoint=settings.path, health=settings.health_path, public=self.public, route_of=route_of)
        guarded = self._guard(app, paths)
        if fast is None or has_layers:
            return guarded
        return fast.before(guarded, settings.path)

    def _guard(self, app: App, paths: Paths) -> Guard:
        limits = self.settings.limits
        return Guard(
            app,
            paths,
            self.origins,
            body_bytes=limits.body_bytes,
            header_bytes=limits.header_bytes,
            header_count=limits.header_count,
        )
