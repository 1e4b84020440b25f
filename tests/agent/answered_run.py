"""A run that waits for answers and is killed on request: `python -m tests.agent.answered_run FOLDER WHERE PROTOCOL`.

WHERE is `put:N`, right before the N-th write to the store. Its person answers every question of the server, and looks
before a call is repeated of which nobody knows.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from tests.agent import asking_server
from tests.agent.killed_run import RUN, CountingStore, finished
from toolweave import Agent
from toolweave.agent import RunStatuses, WaitingCall
from toolweave.models import ModelRequest, ScriptedModel, UserMessage, tool_call
from toolweave.state import SqliteStore

GUESTS = ("ada", "bob", "eve")


def answer(request: ModelRequest) -> Any:
    """Book for two at once, then for the third."""
    turns = sum(not isinstance(one, UserMessage) for one in request.messages) // 2
    guests = (("ada", "bob"), ("eve",), ())[turns]
    return [tool_call("rooms_book", {"guest": guest}, id=f"call-{guest}") for guest in guests] or "all is booked"


def agent_of(folder: Path, store: SqliteStore, protocol: str) -> Agent:
    """Return the agent, whose server asks."""
    servers = {"rooms": asking_server.entry(folder, protocol)}
    model = ScriptedModel(answer)
    return Agent(model, name="porter", mcp_servers=servers, store=store, on_unknown="ask", questions=True)


async def go_on(agent: Agent, store: SqliteStore, folder: Path) -> str:
    """Bring the run to its end; return its text."""
    effects = folder / "effects"

    async def decide(statuses: RunStatuses, call: WaitingCall) -> bool:
        if call.question is not None:
            return await statuses.answer(RUN, call.call_id, {"nights": 2})
        is_done = effects.exists() and call.arguments["guest"] in effects.read_text().split()
        return await (statuses.deny if is_done else statuses.approve)(RUN, call.call_id)

    return await finished(agent, store, "book all", decide, rounds=30)


async def main(folder: Path, where: str, protocol: str) -> None:
    def reached(number: int) -> None:
        if f"put:{number}" == where:
            os.kill(os.getpid(), signal.SIGKILL)

    async with CountingStore(folder / "store.db", reached) as store, agent_of(folder, store, protocol) as agent:
        text = await go_on(agent, store, folder)
        print(store.writes, text)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
