"""One MCP server's tools as a component: mounted while it is entered, and reconfigurable for another user at any time.

Knows how a connection is acquired and released, not how it works or who uses its tools.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast

import anyio

from toolweave._text import counted
from toolweave.compose._pool import McpPool, same_server
from toolweave.config import ServerConfig, merge_config, server_config
from toolweave.config._tool_filters import ANY_TOOL, without
from toolweave.errors import ConfigError, ErrorKind, ToolError
from toolweave.hub import DiscoveredTools, Hub, McpClient, discover_mcp_tools
from toolweave.tools import (
    BaseToolset,
    CallContext,
    ToolCall,
    ToolResult,
    ToolsChanged,
    Toolset,
    ToolSnapshot,
    Unsubscribe,
    traced,
)
from toolweave.tools.names import given_names
from toolweave.tools.toolset import Listeners

if TYPE_CHECKING:
    from toolweave.agent import Run, RunResult

_log = logging.getLogger("toolweave.compose")
HOOK_SECONDS = 10.0
"""Time limit of `on_unmount` in seconds; the connection is closed after it in any case."""
_in_hook: ContextVar[McpTools | None] = ContextVar("toolweave_component_hook", default=None)
"""The component whose `on_mount` or `on_unmount` is executing in this context."""


class McpHooks(TypedDict, total=False):
    """Functions, async or not, that a component calls and waits for.

    An exception of `on_mount`, `on_start` or a tick's hook ends the mount or the run that it is called for;
    exceptions of the other hooks are logged.
    """

    on_mount: Callable[[McpTools], object]
    """Its tools are available."""
    on_unmount: Callable[[McpTools], object]
    """Its tools are about to be removed; the hook has 10 s."""
    on_start: Callable[[Run], object]
    """A run that has its tools starts."""
    on_tick_start: Callable[[Run, int], object]
    """A model request is about to start; steps count from 1."""
    on_tick_end: Callable[[Run, int], object]
    """The model's turn is over and its calls are answered."""
    on_complete: Callable[[RunResult], object]
    """Such a run has ended, and not by an exception."""
    on_error: Callable[[Exception], object]
    """It could not be mounted, or such a run failed. For a mount, a true value continues without the tools."""


class _Hooks:
    """The hooks of one component, called and awaited.

    Raises:
        TypeError: There is no hook of this name, or it cannot be called.
    """

    def __init__(self, hooks: McpHooks) -> None:
        self._hooks = cast("Mapping[str, Callable[..., Any]]", hooks)
        for name, hook in self._hooks.items():
            if name not in McpHooks.__annotations__:
                known = ", ".join(sorted(McpHooks.__annotations__))
                raise TypeError(f"a component has no argument {name!r}; its hooks are {known}")
            if not callable(hook):
                raise TypeError(f"{name}= takes a function, not {type(hook).__name__}")

    async def call(self, name: str, *about: Any) -> Any:
        """Return the value of a hook, None without one."""
        hook = self._hooks.get(name)
        answer = None if hook is None else hook(*about)
        if inspect.isawaitable(answer):
            return await answer
        return answer

    async def notify(self, name: str, *about: Any) -> Any:
        """Call a hook whose exception is only logged, because its subject has ended."""
        try:
            return await self.call(name, *about)
        except Exception:  # boundary: user code
            _log.exception("%s raised", name)
            return None


