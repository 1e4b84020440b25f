"""What the workers of these tests work for: an agent on a provider's API and two real servers, killed where it is told.

`WORKED` in the environment is a `Worked` as JSON, `TOOLWEAVE_BACKEND` the place of the runs. Of all workers of a folder
that reach one of its `kills` the first dies there: `write:N` right before the N-th write of the run to its store,
`written:N` right after it, `before:LINE` and `after:LINE` as in `killed_run.py`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio

from tests.agent_real.apis import ApiName, model
from tests.agent_real.conftest import npm_servers, overheard, running
from tests.agent_real.killed_run import noting
from toolweave import Agent, Backend, tool
from toolweave.state import Change, RedisStore

__all__ = ["NOT_COUNTED", "Worked", "heard_in", "noted_in", "opened"]

T = TypeVar("T")
SOON = 1.0
"""Seconds after which the job of a dead worker is given to another."""
NOT_COUNTED = ("put run-leases", "put run-submitted", "put run-sweeps", "put run-index")
"""What a worker writes as time goes by, when it looks for lost runs, or when it is the first to read a store."""


@dataclass(frozen=True, kw_only=True)
class Worked:
    """What the worker is to be.

    Attributes:
        folder: Where its files are; its subfolder `work` is that of the filesystem server.
        url: Where the provider is.
        kills: Where workers die; at each of them, one.
        ask: Whether somebody is to be asked about calls that destroy.
        hear: Whether to keep what the everything server is sent.
    """

    folder: str
    api: ApiName
    url: str
    kills: tuple[str, ...] = ()
    ask: bool = False
    hear: bool = False


def heard_in(folder: Path) -> Path:
    """Return the file with what the everything server was sent."""
    return folder / "heard"


def noted_in(folder: Path) -> Path:
    """Return the file in which each write of the run, and what else happened to it, is a line."""
    return folder / "noted"


class Deaths:
    """Ends this process where it is told to, if no other has died there."""

    def __init__(self, worked: Worked) -> None:
        self._folder = Path(worked.folder)
        self._kills = worked.kills

    def note(self, what: str) -> None:
        with noted_in(self._folder).open("a") as file:
            file.write(f"{what}\n")

    def reached(self, place: str) -> None:
        if place not in self._kills:
            return
        try:
            (self._folder / f"died at {place}").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class KillingStore(RedisStore):
    """Says the number of each write before and after it is made."""

    def __init__(self, url: str, deaths: Deaths, not_counted: Sequence[str]) -> None:
        super().__init__(url)
        self._deaths = deaths
        self._not_counted = not_counted
        self._made = 0

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        return await self._counted(f"put {changes[0].collection}", super().write(changes, signal=signal))

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        return await self._counted(f"delete {collection}", super().delete(collection, key, expect=expect))

    async def _counted(self, what: str, write: Awaitable[T]) -> T:
        if what in self._not_counted:
            return await write
        self._made += 1
        number = self._made
        self._deaths.note(what)
        self._deaths.reached(f"write:{number}")
        done = await write
        self._deaths.reached(f"written:{number}")
        return done


def agent_of(worked: Worked, backend: Backend, deaths: Deaths) -> Agent:
    """Return the agent."""
    folder = Path(worked.folder)
    met: list[anyio.Event] = [anyio.Event(), anyio.Event()]

    @tool(annotations={"destructiveHint": False})
    async def meet(number: int) -> str:
        """End when the other one is here too."""
        met[number].set()
        await met[1 - number].wait()
        return f"met {1 - number}"

    @tool(annotations={"destructiveHint": False})
    def fail() -> None:
        """Fail."""
        raise LookupError("no such thing")

    @tool
    def kill() -> str:
        """Kill the everything server."""
        (server,) = running("server-everything")
        os.kill(server.pid, signal.SIGKILL)
        return f"killed {server.pid}"

    @tool
    async def forever() -> None:
        """Never end."""
        deaths.note(f"forever began in {os.getpid()}")
        try:
            await anyio.sleep_forever()
        finally:
            deaths.note("forever ended")

    servers = npm_servers(folder / "work")
    if worked.hear:
        servers["everything"] = overheard(servers["everything"], heard_in(folder))
    return Agent(
        model(worked.api, worked.url),
        name="worked",
        tools=[noting(folder, deaths.reached), meet, fail, kill, forever],
        mcp_servers=servers,
        backend=backend,
        confirm="destructive" if worked.ask else None,
        on_error="raise",
    )


def opened(*, not_counted: Sequence[str] = NOT_COUNTED) -> tuple[Agent, Backend]:
    """Return what the environment asks for."""
    worked = Worked(**json.loads(os.environ["WORKED"]))
    deaths, url = Deaths(worked), os.environ["TOOLWEAVE_BACKEND"]
    backend = Backend(url, store=KillingStore(url, deaths, not_counted), redelivery_seconds=SOON)
    return agent_of(worked, backend, deaths), backend
