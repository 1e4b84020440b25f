"""The public server object: `create_mcp_server` and `McpServer`.

Puts the endpoint, its features and the transports together.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
    runtime_checkable,
)

import anyio
import anyio.abc

from toolweave._json_types import without_none
from toolweave._text import counted
from toolweave.errors import DuplicateToolError
from toolweave.jobs import WorkBackend
from toolweave.protocol.subscriptions import TASK_IDS
from toolweave.serve._changes import Changes
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._folder.served_folder import FolderLike, joined_prompts, joined_resources, joined_tools, parts_of
from toolweave.serve._logs import Logs
from toolweave.serve._mounts import MountedServer, Mounts
from toolweave.serve._offers.decorators import ServerContent
from toolweave.serve._offers.pagination import DEFAULT_PAGE_SIZE
from toolweave.serve._offers.prompts import PromptLike
from toolweave.serve._offers.resources import ResourceLike
from toolweave.serve._offers.selection import ChosenOffers, chosen_tools
from toolweave.serve._operations import Operations
from toolweave.serve._option_types import check_auth, check_offers, check_option_types
from toolweave.serve._plain_calls import PlainCalls
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._request_state import StateSigner
from toolweave.serve._runners import ServerRunners
from toolweave.serve._sampling import AnswersSampling
from toolweave.serve._sessions import SessionRules, Sessions, session_key
from toolweave.serve._subscriptions import Listen
from toolweave.serve._tasks import LocalTasks, TaskBackend, TaskRule, TaskSupport, tasks_kept_by
from toolweave.serve._tools import ExposeErrors, Tools
from toolweave.serve._visibility import Visibility
from toolweave.serve.request import Feature, Json, Middleware, Offered, Request
from toolweave.state import Store
from toolweave.state.startup import opened_when_reached
from toolweave.tools import (
    Alias,
    FunctionTool,
    Tool,
    ToolRegistry,
    Toolset,
    ToolSource,
    ToolSpec,
    combined,
    filtered,
    renamed,
    tool,
)
from toolweave.tools.keep_trying import keep_trying
from toolweave.tools.names import ANY_TOOL, given_names
from toolweave.tools.sources import with_registry

if TYPE_CHECKING:
    from toolweave.jobs import JobWorker
    from toolweave.serve._auth.token_auth import TokenAuth
    from toolweave.serve._tasks.store import TaskStore


P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of a server that are values; see `create_mcp_server`."""

    instructions: str | None = None
    state: Any = field(default_factory=dict[str, Any])  # a mapping, or an object of the author's
    page_size: int | None = DEFAULT_PAGE_SIZE
    expose_errors: ExposeErrors | None = None
    repair_arguments: bool = True
    ttl_ms: int = 0
    cache_scope: str = "private"
    tasks: Mapping[str, TaskSupport | TaskRule] = field(default_factory=dict[str, Any])
    store: Store | None = None
    backend: WorkBackend | None = None
    logging: bool = False
    request_state_keys: Sequence[str | bytes] | None = field(default=None, repr=False)
    auth: TokenAuth | None = None
    middleware: Sequence[Middleware] = ()
    chosen: ChosenOffers = field(default_factory=ChosenOffers)
    sessions: SessionRules = field(default_factory=SessionRules)
    sampling: AnswersSampling | None = None

    def __post_init__(self) -> None:
        check_option_types(self)
        check_auth(self.auth)
        if self.store is not None and self.backend is not None:
            raise ValueError("a backend includes a store; give store= or backend=, not both")
        if self.page_size is not None and self.page_size < 1:
            raise ValueError(f"page_size must be 1 or more, or None for one page, not {self.page_size!r}")
        if self.ttl_ms < 0:
            raise ValueError(f"ttl_ms must be 0 or more, not {self.ttl_ms!r}")


