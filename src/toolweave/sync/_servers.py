"""Connections and hubs for synchronous code, opened and closed in the portal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

import toolweave.connect as async_connect
import toolweave.hub as async_hub
from toolweave._json_types import JsonObject
from toolweave.connect import ConnectionState, McpConnection, Report
from toolweave.definitions import Finding, PinChange
from toolweave.hub import Hub
from toolweave.sync._blocking import blocking, with_signature_of
from toolweave.tools import BaseToolset, Tool, ToolList, ToolsChanged, ToolSpec, changes
from toolweave.tools._notebook import server_html, tool_html, tools_html
from toolweave.tools._portal import PORTAL

ToolsetT_co = TypeVar("ToolsetT_co", bound=BaseToolset, covariant=True)


class SyncTool:
    """A tool that is called without awaiting it.

    Attributes:
        wrapped: The async tool; give either to an agent.
    """

    __slots__ = ("wrapped",)

    def __init__(self, wrapped: Tool) -> None:
        self.wrapped: Tool = wrapped

    @property
    def spec(self) -> ToolSpec:
        """The definition."""
        return self.wrapped.spec

    @property
    def name(self) -> str:
        """The exposed name."""
        return self.wrapped.name

    @property
    def description(self) -> str:
        """The tool's description for a model."""
        return self.wrapped.description

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments object."""
        return self.wrapped.input_schema

    execute = blocking(Tool.execute)
    call = blocking(Tool.call)

    def __repr__(self) -> str:
        return f"<Sync{repr(self.wrapped)[1:]}"

    def _repr_html_(self) -> str:
        return tool_html(self.spec)


class SyncToolList(Sequence[SyncTool]):
    """Tools in order, also indexed by name: `tools["fs_read_file"]`."""

    __slots__ = ("wrapped",)

    def __init__(self, wrapped: ToolList) -> None:
        self.wrapped: ToolList = wrapped

    @property
    def names(self) -> tuple[str, ...]:
        """The exposed names, in order."""
        return self.wrapped.names

    @overload
    def __getitem__(self, key: int | str) -> SyncTool: ...
    @overload
    def __getitem__(self, key: slice) -> SyncToolList: ...
    def __getitem__(self, key: int | str | slice) -> SyncTool | SyncToolList:
        if isinstance(key, slice):
            return SyncToolList(self.wrapped[key])
        return SyncTool(self.wrapped[key])

    def __contains__(self, item: object) -> bool:
        return (item.wrapped if isinstance(item, SyncTool) else item) in self.wrapped

    def __len__(self) -> int:
        return len(self.wrapped)

    def __iter__(self) -> Iterator[SyncTool]:
        return map(SyncTool, self.wrapped)

    def __repr__(self) -> str:
        return f"SyncToolList({list(self.names)!r})"

    def _repr_html_(self) -> str:
        return tools_html(tool.spec for tool in self.wrapped)


class SyncToolset(Generic[ToolsetT_co]):
    """A toolset for synchronous code; in a `with` block it is open.

    Attributes:
        wrapped: The async toolset; give either to an agent.
    """

    def __init__(self, wrapped: ToolsetT_co) -> None:
        self._wrapped = wrapped
        self._entered: list[AbstractContextManager[Any]] = []

    @property
    def wrapped(self) -> ToolsetT_co:
        """The async toolset."""
        return self._wrapped

    @property
    def tools(self) -> SyncToolList:
        """The tools offered now: a sequence that is also indexed by name and alias."""
        return SyncToolList(self._wrapped.tools)

    execute = blocking(BaseToolset.execute)

    def filtered(
        self,
        include: Collection[str] = (),
        exclude: Collection[str] = (),
        predicate: Callable[[ToolSpec], bool] | None = None,
    ) -> SyncToolset[BaseToolset]:
        """Return this toolset with some tools only; see `toolweave.tools.filtered`."""
        return SyncToolset(self._wrapped.filtered(include, exclude, predicate))

    def prefixed(self, prefix: str, separator: str = "_") -> SyncToolset[BaseToolset]:
        """Return this toolset with other names; see `toolweave.tools.prefixed`."""
        return SyncToolset(self._wrapped.prefixed(prefix, separator))

    def renamed(self, names: Mapping[str, str] | Callable[[ToolSpec], str]) -> SyncToolset[BaseToolset]:
        """Return this toolset with other names; see `toolweave.tools.renamed`."""
        return SyncToolset(self._wrapped.renamed(names))

    def changes(self) -> Generator[ToolsChanged, None, None]:
        """Iterate over the changes of the tools; none is lost between this call and the first iteration."""

        # Subscribed before this returns. A generator would only subscribe at its first step, and miss what changes
        # until then.
        async def follow() -> Any:
            return changes(self._wrapped)

        return PORTAL.iterate(PORTAL.run(follow))

    def __enter__(self) -> Self:
        entered = PORTAL.enter(self._wrapped)
        entered.__enter__()
        self._entered.append(entered)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._wrapped!r}>"


OpenT_co = TypeVar("OpenT_co", McpConnection, Hub, covariant=True)


class _OpenSyncToolset(SyncToolset[OpenT_co]):
    """A toolset that is open from the beginning, until `close()` or the end of the outermost `with` block.

    A `with` block after that opens it again. Only `close()` is final.
    """

    def __init__(self, wrapped: OpenT_co, *, opened: bool = False) -> None:
        super().__init__(wrapped)
        # The code that opened it counts as its user, until a `with` block takes over.
        self._opened = opened
        if opened:
            PORTAL.hold(wrapped)

    def close(self) -> None:
        """Close it, finally; idempotent, from any thread, bounded."""
        self._opened = False
        PORTAL.run(self.wrapped.close)
        PORTAL.release(self.wrapped)

    def __enter__(self) -> Self:
        if self._opened:
            self._opened = False
            return self
        PORTAL.run(self.wrapped.__aenter__)
        PORTAL.hold(self.wrapped)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        PORTAL.run(lambda: self.wrapped.__aexit__(exc_type, exc, traceback))
        # Blocks may be nested or be in several threads, and the last one to end closes it.
        if not self.wrapped.is_used:
            PORTAL.release(self.wrapped)


class SyncConnection(_OpenSyncToolset[McpConnection]):
    """A connection to one MCP server, for synchronous code; see `toolweave.McpConnection`. Made by `connect_mcp`."""

    def _repr_html_(self) -> str:
        facts = list(filter(None, (str(self.state), self.protocol_version)))
        return server_html(self.name, facts, (tool.spec for tool in self.tools))

    @property
    def name(self) -> str:
        """The server's name."""
        return self.wrapped.name

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        return self.wrapped.state

    @property
    def error(self) -> Exception | None:
        """The last error, or None."""
        return self.wrapped.error

    @property
    def protocol_version(self) -> str | None:
        """The negotiated protocol revision."""
        return self.wrapped.protocol_version

    @property
    def server_info(self) -> JsonObject:
        """The server's name, version and so on, as they came."""
        return self.wrapped.server_info

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model, or None; untrusted."""
        return self.wrapped.instructions

    @property
    def capabilities(self) -> JsonObject:
        """The server's capabilities, as they came."""
        return self.wrapped.capabilities

    @property
    def report(self) -> Report:
        """The steps of the last attempt to connect."""
        return self.wrapped.report

    @property
    def restarts(self) -> int:
        """The number of reconnections after a loss."""
        return self.wrapped.restarts

    @property
    def silent_for(self) -> float:
        """The seconds a request has waited without anything received from the server; 0 when none waits."""

        async def read() -> float:
            return self.wrapped.silent_for  # measured by the clock of the loop, which no other thread has

        return PORTAL.run(read)

    @property
    def stderr_tail(self) -> str:
        """The last lines of the server's standard error, secrets masked."""
        return self.wrapped.stderr_tail

    @property
    def problems(self) -> tuple[str, ...]:
        """Human-readable problems of definitions and results; see `McpConnection.problems`."""
        return self.wrapped.problems

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the scan of definitions and results."""
        return self.wrapped.findings

    @property
    def pin_changes(self) -> tuple[PinChange, ...]:
        """The differences of the server's definitions from the pins."""
        return self.wrapped.pin_changes

    @property
    def pin_problems(self) -> tuple[str, ...]:
        """The same as texts, each with a diff."""
        return self.wrapped.pin_problems

    @property
    def withheld(self) -> Mapping[str, str]:
        """The tools that may not be used until they are allowed, by the server's names, each with the reason."""
        return self.wrapped.withheld

    @property
    def excluded_tools(self) -> Mapping[str, str]:
        """The tools that the config leaves out, by the server's names, each with the reason."""
        return self.wrapped.excluded_tools

    def list_tools(self, prefix: str | None = None, *, timeout: float | None = None) -> SyncToolList:
        """Return the server's tools; see `McpConnection.list_tools`."""
        return SyncToolList(PORTAL.run(lambda: self.wrapped.list_tools(prefix, timeout=timeout)))

    call_tool = blocking(McpConnection.call_tool)
    refresh = blocking(McpConnection.refresh)
    list_resources = blocking(McpConnection.list_resources)
    list_resource_templates = blocking(McpConnection.list_resource_templates)
    read_resource = blocking(McpConnection.read_resource)
    subscribe_resource = blocking(McpConnection.subscribe_resource)
    list_prompts = blocking(McpConnection.list_prompts)
    get_prompt = blocking(McpConnection.get_prompt)
    complete = blocking(McpConnection.complete)
    ping = blocking(McpConnection.ping)
    request = blocking(McpConnection.request)
    set_log_level = blocking(McpConnection.set_log_level)
    set_roots = blocking(McpConnection.set_roots)
    roots_changed = blocking(McpConnection.roots_changed)
    list_skills = blocking(McpConnection.list_skills)
    get_skill = blocking(McpConnection.get_skill)
    load_skill = blocking(McpConnection.load_skill)
    list_directory = blocking(McpConnection.list_directory)


