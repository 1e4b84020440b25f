"""A clock that only a test moves."""

from __future__ import annotations

import anyio
import pytest

from toolweave import ConnectionLostError, McpConnection, ServerConfig
from toolweave.connect import Clock
from toolweave.testing import FakeClock, MemoryServer


async def sleeper(clock: Clock, woken: list[tuple[str, float]], name: str, *naps: float) -> None:
    for nap in naps:
        await clock.sleep(nap)
        woken.append((name, clock.monotonic()))


async def test_sleepers_wake_in_the_order_of_their_time_however_far_the_clock_moves() -> None:
    clock, woken = FakeClock(start=100), list[tuple[str, float]]()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleeper, clock, woken, "late", 5)
        tasks.start_soon(sleeper, clock, woken, "often", 1, 1, 1)
        tasks.start_soon(sleeper, clock, woken, "early", 0.5)
        await clock.until_sleeping(3)
        assert clock.sleepers == (0.5, 1, 5)
        await clock.advance(10)

    assert woken == [("early", 100.5), ("often", 101), ("often", 102), ("often", 103), ("late", 105)]
    assert clock.monotonic() == 110


async def test_nobody_wakes_before_the_time() -> None:
    clock, woken = FakeClock(), list[tuple[str, float]]()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleeper, clock, woken, "one", 2)
        await clock.advance(1.5)
        assert woken == []
        assert clock.sleepers == (0.5,)
        await clock.advance(0.5)
        assert woken == [("one", 2)]


async def test_who_sleeps_for_no_time_does_not_wait_for_the_clock() -> None:
    await FakeClock().sleep(0)


async def test_a_sleeper_that_is_cancelled_is_forgotten() -> None:
    clock = FakeClock()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.sleep, 1)
        await clock.until_sleeping()
        tasks.cancel_scope.cancel()

    assert clock.sleepers == ()
    assert repr(clock) == "<FakeClock at 0 s, 0 sleeping>"


async def test_time_does_not_go_back_and_jitter_is_what_was_chosen() -> None:
    with pytest.raises(ValueError, match="a clock does not go back"):
        await FakeClock().advance(-1)
    with pytest.raises(ValueError, match=r"jitter must be in \[0, 1\)"):
        FakeClock(jitter=1)
    assert FakeClock(jitter=0.25).jitter() == 0.25


async def test_a_connection_waits_by_it_before_it_restarts() -> None:
    clock, server = FakeClock(), MemoryServer(protocol="2025-11-25")
    connection = McpConnection(ServerConfig(name="memory", server=server), clock=clock)

    async with connection:
        server.crash()
        await clock.until_sleeping()
        assert connection.state == "backoff"
        assert server.conversations == 1
        await clock.advance(clock.sleepers[0])
        await connection.ping()
        assert server.conversations == 2


async def test_a_backoff_that_is_not_over_costs_no_second() -> None:
    clock, server = FakeClock(), MemoryServer(protocol="2025-11-25")
    connection = McpConnection(ServerConfig(name="memory", server=server), clock=clock)

    async with connection:
        for _ in range(3):
            server.crash()
            await clock.until_sleeping()
            await clock.advance(60)
        await connection.ping()

    assert connection.restarts == 3
    assert not isinstance(connection.error, ConnectionLostError)
