"""The store that outlives its process: one SQLite file, which several processes may use at the same time.

Knows SQL and threads; not what the documents hold.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from toolweave.errors import StoreError
from toolweave.state.migrations import open_database, writing
from toolweave.state.store import Document, to_json

__all__ = ["SqliteStore", "default_path"]

T = TypeVar("T")

_ALIVE = "(expires_at IS NULL OR expires_at > ?)"
_GET = f"SELECT key, value, revision, expires_at FROM documents WHERE collection = ? AND key = ? AND {_ALIVE}"  # noqa: S608 - constants
_SCAN = (
    "SELECT key, value, revision, expires_at FROM documents "  # noqa: S608 - constants
    f"WHERE collection = ? AND key >= ? AND key > ? AND {_ALIVE} ORDER BY key"
)


def default_path() -> Path:
    """Return the file of this user's store: never in the working directory (requirement D26)."""
    from platformdirs import user_data_path  # only where no path is given

    return user_data_path("toolweave", appauthor=False) / "store.db"


class SqliteStore:
    """A `Store` in one SQLite file (DESIGN decision 11).

    It opens its file when it is first used and closes it when the last who entered it leaves; used again, it opens it
    again. All work is done in one thread of its own. A write that has begun is finished, also when its caller is
    cancelled. What a process wrote is there after it was killed, whole or not at all.

    Args:
        path: The file, made with mode 0600 where there is none; None is `default_path()`.
        clock: Tells the time in seconds, for ttl; all processes that share a file need the same time.
        busy_seconds: How long to wait for other processes that write.

    Raises:
        ValueError: The path is `":memory:"`; that is what `MemoryStore` is for.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = 10.0,
    ) -> None:
        if str(path) == ":memory:":
            raise ValueError("a SqliteStore is a file; use MemoryStore() for a store in memory")
        # later changes of the working directory mean nothing to it
        self._path = default_path() if path is None else Path(path).expanduser().absolute()
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._users = 0
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, or None when there is none.

        Raises:
            StoreError: The file cannot be read.
        """

        def read(connection: sqlite3.Connection) -> Document | None:
            row = connection.execute(_GET, (collection, key, self._clock())).fetchone()
            return None if row is None else _document(row)

        return await self._run(read)

    async def put(
        self, collection: str, key: str, value: Any, *, ttl: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write a document; return its new revision, or None when `expect` did not hold.

        Raises:
            StoreError: The file cannot be written, or the value is no JSON.
        """
        text = to_json(collection, key, value)

        def write(connection: sqlite3.Connection) -> int | None:
            now = self._clock()
            with writing(connection):
                connection.execute("DELETE FROM documents WHERE expires_at <= ?", (now,))
                if expect is not None and expect != _revision(connection, collection, key):
                    return None
                connection.execute("UPDATE counter SET revision = revision + 1")
                revision: int = connection.execute("SELECT revision FROM counter").fetchone()[0]
                connection.execute(
                    "INSERT OR REPLACE INTO documents (collection, key, value, revision, expires_at) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (collection, key, text, revision, None if ttl is None else now + ttl),
                )
                return revision

        return await self._run(write, shield=True)

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document, with `expect` only if it has this revision; return whether one was deleted.

        Raises:
            StoreError: The file cannot be written.
        """

        def remove(connection: sqlite3.Connection) -> bool:
            with writing(connection):
                connection.execute("DELETE FROM documents WHERE expires_at <= ?", (self._clock(),))
                revision = _revision(connection, collection, key)
                wanted = revision > 0 and expect in (None, revision)
                if wanted:
                    connection.execute("DELETE FROM documents WHERE collection = ? AND key = ?", (collection, key))
                return wanted

        return await self._run(remove, shield=True)

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        """Return documents by key, a page at a time.

        Raises:
            StoreError: The file cannot be read.
        """

        def read(connection: sqlite3.Connection) -> Sequence[Document]:
            found: list[Document] = []
            if limit <= 0:
                return found
            rows = connection.execute(_SCAN, (collection, prefix, after, self._clock()))
            for row in rows:
                if not row[0].startswith(prefix):
                    break
                found.append(_document(row))
                if len(found) == limit:
                    break
            rows.close()  # an open cursor would hold back the write-ahead log
            return found

        return await self._run(read)

    async def close(self) -> None:
        """Close the file; closing what is closed does nothing."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wrap_future(worker.end())

    async def __aenter__(self) -> Self:
        """Open the file, so that what is wrong with it is known here.

        Raises:
            StoreError: It is damaged, not ours, of a newer version, or cannot be written.
        """
        await self._run(lambda _: None)
        self._users += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._users -= 1
        if not self._users:
            await self.close()

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self._path)!r}, {'closed' if self._worker is None else 'open'}>"

    async def _run(self, work: Callable[[sqlite3.Connection], T], *, shield: bool = False) -> T:
        with self._lock:
            if self._worker is None:
                self._worker = _Worker(self._path, self._busy_seconds)
                self._worker.end_with(self)
            future = asyncio.wrap_future(self._worker.submit(work))
        with anyio.CancelScope(shield=shield):
            await future
        return future.result()


class _Worker:
    """One thread with one connection."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toolweave-store")
        self._connection: sqlite3.Connection | None = None
        self._finalizer: weakref.finalize[Any, SqliteStore] | None = None

    def end_with(self, store: SqliteStore) -> None:
        """Close the connection of a store that nobody closed."""
        self._finalizer = weakref.finalize(store, self._close)

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Have work done after all that was submitted before."""
        return self._thread.submit(self._do, work)

    def end(self) -> Future[None]:
        """Close the connection after all that was submitted before."""
        if self._finalizer is not None:
            self._finalizer.detach()
        future = self._thread.submit(self._close)
        self._thread.shutdown(wait=False)
        return future

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = open_database(self._path, self._busy_seconds)
            return work(self._connection)
        except sqlite3.Error as exc:
            raise StoreError(self._said(exc)) from exc
        except OSError as exc:
            raise StoreError(f"{self._path} cannot be opened: {exc.strerror or exc}") from exc
        except UnicodeEncodeError as exc:
            raise StoreError(f"a collection or key is no valid Unicode text: {exc.object!r}") from None

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _said(self, exc: sqlite3.Error) -> str:
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"{self._path} is busy: other processes have been writing to it for {self._busy_seconds:g} s"
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return (
                f"{self._path} is damaged or no SQLite file ({exc}); it is left as it is: move it away to begin anew, "
                "or rescue what it holds with `sqlite3 FILE .recover`"
            )
        return f"{self._path}: {exc}"


def _revision(connection: sqlite3.Connection, collection: str, key: str) -> int:
    row = connection.execute(
        "SELECT revision FROM documents WHERE collection = ? AND key = ?", (collection, key)
    ).fetchone()
    return 0 if row is None else row[0]


def _document(row: tuple[str, str, int, float | None]) -> Document:
    key, value, revision, expires_at = row
    return Document(key=key, value=json.loads(value), revision=revision, expires_at=expires_at)
