"""Signals of a store: heard by all who listen at that moment, in every process that they reach."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.redis_server import RedisServer
from toolweave.state import MemoryStore, RedisStore, SqliteStore, Store, listening, signal

NEVER = 3_600.0


@asynccontextmanager
async def two_of(kind: str, tmp_path: Path, url: str) -> AsyncGenerator[tuple[Store, Store], None]:
    """Return a store to listen at and one to signal at, which are one place."""
    if kind == "redis":
        async with RedisStore(url) as one, RedisStore(url) as other:
            yield one, other
    else:
        async with MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.db") as store:
            yield store, store


@pytest.mark.parametrize("kind", ["memory", "file", "redis"])
async def test_who_listens_hears_a_signal_of_that_name_and_no_other(kind: str, tmp_path: Path, redis_url: str) -> None:
    heard: list[str] = []
    async with two_of(kind, tmp_path, redis_url) as (here, there), anyio.create_task_group() as tasks:
        ready = [anyio.Event() for _ in range(3)]

        async def listen(name: str, ready: anyio.Event) -> None:
            async with listening(here, name) as ear:
                ready.set()
                assert await ear.wait(NEVER)
                heard.append(name)

        for name, event in zip(("a", "a", "b"), ready, strict=True):
            tasks.start_soon(listen, name, event)
            await event.wait()
        await signal(there, "other")
        await signal(there, "a")
        while len(heard) < 2:
            await anyio.sleep(0.01)
        assert heard == ["a", "a"]
        await signal(there, "b")
    assert heard == ["a", "a", "b"]


async def test_who_listens_to_redis_while_another_hears_is_not_kept_waiting(redis_url: str) -> None:
    async with RedisStore(redis_url, wait_seconds=NEVER) as store, anyio.create_task_group() as tasks:

        async def hear() -> None:
            async with listening(store, "heard") as ear:
                while await ear.wait(NEVER):
                    heard.set()

        heard = anyio.Event()
        tasks.start_soon(hear)
        while not heard.is_set():  # then it waits for the next, and holds the connection of all who listen
            await signal(store, "heard")
            await anyio.sleep(0.01)
        async with listening(store, "other") as ear:
            assert ear.sure
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["memory", "file", "redis"])
async def test_a_signal_that_came_before_somebody_waits_for_it_is_not_lost(
    kind: str, tmp_path: Path, redis_url: str
) -> None:
    async with two_of(kind, tmp_path, redis_url) as (here, there), listening(here, "a") as ear:
        await signal(there, "a")
        assert await ear.wait(NEVER)
        assert not await ear.wait(0.01)


async def test_signals_go_from_thread_to_thread() -> None:
    store = MemoryStore()
    async with listening(store, "a") as ear:
        thread = threading.Thread(target=lambda: anyio.run(signal, store, "a"))
        thread.start()
        assert await ear.wait(NEVER)
        thread.join()


async def test_signals_are_heard_again_after_the_server_was_away(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        async with RedisStore(server.url) as here, RedisStore(server.url) as there, listening(here, "a") as ear:
            assert ear.sure
            server.restart()
            while not await ear.wait(0.2):  # who hears nothing looks for itself meanwhile
                await signal(there, "a")


async def test_where_the_server_is_away_nobody_relies_on_signals() -> None:
    async with listening(RedisStore("redis://127.0.0.1:1/0", wait_seconds=0.2), "a") as ear:
        assert not ear.sure
        assert not await ear.wait(0.01)


async def test_a_store_that_passes_on_no_signals_is_looked_at() -> None:
    store = object()
    await signal(store, "a")
    async with listening(store, "a") as ear:
        assert not ear.sure
        assert not await ear.wait(0.01)
