"""Sessions of callers in a store: values that handlers keep between calls, and the caller's own visibility rules.

A session is that of a conversation where the protocol has one, and of the authorized principal where it has none
(2026-07-28): there no connection may hold it. One document for each, changed by compare and set, so that replicas that
share the store see the same. Knows no transport.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from toolweave._option_checks import COUNT, check_kinds, check_number
from toolweave.errors import ToolError
from toolweave.serve.request import Client, Json
from toolweave.state import Document, MemoryStore, Store
from toolweave.state.store import to_json
from toolweave.tools import CallerSession

SESSIONS = "sessions:"
"""The collection of a server's sessions is this and the server's name."""
_ATTEMPTS = 20
"""Attempts to write a change of a session that another request changes at the same time."""
_VALUES = "values"
_RULES = "rules"
_USED = "used"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """The bounds of the sessions of a server.

    Attributes:
        ttl_seconds: How long an unused session is kept.
        max_bytes: How large one may be, as JSON.

    Raises:
        TypeError: One of them is not a number.
        ValueError: One of them is not more than 0, or is infinite.
    """

    ttl_seconds: float = 86_400
    max_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        check_number("SessionRules.ttl_seconds", self.ttl_seconds)
        check_kinds(self, {"max_bytes": COUNT}, owner="SessionRules")
        if not self.ttl_seconds > 0 or self.max_bytes < 1:
            raise ValueError("SessionRules: ttl_seconds and max_bytes must be more than 0")


class ChangesVisibility(Protocol):
    """Changes the offers that a session sees: the part of the visibility that sessions use."""

    def changed(self, rules: list[Any], enabled: bool, names: Iterable[str], tags: Iterable[str]) -> list[Any]:
        """Return a session's rules with another one.

        Raises:
            ToolError: The server enables and disables nothing.
        """
        ...

    def notify(self, client: Client) -> None:
        """Notify the client, and no other, that its lists changed."""
        ...


class Sessions:
    """The sessions of a server.

    Args:
        server: The name of the server, which its sessions are kept under.
        store: Keeps them; by default in this process.
        rules: Their bounds.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        server: str,
        store: Store | None = None,
        rules: SessionRules | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.collection: str = SESSIONS + server
        self.store: MemoryStore | Store = MemoryStore() if store is None else store
        self.rules: SessionRules = rules or SessionRules()
        self._clock = clock
        self.visibility: ChangesVisibility | None = None

    async def visible(self, client: Client) -> list[Any]:
        """Return the visibility rules of a client's session, as they are kept; none where it has no session.

        Raises:
            StoreError: The store cannot be read.
        """
        key = session_key(client)
        if key is None:
            return []
        return (await self.read(_named(client.principal, key))).get(_RULES, [])

    async def read(self, key: str) -> Json:
        """Return a session; it is kept on from now."""
        found = await self.store.get(self.collection, key)
        if found is None:
            return {}
        held: Json = found.value
        # Extended at half of its time, so that a session in use costs few writes. If the write fails, another request
        # has changed the session, and so extended it.
        if self._clock() - held[_USED] > self.rules.ttl_seconds / 2:
            await self._write(key, held, found)
        return held

    async def change(self, key: str, change: Callable[[Json], None]) -> None:
        """Change a session, which is read again for each attempt.

        Raises:
            ToolError: It would become too large, or too many change it at once.
            StoreError: A value is not JSON, or the store is full.
        """
        # Optimistic: nothing is locked, and a write fails if the document was changed since it was read. So `change`
        # may run several times and must depend on its argument only.
        for _ in range(_ATTEMPTS):
            found = await self.store.get(self.collection, key)
            held: Json = {} if found is None else found.value
            change(held)
            if len(to_json(self.collection, key, held)) > self.rules.max_bytes:
                raise ToolError(f"a session holds at most {self.rules.max_bytes} bytes of JSON; delete something")
            if await self._write(key, held, found) is not None:
                return
        raise ToolError("the session is changed by too many calls at once; try again", retryable=True)

    async def _write(self, key: str, held: Json, found: Document | None) -> int | None:
        held[_USED] = self._clock()
        expect = 0 if found is None else found.revision
        return await self.store.put(self.collection, key, held, ttl=self.rules.ttl_seconds, expect=expect)


