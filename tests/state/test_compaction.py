"""What deleted and replaced documents leave in a store is removed by compacting it; all others stay."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.jobs.places import client_of
from toolweave.errors import StoreError
from toolweave.state import Put, RedisStore, SqliteStore


def raw(path: Path) -> bytes:
    return b"".join(one.read_bytes() for one in path.parent.glob(f"{path.name}*"))


async def test_a_compacted_file_has_nothing_of_deleted_and_replaced_documents(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.put("c", "one", "a-secret-that-is-deleted " * 500)
        await store.put("c", "two", "a-secret-that-is-replaced " * 500)
        revision = await store.put("c", "three", "kept", ttl=1000)
        await store.delete("c", "one")
        await store.put("c", "two", "new")
        await store.compact()

        assert b"a-secret" not in raw(path)
        found = await store.scan("c")
        assert [(one.key, one.value) for one in found] == [("three", "kept"), ("two", "new")]
        assert (found[0].revision, found[0].expires_at is not None) == (revision, True)


async def test_a_file_that_another_process_reads_is_compacted_later(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path, busy_seconds=0.1) as store:
        await store.put("c", "one", "a-secret")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM documents").fetchone()
        await store.delete("c", "one")
        with pytest.raises(StoreError, match=r"in use|busy"):
            await store.compact()
        other.execute("COMMIT")
        other.close()
        await store.compact()

    assert b"a-secret" not in raw(path)


async def test_a_compacted_redis_has_no_names_of_deleted_and_expired_documents(redis_url: str) -> None:
    now = 1_000_000.0
    store = RedisStore(redis_url, clock=lambda: now)
    async with store, client_of(redis_url) as client:
        for number in range(250):
            await store.put("c", f"gone-{number}", number, ttl=10_000)
            await store.delete("c", f"gone-{number}")
            await store.put("c", f"brief-{number}", number, ttl=50)
        await store.put("c", "kept", 1, ttl=100)
        await store.put("c", "lasting", 2)
        now += 51
        await store.compact()

        names = [await client.zrange(f"{{toolweave}}:{index}", 0, -1) for index in ("order", "ends")]
        assert names == [[b"1:c:kept", b"1:c:lasting"], [b"1:c:kept"]]
        assert [one.key for one in await store.scan("c")] == ["kept", "lasting"]
        now += 50
        assert [one.key for one in await store.scan("c")] == ["lasting"]
        for number in range(8):  # of which one sweeps
            await store.put("c", "lasting", number)
        assert await client.zrange("{toolweave}:order", 0, -1) == [b"1:c:lasting"]


async def test_a_compacted_redis_has_no_names_of_documents_that_it_expired_itself(redis_url: str) -> None:
    async with RedisStore(redis_url) as store, client_of(redis_url) as client:
        await store.write([Put(collection="c", key=f"brief-{number}", value=number, ttl=0.01) for number in range(250)])
        await store.put("c", "kept", 1, ttl=100)
        while await client.zcard("{toolweave}:order") != 1:
            await store.compact()
        assert [one.key for one in await store.scan("c")] == ["kept"]
