"""What may become of the file of a store: forked processes, read-only places, a file that is gone or emptied."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from toolweave.errors import StoreError
from toolweave.state import SqliteStore

FORKED = """
import anyio, os, signal, sys, threading
from toolweave.state import SqliteStore

store = SqliteStore(sys.argv[1])

async def put(key):
    await store.put("c", key, key)

async def main():
    async with store:
        await put("before")
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a child that hangs is killed
            thread = threading.Thread(target=anyio.run, args=(put, "child"))
            thread.start()
            thread.join()
            os._exit(0)
        assert os.waitstatus_to_exitcode(await anyio.to_thread.run_sync(lambda: os.waitpid(child, 0)[1])) == 0
        await put("parent")
        print([one.key for one in await store.scan("c")])

anyio.run(main)
"""

READ_ONLY = """
import anyio, os, sys
from toolweave.errors import StoreError
from toolweave.state import SqliteStore

async def main():
    if os.geteuid() == 0:  # whom no mode of a file holds back
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    async with SqliteStore(sys.argv[1]) as store:
        print((await store.get("c", "one")).value, len(await store.scan("c")))
        try:
            await store.put("c", "two", 2)
        except StoreError as exc:
            print(exc)

anyio.run(main)
"""


def ran(script: str, path: Path) -> str:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="platform: no fork")
async def test_a_process_that_was_forked_off_uses_the_store_beside_the_other(tmp_path: Path) -> None:
    said = await anyio.to_thread.run_sync(ran, FORKED, tmp_path / "store.db")
    assert said == "['before', 'child', 'parent']\n"


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that every user of the machine can look into."""
    folder = tmp_path_factory.mktemp("shown")
    for one in (folder, *folder.parents):
        if one.stat().st_uid == os.geteuid() and one != one.parent:
            one.chmod(one.stat().st_mode | 0o711)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False])
async def test_a_store_where_nothing_can_be_written_is_read(place: Path, closed: bool) -> None:
    path = place / "store.db"
    async with SqliteStore(path) as store:
        await store.put("c", "one", 1)
        if not closed:
            (place / "copy").mkdir()
            for file in place.glob("store.db*"):
                shutil.copy(file, place / "copy")
            path = place / "copy" / "store.db"
    files = list(path.parent.glob("store.db*"))
    for file in files:
        file.chmod(0o444)
    path.parent.chmod(0o555)
    said = (await anyio.to_thread.run_sync(ran, READ_ONLY, path)).splitlines()
    path.parent.chmod(0o755)
    assert said[0] == "1 1"
    assert said[1].startswith(f"{path} can only be read: ")
    assert sorted(path.parent.glob("store.db*")) == sorted(files)


async def test_a_copy_without_all_of_its_files_that_can_only_be_read_says_what_is_missing(place: Path) -> None:
    path = place / "copy" / "store.db"
    path.parent.mkdir()
    async with SqliteStore(place / "store.db") as store:
        await store.put("c", "one", 1)
        shutil.copy(place / "store.db", path)
        shutil.copy(place / "store.db-wal", path.parent)
    path.chmod(0o444)
    (path.parent / "store.db-wal").chmod(0o444)
    path.parent.chmod(0o555)
    with pytest.raises(AssertionError, match=r"are still in store\.db-wal beside it; copy both into a folder"):
        await anyio.to_thread.run_sync(ran, READ_ONLY, path)
    path.parent.chmod(0o755)


@pytest.mark.parametrize("how", ["deleted", "replaced", "emptied"])
async def test_a_file_that_is_gone_while_it_is_open_is_an_error_until_it_is_opened_again(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.put("c", "one", 1)
        if how == "deleted":
            path.unlink()
        elif how == "replaced":
            path.rename(tmp_path / "old.db")
            path.write_bytes((tmp_path / "old.db").read_bytes())
        else:
            path.write_bytes(b"")
        for _ in range(2):
            with pytest.raises(StoreError, match=r"store\.db was deleted, emptied or replaced while it was open"):
                await store.put("c", "two", 2)
            with pytest.raises(StoreError, match="was deleted, emptied or replaced"):
                await store.get("c", "one")


async def test_a_file_that_was_emptied_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"")
    with pytest.raises(StoreError, match=r"store\.db is empty, and no store ever is: .* or delete it to start afresh"):
        await SqliteStore(path).get("c", "one")
    assert path.read_bytes() == b""
    path.unlink()
    assert await SqliteStore(path).put("c", "one", 1) == 1
