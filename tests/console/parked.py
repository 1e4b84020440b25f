"""Runs in the store of a folder that wait for a person, for the tests of the console. Judges nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio

from tests.agent import asking_server
from toolweave import Agent, ScriptedModel
from toolweave.models import ModelRequest, ToolCallPart, ToolMessage, tool_call
from toolweave.state import SqliteStore

__all__ = ["BOOK", "agent_of", "parked", "resumed"]

BOOK = tool_call("rooms_book", {"guest": "<b>Ada</b>"}, id="c1")


def agent_of(folder: Path, *calls: ToolCallPart, **options: Any) -> Agent:
    """Return an agent that makes these calls, and then says what they returned."""

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return " and ".join(one.result.text for one in last.outcomes) if isinstance(last, ToolMessage) else list(calls)

    def delete(name: str) -> str:
        """Delete a file."""
        return f"{name} is deleted"

    servers = {"rooms": asking_server.entry(folder, "2026-07-28")}
    options = {"confirm": lambda call, tool: None if tool.name == "delete" else True, **options}  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
    return Agent(ScriptedModel(answer), name="desk <i>", tools=[delete], mcp_servers=servers, questions=True, **options)


def in_a_loop(work: Callable[[], Awaitable[str]]) -> str:
    """Return what a coroutine returns, in a thread: a driver of browsers has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, work).result()


def parked(folder: Path, *calls: ToolCallPart) -> str:
    """Leave a run in the store of a folder that waits for a person; return its id."""

    async def park() -> str:
        async with SqliteStore(folder / "runs.db") as store, agent_of(folder, *calls, store=store) as agent:
            return (await agent.send("Do it, <b>now</b>.", attended="later")).run_id

    return in_a_loop(park)


def resumed(folder: Path, run_id: str) -> str:
    """Go on with a run; return what the model says at its end."""

    async def go_on() -> str:
        async with SqliteStore(folder / "runs.db") as store, agent_of(folder, store=store) as agent:
            return (await (await agent.resume(run_id))).text

    return in_a_loop(go_on)