class SyncHub(_OpenSyncToolset[Hub]):
    """Many MCP servers as one toolset, for synchronous code; see `toolweave.Hub`. Made by `connect_mcp_servers`."""

    @property
    def clients(self) -> Mapping[str, SyncConnection]:
        """The connections by server name; they are the hub's to close."""
        return {name: SyncConnection(client) for name, client in self.wrapped.clients.items()}

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The servers that could not be used, each with its error."""
        return self.wrapped.errors

    @property
    def warnings(self) -> list[str]:
        """Human-readable warnings."""
        return self.wrapped.warnings

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the scan of all servers."""
        return self.wrapped.findings

    @property
    def silences(self) -> Mapping[str, float]:
        """The starting servers, each with the seconds without a sign of life."""
        return self.wrapped.silences

    def states(self) -> dict[str, ConnectionState]:
        """Return the state of every server, the failed ones included."""
        return self.wrapped.states()

    def connect(self, name: str, config: Any) -> SyncConnection:
        """Connect one more server; see `Hub.connect`."""
        return SyncConnection(PORTAL.run(lambda: self.wrapped.connect(name, config)))

    def replace(self, name: str, config: Any) -> SyncConnection | None:
        """Connect a server again and return its previous connection, for you to close; see `Hub.replace`."""
        return _facade(PORTAL.run(lambda: self.wrapped.replace(name, config)))

    def detach(self, name: str) -> SyncConnection | None:
        """Remove a server and return its open connection, for you to close; see `Hub.detach`."""
        return _facade(PORTAL.run(lambda: self.wrapped.detach(name)))

    def list_tools(self, server: str | None = None, *, timeout: float | None = None) -> SyncToolList:
        """Return the tools of all servers, or of one; see `Hub.list_tools`."""
        return SyncToolList(PORTAL.run(lambda: self.wrapped.list_tools(server, timeout=timeout)))

    call_tool = blocking(Hub.call_tool)
    complete = blocking(Hub.complete)
    ping = blocking(Hub.ping)
    list_resources = blocking(Hub.list_resources)
    list_resource_templates = blocking(Hub.list_resource_templates)
    read_resource = blocking(Hub.read_resource)
    list_prompts = blocking(Hub.list_prompts)
    get_prompt = blocking(Hub.get_prompt)
    disconnect = blocking(Hub.disconnect)
    refresh = blocking(Hub.refresh)
    settled = blocking(Hub.settled)
    keep_trying = blocking(Hub.keep_trying)


def _facade(connection: McpConnection | None) -> SyncConnection | None:
    if connection is None:
        return None
    return SyncConnection(connection)


@with_signature_of(async_connect.connect_mcp)
def connect_mcp(*args: Any, **kwargs: Any) -> SyncConnection:  # the parameters of the async one
    """Connect to one MCP server and return the open connection; same arguments as `toolweave.connect_mcp`."""
    connection = PORTAL.run(lambda: async_connect.connect_mcp(*args, **kwargs).__aenter__())
    return SyncConnection(connection, opened=True)


@with_signature_of(async_hub.connect_mcp_servers)
def connect_mcp_servers(*args: Any, **kwargs: Any) -> SyncHub:  # the same
    """Connect to many MCP servers at once; same arguments as `toolweave.connect_mcp_servers`."""
    hub = PORTAL.run(lambda: async_hub.connect_mcp_servers(*args, **kwargs).__aenter__())
    return SyncHub(hub, opened=True)
