"""The file of tokens: who may read it, what is refused, and what happens to it when a process dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.oauth.token_stores import a_key, a_record, new_key
from tests.racing import outputs_of_racers
from toolweave.errors import StoreError
from toolweave.oauth import FileTokenStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens" / "tokens.json"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_the_file_is_its_owners_alone_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        await FileTokenStore(path).save(a_record())
    finally:
        os.umask(before)

    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert {one.name: mode(one) for one in path.parent.iterdir()} == {"tokens.json": 0o600, "tokens.json.lock": 0o600}


async def test_without_a_path_it_is_in_the_users_data(home: Path) -> None:
    store = FileTokenStore()
    await store.save(a_record())

    assert store.path == home / ".local" / "share" / "toolweave" / "tokens" / "tokens.json"
    assert mode(store.path.parent) == 0o700


async def test_a_file_that_is_too_large_for_tokens_is_not_read(path: Path) -> None:
    store = FileTokenStore(path)
    await store.save(a_record())
    os.truncate(path, 50_000_001)

    with pytest.raises(StoreError, match="is larger than 50,000,000 bytes"):
        await store.load(a_key())
    with pytest.raises(StoreError, match="is larger than 50,000,000 bytes"):
        await store.save(a_record())
    assert path.stat().st_size == 50_000_001


@pytest.mark.parametrize("wider", [0o644, 0o640, 0o620, 0o604])
async def test_a_file_that_others_can_use_is_refused_and_not_mended(path: Path, wider: int) -> None:
    store = FileTokenStore(path)
    await store.save(a_record(token="old"))
    path.chmod(wider)

    for attempt in (lambda: store.load(a_key()), lambda: store.save(a_record()), lambda: store.delete(a_key())):
        with pytest.raises(StoreError, match=rf"can be used by others \(mode 0{wider:o}\): chmod 600"):
            await attempt()
    assert mode(path) == wider
    path.chmod(0o600)
    found = await store.load(a_key())
    assert found is not None
    assert found.access_token == "old"


async def test_a_link_is_refused_and_what_it_points_to_is_untouched(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    await FileTokenStore(elsewhere).save(a_record())
    before = elsewhere.read_bytes()
    path.parent.mkdir(mode=0o700)
    path.symlink_to(elsewhere)

    for attempt in (FileTokenStore(path).records(), FileTokenStore(path).save(a_record(token="new"))):
        with pytest.raises(StoreError, match="is a link; tokens are kept in a file itself"):
            await attempt
    assert elsewhere.read_bytes() == before
    assert path.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
async def test_a_file_of_another_user_is_refused(path: Path) -> None:
    await FileTokenStore(path).save(a_record())
    os.chown(path, 12345, -1)

    with pytest.raises(StoreError, match="belongs to another user"):
        await FileTokenStore(path).load(a_key())


async def test_what_is_no_file_is_refused_at_once(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    os.mkfifo(path, 0o600)

    with pytest.raises(StoreError, match="is not a regular file"):
        await FileTokenStore(path).load(a_key())


async def test_a_folder_that_others_can_write_to_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)

    with pytest.raises(StoreError, match="others can write to the folder"):
        await FileTokenStore(path).save(a_record())
    with pytest.raises(StoreError, match="others can write to the folder"):
        FileTokenStore(path).locked(a_key(), seconds=1)
    assert not path.exists()


async def test_a_folder_that_cannot_be_made_is_named(path: Path) -> None:
    path.parent.write_text("a file is in the way")

    with pytest.raises(StoreError, match=r"cannot use the folder .*tokens'"):
        await FileTokenStore(path).save(a_record())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is damaged"),
        (b'{"version": 1, "records": {"a": {"key"', "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b'{"version": 1, "records": {"a": {"access_token": "secret-1"}}}', "is damaged"),
        (b'{"version": 2}', "written by another version"),
        (b'{"version": 1, "sealed": "c2VjcmV0"}', "is encrypted; set TOOLWEAVE_TOKEN_KEY"),
    ],
)
async def test_a_file_that_cannot_be_read_is_named_and_never_overwritten(path: Path, content: bytes, why: str) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_bytes(content)
    path.chmod(0o600)

    for attempt in (FileTokenStore(path).records(), FileTokenStore(path).save(a_record())):
        with pytest.raises(StoreError, match=why) as caught:
            await attempt
        assert "tokens.json" in str(caught.value)
        assert "secret-1" not in str(caught.value)
    assert path.read_bytes() == content


async def test_a_file_of_another_key_is_never_overwritten(path: Path) -> None:
    await FileTokenStore(path, key=new_key()).save(a_record())
    before = path.read_bytes()

    with pytest.raises(StoreError, match="cannot be decrypted: it was written with another key, or it is damaged"):
        await FileTokenStore(path, key=new_key()).save(a_record(token="new"))
    assert path.read_bytes() == before


async def test_a_changed_byte_of_an_encrypted_file_is_found(path: Path) -> None:
    store = FileTokenStore(path, key=new_key())
    await store.save(a_record())
    contents = json.loads(path.read_text())
    contents["sealed"] = (
        contents["sealed"][:-8] + ("A" if contents["sealed"][-8] != "A" else "B") + contents["sealed"][-7:]
    )
    path.write_text(json.dumps(contents))

    with pytest.raises(StoreError, match="damaged"):
        await store.load(a_key())


async def test_a_file_is_encrypted_from_the_next_write_on(path: Path) -> None:
    await FileTokenStore(path).save(a_record(token="in the clear"))
    store = FileTokenStore(path, key=new_key())
    assert await store.load(a_key()) is not None
    await store.save(a_record(a_key(principal="ann")))

    assert b"in the clear" not in path.read_bytes()
    assert len(await store.records()) == 2


async def test_a_disk_that_takes_no_more_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileTokenStore(path)
    await store.save(a_record(token="old"))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="cannot be written: No space left on device"):
        await store.save(a_record(token="new"))
    monkeypatch.undo()
    assert [one.access_token for one in await store.records()] == ["old"]
    assert {one.name for one in path.parent.iterdir()} == {"tokens.json", "tokens.json.lock"}


async def test_what_a_dead_process_left_of_a_write_is_cleared_away(path: Path) -> None:
    store = FileTokenStore(path)
    await store.save(a_record())
    left = path.with_name(".tokens.json.dead")
    left.write_bytes(b'{"version": 1, "rec')
    await store.save(a_record(token="new"))

    assert not left.exists()


WRITE_FOR_EVER = """
import anyio, sys
from tests.oauth.token_stores import a_key, a_record
from toolweave.oauth import FileTokenStore

