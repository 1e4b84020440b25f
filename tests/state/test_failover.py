"""The store when another server becomes the primary: a planned failover behind one address, and Sentinels."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from tests.redis_failover import (
    RedisPair,
    Switch,
    client_at,
    fail_over_by_sentinel,
    name_primary,
    redis_pair,
    sentinel,
)
from tests.redis_server import RedisServer
from tests.state.refusing import RefusingProxy
from toolweave.errors import StoreError
from toolweave.state import Document, RedisStore, open_store


@pytest.mark.slow
async def test_an_open_store_continues_at_the_new_primary_after_a_planned_failover(tmp_path: Path) -> None:
    with redis_pair(tmp_path) as pair:
        async with Switch.before(pair.primary.port) as switch:
            async with RedisStore(f"redis://127.0.0.1:{switch.port}/0") as store:
                first = await store.put("c", "n", 1)
                await anyio.to_thread.run_sync(pair.fail_over)
                switch.target = pair.primary.port
                with anyio.fail_after(30):
                    second = await store.put("c", "n", 2, expect=first)
                found = await store.get("c", "n")
            with client_at(pair.replica.port) as old:
                assert old.info("replication")["role"] == "slave"

    assert second is not None
    assert found is not None
    assert (found.value, found.revision) == (2, second)


@pytest.mark.slow
async def test_a_write_waits_until_the_address_leads_to_the_new_primary(tmp_path: Path) -> None:
    with redis_pair(tmp_path) as pair:
        async with (
            Switch.before(pair.primary.port) as switch,
            RedisStore(f"redis://127.0.0.1:{switch.port}/0", wait_seconds=60) as store,
            anyio.create_task_group() as tasks,
        ):
            await store.put("c", "n", 1)
            await anyio.to_thread.run_sync(pair.fail_over)
            before = switch.connections
            tasks.start_soon(store.put, "c", "n", 2)
            with anyio.fail_after(60):
                while switch.connections < before + 2:  # it dialled again, and reached the replica again
                    await anyio.sleep(0.01)
                switch.target = pair.primary.port
                while True:
                    found = await store.get("c", "n")
                    if found is not None and found.value == 2:
                        break
                    await anyio.sleep(0.01)


@pytest.mark.slow
async def test_signals_arrive_again_after_a_planned_failover(tmp_path: Path) -> None:
    with redis_pair(tmp_path) as pair:
        async with Switch.before(pair.primary.port) as switch:
            url = f"redis://127.0.0.1:{switch.port}/0"
            async with RedisStore(url) as store, RedisStore(url) as other, store.listening("s") as ear:
                await store.put("c", "n", 1)
                await anyio.to_thread.run_sync(pair.fail_over)
                switch.target = pair.primary.port
                with anyio.fail_after(60):
                    async with anyio.create_task_group() as tasks:  # while somebody waits for a signal
                        tasks.start_soon(ear.wait, 60)
                        await store.put("c", "n", 2)
                    pair.replica.kill()  # no signal can arrive by way of the old primary
                    await other.put("c", "m", 1)
                    async with anyio.create_task_group() as tasks:

                        async def send() -> None:
                            while True:
                                await other.signal("s")
                                await anyio.sleep(0.1)

                        tasks.start_soon(send)
                        assert await ear.wait(60)
                        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "error",
    [
        "READONLY You can't write against a read only replica.",
        "ERR Error running script: @user_script: -READONLY You can't write against a read only replica.",  # Redis 6
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "LOADING Redis is loading the dataset in memory",
        "NOREPLICAS Not enough good replicas to write.",
    ],
)
async def test_a_connection_to_a_server_that_is_not_the_primary_any_more_is_replaced(
    redis_server: RedisServer, redis_url: str, error: str
) -> None:
    database = redis_url.rpartition("/")[2]
    async with (
        RefusingProxy.before(redis_server.port) as proxy,
        RedisStore(f"redis://127.0.0.1:{proxy.port}/{database}") as store,
    ):
        async with anyio.create_task_group() as tasks:
            for number in range(200):  # several connections
                tasks.start_soon(store.put, "c", str(number), number)
        proxy.refuse_present_connections(error)
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(store.put, "c", str(number), -number)
        refused = proxy.refused
        found = await store.read([("c", str(number)) for number in range(200)])

    assert [one.value for one in found if one is not None] == [-number for number in range(200)]
    assert 1 <= refused <= 400


async def test_an_address_that_leads_to_a_replica_for_longer_than_one_waits_is_an_error(
    redis_server: RedisServer, redis_url: str
) -> None:
    async with RefusingProxy.before(redis_server.port) as proxy:
        store = RedisStore(f"redis://127.0.0.1:{proxy.port}/{redis_url.rpartition('/')[2]}", wait_seconds=0.3)
        proxy.refuse_all("READONLY You can't write against a read only replica.")
        with pytest.raises(StoreError, match="is a replica, which takes no writes") as raised:
            await store.put("c", "n", 1)

    assert "not known whether" not in str(raised.value)
    assert proxy.connections > 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["planned", "killed", "hangs"])
async def test_writers_continue_at_the_primary_that_sentinel_names(tmp_path: Path, how: str) -> None:
    with redis_pair(tmp_path) as pair, sentinel(tmp_path, pair.primary.port) as place:
        url = f"redis+sentinel://127.0.0.1:1,{place}/0"  # the first one listed is down
        found: Sequence[Document | None] = []
        async with RedisStore(url, wait_seconds=30) as store, anyio.create_task_group() as tasks:
            written = [0] * 8

            async def write(number: int) -> None:
                while True:
                    written[number] += 1
                    await store.put("c", str(number), written[number])
                    await anyio.sleep(0.01)

            with anyio.fail_after(120):
                for number in range(8):
                    tasks.start_soon(write, number)
                await _progress(written)
                old = pair.primary
                await anyio.to_thread.run_sync(_change, pair, place, how)
                await _progress(written)
                with client_at(pair.replica.port) as new:  # which is the primary now
                    assert new.info("replication")["role"] == "master"
                found = await store.read([("c", str(number)) for number in range(8)])
            if how == "hangs":
                old.go_on()
            tasks.cancel_scope.cancel()

    assert len(found) == 8
    assert all(one is not None and one.value > 3 for one in found)


async def _progress(written: list[int]) -> None:
    """Wait until every writer has been answered three more times."""
    before = list(written)
    while any(now < then + 4 for now, then in zip(written, before, strict=True)):
        await anyio.sleep(0.01)


def _change(pair: RedisPair, place: str, how: str) -> None:
    """Have Sentinel make the replica the primary, and wait until it is."""
    if how == "killed":
        os.kill(pair.primary.pid, signal.SIGKILL)
    elif how == "hangs":
        pair.primary.pause()
    else:
        fail_over_by_sentinel(place)
    with client_at(pair.replica.port) as new:
        while new.info("replication")["role"] != "master":
            pass


@pytest.mark.slow
async def test_an_open_store_follows_its_sentinels_while_the_old_primary_still_accepts_writes(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with (
        redis_pair(tmp_path) as pair,
        sentinel(tmp_path, pair.primary.port) as place,
        RedisServer(tmp_path / "other") as other,
    ):
        found: Sequence[Document | None] = []
        heard = False
        async with RedisStore(f"redis+sentinel://{place}/0") as store, store.listening("s") as ear:
            for number in range(20):
                await store.put("c", str(number), "before")
            name_primary(place, other.port)  # the Sentinel demotes the old one later, or as in this test never
            with anyio.fail_after(60):
                while not await _has_keys(other.port):
                    await store.put("c", "n", "after")
                async with anyio.create_task_group() as tasks:  # more connections than before
                    for number in range(200):
                        tasks.start_soon(store.put, "c", f"more-{number}", "after")
                async with RedisStore(other.url) as reader, anyio.create_task_group() as tasks:
                    found = await reader.read([("c", f"more-{number}") for number in range(200)])

                    async def send() -> None:
                        while True:
                            await reader.signal("s")
                            await anyio.sleep(0.05)

                    tasks.start_soon(send)
                    heard = await ear.wait(60)
                    tasks.cancel_scope.cancel()

    assert all(one is not None for one in found)
    assert heard


async def _has_keys(port: int) -> bool:
    def look() -> bool:
        with client_at(port) as client:
            return bool(client.dbsize())

    return await anyio.to_thread.run_sync(look)


@pytest.mark.slow
async def test_an_open_store_works_on_when_its_sentinels_end(tmp_path: Path) -> None:
    with redis_pair(tmp_path) as pair:
        with sentinel(tmp_path, pair.primary.port) as place:
            store = RedisStore(f"redis+sentinel://{place}/0")
            await store.__aenter__()
            await store.put("c", "n", 0)
        async with store:
            begun = anyio.current_time()
            with anyio.fail_after(60):
                while anyio.current_time() < begun + 2:  # longer than between two checks of the primary
                    await store.put("c", "n", 1)
                found = await store.get("c", "n")
        await store.__aexit__(None, None, None)

    assert found is not None
    assert found.value == 1


@pytest.mark.slow
async def test_a_service_that_no_sentinel_knows_is_an_error_that_says_so(tmp_path: Path) -> None:
    with redis_pair(tmp_path) as pair, sentinel(tmp_path, pair.primary.port) as place:
        address = place.partition("/")[0]
        store = RedisStore(f"redis+sentinel://{address}/other?sentinel_password=s3cret", wait_seconds=0.5)
        with anyio.fail_after(30), pytest.raises(StoreError, match="is this the name of the service") as raised:
            await store.put("c", "n", 1)

    assert f"redis+sentinel://{address}/other/0 has no primary by its Sentinels" in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis+sentinel://a:1,b/name", "redis+sentinel://a:1,b:26379/name/0"),
        (
            "rediss+sentinel://me:s3cret@a:1,[::1]:2/name/3?sentinel_password=s3cret",
            "rediss+sentinel://a:1,[::1]:2/name/3",
        ),
        ("valkey+sentinel://:s3cret@a/name?socket_timeout=4", "redis+sentinel://a:26379/name/0"),
    ],
)
async def test_an_address_with_sentinels_is_shown_without_its_secrets(url: str, place: str) -> None:
    store = open_store(url)

    assert isinstance(store, RedisStore)
    assert store.place == place
    assert "s3cret" not in repr(store)
    assert "s3cret" not in json.dumps(str(vars(store)))


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://a:1",
        "redis+sentinel:///name",
        "redis+sentinel://a:s3cret/name",
        "redis+sentinel://a:1/name/s3cret",
        "redis+sentinel://a:1/name/0?db=1",
        "redis+sentinel://a:1/name?password=s3cret",
    ],
)
async def test_an_address_with_sentinels_that_is_not_complete_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match=r"or redis\+sentinel://host:port,host:port/service/database") as raised:
        open_store(url)
    assert "s3cret" not in str(raised.value)
