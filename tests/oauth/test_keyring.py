"""Keyrings: which of them are used, the one key that they hold, and a real one."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from typing import ClassVar

import anyio
import keyring
import pytest
from keyring.backends import chainer, fail, null
from keyring.errors import KeyringLocked

from tests.oauth.token_stores import DictKeyring, a_key, a_record, new_key
from tests.racing import outputs_of_racers
from toolweave.errors import StoreError
from toolweave.oauth import FileTokenStore, KeyringTokenStore, MachineTokenStore


class PlaintextKeyring(DictKeyring):
    """A keyring that is a file without encryption, as `keyrings.alt` has one."""

    priority: ClassVar[float] = 0.5  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]


@pytest.fixture(autouse=True)
def _no_other_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "get_keyring", fail.Keyring)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens" / "tokens.json"


@pytest.mark.parametrize("backend", [PlaintextKeyring, fail.Keyring, null.Keyring])
async def test_a_machine_without_a_keyring_that_keeps_secrets_has_none(
    backend: type[fail.Keyring], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "get_keyring", backend)

    with pytest.raises(StoreError, match=r"no keyring that keeps secrets.*toolweave\[keyring\]"):
        KeyringTokenStore()
    with pytest.raises(StoreError, match="does not keep secrets; keep tokens in a FileTokenStore"):
        KeyringTokenStore(backend())
    store = MachineTokenStore()
    await store.save(a_record())
    assert await FileTokenStore().load(a_key()) == a_record()


async def test_of_several_keyrings_the_first_that_keeps_secrets_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    real, plain = DictKeyring(), PlaintextKeyring()

    class Chain(chainer.ChainerBackend):
        priority: ClassVar[float] = 10  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        backends = [plain, real]  # pyright: ignore[reportAssignmentType]  # noqa: RUF012

    monkeypatch.setattr(keyring, "get_keyring", Chain)
    await KeyringTokenStore().save(a_record())

    assert real.values
    assert not plain.values


async def test_the_store_of_the_machine_is_its_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = DictKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)
    store = MachineTokenStore()
    assert repr(store) == "<MachineTokenStore>"
    await store.save(a_record())
    async with store.locked(a_key(), seconds=1):
        assert await store.load(a_key()) == a_record()

    assert "KeyringTokenStore" in repr(store)
    assert list(await store.records(principal="")) == [a_record()]
    assert await store.delete(a_key())
    assert not FileTokenStore().path.exists()


async def test_without_the_package_the_store_of_the_machine_is_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    store = MachineTokenStore()
    await store.save(a_record())

    assert await FileTokenStore().load(a_key()) == a_record()


async def test_a_keyring_has_one_short_value_whatever_is_saved_and_deleted(path: Path) -> None:
    backend = DictKeyring()
    store = KeyringTokenStore(backend, path=path)
    assert await store.load(a_key()) is None
    assert list(await store.records()) == []
    assert not await store.delete(a_key())
    await store.save(a_record(token="x" * 9_000))
    before = dict(backend.values)
    await store.save(a_record(a_key(principal="ann"), token="short"))
    assert await store.delete(a_key())

    assert len(before) == 1
    assert backend.values == before
    assert all(len(value) < 100 for value in before.values())
    assert b"short" not in path.read_bytes()


async def test_reading_makes_no_key() -> None:
    backend = DictKeyring()
    store = KeyringTokenStore(backend)
    assert await store.load(a_key()) is None
    assert list(await store.records()) == []

    assert not backend.values


async def test_services_have_keys_and_files_of_their_own(path: Path) -> None:
    backend = DictKeyring()
    store, other = KeyringTokenStore(backend), KeyringTokenStore(backend, service="other")
    await store.save(a_record(token="mine"))
    await other.save(a_record(token="theirs"))

    assert len(set(backend.values.values())) == 2
    assert store.path != other.path != FileTokenStore().path
    assert (await store.records())[0].access_token == "mine"
    with pytest.raises(StoreError, match="cannot be decrypted"):
        await KeyringTokenStore(backend, service="other", path=store.path).records()


async def test_a_key_that_is_gone_from_the_keyring_is_an_error_and_the_file_is_never_overwritten(path: Path) -> None:
    backend = DictKeyring()
    store = KeyringTokenStore(backend, path=path)
    await store.save(a_record())
    before, key = path.read_bytes(), dict(backend.values)
    backend.values.clear()

    for attempt in (store.load(a_key()), store.save(a_record(token="new")), store.delete(a_key()), store.records()):
        with pytest.raises(StoreError, match=r"DictKeyring has no entry 'key for tokens' of 'toolweave'; restore it"):
            await attempt
    assert path.read_bytes() == before
    assert not backend.values
    backend.values.update(key)
    assert await store.load(a_key()) == a_record()


async def test_another_key_in_the_keyring_is_an_error_and_the_file_is_never_overwritten(path: Path) -> None:
    backend = DictKeyring()
    store = KeyringTokenStore(backend, path=path)
    await store.save(a_record())
    before = path.read_bytes()
    for entry in backend.values:
        backend.values[entry] = new_key()

    with pytest.raises(StoreError, match="written with another key, or it is damaged; restore its key, or move"):
        await store.save(a_record(token="new"))
    assert path.read_bytes() == before


async def test_an_entry_that_is_not_a_key_is_an_error_which_does_not_show_it(path: Path) -> None:
    backend = DictKeyring()
    store = KeyringTokenStore(backend, path=path)
    await store.save(a_record())
    for entry in backend.values:
        backend.values[entry] = "secret-1"

    with pytest.raises(StoreError, match=r"'key for tokens' of 'toolweave' in .*DictKeyring is not a key") as caught:
        await store.records()
    assert "secret-1" not in str(caught.value)


async def test_a_file_in_the_clear_is_encrypted_at_the_next_write(path: Path) -> None:
    for write in ("save", "delete"):
        await FileTokenStore(path).save(a_record(token="in the clear"))
        await FileTokenStore(path).save(a_record(a_key(principal="ann")))
        store = KeyringTokenStore(DictKeyring(), path=path)
        assert len(await store.records()) == 2
        if write == "save":
            await store.save(a_record(a_key(principal="bob")))
        else:
            assert await store.delete(a_key(principal="ann"))
        assert b"in the clear" not in path.read_bytes()
        assert await store.load(a_key()) == a_record(token="in the clear")
        with pytest.raises(StoreError, match="is encrypted; set TOOLWEAVE_TOKEN_KEY"):
            await FileTokenStore(path).load(a_key())
        path.unlink()


async def test_the_key_of_the_environment_encrypts_and_what_the_keyring_encrypted_can_still_be_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = DictKeyring()
    await KeyringTokenStore(backend, path=path).save(a_record(token="old"))
    monkeypatch.setenv("TOOLWEAVE_TOKEN_KEY", key := new_key())
    store = KeyringTokenStore(backend, path=path)
    found = await store.load(a_key())
    assert found is not None
    assert found.access_token == "old"

    await store.save(a_record(token="new"))
    assert await FileTokenStore(path, key=key).load(a_key()) == a_record(token="new")
    backend.values.clear()  # nothing is read from it, and no key is made
    await store.save(a_record(token="newer"))
    assert not backend.values
    monkeypatch.delenv("TOOLWEAVE_TOKEN_KEY")
    with pytest.raises(StoreError, match="set TOOLWEAVE_TOKEN_KEY if that was its key"):
        await KeyringTokenStore(backend, path=path).load(a_key())


async def test_with_a_key_of_the_environment_a_locked_keyring_is_not_asked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWEAVE_TOKEN_KEY", new_key())
    store = KeyringTokenStore(Locked(), path=path)
    await store.save(a_record())

    assert await store.load(a_key()) == a_record()


async def test_a_keyring_that_forgets_is_found_before_anything_is_encrypted(path: Path) -> None:
    class Forgetful(DictKeyring):
        def set_password(self, service: str, username: str, password: str) -> None:
            pass

    with pytest.raises(StoreError, match="did not keep the key for tokens; use another keyring"):
        await KeyringTokenStore(Forgetful(), path=path).save(a_record())
    assert not path.exists()


FIRST_USE = """
import sys, time, anyio
from pathlib import Path
from tests.oauth.token_stores import DictKeyring, a_key, a_record
from toolweave.oauth import KeyringTokenStore

