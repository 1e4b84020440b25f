"""Replicas that live while their heartbeats are late, lost, or written to a primary of which others know no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.gateway.scale.replicas import KEYS, Json
from tests.redis_failover import Switch, client_at
from tests.redis_server import RedisServer
from toolweave.errors import StoreError
from toolweave.gateway import Replicas, shared_redis
from toolweave.gateway._replicas.replicas import ReplicaGone
from toolweave.state import MemoryStore, Store

pytestmark = pytest.mark.slow

LIVING, MAIL = "gateway-living", "gateway-mail"


class Outage(MemoryStore):
    """A store that is away while `away` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    async def write(self, changes: Sequence[Any], **options: Any) -> Any:
        """Write, or raise StoreError."""
        if self.away:
            raise StoreError("the store is away")
        return await super().write(changes, **options)


@asynccontextmanager
async def running(*all_replicas: Replicas) -> AsyncGenerator[None]:
    """Run replicas for the block."""
    async with anyio.create_task_group() as tasks:
        for one in all_replicas:
            await tasks.start(one.run)
        yield
        tasks.cancel_scope.cancel()


async def ask_to_do(here: Replicas, there: Replicas, answers: list[Json]) -> None:
    """Ask another replica to do something, and add its answer."""
    answers.append(await here.ask(there.id, "do", {}))


async def beats(store: Store, replica: Replicas, count: int = 1) -> None:
    """Wait until a replica has written so many more heartbeats."""
    last: int | None = None
    while count >= 0:
        found = await store.get(LIVING, replica.id)
        if found is not None and found.revision != last:
            last = found.revision
            count -= 1
        await anyio.sleep(0.01)


async def test_a_replica_whose_heartbeat_was_lost_once_is_not_declared_gone() -> None:
    store = MemoryStore()
    here, there = Replicas(store, KEYS), Replicas(store, KEYS)
    again = anyio.Event()
    answers: list[Json] = []

    async def act(_: Json) -> Json:
        await again.wait()
        return {"done": True}

    there.on("do", act)
    with anyio.fail_after(60):
        async with running(here, there), anyio.create_task_group() as tasks:
            await beats(store, there)
            await store.delete(LIVING, there.id)
            tasks.start_soon(ask_to_do, here, there, answers)
            await beats(store, there, 0)
            again.set()

    assert answers == [{"done": True}]


async def test_a_replica_that_ended_is_gone() -> None:
    store = MemoryStore()
    here, there = Replicas(store, KEYS), Replicas(store, KEYS)
    with anyio.fail_after(60):
        async with running(here):
            async with running(there):
                pass
            with pytest.raises(ReplicaGone):
                await here.ask(there.id, "do", {})


async def test_a_silent_replica_is_gone_after_a_while() -> None:
    store = MemoryStore()
    here = Replicas(store, KEYS)
    await store.put("gateway-known", "0123456789abcdef", {"group": ""}, ttl=60)
    with anyio.fail_after(60):
        async with running(here):
            with pytest.raises(ReplicaGone):
                await here.ask("0123456789abcdef", "do", {})


async def test_heartbeats_do_not_wait_for_what_is_done_when_the_store_is_back() -> None:
    store = Outage()
    replica = Replicas(store, KEYS)
    begun, release = anyio.Event(), anyio.Event()

    async def slow() -> None:
        begun.set()
        await release.wait()

    replica.on_return(slow)
    with anyio.fail_after(60):
        async with running(replica):
            await beats(store, replica, 0)
            store.away = True
            while replica.away is None:
                await anyio.sleep(0.01)
            store.away = False
            await begun.wait()
            await beats(store, replica, 2)
            release.set()


async def test_a_replica_that_has_not_found_the_new_primary_yet_is_not_declared_gone(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    answers: list[Json] = []
    with RedisServer(tmp_path / "old") as old, RedisServer(tmp_path / "new") as new:
        async with Switch.before(old.port) as address:
            url = f"redis://127.0.0.1:{address.port}/0"
            here = Replicas(shared_redis(f"{url}?client_name=here"), KEYS)
            there = Replicas(shared_redis(f"{url}?client_name=there"), KEYS)

            async def act(_: Json) -> Json:
                return {"done": True}

            there.on("do", act)
            with anyio.fail_after(60):
                async with running(here, there), anyio.create_task_group() as tasks:
                    await beats(there.store, there)
                    address.target = new.port
                    await anyio.to_thread.run_sync(disconnect, old.port, "here")
                    async with shared_redis(new.url) as store:
                        await beats(store, here, 0)
                        tasks.start_soon(ask_to_do, here, there, answers)
                        while len(await store.scan(MAIL)) < 2:  # the question, and its repetition
                            await anyio.sleep(0.01)
                    await anyio.to_thread.run_sync(disconnect, old.port, "there")

    assert answers == [{"done": True}]


def disconnect(port: int, name: str) -> None:
    """End the connections of a client of the server at a port."""
    with client_at(port) as client:
        for one in client.client_list():
            if one["name"] == name:
                client.client_kill_filter(_id=one["id"])
