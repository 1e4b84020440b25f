"""One endpoint over HTTP as an ASGI app: request checks, authorization, and the requests of both eras.

Assembles these parts and runs the server's lifespan. Any ASGI server
can run the app (`serve_http` does it with uvicorn), any framework can mount it.

A mounted app receives no ASGI lifespan; the outer app enters it instead::

    mcp_app = server.asgi_app(path="/mcp")
    app = FastAPI(lifespan=mcp_app.lifespan)      # or Starlette(lifespan=...), or `async with mcp_app.lifespan():`
    app.mount("/tools", mcp_app)                  # the endpoint is /tools/mcp
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import anyio
from anyio.abc import TaskGroup

from toolweave.errors import ConfigError
from toolweave.protocol.headers import Mirrored, mirrored_arguments, mirroring_problem
from toolweave.serve._auth.gate import OperationGate
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._http.asgi import App, Receive, Scope, Send, respond
from toolweave.serve._http.dispatcher import HttpDispatcher
from toolweave.serve._http.events import EventStore
from toolweave.serve._http.guard import Guard, Paths
from toolweave.serve._http.legacy import LegacyHttp
from toolweave.serve._http.origins import Origins
from toolweave.serve._http.response import ResponseLimits
from toolweave.serve._http.sessions import HttpSessions
from toolweave.serve._request import ChangeSubscriptions, FindOffers
from toolweave.serve._task_spawner import TaskSpawner
from toolweave.tools._owner_loop import running_loop

if TYPE_CHECKING:
    from toolweave.serve._auth.token_auth import TokenAuth

__all__ = ["HttpApp", "HttpLimits", "HttpOptions", "http_app"]

_log = logging.getLogger("toolweave.serve._http.app")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Resource limits for untrusted clients; each has a safe default.

    Attributes:
        body_bytes: The longest request body; longer ones are refused with 413 and never held.
        header_bytes: Maximum size of a request's headers together (431).
        header_count: Maximum number of a request's headers (431).
        connections: Maximum open connections, and running requests. Beyond it the connection that has been idle for
            longest is closed; when none is idle, requests are refused with 503. None for no bound.
        header_seconds: Timeout of a request's headers, from its first byte or the start of the connection.
        body_seconds: Timeout of a request's body (408).
        keep_alive_seconds: Timeout of an idle connection.
        ping_seconds: The longest silence of an event stream; then a comment is sent, so that no proxy closes it.
        stalled_seconds: How long a client may leave an event stream unread before its call is cancelled.
        sessions: Maximum open sessions of legacy clients; further ones are refused with 503.
        session_idle_seconds: Seconds without a request after which a session is dropped.
        shutdown_seconds: How long running calls may take to finish when the server is asked to stop.
    """

    body_bytes: int = 4 * 1024 * 1024
    header_bytes: int = 32 * 1024
    header_count: int = 100
    connections: int | None = 1000
    header_seconds: float = 10
    body_seconds: float = 30
    keep_alive_seconds: float = 15
    ping_seconds: float = 15
    stalled_seconds: float = 30
    sessions: int = 10_000
    session_idle_seconds: float = 1800
    shutdown_seconds: float = 30

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"HttpLimits.{name} must be more than 0, not {value!r}")


