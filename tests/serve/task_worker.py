"""A worker in its own process: `task_worker.py URL FOLDER`; its first line says that it takes jobs.

Its tools note each time that they run in FOLDER/effects, and return once FOLDER/release is there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio

from toolweave import Agent, tool
from toolweave.jobs import Backend, WorkBackend
from toolweave.models import ModelRequest, ScriptedModel, ToolMessage, tool_call
from toolweave.serve import McpServer, create_mcp_server

__all__ = ["REDELIVERY", "main", "server"]

REDELIVERY = 2.0


def server(backend: WorkBackend, folder: Path) -> McpServer:
    """Return the server whose tools these are."""

    async def charge() -> str:
        """Do what must not be done twice."""
        return await effect("charge")

    async def note() -> str:
        """Do what must not be done twice, at once."""
        write("note")
        return "noted"

    @tool(annotations={"idempotentHint": True})
    async def store() -> str:
        """Do what may be done twice."""
        return await effect("store")

    def write(name: str) -> None:
        with (folder / "effects").open("a", encoding="utf-8") as effects:
            effects.write(f"{name}\n")

    async def effect(name: str) -> str:
        write(name)
        while not (folder / "release").exists():
            await anyio.sleep(0.02)
        return f"{name}d"

    async def say(request: ModelRequest) -> Any:
        if not any(isinstance(message, ToolMessage) for message in request.messages):
            return [tool_call("note", id="the-call")]
        return await effect("said")

    clerk = Agent(ScriptedModel(say), name="clerk", tools=[note], store=backend.store)

    rules = dict.fromkeys(("charge", "store", "agent_clerk"), "required")
    return create_mcp_server(
        name="till",
        version="1",
        tools=[charge, store],
        agents=[clerk],
        tasks=rules,  # pyright: ignore[reportArgumentType]
        backend=backend,
    )


async def main(url: str, folder: Path) -> None:
    """Work until killed."""
    backend = Backend(url, redelivery_seconds=REDELIVERY)
    async with backend:
        handlers = server(backend, folder).handlers()
        await backend.queue.work(handlers, started=lambda: print("ready", flush=True))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]))
