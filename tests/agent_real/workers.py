"""Worker processes for tests: started, read, ended and killed; and the runs that are handed to them.

Knows `worked.py` by what it is given; nothing of what is asserted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.agent_real.apis import ApiName, Fake, Say, fake
from tests.agent_real.worked import Worked, noted_in
from tests.leftovers import Watch
from toolweave import Agent, Backend, ScriptedModel
from toolweave.models import Message

__all__ = ["Place", "Worker", "came_true", "place"]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
APP = "tests.agent_real.worked_app"
SECONDS = 150
_LOOK_SECONDS = 0.02
_END_SECONDS = 30.0


async def came_true(look: Callable[[], bool]) -> None:
    """Return when something that others do has happened."""
    while not look():
        await anyio.sleep(_LOOK_SECONDS)


class Worker:
    """A worker that runs."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._said = BufferedByteReceiveStream(process.stdout)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_dead(self) -> bool:
        return self.process.returncode is not None

    async def started(self) -> None:
        """Return when it takes jobs."""
        line = await self._said.receive_until(b"\n", 10_000)
        assert json.loads(line)["event"] == "started"

    async def ended(self) -> None:
        """Ask it to end, and kill it if it does not."""
        with anyio.move_on_after(_END_SECONDS, shield=True):
            if not self.is_dead:
                self.process.terminate()
            await self.process.wait()
        if not self.is_dead:
            self.process.kill()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run is submitted, and worked on.

    Attributes:
        agent: Submits; works on nothing.
        provider: What the agents of the workers ask.
    """

    folder: Path
    agent: Agent
    backend: Backend
    url: str
    provider: Fake
    worked: Worked

    @asynccontextmanager
    async def worker(self, *, command: bool = False) -> AsyncGenerator[Worker]:
        """Start a worker, ended at the end if it still runs; with `command` it is that of the terminal."""
        arguments = ["toolweave", "worker", f"{APP}:agent", "--backend", self.url, "--json"] if command else [APP]
        async with await anyio.open_process(
            [sys.executable, "-m", *arguments], stdin=None, stderr=None, cwd=CHECKOUT, env=self._environment
        ) as process:
            worker = Worker(process)
            try:
                yield worker
            finally:
                await worker.ended()

    @asynccontextmanager
    async def workers(self, count: int, *, command: bool = False) -> AsyncGenerator[list[Worker]]:
        """Start some of them; all of them take jobs by now."""
        async with AsyncExitStack() as stack:
            started = [await stack.enter_async_context(self.worker(command=command)) for _ in range(count)]
            for worker in started:
                await worker.started()
            yield started

    async def submit_in_a_process(self, sent: str, *, session: str, key: str) -> int | None:
        """Submit from another process, which may be killed; return its exit code."""
        command = [sys.executable, "-m", APP, sent, session, key]
        done = await anyio.run_process(command, check=False, stderr=None, cwd=CHECKOUT, env=self._environment)
        return done.returncode

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "TOOLWEAVE_BACKEND": self.url, "WORKED": json.dumps(asdict(self.worked))}

    @property
    def noted(self) -> list[str]:
        """What the workers noted: each write of a run to the store, in order."""
        path = noted_in(self.folder)
        return path.read_text().splitlines() if path.exists() else []

    @property
    def deaths(self) -> set[str]:
        """Where workers died."""
        return {path.name.removeprefix("died at ") for path in self.folder.glob("died at *")}

    async def said_in(self, session: str) -> Sequence[Message]:
        """Return the conversation of a session."""
        assert self.agent.durable is not None
        return await self.agent.durable.conversations.load(session)

    async def left_over(self) -> list[str]:
        """Return what stands in the store of runs that are being done, or are to be."""
        collections = ("run-submitted", "run-lines", "run-cancels", "run-deaths")  # the leases of the dead run out
        return [f"{name} {one.key}" for name in collections for one in await self.backend.store.scan(name)]

    async def nothing_is_left_over(self) -> None:
        """Return when no run is being done or waits to be."""
        while await self.left_over():
            await anyio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def place(
    folder: Path, url: str, *, api: ApiName, say: Say, kills: Sequence[str] = (), **more: Any
) -> AsyncGenerator[Place]:
    """Open a place to submit to."""
    (folder / "work").mkdir(exist_ok=True)
    watch = Watch(Path.home().parent)
    with anyio.fail_after(SECONDS):
        async with fake(api, say) as provider, Backend(url) as backend:
            yield Place(
                folder=folder,
                agent=Agent(ScriptedModel(()), name="worked", backend=backend),
                backend=backend,
                url=url,
                provider=provider,
                worked=Worked(folder=str(folder), api=api, url=provider.url, kills=tuple(kills), **more),
            )
        await came_true(lambda: not watch.leftovers())  # the servers of workers that were killed
