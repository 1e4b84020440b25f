"""Servers in another server: their tools, prompts, resources and completions below a namespace, and their middleware.

A mounted server gets its requests within this process, under its own names, so that its middleware and its disabled
offers hold as where it is served alone. Questions of its handlers go to the client of the server that it is mounted in.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import anyio
import anyio.abc

from toolweave._json_types import without_none
from toolweave.config.secret_args import mask_url
from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.component_meta import asking_for
from toolweave.protocol.logs import LogLevel
from toolweave.serve._changes import Changes
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._middleware import chained
from toolweave.serve._mounted_toolsets import OffersMore, ToolsetPrompts, ToolsetResources
from toolweave.serve._namespaces import Namespace
from toolweave.serve._offers.completions import Completions
from toolweave.serve._offers.mounted import UriMember, taken_by
from toolweave.serve._offers.prompts import Prompts, PromptsChanged
from toolweave.serve._offers.resources import Resources, ResourcesChanged, ResourceSource
from toolweave.serve._offers.string_handlers import failure
from toolweave.serve._request_context import HandlerRunner, HasRequest
from toolweave.serve._sessions import ClientSessions
from toolweave.serve._unknown import not_offered
from toolweave.serve.request import CallNext, Json, MayUse, Offered, OfferKind, OfferLookup, Request
from toolweave.tools import (
    CallContext,
    Caller,
    Question,
    ToolCall,
    ToolResult,
    Toolset,
    ToolSnapshot,
    Unsubscribe,
    WrapperToolset,
    prefixed,
)
from toolweave.tools._growing_toolset import GrowingToolset
from toolweave.tools.mcp import call_result, tool_result

_NAMESPACE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_LISTS = frozenset({methods.TOOLS_LIST, methods.PROMPTS_LIST, methods.RESOURCES_LIST, methods.RESOURCES_TEMPLATES_LIST})
_NO_VIEWS: Mapping[str, MayUse] = MappingProxyType({})
_views: ContextVar[Mapping[str, MayUse]] = ContextVar("toolweave_views_of_mounted_servers", default=_NO_VIEWS)
"""The view that each mounted server gives the client whose list is answered, by its namespace."""
_Work: TypeAlias = Callable[[Request, CallContext], Awaitable[Json]]


class MountableServer(OfferLookup, Protocol):
    """The part of a server that another one uses that it is mounted in."""

    name: str
    endpoint: Endpoint
    changes: Changes
    resources: Resources
    prompts: Prompts
    completions: Completions

    @property
    def tools(self) -> Toolset:
        """Everything that is offered as a tool."""
        ...

    @property
    def mounted(self) -> Sequence[MountedServer]:
        """The servers that are mounted in it."""
        ...

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Run its lifespan."""
        ...


class MountedServer(Namespace):
    """One server below a namespace of another one.

    Args:
        server: The server.
        namespace: The namespace.
        runner: The runner of its handlers, with the values that it gives them.

    Attributes:
        tools: Its tools under its own names, called through its middleware.
    """

    def __init__(self, server: MountableServer, namespace: str, runner: HandlerRunner) -> None:
        super().__init__(namespace)
        self.server = server
        self.runner = runner
        self.tools: _MountedTools = _MountedTools(self)

    async def through(self, ctx: CallContext, method: str, params: Json, work: _Work) -> Json:
        """Answer a request of the server's own through its middleware.

        Args:
            ctx: The context of the request at the outer server.
            method: The method.
            params: The parameters, with the server's own names.
            work: Answers the request behind the middleware.

        Raises:
            RequestError: The answer is an error.
        """
        runner = self.runner
        caller = ctx.caller
        assert isinstance(caller, HasRequest)
        outer = caller.request
        inner = ctx.replace(state=runner.state, caller=_MountedCaller(caller, outer, runner))
        sent = {**params, "_meta": outer.meta} if outer.meta else params
        request = outer.replace(method=method, params=sent, server=self.server)
        return await chained(self.server.endpoint.middleware, partial(_behind, work, inner))(request)

    async def view(self, request: Request) -> MayUse | None:
        """Return the filter by which the server's middleware limits a client's view of a list; None for no limit."""
        middleware = self.server.endpoint.middleware
        if not middleware:
            return None
        found: list[MayUse | None] = []

        async def listed(request: Request) -> Json:
            found.append(request.client.may)
            return {member: [] for member in ("tools", "prompts", "resources", "resourceTemplates")}

        # Without the limits of the outer server, which apply anyway: wanted here is the limit of this server alone.
        inner = request.replace(params={}, client=replace(request.client, may=None), server=self.server)
        try:
            await chained(middleware, listed)(inner)
        except RequestError:
            return _nothing
        if found:
            return found[0]
        return _nothing


