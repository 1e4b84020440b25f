"""Three replicas and a Redis under load of both eras, while something happens to one of them.

No answer is lost or doubled where the rules allow to send again, and every other call ends with an error that says what
is known. `TOOLWEAVE_LONG_PAUSE=30` pauses the Redis for that long instead of two seconds.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.gateway.scale.fleet import ERAS, Client, Fleet, Load, as_principal, fleet_of
from tests.gateway.scale.replicas import OldClient, message
from tests.redis_server import RedisServer

pytestmark = pytest.mark.slow

PAUSE_SECONDS = float(os.environ.get("TOOLWEAVE_LONG_PAUSE", "2"))
CLIENTS = 3


@asynccontextmanager
async def loaded(fleet: Fleet) -> AsyncGenerator[Load]:
    """Have clients of both eras call tools during the block, and for a moment before and after it."""
    load, stop = Load(), anyio.Event()
    clients = [Client(fleet, era) for era in ERAS for _ in range(CLIENTS)]
    with anyio.fail_after(120 + PAUSE_SECONDS):
        for client in clients:
            await client.begin()
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(client.work, load, stop)
            await more_calls(load)
            yield load
            await more_calls(load)
            stop.set()


async def more_calls(load: Load, count: int = 15) -> None:
    """Wait until so many more calls were answered."""
    wanted = load.count() + count
    while load.count() < wanted:
        await anyio.sleep(0.01)


def judge(fleet: Fleet, load: Load) -> None:
    """Assert that every answer belongs to its call, and that no call was executed twice that may not be."""
    executed = fleet.executed()
    for name, one in load.outcomes.items():
        if one.answer is not None:
            assert one.answer.split()[1] == name
            assert executed[name] >= 1
        if one.tool == "once":
            assert executed[name] <= 1, (name, one)


def eras_of(load: Load) -> set[str]:
    return {name.rpartition("-")[0] for name, one in load.outcomes.items() if one.answer is not None}


async def a_replica_is_killed(fleet: Fleet) -> None:
    async with loaded(fleet) as load:
        await anyio.to_thread.run_sync(fleet.kill, 0)
        await more_calls(load)
        await anyio.to_thread.run_sync(fleet.start, 0)

    judge(fleet, load)
    assert load.errors == set()
    assert len(load.lost) <= 2 * CLIENTS
    assert all(load.outcomes[name].tool == "once" for name in load.lost)
    assert eras_of(load) == set(ERAS)


async def upstreams_are_started_again(fleet: Fleet) -> None:
    async with loaded(fleet) as load:
        for one in fleet.upstreams:
            one.kill()
            await anyio.sleep(0.1)
            await anyio.to_thread.run_sync(one.start)

    judge(fleet, load)
    assert load.lost == []
    precise = (
        "was not sent",
        "outcome",
        "cannot be reached",
        "no answer from",
        "session has ended",
        "connection",
        "lost",
        "refused",
    )
    assert [one for one in load.errors if not any(word in one for word in precise)] == []
    assert eras_of(load) == set(ERAS)


async def the_redis_is_away(fleet: Fleet, redis: RedisServer) -> None:
    client = OldClient(as_principal("steady"))
    async with loaded(fleet) as load:
        await client.begin(fleet.urls[0])
        redis.pause()
        try:
            await anyio.sleep(PAUSE_SECONDS / 2)
            told = await client.post(fleet.urls[0], message("notifications/cancelled", None, requestId=99))
            others = [(await client.post(url, message("ping"))).status for url in fleet.urls]
            await anyio.sleep(PAUSE_SECONDS / 2)
        finally:
            redis.go_on()
        cancelled = message("notifications/cancelled", None, requestId=99)
        with anyio.fail_after(60):
            for url in fleet.urls[:2]:  # each sees for itself that the Redis is back
                while (await client.post(url, cancelled)).status != 202:
                    await anyio.sleep(0.1)
        ended = await client.end(fleet.urls[0])
        statuses = {(await client.post(fleet.urls[2], message("ping"))).status for _ in range(2)}
        with anyio.fail_after(60):
            while (await client.post(fleet.urls[2], message("ping"))).status == 200:
                await anyio.sleep(0.1)

    judge(fleet, load)
    assert (load.errors, load.lost) == (set(), [])
    assert (told.status, told.json()["error"]["code"]) == (503, -32603)
    assert others == [200] * 3
    assert ended == 200
    assert statuses <= {200, 404}


async def the_config_changes(fleet: Fleet) -> None:
    async with loaded(fleet) as load:
        fleet.configure({"more": fleet.upstreams[0].entry})
        client = OldClient(as_principal("steady"))
        await client.begin(fleet.urls[0])
        with anyio.fail_after(60):
            for url in fleet.urls:
                answer = await client.call(url, "more_again", id="there")
                while answer.get("error") or answer["result"].get("isError"):
                    await anyio.sleep(0.1)
                    answer = await client.call(url, "more_again", id="there")
        fleet.configure()

    judge(fleet, load)
    assert (load.errors, load.lost) == (set(), [])


async def a_key_is_revoked(fleet: Fleet) -> None:
    leaving = [Client(fleet, era, "leaving") for era in ERAS]
    async with loaded(fleet) as load:
        for client in leaving:
            await client.begin()
        before = [await client.called("modern", "again", f"before-{client.era}") for client in leaving]
        fleet.configure(callers=["steady"])
        with anyio.fail_after(60):
            for client in leaving:
                for number in range(len(fleet.urls)):
                    while (await client.called("modern", "again", "after", at=number)).error is None:
                        await anyio.sleep(0.1)
        executed = fleet.executed()["after"]
        refused = [await client.called("modern", "again", "after") for client in leaving for _ in fleet.urls]
        assert fleet.executed()["after"] == executed
    fleet.configure()

    judge(fleet, load)
    assert (load.errors, load.lost) == (set(), [])
    assert [one.error for one in before] == [None, None]
    assert [str(one.error).startswith("HTTP 401") for one in refused] == [True] * len(refused)


async def replicas_are_replaced_by_drain(fleet: Fleet) -> None:
    async with loaded(fleet) as load:
        code = await anyio.to_thread.run_sync(fleet.drain, 1)
        await anyio.to_thread.run_sync(fleet.start, 1)

    judge(fleet, load)
    assert code == 0
    assert (load.errors, load.lost) == (set(), [])
    assert eras_of(load) == set(ERAS)


async def test_no_answer_is_lost_or_doubled_whatever_happens_to_a_part_of_a_fleet(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    with RedisServer(tmp_path / "redis", durable=True) as redis, fleet_of(tmp_path, redis.url) as fleet:
        await the_config_changes(fleet)
        await a_key_is_revoked(fleet)
        await the_redis_is_away(fleet, redis)
        await upstreams_are_started_again(fleet)
        await a_replica_is_killed(fleet)
        await replicas_are_replaced_by_drain(fleet)
