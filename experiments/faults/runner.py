"""Plays rows against one client, each in a process that is killed at its deadline.

`python -m experiments.faults.runner CLIENT`

Reads lines `ROW<tab>COMBO` from standard input and writes one JSON line for each: what was wrong, leftovers included.
A third column names the defences that the client `brittle` is without, each after a space.
Runs in any Python that has the client and anyio.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import anyio

from experiments.faults.brittle import Brittle
from experiments.faults.clients import CLIENTS, Target
from experiments.faults.judge import BOUND, Client, descriptors, judge, serving, zombies
from experiments.faults.rows import ROWS, Combo, Row
from toolweave.testing.servers import stdio_server_command

__all__ = ["main", "play"]

DEADLINE = 100.0
"""Seconds after which the process of a row is killed: the scenario's steps have a bound of their own."""
GRACE = 3.0
PACKAGES = {
    "toolweave": "toolweave.hub",
    "defaults": "toolweave.hub",
    "gateway": "experiments.faults.through_gateway",
    "sdk": "mcp",
    "fastmcp": "fastmcp",
    "naive": "json",
    "careless": "json",
    "brittle": "json",
}
BY_NAME = {row.name: row for row in ROWS}


Make = Callable[[Target, float], Client]
"""Makes a client of a server that is given a bound for every wait."""


class Shared(Protocol):
    """A client whose server is one of several behind the same connection."""

    def beside(self) -> Sequence[Client]:
        """Return the healthy ones."""
        ...


def neighbours_of(client: Client, make: Make) -> Sequence[Client]:
    """Return two healthy neighbours: servers behind the same connection, or connections of their own."""
    if hasattr(client, "beside"):
        return cast("Shared", client).beside()
    return [make(stdio_server_command("--version", "2025-11-25"), 10) for _ in range(2)]


async def scenario(make: Make, row: Row, combo: Combo, folder: Path, bound: float) -> list[str]:
    """Play one row with its two healthy neighbours."""
    with serving(row, combo, folder) as target:
        client = make(target, row.seconds)
        neighbours = neighbours_of(client, make)
        for neighbour in neighbours:
            await neighbour.open()
        problems = await judge(
            row,
            client,
            again=lambda: make(target, row.seconds),
            neighbours=neighbours,
            bound=bound,
            alone=True,
        )
        for neighbour in reversed(neighbours):
            await neighbour.close()
    return problems


def play(make: Make, row: Row, combo: Combo, folder: Path, bound: float = BOUND) -> list[str]:
    """Play one row in a loop of its own; return what was wrong, leaks of this process included."""
    before = descriptors()
    try:
        problems = anyio.run(scenario, make, row, combo, folder, bound)
    except BaseException as exc:  # boundary: whatever comes out of the loop is a finding
        problems = [f"the event loop: {type(exc).__name__}: {' '.join(str(exc).split())[:160]}"]
    gc.collect()
    if left := zombies():
        problems.append(f"zombies: {len(left)}")
    if (leaked := descriptors() - before) > 0:
        problems.append(f"file descriptors: {leaked} left open")
    return problems


def child(make: Make, row: Row, combo: Combo, folder: Path, bound: float, write: int) -> None:
    """Be the process of one row: play it, say what was wrong, end."""
    os.setsid()
    os.environ["HOME"] = str(folder)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    os.close(silence)
    try:
        said = play(make, row, combo, folder, bound)
    except BaseException:  # boundary: the parent is told
        said = [traceback.format_exc()[-300:]]
    os.write(write, json.dumps(said).encode())
    os._exit(0)


def marked(folder: Path) -> list[int]:
    """Return the processes whose home is this folder, the one of the client excepted."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if b"HOME=" + os.fsencode(folder) + b"\0" in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


class Run:
    """One row under way."""

    def __init__(self, make: Make, row: Row, combo: Combo, root: Path, bound: float) -> None:
        self.row, self.combo = row, combo
        self.folder = Path(tempfile.mkdtemp(dir=root))
        self.read, write = os.pipe()
        os.set_inheritable(write, False)
        self.deadline = time.monotonic() + DEADLINE
        self.pid = os.fork()
        if self.pid == 0:
            child(make, row, combo, self.folder, bound, write)
        os.close(write)

    def over(self) -> bool:
        """Whether the process ended, or had to be ended."""
        if time.monotonic() > self.deadline:
            os.killpg(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid

    def result(self) -> dict[str, Any]:
        """Return what was wrong; whatever still runs is ended."""
        with os.fdopen(self.read, "rb") as pipe:
            os.set_blocking(pipe.fileno(), False)
            said = pipe.read() or b""
        problems = cast("list[str]", json.loads(said)) if said else ["the client's process: killed, it hung for good"]
        end = time.monotonic() + GRACE
        while (left := marked(self.folder)) and time.monotonic() < end:
            time.sleep(0.02)
        if left:
            problems.append(f"processes: {len(left)} left running")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended between the look and the kill
        return {"row": self.row.name, "combo": self.combo, "problems": problems}


def main() -> None:
    """Play what standard input asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--bound", type=float, default=BOUND, help="seconds after which a step hangs")
    options = parser.parse_args()
    wanted = [line.rstrip("\n").split("\t") for line in sys.stdin]
    warnings.simplefilter("ignore")
    importlib.import_module(PACKAGES[options.client])
    logging.disable()
    running: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="reliability-") as root:
        while wanted or running:
            while wanted and len(running) < options.jobs:
                name, combo, *absent = wanted.pop(0)
                make = CLIENTS[options.client]
                if absent:
                    make = functools.partial(Brittle, without=absent[0].split())
                running.append(Run(make, BY_NAME[name], cast("Combo", combo), Path(root), options.bound))
            for run in [run for run in running if run.over()]:
                running.remove(run)
                print(json.dumps(run.result()), flush=True)
            time.sleep(0.02)


if __name__ == "__main__":
    main()
