"""What the store on a server does beyond the promises of every store: lost answers, lost servers, refusals."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import redis

from tests.redis_server import RedisServer, redis_cluster
from tests.state.proxy import Proxy
from toolweave.errors import StoreError
from toolweave.state import Delete, Put, RedisStore

SECRET = "s3cret/word"
IN_A_URL = "s3cret%2Fword"

WITHOUT_THE_PACKAGE = """
import anyio, sys
sys.modules["redis"] = None
from toolweave.errors import StoreError
from toolweave.state import RedisStore, open_store

try:
    anyio.run(open_store("redis://me:s3cret@localhost/0").get, "c", "one")
except StoreError as exc:
    print(exc, exc.__context__)
"""


def client(url: str) -> Any:
    kind: Any = redis.Redis
    return kind.from_url(url)


@pytest.mark.parametrize("answers", [1, 3])
async def test_a_write_whose_answer_is_lost_is_done_once_and_told_its_revision(
    redis_url: str, redis_server: RedisServer, answers: int
) -> None:
    database = redis_url.rpartition("/")[2]
    async with (
        Proxy.before(redis_server.port, b"EVAL") as proxy,
        RedisStore(f"redis://127.0.0.1:{proxy.port}/{database}") as store,
        RedisStore(redis_url) as other,
    ):
        first = await store.put("c", "n", 1)
        proxy.to_lose = answers
        second = await store.put("c", "n", 2, expect=first)
        assert proxy.lost == answers
        seen = await other.get("c", "n")
        proxy.to_lose = answers
        assert await store.delete("c", "n", expect=second)
        proxy.to_lose = answers
        assert not await store.delete("c", "n")
        proxy.to_lose = answers
        assert await store.get("c", "n") is None

    assert seen is not None
    assert (seen.value, seen.revision) == (2, second)


async def test_a_write_that_was_done_does_not_undo_what_others_wrote_before_it_was_sent_again(
    redis_url: str, redis_server: RedisServer
) -> None:
    database = redis_url.rpartition("/")[2]
    written: list[int | None] = []
    seen: int | None = None
    async with (
        Proxy.before(redis_server.port, b"mine") as proxy,
        RedisStore(f"redis://127.0.0.1:{proxy.port}/{database}") as store,
        RedisStore(redis_url) as other,
    ):
        await store.put("c", "n", "before")
        proxy.to_lose = 1_000  # every answer, until the other has written

        async def write() -> None:
            written.append(await store.put("c", "n", "mine"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            while seen is None:
                found = await other.get("c", "n")
                seen = found.revision if found is not None and found.value == "mine" else None
            await other.put("c", "n", "theirs")
            proxy.to_lose = 0
        last = await other.get("c", "n")

    assert proxy.lost >= 1
    assert written == [seen]
    assert last is not None
    assert last.value == "theirs"


@pytest.mark.slow
async def test_a_write_that_never_gets_an_answer_says_that_it_may_have_been_done(
    redis_url: str, redis_server: RedisServer
) -> None:
    async with Proxy.before(redis_server.port, b"EVAL") as proxy:
        store = RedisStore(f"redis://127.0.0.1:{proxy.port}/{redis_url.rpartition('/')[2]}", wait_seconds=0.5)
        proxy.to_lose = 1_000
        with anyio.fail_after(60):
            with pytest.raises(StoreError, match=r"cannot be reached .* not known whether the document was written"):
                await store.put("c", "n", 1)
            with pytest.raises(StoreError, match=r"is this its address\?$"):
                await store.scan("c")


@pytest.mark.slow
async def test_what_went_wrong_is_told_though_the_last_attempt_had_no_time_to_go_wrong_too(
    redis_url: str, redis_server: RedisServer
) -> None:
    async with Proxy.before(redis_server.port, b"EVAL") as proxy:
        store = RedisStore(f"redis://127.0.0.1:{proxy.port}/{redis_url.rpartition('/')[2]}", wait_seconds=4)
        proxy.to_lose, proxy.lose_after = 1_000, 1.6  # of four seconds the third attempt has less than one
        with (
            anyio.fail_after(60),
            pytest.raises(StoreError, match=r"cannot be reached .* is this its address\?; it is"),
        ):
            await store.put("c", "n", 1)
        assert proxy.lost == 3


async def test_a_server_that_is_started_again_is_waited_for_and_has_what_it_answered(tmp_path: Path) -> None:
    with RedisServer(tmp_path, durable=True) as server:
        async with RedisStore(server.url, wait_seconds=60) as store:
            first = await store.put("c", "n", 1)
            server.restart()
            found = await store.get("c", "n")
            server.kill()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.put, "c", "n", 2)
                await anyio.lowlevel.checkpoint()
                server.start()
            last = await store.get("c", "n")

    assert found is not None
    assert (found.value, found.revision) == (1, first)
    assert last is not None
    assert last.value == 2


async def test_a_server_that_forgot_everything_gives_no_revision_again(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        async with RedisStore(server.url, wait_seconds=60) as store:
            first = await store.put("c", "n", 1)
            server.restart()
            assert await store.get("c", "n") is None
            second = await store.put("c", "n", 2)

    assert first is not None
    assert second is not None
    assert second > first


async def test_a_server_that_died_is_an_error_that_names_it_and_says_what_to_do(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        url = server.url.replace("redis://", f"redis://:{IN_A_URL}@")
        store = RedisStore(server.url, wait_seconds=0.2)
        async with store:
            await store.put("c", "n", 1)
            server.kill()
            with (
                anyio.fail_after(60),
                pytest.raises(StoreError, match=rf"{server.url} cannot be reached .* is it running"),
            ):
                await store.put("c", "n", 2)
        with anyio.fail_after(60), pytest.raises(StoreError, match="cannot be reached") as raised:
            await RedisStore(url).__aenter__()  # what was never there is not waited for

    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.slow
async def test_a_server_that_hangs_is_an_error_in_bounded_time_for_all_who_wait(tmp_path: Path) -> None:
    refused: list[str] = []
    with RedisServer(tmp_path) as server:
        async with RedisStore(server.url, wait_seconds=0.5) as store:
            server.pause()

            async def write(number: int) -> None:
                with pytest.raises(StoreError, match=r"did not answer for \d+(\.\d)? s") as raised:
                    await store.put("c", str(number), number)
                refused.append(str(raised.value))

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for number in range(40):  # more than there are connections
                        tasks.start_soon(write, number)
            server.go_on()
            later = RedisStore(server.url, wait_seconds=60)
            assert await later.put("c", "n", 1) is not None

    assert len(refused) == 40


@pytest.mark.slow
async def test_the_error_of_a_server_without_tls_has_the_seconds_that_passed(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"did not answer for \d+(\.\d)? s") as raised:
            await RedisStore(server.url.replace("redis:", "rediss:", 1), wait_seconds=4).__aenter__()
        passed = time.monotonic() - began
    found = re.search(r"for ([\d.]+) s", str(raised.value))
    assert found is not None
    assert float(found[1]) == pytest.approx(passed, abs=0.3)
    assert float(found[1]) < 4


async def test_more_callers_than_connections_wait_for_one(redis_url: str) -> None:
    async with RedisStore(redis_url) as store:
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(store.put, "c", f"{number:03}", number)
        found = await store.scan("c", limit=1_000)
        connected = client(redis_url)
        connections = [one for one in connected.client_list() if one["db"] == redis_url.rpartition("/")[2]]
        connected.close()

    assert [one.value for one in found] == list(range(200))
    assert 1 < len(connections) <= 17


async def test_what_is_called_at_the_same_time_is_sent_together(redis_url: str) -> None:
    async with RedisStore(redis_url) as store:
        await store.put("c", "n", 0)
        server = client(redis_url)
        before = server.info("stats")["total_reads_processed"]
        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(store.put, "c", str(number), number)
        reads = server.info("stats")["total_reads_processed"] - before
        server.close()

        assert [found.value for found in await store.read([("c", str(number)) for number in range(60)]) if found] == [
            *range(60)
        ]
    assert reads <= 10


async def test_one_that_is_cancelled_takes_no_other_with_it_that_was_sent_together_with_it(redis_url: str) -> None:
    async with RedisStore(redis_url) as store:
        for number in range(8):
            await store.put("c", str(number), number)
        for turns in range(12):
            values: list[object] = []

            async def read(number: int, values: list[object]) -> None:
                found = await store.get("c", str(number))
                values.append(None if found is None else found.value)

            async with anyio.create_task_group() as tasks, anyio.create_task_group() as first:
                first.start_soon(store.get, "c", "0")
                await anyio.lowlevel.checkpoint()
                for number in range(1, 8):
                    tasks.start_soon(read, number, values)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                first.cancel_scope.cancel()
            assert sorted(values, key=str) == [*range(1, 8)]


async def test_cancelled_readers_leave_no_connection_behind_and_none_is_given_anothers_answer(redis_url: str) -> None:
    async with RedisStore(redis_url) as store:
        for number in range(50):
            await store.put("c", str(number), number)
        for turns in range(60):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(store.get, "c", str(number))
                for _ in range(turns % 12):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            found = await store.get("c", str(turns % 50))
            assert found is not None
            assert found.value == turns % 50


async def test_a_write_that_has_begun_is_finished_when_its_caller_is_cancelled(redis_url: str) -> None:
    async with RedisStore(redis_url) as store:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.put, "c", "one", 1)
            tasks.start_soon(store.put, "c", "two", 2)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        found = await store.scan("c")

    assert [one.value for one in found] == [1, 2]


async def test_scripts_that_the_server_forgot_are_sent_again(redis_url: str) -> None:
    connected = client(redis_url)
    async with RedisStore(redis_url) as store:
        await store.put("c", "n", 1)
        connected.script_flush()
        assert await store.put("c", "n", 2) is not None
        connected.script_flush()
        assert [one.value for one in await store.scan("c")] == [2]
    connected.close()


@pytest.mark.slow
async def test_ten_thousand_documents_are_read_in_pages_and_at_once(redis_url: str) -> None:
    async with RedisStore(redis_url) as store:

        async def write(start: int) -> None:
            for number in range(start, 10_000, 20):
                await store.put("c", f"{number:05}", number)

        async with anyio.create_task_group() as tasks:
            for start in range(20):
                tasks.start_soon(write, start)
        await store.put("other", "00000", None)
        paged: list[int] = []
        after = ""
        while page := await store.scan("c", after=after, limit=333):
            paged.extend(one.value for one in page)
            after = page[-1].key
        whole = await store.scan("c", limit=20_000)

    assert paged == list(range(10_000))
    assert [one.value for one in whole] == paged


async def test_large_documents_come_in_as_many_portions_as_they_need(redis_url: str) -> None:
    async with RedisStore(redis_url) as store:
        for number in range(8):
            await store.put("c", str(number), f"{number}" * 600_000)
        found = await store.scan("c", limit=7)

    assert [one.key for one in found] == list("0123456")
    assert {len(one.value) for one in found} == {600_000}


@pytest.mark.slow
async def test_what_expired_is_passed_over_and_swept_a_portion_at_a_time(redis_url: str) -> None:
    now = 1_000.0
    connected = client(redis_url)

    def documents() -> int:
        return len(connected.keys("{toolweave}:document:*"))

    async with RedisStore(redis_url, clock=lambda: now) as store:
        for number in range(1_200):
            await store.put("c", f"{number:04}", number, ttl=10)
        await store.put("c", "last", "kept")
        now += 10
        assert [one.key for one in await store.scan("c", limit=1)] == ["last"]
        before = documents()
        for number in range(8):  # of which one sweeps
            await store.put("c", f"070{number}", "new", expect=0)  # in the place of one that is not swept yet
        after = documents()
        for _ in range(120):
            await store.delete("c", "none")
        found = await store.scan("c")

        assert before == 1_201
        assert 1_050 < after < before
        assert [(one.key, one.value) for one in found] == [
            *((f"070{number}", "new") for number in range(8)),
            ("last", "kept"),
        ]
        assert documents() == connected.zcard("{toolweave}:order") == 9
        assert connected.zcard("{toolweave}:ends") == 0
    connected.close()


async def test_a_write_takes_one_command_a_document_and_one_of_each_other_kind(redis_url: str) -> None:
    connected = client(redis_url)
    async with RedisStore(redis_url) as store:
        await store.write([Put(collection="c", key=key, value=1, ttl=60) for key in "ab"])  # which sweeps
        connected.config_resetstat()
        puts = [Put(collection="c", key=key, value=2, ttl=60) for key in "acd"]
        await store.write([*puts, Delete(collection="c", key="b")])
        counted = connected.info("commandstats")

    assert {name.removeprefix("cmdstat_"): one["calls"] for name, one in counted.items() if "config" not in name} == {
        "evalsha": 1, "time": 1, "mget": 1, "unlink": 1, "set": len(puts) + 2, "zadd": 2, "zrem": 2
    }  # fmt: skip
    connected.close()


async def test_redis_itself_removes_a_document_that_expires(redis_url: str) -> None:
    connected = client(redis_url)
    async with RedisStore(redis_url) as store:
        await store.write(
            [
                Put(collection="c", key="brief", value=1, ttl=0.2),
                Put(collection="c", key="long", value=2, ttl=3_600),
                Put(collection="c", key="kept", value=3),
            ]
        )
        left = {key: connected.pttl("{toolweave}:document:1:c:" + key) for key in ("brief", "long", "kept")}
        # no write of ours removes it
        while connected.exists("{toolweave}:document:1:c:brief"):
            await anyio.sleep(0.01)
        found = await store.scan("c")
        read = await store.read([("c", "brief"), ("c", "long")])
        anew = await store.put("c", "brief", 4, ttl=3_600, expect=0)
        listed = await store.scan("c")
    outcomes = [connected.pttl(key) for key in connected.keys("{toolweave}:done:*")]
    connected.close()

    assert 0 < left["brief"] <= 200
    assert 3_500_000 < left["long"] <= 3_600_000
    assert left["kept"] == -1
    assert [one.key for one in found] == ["kept", "long"]
    assert read[0] is None
    assert read[1] is not None
    assert anew is not None
    assert [one.key for one in listed] == ["brief", "kept", "long"]
    # what a repeated write is recognised by goes, too
    assert len(outcomes) == 2
    assert all(0 < milliseconds <= 25_000 for milliseconds in outcomes)


async def test_a_document_that_is_written_anew_expires_as_it_was_written_last(redis_url: str) -> None:
    connected = client(redis_url)

    def ttl(key: str) -> int:
        return connected.ttl("{toolweave}:document:1:c:" + key)

    async with RedisStore(redis_url) as store:
        await store.put("c", "shorter", 1, ttl=9_000)
        await store.put("c", "shorter", 1, ttl=60)
        await store.put("c", "for ever", 1, ttl=0.01)
        await store.put("c", "for ever", 1)
        await store.put("c", "not for ever", 1)
        await store.put("c", "not for ever", 1, ttl=60)
        await store.put("c", "too far away to count", 1, ttl=1e300)
        await store.put("c", "past", 1, ttl=-1e300)
        assert 0 < ttl("shorter") <= 60
        assert 0 < ttl("not for ever") <= 60
        await anyio.sleep(0.02)
        for _ in range(8):  # of which one sweeps
            await store.put("c", "other", 1)
        found = await store.scan("c")
        ends = sorted(connected.zrange("{toolweave}:ends", 0, -1))
    connected.close()

    assert [one.key for one in found] == ["for ever", "not for ever", "other", "shorter", "too far away to count"]
    assert ends == [b"1:c:not for ever", b"1:c:shorter", b"1:c:too far away to count"]


async def test_deleted_documents_leave_nothing_behind(redis_url: str) -> None:
    connected = client(redis_url)
    async with RedisStore(redis_url) as store:
        await store.write([Put(collection="c", key=str(number), value=1, ttl=60 + number) for number in range(300)])
        await store.put("c", "kept", 1)
        await store.write([Delete(collection="c", key=str(number)) for number in range(300)])
    left = connected.keys("*")
    names = connected.zrange("{toolweave}:order", 0, -1), connected.zrange("{toolweave}:ends", 0, -1)
    connected.close()

    assert [key for key in left if b":done:" not in key and b":document:" in key] == [b"{toolweave}:document:1:c:kept"]
    assert names == ([b"1:c:kept"], [])


async def test_a_name_that_was_deleted_is_listed_again_once_it_is_written_again(redis_url: str) -> None:
    now = 1_000.0
    async with RedisStore(redis_url, clock=lambda: now) as store:
        for _ in range(3):
            await store.put("c", "it", 1, ttl=10)
            await store.delete("c", "it")
            assert await store.scan("c") == []
        await store.put("c", "it", 2)
        now += 100
        for _ in range(16):  # of which some sweep
            await store.put("c", "other", 3)
        found = await store.scan("c")

    assert [(one.key, one.value) for one in found] == [("it", 2), ("other", 3)]


async def test_without_a_clock_the_servers_time_counts(redis_url: str) -> None:
    connected = client(redis_url)
    seconds, _ = connected.time()
    async with RedisStore(redis_url) as store:
        await store.put("c", "short", 1, ttl=0.001)
        await store.put("c", "long", 1, ttl=1_000)
        while await store.get("c", "short") is not None:
            await anyio.lowlevel.checkpoint()
        found = await store.get("c", "long")
    connected.close()

    assert found is not None
    assert found.expires_at is not None
    assert seconds + 1_000 <= found.expires_at < seconds + 2_000


async def test_collections_that_look_alike_are_kept_apart(redis_url: str) -> None:
    async with RedisStore(redis_url) as store, RedisStore(redis_url, prefix="else") as other:
        for collection, key in [
            ("a", "b/c"),
            ("a/b", "c"),
            ("a:b", ""),
            ("1:a", ":"),
            ("", "a"),
            ("ä", "\x00"),
            ("a", ""),
        ]:
            await store.put(collection, key, [collection, key])

        assert [one.key for one in await store.scan("a")] == ["", "b/c"]
        assert [one.value for one in await store.scan("a:b")] == [["a:b", ""]]
        assert [one.value for one in await store.scan("ä")] == [["ä", "\x00"]]
        assert await other.scan("a") == []


async def test_keys_come_in_the_order_of_code_points(redis_url: str) -> None:
    keys = ["", "A", "a", "a\x00", "ab", "ä", "ÿ", "Ā", "\uffff", "\U0001f600", "\U0010ffff"]
    async with RedisStore(redis_url) as store:
        for key in reversed(keys):
            await store.put("c", key, None)

        assert [one.key for one in await store.scan("c")] == sorted(keys)
        assert [one.key for one in await store.scan("c", prefix="a")] == ["a", "a\x00", "ab"]
        assert [one.key for one in await store.scan("c", prefix="a", after="B")] == ["a", "a\x00", "ab"]
        assert [one.key for one in await store.scan("c", prefix="a", after="b")] == []
        assert await store.scan("c", limit=0) == []


async def test_a_key_that_is_no_text_is_refused_by_name(redis_url: str) -> None:
    async with RedisStore(redis_url) as store:
        with pytest.raises(StoreError, match="not valid Unicode text"):
            await store.put("c", "\ud800", 1)
        with pytest.raises(StoreError, match="not valid Unicode text"):
            await store.scan("\ud800")


@pytest.mark.slow
async def test_event_loops_in_threads_share_a_store(redis_url: str) -> None:
    store = RedisStore(redis_url)

    async def write(number: int) -> None:
        if number % 2:
            async with store:
                await write_some(number)
        else:
            await write_some(number)

    async def write_some(number: int) -> None:
        for count in range(20):
            await store.put("c", f"{number}-{count:02}", count)
            await store.delete("c", f"{number}-{count - 1:02}")

    workers = [threading.Thread(target=anyio.run, args=(write, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        await anyio.to_thread.run_sync(worker.join)

    assert [found.key for found in await store.scan("c")] == [f"{number}-19" for number in range(4)]
    assert repr(store).endswith(" closed>")


@pytest.mark.slow
async def test_a_store_is_used_again_after_it_was_left_and_leaves_no_connection_open(redis_url: str) -> None:
    connected = client(redis_url)
    store = RedisStore(redis_url)
    await store.close()
    async with store:
        await store.put("c", "n", 1)
        assert repr(store).endswith(" open>")
        await store.close()
        assert await store.get("c", "n") is not None
    async with store:
        assert await store.get("c", "n") is not None
    assert await store.get("c", "n") is not None  # without being entered
    assert repr(store).endswith(" closed>")
    del store
    gc.collect()
    with anyio.fail_after(60):
        while len([one for one in connected.client_list() if one["db"] == redis_url.rpartition("/")[2]]) > 1:
            await anyio.lowlevel.checkpoint()
    connected.close()


@pytest.mark.parametrize(
    ("options", "user", "message"),
    [
        ({"requirepass": SECRET}, "", r"requires a password: redis://:PASSWORD@host:port/0"),
        ({"requirepass": SECRET}, ":wr0ng-s3cret@", "refuses the user or the password"),
        ({"requirepass": SECRET}, f"user:{IN_A_URL}@", "refuses the user or the password"),
        ({}, f":{IN_A_URL}@", "has no password: take it out of the address"),
        (
            {"user": "wr0ng-s3cret on nopass +@connection"},
            "wr0ng-s3cret:x@",
            "does not let this user do it: allow EVAL",
        ),
        ({"maxmemory": "1mb"}, "", "is full and accepts no more: raise its maxmemory"),
        ({"min-replicas-to-write": "1"}, "", "too few of its replicas"),
        ({"replicaof": "127.0.0.1 1"}, "", "is a replica, which takes no writes: give the address of the primary"),
        ({"databases": "1"}, "", "has no database of this number"),
    ],
)
async def test_a_server_that_refuses_says_why_and_no_secret(
    tmp_path: Path, options: dict[str, str], user: str, message: str
) -> None:
    with RedisServer(tmp_path, options=options) as server:
        url = f"redis://{user}127.0.0.1:{server.port}/{1 if 'databases' in options else 0}"
        store = RedisStore(url, wait_seconds=0.5)
        with anyio.fail_after(60), pytest.raises(StoreError, match=message) as raised:
            async with store:
                await store.put("c", "n", "x")

    shown = "".join(traceback.format_exception(raised.value)) + "".join(
        traceback.TracebackException.from_exception(raised.value, capture_locals=True).format()
    )
    assert store.place in str(raised.value)
    assert repr(store).startswith(f"<RedisStore {store.place}")
    assert "not known whether" not in str(raised.value)
    source = [f"{url!r}", f"{options!r}", f"{user!r}"]  # the test's own variables
    for line in source:
        shown = shown.replace(line, "")
    assert "s3cret" not in shown


async def test_a_full_server_still_deletes_and_takes_more_then(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        connected = client(server.url)
        async with RedisStore(server.url) as store:
            for number in range(20):
                await store.put("c", str(number), "x" * 10_000)
            connected.config_set("maxmemory", "1000")
            with pytest.raises(StoreError, match="is full"):
                await store.put("c", "more", 1)
            assert await store.delete("c", "1")
            assert await store.get("c", "more") is None
            assert len(await store.scan("c", limit=50)) == 19
            connected.config_set("maxmemory", "0")
            assert await store.put("c", "more", 1) is not None
        connected.close()


async def test_a_server_that_cannot_save_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with RedisServer(folder) as server:
        connected = client(server.url)
        connected.config_set("save", "3600 1")
        folder.rmdir()
        connected.bgsave()
        while connected.info("persistence")["rdb_last_bgsave_status"] == "ok":
            await anyio.lowlevel.checkpoint()
        connected.close()
        with pytest.raises(StoreError, match="cannot save to its disk and takes no writes: see its log"):
            await RedisStore(server.url).put("c", "n", 1)


@pytest.mark.slow
async def test_a_node_of_a_cluster_holds_all_of_a_store(tmp_path: Path) -> None:
    with RedisServer(tmp_path, options={"cluster-enabled": "yes"}) as server:
        connected = client(server.url)
        connected.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)  # it is ready a moment later
        async with RedisStore(server.url, wait_seconds=60) as store:
            puts = [Put(collection=name, key="n", value=1, ttl=1_000) for name in ("c", "d", "e")]
            revisions = await store.write([*puts, Put(collection="c", key="kept", value=2)], signal="changed")
            assert revisions is not None
            assert [one.value for one in await store.scan("c")] == [2, 1]
            assert [one.value for one in await store.read([("d", "n"), ("e", "n")]) if one is not None] == [1, 1]
            assert await store.collections() == ["c", "d", "e"]
            assert await store.delete("c", "n", expect=revisions[0])
            await store.compact()
            slots = {connected.execute_command("CLUSTER KEYSLOT", name) for name in connected.keys("*")}
            others = connected.execute_command("CLUSTER KEYSLOT", "{other}:order")
        connected.close()

    assert len(slots) == 1
    assert others not in slots  # other prefixes are spread over the nodes


@pytest.mark.slow
async def test_a_node_of_a_cluster_names_the_node_that_has_the_prefix(tmp_path: Path) -> None:
    with redis_cluster(tmp_path) as (other, holder):
        with pytest.raises(StoreError) as refused:
            await RedisStore(other.url).__aenter__()
        with pytest.raises(StoreError) as numbered:
            await RedisStore(f"{holder.url.removesuffix('/0')}/3").get("c", "n")
        async with RedisStore(holder.url) as store:
            kept = await store.put("c", "n", 1)

    assert str(refused.value) == (
        f"{other.url} is a node of a cluster, and another node has the keys of this prefix: "
        f"give the address of that node (127.0.0.1:{holder.port})"
    )
    assert "is a node of a cluster, which has database 0 only: end the address with /0" in str(numbered.value)
    assert (refused.value.is_temporary, numbered.value.is_temporary) == (False, False)
    assert kept is not None


@pytest.mark.parametrize("prefix", ["", "a{b", "}"])
async def test_a_prefix_that_would_tear_the_keys_apart_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="a prefix is a text without braces"):
        RedisStore("redis://localhost", prefix=prefix)


async def test_an_option_of_the_address_that_nobody_knows_is_an_error(redis_url: str) -> None:
    with pytest.raises(StoreError, match=r"an option that is not understood.*'colour'"):
        await RedisStore(f"{redis_url}?colour=red").get("c", "n")
    with pytest.raises(StoreError, match="an option of its address has a wrong value"):
        await RedisStore(f"{redis_url}?socket_timeout=red").get("c", "n")


async def test_a_unix_socket_is_an_address_too(tmp_path: Path) -> None:
    path = Path(os.path.relpath(tmp_path)) / "s"
    with RedisServer(tmp_path, options={"unixsocket": "s"}):
        async with RedisStore(f"unix://{path.absolute()}?db=2") as store:
            await store.put("c", "n", 1)
            found = await store.get("c", "n")

    assert found is not None
    assert found.value == 1


def test_without_the_package_it_is_said_how_to_install_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_THE_PACKAGE], capture_output=True, text=True, check=True)

    assert done.stdout == (
        "redis://localhost:6379/0 needs the package redis: pip install 'toolweave[distributed]' None\n"
    )


def test_importing_the_room_imports_no_client() -> None:
    look = (
        "import sys; before = {*sys.modules}; import toolweave.state, toolweave.state._redis; "  # coverage has sqlite3
        "print(sorted({'redis', 'sqlite3'} & ({*sys.modules} - before)))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
