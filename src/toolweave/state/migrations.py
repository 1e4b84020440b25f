"""How the file of a `SqliteStore` is laid out, and how a file of an older version becomes one of this version.

Knows SQL and the file's own marks; not what the documents hold.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from toolweave.errors import StoreError

__all__ = ["MIGRATIONS", "open_database", "writing"]

APPLICATION_ID = 0x746F6F6C
"""Marks a file as ours: SQLite's `application_id`, "tool" in ASCII."""

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


def open_database(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Return a connection to a file of this version; make the file, or bring it to this version, where needed.

    Raises:
        StoreError: The file is not ours, or a newer version of Toolweave wrote it. It is left as it is.
        sqlite3.Error: The file is damaged or cannot be written.
        OSError: The file cannot be made.
    """
    _make_file(path)
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path)
        _write_ahead(connection, busy_seconds)
        # a call that is noted as begun has to be on the disk before it is made
        connection.execute("PRAGMA synchronous = FULL")
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def writing(connection: sqlite3.Connection) -> Generator[None, None, None]:
    """Make what is done inside one transaction, which other processes see whole or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _make_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # SQLite gives its -wal and -shm files the same mode
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        pass


def _check(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of a file that is ours; 0 for an empty one."""
    mark = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    empty = not _number(connection, "SELECT count(*) FROM sqlite_master")
    if mark != APPLICATION_ID and not (mark == 0 and empty):
        raise StoreError(f"{path} is a database of another program; give the store a file of its own")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer version of Toolweave (layout {version}, this one knows "
            f"{len(MIGRATIONS)}); update Toolweave or give the store another file"
        )
    return version


def _write_ahead(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch to the write-ahead log, where readers and a writer do not wait for each other.

    SQLite does not wait while another process switches the same file, so this does.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
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
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
