"""Keyrings: which of them are taken, what is kept in parts, and a real one."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from typing import ClassVar

import anyio
import keyring
import pytest
from keyring.backends import chainer, fail, null
from keyring.errors import KeyringLocked

from tests.oauth.token_stores import DictKeyring, a_key, a_record
from toolweave.errors import StoreError
from toolweave.oauth import FileTokenStore, KeyringTokenStore, MachineTokenStore

pytestmark = pytest.mark.anyio


class PlaintextKeyring(DictKeyring):
    """A keyring that is a file without encryption, as `keyrings.alt` has one."""

    priority: ClassVar[float] = 0.5  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]


@pytest.fixture(autouse=True)
def _no_other_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "get_keyring", fail.Keyring)


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


async def test_no_part_is_left_when_a_long_token_is_replaced_or_deleted() -> None:
    backend = DictKeyring()
    store = KeyringTokenStore(backend)
    await store.save(a_record(token="x" * 9_000))
    parts = len(backend.values)
    await store.save(a_record(token="y" * 9_000))
    assert len(backend.values) == parts
    await store.save(a_record(token="short"))
    assert len(backend.values) == 2  # the record and the list of keys

    await store.delete(a_key())
    assert len(backend.values) == 1


async def test_a_record_whose_parts_are_missing_is_an_error_and_not_another_token() -> None:
    backend = DictKeyring()
    store = KeyringTokenStore(backend)
    await store.save(a_record(token="x" * 9_000))
    part = next(name for name in backend.values if name[1].endswith(".2"))
    del backend.values[part]

    with pytest.raises(StoreError, match="is damaged: parts of it are missing"):
        await store.load(a_key())


@pytest.mark.parametrize(("name", "why"), [("index", "the list of tokens"), ("", "a record is damaged")])
async def test_an_entry_that_somebody_else_wrote_is_an_error(name: str, why: str) -> None:
    backend = DictKeyring()
    store = KeyringTokenStore(backend)
    await store.save(a_record())
    entry = next(one for one in backend.values if (one[1] == "index") == bool(name))
    backend.values[entry] = '0:{"access_token": "secret-1"'

    with pytest.raises(StoreError, match=why) as caught:
        await store.records()
    assert "secret-1" not in str(caught.value)


async def test_a_keyring_that_is_locked_is_an_error_that_names_it() -> None:
    class Locked(DictKeyring):
        def get_password(self, service: str, username: str) -> str | None:
            raise KeyringLocked("Failed to unlock the collection!")

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
            await KeyringTokenStore(Asking()).load(a_key())
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
    assert b"KeyringTokenStore in keyring.backends.SecretService.Keyring" in done.stdout
