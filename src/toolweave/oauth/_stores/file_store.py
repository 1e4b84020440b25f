"""Tokens in one file that only its user can read; encrypted if there is a key."""

# Each change reads the whole file, changes it and replaces it, under a lock file: so two processes never overwrite the
# change of each other, and a reader, which takes no lock, sees the file of before or of after. All of it runs in a
# thread that a cancelled caller does not stop, so a change is never half done.

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import anyio.to_thread
import msgspec

from toolweave._json import decode_json
from toolweave.config import Secret
from toolweave.config._trust import write_privately
from toolweave.errors import StoreError
from toolweave.oauth._records import TokenKey, TokenRecord
from toolweave.oauth._stores.locks import held, held_in_thread, private_folder
from toolweave.oauth._stores.records import name_of, newest_first
from toolweave.oauth._stores.sealing import KEY_VARIABLE, configured_key

T = TypeVar("T")

_VERSION = 1
_MAX_BYTES = 50_000_000
_WRITE_SECONDS = 10.0


def default_folder() -> Path:
    """Return the folder of this user's tokens: never in the working directory."""
    # only where no path is given
    from platformdirs import user_data_path

    return user_data_path("toolweave", appauthor=False) / "tokens"


class _Contents(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The file: its records by name, or the same as one sealed text."""

    version: int
    records: dict[str, TokenRecord] = {}
    sealed: str | None = None


class FileTokenStore:
    """A `TokenStore` in one file that only its owner can read, written as a whole or not at all.

    Only its owner can read the file (0600) and its folder (0700). A file is refused if it is a link, belongs to another
    user or can be read by others, and a file that cannot be read is never overwritten. Any number of processes of a
    machine may use it.

    Args:
        path: The file; by default `tokens.json` in the `tokens` folder of the user's data.
        key: Encrypts the file (AES-256-GCM): 32 bytes in base64; by default the environment's `TOOLWEAVE_TOKEN_KEY`.
            Several with commas between them: the first encrypts, each can decrypt. A file that is not encrypted yet is
            encrypted at the next write.

    Raises:
        StoreError: The key is not 32 bytes in base64.
    """

    def __init__(self, path: str | Path | None = None, *, key: str | Secret | None = None) -> None:
        # independent of later changes of the working directory
        if path is None:
            self._path = default_folder() / "tokens.json"
        else:
            self._path = Path(path).expanduser().absolute()
        self._cipher = configured_key(key)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    async def load(self, key: TokenKey) -> TokenRecord | None:
        """Return the record of a key, or None.

        Raises:
            StoreError: The file cannot be read, or is not the owner's alone.
        """
        return (await _in_thread(self._read)).get(name_of(key))

    async def save(self, record: TokenRecord) -> None:
        """Store a record, replacing the one with its key.

        Raises:
            StoreError: The file cannot be read or written; it is unchanged then.
        """

        def put(records: dict[str, TokenRecord]) -> bool:
            records[name_of(record.key)] = record
            return True

        await _in_thread(lambda: self._change(put))

    async def delete(self, key: TokenKey) -> bool:
        """Delete the record of a key; return whether there was one.

        Raises:
            StoreError: The file cannot be read or written; it is unchanged then.
        """
        return await _in_thread(lambda: self._change(lambda records: records.pop(name_of(key), None) is not None))

    async def records(self, *, resource: str | None = None, principal: str | None = None) -> Sequence[TokenRecord]:
        """Return the records of a resource, of a principal, or all, the newest first.

        Raises:
            StoreError: The file cannot be read, or is not the owner's alone.
        """
        return newest_first((await _in_thread(self._read)).values(), resource=resource, principal=principal)

    def locked(self, key: TokenKey, *, seconds: float) -> AbstractAsyncContextManager[None]:
        """Hold the record of a key alone, among all processes of this machine.

        Raises:
            StoreError: Another holder keeps it for longer than these seconds.
        """
        private_folder(self._path.parent)
        path = self._path.with_name(f"{self._path.name}.{name_of(key)}.lock")
        return held(path, seconds=seconds, what=f"the token for {key.resource}")

    def __repr__(self) -> str:
        if self._cipher is None:
            return f"<FileTokenStore {str(self._path)!r}>"
        return f"<FileTokenStore {str(self._path)!r}, encrypted>"

    # in a thread

    def _change(self, change: Callable[[dict[str, TokenRecord]], bool]) -> bool:
        """Change the records while no other process does; write them if the change returns True."""
        private_folder(self._path.parent)
        lock = self._path.with_name(f"{self._path.name}.lock")
        with held_in_thread(lock, seconds=_WRITE_SECONDS, what=f"the file {str(self._path)!r}"):
            records = self._read()
            if not change(records):
                return False
            self._write(records)
            return True

    def _read(self) -> dict[str, TokenRecord]:
        data = _read_privately(self._path)
        if data is None:
            return {}
        try:
            contents = decode_json(data, _Contents)
            if contents.sealed is not None:
                contents = self._opened(contents.sealed)
        except (ValueError, RecursionError):
            # without their message, which may quote the file
            raise self._error("is damaged: it holds no tokens; move it away and sign in again") from None
        if contents.version != _VERSION:
            raise self._error(f"was written by another version (format {contents.version}, expected {_VERSION})")
        return contents.records

    def _opened(self, sealed: str) -> _Contents:
        if self._cipher is None:
            raise self._error(f"is encrypted; set {KEY_VARIABLE} to its key")
        try:
            data = self._cipher.open(sealed, name=self._path.name)
        except StoreError as exc:
            raise self._error(str(exc)) from None
        return decode_json(data, _Contents)

    def _write(self, records: dict[str, TokenRecord]) -> None:
        contents = msgspec.json.encode(_Contents(version=_VERSION, records=records))
        if self._cipher is not None:
            sealed = self._cipher.seal(contents, name=self._path.name)
            contents = msgspec.json.encode(_Contents(version=_VERSION, sealed=sealed))
        try:
            # files of processes that died while they wrote; under the lock, no other process writes now
            for left in self._path.parent.glob(f".{self._path.name}.*"):
                left.unlink(missing_ok=True)
            write_privately(self._path, contents)
        except OSError as exc:
            raise self._error(f"cannot be written: {exc.strerror or exc}") from None

    def _error(self, message: str) -> StoreError:
        return StoreError(f"the file of tokens {str(self._path)!r} {message}")


def _read_privately(path: Path) -> bytes | None:
    """Return the bytes of a file that only its owner can read; None if it does not exist.

    Raises:
        StoreError: It is a link or not a file, belongs to another user, others can read it, or it is too large.
    """
    # The checks are of the open descriptor, not of the path, which could be replaced between the check and the reading.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            why = "is a link; tokens are kept in a file itself"
        else:
            why = f"cannot be read: {exc}"
        raise StoreError(f"the file of tokens {str(path)!r} {why}") from None
    try:
        with os.fdopen(descriptor, "rb") as file:
            wrong = _objection(os.fstat(descriptor))
            if wrong is None:
                return file.read()
    except OSError as exc:
        wrong = f"cannot be read: {exc.strerror or exc}"
    raise StoreError(f"the file of tokens {str(path)!r} {wrong}")


def _objection(found: os.stat_result) -> str | None:
    """Return the reason why a file must not be read, or None if it may be read."""
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        return f"can be used by others (mode {mode:04o}): chmod 600 it, or delete it and sign in again"
    if found.st_size > _MAX_BYTES:
        return f"is larger than {_MAX_BYTES:,} bytes"
    return None


async def _in_thread(work: Callable[[], T]) -> T:
    """Run work with files in a thread, to its end also when its caller is cancelled."""
    return await anyio.to_thread.run_sync(work)
