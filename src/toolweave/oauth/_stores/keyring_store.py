"""Tokens in the keyring of the machine: Secret Service, KWallet, macOS Keychain, Windows Credential Locker."""

# A keyring has values of a limited length by name, no list of names and no transaction. So:
# - A list of all keys is a separate value. A new key is added to it before its record is written, and removed after
#   its record is deleted: if the process dies between the two, a key has no record, which every reader tolerates.
# - A long text is in parts, whose names contain a random generation. The value with the name itself is written last and
#   names the generation. So a reader sees the parts of before or those of after. The old ones are deleted last, and a
#   reader that misses one of them reads again.
# - A lock file orders the writers of a machine.

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread
import msgspec

from toolweave._json import decode_json
from toolweave.errors import StoreError, ToolweaveError
from toolweave.oauth._records import TokenKey, TokenRecord
from toolweave.oauth._stores.file_store import default_folder
from toolweave.oauth._stores.locks import held, held_in_thread, private_folder
from toolweave.oauth._stores.records import digest, name_of, newest_first, read_record, write_record

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

T = TypeVar("T")

_MIN_PRIORITY = 1
"""The priority of a backend that keeps secrets. Files without encryption have less, and no keyring has 0."""
MAX_VALUE = 1_200
"""Characters of one value: Windows keeps 2,560 bytes in UTF-16. A longer text is kept in parts."""
ANSWER_SECONDS = 60.0
"""Seconds for the keyring to answer: the user may have to unlock it."""
_WRITE_SECONDS = 10.0
_READS = 3
_INDEX = "index"


def machine_keyring() -> KeyringBackend | None:
    """Return the keyring of this machine, or None if it has none that keeps secrets or `keyring` is not installed.

    A backend that keeps them in a file without encryption is not used.
    """
    # imported only when tokens are stored: it takes 0.1 s
    try:
        import keyring
    except ModuleNotFoundError:
        return None
    try:
        chosen = keyring.get_keyring()
        # A chain of backends has `backends`. Only the first usable one is used: a token that is written to one must be
        # found there, so there is no fallback to the next.
        backends: Sequence[KeyringBackend] = getattr(chosen, "backends", ()) or (chosen,)
        for backend in backends:
            if _priority(backend) >= _MIN_PRIORITY:
                return backend
    except Exception:  # boundary: backends are loaded by this; a keyring that cannot be loaded is not used
        return None
    return None


