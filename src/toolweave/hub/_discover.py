"""Discovery of one server's tools in one step, over a new connection or a borrowed one."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, TypeAlias

from toolweave.config import server_config
from toolweave.connect import Callbacks, McpConnection, ask_caller
from toolweave.connect._client_features.callbacks import NO_CALLBACKS
from toolweave.hub._hub import Hub
from toolweave.tools import ToolList, Toolset, expose, filtered, renamed, tools_of
from toolweave.tools.names import given_names

McpClient: TypeAlias = Hub | McpConnection
"""A hub or a connection that `discover_mcp_tools` can borrow."""


class DiscoveredTools(ToolList):
    """The tools of one server and the connection they use.

    Attributes:
        connection: The connection behind the tools.
        toolset: The live toolset behind the tools; it follows changes at the server.
        borrowed: True when the connection belongs to the caller, which closes it.
    """

    __slots__ = ("borrowed", "connection", "toolset")

    def __init__(self, toolset: Toolset, connection: McpConnection, *, borrowed: bool) -> None:
        super().__init__(tools_of(toolset))
        self.connection: McpConnection = connection
        self.toolset: Toolset = toolset
        self.borrowed: bool = borrowed

    async def close(self) -> None:
        """Close the connection, unless it is borrowed."""
        if not self.borrowed:
            await self.connection.close()


class _ToolDiscovery:
    """The tools of one server, for `await` or `async with`; nothing is opened before."""

    def __init__(
        self, config: Any, client: McpClient | None, filters: dict[str, Any], callbacks: Callbacks = NO_CALLBACKS
    ) -> None:
        self._config = config
        self._client = client
        self._filters = filters
        self._callbacks = callbacks
        self._tools: DiscoveredTools | None = None
        self._exit_stack = AsyncExitStack()

    def unopened(self) -> Toolset:
        """Return the tools over a connection that is not open, or over the `client`.

        Raises:
            ConfigError: The config is invalid, or the hub has no connection to this server.
        """
        client = self._client
        if isinstance(client, McpConnection):
            return _view(client, **self._filters)
        config = server_config(self._config)
        if client is None:
            return _view(McpConnection(config, callbacks=self._callbacks), **self._filters)
        if config.name not in client.clients:
            raise config.error("the hub is not connected to this server; await discover_mcp_tools, or give the hub")
        return _view(client.clients[config.name], **self._filters)

    async def _connect_and_list(self) -> DiscoveredTools:
        connection = await self._connection()
        try:
            if not connection.snapshot().version:
                # Lazy, or its first listing failed.
                await connection.refresh()
        except BaseException:
            if self._client is None:
                await connection.close()
            raise
        view = _view(connection, **self._filters)
        self._tools = DiscoveredTools(view, connection, borrowed=self._client is not None)
        return self._tools

    async def _connection(self) -> McpConnection:
        if isinstance(self._client, McpConnection):
            return self._client
        config = server_config(self._config)
        if self._client is not None:
            return await self._client.connect(config.name, config)
        connection = McpConnection(config, callbacks=self._callbacks)
        await connection.open()
        return connection

    def __await__(self) -> Generator[Any, Any, DiscoveredTools]:
        return self._connect_and_list().__await__()

    async def __aenter__(self) -> DiscoveredTools:
        if self._client is None:
            return await self._connect_and_list()
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._client)
            found = await self._connect_and_list()
            self._exit_stack = held.pop_all()
        return found

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._tools is not None:
            await self._tools.close()
        await self._exit_stack.aclose()


def discover_mcp_tools(
    config: Any = None,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    tool_prefix: str | None = None,
    client: McpClient | None = None,
    questions: bool = False,
) -> _ToolDiscovery:
    """Connect to one server and return its tools: `await` it and close the result, or `async with` it.

    Args:
        config: Anything that `connect_mcp` accepts; not needed when `client` is a connection.
        include: Original names of the only tools to return; wins over `exclude`. Empty: all tools. If the server lacks
            one of them, a warning is logged, and the tool appears as soon as the server has it.
        exclude: Original names of tools to leave out.
        tool_prefix: Text to put before each name; None keeps the server's names.
        client: A hub or a connection to use. If it is open, it stays open. Otherwise `async with` opens it for the
            block.
        questions: Leave the server's questions in a call to its caller (`CallContext.questions`). Without effect if
            `client` is given.

    Raises:
        ServerError: The server cannot be reached.
    """
    filters = {"include": given_names(include), "exclude": given_names(exclude), "tool_prefix": tool_prefix}
    callbacks = Callbacks(elicitation=ask_caller) if questions else NO_CALLBACKS
    return _ToolDiscovery(config, client, filters, callbacks)


def _view(
    connection: McpConnection, *, include: tuple[str, ...], exclude: tuple[str, ...], tool_prefix: str | None
) -> Toolset:
    view: Toolset = connection
    if include or exclude:
        view = filtered(view, include=include, exclude=exclude)
    if tool_prefix is not None:
        view = renamed(view, lambda spec: expose(spec.server or "", spec.original_name, tool_prefix))
    return view
