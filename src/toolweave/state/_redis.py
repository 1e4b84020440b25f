"""The store over one Redis or Valkey, which any number of processes and machines share.

Knows the keys and the scripts; not what the documents hold, nor how connections are made.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from types import TracebackType
from typing import Any, Self

import anyio

from toolweave._option_checks import TEXT, check_kind, check_number
from toolweave.errors import StoreError
from toolweave.state._redis_address import RedisAddress
from toolweave.state._redis_connections import RedisConnections
from toolweave.state._redis_scripts import COMPACT, READ, SCAN, SEARCH, SIGNAL, WRITE, RedisScript
from toolweave.state._signals import SignalListener
from toolweave.state.checks import CLOCK
from toolweave.state.store import Change, Delete, Document, Put, to_json

_SWEEP_EACH = 8
"""One of so many writes also removes names of expired documents."""


class RedisStore:
    """A `Store` in Redis from 6.2 on, or Valkey.

    It connects when it is first used and closes its connections when the last user has left it; used without being
    entered, it connects for every call. Tasks, event loops and threads may share one. A write that has begun is
    finished, also when its caller is cancelled, and is done once, also when the connection breaks before the answer.
    When another server becomes the primary it is found as long as the address, or a Sentinel, leads there.
    Durability is the server's setting: `appendonly yes` keeps acknowledged writes, except for up to a second's worth,
    and `appendfsync always` keeps all of them. The server must not evict: `maxmemory-policy noeviction`.

    Each document is a key, which Redis removes when it expires. All keys of a prefix are in one slot of a cluster, so
    that a write of several documents is atomic there; give the address of the node that has it.

    Args:
        url: `redis://[user:password@]host:port/database`, `rediss://` for TLS, `unix:///path?db=0`, `valkey://`, or
            `redis+sentinel://[user:password@]host:port,host:port/service/database`, whose Sentinels are asked for the
            primary; options as the package `redis` has them.
        prefix: The prefix of its keys; stores with other prefixes share nothing.
        clock: Returns the time in seconds, for ttl; None uses the server's, which is the same for all. With a clock
            that is not the server's, later writes remove expired documents, and not Redis.
        wait_seconds: Timeout of a call while the server is away, does not answer, or is not the primary.

    Raises:
        StoreError: The URL is not understood.
        ValueError: The prefix is empty or has a brace.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "toolweave",
        clock: Callable[[], float] | None = None,
        wait_seconds: float = 10.0,
    ) -> None:
        check_number("RedisStore.wait_seconds", wait_seconds, noun="a number of seconds")
        check_kind("RedisStore.clock", clock, CLOCK)
        for name, value in (("url", url), ("prefix", prefix)):
            check_kind(f"RedisStore.{name}", value, TEXT)
        if not prefix or "{" in prefix or "}" in prefix:
            raise ValueError(f"a prefix is a text without braces, not {prefix!r}")
        self._address = RedisAddress(url)
        self._prefix = prefix
        self._clock = clock
        self._wait_seconds = wait_seconds
        # of the connections, which calls with other timeouts share
        self._connect_seconds = wait_seconds
        # Milliseconds: longer than a call may be retried, so that every retry of a write still finds the outcome of the
        # first.
        self._remember = str(int(2_000 * wait_seconds) + 5_000)
        tag = f"{{{prefix}}}:"
        self._order = f"{tag}order"
        self._ends = f"{tag}ends"
        self._revision = f"{tag}revision"
        self._done = f"{tag}done:"
        self._base = f"{tag}document:".encode()
        self._writes = 0
        self._channel = f"{tag}signals"
        self._links: dict[asyncio.AbstractEventLoop, RedisConnections] = {}
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """The printable address: scheme, host, port and database, without user and password."""
        return self._address.public_url

    @property
    def server_since(self) -> float:
        """The time of this event loop since when one and the same server has answered, as far as can be seen."""
        link = self._links.get(asyncio.get_running_loop())
        if link is None:
            return -math.inf
        return link.server_since

    def within(self, seconds: float) -> RedisStore:
        """Return the same store, over the same connections, whose calls end after so many seconds."""
        # A shallow copy: the table of connections and its lock are the same objects, so both stores use the same
        # connections.
        other = copy(self)
        other._wait_seconds = min(seconds, self._wait_seconds)  # noqa: SLF001 - its own kind
        return other

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, or None if it does not exist.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        (found,) = await self.read([(collection, key)])
        return found

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        """Return documents, None for each missing one.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        if not names:
            return []
        named = [_name(*name) for name in names]
        found = await self._call(READ, [self._base + name for _, name in named], [])
        documents: list[Document | None] = []
        for (head, name), stored in zip(named, found, strict=True):
            document = None
            if stored is not None:
                document = _document(head, name, stored)
                if self._is_expired(document):
                    document = None
            documents.append(document)
        return documents

    async def put(
        self, collection: str, key: str, value: Any, *, ttl: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write a document; return its new revision, or None when `expect` did not hold.

        Raises:
            StoreError: The server cannot be reached, is full or refuses, or the value is not JSON.
        """
        revisions = await self.write([Put(collection=collection, key=key, value=value, ttl=ttl, expect=expect)])
        if revisions is None:
            return None
        return revisions[0]

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document, with `expect` only if it has this revision; return whether one was deleted.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        # a missing document is not deleted
        return await self._write([Delete(collection=collection, key=key, expect=expect or None)]) == [-1]

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        """Make all of these changes or none; return the revisions, or None when an `expect` did not hold.

        Raises:
            StoreError: The server cannot be reached, is full or refuses, or a value is not JSON.
        """
        revisions = await self._write(changes, signal or "")
        if revisions is None:
            return None
        return [max(0, revision) for revision in revisions]

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        """Return documents by key, a page at a time.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        head, first = _name(collection, prefix)
        # ZRANGEBYLEX compares bytes, and no UTF-8 text has 0xFF: everything with the prefix is below.
        last = b"(" + first + b"\xff"  # a byte that no text has
        start = b"[" + first
        if after:
            passed = _name(collection, after)[1]
            if passed >= first:
                start = b"(" + passed
        found: list[Document] = []
        while len(found) < limit:
            reached, *rows = await self._page(start, last, limit - len(found))
            for name, stored in zip(rows[::2], rows[1::2], strict=True):
                found.append(_document(head, name, stored))
            if not reached:
                break
            start = b"(" + reached
        return found

    async def search(
        self, collection: str, texts: Sequence[str], *, after: str = ""
    ) -> tuple[Sequence[Document], str | None]:
        """Return the next documents that contain one of these texts, and the key after which to continue.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        head, first = _name(collection, after)
        start = b"[" + first
        if after:
            start = b"(" + first
        args = [start, b"(" + head + b"\xff", self._now(), self._base, str(len(head)), *texts]
        reached, *rows = await self._call(SEARCH, [self._order], args)
        found = [_document(head, name, stored) for name, stored in zip(rows[::2], rows[1::2], strict=True)]
        if not reached:
            return found, None
        return found, reached[len(head) :].decode()

    async def collections(self) -> Sequence[str]:
        """Return the names of the collections that have documents, sorted.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        found: list[str] = []
        start = b"-"
        while True:
            reached, *rows = await self._page(start, b"+", 1)
            if rows:
                length, _, rest = rows[0].partition(b":")
                collection = rest[: int(length)]
                found.append(collection.decode())
                start = b"(" + length + b":" + collection + b":\xff"  # behind the last name of the collection
            elif reached:
                start = b"(" + reached
            else:
                return sorted(found)

    async def compact(self) -> None:
        """Remove the names of expired documents, which otherwise stay until later writes remove them.

        The server's own files keep deleted values until it rewrites them (`BGREWRITEAOF`, `BGSAVE`).

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        while await self._call(COMPACT, [self._order, self._ends], [self._now(), self._base]):
            pass

    async def signal(self, name: str) -> None:
        """Send a signal to the listeners of all processes; one that cannot be sent is lost."""
        try:
            await self._call(SIGNAL, [self._channel], [name])
        except StoreError:
            pass

    @asynccontextmanager
    async def listening(self, name: str) -> AsyncGenerator[SignalListener, None]:
        """Listen to a name's signals during the block, of all processes; none arrive while the server is away."""
        async with self._used() as link:
            # Subscribed before the block begins, so that no signal is lost between the first read in it and the first
            # wait.
            sure = await link.subscribe(self._channel)
            async with link.listeners.listening(
                name, sure=sure, receive=lambda: link.receive_signals(self._channel)
            ) as listener:
                yield listener

    async def close(self) -> None:
        """Close the unused connections of this event loop; new ones are made when it is used again."""
        link = self._links.get(asyncio.get_running_loop())
        if link is not None:
            await link.close()

    async def __aenter__(self) -> Self:
        """Connect, so that an error is raised on entry.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        async with self._used() as link:
            if link.users == 1:
                # A script and not a PING: a user without the right to run scripts is found out at the start.
                args = [b"-", b"+", "", "0", self._base]
                await link.call(SCAN, [self._order], args, again=False)
            link.users += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        link = self._links.get(asyncio.get_running_loop())
        if link is not None:
            await self._leave(link)

    def __repr__(self) -> str:
        state = "open" if self._links else "closed"
        return f"<RedisStore {self.place}, prefix {self._prefix!r}, {state}>"

    def _now(self) -> str:
        if self._clock is None:
            return ""
        return repr(float(self._clock()))

    def _is_expired(self, document: Document) -> bool:
        """Whether a stored document has expired by our own clock; by the server's, Redis removed it."""
        if self._clock is None or document.expires_at is None:
            return False
        return document.expires_at <= self._clock()

    async def _page(self, first: bytes, last: bytes, limit: int) -> Any:
        """Return the name after which to continue, or an empty one, then names and stored values."""
        return await self._call(SCAN, [self._order], [first, last, self._now(), str(limit), self._base])

    async def _write(self, changes: Sequence[Change], signal: str = "") -> Sequence[int] | None:
        self._writes += 1
        # From the first write on, so that a process that writes once also takes its share.
        sweeps = "1" if self._writes % _SWEEP_EACH == 1 else ""
        # The token makes the write idempotent: a connection that breaks after sending says nothing of whether it was
        # done.
        done = self._done + os.urandom(16).hex()
        keys: list[str | bytes] = [self._order, self._ends, self._channel, self._revision, done]
        args: list[str | bytes] = [self._now(), self._base, self._remember, sweeps, signal]
        for change in changes:
            keys.append(self._base + _name(change.collection, change.key)[1])
            args += _arguments(change)
        revisions: bytes | None = None
        # A script that has been sent runs in any case. A caller that left before the answer could not know whether it
        # wrote.
        with anyio.CancelScope(shield=True):
            revisions = await self._call(WRITE, keys, args)
        if revisions is None:
            return None
        return list(map(int, revisions.split()))

    async def _call(self, script: RedisScript, keys: Sequence[str | bytes], args: Sequence[str | bytes]) -> Any:
        link = self._enter()
        try:
            return await link.call(script, keys, args, wait_seconds=self._wait_seconds)
        finally:
            await self._leave(link)

    @asynccontextmanager
    async def _used(self) -> AsyncGenerator[RedisConnections, None]:
        """Keep the connections of this event loop open during the block."""
        link = self._enter()
        try:
            yield link
        finally:
            await self._leave(link)

    def _enter(self) -> RedisConnections:
        loop = asyncio.get_running_loop()
        with self._lock:
            link = self._links.get(loop)
            if link is None:
                # Loops that were closed cannot close their own connections any more; the sockets go with the objects.
                for known in tuple(self._links):
                    if known.is_closed():
                        del self._links[known]
                link = self._links[loop] = RedisConnections(self._address, self._connect_seconds)
        link.users += 1
        return link

    async def _leave(self, link: RedisConnections) -> None:
        link.users -= 1
        if not link.users:
            with self._lock:
                self._links.pop(asyncio.get_running_loop(), None)
            await link.close()