class KeyringTokenStore:
    """A `TokenStore` in the machine's keyring (`pip install 'toolweave[keyring]'`).

    Only a keyring that keeps secrets is used, never a file without encryption. A value that is too long is stored in
    parts. Any number of processes of a machine may use it.

    Args:
        backend: The keyring; by default the keyring of this machine.
        service: The name in the keyring.

    Raises:
        StoreError: This machine has no keyring, or the package `keyring` is missing.
    """

    def __init__(self, backend: KeyringBackend | None = None, *, service: str = "toolweave") -> None:
        found = machine_keyring() if backend is None else backend
        if found is None:
            raise StoreError(
                "this machine has no keyring that keeps secrets, or the package keyring is missing: "
                "pip install 'toolweave[keyring]', or keep tokens in a FileTokenStore"
            )
        if _priority(found) < _MIN_PRIORITY:
            raise StoreError(f"the keyring {_name(found)} does not keep secrets; keep tokens in a FileTokenStore")
        self._keyring = found
        # which has no types
        self._set: Callable[[str, str, str], None] = cast("Any", found).set_password
        self._service = service

    async def load(self, key: TokenKey) -> TokenRecord | None:
        """Return the record of a key, or None.

        Raises:
            StoreError: The keyring is locked or cannot be read.
        """
        return await self._in_thread(lambda: self._read(key))

    async def save(self, record: TokenRecord) -> None:
        """Store a record, replacing the one with its key.

        Raises:
            StoreError: The keyring is locked or cannot be written.
        """
        await self._in_thread(lambda: self._save(record))

    async def delete(self, key: TokenKey) -> bool:
        """Delete the record of a key; return whether there was one.

        Raises:
            StoreError: The keyring is locked or cannot be written.
        """
        return await self._in_thread(lambda: self._delete(key))

    async def records(self, *, resource: str | None = None, principal: str | None = None) -> Sequence[TokenRecord]:
        """Return the records of a resource, of a principal, or all, the newest first.

        Raises:
            StoreError: The keyring is locked or cannot be read.
        """

        def read() -> list[TokenRecord]:
            wanted = [key for key in self._index() if key.is_of(resource, principal)]
            return list(filter(None, map(self._read, wanted)))

        return newest_first(await self._in_thread(read))

    def locked(self, key: TokenKey, *, seconds: float) -> AbstractAsyncContextManager[None]:
        """Hold the record of a key alone, among all processes of this machine.

        Raises:
            StoreError: Another holder keeps it for longer than these seconds.
        """
        folder = default_folder()
        private_folder(folder)
        path = folder / f"keyring.{digest(self._service)}.{name_of(key)}.lock"
        return held(path, seconds=seconds, what=f"the token for {key.resource}")

    def __repr__(self) -> str:
        return f"<KeyringTokenStore in {_name(self._keyring)}>"

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run work in a thread, which completes its work even after its caller was cancelled."""
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        except TimeoutError:
            raise StoreError(
                f"the keyring {_name(self._keyring)} did not answer within {ANSWER_SECONDS:g} s; is it locked?"
            ) from None
        except ToolweaveError:
            raise
        except Exception as exc:  # boundary: backends raise errors of their own, and of the libraries below
            raise StoreError(f"the keyring {_name(self._keyring)} failed: {type(exc).__name__}: {exc}") from exc

    # in a thread

    def _save(self, record: TokenRecord) -> None:
        with self._writing():
            keys = self._index()
            if record.key not in keys:
                self._put(_INDEX, msgspec.json.encode([*keys, record.key]).decode())
            self._put(name_of(record.key), write_record(record).decode())

    def _delete(self, key: TokenKey) -> bool:
        with self._writing():
            was_there = self._remove(name_of(key))
            keys = self._index()
            if key in keys:
                self._put(_INDEX, msgspec.json.encode([one for one in keys if one != key]).decode())
            return was_there

    def _writing(self) -> AbstractContextManager[None]:
        folder = default_folder()
        private_folder(folder)
        path = folder / f"keyring.{digest(self._service)}.lock"
        return held_in_thread(path, seconds=_WRITE_SECONDS, what=f"the keyring {_name(self._keyring)}")

    def _read(self, key: TokenKey) -> TokenRecord | None:
        text = self._get(name_of(key))
        if text is None:
            return None
        return read_record(text)

    def _index(self) -> list[TokenKey]:
        """Return the keys of all records, which a keyring itself does not list."""
        text = self._get(_INDEX)
        try:
            if text is None:
                return []
            return decode_json(text, list[TokenKey])
        except ValueError:
            raise StoreError(f"the list of tokens in the keyring {_name(self._keyring)} is damaged") from None

    def _put(self, name: str, text: str) -> None:
        """Store a text of any length; its own value is written last and names its parts."""
        before = self._keyring.get_password(self._service, name)
        value = f"0:{text}"
        if len(text) > MAX_VALUE:
            parts = [text[at : at + MAX_VALUE] for at in range(0, len(text), MAX_VALUE)]
            value = f"{len(parts)}:{secrets.token_hex(8)}"
            for part, name_of_part in zip(parts, _parts_of(name, value), strict=True):
                self._set(self._service, name_of_part, part)
        self._set(self._service, name, value)
        self._forget(_parts_of(name, before))

    def _get(self, name: str) -> str | None:
        # another process may replace the parts while they are read
        for _ in range(_READS):
            value = self._keyring.get_password(self._service, name)
            if value is None:
                return None
            if value.startswith("0:"):
                return value[2:]
            text = self._joined(_parts_of(name, value))
            if text:
                return text
        raise StoreError(f"an entry of the keyring {_name(self._keyring)} is damaged: parts of it are missing")

    def _joined(self, names: Sequence[str]) -> str | None:
        parts: list[str] = []
        for name in names:
            part = self._keyring.get_password(self._service, name)
            if part is None:
                return None
            parts.append(part)
        return "".join(parts)

    def _remove(self, name: str) -> bool:
        value = self._keyring.get_password(self._service, name)
        if value is None:
            return False
        self._forget([name, *_parts_of(name, value)])
        return True

    def _forget(self, names: Sequence[str]) -> None:
        from keyring.errors import PasswordDeleteError

        for name in names:
            try:
                self._keyring.delete_password(self._service, name)
            except PasswordDeleteError:
                # it did not exist
                continue


def _parts_of(name: str, value: str | None) -> list[str]:
    """Return the names of the parts of a value, if it has any."""
    count, _, generation = (value or "").partition(":")
    if count.isdecimal():
        return [f"{name}.{generation}.{at}" for at in range(int(count))]
    return []


def _priority(backend: KeyringBackend) -> float:
    """Return the priority of a backend, -1 if it cannot be used."""
    try:
        return float(cast("Any", type(backend)).priority)
    except Exception:  # boundary: a backend says by any exception that it cannot be used
        return -1


def _name(backend: KeyringBackend) -> str:
    return f"{type(backend).__module__}.{type(backend).__name__}"
