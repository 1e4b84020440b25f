"""Toolweave: a hub of servers, exported for a model's API."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from experiments.attacks.visitor import Visitor
from experiments.features.player import Command, Opened
from experiments.sign_in import REDIRECT, Person
from toolweave import Agent, ScriptedModel, connect_mcp_servers, load_config, tool_call
from toolweave.agent import ApprovalRequested
from toolweave.oauth import MemoryTokenStore, OAuth
from toolweave.providers import AnthropicTools
from toolweave.tools import Toolset


class _Tools:
    def __init__(self, source: Toolset) -> None:
        self._exported = AnthropicTools(source)

    async def offered(self) -> Mapping[str, str]:
        return {one["name"]: one.get("description", "") for one in self._exported.definitions()}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        asked = {"content": [{"type": "tool_use", "id": "call_1", "name": name, "input": dict(arguments)}]}
        (block,) = await self._exported.dispatch(asked)
        content: Any = block.get("content")
        return content if isinstance(content, str) else "\n".join(one["text"] for one in content)


def entry(command: Command) -> dict[str, Any]:
    """Return an entry of a config."""
    return {"command": command[0], "args": list(command[1:])}


@asynccontextmanager
async def opened(servers: Mapping[str, Command], *, row: str, folder: str = "") -> AsyncGenerator[Opened]:
    """Connect with a hub: `"pins": "block"` where definitions change, `traced()` where spans are looked for."""
    config: Any = {name: entry(command) for name, command in servers.items()}
    if row == "pins":
        file = Path(folder, "mcp.json")
        if not file.exists():
            file.write_text(json.dumps({"pins": "block", "mcpServers": config}))
            await anyio.run_process([sys.executable, "-m", "toolweave", "pin", "--config", str(file)])
        config = file
    async with connect_mcp_servers(config) as hub:
        yield _Tools(hub.traced() if row == "spans" else hub)


@asynccontextmanager
async def opened_file(path: str, inputs: Mapping[str, str]) -> AsyncGenerator[Opened]:
    """Connect the servers of a file."""
    async with connect_mcp_servers(load_config(path, inputs=inputs)) as hub:
        yield _Tools(hub)


@asynccontextmanager
async def signed_in(url: str, person: Person) -> AsyncGenerator[Opened]:
    """Connect with `OAuth`, whose user agent is the person."""
    auth = OAuth(store=MemoryTokenStore(), user_agent=Visitor(person, REDIRECT))
    async with connect_mcp_servers({"api": {"url": url, "auth": auth}}) as hub:
        yield _Tools(hub)


@asynccontextmanager
async def approving(server: Command, paths: Sequence[str], decide: Callable[[str], bool]) -> AsyncGenerator[None]:
    """Run an agent that asks before destructive calls."""
    calls = [tool_call("s_delete", {"path": path}) for path in paths]
    model = ScriptedModel([calls, "done"])
    async with connect_mcp_servers({"s": entry(server)}) as hub:
        run = Agent(model, tools=[hub], confirm="destructive").send("Clean up.")
        async for event in run:
            if isinstance(event, ApprovalRequested):
                if decide(str(event.call.arguments["path"])):
                    run.approve(event)
                else:
                    run.deny(event)
        yield