async def main():
    store = FileTokenStore(sys.argv[1])
    async with store.locked(a_key(), seconds=10):
        number = 0
        while True:
            number += 1
            await store.save(a_record(token=f"{number}:" + "x" * 300_000))
            if number == 3:
                print("ready", flush=True)

anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.003, 0.011])
async def test_a_process_that_is_killed_as_it_writes_leaves_a_whole_file_and_no_lock(path: Path, pause: float) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert await anyio.to_thread.run_sync(writer.stdout.readline) == "ready\n"
    await anyio.sleep(pause)
    writer.send_signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(writer.communicate)
    store = FileTokenStore(path)
    found = await store.load(a_key())

    assert found is not None
    assert len(found.access_token.partition(":")[2]) == 300_000
    async with store.locked(a_key(), seconds=0):
        await store.save(a_record())


REFRESH_ONCE = """
import anyio, sys
from pathlib import Path
from tests.oauth.token_stores import a_key, a_record
from toolweave.oauth import FileTokenStore

async def main():
    store = FileTokenStore(sys.argv[1])
    before = await store.load(a_key())
    print("ready", flush=True)
    sys.stdin.readline()
    async with store.locked(a_key(), seconds=30):
        if await store.load(a_key()) == before:
            with Path(sys.argv[2]).open("a") as refreshes:
                refreshes.write("1")
            await anyio.sleep(0.05)
            await store.save(a_record(token="new"))
    await store.save(a_record(a_key(principal=sys.argv[3])))

anyio.run(main)
"""


@pytest.mark.slow
async def test_of_processes_that_want_to_refresh_a_token_one_does(path: Path, tmp_path: Path) -> None:
    await FileTokenStore(path).save(a_record(token="old"))
    refreshes = tmp_path / "refreshes"
    await outputs_of_racers([["-c", REFRESH_ONCE, str(path), str(refreshes), str(number)] for number in range(3)])

    assert refreshes.read_text() == "1"
    assert len(await FileTokenStore(path).records()) == 4
