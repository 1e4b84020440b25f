"""A run that is killed where it is told to be, as a process: `python -m tests.agent.killed_run FOLDER WHERE`.

WHERE is `put:N`, right before the N-th write to the store, or `before:LINE` and `after:LINE`, in the tool that writes
LINE into a file: before it has, and after. The run itself writes a, b and c, and makes sure of what it cannot know.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from toolweave import Agent
from toolweave.agent import RunStatuses, WaitingCall
from toolweave.errors import ErrorKind
from toolweave.models import ModelRequest, ScriptedModel, ToolCallPart, ToolMessage, UserMessage, tool_call
from toolweave.state import Change, SqliteStore
from toolweave.tools import FunctionTool, tool

RUN = "the-run"
LINES = ("a", "b", "c")


class CountingStore(SqliteStore):
    """Says the number of each write before it is made."""

    def __init__(self, path: Path, before: Callable[[int], None]) -> None:
        super().__init__(path)
        self.writes = 0
        self._before = before

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        self.writes += 1
        self._before(self.writes)
        return await super().write(changes, signal=signal)


def answer(request: ModelRequest) -> Any:
    """Write a and b at once, then c; look before writing a line again of which nobody knows."""
    written, unknown = set[str](), set[str]()
    seen: str | None = None
    calls: dict[str, ToolCallPart] = {}
    for message in request.messages:
        if isinstance(message, UserMessage):
            continue
        if not isinstance(message, ToolMessage):
            calls |= {call.id: call for call in message.tool_calls}
            continue
        for outcome in message.outcomes:
            line = calls[outcome.call_id].arguments.get("line", "")
            if outcome.name == "look":
                seen = outcome.result.text
                written |= {known for known in unknown if known in seen}
                unknown.clear()
            elif outcome.result.is_error:
                assert outcome.result.require_error().kind is ErrorKind.OUTCOME_UNKNOWN
                unknown.add(line)
            else:
                written.add(line)
    number = len(request.messages)
    if unknown:
        return [tool_call("look", id=f"look-{number}")]
    missing = [line for line in LINES if line not in written]
    now = [line for line in missing if line != "c"] or missing
    return [tool_call("write", {"line": line}, id=f"{line}-{number}") for line in now] or "all is written"


async def finished(
    agent: Agent,
    store: SqliteStore,
    message: str,
    answer: Callable[[RunStatuses, WaitingCall], Awaitable[object]],
    *,
    rounds: int,
) -> str:
    """Bring the run to its end, whatever became of it before, with a person who answers; return its text."""
    statuses = RunStatuses(store)
    for _ in range(rounds):
        info = await statuses.get(RUN)
        if info is None:
            await agent.begin([UserMessage.of(message)], run_id=RUN, attended="later")
        elif info.status == "completed":
            return info.record.text
        elif info.status == "waiting":
            for call in await statuses.waiting(RUN):
                await answer(statuses, call)
        else:
            await (await agent.resume(RUN))
    raise AssertionError("the run does not end")


def writing_tool(effects: Path, reached: Callable[[str], None]) -> FunctionTool[[str], str]:
    """Return a tool that writes a line into a file; `reached` is called before and after it has."""

    @tool
    def write(line: str) -> str:
        """Write a line."""
        reached(f"before:{line}")
        with effects.open("a") as file:
            file.write(f"{line}\n")
        reached(f"after:{line}")
        return f"wrote {line}"

    return write


def agent_of(folder: Path, store: SqliteStore, reached: Callable[[str], None]) -> Agent:
    """Return the agent, whose tools report what they have reached."""
    effects = folder / "effects"

    @tool(annotations={"readOnlyHint": True})
    def look() -> str:
        """Read all lines."""
        return effects.read_text() if effects.exists() else ""

    return Agent(ScriptedModel(answer), name="writer", tools=[writing_tool(effects, reached), look], store=store)


async def main(folder: Path, where: str) -> None:
    def reached(place: str) -> None:
        if place == where:
            os.kill(os.getpid(), signal.SIGKILL)

    async with CountingStore(folder / "store.db", lambda number: reached(f"put:{number}")) as store:
        agent = agent_of(folder, store, reached)
        result = await agent.begin([UserMessage.of("write all lines")], run_id=RUN)
        print(store.writes, result.text)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
