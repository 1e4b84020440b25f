"""Factories of components: one server's tool, or all of its tools, defined once and used in many agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from toolweave.compose._mcp_tools import McpHooks, McpTools
from toolweave.compose._pool import McpPool
from toolweave.config import ServerConfig
from toolweave.errors import ErrorKind, ToolError
from toolweave.hub import DiscoveredTools, McpClient
from toolweave.tools.names import unknown_tool


class McpComponent:
    """A factory of components, made by `mcp_component`: call it for a component.

    Attributes:
        server: The server's name.
        tool_name: The one tool it takes, by original name; None for all of them.
    """

    def __init__(self, server: str, tool_name: str | None, options: Mapping[str, Any]) -> None:
        self.server = server
        self.tool_name = tool_name
        self._options = dict(options)

    def __call__(
        self,
        *,
        runtime_config: ServerConfig | Mapping[str, Any] | None = None,
        client: McpClient | McpPool | None = None,
    ) -> McpTools:
        """Return a component, with this runtime config and client instead of the factory's own."""
        options = dict(self._options)
        if runtime_config is not None:
            options["runtime_config"] = runtime_config
        if client is not None:
            options["client"] = client
        if self.tool_name is None:
            return McpTools(self.server, **options)
        return _SingleTool(self.server, include=[self.tool_name], **options)

    def __repr__(self) -> str:
        return f"<component of {'all tools' if self.tool_name is None else repr(self.tool_name)} of {self.server!r}>"


def mcp_component(
    server: str,
    config: Any = None,  # whatever connect_mcp takes
    *,
    tool_name: str | None = None,
    all: bool = False,  # noqa: A002 - reads as what it is
    tool_prefix: str | None = None,
    client: McpClient | McpPool | None = None,
    runtime_config: ServerConfig | Mapping[str, Any] | None = None,
    **hooks: Unpack[McpHooks],
) -> McpComponent:
    """Return a factory of components for a server's tools, defined once and used in many agents.

    After `ReadFile = mcp_component("files", config, tool_name="read_file")`, `Agent(model, tools=[ReadFile()])` has
    that tool.

    Args:
        server: The server's name.
        config: A config of any type that `connect_mcp` takes.
        tool_name: The one tool to include, by original name. Mounting fails when the server has none of this name.
        all: Include all tools; one of the two is required.
        tool_prefix: Literal prefix of each name.
        client: A `McpPool`, a hub or a connection to use.
        runtime_config: Overrides of the config.
        **hooks: See `McpHooks`.

    Raises:
        ConfigError: The config cannot be right.
        ValueError: Neither `tool_name` nor `all=True` was given, or both.
    """
    if (tool_name is None) != all:
        raise ValueError(f"mcp_component of server {server!r}: give tool_name=, or all=True for all of its tools")
    options = {"config": config, "tool_prefix": tool_prefix, "client": client, "runtime_config": runtime_config}
    made = McpComponent(server, tool_name, {**options, **hooks})
    # A wrong config is an error here, not where it is used.
    made()
    return made


class _SingleTool(McpTools):
    """A component of one tool, which the server must have."""

    def _check(self, found: DiscoveredTools) -> None:
        if not found:
            # Found out when it is mounted and not when it is called: the agent would otherwise run without its one
            # tool, and its model would look for another way.
            (name,) = self._include
            names = [spec.original_name for spec in found.connection.snapshot()]
            text = f"server {self.name!r}: {unknown_tool(name, names)}"
            raise ToolError(text, kind=ErrorKind.NOT_FOUND)