class Slow(DictKeyring):
    # in files, so that processes share it; between two calls of one process there is room for those of another

    def get_password(self, service, username):
        time.sleep(0.02)
        entry = folder / f"{service}-{username}"
        return entry.read_text() if entry.exists() else None

    def set_password(self, service, username, password):
        time.sleep(0.02)
        (folder / f"{service}-{username}").write_text(password)

async def main():
    store = KeyringTokenStore(Slow(), path=path)
    print("ready", flush=True)
    sys.stdin.readline()
    await store.save(a_record(a_key(principal=who)))

folder, path, who = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
anyio.run(main)
for line in folder.iterdir():
    print(line.name, line.read_text())
"""


@pytest.mark.slow
async def test_processes_that_use_a_keyring_first_at_the_same_time_have_one_key(tmp_path: Path) -> None:
    folder = tmp_path / "keyring"
    folder.mkdir()
    # two files, so that the lock of a file is not what keeps the processes apart
    files = [tmp_path / "one" / "tokens.json", tmp_path / "two" / "tokens.json"]
    programs = [["-c", FIRST_USE, str(folder), str(files[number % 2]), str(number)] for number in range(4)]
    texts = set(await outputs_of_racers(programs))

    assert len(texts) == 1
    backend = DictKeyring()
    backend.values["toolweave", "key for tokens"] = texts.pop().split()[-1]
    for number, file in enumerate(files):
        found = await KeyringTokenStore(backend, path=file).records()
        assert {one.key.principal for one in found} == {str(number), str(number + 2)}


class Locked(DictKeyring):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("Failed to unlock the collection!")


async def test_a_keyring_that_is_locked_is_an_error_that_names_it() -> None:
    with pytest.raises(StoreError, match=r"test_keyring\..*Locked failed: KeyringLocked: Failed to unlock"):
        await KeyringTokenStore(Locked()).load(a_key())


async def test_a_keyring_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.oauth._stores.keyring_store.ANSWER_SECONDS", 0.05)
    unlocked = threading.Event()

    class Asking(DictKeyring):
        def get_password(self, service: str, username: str) -> str | None:
            unlocked.wait(30)
            return None

    try:
        with pytest.raises(StoreError, match=r"did not answer within 0\.05 s; is it locked"):
            await KeyringTokenStore(Asking()).save(a_record())
        # The answer is waited for before the file is locked.
        assert not list(KeyringTokenStore(DictKeyring()).path.parent.glob("*.json.lock"))
    finally:
        unlocked.set()


REAL = """
import sys, anyio, keyring
from tests.oauth.token_stores import a_key, a_record
from toolweave.oauth import KeyringTokenStore, MachineTokenStore

