"""A worker as a process, killed once where it is told to be: `python -m tests.jobs.worker_process URL FOLDER [WHERE]`.

WHERE is `turn:N`, when the model is asked with N messages, or `before:LINE` and `after:LINE`, in the tool that writes
LINE into a file: before it has, and after. Of all workers of a folder one is killed. With `hold:LINE` that tool waits
for ever the first time. It says `started`, and `held` when it waits; SIGTERM ends it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from tests.agent.killed_run import answer
from toolweave import Agent
from toolweave.agent import work_runs
from toolweave.jobs import Backend
from toolweave.models import ModelRequest, ScriptedModel, UserMessage
from toolweave.tools import tool


def first(folder: Path, name: str) -> bool:
    """Whether this is the first process of the folder that comes here."""
    try:
        (folder / name.replace(":", "-")).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def agents_of(folder: Path, backend: Backend, where: str) -> list[Agent]:
    """Return the agents: `writer` writes a and b, then c, and `noter` the line that it is sent."""
    effects = folder / "effects"

    def reached(place: str) -> None:
        if place == where and first(folder, place):
            os.kill(os.getpid(), signal.SIGKILL)

    @tool
    async def write(line: str) -> str:
        """Write a line."""
        reached(f"before:{line}")
        if where == f"hold:{line}" and first(folder, where):
            print("held", flush=True)
            await anyio.sleep_forever()
        with effects.open("a") as file:
            file.write(f"{line}\n")
        reached(f"after:{line}")
        return f"wrote {line}"

    @tool(annotations={"readOnlyHint": True})
    def look() -> str:
        """Read all lines."""
        return effects.read_text() if effects.exists() else ""

    def asked(request: ModelRequest) -> Any:
        reached(f"turn:{len(request.messages)}")
        return answer(request)

    def note(request: ModelRequest) -> Any:
        first = request.messages[0]
        assert isinstance(first, UserMessage)
        with effects.open("a") as file:
            file.write(f"{first.text}\n")
        return "noted"

    return [
        Agent(ScriptedModel(asked), name="writer", tools=[write, look], backend=backend),
        Agent(ScriptedModel(note), name="noter", backend=backend),
    ]


async def main(url: str, folder: Path, where: str) -> None:
    backend = Backend(url, redelivery_seconds=3600 if where.startswith("hold:") else 1)

    async with anyio.create_task_group() as tasks:

        async def ended() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    tasks.cancel_scope.cancel()

        tasks.start_soon(ended)
        agents = agents_of(folder, backend, where)
        await work_runs(agents, backend, started=lambda: print("started", flush=True))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
