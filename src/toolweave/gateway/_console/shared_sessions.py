"""Sessions and links of a console that hold at every replica, behind a balancer without sticky sessions.

A session is a document of the shared store, named by the digest of its cookie. The token of its forms is derived from
the cookie, so the store has neither. The content is encrypted with the keys of the replicas: who can write to the store
cannot sign in. It is bound to the admin token as well, so a new admin token ends all sessions. A link is encrypted in
the same way and stored only when it is used, by the one write that may make this document.

Why a session that was ended stays ended: each request reads the document, so deleting it ends the session everywhere.
While the store is away, a replica knows the sessions that it has seen. What is begun and ended there meanwhile is
written when the store is back, and nothing else is: a session that another replica ended would begin anew.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from toolweave._json_types import as_object
from toolweave.errors import StoreError
from toolweave.gateway._console.sessions import (
    LINK_SECONDS,
    SESSION_SECONDS,
    ConsoleSession,
    ConsoleSessions,
    deleting_cookie,
    digest_of,
    sent_cookie,
    setting_cookie,
)
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.serve._changes import nothing_to_end
from toolweave.state import Document

Notice: TypeAlias = tuple[str, bool]
"""A text that the next page shows, and whether it is a problem."""

_SESSIONS = "gateway-console-sessions"
_LINKS = "gateway-console-links"
_MAX_TRIES = 3
"""Tries to write the notices of a session that other requests change meanwhile."""

_USED = "This link was used before, or is older than an hour."
_UNCHECKED = "The store of the replicas cannot be reached, so the link cannot be checked. Sign in with the admin token."


class SharedSession(ConsoleSession):
    """A session as one request read it from the shared store.

    Attributes:
        key: The key of its document.
        document: Its document.
        ends_at: When it ends, in seconds since the epoch.
        read_notices: The notices that its document has.
    """

    def __init__(self, name: str, document: Document, ends_at: float, notices: Sequence[Notice]) -> None:
        super().__init__(name, ends_at)
        self.key: str = document.key
        self.document: Document = document
        self.ends_at: float = ends_at
        self.read_notices: Sequence[Notice] = notices
        self.notices.extend(notices)


class SharedConsoleSessions:
    """The sessions of a console and its links; those of one process where nothing is shared.

    Args:
        token: The admin token.
        replicas: The replicas, or None.
    """

    def __init__(self, token: str, replicas: Replicas | None) -> None:
        self._here = ConsoleSessions(token)
        self._replicas = replicas
        self._bound = hashlib.sha256(b"toolweave console\n" + token.encode("utf-8", "replace")).hexdigest()
        self._begun: dict[str, float] = {}
        self._ended: set[str] = set()

    def listen(self) -> Callable[[], None]:
        """Write the missed changes each time when the store is back; return a function that ends that."""
        if self._replicas is None:
            return nothing_to_end
        return self._replicas.on_return(self._returned)

    def new_link(self) -> str:
        """Return the token of a new link, good once and for an hour."""
        if self._replicas is None:
            return self._here.new_link()
        body = {"until": time.time() + LINK_SECONDS, "nonce": secrets.token_hex(8)}
        return self._replicas.sealed(body, f"console link {self._bound}")

    async def opens(self, token: str) -> str | None:
        """Return why the token of a link is not good, or None if it is, which it is not from now on."""
        replicas = self._replicas
        if replicas is None:
            return None if self._here.opens(token) else _USED
        link = as_object(replicas.opened(token, f"console link {self._bound}"))
        if link is None or link["until"] <= time.time():
            return _USED
        if replicas.away is not None:
            return _UNCHECKED
        try:
            # `expect=0` creates the document or fails, in one step of the store: of two replicas that are asked at the
            # same moment, one opens the link. The document outlives the link itself, so it cannot be used a second time
            # later.
            used = await replicas.store.put(_LINKS, digest_of(token).hex(), True, ttl=LINK_SECONDS, expect=0)
        except StoreError as exc:
            replicas.lost(exc)
            return _UNCHECKED
        return _USED if used is None else None

    def signs_in(self, token: str) -> bool | None:
        """Whether this is the admin token; None after too many attempts, until a minute has passed."""
        return self._here.signs_in(token)

    async def begin(self, headers: Mapping[bytes, bytes], path: str) -> tuple[bytes, bytes]:
        """Begin a session; return the header that sets its cookie."""
        name = self._here.add()
        key = digest_of(name).hex()
        if self._replicas is not None:
            self._begun[key] = time.time() + SESSION_SECONDS
            await self._write_missed(self._replicas)
        return setting_cookie(headers, path, name)

    async def of(self, headers: Mapping[bytes, bytes]) -> ConsoleSession | None:
        """Return the session of the browser that sent a request, or None."""
        replicas = self._replicas
        name = sent_cookie(headers)
        if name is None:
            return None
        key = digest_of(name).hex()
        # Ended here while the store was away: its document may still be there, and must not bring the session back.
        if key in self._ended:
            return None
        if replicas is None or replicas.away is not None or key in self._begun:
            return self._here.of(headers)
        try:
            session = await self._read(replicas, key, name)
        except StoreError as exc:
            replicas.lost(exc)
            return self._here.of(headers)
        # What this process remembers is for the time without the store alone, so it follows what was just read.
        if session is None:
            self._here.forget(name)
        else:
            self._here.keep(name, session.ends_at - time.time())
        return session

    async def save(self, session: ConsoleSession | None) -> None:
        """Store the notices that a request showed or added, for the next request at any replica."""
        replicas = self._replicas
        if replicas is None or not isinstance(session, SharedSession):
            return
        # Requests of one browser overlap. Each writes the difference that it made, not the list that it read, so that
        # no request brings back a notice that another one has shown, or loses one that another one has added.
        added = _without(session.notices, session.read_notices)
        shown = _without(session.read_notices, session.notices)
        if not added and not shown:
            return
        found: SharedSession | None = session
        try:
            for _ in range(_MAX_TRIES):
                if found is None:  # it was ended
                    return
                notices = [*_without(found.read_notices, shown), *added]
                put = self._document(replicas, found.key, found.ends_at, notices)
                ttl = found.ends_at - time.time()
                if await replicas.store.put(_SESSIONS, found.key, put, ttl=ttl, expect=found.document.revision):
                    return
                # another request of the browser wrote it meanwhile
                found = await self._read(replicas, session.key, "")
        except StoreError as exc:
            replicas.lost(exc)

    async def end(self, headers: Mapping[bytes, bytes], path: str) -> tuple[bytes, bytes]:
        """End the session of a browser; return the header that deletes its cookie."""
        name = sent_cookie(headers)
        if name is not None:
            self._here.forget(name)
            if self._replicas is not None:
                key = digest_of(name).hex()
                self._begun.pop(key, None)
                self._ended.add(key)
                await self._write_missed(self._replicas)
        return deleting_cookie(headers, path)

    async def _read(self, replicas: Replicas, key: str, name: str) -> SharedSession | None:
        """Return a session from the store, or None.

        Raises:
            StoreError: The store cannot be read.
        """
        found = await replicas.store.get(_SESSIONS, key)
        if found is None:
            return None
        body = as_object(replicas.opened(found.value, self._bound_of(key)))
        if body is None or body["until"] <= time.time():
            return None
        return SharedSession(name, found, body["until"], [(text, problem) for text, problem in body["notices"]])

    async def _returned(self) -> None:
        if self._replicas is not None:
            await self._write_missed(self._replicas)

    async def _write_missed(self, replicas: Replicas) -> None:
        """Store sessions begun in this process, and delete the ended ones, if the store is there."""
        now = time.time()
        # A copy, since requests may begin and end sessions at each `await`. A key leaves the list only after its write:
        # when the store goes away again in the middle, the rest is written at its next return.
        try:
            for key, ends_at in tuple(self._begun.items()):
                if replicas.away is not None:
                    return
                if ends_at > now:
                    put = self._document(replicas, key, ends_at, [])
                    await replicas.store.put(_SESSIONS, key, put, ttl=ends_at - now, expect=0)
                self._begun.pop(key, None)
            for key in tuple(self._ended):
                if replicas.away is not None:
                    return
                await replicas.store.delete(_SESSIONS, key)
                self._ended.discard(key)
        except StoreError as exc:
            replicas.lost(exc)

    def _document(self, replicas: Replicas, key: str, ends_at: float, notices: Sequence[Notice]) -> str:
        return replicas.sealed({"until": ends_at, "notices": notices}, self._bound_of(key))

    def _bound_of(self, key: str) -> str:
        return f"console session {key} {self._bound}"


def _without(notices: Iterable[Notice], others: Collection[Notice]) -> list[Notice]:
    return [one for one in notices if one not in others]
