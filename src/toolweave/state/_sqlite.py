"""The store in one SQLite file, which several processes may use at the same time.

Knows SQL and threads; not what the documents hold.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from toolweave._option_checks import check_kind, check_number, instance_of
from toolweave.errors import StoreError
from toolweave.state._migrations import CheckedFile, open_database, savepoint, writing
from toolweave.state._signals import SignalListener, SignalListeners
from toolweave.state.checks import CLOCK
from toolweave.state.store import Change, Document, Put, to_json

T = TypeVar("T")

_ALIVE = "(expires_at IS NULL OR expires_at > ?)"
_GET = f"SELECT key, value, revision, expires_at FROM documents WHERE collection = ? AND key = ? AND {_ALIVE}"  # noqa: S608 - constants
_SCAN = (
    "SELECT key, value, revision, expires_at FROM documents "  # noqa: S608 - constants
    f"WHERE collection = ? AND key >= ? AND key > ? AND {_ALIVE} ORDER BY key"
)
_SEARCHED = 5_000
"""Documents that one search looks at."""
_SEARCH_END = "SELECT key FROM documents WHERE collection = ? AND key > ? ORDER BY key LIMIT 1 OFFSET ?"
# `instr`: `LIKE` would ignore case and read % and _ as wildcards.
_SEARCH = (
    "SELECT key, value, revision, expires_at FROM documents "  # noqa: S608 - constants
    "WHERE collection = ? AND key > ? AND (? IS NULL OR key <= ?) AND (instr(key, ?) OR instr(value, ?)) "
    f"AND {_ALIVE}"
)
_NEXT_COLLECTION = "SELECT min(collection) FROM documents WHERE collection > ?"
_ANY = f"SELECT 1 FROM documents WHERE collection = ? AND {_ALIVE} LIMIT 1"  # noqa: S608 - constants


def default_path() -> Path:
    """Return the file of this user's store: never in the working directory."""
    from platformdirs import user_data_path  # only where no path is given

    return user_data_path("toolweave", appauthor=False) / "store.db"


_PATH = instance_of((str, Path), "a path").or_none