class McpTools(BaseToolset):
    """The tools of one MCP server, for as long as it is entered.

    Nothing is connected before that. It is a `Toolset`: `Agent(..., tools=[component])`, `agent.tools.add(component)`
    and `agent.send(..., tools=component)` enter it when they need it and exit it afterwards, and so may other code, any
    number of times; the last exit unmounts it. Then exactly its tools are removed. A connection that it opened
    is closed; a borrowed one is not.

    Args:
        server: The server's name.
        config: A config of any type that `connect_mcp` takes; not needed when `client` is connected already.
        include: The only tools to return, by original name; wins over `exclude` and over what the config says.
        exclude: Tools to leave out, by original name, of those that the config includes; `*` is all.
        tool_prefix: Literal prefix of each name; by default that of the config, or none.
        client: A `McpPool`, a hub or a connection to use. If it is open, it stays open.
        runtime_config: Overrides of the config, such as `{"auth": token}` of the user at hand.
        **hooks: See `McpHooks`.

    Attributes:
        hooks: Calls the functions of `**hooks`.
        name: The server's name.
        takes_questions: Whether the server may ask the user in a call (`Agent(questions=True)`); set it before it is
            entered. It has no effect on a borrowed connection.

    Raises:
        ConfigError: At once, when the config is invalid. Entering raises `ServerError`s, unless `on_error` returns
            a true value: then it continues without the tools.
    """

    def __init__(
        self,
        server: str,
        config: Any = None,  # whatever connect_mcp takes
        *,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        tool_prefix: str | None = None,
        client: McpClient | McpPool | None = None,
        runtime_config: ServerConfig | Mapping[str, Any] | None = None,
        **hooks: Unpack[McpHooks],
    ) -> None:
        self.hooks: _Hooks = _Hooks(hooks)
        self._include = given_names(include)
        self._exclude = given_names(exclude)
        self._prefix = tool_prefix
        self._client = client
        self.takes_questions = False
        # A pool has connections for settings, not for names.
        if config is None and (client is None or isinstance(client, McpPool)):
            raise ConfigError("a component needs the config of its server, or a connection", server=server)
        if config is None:
            self._base = None
        else:
            self._base = server_config(config, name=server or None)
        self.name: str = server or ("" if self._base is None else self._base.name)
        self._config = self._merged(runtime_config)
        self._entered = 0
        self._lock = anyio.Lock()
        self._settled: anyio.Event | None = None
        self._opened = AsyncExitStack()
        self._view: Toolset | None = None
        self._unsubscribe: Unsubscribe | None = None
        self._listeners = Listeners()
        self._snapshot = ToolSnapshot()

    @property
    def literal_prefix(self) -> str | None:
        """The explicit `tool_prefix`, or None when the server's name is used."""
        if self._prefix is None and self._config is not None:
            return self._config.tool_prefix
        return self._prefix

    @property
    def mounted(self) -> bool:
        """Whether it has a connection, which may have no tools."""
        return self._view is not None

    async def update(self, runtime_config: ServerConfig | Mapping[str, Any] | None) -> None:
        """Replace the runtime config: unmount, replace, and mount again.

        The new mount has a new connection or one of the pool's for this config, never the old one. Calls during
        the update wait for it; subscribers see one change. Without a connection the config is used by the next mount.

        Raises:
            ConfigError: The merged config is invalid; nothing has changed then.
            ServerError: The new connection failed; the component has no tools then.
        """
        # Before anything is unmounted, so that a config that is invalid costs nothing.
        config = self._merged(runtime_config)
        async with self._lock:
            self._config = config
            if not self._entered:
                return
            self._settled = anyio.Event()
            try:
                await self._unmount()
                await self._mount()
            finally:
                # Also when nothing is there any more.
                self._publish()
                self._settled.set()
                self._settled = None

    # Toolset

    def snapshot(self) -> ToolSnapshot:
        """Return the present tools; none while it is not mounted."""
        return self._snapshot

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Call a tool; a component that is not mounted returns an error result."""
        # A loop, because another update may have begun before this task runs again. Hooks of the update itself do not
        # wait: the update waits for them.
        while self._settled is not None and _in_hook.get() is not self:
            await self._settled.wait()
        if self._view is None:
            text = f"MCP error: server {self.name!r}: its tools are not mounted; enter the component first"
            return ToolResult.failure(ToolError(text, kind=ErrorKind.CLOSED))
        return await self._view.call(call, ctx)

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change, mounts and unmounts included."""
        return self._listeners.subscribe(listener)

    async def __aenter__(self) -> Self:
        async with self._lock:
            if not self._entered:
                await self._mount()
            self._entered += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Bounded: a mount and a close are.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                self._entered = max(0, self._entered - 1)
                if not self._entered:
                    try:
                        await self._unmount()
                    finally:
                        self._publish()

    def __repr__(self) -> str:
        tools = len(self._snapshot)
        return f"<McpTools {self.name!r}: {counted(tools, 'tool')}{'' if self.mounted else ', not mounted'}>"

    # inside

    def _merged(self, runtime: ServerConfig | Mapping[str, Any] | None) -> ServerConfig | None:
        if self._base is None:
            if runtime is not None:
                raise ConfigError("a runtime config needs a config to be laid over", server=self.name)
            return None
        config = merge_config(self._base, runtime)
        if self._client is None or isinstance(self._client, (Hub, McpPool)):
            borrowed = None
        else:
            borrowed = self._client.config
        if borrowed is not None and not same_server(borrowed, config):
            raise self._other_settings(config)
        return config

    async def _mount(self) -> None:
        try:
            async with AsyncExitStack() as opened:
                found = await opened.enter_async_context(self._found())
                self._check(found)
                view = found.toolset
                if "opentelemetry" in sys.modules:
                    # A tracing program has loaded it.
                    view = traced(view)
                self._view = view
                # Before the first `_publish`: a change between the two is then published at once, instead of with the
                # next one.
                self._unsubscribe = view.subscribe(lambda _: self._publish())
                self._publish()
                with self._hook():
                    await self.hooks.call("on_mount", self)
                # Last: until here every error closes the connection again, together with what `on_mount` may have used.
                self._opened = opened.pop_all()
        except BaseException as exc:
            self._forget()
            self._publish()
            if isinstance(exc, Exception) and await self.hooks.notify("on_error", exc):
                _log.warning("continues without a server: %s", exc)
                return
            raise

    async def _unmount(self) -> None:
        """Release the connection; the snapshot stays until `_publish`, so that a remount is one change."""
        try:
            if self._view is not None:
                with anyio.move_on_after(HOOK_SECONDS), self._hook():
                    await self.hooks.notify("on_unmount", self)
        finally:
            self._forget()
            opened = self._opened
            self._opened = AsyncExitStack()
            with anyio.CancelScope(shield=True):
                await opened.aclose()

    @contextmanager
    def _hook(self) -> Generator[None]:
        """Let the hooks called in this block use the tools during an update, for which other callers wait."""
        token = _in_hook.set(self)
        try:
            yield
        finally:
            _in_hook.reset(token)

    def _forget(self) -> None:
        self._view = None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _publish(self) -> None:
        before = self._snapshot
        now = () if self._view is None else self._view.snapshot()
        # Compared: a remount that ends with the same tools is not a change for an agent, whose model would get all
        # definitions again.
        if tuple(before) != tuple(now):
            self._snapshot = ToolSnapshot(now, version=before.version + 1)
            self._listeners.emit(ToolsChanged.between(before, self._snapshot))

    @asynccontextmanager
    async def _found(self) -> AsyncGenerator[DiscoveredTools]:
        """Connect, or borrow a connection, and list the tools; a connection that was opened is closed on exit."""
        async with AsyncExitStack() as held:
            config = self._config
            client = self._client
            include = self._include
            exclude = self._exclude
            if config is not None:
                # Components with different filters share a connection.
                include, exclude = _chosen(include, exclude, config)
                config = config.replace(include=(), exclude=())
            if isinstance(client, McpPool):
                assert config is not None
                client = await held.enter_async_context(client.lease(config))
            elif client is not None:
                # It stays open if it was open.
                await held.enter_async_context(client)
            if isinstance(client, Hub):
                client = await self._of_hub(client)
            found = discover_mcp_tools(
                config,
                include=include,
                exclude=exclude,
                tool_prefix=self.literal_prefix,
                client=client,
                questions=self.takes_questions,
            )
            yield await held.enter_async_context(found)

    async def _of_hub(self, hub: Hub) -> McpClient:
        if self._config is None:
            if self.name not in hub.clients:
                raise hub.errors.get(self.name) or ConfigError("the hub has no such server", server=self.name)
            return hub.clients[self.name]
        connection = await hub.connect(self.name, self._config)
        if not same_server(connection.config, self._config):
            raise self._other_settings(self._config)
        return connection

    def _other_settings(self, config: ServerConfig) -> ConfigError:
        # with the connection as it is, one user's calls would go out under another's name
        return config.error("the client is connected to this server with other settings; give a McpPool as client=")

    def _check(self, found: DiscoveredTools) -> None:
        """Raise if the listed tools are not sufficient; a missing tool was already warned about."""


def _chosen(
    include: tuple[str, ...], exclude: tuple[str, ...], config: ServerConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the filters of a component: its own, else those of the config.

    A component that only excludes does not offer more than the `include` of the config does, nor anything of a config
    that denies all tools.
    """
    if include:
        return include, exclude
    if not exclude:
        return tuple(config.include), tuple(config.exclude)
    left = tuple(without(config.include, exclude))
    # An empty `include` means all tools. If `exclude` removes every included one, the empty rest must not turn into
    # that.
    denies_all = ANY_TOOL in config.exclude or bool(config.include and not left)
    return left, (*exclude, ANY_TOOL) if denies_all else exclude
