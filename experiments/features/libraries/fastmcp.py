"""FastMCP: its `Client`, and one on a config where there are several servers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.features.player import Command, Opened
from experiments.sign_in import Person


class _Tools:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def offered(self) -> Mapping[str, str]:
        return {tool.name: tool.description for tool in await self._client.list_tools()}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        result = await self._client.call_tool(name, dict(arguments))
        return "\n".join(block.text for block in result.content)


def entry(command: Command) -> dict[str, Any]:
    """Return an entry of a config."""
    return {"command": command[0], "args": list(command[1:])}


@asynccontextmanager
async def opened(servers: Mapping[str, Command], **_: Any) -> AsyncGenerator[Opened]:
    """Connect one server over its transport, several from a config."""
    where: Any = {"mcpServers": {name: entry(command) for name, command in servers.items()}}
    if len(servers) == 1:
        (command,) = servers.values()
        transport = import_module("fastmcp.client.transports").StdioTransport
        where = transport(command=command[0], args=list(command[1:]))
    async with import_module("fastmcp").Client(where) as client:
        yield _Tools(client)


@asynccontextmanager
async def opened_file(path: str, inputs: Mapping[str, str]) -> AsyncGenerator[Opened]:
    """Connect the servers of a file; it has no parameter for inputs."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    async with import_module("fastmcp").Client(content) as client:
        yield _Tools(client)


@asynccontextmanager
async def signed_in(url: str, person: Person) -> AsyncGenerator[Opened]:
    """Connect with its `OAuth`, which opens the browser and listens for the redirect."""
    async with import_module("fastmcp").Client(url, auth="oauth") as client:
        yield _Tools(client)


@asynccontextmanager
async def approving(server: Command, paths: Sequence[str], decide: Callable[[str], bool]) -> AsyncGenerator[None]:
    """Call as a client does: it has no agent, and no hook before a call."""
    async with opened({"s": server}) as tools:
        for path in paths:
            await tools.call("delete", {"path": path})
        yield
