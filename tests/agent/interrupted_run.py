"""A run that waits in its tool until its process is told to end: `python -m tests.agent.interrupted_run STORE HOW`.

HOW says who waits for the run: `await`, `watch` (iterates), `leave` (`async with agent`, nobody waits),
`below` (awaits a run whose tool is the agent).
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from toolweave import Agent
from toolweave.agent import Run
from toolweave.models import ScriptedModel, tool_call
from toolweave.state import SqliteStore, Store

RUN = "the-run"


async def wait() -> str:
    """Wait for ever."""
    print("waiting", flush=True)
    await anyio.sleep_forever()
    return ""


def agents(store: Store, how: str) -> Agent:
    """Return the agent whose run is interrupted."""
    worker = Agent(ScriptedModel([tool_call("wait", id="w")]), name="worker", tools=[wait], store=store)
    if how != "below":
        return worker
    ask = tool_call("agent_worker", {"message": "wait"}, id="a")
    return Agent(ScriptedModel([ask]), name="lead", tools=[worker.as_tool()], store=store)


async def main(path: Path, how: str) -> None:
    async with SqliteStore(path) as store:
        agent = agents(store, how)
        run: Run = agent.send("go", key=RUN, session="s")
        if how == "watch":
            async for _ in run:
                pass
        elif how == "leave":
            async with agent:
                run.start()
                await anyio.sleep_forever()
        else:
            await run


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
