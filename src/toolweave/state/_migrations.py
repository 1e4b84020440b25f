"""The schema of a `SqliteStore`'s file, and its migrations from older versions."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from toolweave.errors import StoreError

APPLICATION_ID = 0x746F6F6C
"""The `application_id` of SQLite that marks a file as ours: "tool" in ASCII."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE documents (
            collection TEXT NOT NULL,
            key TEXT NOT NULL,
            value TEXT NOT NULL,
            revision INTEGER NOT NULL,
            expires_at REAL,
            PRIMARY KEY (collection, key)
        )""",
        "CREATE INDEX documents_expiring ON documents (expires_at) WHERE expires_at IS NOT NULL",
        "CREATE TABLE counter (revision INTEGER NOT NULL)",
        "INSERT INTO counter VALUES (0)",
    ),
)
"""One entry per version, oldest first, each the statements that lead to it; entries are never changed, only added."""


class CheckedFile:
    """The identity of an opened file, to detect that its path names another one since.

    Args:
        path: The path of the file.
        writable: Whether it can be written to.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        self._path = path
        self._writable = writable
        self._identity = _identity(path)

    def check(self, *, writes: bool) -> None:
        """Check that the opened file is still the one at its path.

        Raises:
            StoreError: It was deleted, replaced or emptied since it was opened, or cannot be written to.
        """
        if writes and not self._writable:
            raise StoreError(f"{self._path} can only be read: the file, its folder or its file system is read-only")
        # A deleted file stays usable for the process that has it open, so writes would succeed and be lost.
        if _identity(self._path) != self._identity:
            raise StoreError(
                f"{self._path} was deleted, emptied or replaced while it was open; put it back, or close the store and "
                "open it again to start afresh"
            )


def open_database(path: Path, busy_seconds: float) -> tuple[sqlite3.Connection, CheckedFile]:
    """Return a connection to a file of this version; make the file, or bring it to this version, where needed.

    A file that cannot be written to is opened for reading.

    Raises:
        StoreError: The file is not ours, is empty, or a newer version of Toolweave wrote it. It is left as it is.
        sqlite3.Error: The file is damaged or cannot be read.
        OSError: The file cannot be made.
    """
    if not path.exists():
        _make_file(path)
    # SQLite takes an empty file for a new database. Runs that were lost would look as if they had never been.
    elif not path.stat().st_size:
        raise StoreError(
            f"{path} is empty, and no store ever is: it was emptied, or its disk was full; "
            "put a backup in its place, or delete it to start afresh"
        )
    if path.is_file() and not _is_writable(path):
        return _open_to_read(path, busy_seconds), CheckedFile(path, writable=False)
    connection = _connected(path, busy_seconds)
    try:
        _check(connection, path)
        _write_ahead(connection, busy_seconds)
        # a call that is recorded as begun has to be on the disk before it is made
        connection.execute("PRAGMA synchronous = FULL")
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection, CheckedFile(path, writable=True)


@contextmanager
def writing(connection: sqlite3.Connection) -> Generator[None, None, None]:
    """Run the block in one transaction, which other processes see whole or not at all."""
    # The lock for writing at once: a transaction that reads first could not get it later without failing.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def savepoint(connection: sqlite3.Connection) -> Generator[None, None, None]:
    """Run the block in a savepoint, which alone is rolled back when it fails."""
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk ends all of it
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise
    connection.execute("RELEASE part")


def _make_file(path: Path) -> None:
    """Make a file with nothing but the schema, complete from the time it has its name."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        # SQLite gives its -wal and -shm files the same mode
        made.touch(mode=0o600, exist_ok=False)
        connection = _connected(made, 0)
        try:
            _migrate(connection, made)
        finally:
            connection.close()
        try:
            os.link(made, path)
        except FileExistsError:
            pass  # another process was faster
        except OSError:  # a file system without links
            if not path.exists():
                made.rename(path)
    finally:
        made.unlink(missing_ok=True)


def _connected(path: Path, busy_seconds: float, *, options: str = "") -> sqlite3.Connection:
    name = f"{path.as_uri()}?{options}" if options else path
    return sqlite3.connect(name, timeout=busy_seconds, isolation_level=None, check_same_thread=False, uri=bool(options))


def _is_writable(path: Path) -> bool:
    """Whether SQLite can write to the file, and to its folder, where it keeps its log."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _open_to_read(path: Path, busy_seconds: float) -> sqlite3.Connection:
    ahead = path.with_name(f"{path.name}-wal")
    has_index = path.with_name(f"{path.name}-shm").exists()
    if ahead.exists() and ahead.stat().st_size and not has_index:
        raise StoreError(
            f"{path} can only be read, and some writes are still in {ahead.name} beside it; "
            "copy both into a folder that can be written to"
        )
    # a file that no process has open, and that has no log beside it, cannot change
    connection = _connected(path, busy_seconds, options="mode=ro" if ahead.exists() else "mode=ro&immutable=1")
    try:
        if _check(connection, path) != len(MIGRATIONS):
            raise StoreError(
                f"{path} is of an older layout and can only be read; copy it to where it can be written to"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if it does not exist, or is empty."""
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_size:
        return (found.st_dev, found.st_ino)
    return None


def _check(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of a file that is ours; 0 for an empty one."""
    mark = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    empty = not _number(connection, "SELECT count(*) FROM sqlite_master")
    is_new = mark == 0 and empty
    if mark != APPLICATION_ID and not is_new:
        raise StoreError(f"{path} is a database of another program; give the store another file")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer version of Toolweave (layout {version}, this one knows "
            f"{len(MIGRATIONS)}); update Toolweave or give the store another file"
        )
    return version


def _write_ahead(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch to the write-ahead log, so that readers and a writer do not wait for each other.

    SQLite does not wait while another process switches the same file, so this does.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            # The low byte is the primary code; extended codes have the same one.
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    if _check(connection, path) == len(MIGRATIONS):
        return
    with writing(connection):
        version = _check(connection, path)  # another process may have been faster
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        # In the same transaction as the statements: the version never names a layout that is not there.
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
