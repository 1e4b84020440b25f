"""The processes that are measured: starts a worker for each client, gives them work in turn, ends them.

Every worker stays connected over all rounds; only one of them works at a time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.clients import CLIENTS
from benchmarks.measure import Sample
from benchmarks.peers import python_of

__all__ = ["ROOT", "TRANSPORTS", "Crew", "hired", "http_url", "server_command"]

ROOT = Path(__file__).parents[1]
SERVER = Path(__file__).with_name("echo_server.py")
TRANSPORTS = ("stdio", "stdio modern", "http", "http legacy")
"""`stdio` is a legacy server, as nearly all are; `http` is a modern one that answers with JSON."""
START_SECONDS = 60.0
JOB_SECONDS = 300.0


class Failed(Exception):
    """A worker did not do its job."""


class Worker:
    """One client at work in its own process."""

    def __init__(self, name: str, where: dict[str, Any]) -> None:
        self.name = name
        command = [python_of(CLIENTS[name]), "-m", "benchmarks.worker", json.dumps({"client": name, **where})]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.buffer = b""

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Give a job and return its figures."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()
        return self.answer(JOB_SECONDS)

    def answer(self, seconds: float) -> dict[str, Any]:
        """Return the next line that the worker writes."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            piece = os.read(fd, 65_536) if select.select([fd], [], [], seconds)[0] else b""
            if not piece:
                raise Failed(f"no answer within {seconds:g} s, or it ended (exit code {self.process.poll()})")
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        if "error" in value:
            raise Failed(value["error"])
        return value

    def close(self) -> None:
        """End the process, and whatever of its group is left."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Crew:
    """The workers of one target."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers

    def rounds(self, job: dict[str, Any], rounds: int, *, warm_up: bool = False) -> dict[str, list[Sample]]:
        """Let every worker do the job once in each round, in turn.

        With `warm_up` there is one more round, the first, that is not counted: for jobs without a warm-up of their own.
        """
        samples: dict[str, list[Sample]] = {worker.name: [] for worker in self.workers}
        for number in range(0 if warm_up else 1, rounds + 1):
            for worker in list(self.workers):
                try:
                    sample = Sample(**worker.ask(job))
                except Failed as exc:
                    self.drop(worker, str(exc))
                    continue
                if number:
                    samples[worker.name].append(sample)
        return samples

    def drop(self, worker: Worker, why: str) -> None:
        """Go on without a worker."""
        sys.stderr.write(f"{worker.name}: its rows are left out: {why}\n")
        self.workers.remove(worker)
        worker.close()


def server_command(*options: object) -> tuple[str, ...]:
    """Return the command of the lean server."""
    return (sys.executable, "-S", "-E", str(SERVER), *(str(option) for option in options))


@contextmanager
def http_url(*options: object) -> Generator[str]:
    """Run the lean server over HTTP; yield its URL; its process group is killed at the end."""
    command = server_command("--http", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            if not select.select([process.stdout], [], [], 15)[0]:
                raise RuntimeError("the HTTP server did not start within 15 s")
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def hired(transport: str, names: Iterable[str], *options: object) -> Generator[Crew]:
    """Connect clients over one transport: to a server each where that is a process, to one over HTTP."""
    modern = transport in ("stdio modern", "http")
    options = ("--era", "modern" if modern else "legacy", *options)
    with ExitStack() as stack:
        where: dict[str, Any] = {"modern": modern, "command": server_command(*options)}
        if transport.startswith("http"):
            where = {"modern": modern, "url": stack.enter_context(http_url(*options))}
        crew = Crew([])
        stack.callback(lambda: [worker.close() for worker in crew.workers])
        for name in names:
            if modern and not CLIENTS[name].modern:
                continue
            worker = Worker(name, where)
            crew.workers.append(worker)
            try:
                worker.answer(START_SECONDS)
            except Failed as exc:
                crew.drop(worker, str(exc))
        yield crew