def _nothing(*offer: Any) -> bool:
    return False


async def _behind(work: _Work, ctx: CallContext, request: Request) -> Json:
    return await work(request, ctx)


class _MountedCaller:
    """The `Caller` of a handler of a mounted server: that of the outer server, with the sessions of the mounted one."""

    __slots__ = ("_outer", "_runner", "request")

    def __init__(self, outer: Any, request: Request, runner: HandlerRunner) -> None:
        self._outer: Caller = outer
        self._runner = runner
        self.request = request

    @property
    def sessions(self) -> ClientSessions:
        return ClientSessions(self._runner.sessions, self.request.client)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._outer.capabilities

    @property
    def client_key(self) -> str | None:
        return self._outer.client_key

    @property
    def principal(self) -> str | None:
        return self._outer.principal

    @property
    def claims(self) -> Mapping[str, Any]:
        return self._outer.claims

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    async def ask(self, questions: Sequence[Question]) -> Sequence[Any]:
        return await self._outer.ask(questions)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        await self._outer.log(level, data, logger)

    async def release(self) -> None:
        await self._outer.release()


class _MountedTools(WrapperToolset):
    """The tools of a mounted server under its own names; a call goes through its middleware."""

    __slots__ = ("_mount",)

    def __init__(self, mount: MountedServer) -> None:
        super().__init__(mount.server.tools)
        self._mount = mount

    def snapshot(self) -> ToolSnapshot:
        return self._mount.server.tools.snapshot()

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        server = self._mount.server
        if not isinstance(ctx.caller, HasRequest):  # a toolset of an agent, say: no server's middleware is around it
            return await server.tools.call(call, ctx.replace(state=self._mount.runner.state))
        spec = server.tools.snapshot().find(call.name)
        if spec is None or spec.version is None:
            name = call.name
        else:
            name = call.name.removesuffix(f"@{spec.version}")
        kept: list[tuple[Json, ToolResult]] = []

        async def work(request: Request, inner: CallContext) -> Json:
            asked = request.text("name")
            # Middleware may have renamed the tool or changed its arguments: its request counts, and not the call as it
            # came.
            called = call.replace(name=call.name if asked == name else asked, arguments=request.object("arguments"))
            result = await server.tools.call(called, inner)
            made = call_result(result, modern=True, output=None if spec is None else spec.output_schema)
            kept.append((made, result))
            return made

        params: Json = {"name": name, "arguments": dict(call.arguments)}
        made = await self._mount.through(ctx, methods.TOOLS_CALL, params, work)
        # The result as it was, unless middleware made another one: whether its error is masked is up to the outer
        # server.
        if kept:
            last, result = kept[-1]
            if made is last or (result.is_error and made.get("isError") is True):
                return result
        return tool_result(made, server=self._mount.namespace)


