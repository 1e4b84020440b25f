"""What the store in a file does beyond the promises of every store: processes, kills, damage, waits."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from toolweave.errors import StoreError
from toolweave.state import SqliteStore
from toolweave.state._migrations import APPLICATION_ID, MIGRATIONS

WRITE_FOR_EVER = """
import anyio, sys
from toolweave.state import SqliteStore

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        for number in range(1_000_000):
            await store.put("c", f"{number:06}", {"number": number, "text": "x" * 20_000})
            await store.put("c", "last", number)
            print(number, flush=True)

anyio.run(main)
"""


def process(script: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def locked(path: Path) -> Generator[sqlite3.Connection, None, None]:
    """Hold the right to write, as another process would."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        other.close()


@pytest.mark.requirement("D26")
async def test_the_default_file_is_the_users_and_never_in_the_working_directory(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with SqliteStore() as store:
        await store.put("runs", "one", 1)

        assert store.path.is_relative_to(home)
        assert {stat.S_IMODE(file.stat().st_mode) for file in store.path.parent.iterdir()} == {0o600}
        assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []


async def test_a_relative_path_means_the_same_file_after_the_working_directory_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("mine.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    async with store:
        pass

    assert (tmp_path / "mine.db").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_store_in_memory_is_not_asked_of_a_file() -> None:
    with pytest.raises(ValueError, match=r"use MemoryStore\(\)"):
        SqliteStore(":memory:")


async def test_what_was_put_is_there_for_the_next_who_opens_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "store.db"
    async with SqliteStore(path) as store:
        first = await store.put("runs", "one", {"a": 1})
    async with SqliteStore(path) as store:
        found = await store.get("runs", "one")
        second = await store.put("runs", "one", 2)

    assert found is not None
    assert found.value == {"a": 1}
    assert first is not None
    assert second is not None
    assert second > first


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 7, 20])
async def test_what_a_killed_process_had_written_is_there_and_whole(tmp_path: Path, after: int) -> None:
    path = tmp_path / "store.db"
    writer = process(WRITE_FOR_EVER, path)
    assert writer.stdout is not None
    for _ in range(after):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    told = writer.stdout.read().split()  # communicate() would pass over what readline() has buffered
    writer.communicate()
    async with SqliteStore(path) as store:
        found = await store.scan("c", prefix="0", limit=1_000)
        last = await store.get("c", "last")
        assert await store.put("c", "more", 1) is not None
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()

    finished = int(told[-1]) if told else after - 1
    assert last is not None
    assert last.value in (finished, finished + 1)
    assert [one.value["number"] for one in found] == list(range(len(found)))
    assert len(found) in (finished + 1, finished + 2)
    assert all(len(one.value["text"]) == 20_000 for one in found)


@pytest.mark.parametrize("damage", ["text", "page"])
async def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "store.db"
    if damage == "text":
        path.write_text("this is no database, but somebody may want it " * 100)
    else:
        async with SqliteStore(path) as store:
            for number in range(100):
                await store.put("c", str(number), "x" * 1_000)
        content = bytearray(path.read_bytes())
        content[4096:] = os.urandom(len(content) - 4096)
        path.write_bytes(content)
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"store\.db is damaged or no SQLite file .* it is left as it is"):
        async with SqliteStore(path) as store:
            await store.put("c", "new", 1)
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"store\.db was written by a newer version of Toolweave .* update Toolweave"):
        await SqliteStore(path).get("c", "one")
    assert path.read_bytes() == before


async def test_a_file_of_the_first_layout_is_brought_to_this_one(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with sqlite3.connect(path) as connection:
        for statement in MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute("INSERT INTO documents VALUES ('c', 'old', '[1]', 1, NULL)")
        connection.execute("UPDATE counter SET revision = 1")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    async with SqliteStore(path) as store:
        found = await store.get("c", "old")
        assert await store.put("c", "new", 2) == 2

    assert found is not None
    assert found.value == [1]


async def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"places\.sqlite is a database of another program"):
        await SqliteStore(path).put("c", "one", 1)
    assert path.read_bytes() == before


async def test_a_path_that_cannot_be_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"file/store\.db cannot be opened: "):
        await SqliteStore(tmp_path / "file" / "store.db").get("c", "one")
    with pytest.raises(StoreError, match="unable to open database file"):
        await SqliteStore(tmp_path).get("c", "one")


async def test_a_key_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        with pytest.raises(StoreError, match="not valid Unicode text"):
            await store.put("c", "\ud800", 1)
        assert await store.put("c", "\x00ö", 1) is not None
        assert [one.key for one in await store.scan("c")] == ["\x00ö"]


async def test_a_write_waits_for_another_process_without_holding_up_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store, anyio.create_task_group() as tasks:
        with locked(path):
            tasks.start_soon(store.put, "c", "one", 1)
            for _ in range(100):
                await anyio.sleep(0)  # the loop goes round while the write waits
            reader = SqliteStore(path)
            async with reader:
                assert await reader.get("c", "one") is None
        while await store.get("c", "one") is None:
            await anyio.sleep(0)


async def test_a_file_that_stays_busy_is_an_error_and_works_again_later(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path, busy_seconds=0.05) as store:
        with locked(path), pytest.raises(StoreError, match=r"store\.db is busy: other processes .* for 0\.05 s"):
            await store.put("c", "one", 1)

        assert await store.put("c", "one", 1) is not None


async def test_a_write_that_has_begun_is_finished_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        async with anyio.create_task_group() as tasks:
            with locked(path):
                tasks.start_soon(store.put, "c", "one", 1)
                tasks.start_soon(store.put, "c", "two", 2)
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        found = await store.scan("c")

    assert [one.value for one in found] == [1, 2]


async def test_a_closed_store_may_be_closed_again_and_opens_when_it_is_used(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.close()
    await store.put("c", "one", 1)
    assert repr(store).endswith("store.db', open>")
    await store.close()
    await store.close()
    assert repr(store).endswith("store.db', closed>")

    assert await store.get("c", "one") is not None
    await store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]


@pytest.mark.slow
async def test_a_store_that_nobody_closed_closes_its_file_when_it_is_gone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.put("c", "one", 1)
    assert len(list(tmp_path.iterdir())) == 3
    del store
    with anyio.fail_after(60):
        while len(list(tmp_path.iterdir())) > 1:
            await anyio.sleep(0)  # its thread lets go of the last write a moment later
            gc.collect()

    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]


async def test_event_loops_of_several_threads_share_a_store(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:

        async def write(number: int) -> None:
            for count in range(20):
                await store.put("c", f"{number}-{count:02}", count)

        async def in_a_thread(number: int) -> None:
            await anyio.to_thread.run_sync(anyio.run, write, number)

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(in_a_thread, number)
        found = await store.scan("c", limit=1_000)

    assert len(found) == 60