class SqliteStore:
    """A `Store` in one SQLite file.

        agent = Agent(model, store=SqliteStore("runs.db"))

    It opens its file when it is first used and closes it when the last user has left it; used again, it opens it
    again. One thread does all work. Writes that come at the same time are one transaction and one sync
    of the disk; each is on the disk before it returns, and one that does not hold does not disturb the others. A write
    that has begun is finished, also when its caller is cancelled. What a process wrote is there after it was killed,
    whole or not at all. A process that was forked off opens the file for itself. What cannot be written to can be read.

    Args:
        path: The file, created with mode 0600 if it does not exist; None is `default_path()`.
        clock: Returns the time in seconds, for ttl; all processes that share a file need the same time.
        busy_seconds: How long to wait for other processes that write.

    Raises:
        TypeError: An option has another type.
        ValueError: The path is `":memory:"`; that is what `MemoryStore` is for. Or the seconds are not finite.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = 10.0,
    ) -> None:
        check_kind("SqliteStore.path", path, _PATH)
        check_number("SqliteStore.busy_seconds", busy_seconds, noun="a number of seconds")
        check_kind("SqliteStore.clock", clock, CLOCK)
        if str(path) == ":memory:":
            raise ValueError("a SqliteStore is a file; use MemoryStore() for a store in memory")
        # independent of later changes of the working directory
        if path is None:
            self._path = default_path()
        else:
            self._path = Path(path).expanduser().absolute()
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._users = 0
        self._worker: _DatabaseThread | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._listeners = SignalListeners()

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, or None if it does not exist.

        Raises:
            StoreError: The file cannot be read.
        """

        def read(connection: sqlite3.Connection) -> Document | None:
            row = connection.execute(_GET, (collection, key, self._clock())).fetchone()
            if row is None:
                return None
            return _document(row)

        return await self._run(read)

    async def put(
        self, collection: str, key: str, value: Any, *, ttl: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write a document; return its new revision, or None when `expect` did not hold.

        Raises:
            StoreError: The file cannot be written, or the value is not JSON.
        """
        revisions = await self.write([Put(collection=collection, key=key, value=value, ttl=ttl, expect=expect)])
        if revisions is None:
            return None
        return revisions[0]

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        """Return documents, None for each missing one.

        Raises:
            StoreError: The file cannot be read.
        """

        def read(connection: sqlite3.Connection) -> Sequence[Document | None]:
            now = self._clock()
            rows = [connection.execute(_GET, (*name, now)).fetchone() for name in names]
            return [None if row is None else _document(row) for row in rows]

        return await self._run(read)

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        """Make all of these changes or none; return the revisions, or None when an `expect` did not hold.

        Raises:
            StoreError: The file cannot be written, or a value is not JSON.
        """
        texts = [to_json(one.collection, one.key, one.value) if isinstance(one, Put) else "" for one in changes]

        def write(connection: sqlite3.Connection) -> Sequence[int] | None:
            now = self._clock()
            # Expired ones go with every write, by their own index: no timer, no thread, and an `expect` of 0 finds no
            # document that is only hidden.
            connection.execute("DELETE FROM documents WHERE expires_at <= ?", (now,))
            for one in changes:
                # All expectations are checked before the first change; the savepoint would undo the changes as well,
                # but a refused write then costs no page.
                if one.expect is not None and one.expect != _revision(connection, one.collection, one.key):
                    return None
            return [_change(connection, one, text, now) for one, text in zip(changes, texts, strict=True)]

        revisions = await self._run(write, writes=True)
        if revisions is not None and signal is not None:
            self._listeners.notify(signal)
        return revisions

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document, with `expect` only if it has this revision; return whether one was deleted.

        Raises:
            StoreError: The file cannot be written.
        """

        def remove(connection: sqlite3.Connection) -> bool:
            connection.execute("DELETE FROM documents WHERE expires_at <= ?", (self._clock(),))
            revision = _revision(connection, collection, key)
            wanted = revision > 0 and expect in (None, revision)
            if wanted:
                connection.execute("DELETE FROM documents WHERE collection = ? AND key = ?", (collection, key))
            return wanted

        return await self._run(remove, writes=True)

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        """Return documents by key, a page at a time.

        Raises:
            StoreError: The file cannot be read.
        """

        def read(connection: sqlite3.Connection) -> Sequence[Document]:
            found: list[Document] = []
            if limit <= 0:
                return found
            # Sorted by key, so the first one without the prefix ends the page; `LIKE` would ignore case and read % and
            # _ as wildcards.
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

    async def search(
        self, collection: str, texts: Sequence[str], *, after: str = ""
    ) -> tuple[Sequence[Document], str | None]:
        """Return the next documents that contain one of these texts, and the key after which to continue.

        Raises:
            StoreError: The file cannot be read.
        """

        def read(connection: sqlite3.Connection) -> tuple[Sequence[Document], str | None]:
            end = connection.execute(_SEARCH_END, (collection, after, _SEARCHED - 1)).fetchone()
            reached = None
            if end is not None:
                reached = end[0]
            found: dict[str, Document] = {}
            for text in texts:
                values = (collection, after, reached, reached, text, text, self._clock())
                for row in connection.execute(_SEARCH, values):
                    found[row[0]] = _document(row)
            return list(map(found.__getitem__, sorted(found))), reached

        return await self._run(read)

    async def collections(self) -> Sequence[str]:
        """Return the names of the collections that have documents, sorted.

        Raises:
            StoreError: The file cannot be read.
        """

        def read(connection: sqlite3.Connection) -> Sequence[str]:
            found: list[str] = []
            now = self._clock()
            row = connection.execute(_NEXT_COLLECTION, ("",)).fetchone()
            # From one collection to the next: `DISTINCT` would read the key of every document.
            while row[0] is not None:
                if connection.execute(_ANY, (row[0], now)).fetchone() is not None:
                    found.append(row[0])
                row = connection.execute(_NEXT_COLLECTION, (row[0],)).fetchone()
            return found

        return await self._run(read)

    async def compact(self) -> None:
        """Rewrite the file, so that nothing of deleted or replaced documents is left in it.

        Takes as long as copying the file, and other processes cannot write meanwhile.

        Raises:
            StoreError: The file cannot be written, or other processes use it just now.
        """

        def rewrite(connection: sqlite3.Connection) -> None:
            connection.execute("VACUUM")
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            if is_busy:
                raise StoreError(f"{self._path} is in use: its log still has what was deleted; try again")

        await self._run(rewrite)

    async def close(self) -> None:
        """Close the file; closing a closed one does nothing."""
        with self._lock:
            worker = self._worker
            self._worker = None
        if worker is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wrap_future(worker.end())

    async def signal(self, name: str) -> None:
        """Send a signal to the listeners of this process."""
        self._listeners.notify(name)

    def listening(self, name: str) -> AbstractAsyncContextManager[SignalListener]:
        """Listen to the signals of a name during the block."""
        return self._listeners.listening(name, sure=False)

    async def __aenter__(self) -> Self:
        """Open the file, so that an error is raised on entry.

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

    async def _run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        if self._process != os.getpid():
            self._reset_after_fork()
        with self._lock:
            if self._worker is None:
                self._worker = _DatabaseThread(self._path, self._busy_seconds)
                self._worker.end_with(self)
            worker = self._worker
            # Under the lock, or `close` could take the worker in between, and the job would wait in a thread that has
            # ended.
            job = worker.add(work, writes=writes)
        # in the next iteration of the loop, so that writes of other tasks in this one are written together with it
        asyncio.get_running_loop().call_soon(worker.begin)
        future = asyncio.wrap_future(job)
        # A write that has begun cannot be taken back from the thread. Returning at a cancellation would let its caller
        # believe that it was not made.
        with anyio.CancelScope(shield=writes):
            await future
        return future.result()

    def _reset_after_fork(self) -> None:
        """Start afresh in a forked process, where the thread and the connection of its parent are unusable."""
        if self._worker is not None:
            self._worker.leave()
        self._worker, self._lock, self._process = None, threading.Lock(), os.getpid()


_left_behind: list[Any] = []
"""Connections of parent processes: closing one after a fork would affect their files."""


@dataclass(slots=True)
class _DatabaseJob:
    """A job for the connection, and its outcome.

    Attributes:
        outcome: The future of its outcome.
        error: The exception that it raised.
    """

    work: Callable[[sqlite3.Connection], Any]
    writes: bool
    outcome: Future[Any] = field(default_factory=Future[Any])
    result: Any = None
    error: Exception | None = None

    def do(self, connection: sqlite3.Connection) -> None:
        self.result = self.error = None
        try:
            with savepoint(connection) if self.writes else nullcontext():
                self.result = self.work(connection)
        except UnicodeEncodeError as exc:
            self.error = StoreError(f"a collection or key is not valid Unicode text: {exc.object!r}")

    def finish(self) -> None:
        if self.error is None:
            self.outcome.set_result(self.result)
        else:
            self.outcome.set_exception(self.error)


class _DatabaseThread:
    """One thread with one connection; runs all waiting jobs together: writes in one transaction, then reads."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toolweave-store")
        # whose ends are safe to use from any thread
        self._waiting: deque[_DatabaseJob] = deque()
        self._connection: sqlite3.Connection | None = None
        self._file: CheckedFile | None = None
        self._finalizer: weakref.finalize[Any, SqliteStore] | None = None

    def end_with(self, store: SqliteStore) -> None:
        """Close the connection of a store that was not closed."""
        self._finalizer = weakref.finalize(store, self._close)

    def add(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> Future[T]:
        """Queue work for the next `begin`."""
        job = _DatabaseJob(work, writes)
        self._waiting.append(job)
        return job.outcome

    def begin(self) -> None:
        """Run the waiting jobs."""
        if self._waiting:
            try:
                self._thread.submit(self._do_all)
            except RuntimeError:  # it was closed meanwhile, which did what waited
                pass

    def end(self) -> Future[None]:
        """Close the connection after all jobs that were submitted before."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._thread.submit(self._do_all)
        future = self._thread.submit(self._close)
        self._thread.shutdown(wait=False)
        return future

    def leave(self) -> None:
        """Leave everything to the parent process."""
        if self._finalizer is not None:
            self._finalizer.detach()
        # POSIX locks belong to the process and go with any close of the file: closing here could release the locks of
        # the parent (sqlite.org/howtocorrupt, 2.6).
        _left_behind.append((self._connection, self._thread))

    def _do_all(self) -> None:
        # Group commit: whatever has gathered while the last transaction synced goes into the next one, so many small
        # writes share a sync. The length is read once; what comes meanwhile waits for the next round.
        jobs = [self._waiting.popleft() for _ in range(len(self._waiting))]
        # From here on none can be cancelled: a write is either not begun or done.
        jobs = [job for job in jobs if job.outcome.set_running_or_notify_cancel()]
        # a write is reported only when it is on the disk, so a read after that sees it
        self._write([job for job in jobs if job.writes])
        for job in jobs:
            if not job.writes:
                self._attempt([job], self._read)

    def _write(self, jobs: Sequence[_DatabaseJob]) -> None:
        # The whole transaction failed, of a full disk for example, and no job has its outcome yet: each is tried alone
        # and gets its own error.
        if jobs and not self._attempt(jobs, self._write_together, last=len(jobs) == 1):
            # what one of them cannot have, others may: a small one still fits on the disk
            for job in jobs:
                self._attempt([job], self._write_together)

    def _attempt(
        self,
        jobs: Sequence[_DatabaseJob],
        do: Callable[[sqlite3.Connection, Sequence[_DatabaseJob]], None],
        *,
        last: bool = True,
    ) -> bool:
        """Run jobs and settle them; an error of all of them is reported only by the last attempt."""
        failure: StoreError | None = None
        try:
            do(self._opened(writes=jobs[0].writes), jobs)
        except StoreError as exc:
            failure = exc
        except sqlite3.Error as exc:
            failure = StoreError(self._description(exc))
            # Busy is not the fault of one job: trying each alone would wait the bound again for every one of them.
            last |= _code(exc) in _BUSY
        except OSError as exc:
            failure = StoreError(f"{self._path} cannot be opened: {exc.strerror or exc}")
        if failure is not None and not last:
            return False
        for job in jobs:
            # Settled after the commit, never before: the transaction could still fail with all of them in it.
            job.error = failure or job.error
            job.finish()
        return True

    def _read(self, connection: sqlite3.Connection, jobs: Sequence[_DatabaseJob]) -> None:
        for job in jobs:
            job.do(connection)

    def _write_together(self, connection: sqlite3.Connection, jobs: Sequence[_DatabaseJob]) -> None:
        with writing(connection):
            for job in jobs:
                job.do(connection)

    def _opened(self, *, writes: bool) -> sqlite3.Connection:
        if self._connection is None or self._file is None:
            self._connection, self._file = open_database(self._path, self._busy_seconds)
        # An open descriptor follows a deleted file. Without this check the writes of this process would go to a file
        # that nobody can see.
        self._file.check(writes=writes)
        return self._connection

    def _close(self) -> None:
        connection = self._connection
        self._connection = None
        self._file = None
        if connection is not None:
            connection.close()

    def _description(self, exc: sqlite3.Error) -> str:
        code = _code(exc)
        if code in _BUSY:
            return f"{self._path} is busy: other processes have been writing to it for {self._busy_seconds:g} s"
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return (
                f"{self._path} is damaged or no SQLite file ({exc}); it is left as it is: move it away to begin again, "
                "or rescue its contents with `sqlite3 FILE .recover`"
            )
        return f"{self._path}: {exc}"


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(exc: sqlite3.Error) -> int:
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


def _change(connection: sqlite3.Connection, one: Change, text: str, now: float) -> int:
    """Make one change; return the revision, 0 for a deletion."""
    if not isinstance(one, Put):
        connection.execute("DELETE FROM documents WHERE collection = ? AND key = ?", (one.collection, one.key))
        return 0
    # One counter for the file and not one a document: a document that is deleted and made again never has a revision
    # that somebody still holds.
    connection.execute("UPDATE counter SET revision = revision + 1")
    revision: int = connection.execute("SELECT revision FROM counter").fetchone()[0]
    connection.execute(
        "INSERT OR REPLACE INTO documents (collection, key, value, revision, expires_at) VALUES (?, ?, ?, ?, ?)",
        (one.collection, one.key, text, revision, None if one.ttl is None else now + one.ttl),
    )
    return revision


def _revision(connection: sqlite3.Connection, collection: str, key: str) -> int:
    row = connection.execute(
        "SELECT revision FROM documents WHERE collection = ? AND key = ?", (collection, key)
    ).fetchone()
    if row is None:
        return 0
    return row[0]


def _document(row: tuple[str, str, int, float | None]) -> Document:
    key, value, revision, expires_at = row
    return Document(key=key, value=json.loads(value), revision=revision, expires_at=expires_at)