def _arguments(change: Change) -> Sequence[str | bytes]:
    """Return the arguments of the script for a change.

    Raises:
        StoreError: The value is not JSON.
    """
    expect = "" if change.expect is None else str(change.expect)
    if isinstance(change, Delete):
        return ["delete", "", "", expect]
    text = to_json(change.collection, change.key, change.value)
    ttl = "" if change.ttl is None else repr(float(change.ttl))
    return ["put", text, ttl, expect]


def _name(collection: str, key: str) -> tuple[bytes, bytes]:
    """Return the prefix of a collection's names, and the name of a key in it.

    Raises:
        StoreError: One of the two is not valid Unicode text.
    """
    try:
        head = collection.encode()
        # The length in front keeps collections apart: without it, `a` with the key `b:c` and `a:b` with the key `c` had
        # one name.
        head = b"%d:%b:" % (len(head), head)
        return head, head + key.encode()
    except UnicodeEncodeError as exc:
        raise StoreError(f"a collection or key is not valid Unicode text: {exc.object!r}") from None


def _document(head: bytes, name: bytes, stored: bytes) -> Document:
    revision, expires, text = stored.split(b" ", 2)
    return Document(
        key=name[len(head) :].decode(),
        value=json.loads(text),
        revision=int(revision),
        expires_at=None if expires == b"-" else float(expires),
    )
