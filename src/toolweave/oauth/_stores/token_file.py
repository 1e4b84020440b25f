"""The file that tokens are in: read and changed by any number of processes, whole or not at all. Only for threads."""

# Each change reads the whole file, changes it and replaces it, under a lock file: so two processes never overwrite the
# change of each other, and a reader, which takes no lock, sees the file of before or of after.

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from toolweave._json import decode_json
from toolweave.config.trust import write_privately
from toolweave.errors import StoreError
from toolweave.oauth._records import TokenRecord
from toolweave.oauth._stores.locks import held_in_thread, private_folder
from toolweave.oauth._stores.sealing import KEY_VARIABLE, TokenCipher

_VERSION = 1
_MAX_BYTES = 50_000_000
_WRITE_SECONDS = 10.0
NO_KEY = f"is encrypted; set {KEY_VARIABLE} to its key"


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


class TokenFile:
    """The records in a file that only its owner can read.

    Args:
        path: The file.
        cipher: Encrypts it; None for a file in the clear.
        no_key: The text of the error for an encrypted file without a cipher.
    """

    def __init__(self, path: Path, cipher: TokenCipher | None = None, *, no_key: str = NO_KEY) -> None:
        self._path = path
        self._cipher = cipher
        self._no_key = no_key

    def is_sealed(self) -> bool:
        """Return whether the file is encrypted.

        Raises:
            StoreError: The file cannot be read, or is not the owner's alone.
        """
        return self._contents().sealed is not None

    def read(self) -> dict[str, TokenRecord]:
        """Return the records by name.

        Raises:
            StoreError: The file cannot be read or decrypted, or is not the owner's alone.
        """
        contents = self._contents()
        if contents.sealed is not None:
            contents = self._opened(contents.sealed)
        if contents.version != _VERSION:
            raise self._error(f"was written by another version (format {contents.version}, expected {_VERSION})")
        return contents.records

    def change(self, change: Callable[[dict[str, TokenRecord]], bool]) -> bool:
        """Change the records while no other process does; write them if the change returns True.

        Raises:
            StoreError: The file cannot be read or written; it is unchanged then.
        """
        private_folder(self._path.parent)
        lock = self._path.with_name(f"{self._path.name}.lock")
        with held_in_thread(lock, seconds=_WRITE_SECONDS, what=f"the file {str(self._path)!r}"):
            records = self.read()
            if not change(records):
                return False
            self._write(records)
            return True

    def _contents(self) -> _Contents:
        data = _read_privately(self._path)
        if data is None:
            return _Contents(version=_VERSION)
        return self._decoded(data)

    def _decoded(self, data: bytes) -> _Contents:
        try:
            return decode_json(data, _Contents)
        except (ValueError, RecursionError):
            # without their message, which may quote the file
            raise self._error("is damaged: it holds no tokens; move it away and sign in again") from None

    def _opened(self, sealed: str) -> _Contents:
        if self._cipher is None:
            raise self._error(self._no_key)
        try:
            data = self._cipher.open(sealed, name=self._path.name)
        except StoreError as exc:
            raise self._error(f"{exc}; restore its key, or move the file away and sign in again") from None
        return self._decoded(data)

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
        # Not through a link, and without waiting for a writer if it is a named pipe.
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