class HttpOptions(TypedDict, total=False):
    """Options for serving an endpoint over HTTP.

    Attributes:
        path: The path of the endpoint; `/mcp`.
        allowed_hosts: Accepted Host names beside that of the bound address: `api.example`, `api.example:8443`, or
            `*` behind a proxy that checks it.
        allowed_origins: Origins whose web pages may send requests.
        cors_origins: Origins whose web pages may also read the answers.
        limits: Resource limits for untrusted clients.
        stateless: Legacy clients get no session: any replica answers any request, and no client can be asked.
        json_response: Never answer with an event stream; notifications before the result are dropped.
        auth: A `BearerAuth`, `JwtAuth`, `IntrospectionAuth` or `OAuthServer`; None allows everyone, but for what needs
            scopes.
        health_path: Answers `ok`; `/healthz`, None for none.
        event_store: Keeps the events of legacy streams for clients that resume them (SSE polling): a
            `MemoryEventStore`, or one of your own.
        retry_interval: The `retry` time that such clients are sent, in milliseconds.
        middleware: Functions that wrap an ASGI app in another; the first is the outermost, all are behind the guard.
    """

    path: str
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    cors_origins: Sequence[str]
    limits: HttpLimits
    stateless: bool
    json_response: bool
    auth: TokenAuth | None
    health_path: str | None
    event_store: EventStore | None
    retry_interval: int | None
    middleware: Sequence[Callable[[App], App]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _HttpSettings:
    """`HttpOptions` with every default filled in."""

    path: str = "/mcp"
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    cors_origins: Sequence[str] = ()
    limits: HttpLimits = HttpLimits()
    stateless: bool = False
    json_response: bool = False
    auth: TokenAuth | None = None
    health_path: str | None = "/healthz"
    event_store: EventStore | None = None
    retry_interval: int | None = None
    middleware: Sequence[Callable[[App], App]] = ()

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or self.path == self.health_path:
            raise ConfigError(f"path {self.path!r} must start with '/' and not be that of the health check")


class HttpApp:
    """The ASGI app of one endpoint.

    Attributes:
        limits: Its resource limits; `serve_http` applies them, too.
        path: The path of the endpoint.
        authorizes: Whether requests need a token.
    """

    def __init__(self, build: _AppParts) -> None:
        self.limits = build.settings.limits
        self.path = build.settings.path
        self.authorizes = build.settings.auth is not None
        self._build = build
        self._app: App | None = None
        self._dispatcher: HttpDispatcher | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        kind = scope["type"]
        if kind == "http":
            if self._app is None:
                _log.error(_NOT_ENTERED)
                await respond(send, 500, _NOT_ENTERED)
                return
            await self._app(scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:
        """Run the app's lifespan for the block; may be entered again afterwards.

        Args:
            app: Ignored; there so that `Starlette(lifespan=mcp_app.lifespan)` works.

        Raises:
            RuntimeError: It is entered already, or no asyncio event loop is running.
        """
        running_loop("the ASGI app of an MCP server")
        if self._app is not None:
            raise RuntimeError("the lifespan of this MCP app is entered already")
        build = self._build
        async with AsyncExitStack() as stack:
            if build.settings.auth is not None:
                await stack.enter_async_context(build.settings.auth.running())
            await stack.enter_async_context(build.lifespan())
            tasks = await stack.enter_async_context(anyio.create_task_group())
            sessions = build.sessions()
            if sessions is not None:
                tasks.start_soon(sessions.end_idle)
            self._dispatcher = build.dispatcher(sessions, tasks)
            self._app = build.app(self._dispatcher)
            try:
                yield
            finally:
                self._app = self._dispatcher = None
                if sessions is not None:
                    sessions.end_all()
                tasks.cancel_scope.cancel()

    async def drain(self) -> None:
        """Begin the shutdown: end idle streams, let running calls continue."""
        for end in self._build.on_drain:
            ended = end()
            if inspect.isawaitable(ended):
                await ended
        if self._dispatcher is not None:
            self._dispatcher.end_streams()

    def abort(self) -> None:
        """Cancel the calls that still run."""
        if self._dispatcher is not None:
            self._dispatcher.abort()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Speak the ASGI lifespan protocol."""
        await receive()
        started = False
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                started = True
                await receive()
        except BaseException as exc:
            phase = "shutdown" if started else "startup"
            await send({"type": f"lifespan.{phase}.failed", "message": f"{type(exc).__name__}: {exc}"})
            raise
        await send({"type": "lifespan.shutdown.complete"})


_NOT_ENTERED = (
    "the MCP app is not running: its lifespan was not entered. Below another app, enter `mcp_app.lifespan()` in the "
    "outer app's lifespan"
)


def http_app(
    endpoint: Endpoint,
    lifespan: Callable[[], AbstractAsyncContextManager[object]],
    *,
    conversations: ChangeSubscriptions | None = None,
    host: str = "127.0.0.1",
    tool_schema: Callable[[str], Mapping[str, Any] | None] | None = None,
    offers: FindOffers,
    on_drain: Sequence[Callable[[], object]] = (),
    options: HttpOptions | None = None,
) -> HttpApp:
    """Return the ASGI app of an endpoint.

    Args:
        endpoint: Answers the requests.
        lifespan: Entered with the app's own lifespan.
        conversations: Notified of every legacy session.
        host: The address that is or will be bound; it determines the accepted Host headers.
        tool_schema: Returns a tool's input schema by name; used to find tools that mirror arguments into headers.
        offers: Returns the offers that a request is about; used to find the scopes that it needs.
        on_drain: Called when the shutdown begins, to end idle streams; may be async.
        options: See `HttpOptions`.

    Raises:
        ConfigError: An option is wrong.
    """
    settings = _HttpSettings(**(options or {}))
    return HttpApp(_AppParts(endpoint, lifespan, conversations, host, tool_schema, offers, tuple(on_drain), settings))


class _AppParts:
    """The validated parts of an app."""

    def __init__(
        self,
        endpoint: Endpoint,
        lifespan: Callable[[], AbstractAsyncContextManager[object]],
        conversations: ChangeSubscriptions | None,
        host: str,
        tool_schema: Callable[[str], Mapping[str, Any] | None] | None,
        offers: FindOffers,
        on_drain: tuple[Callable[[], object], ...],
        settings: _HttpSettings,
    ) -> None:
        self.lifespan = lifespan
        self.on_drain = on_drain
        self.settings = settings
        self._endpoint = endpoint
        self._conversations = conversations
        self._gate = OperationGate(offers, settings.auth)
        self._mirrored = _MirroredArguments(tool_schema)
        self._origins = Origins(
            host, hosts=settings.allowed_hosts, origins=settings.allowed_origins, cors=settings.cors_origins
        )

    def sessions(self) -> HttpSessions | None:
        """Make the table of sessions; None for a stateless endpoint."""
        settings, limits = self.settings, self.settings.limits
        if settings.stateless:
            return None
        store, retry = settings.event_store, settings.retry_interval
        return HttpSessions(limits.sessions, limits.session_idle_seconds, store=store, retry=retry)

    def dispatcher(self, sessions: HttpSessions | None, tasks: TaskGroup) -> HttpDispatcher:
        """Make what answers the requests of both eras."""
        settings, limits = self.settings, self.settings.limits
        bounds = ResponseLimits(
            body_bytes=limits.body_bytes,
            body=limits.body_seconds,
            keepalive=limits.ping_seconds,
            stalled=limits.stalled_seconds,
        )
        streams = not settings.json_response
        spawner = TaskSpawner(tasks)
        legacy = LegacyHttp(
            self._endpoint,
            spawner,
            sessions=sessions,
            bounds=bounds,
            conversations=self._conversations,
            streams=streams,
        )
        return HttpDispatcher(
            self._endpoint,
            legacy,
            spawner,
            mirrored=self._mirrored,
            gate=self._gate,
            bounds=bounds,
            streams=streams,
        )

    def app(self, dispatcher: App) -> App:
        """Wrap the endpoint in middleware, authorization and the guard, outermost last."""
        settings, limits = self.settings, self.settings.limits
        public: dict[str, App] = {}
        app = dispatcher
        if settings.auth is not None:
            app, public = settings.auth.protect(app)
        for wrap in reversed(settings.middleware):
            app = wrap(app)
        return Guard(
            app,
            Paths(endpoint=settings.path, health=settings.health_path, public=public),
            self._origins,
            body_bytes=limits.body_bytes,
            header_bytes=limits.header_bytes,
            header_count=limits.header_count,
        )


_MOST_KNOWN = 20_000


class _MirroredArguments:
    """The arguments that a tool wants in headers (`x-mcp-header`); found once for each definition."""

    def __init__(self, schema_of: Callable[[str], Mapping[str, Any] | None] | None) -> None:
        self._schema_of = schema_of
        self._known: dict[str, tuple[object, Mirrored]] = {}

    def __call__(self, name: str) -> Mirrored:
        schema = None if self._schema_of is None else self._schema_of(name)
        if schema is None:
            self._known.pop(name, None)
            return ()
        known = self._known.get(name)
        if known is None or known[0] is not schema:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()  # of tools that came and went
            # a client drops a tool with a wrong annotation, and sends no headers
            mirrored = () if mirroring_problem(schema) is not None else mirrored_arguments(schema)
            known = self._known[name] = (schema, mirrored)
        return known[1]
