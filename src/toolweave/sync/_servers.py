"""Connections and hubs for synchronous code, opened and closed in the portal."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import toolweave.connect as async_connect
import toolweave.hub as async_hub
from toolweave.connect import ConnectionState, McpConnection
from toolweave.hub import Hub
from toolweave.sync._blocking import blocking, with_signature_of
from toolweave.sync._toolsets import SyncToolList, SyncToolset
from toolweave.tools._portal import PORTAL

__all__ = ["SyncConnection", "SyncHub", "connect_mcp", "connect_mcp_servers"]

OpenT_co = TypeVar("OpenT_co", McpConnection, Hub, covariant=True)


class _OpenSyncToolset(SyncToolset[OpenT_co]):
    """A toolset that is open from the beginning, until `close()` or the end of a `with` block."""

    def close(self) -> None:
        """Close it; idempotent, from any thread, bounded."""
        PORTAL.run(self.wrapped.close)
        PORTAL.release(self.wrapped)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SyncConnection(_OpenSyncToolset[McpConnection]):
    """A connection to one MCP server, for synchronous code; see `toolweave.McpConnection`. Made by `connect_mcp`."""

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
    def server_info(self) -> Mapping[str, Any]:
        """The server's name, version and so on, as they came."""
        return self.wrapped.server_info

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model, or None; untrusted."""
        return self.wrapped.instructions

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
        """Warnings for people."""
        return self.wrapped.warnings

    def states(self) -> dict[str, ConnectionState]:
        """Return the state of every server, the failed ones included."""
        return self.wrapped.states()

    def connect(self, name: str, config: Any) -> SyncConnection:
        """Connect one more server; see `Hub.connect`."""
        return SyncConnection(PORTAL.run(lambda: self.wrapped.connect(name, config)))

    disconnect = blocking(Hub.disconnect)
    refresh = blocking(Hub.refresh)
    settled = blocking(Hub.settled)


@with_signature_of(async_connect.connect_mcp)
def connect_mcp(*args: Any, **kwargs: Any) -> SyncConnection:  # the parameters of the async one
    """Connect to one MCP server and return the open connection; same arguments as `toolweave.connect_mcp`."""
    connection = PORTAL.run(lambda: async_connect.connect_mcp(*args, **kwargs))
    PORTAL.hold(connection)
    return SyncConnection(connection)


@with_signature_of(async_hub.connect_mcp_servers)
def connect_mcp_servers(*args: Any, **kwargs: Any) -> SyncHub:  # the same
    """Connect to many MCP servers at once; same arguments as `toolweave.connect_mcp_servers`."""
    hub = PORTAL.run(lambda: async_hub.connect_mcp_servers(*args, **kwargs))
    PORTAL.hold(hub)
    return SyncHub(hub)