class ServerAbout(TypedDict, total=False):
    """Optional members of a server's description, and the choice among its offers.

    Attributes:
        title: Its human-readable name.
        website_url: Where people read about it.
        icons: Icon objects of the specification.
        include_tags: Offers only tools, and prompts and resources of functions, that have one of these tags.
        exclude_tags: Leaves out those that have one of these tags.
        versions: Offers only these versions, as in `"<2"` or `">=1.2,<2"`, and all that has no version.
        sessions: The bounds of the values that handlers keep of a caller in `ctx.session`; a day and 64 KiB by default.
        sampling: Answers `ctx.sample` for clients that have no model: a `SamplingModel` of `toolweave.models`.
        folder: A folder whose files are parts of it, too: its path, or the result of `folder`.
        repair_arguments: Make arguments fit that nearly do: texts that hold JSON where the schema takes no text, and
            null for optional arguments. By default they are; with False they are errors.
    """

    title: str | None
    website_url: str | None
    icons: Sequence[Mapping[str, Any]]
    include_tags: Iterable[str]
    exclude_tags: Iterable[str]
    versions: str | None
    sessions: SessionRules
    sampling: AnswersSampling | None
    folder: FolderLike | None
    repair_arguments: bool


@runtime_checkable
class AgentLike(Protocol):
    """The part of an agent that a server uses: a name, and itself as a tool."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    def as_tool(self) -> Tool:
        """Return the tool that runs the agent on one `message`."""
        ...


@runtime_checkable
class AgentsLike(Protocol):
    """The part of a registry of agents that a server uses."""

    def list(self) -> Iterable[AgentLike]:
        """Return its agents."""
        ...


def create_mcp_server(  # noqa: PLR0913  # keyword-only, each with a default
    name: str,
    version: str = "0.1.0",
    *,
    instructions: str | None = None,
    tools: ToolSource = (),
    agents: Iterable[AgentLike] | AgentsLike = (),
    resources: ResourceLike | None = None,
    prompts: PromptLike | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    state: Any = None,  # a mapping, or an object of the author's
    page_size: int | None = DEFAULT_PAGE_SIZE,
    expose_errors: ExposeErrors | None = None,
    ttl_ms: int = 0,
    cache_scope: Literal["private", "public"] = "private",
    tasks: Mapping[str, TaskSupport | TaskRule] | None = None,
    store: Store | None = None,
    backend: WorkBackend | None = None,
    logging: bool = False,
    request_state_keys: Sequence[str | bytes] | None = None,
    auth: TokenAuth | None = None,
    middleware: Sequence[Middleware] = (),
    **about: Unpack[ServerAbout],
) -> McpServer:
    """Return an MCP server that offers tools and agents, in every protocol revision.

    Args:
        name: Its name, for programs.
        version: Its own version.
        instructions: Its instructions for models.
        tools: Functions, tools, a registry, a connection, a hub, any other toolset, or a sequence of these.
        agents: Each is offered as the tool `agent_<name>`; an `AgentRegistry` gives all its agents.
            Each call starts a new conversation; an agent that keeps its conversation is given as a tool,
            `tools=[agent.as_tool(keep_conversation=True)]`.
        resources: Results of `@resource`, a `ResourceSource` such as `directory(PATH)`, or a sequence of these.
        prompts: Functions, results of `@prompt`, a `PromptSource`, or a sequence of these.
        include: Offers only these of `tools`, by their own names; it wins over `exclude`. Agents are
            offered when they are in `agents`, regardless of this.
        exclude: Leaves these tools out, and agents by their names or those of their tools.
        state: Dependencies for handlers, as `ctx.state`: a mapping, or any object; a parameter annotated
            `CallContext[AppState]` gives its type.
        page_size: Entries on a page of a list; None puts all on one.
        expose_errors: Whether a client reads the message of an unexpected exception; by default it does over stdio
            and in process, and over HTTP it is masked. Stack traces are in the log only.
        ttl_ms: How long clients may keep lists, in milliseconds.
        cache_scope: `"public"` when every caller is offered the same.
        tasks: The tools whose calls become tasks, by name: `"optional"` makes plain calls of clients without tasks,
            `"required"` refuses them, a `TaskRule` says more.
        store: Keeps tasks and the values that handlers keep of a caller; by default in this process, tasks for an hour.
        backend: Keeps tasks and gives them to workers, so that any replica answers about any task; `handlers` returns
            the code that runs them. Replicas and workers have the same name and backend.
        logging: Send the log messages of `ctx.log`, and declare the capability; MCP has deprecated it.
        request_state_keys: Secrets of at least 32 bytes that sign the state passed through clients while a handler
            waits for their input, the newest first; by default made for this process, so replicas must share some.
        auth: Authorizes requests over HTTP wherever the server is served, unless that is given another: `BearerAuth`,
            `JwtAuth`, `IntrospectionAuth` or `OAuthServer`. Stdio and in-process clients need no token.
        middleware: Functions `async def middleware(request, call_next)` around every request on every transport, the
            first outermost; `toolweave.middleware` has some that are ready to use.
        **about: `title`, its human-readable name; `website_url`, its web page; `icons`, icon objects of the
            specification; `include_tags`, `exclude_tags` and `versions`, which tools, prompts and resources are
            offered; `sessions`, the bounds of the values that handlers keep of a caller; `sampling`, a model for
            clients that have none; `folder`, a folder whose files are parts of it (`folder`); `repair_arguments`,
            which makes arguments fit that nearly do. See `ServerAbout`.

    Raises:
        SchemaError: Naming the tool, the schema and the JSON pointer at fault.
        DuplicateToolError: Two local tools have one name.
        TypeError: An item does not offer tools, or is not middleware.
        ValueError: A setting is invalid, `include` or `exclude` names an unknown tool, or the folder is empty.
    """
    info = _info(name, version, about)
    check_offers(name=name, version=version, include=include, exclude=exclude, **about)
    parts = parts_of(about.get("folder"))
    registry, toolset = with_registry(joined_tools(tools, parts))
    included = frozenset(given_names(include))
    excluded = frozenset(given_names(exclude))
    chosen = ChosenOffers.of(about.get("include_tags", ()), about.get("exclude_tags", ()), about.get("versions"))
    agent_tools = [(_agent_tool(agent), agent.name) for agent in _agents(agents)]
    offered = chosen_tools(toolset, included, excluded, {name for one, own in agent_tools for name in (one.name, own)})
    if chosen:
        offered = filtered(offered, predicate=lambda spec: chosen.keeps(spec.meta))
    runners = [one for one, own in agent_tools if excluded.isdisjoint({one.name, own, ANY_TOOL})]
    if runners:  # which `include` says nothing about: `agents` does
        for one in runners:
            _check_free(one.spec, offered)
        offered = combined(offered, ToolRegistry(runners))
    options = Options(
        instructions=instructions,
        state={} if state is None else state,
        page_size=page_size,
        expose_errors=expose_errors,
        ttl_ms=ttl_ms,
        cache_scope=cache_scope,
        tasks=tasks or {},
        store=store,
        backend=backend,
        logging=logging,
        request_state_keys=request_state_keys,
        auth=auth,
        middleware=middleware,
        chosen=chosen,
        sessions=about.get("sessions") or SessionRules(),
        sampling=about.get("sampling"),
        repair_arguments=about.get("repair_arguments", True),
    )
    return McpServer(
        info,
        registry,
        offered,
        options,
        resources=joined_resources(resources, parts),
        prompts=joined_prompts(prompts, parts),
    )


def _info(name: str, version: str, about: ServerAbout) -> Json:
    """Return the `Implementation` object of a server."""
    unknown = about.keys() - ServerAbout.__annotations__.keys()
    if unknown:
        raise TypeError(f"create_mcp_server() got an unexpected keyword argument {min(unknown)!r}")
    icons = list(about.get("icons", ())) or None
    optional = {"title": about.get("title"), "websiteUrl": about.get("website_url"), "icons": icons}
    return {"name": name, "version": version} | without_none(optional)


def _agents(agents: Iterable[AgentLike] | AgentsLike) -> Iterable[AgentLike]:
    if isinstance(agents, str):
        raise TypeError(f"agents= takes agents, not a name; give an AgentRegistry's get({agents!r})")
    if isinstance(agents, AgentsLike) and not isinstance(agents, (list, tuple)):
        return agents.list()
    return agents


def _check_free(spec: ToolSpec, toolset: Toolset) -> None:
    """Refuse a name that a local tool has, if in another version; a server's tool with it is renamed later."""
    there = toolset.snapshot().find(spec.name)
    if there is None or there.server is not None:
        return
    if None in (there.version, spec.version) or toolset.snapshot().find_version(spec.name, spec.version or ""):
        raise DuplicateToolError(spec.name)


