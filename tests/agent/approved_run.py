"""A run that waits for approvals and is killed on request: `python -m tests.agent.approved_run FOLDER WHERE`.

WHERE is as in `killed_run`. Its person approves every call, and looks before one is repeated.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from tests.agent.killed_run import RUN, CountingStore, finished, writing_tool
from toolweave import Agent
from toolweave.agent import RunStatuses, WaitingCall
from toolweave.models import ModelRequest, ScriptedModel, UserMessage, tool_call
from toolweave.state import SqliteStore

LINES = ("a", "b", "c")


def answer(request: ModelRequest) -> Any:
    """Write a and b at once, then c."""
    turns = sum(not isinstance(one, UserMessage) for one in request.messages) // 2
    lines = (("a", "b"), ("c",), ())[turns]
    return [tool_call("write", {"line": line}, id=f"call-{line}") for line in lines] or "all is written"


def agent_of(folder: Path, store: SqliteStore, reached: Callable[[str], None]) -> Agent:
    """Return the agent, whose tool reports what it has reached."""
    write = writing_tool(folder / "effects", reached)
    return Agent(ScriptedModel(answer), name="writer", tools=[write], store=store, confirm="always", on_unknown="ask")


async def go_on(agent: Agent, store: SqliteStore, folder: Path) -> str:
    """Bring the run to its end; return its text."""
    effects = folder / "effects"

    async def decide(statuses: RunStatuses, call: WaitingCall) -> bool:
        is_done = call.repeats and effects.exists() and call.arguments["line"] in effects.read_text().split()
        return await (statuses.deny if is_done else statuses.approve)(RUN, call.call_id)

    return await finished(agent, store, "write all lines", decide, rounds=20)


async def main(folder: Path, where: str) -> None:
    def reached(place: str) -> None:
        if place == where:
            os.kill(os.getpid(), signal.SIGKILL)

    async with CountingStore(folder / "store.db", lambda number: reached(f"put:{number}")) as store:
        text = await go_on(agent_of(folder, store, reached), store, folder)
        print(store.writes, text)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