async def main():
    store, other = KeyringTokenStore(), KeyringTokenStore(service="other")
    for token in ("short", "long" * 5000, "ö\\u2028"):
        await store.save(a_record(token=token))
        found = await KeyringTokenStore().load(a_key())
        assert found == a_record(token=token), found
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(store.save, a_record(a_key(principal=str(number))))
    assert len(await store.records()) == 6
    assert not await other.records()
    async with store.locked(a_key(), seconds=5):
        assert await store.delete(a_key())
    assert not await store.delete(a_key())
    machine = MachineTokenStore()
    assert len(await machine.records()) == 5
    print(machine)

anyio.run(main)
"""
UNLOCKED = 'printf secret | gnome-keyring-daemon --unlock --components=secrets >/dev/null && exec "$0" -c "$1"'


@pytest.mark.slow
async def test_the_secret_service_of_a_desktop_keeps_tokens() -> None:
    for program in ("dbus-run-session", "gnome-keyring-daemon"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on PATH (Debian: apt-get install dbus gnome-keyring)")
    command = ["dbus-run-session", "--", "sh", "-c", UNLOCKED, sys.executable, REAL]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_KEYRING_BACKEND"}
    done = await anyio.run_process(command, check=False, env=environment)

    assert done.returncode == 0, done.stderr.decode()
    assert b"with its key in keyring.backends.SecretService.Keyring" in done.stdout