def _sessions(name: str, options: Options) -> Sessions:
    """Return the sessions of a server, in the store that it has."""
    return Sessions(name, options.store if options.backend is None else options.backend.store, options.sessions)


def _runner(options: Options, logs: Logs, sessions: Sessions) -> HandlerRunner:
    """Return the runner of a server's handlers."""
    signer = StateSigner(options.request_state_keys)
    return HandlerRunner(state=options.state, signer=signer, logs=logs, sessions=sessions, sampling=options.sampling)


def _session_of(request: Request) -> Sequence[str]:
    """Return the names under which the changes of a caller's own lists are published."""
    key = session_key(request.client)
    if key is None:
        return ()
    return (key,)


def _agent_tool(agent: AgentLike) -> Tool:
    if not isinstance(agent, AgentLike):  # pyright: ignore[reportUnnecessaryIsInstance]  # strangers pass anything
        raise TypeError(f"agents= takes what has a name and as_tool(), not {type(agent).__name__}")
    made = agent.as_tool()
    if made.name != agent.name:
        return made  # its author named it
    return Tool(*_named(made, f"agent_{agent.name}"))


def _named(made: Tool, name: str) -> tuple[Any, Toolset]:
    other = renamed(made.toolset, {made.name: name})
    return other.snapshot().by_name[name], other


