"""`toolweave worker` for tests: as a process whose lines are read, and the module that it works for."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from tests.cli.command import COMMAND, SECONDS, toolweave

__all__ = ["Worker", "app_in", "run_when", "worker"]

_APP = '''
import os
from pathlib import Path

import anyio

from toolweave import Agent, Backend, ScriptedModel, tool, tool_call
from toolweave.models import AssistantMessage, UserMessage

folder = Path(__file__).parent


def written(line):
    with (folder / "effects.txt").open("a") as file:
        file.write(line + "\\n")


@tool
def book(order: str) -> str:
    """Book an order; made twice, it is booked twice."""
    written(f"booked {order}")
    return "booked"


@tool(annotations={"readOnlyHint": True})
async def look() -> str:
    """Wait until there is something to see."""
    written(f"looking {os.getpid()}")
    while not (folder / "go").exists():
        await anyio.sleep(0.02)
    return "seen"


def answer(request):
    """Book, look, then say so; with `hello` say it at once."""
    asked = [one for one in request.messages if isinstance(one, UserMessage)][-1].text
    if asked == "hello":
        return "Hello."
    said = sum(isinstance(one, AssistantMessage) for one in request.messages)
    return [[tool_call("book", {"order": asked})], [tool_call("look")], "It is done."][said]


backend = Backend.from_environment()
agent = Agent(ScriptedModel(answer), name="clerk", tools=[book, look], backend=backend)
'''


def app_in(folder: Path) -> Path:
    """Write the module of an agent `clerk`, which writes what it does to `effects.txt` and waits for a file `go`."""
    path = folder / "app.py"
    path.write_text(_APP, "utf-8")
    return path


class Worker:
    """A worker that runs, and what it said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []

    def wait_for(self, event: str) -> dict[str, Any]:
        """Read its lines until one tells of an event; return that."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            self.said.append(said)
            if said["event"] == event:
                return said
            assert said["event"] != "failed", said
        assert self.process.stderr is not None
        raise AssertionError(f"{event!r} never came, but {self.said}\n{self.process.stderr.read()}")

    def end(self) -> int:
        """Read to its end and return its exit code."""
        assert self.process.stdout is not None
        self.said += [json.loads(line) for line in self.process.stdout]
        return self.process.wait(SECONDS)

    @property
    def events(self) -> list[str]:
        """What it told so far."""
        return [one["event"] for one in self.said]


@contextlib.contextmanager
def worker(*args: object, cwd: Path, env: Mapping[str, str] | None = None) -> Generator[Worker]:
    """Run a worker with `--json`, killed at the end if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, "worker", *map(str, args), "--json"],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    bound = threading.Timer(2 * SECONDS, process.kill)  # whoever waits for its lines sees their end
    bound.start()
    try:
        with process:
            try:
                yield Worker(process)
            finally:
                process.kill()
    finally:
        bound.cancel()


def run_when(run_id: str, url: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Look at a run until it is as wanted; return it."""
    deadline = time.monotonic() + 2 * SECONDS
    while True:
        run: dict[str, Any] = toolweave("runs", "show", run_id, "--store", url, "--json").json
        if wanted(run):
            return run
        assert time.monotonic() < deadline, run
