"""Two replicas of a gateway under load while another Redis becomes the primary, by a real Sentinel."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.gateway.running import until
from tests.gateway.scale.fleet import ERAS, Client, Fleet, Load, as_principal, fleet_of
from tests.gateway.scale.replicas import Json, OldClient, message
from tests.redis_failover import RedisPair, client_at, fail_over_by_sentinel, redis_pair, sentinel
from tests.serve.exchanges import events

pytestmark = pytest.mark.slow

BOUND = 200
TASKS = 4
"""Tasks that have ended before the failover; as many begin just before it."""
SERVER = """
import sys
from pathlib import Path
import anyio
from toolweave import create_mcp_server

folder = Path(sys.argv[1])
server = create_mcp_server(name="jobs", tasks={"do": "optional"})

@server.tool
async def do(name: str) -> str:
    "Do something, and end once that is released."
    with (folder / "done.txt").open("a") as file:
        file.write(name + "\\n")
    while not (folder / f"{name}.release").exists():
        await anyio.sleep(0.02)
    return f"did {name}"

server.run_stdio()
"""


class Tasks:
    """Tasks of one session, and what its client was told of them.

    Attributes:
        ids: The id of each task, by its name.
        wrong: Answers that are neither right nor say that the replicas' store is away.
        refused: The number of answers that say so.
    """

    def __init__(self, fleet: Fleet, client: OldClient) -> None:
        self.ids: dict[str, str] = {}
        self.wrong: list[Any] = []
        self.refused = 0
        self._fleet = fleet
        self._client = client
        self._urls = itertools.cycle(fleet.urls)
        self._keys = itertools.count(10)

    async def begin(self, name: str, *, released: bool) -> None:
        """Call the tool as a task; a released one ends by itself."""
        if released:
            self.release(name)
        url = next(self._urls)
        made = await self._client.ask(url, "tools/call", name="jobs_do", arguments={"name": name}, task={})
        self.ids[name] = made["result"]["task"]["taskId"]

    def release(self, name: str) -> None:
        """Let a task end."""
        (self._fleet.folder / f"{name}.release").touch()

    async def ask(self, url: str, method: str, name: str) -> Json | None:
        """Return the result of a request for a task; None when it was refused since the store is away."""
        answer = await self._client.post(url, message(method, next(self._keys), taskId=self.ids[name]))
        received = events(answer.body)[-1]
        if "result" in received:
            return received["result"]
        if received["error"]["code"] == -32603 and received["error"].get("data") == {"retryable": True}:
            self.refused += 1
        else:
            self.wrong.append((name, answer.status, received))
        return None

    async def watch(self, stop: anyio.Event) -> None:
        """Ask every replica for every task again and again."""
        while not stop.is_set():
            for name, url in itertools.product(list(self.ids), self._fleet.urls):
                found = await self.ask(url, "tasks/get", name)
                if found is not None and found["status"] not in ("working", "completed"):
                    self.wrong.append((name, found))
            await anyio.sleep(0.02)

    async def results(self) -> list[str]:
        """Return the text of the result of every task at every replica, as soon as it can be had."""
        texts = list[str]()
        for name, url in itertools.product(self.ids, self._fleet.urls):
            while (found := await self.ask(url, "tasks/result", name)) is None:
                assert self.wrong == []
                await anyio.sleep(0.1)
            texts.append(found["content"][0]["text"])
        return texts


@asynccontextmanager
async def replicated(folder: Path) -> AsyncGenerator[tuple[Fleet, RedisPair, str]]:
    """Run two replicas that find their Redis by a Sentinel."""
    (folder / "jobs.py").write_text(SERVER, "utf-8")
    (folder / "redis").mkdir()
    with (
        redis_pair(folder / "redis") as pair,
        sentinel(folder / "redis", pair.primary.port) as place,
        fleet_of(folder, f"redis+sentinel://{place}/0", replicas=2) as fleet,
    ):
        jobs = {"command": sys.executable, "args": [str(folder / "jobs.py"), str(folder)]}
        fleet.configure({"jobs": jobs}, middleware=[{"name": "rate_limit", "calls": 1_000_000, "seconds": 60}])
        yield fleet, pair, place


@asynccontextmanager
async def loaded(fleet: Fleet, tasks: Tasks) -> AsyncGenerator[Load]:
    """Have clients of both eras call tools, and one ask for its tasks, during the block."""
    load, stop = Load(), anyio.Event()
    clients = [Client(fleet, era) for era in ERAS for _ in range(2)]
    for client in clients:
        await client.begin()
    async with anyio.create_task_group() as group:
        for client in clients:
            group.start_soon(client.work, load, stop)
        group.start_soon(tasks.watch, stop)
        yield load
        stop.set()


async def more_calls(load: Load, count: int = 30) -> None:
    """Wait until so many more calls were answered."""
    wanted = load.count() + count
    while load.count() < wanted:
        await anyio.sleep(0.01)


def change_primary(pair: RedisPair, place: str, how: str) -> None:
    """Have the Sentinel make the replica the primary; return when it is the only one."""
    if how == "killed":
        os.kill(pair.primary.pid, signal.SIGKILL)
    else:
        fail_over_by_sentinel(place)
    with client_at(pair.replica.port) as new, client_at(pair.primary.port) as old:
        until(lambda: new.info("replication")["role"] == "master", "the new primary")
        if how == "planned":
            until(lambda: old.info("replication")["role"] == "slave", "the old primary as a replica")


@pytest.mark.parametrize("how", ["planned", "killed"])
async def test_no_answer_is_wrong_lost_or_doubled_while_another_redis_becomes_the_primary(
    tmp_path: Path, how: str
) -> None:
    client = OldClient(as_principal("steady"))
    async with replicated(tmp_path) as (fleet, pair, place):
        with anyio.fail_after(BOUND):
            await client.begin(fleet.urls[0])
            for url in fleet.urls:
                while "jobs_do" not in str(await client.ask(url, "tools/list")):
                    await anyio.sleep(0.1)
            tasks = Tasks(fleet, client)
            for number in range(TASKS):
                await tasks.begin(f"early-{number}", released=True)
            await tasks.results()
            async with loaded(fleet, tasks) as load:
                await more_calls(load)
                for number in range(TASKS):
                    await tasks.begin(f"late-{number}", released=False)
                await anyio.to_thread.run_sync(change_primary, pair, place, how)
                for number in range(TASKS):
                    tasks.release(f"late-{number}")
                texts = await tasks.results()
                await more_calls(load)
            await session_ends(client, fleet)

    assert tasks.wrong == []
    assert Counter(texts) == {f"did {name}": 2 for name in tasks.ids}
    assert Counter((tmp_path / "done.txt").read_text().split()) == dict.fromkeys(tasks.ids, 1)
    assert (load.errors, load.lost) == (set(), [])
    executed = fleet.executed()
    assert {
        name: executed[name] for name, one in load.outcomes.items() if one.tool == "once" and executed[name] != 1
    } == {}


async def session_ends(client: OldClient, fleet: Fleet) -> None:
    """End the session at one replica, and wait until it has ended at the other."""
    while await client.end(fleet.urls[0]) != 200:
        await anyio.sleep(0.1)
    while (await client.post(fleet.urls[1], message("ping"))).status != 404:
        await anyio.sleep(0.1)
