"""The public object: a gateway in front of the servers of a hub.

Puts the relay, the lists and the transports together; each feature is a file beside this one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.abc

from toolweave.gateway._calls import Calls
from toolweave.gateway._capabilities import UpstreamCapabilities
from toolweave.gateway._connections import AskingConnections
from toolweave.gateway._lists import Lists
from toolweave.gateway._logs import UpstreamLogs
from toolweave.gateway._parked_calls import ParkedCalls
from toolweave.gateway._parking import Parking
from toolweave.gateway._relay import Relay
from toolweave.gateway._replicas import Replicas
from toolweave.gateway._routes import Routes
from toolweave.gateway._sealed_state import StateCipher
from toolweave.gateway._shared_sessions import SealedSessions
from toolweave.gateway._tasks import TaskNames, UpstreamTasks
from toolweave.gateway._updates import ResourceUpdates
from toolweave.hub import Hub
from toolweave.hub._offers import HubOffers
from toolweave.serve._changes import Changes
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._logs import Logs
from toolweave.serve._offers.prompts import Prompts
from toolweave.serve._offers.resources import Resources
from toolweave.serve._operations import Operations
from toolweave.serve._request import Feature, Json, Middleware, Offered
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._request_state import TTL_SECONDS
from toolweave.serve._runners import ServerRunners
from toolweave.serve._subscriptions import Listen
from toolweave.serve._task_spawner import ServingGroups
from toolweave.serve._tools import Tools
from toolweave.tools import Toolset, ToolSpec
from toolweave.version import VERSION

if TYPE_CHECKING:
    from toolweave.serve._auth.token_auth import TokenAuth
    from toolweave.serve._http.app import ServedEndpoint

__all__ = ["Gateway", "GatewaySecrets", "create_gateway"]


def create_gateway(  # noqa: PLR0913  # keyword-only, each with a default of its own
    source: Any,
    *,
    name: str = "toolweave",
    version: str = VERSION,
    title: str | None = None,
    instructions: str | None = None,
    tools: Toolset | None = None,
    state_keys: Sequence[str | bytes] | None = None,
    page_size: int | None = 100,
    patience: float = TTL_SECONDS,
    idle_seconds: float = 300.0,
    middleware: Sequence[Middleware] = (),
    auth: TokenAuth | None = None,
    replicas: Replicas | None = None,
) -> Gateway:
    """Return a gateway: one MCP server in front of many, in every revision on either side.

    Serving it opens the servers, and closes them if they were not open. Tools and prompts are named `server_name`, or
    by the server's `tool_prefix`; resources keep their URIs, unless two servers have the same one.

    Args:
        source: A `Hub`, or what a hub is made of: a config file of any editor, a mapping, a `LoadedConfig`.
        name: Its name, for programs.
        version: Its own version.
        title: Its name for people.
        instructions: Its instructions for models; by default those of the upstreams.
        tools: The tools that callers see: a view of the hub, such as `hub.filtered([...])`; by default all.
        state_keys: Secrets of at least 32 bytes that seal the state passed through callers while an upstream waits for
            their input, make the sessions of older clients known to every replica, and sign the ids of tasks, the
            newest first; by default made for this process, so replicas must share some.
        page_size: Entries on a page of a list; None puts all on one.
        patience: Seconds for which an upstream's question waits for its caller; then the call is given up.
        idle_seconds: Seconds without a call after which a caller's own connection to a server is closed.
        middleware: Functions `async def middleware(request, call_next)` around every request, the first outermost, as
            those of `toolweave.middleware`.
        auth: The authorization of requests over HTTP, such as an `ApiKeyAuth`, a `JwtAuth` or an `OAuthServer`; serving
            it with another takes its place. None allows everyone.
        replicas: What this replica shares with others beside the keys: parked calls, what sessions remember.

    Raises:
        TypeError: Something is no middleware.
        ValueError: A setting is invalid.
    """
    if replicas is not None and state_keys is None:
        raise ValueError("replicas share their state_keys, too")
    if page_size is not None and page_size < 1:
        raise ValueError(f"page_size must be 1 or more, or None for one page, not {page_size!r}")
    info: Json = {"name": name, "version": version} | ({} if title is None else {"title": title})
    hub = source if isinstance(source, Hub) else Hub(source)
    secrets = GatewaySecrets(
        StateCipher(state_keys, ttl=patience),
        TaskNames(state_keys),
        None if state_keys is None else SealedSessions(state_keys, replicas),
    )
    connections = AskingConnections(idle_seconds=idle_seconds)
    gateway = Gateway(
        info,
        hub,
        tools=tools,
        instructions=instructions,
        secrets=secrets,
        connections=connections,
        page_size=page_size,
        replicas=replicas,
    )
    gateway.auth = auth
    gateway.endpoint.use(middleware, gateway)
    return gateway


class GatewaySecrets(NamedTuple):
    """The keys of a gateway, by what they are for.

    Attributes:
        cipher: Seals the state of rounds of input.
        tasks: Signs the ids of tasks.
        sessions: Makes the sessions of legacy clients known to all replicas; None keeps them in this process.
    """

    cipher: StateCipher
    tasks: TaskNames
    sessions: SealedSessions | None = None


class Gateway(ServerRunners):
    """One endpoint in front of many servers, which loses nothing between them and its callers.

    Made by `create_gateway`.

    Attributes:
        hub: The upstreams; servers may be added and removed while it is served.
        tools: The tools that callers see: the hub, or a view of it.
        endpoint: Answers the requests of every transport.
        changes: The change notifications and their subscribers.
        relay: Sends requests to the upstreams.
        routes: Finds the upstream of a name or URI.
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
        secrets: GatewaySecrets | None = None,
        connections: AskingConnections | None = None,
        page_size: int | None = 100,
        replicas: Replicas | None = None,
    ) -> None:
        super().__init__()
        self.name = str(info["name"])
        self.hub = hub
        self.tools = hub if tools is None else tools
        self.changes = Changes()
        self._groups = ServingGroups("calls to upstreams run")
        self._connections = AskingConnections() if connections is None else connections
        self._served = 0
        cipher, names, self._sessions = GatewaySecrets(StateCipher(), TaskNames()) if secrets is None else secrets
        self._replicas = replicas
        self._parked = ParkedCalls(Parking(seconds=cipher.ttl), self._groups, replicas)
        self._unheard: list[Callable[[], object]] = []
        logs, offers = Logs(enabled=True), HubOffers(hub)
        self.routes = Routes(hub, self.tools, offers)
        self.relay = Relay(
            hub,
            logs=logs,
            cipher=cipher,
            connections=self._connections,
            parked=self._parked,
        )
        handlers = HandlerRunner(logs=logs)
        local = Tools(self.tools, rounds=handlers)
        tasks = UpstreamTasks(hub, self.relay, names)
        self._lists = Lists(hub, self.tools, offers, self.changes, support=tasks.support, page_size=page_size)
        about = UpstreamCapabilities(hub, self.tools, info, instructions)
        listen = Listen(
            self.changes,
            declared=self._declared,
            filters={"taskIds": tasks},
            follower=ResourceUpdates(offers),
            view=self._lists.view,
        )
        features: list[Feature] = [
            Calls(hub, self.routes, self.relay, tasks, local=local),
            self._lists,
            about,
            UpstreamLogs(hub, self.changes, logs),
            tasks,
            listen,
        ]
        self.endpoint = Endpoint(about.info, instructions=about.instructions, features=features)
        for event in ("prompts_changed", "resources_changed", "state"):
            hub.on(event, lambda connection, change: self.routes.forget())
        self._operations = Operations(local, Resources(rounds=handlers), Prompts(rounds=handlers))

    def _declared(self) -> Json:
        return self.endpoint.capabilities(modern=True)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[anyio.abc.TaskGroup, None]:
        """Open the upstreams and run the gateway's own work; each transport enters it once, any number may.

        Calls that wait for their callers end with it, and with the last of them the connections of callers.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.hub)
            await stack.enter_async_context(self.tools)
            self._served += 1
            if self._served == 1:
                self._unheard = [one.listen() for one in (self._parked, self._sessions) if one is not None]
            stack.push_async_callback(self._left)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            stack.enter_context(self._groups.within(tasks))
            tasks.start_soon(self._connections.sweep)
            tasks.start_soon(self._lists.watch)
            if self._replicas is not None:
                await tasks.start(self._replicas.run)
            yield tasks

    async def _left(self) -> None:
        self._served -= 1
        if not self._served:
            for end in self._unheard:
                end()
            await self._connections.close()

    def http_endpoint(self) -> ServedEndpoint:
        """Return the gateway as `HttpApp.mounted` takes it, with the sessions that its replicas share."""
        return replace(super().http_endpoint(), peers=self._sessions)

    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, for each upstream that may have them."""
        return [one for offer in self._operations(method, params) for one in self.routes.offered(offer)]

    async def learn_offers(self, method: str, params: Mapping[str, Any]) -> None:
        """List what `offers_of` needs to know of the upstreams for this request."""
        await self.routes.learn(method)

    def find_tool(self, name: str) -> ToolSpec | None:
        """Return the definition of a tool that is offered under this name or alias, or None."""
        return self.tools.snapshot().find(name)

    def __repr__(self) -> str:
        return f"<Gateway {self.name!r}, {len(self.tools.snapshot())} tools>"
