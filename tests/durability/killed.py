"""Runs of other frameworks' agents, killed at every point: `python -m tests.durability.killed FRAMEWORK FOLDER`.

One process loads the framework and forks for each kill: a child whose run kills itself there, and one that resumes it.
Prints what became of each as JSON. The run writes a and b at once, then c, and looks before it writes a line again of
which nobody knows whether it was written. With
`approved` as its last argument each line needs a person's yes: the run is parked, approved, and goes on.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio

from tests.agent.killed_run import LINES, CountingStore
from toolweave.durability import DurableAgent

RUN = "the-run"
UNKNOWN = "is unknown"
DONE = "all is written"


@dataclass(frozen=True)
class Outcome:
    """The outcome of an earlier call, as the model reads it."""

    name: str
    line: str
    text: str


@dataclass(frozen=True)
class Call:
    """A call that the model makes."""

    id: str
    name: str
    arguments: Mapping[str, str]


def decide(outcomes: Sequence[Outcome]) -> list[Call] | str:
    """Return the next calls of the model, or its answer."""
    written, unknown = set[str](), set[str]()
    for one in outcomes:
        if one.name == "look":
            written |= {line for line in unknown if line in one.text}
            unknown.clear()
        elif UNKNOWN in one.text:
            unknown.add(one.line)
        elif one.text == f"wrote {one.line}":
            written.add(one.line)
        else:
            raise AssertionError(one)
    number = len(outcomes)
    if unknown:
        return [Call(f"look-{number}", "look", {})]
    missing = [line for line in LINES if line not in written]
    now = [line for line in missing if line != "c"] or missing
    return [Call(f"{line}-{number}", "write", {"line": line}) for line in now] or DONE


class Decider(Protocol):
    """The mind of a model."""

    def decide(self, outcomes: Sequence[Outcome]) -> list[Call] | str:
        """Return the next calls of the model, or its answer."""
        ...


class Writer:
    """The tools of the run: they say what they have reached, and `calls` holds those that ran."""

    def __init__(self, folder: Path, reached: Callable[[str], None]) -> None:
        self.effects = folder / "effects"
        self.reached = reached
        self.asked = 0

    def decide(self, outcomes: Sequence[Outcome]) -> list[Call] | str:
        """Count a request to the model, and answer it."""
        self.asked += 1
        return decide(outcomes)

    def write(self, line: str) -> str:
        """Write a line."""
        self.reached(f"before:{line}")
        with self.effects.open("a") as file:
            file.write(f"{line}\n")
        self.reached(f"after:{line}")
        return f"wrote {line}"

    def look(self) -> str:
        """Read all lines."""
        return self.effects.read_text() if self.effects.exists() else "nothing"


def kills(writes: int, waits: int = 0) -> list[str]:
    """Return all points at which a run is killed."""
    lines = [f"{when}:{line}" for line in LINES for when in ("before", "after")]
    parked = [f"wait:{number}" for number in range(1, waits + 1)]
    return [*(f"put:{number}" for number in range(1, writes + 1)), *lines, *parked]


async def run(make: Any, folder: Path, where: str, approved: bool) -> dict[str, Any]:
    """Run the agent, begun or left behind, and return what it came to."""

    def reached(place: str) -> None:
        if place == where:
            os.kill(os.getpid(), signal.SIGKILL)

    writer = Writer(folder, reached)
    async with CountingStore(folder / "store.db", lambda number: reached(f"put:{number}")) as store:
        agent: DurableAgent[Any] = make.agent_of(writer, store, approved=approved)
        result = await agent.run(make.INPUT, run_id=RUN)
        waits = 0
        while parked := await agent.waiting(RUN):
            waits += 1
            reached(f"wait:{waits}")
            result = await agent.resume(RUN, approvals={one.call_id: True for one in parked})
        answer = make.answer_of(result)
        left = await agent.unfinished()
        effects = sorted(writer.effects.read_text().split())
        return {
            "answer": answer,
            "effects": effects,
            "asked": writer.asked,
            "writes": store.writes,
            "waits": waits,
            "unfinished": len(left),
        }


def in_a_child(make: Any, folder: Path, where: str, approved: bool) -> int:
    """Run it in a child and return how that ended; the outcome is in the folder's file `outcome`."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            outcome = anyio.run(run, make, folder, where, approved)
            (folder / "outcome").write_text(json.dumps(outcome))
            (folder / "modules").write_text(" ".join(sys.modules))
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome_of(make: Any, folder: Path, approved: bool) -> dict[str, Any]:
    """Run it to its end in a child."""
    code = in_a_child(make, folder, "nowhere", approved)
    assert code == 0, f"ended with {code}"
    return json.loads((folder / "outcome").read_text())


def main(framework: str, folder: Path, approved: bool) -> None:
    """Kill the run everywhere."""
    make = importlib.import_module(f"tests.durability.{framework}")
    assert threading.active_count() == 1, "a process with threads must not fork"
    (folder / "whole").mkdir()
    whole = outcome_of(make, folder / "whole", approved)
    for name in (folder / "whole" / "modules").read_text().split():  # once here instead of in every child
        with suppress(ImportError):
            importlib.import_module(name)
    assert threading.active_count() == 1, "a process with threads must not fork"
    again = outcome_of(make, folder / "whole", approved)
    found: dict[str, Any] = {"whole": whole, "again": again, "kills": {}}
    for where in kills(whole["writes"], whole["waits"]):
        place = folder / where.replace(":", "-")
        place.mkdir()
        code = in_a_child(make, place, where, approved)
        found["kills"][where] = {"code": code, **outcome_of(make, place, approved)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), approved="approved" in sys.argv[3:])
