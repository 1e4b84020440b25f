"""The servers of a soak, and what is done to them. Knows nothing of the calls."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tests.leftovers import processes
from tests.soak.verdict import Disturbance

__all__ = ["Chaos", "HttpServer", "Target", "make_targets"]

SERVER = Path(__file__).with_name("server.py")
POLL_SECONDS = 0.02
RESTART_SECONDS = 1.0
STOP_SECONDS = (0.1, 2.0)
REST_SECONDS = 11.0
"""A connection that held so long has its failures forgotten; in between a server is hit `BLOWS` times at most."""
BLOWS = 3
SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "break": signal.SIGUSR1,
    "stop": signal.SIGSTOP,
    "change": signal.SIGUSR2,
    "noise": signal.SIGHUP,
}
WEIGHTS = {"kill": 5, "term": 3, "break": 4, "stop": 3, "change": 3, "noise": 2}


class HttpServer:
    """A server process on a port of its own that is started again whenever it has died."""

    def __init__(self, command: list[str], port: int) -> None:
        self.port = port
        self.command = [*command, "--http", "--port", str(port)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; its port is open a moment later."""
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    async def keep(self, chance: random.Random) -> None:
        """Start the process again whenever it has died, a moment later."""
        while True:
            await anyio.sleep(POLL_SECONDS)
            if self.process is not None and self.process.poll() is not None:
                self.stop()
                await anyio.sleep(chance.random() * RESTART_SECONDS)
                self.start()

    async def listening(self) -> None:
        """Return when the port is open."""
        while True:
            with suppress(OSError):
                async with await anyio.connect_tcp("127.0.0.1", self.port):
                    return
            await anyio.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End the process and forget it."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None


@dataclass(slots=True, kw_only=True)
class Target:
    """One server of the soak: its config, its log, and its process where that is ours to start."""

    name: str
    config: dict[str, Any]
    log: Path
    modern: bool
    http: HttpServer | None = None
    hit: list[float] = field(default_factory=list[float])

    def tools(self) -> int:
        """Return how many tools the server has, by its log."""
        lines = self.log.read_text(encoding="ascii").splitlines()
        return int(next(line for line in reversed(lines) if line.startswith("tools ")).split()[1])

    def bruised(self, now: float) -> bool:
        """Whether it must rest before the next blow, so that its connection is not given up."""
        self.hit = [at for at in self.hit if now - at < REST_SECONDS * (1 + len(self.hit))]
        return len(self.hit) >= BLOWS


def make_targets(count: int, transport: str, folder: Path) -> list[Target]:
    """Return the servers: both eras in turn, over stdio and HTTP in turn when mixed."""
    targets: list[Target] = []
    for number in range(count):
        name, log = f"s{number:02}", folder / f"s{number:02}.log"
        modern = number % 2 == 1
        command = [sys.executable, "-S", "-E", str(SERVER), "--name", name, "--log", str(log)]
        command += ["--era", "modern" if modern else "legacy"]
        over_http = transport == "http" or (transport == "mixed" and number % 4 >= 2)
        if over_http:
            server = HttpServer(command, free_port(number))
            config: dict[str, Any] = {"url": f"http://127.0.0.1:{server.port}/mcp"}
            targets.append(Target(name=name, config=config, log=log, modern=modern, http=server))
        else:
            config = {"command": command[0], "args": command[1:]}
            targets.append(Target(name=name, config=config, log=log, modern=modern))
    return targets


def free_port(number: int) -> int:
    """Return a port that is free and that the system gives to nobody by itself."""
    for port in range(20_000 + (os.getpid() * 37 + number * 101) % 8_000, 30_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port below 30000")


def pid_of(target: Target) -> int | None:
    """Return the server's process as the system sees it, None while there is none."""
    mark = f"--log {target.log} "
    return next((row.pid for row in processes() if row.parent == os.getpid() and mark in row.command), None)


class Chaos:
    """Strikes a server every so often, by a seed.

    Attributes:
        disturbances: What was done, for the verdict.
    """

    def __init__(self, targets: list[Target], seed: int, pause: float) -> None:
        self.disturbances: list[Disturbance] = []
        self._targets = targets
        self._chance = random.Random(f"chaos {seed}")
        self._pause = pause

    async def run(self) -> None:
        """Strike until cancelled; what was stopped goes on in any case."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(self._chance.uniform(0.2, 1.8) * self._pause)
                target = self._chance.choice(self._targets)
                act = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                seconds = self._chance.uniform(*STOP_SECONDS)
                pid = pid_of(target)
                now = time.monotonic()
                deadly = act in ("kill", "term", "break")
                if pid is None or (deadly and target.bruised(now)):
                    continue
                if deadly:
                    target.hit.append(now)
                ends = now + seconds if act == "stop" else now
                self.disturbances.append(Disturbance(server=target.name, act=act, at=now, ends=ends))
                with suppress(ProcessLookupError):
                    os.kill(pid, SIGNALS[act])
                if act == "stop":
                    tasks.start_soon(self._go_on, pid, seconds)

    async def _go_on(self, pid: int, seconds: float) -> None:
        try:
            await anyio.sleep(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