class McpServer(ServerContent, ServerRunners):
    """An MCP server, as made by `create_mcp_server`: the registries of its offers, and the methods that serve it.

    Attributes:
        tools: Everything that is offered as a tool.
        endpoint: Answers the requests of every transport.
        changes: The change notifications and their subscribers.
        backend: The backend of its tasks, or None when they run in this process.
        auth: The authorization of its requests over HTTP, or None.
    """

    def __init__(
        self,
        info: Mapping[str, Any],
        registry: ToolRegistry,
        toolset: Toolset,
        options: Options,
        *,
        resources: ResourceLike = (),
        prompts: PromptLike = (),
    ) -> None:
        super().__init__()
        self.name: str = str(info["name"])
        self.auth: TokenAuth | None = options.auth
        self.tools: Toolset = toolset
        self.changes: Changes = Changes()
        self._registry = registry
        logs = Logs(enabled=options.logging)
        self._store = options.store
        self.backend: WorkBackend | None = options.backend
        self._sessions = _sessions(self.name, options)
        self._runner = _runner(options, logs, self._sessions)
        self._tasks = tasks_kept_by(self.backend, options.tasks, runner=self._runner, backend=self._task_backend())
        self._calls = Tools(
            toolset,
            runner=self._runner,
            tasks=self._tasks,
            page_size=options.page_size,
            expose_errors=options.expose_errors,
            repair_arguments=options.repair_arguments,
        )
        self._plain_calls = PlainCalls(takes=self._calls.is_plain)
        features: list[Feature] = [
            self._calls,
            *self._offer(
                resources,
                prompts,
                changes=self.changes,
                runner=self._runner,
                page_size=options.page_size,
                expose_errors=options.expose_errors,
            ),
            self._tasks,
            logs,
            Listen(self.changes, declared=self._declared, filters={TASK_IDS: self._tasks}, own=_session_of),
        ]
        self.endpoint: Endpoint = Endpoint(
            info,
            instructions=options.instructions,
            features=features,
            ttl_ms=options.ttl_ms,
            cache_scope=options.cache_scope,
        )
        self._chosen = options.chosen
        self._chosen.apply(self.resources.registry, self.prompts.registry)
        self._operations = Operations(self._calls, self.resources, self.prompts)
        self._mounts = Mounts(self, self._use_tools)
        self._visibility = Visibility(self._operations.facts, self._sessions, self.changes)
        self.endpoint.use(self._calls.with_fitting(options.middleware), self)
        self._calls.admit_all()
        self.changes.watch(toolset)

    def _task_backend(self) -> TaskBackend:
        if self.backend is None:
            return LocalTasks(runner=self._runner, changes=self.changes, store=self._store)
        from toolweave.serve._tasks.remote import RemoteTasks  # only where there are workers

        return RemoteTasks(self._task_store(self.backend))

    def _task_store(self, backend: WorkBackend) -> TaskStore:
        from toolweave.serve._tasks.store import TaskStore

        return TaskStore(backend.store, backend.queue, self.name, time.time)

    def _declared(self) -> Json:
        return self.endpoint.capabilities(modern=True)

    # tools, resources and prompts

    @overload
    def tool(self, item: Callable[P, R], /) -> FunctionTool[P, R]: ...
    @overload
    def tool(self, item: Tool, /) -> Tool: ...
    @overload
    def tool(self, /, **options: Any) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
    def tool(self, item: Any = None, /, **options: Any) -> Any:
        """Offer a tool, also while clients are connected; also a decorator, with the options of `@tool`.

        Raises:
            SchemaError: The signature or a schema is wrong; names the tool and the JSON pointer.
            DuplicateToolError: The name is taken.
        """
        if item is None:
            return functools.partial(self._add, options)
        return self._add(options, item)

    def _add(self, options: Mapping[str, Any], item: Any) -> Tool:
        function: Any = item
        made: Tool = item if isinstance(item, Tool) and not options else tool(**options)(function)
        self._calls.admit(made.spec)
        _check_free(made.spec, self.tools)
        return self._registry.add(made)

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool that was given as a function or a tool; a registry's is removed there.

        Raises:
            KeyError: No tool has this name.
        """
        self._registry.remove(name)

    def alias(self, old: str, new: str, *, deprecated: str | bool | None = True, sunset: date | None = None) -> Alias:
        """Add an unlisted alias of a tool; its uses are counted, the first logs a warning.

        Raises:
            DuplicateToolError: The old name is taken.
            KeyError: The tool `new` does not exist.
        """
        return self._registry.alias(old, new, deprecated=deprecated, sunset=sunset)

    @property
    def aliases(self) -> Mapping[str, Alias]:
        """The old names, with the number of their uses."""
        return self._registry.aliases

    def mount(self, server: McpServer | Toolset, namespace: str) -> None:
        """Offer the tools, prompts and resources of another server, below a namespace, and those it offers later.

        Its tools and prompts are named `namespace_name`. Its resources keep their URIs, except those that this server
        has too: they are `namespace+uri`. Its middleware, and its disabled offers, hold as where it is served alone;
        its handlers have its own `state` and sessions; its lifespan is that of this server. The options of requests are
        those of this server: `auth`, `tasks` (by the new names), `sampling`, and whether errors are masked. Another
        toolset has its tools here, and a connection or a hub also its prompts and resources.

        Raises:
            TypeError: `server` is neither a server nor a toolset.
            ValueError: The namespace is not valid, or taken; or the server is this one, or has `auth` or `tasks`.
        """
        if isinstance(server, Toolset):
            self._mounts.add_toolset(server, namespace)
        elif isinstance(server, McpServer):  # pyright: ignore[reportUnnecessaryIsInstance] - a gateway is another class
            for option, given in (("auth", server.auth is not None), ("tasks", bool(server._tasks.rules))):  # noqa: SLF001 - its own kind
                if given:
                    raise ValueError(
                        f"server {server.name!r} has {option}=, which holds only where it is served itself: "
                        f"give {option}= to {self.name!r}"
                    )
            self._mounts.add_server(server, namespace, server._runner)  # noqa: SLF001 - its own kind
        else:
            raise TypeError(
                f"mount() takes a server of create_mcp_server or a Toolset, not {type(server).__name__}; many servers "
                "are put together by a gateway"
            )

    @property
    def mounted(self) -> Sequence[MountedServer]:
        """The servers that are mounted in it."""
        return self._mounts.mounted

    def _use_tools(self, toolset: Toolset) -> None:
        self.tools = toolset
        self._calls.use(toolset)
        self.changes.watch(toolset)

    def enable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Offer tools, prompts and resources that were disabled again, to all callers, and notify all clients.

        Args:
            names: Names, URIs and templates, or the beginning of some with a `*` at its end.
            tags: Tags; offers with one of them are also meant.

        Raises:
            ValueError: Nothing is named.
        """
        self._show(True, names, tags)

    def disable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Stop offering tools, prompts and resources, and notify all clients; requests for them fail as unknown.

        A handler enables them for the session of its caller with `ctx.enable`. Of all rules about an offer the
        last one holds, and rules of a session come after those for all callers. See `enable`.
        """
        self._show(False, names, tags)

    def _show(self, enabled: bool, names: Iterable[str], tags: Iterable[str]) -> None:
        self._visibility.add(enabled, names, tags)
        if self._sessions.visibility is None:
            self._sessions.visibility = self._visibility
            self.endpoint.use((*self.endpoint.middleware, self._visibility), self)

    # while it is served

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[anyio.abc.TaskGroup, None]:
        """Run the server's lifespan; each transport enters it once, any number may.

        Toolsets that are not open are entered; the task group ends with the block.
        """
        async with AsyncExitStack() as stack:
            await keep_trying(self.tools)
            await stack.enter_async_context(self.tools)
            await self._chosen.warn(self.tools, self.resources.registry, self.prompts.registry)
            for kept in (self._store, self.backend):
                if kept is not None:
                    await stack.enter_async_context(opened_when_reached(kept))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            await stack.enter_async_context(self._mounts.lifespans.running(tasks))
            stack.enter_context(self._runner.groups.within(tasks))
            stack.enter_context(self._tasks.within(tasks))
            yield tasks

    def handlers(self) -> Mapping[str, JobWorker[Any]]:
        """Return the jobs that run this server's tasks in a worker: `await work_jobs(server.handlers(), backend)`.

        Each enters what the server needs, as `running` does; enter that around the worker to do so once. Empty when
        the server has no backend, or no tool that becomes a task.
        """
        if self.backend is None or not self._tasks.rules:
            return {}
        from toolweave.jobs import JobWorker
        from toolweave.serve._tasks.worker import TaskJobs

        jobs = TaskJobs(
            self._tasks.rules,
            runner=self._runner,
            tasks=self._task_store(self.backend),
            prepare=self._calls.prepare,
            running=self.running,
        )
        return {jobs.topic.name: JobWorker(jobs)}

    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, with the scopes that their definitions need."""
        return self._operations(method, params)

    def find_tool(self, name: str, version: str | None = None) -> ToolSpec | None:
        """Return the definition of a tool that is offered under this name or alias, or one version of it, or None."""
        return self._calls.find(name, version)

    def __repr__(self) -> str:
        return f"<McpServer {self.name!r}, {counted(len(self.tools.snapshot()), 'tool')}>"