class MountedPrompts:
    """The prompts of a mounted server; a `PromptSource`."""

    def __init__(self, mount: MountedServer) -> None:
        self._mount = mount
        self._prompts = mount.server.prompts

    async def prompts(self) -> Sequence[Json]:
        """Return the definitions that the server shows to the client that lists."""
        shows = _views.get().get(self._mount.namespace)
        found = await self._prompts.definitions()
        return [
            {**one, "name": self._mount.exposed(one["name"])}
            for one in found
            if shows is None or shows("prompts", one["name"], self._prompts.scopes(one["name"]))
        ]

    async def get(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> Json | None:
        """Return the members of a `GetPromptResult`, or None when it has no such prompt."""
        own = self._mount.own_name(name)
        if own is None or not await self._prompts.offers(own):
            return None

        async def work(request: Request, inner: CallContext) -> Json:
            asked = request.text("name")
            try:
                found = await self._prompts.answer(asked, request.object("arguments"), inner)
            except Exception as exc:  # boundary: user code
                raise failure(f"prompt {name!r}", exc, request, expose=None) from None
            if found is None:
                raise not_offered("prompts", name, modern=request.modern)
            return found

        params: Json = {"name": own, "arguments": dict(arguments)}
        return await self._mount.through(ctx, methods.PROMPTS_GET, params, work)

    def definition(self, name: str, version: str | None = None) -> Json | None:
        """Return the definition of a prompt, or None."""
        own = self._mount.own_name(name)
        if own is None:
            found = None
        else:
            found = self._prompts.definition(own, version)
        if found is None:
            return None
        return {**found, "name": name}

    def scopes(self, name: str, version: str | None = None) -> tuple[str, ...]:
        """Return the scopes that a prompt needs."""
        own = self._mount.own_name(name)
        if own is None:
            return ()
        return self._prompts.scopes(own, version)

    def subscribe(self, listener: Callable[[PromptsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change."""
        return self._prompts.subscribe(listener)


class MountedResources:
    """The resources of a mounted server; a `ResourceSource`. URIs stay as they are unless an earlier source has them.

    Args:
        mount: The server.
        earlier: The sources that are asked before it.
    """

    def __init__(self, mount: MountedServer, earlier: Sequence[ResourceSource]) -> None:
        self._mount = mount
        self._earlier = earlier
        self._resources = mount.server.resources

    async def resources(self) -> Sequence[Json]:
        """Return the definitions that the server shows to the client that lists."""
        return await self.beside("uri", await taken_by(self._earlier, "uri"))

    async def templates(self) -> Sequence[Json]:
        """Return the definitions of its templates, likewise."""
        return await self.beside("uriTemplate", await taken_by(self._earlier, "uriTemplate"))

    async def beside(self, member: UriMember, taken: Collection[str]) -> Sequence[Json]:
        """Return the definitions of its resources or templates where others have these URIs."""
        shows = _views.get().get(self._mount.namespace)
        own = self._resources
        found = await (own.definitions() if member == "uri" else own.template_definitions())
        return [
            {**one, member: self._mount.qualified(one[member]) if one[member] in taken else one[member]}
            for one in found
            if shows is None or shows("resources", one[member], self._resources.scopes(one[member]))
        ]

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Return the members of a `ReadResourceResult`, or None when it has no such resource."""
        own = self._mount.own_uri(uri)

        async def work(request: Request, inner: CallContext) -> Json:
            asked = request.text("uri")
            try:
                found = await self._resources.answer(asked, inner)
            except Exception as exc:  # boundary: user code
                raise failure(f"reading resource {mask_url(uri)!r}", exc, request, expose=None) from None
            if found is None:
                raise not_offered("resources", own, modern=request.modern)
            return found

        try:
            found = await self._mount.through(ctx, methods.RESOURCES_READ, {"uri": own}, work)
        except RequestError as exc:
            if exc.message == not_offered("resources", own, modern=True).message:
                return None  # it has none, or shows none to this caller; another source may
            raise
        contents = [{**one, "uri": uri} if one.get("uri") == own else one for one in found.get("contents", ())]
        return {**found, "contents": contents}

    def definition(self, uri: str, version: str | None = None) -> Json | None:
        """Return the definition that matches a URI, or None."""
        return self._resources.definition(self._mount.own_uri(uri), version)

    def scopes(self, uri: str, version: str | None = None) -> tuple[str, ...]:
        """Return the scopes that it needs."""
        return self._resources.scopes(self._mount.own_uri(uri), version)

    async def learn(self) -> None:
        """Have the sources that are mounted in the server read their lists."""
        await self._resources.learn()

    def offered(self, uri: str, version: str | None) -> Sequence[Offered]:
        """Return the offers of the server that a request for a URI may be about."""
        params: Json = {"uri": self._mount.own_uri(uri), "_meta": asking_for(version)}
        return self._mount.server.offers_of(methods.RESOURCES_READ, params)[1:]  # without the URI itself

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Call `listener` after every change; of a resource under each of its URIs."""

        def changed(change: ResourcesChanged) -> None:
            listener(change)
            if change.uri is not None:
                listener(ResourcesChanged(self._mount.qualified(change.uri)))

        return self._resources.subscribe(changed)


class MountedCompletions:
    """The completions of a mounted server; a `CompletionSource`."""

    def __init__(self, mount: MountedServer) -> None:
        self._mount = mount

    @property
    def offered(self) -> bool:
        """Whether the server completes anything."""
        return self._mount.server.completions.offered

    async def complete(self, kind: str, name: str, request: Request, ctx: CallContext) -> Json | None:
        """Return the result for an argument of something of the server, or None for that of another."""
        server = self._mount.server
        member = "name" if kind == "prompt" else "uri"
        if kind == "prompt":
            own = self._mount.own_name(name)
        else:
            own = self._mount.own_uri(name)
        if kind == "prompt":
            offers = server.prompts.offers
        else:
            offers = server.resources.offers
        if own is None or not await offers(own):
            return None
        params = {**request.params, "ref": {**request.object("ref"), member: own}}
        return await self._mount.through(ctx, methods.COMPLETION_COMPLETE, params, server.completions.answer)


class MountsView:
    """Middleware of the outer server: limits the offers of each mounted server to those it shows to the client.

    Args:
        mounts: The mounted servers, also those to come.
    """

    reads_results = False

    def __init__(self, mounts: Sequence[MountedServer]) -> None:
        self._mounts = mounts

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request; limit a list to the offers that the middleware of each mounted server leaves."""
        if request.method not in _LISTS:
            return await call_next(request)
        views = {one.namespace: await one.view(request) for one in self._mounts}
        narrowed = without_none(views)
        if not narrowed:
            return await call_next(request)
        client = replace(request.client, may=partial(self._may, request.client.may, narrowed))
        token = _views.set(narrowed)
        try:
            return await call_next(request.replace(client=client))
        finally:
            _views.reset(token)

    def _may(
        self,
        before: MayUse | None,
        views: Mapping[str, MayUse],
        kind: OfferKind,
        name: str,
        scopes: Iterable[str] = (),
        server: str | None = None,
        /,
    ) -> bool:
        """Whether a client sees an offer; prompts and resources are narrowed where it is known whose they are."""
        scopes = tuple(scopes)
        if before is not None and not before(kind, name, scopes, server):
            return False
        if kind != "tools":
            return True
        for mount in self._mounts:
            own = mount.own_name(name)
            view = views.get(mount.namespace)
            spec = None if own is None or view is None else mount.server.find_tool(own)
            if spec is None or view is None:
                continue
            if not view("tools", spec.name, spec.scopes, spec.server):
                return False
        return True


class Mounts:
    """The mounts of a server: servers, and toolsets, some with prompts and resources.

    Args:
        outer: The server.
        use_tools: Has it offer the tools of another toolset.

    Attributes:
        mounted: The mounted servers, in order.
        lifespans: The lifespans of the mounts.
    """

    def __init__(self, outer: MountableServer, use_tools: Callable[[Toolset], None]) -> None:
        self.mounted: list[MountedServer] = []
        self.lifespans = Lifespans()
        self._outer = outer
        self._use_tools = use_tools
        self._namespaces: set[str] = set()

    def add_server(self, server: MountableServer, namespace: str, runner: HandlerRunner) -> None:
        """Mount a server; see `McpServer.mount`.

        Args:
            server: The server.
            namespace: The namespace.
            runner: The runner of its handlers.
        """
        self._check_free(namespace)
        outer = self._outer
        # At any depth: a request would go round until the stack ends.
        if _holds(server, outer):
            raise ValueError(f"server {outer.name!r} cannot be mounted in itself")
        mount = MountedServer(server, namespace, runner)
        self._add_tools(prefixed(mount.tools, namespace))
        outer.prompts.add(MountedPrompts(mount))
        outer.resources.add(MountedResources(mount, outer.resources.sources))
        outer.completions.sources.append(MountedCompletions(mount))
        server.changes.passed_on.append(outer.changes)
        if not self.mounted:
            outer.endpoint.use((*outer.endpoint.middleware, MountsView(self.mounted)), outer)
        self.mounted.append(mount)
        self._take(server, namespace)

    def add_toolset(self, toolset: Toolset, namespace: str) -> None:
        """Mount a toolset, and of a connection or a hub also its prompts and resources; see `McpServer.mount`."""
        self._check_free(namespace)
        self._add_tools(prefixed(toolset, namespace))
        if isinstance(toolset, OffersMore):
            names = Namespace(namespace)
            outer = self._outer
            outer.prompts.add(ToolsetPrompts(toolset, names))
            outer.resources.add(ToolsetResources(toolset, names, outer.resources.sources))
        self._take(toolset, namespace)

    def _check_free(self, namespace: str) -> None:
        if not _NAMESPACE.fullmatch(namespace):
            raise ValueError(
                f"{namespace!r} is not a namespace: a letter and at most 62 letters, digits, '_' and '-' are expected"
            )
        if namespace in self._namespaces:
            raise ValueError(f"namespace {namespace!r} of server {self._outer.name!r} is taken")

    def _take(self, mounted: MountableServer | Toolset, namespace: str) -> None:
        self.lifespans.add(mounted)
        self._namespaces.add(namespace)

    def _add_tools(self, toolset: Toolset) -> None:
        tools = self._outer.tools
        if not isinstance(tools, GrowingToolset):
            tools = GrowingToolset(tools)
            self._use_tools(tools)
        tools.add(toolset)


def _holds(server: MountableServer, other: MountableServer) -> bool:
    """Whether a server is another one, or has it mounted, at any depth."""
    return server is other or any(_holds(one.server, other) for one in server.mounted)


@runtime_checkable
class _HasLifespan(Protocol):
    def running(self) -> AbstractAsyncContextManager[Any]: ...


class Lifespans:
    """Servers, and context managers such as toolsets, that run as long as the server they are mounted in.

    Those added before the server runs are entered in order, before the server answers; those added later are entered
    at once, and one that is not entered yet answers as if it were not open.
    """

    def __init__(self) -> None:
        self._things: list[Any] = []
        self._runs: list[anyio.abc.TaskGroup] = []

    def add(self, thing: Any) -> None:
        """Let something run with the server."""
        self._things.append(thing)
        for tasks in self._runs:
            tasks.start_soon(_keep_running, thing)

    @asynccontextmanager
    async def running(self, tasks: anyio.abc.TaskGroup) -> AsyncGenerator[None, None]:
        """Run everything during the block; `tasks` runs those added meanwhile."""
        async with AsyncExitStack() as stack:
            for thing in tuple(self._things):
                await stack.enter_async_context(_lifespan(thing))
            self._runs.append(tasks)
            stack.callback(self._runs.remove, tasks)
            yield


def _lifespan(thing: Any) -> AbstractAsyncContextManager[Any]:
    if isinstance(thing, _HasLifespan):
        return thing.running()
    return thing


async def _keep_running(thing: Any) -> None:
    async with _lifespan(thing):
        await anyio.sleep_forever()