def session_key(client: Client) -> str | None:
    """Return the key of a client's session; None where it has none.

    A request of 2026-07-28 is independent: it has nothing from the connection that it came on (SEP-2575).
    """
    if not client.modern:
        return client.key
    if client.principal is None:
        return None
    return f"{client.principal}|"


class ClientSessions:
    """The sessions that one client reaches; a `SessionPort`."""

    __slots__ = ("_client", "_sessions")

    def __init__(self, sessions: Sessions | None, client: Client) -> None:
        self._sessions = sessions
        self._client = client

    def own(self) -> CallerSession:
        """Return the session of the client; one that it has not fails when it is used."""
        key = session_key(self._client)
        if key is None:
            return StoredSession(self._sessions, None)
        return StoredSession(self._sessions, _named(self._client.principal, key))

    def under(self, key: str) -> CallerSession:
        """Return the session of a key."""
        return StoredSession(self._sessions, _named(self._client.principal, f"|key:{key}"))

    async def change(self, enabled: bool, names: Iterable[str], tags: Iterable[str]) -> None:
        """Enable or disable offers for the client's session, and notify it.

        Raises:
            ToolError: The client has no session, or the server enables and disables nothing.
        """
        sessions, key = _kept(self._sessions, session_key(self._client))
        visibility = sessions.visibility
        if visibility is None:
            raise ToolError(
                "nothing is enabled or disabled at this server: call server.disable(...) or server.enable(...) where "
                "it is made, then also for one session"
            )

        def changed(held: Json) -> None:
            held[_RULES] = visibility.changed(held.get(_RULES, []), enabled, names, tags)

        await sessions.change(_named(self._client.principal, key), changed)
        visibility.notify(self._client)


class StoredSession:
    """The values of one session; a `CallerSession`.

    Args:
        sessions: The sessions of the server; None where it keeps none.
        key: The document of the session; None where the caller has none.
    """

    __slots__ = ("_key", "_sessions")

    def __init__(self, sessions: Sessions | None, key: str | None) -> None:
        self._sessions = sessions
        self._key = key

    async def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or `default`."""
        sessions, key = _kept(self._sessions, self._key)
        return (await sessions.read(key)).get(_VALUES, {}).get(name, default)

    async def set(self, name: str, value: Any) -> None:
        """Keep a value."""
        sessions, key = _kept(self._sessions, self._key)

        def put(held: Json) -> None:
            held.setdefault(_VALUES, {})[name] = value

        await sessions.change(key, put)

    async def delete(self, name: str) -> bool:
        """Delete a value; return whether there was one."""
        sessions, key = _kept(self._sessions, self._key)
        if name not in (await sessions.read(key)).get(_VALUES, {}):
            return False
        await sessions.change(key, lambda held: held.get(_VALUES, {}).pop(name, None))
        return True


def _kept(sessions: Sessions | None, key: str | None) -> tuple[Sessions, str]:
    """Return the sessions and the key.

    Raises:
        ToolError: The caller has no session.
    """
    if sessions is None:
        raise ToolError("this server keeps no sessions")
    if key is None:
        raise ToolError(
            "this caller has no session: a request of 2026-07-28, or to a stateless server, is independent, and "
            "this one carries no authorization; give the server auth=, or keep values under a key from the caller, "
            "ctx.session_under(key)"
        )
    return sessions, key


def sessions_prefix(principal: str) -> str:
    """Return the prefix of the keys of all sessions of a principal."""
    return f"{_digest(principal)[:32]}/"


def _named(principal: str | None, key: str) -> str:
    """Return the key of a session's document: those of one principal begin alike, so that they can be erased."""
    return f"{sessions_prefix(principal or '')}{_digest(key)}"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
