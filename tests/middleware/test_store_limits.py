"""Limits that several processes count together, over every store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clocks import Clock
from tests.redis_server import RedisServer
from tests.state.proxy import Proxy
from toolweave.middleware import RateLimit, StoreLimits, middleware_from_config
from toolweave.state import MemoryStore, RedisStore, Store, open_store

DAY = 86_400


@pytest.fixture(params=["memory", "file", "redis"])
def stores(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Sequence[Store]:
    """Two stores that hold the same, as two processes open them."""
    if request.param == "memory":
        return [MemoryStore()] * 2
    place = str(tmp_path / "limits.db") if request.param == "file" else redis_url
    return [open_store(place), open_store(place)]


async def test_a_burst_is_one_for_all_processes_and_so_is_the_rate(stores: Sequence[Store]) -> None:
    clock = Clock()
    here, there = (StoreLimits(store, clock=clock) for store in stores)
    taken = [await limits.take("k", rate=0.5, burst=3) for limits in (here, there, here, there, here)]
    clock.now += 2
    later = [await limits.take("k", rate=0.5, burst=3) for limits in (there, here)]
    other = await there.take("another", rate=0.5, burst=3)

    assert taken == [0, 0, 0, 2, 2]
    assert later == [0, 2]
    assert other == 0


async def test_a_budget_is_one_for_all_processes_until_the_next_period(stores: Sequence[Store]) -> None:
    clock = Clock()
    here, there = (StoreLimits(store, clock=clock) for store in stores)
    spent = [await limits.spend("k", limit=2, period=60) for limits in (here, there, here, there)]
    clock.now += 60
    later = [await limits.spend("k", limit=2, period=60) for limits in (there, here, there)]

    assert [one > 0 for one in spent] == [False, False, True, True]
    assert [one > 0 for one in later] == [False, False, True]


async def test_many_at_once_in_two_processes_get_no_more_than_there_is(stores: Sequence[Store]) -> None:
    limits = [StoreLimits(store) for store in stores]
    taken: list[float] = []

    async def take(number: int) -> None:
        taken.append(await limits[number % 2].spend("k", limit=25, period=86_400 * 1_000))

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(take, number)

    assert sum(one == 0 for one in taken) == 25


async def test_limits_of_other_names_count_for_themselves() -> None:
    store = MemoryStore()
    one, other = StoreLimits(store, name="one"), StoreLimits(store, name="other")

    assert [await limits.spend("k", limit=1, period=60) for limits in (one, other)] == [0, 0]


@pytest.mark.slow
async def test_while_the_store_is_away_every_process_counts_alone(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        here = StoreLimits(RedisStore(server.url, wait_seconds=1))
        before = await here.spend("k", limit=1, period=86_400)
        assert await here.spend("k", limit=1, period=86_400) > 0
        server.kill()
        alone = [await here.spend("other", limit=1, period=86_400) == 0 for _ in range(3)]
        server.start()
        store = RedisStore(server.url)
        with anyio.fail_after(30):
            while not await store.scan("gateway-limits"):
                await here.spend("new", limit=100, period=86_400)
                await anyio.sleep(0.1)

    assert before == 0
    assert alone == [True, False, False]


def test_limits_of_a_config_are_counted_in_the_store_that_is_given() -> None:
    entries: list[Any] = [{"name": "rate_limit", "calls": 1}, {"name": "budget", "calls": 1}, {"name": "timing"}]
    rate, budget, _ = middleware_from_config(entries, store=MemoryStore())

    assert isinstance(rate, RateLimit)
    assert isinstance(rate.store, StoreLimits)
    assert isinstance(getattr(budget, "store", None), StoreLimits)


class Watch:
    """A watch that was told how the store is."""

    def __init__(self) -> None:
        self.away: str | None = None
        self.answered_at = -1.0

    def has_answered_since(self, moment: float) -> bool:
        return self.answered_at > moment


@pytest.mark.slow
async def test_a_store_that_hangs_is_not_asked_again_until_the_watch_has_reached_it(tmp_path: Path) -> None:
    watch, first = Watch(), list[float]()
    with RedisServer(tmp_path) as server, anyio.fail_after(60):
        async with (
            Proxy.before(server.port, b"EVAL") as proxy,
            RedisStore(f"redis://127.0.0.1:{proxy.port}/0") as store,
        ):
            limits = StoreLimits(store, watch=watch)
            assert await limits.spend("k", limit=1_000, period=DAY) == 0
            server.pause()

            async def spend() -> None:
                first.append(await limits.spend("k", limit=1_000, period=DAY))

            async with anyio.create_task_group() as tasks:  # calls of one caller, which take turns
                for _ in range(20):
                    tasks.start_soon(spend)
            dialled = proxy.connections
            alone = [await limits.spend(str(number), limit=1, period=DAY) for number in range(200)]
            refused = await limits.spend("0", limit=1, period=DAY)
            assert proxy.connections == dialled  # a call that asks would dial
            watch.away = "the server hangs"
            server.go_on()
            watch.answered_at = anyio.current_time()
            assert await limits.spend("0", limit=1, period=DAY) > 0
            assert proxy.connections == dialled
            watch.away = None
            together = await limits.spend("0", limit=1, period=DAY)
            counted = [one.key for one in await store.scan("gateway-limits")]

    assert first == [0] * 20
    assert alone == [0] * 200
    assert refused > 0
    assert together == 0
    assert ":budget:0" in counted


@pytest.mark.slow
async def test_without_a_watch_one_call_tries_and_the_others_do_not_wait_for_it(tmp_path: Path) -> None:
    ahead = 0
    with RedisServer(tmp_path) as server, anyio.fail_after(60):
        async with (
            Proxy.before(server.port, b"EVAL") as proxy,
            RedisStore(f"redis://127.0.0.1:{proxy.port}/0") as store,
        ):
            limits = StoreLimits(store)
            assert await limits.spend("k", limit=1_000, period=DAY) == 0
            server.pause()
            assert await limits.spend("k", limit=1_000, period=DAY) == 0
            done = anyio.Event()

            async def try_for_others() -> None:
                dialled = proxy.connections
                while proxy.connections == dialled:
                    await limits.spend("k", limit=1_000_000, period=DAY)
                    await anyio.sleep(0.01)
                done.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(try_for_others)
                while not done.is_set():  # also while the other call tries
                    assert await limits.spend(str(ahead), limit=1, period=DAY) == 0
                    ahead += 1
                    await anyio.sleep(0.01)
            server.go_on()
            while not any(one.key == ":budget:again" for one in await store.scan("gateway-limits")):
                await limits.spend("again", limit=1_000_000, period=DAY)
                await anyio.sleep(0.05)

    assert ahead > 1
