"""The store of many machines: documents in one Redis or Valkey, which any number of processes share.

Knows what is kept where and which script does what; not what the documents hold, nor how connections are made.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import anyio

from toolweave.errors import StoreError
from toolweave.state.redis_address import Address
from toolweave.state.redis_link import Link
from toolweave.state.redis_scripts import DELETE, GET, PUT, SCAN, Script
from toolweave.state.store import Document, to_json

__all__ = ["RedisStore"]


class RedisStore:
    """A `Store` in Redis from 6.2 on, or Valkey (DESIGN decision 11).

    It connects when it is first used and closes its connections when the last who entered it leaves; used without being
    entered, it connects for every call. Tasks, event loops and threads may share one. A write that has begun is
    finished, also when its caller is cancelled, and is done once, also when the connection breaks before the answer.
    How much survives the server's end is the server's setting: `appendonly yes` keeps what was answered, up to a
    second's worth, and `appendfsync always` all of it. The server must not evict: `maxmemory-policy noeviction`, or a
    `volatile-` one.

    Args:
        url: `redis://[user:password@]host:port/database`, `rediss://` for TLS, `unix:///path?db=0`, or `valkey://`;
            options as the package `redis` has them.
        prefix: What the names of its keys begin with; stores with other prefixes share nothing.
        clock: Tells the time in seconds, for ttl; None asks the server, which is the same for all.
        wait_seconds: How long a call waits for a server that is away or does not answer.

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
        if not prefix or "{" in prefix or "}" in prefix:
            raise ValueError(f"a prefix is a text without braces, not {prefix!r}")
        self._address = Address(url)
        self._prefix = prefix
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._remember = str(int(2_000 * wait_seconds) + 5_000)
        self._keys = [f"{{{prefix}}}:{name}" for name in ("documents", "order", "expiring", "revision")]
        self._links: dict[asyncio.AbstractEventLoop, Link] = {}
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Where it is: scheme, host, port and database, without user and password."""
        return self._address.place

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, or None when there is none.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        head, name = _name(collection, key)
        stored = await self._call(GET, self._keys[:1], [name, self._now()])
        return None if stored is None else _document(head, name, stored)

    async def put(
        self, collection: str, key: str, value: Any, *, ttl: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write a document; return its new revision, or None when `expect` did not hold.

        Raises:
            StoreError: The server cannot be reached, is full or refuses, or the value is no JSON.
        """
        text = to_json(collection, key, value)
        _, name = _name(collection, key)
        until = "" if ttl is None else repr(float(ttl))
        return await self._write(PUT, [name, text, until, _expected(expect), self._now(), self._remember])

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document, with `expect` only if it has this revision; return whether one was deleted.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        _, name = _name(collection, key)
        return bool(await self._write(DELETE, [name, _expected(expect), self._now(), self._remember]))

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        """Return documents by key, a page at a time.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        head, first = _name(collection, prefix)
        last = b"(" + first + b"\xff"  # a byte that no text has
        passed = _name(collection, after)[1] if after else b""
        start = b"(" + passed if passed >= first else b"[" + first
        found: list[Document] = []
        while len(found) < limit:
            args = [start, last, self._now(), str(limit - len(found))]
            reached, *rows = await self._call(SCAN, self._keys[:2], args)
            found.extend(_document(head, name, stored) for name, stored in zip(rows[::2], rows[1::2], strict=True))
            if not reached:
                break
            start = b"(" + reached
        return found

    async def close(self) -> None:
        """Close the connections of this event loop that are not in use; used again, it makes new ones."""
        link = self._links.get(asyncio.get_running_loop())
        if link is not None:
            await link.close()

    async def __aenter__(self) -> Self:
        """Connect, so that what is wrong is known here.

        Raises:
            StoreError: The server cannot be reached or refuses.
        """
        async with self._used() as link:
            if link.users == 1:
                await link.call(GET, self._keys[:1], ["", ""], again=False)
            link.users += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        link = self._links.get(asyncio.get_running_loop())
        if link is not None:
            await self._leave(link)

    def __repr__(self) -> str:
        return f"<RedisStore {self.place}, prefix {self._prefix!r}, {'open' if self._links else 'closed'}>"

    def _now(self) -> str:
        return "" if self._clock is None else repr(float(self._clock()))

    async def _write(self, script: Script, args: Sequence[str | bytes]) -> Any:
        keys = [*self._keys, f"{{{self._prefix}}}:done:{uuid4().hex}"]
        with anyio.CancelScope(shield=True):
            return await self._call(script, keys, args)

    async def _call(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes]) -> Any:
        async with self._used() as link:
            return await link.call(script, keys, args)

    @asynccontextmanager
    async def _used(self) -> AsyncGenerator[Link, None]:
        """Have the connections of this event loop, at least until this ends."""
        loop = asyncio.get_running_loop()
        with self._lock:
            link = self._links.get(loop)
            if link is None:
                self._links = {one: kept for one, kept in self._links.items() if not one.is_closed()}
                link = self._links[loop] = Link(self._address, self._wait_seconds)
        link.users += 1
        try:
            yield link
        finally:
            await self._leave(link)

    async def _leave(self, link: Link) -> None:
        link.users -= 1
        if not link.users:
            with self._lock:
                self._links.pop(asyncio.get_running_loop(), None)
            await link.close()


def _name(collection: str, key: str) -> tuple[bytes, bytes]:
    """Return what the names of a collection begin with, and the name of a key in it.

    Raises:
        StoreError: One of the two is no valid Unicode text.
    """
    try:
        head = collection.encode()
        head = b"%d:%b:" % (len(head), head)
        return head, head + key.encode()
    except UnicodeEncodeError as exc:
        raise StoreError(f"a collection or key is no valid Unicode text: {exc.object!r}") from None


def _expected(revision: int | None) -> str:
    return "" if revision is None else str(revision)


def _document(head: bytes, name: bytes, stored: bytes) -> Document:
    revision, expires, text = stored.split(b" ", 2)
    return Document(
        key=name[len(head) :].decode(),
        value=json.loads(text),
        revision=int(revision),
        expires_at=None if expires == b"-" else float(expires),
    )
