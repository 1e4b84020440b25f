"""A run over a provider's API and two real servers that is killed where it is told to be, as a process.

`python -m tests.agent_real.killed_run FOLDER API URL WHERE`. WHERE is `put:N`, right before the N-th write of the run
to its store, or `before:LINE` and `after:LINE`, in the tool that notes LINE in a file: before it has, and after.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import anyio

from tests.agent_real.apis import ApiName, Call, Read, Said, Say, model
from tests.agent_real.conftest import npm_servers
from toolweave import Agent, SqliteStore, tool
from toolweave.models import Model, UserMessage
from toolweave.state import Change
from toolweave.tools import Tool

__all__ = ["LINES", "RUN", "CountingStore", "agent_of", "effects_of", "noting", "writer"]

RUN = "the-run"
LINES = ("a", "b")


class CountingStore(SqliteStore):
    """Says the number of each write before it is made; those that only keep the run for this process do not count."""

    def __init__(self, path: Path, before: Callable[[int], None]) -> None:
        super().__init__(path)
        self.writes = 0
        self._before = before

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        if any(one.collection != "run-leases" for one in changes):
            self.writes += 1
            self._before(self.writes)
        return await super().write(changes, signal=signal)


def effects_of(folder: Path) -> Path:
    """Return the file in which each effect is a line; the filesystem server can read it."""
    return folder / "work" / "effects.txt"


def writer(folder: Path) -> Say:
    """Return a model that notes each line beside a sum of a server's, and looks before it notes one again."""

    def say(results: Mapping[str, Read]) -> Said:
        for line in LINES:
            if line not in results:
                return [Call(line, "note", {"line": line}), Call(f"sum-{line}", "everything_get-sum", {"a": 1, "b": 2})]
            if "is unknown" not in results[line].text:
                continue
            look = results.get(f"look-{line}")
            if look is None:
                return [Call(f"look-{line}", "files_read_text_file", {"path": str(effects_of(folder))})]
            if line not in look.text.split() and f"{line}-again" not in results:
                return [Call(f"{line}-again", "note", {"line": line})]
        return "all is noted"

    return say


def noting(folder: Path, reached: Callable[[str], None]) -> Tool:
    """Return the agent's own tool, which says what it has reached."""

    @tool
    def note(line: str) -> str:
        """Note a line."""
        reached(f"before:{line}")
        with effects_of(folder).open("a") as file:
            file.write(f"{line}\n")
        reached(f"after:{line}")
        return f"noted {line}"

    return note


def agent_of(folder: Path, asked: Model, store: SqliteStore, reached: Callable[[str], None]) -> Agent:
    """Return the agent."""
    servers, own = npm_servers(folder / "work"), noting(folder, reached)
    return Agent(asked, name="writer", tools=[own], mcp_servers=servers, store=store, on_error="raise")


async def main(folder: Path, api: ApiName, url: str, where: str) -> None:
    def reached(place: str) -> None:
        if place == where:
            os.kill(os.getpid(), signal.SIGKILL)

    store = CountingStore(folder / "store.db", lambda number: reached(f"put:{number}"))
    async with store, model(api, url) as asked:
        agent = agent_of(folder, asked, store, reached)
        result = await agent.begin([UserMessage.of("note all lines")], run_id=RUN)
        print(store.writes, result.text)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), cast("ApiName", sys.argv[2]), sys.argv[3], sys.argv[4])
