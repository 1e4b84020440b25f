"""Differences from the pins that a person allowed at one replica, and so at all of them.

Each replica has its own lock file. A replica that runs is asked to write it by the console that has the decision;
one that is down, or that sees the difference later, finds the decision in the store that replicas share.

Why nothing is allowed that nobody allowed: a decision is the digest of one difference of one server, with the pinned
definition and the new one, sealed with the keys of the replicas. A server that offers something else at a replica, or
whose lock file there has another definition, has another difference, and waits for another decision.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.to_thread

from toolweave.definitions import PinChange, Pins, ServerIdentity, allow, lock_path, tool_hash
from toolweave.errors import ConfigError, RequestError, ServerError, StoreError
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.gateway._replicas.sealed_documents import sealed_object
from toolweave.state import Document, Put

if TYPE_CHECKING:
    from toolweave.connect import McpConnection
    from toolweave.hub import Hub

_log = logging.getLogger("toolweave.gateway")

_ALLOWED = "gateway-allowed"
_KIND = "allowed"
_KEPT_SECONDS = 90 * 24 * 3600.0
"""Seconds for which a decision waits for replicas that are down; after that they ask again."""
_READ_SECONDS = 5.0
_MAX_READ = 1000
"""The most differences that are looked up at once; the others follow when these are decided."""


class AllowedChange(NamedTuple):
    """The outcome of allowing a difference at this replica.

    Attributes:
        text: The difference in words; "" if this replica has no such difference.
        problem: Why it could not be allowed, or None.
    """

    text: str = ""
    problem: str | None = None


class PinDecisions:
    """Allows differences from the pins at this replica, and follows the decisions of the others.

    Args:
        hub: The upstreams.
        replicas: The replicas, or None.
    """

    def __init__(self, hub: Hub, replicas: Replicas | None) -> None:
        self._hub = hub
        self._replicas = replicas
        self._writing = anyio.Lock()
        self._digests: dict[int, tuple[PinChange, str]] = {}

    async def allow(self, server: str, seen: str) -> AllowedChange:
        """Pin the difference with this digest in the lock file of this replica, and offer the definition from now on.

        Args:
            server: The server.
            seen: The digest of the difference; see `change_digest`.
        """
        client = self._hub.clients.get(server)
        changes = () if client is None else client.pin_changes
        change = next((one for one in changes if change_digest(one) == seen), None)
        if client is None or change is None:
            return AllowedChange()
        identity = ServerIdentity.of(client.config, client.server_info)
        try:
            # A lock file is read, changed and written as a whole: two changes at a time would lose one.
            async with self._writing:
                await anyio.to_thread.run_sync(_write, client, change, identity)
            await _list_again(client, change)
        except (ConfigError, OSError, ServerError) as error:
            return AllowedChange(change.text, str(error))
        return AllowedChange(change.text)

    async def share(self, server: str, seen: str) -> str | None:
        """Keep a decision for the replicas that do not run now; return why that failed, or None."""
        replicas = self._replicas
        if replicas is None:
            return None
        key = _key(server, seen)
        sealed = replicas.sealed({"server": server, "seen": seen}, f"{_KIND} {key}")
        try:
            if replicas.away is not None:
                raise replicas.unreachable()
            await replicas.store.write([Put(collection=_ALLOWED, key=key, value=sealed, ttl=_KEPT_SECONDS)])
        except (StoreError, RequestError) as exc:
            return f"replicas that are down will ask for this decision again: {exc}"
        return None

    async def follow(self) -> None:
        """Apply the decisions of the other replicas, now and from now on."""
        replicas = self._replicas
        if replicas is None:
            return
        # Differences appear when a list is read, which nothing announces here; a store is asked only while there are
        # some.
        while True:
            if replicas.away is None:
                await self._apply(replicas)
            await anyio.sleep(_READ_SECONDS)

    async def _apply(self, replicas: Replicas) -> None:
        """Allow the differences that another replica allowed."""
        waiting = self._undecided()
        if not waiting:
            return
        try:
            found = await replicas.store.read([(_ALLOWED, key) for key in waiting])
        except StoreError as exc:
            replicas.lost(exc)
            return
        for document in found:
            if document is not None:
                await self._apply_one(replicas, document, *waiting[document.key])

    def _undecided(self) -> dict[str, tuple[str, str]]:
        """Return the server and the digest of each difference at this replica, by the key of its decision."""
        known = self._digests
        self._digests = {}
        found: dict[str, tuple[str, str]] = {}
        for name, client in self._hub.clients.items():
            for change in client.pin_changes[: _MAX_READ - len(found)]:
                # A difference is the same object until its list is read again. Hashing a thousand definitions at each
                # look would stop the event loop for as long as some hundred calls take.
                kept = known.get(id(change)) or (change, change_digest(change))
                self._digests[id(change)] = kept
                found[_key(name, kept[1])] = name, kept[1]
        return found

    async def _apply_one(self, replicas: Replicas, document: Document, server: str, seen: str) -> None:
        opened = sealed_object(replicas, document, _KIND, f"server {server!r}: a decision")
        if opened != {"server": server, "seen": seen}:
            return
        done = await self.allow(server, seen)
        if done.problem is not None:
            _log.error(
                "server %r: %s was allowed at another replica, and not here: %s", server, done.text, done.problem
            )
        elif done.text:
            _log.info("server %r: %s was allowed at another replica and is pinned here", server, done.text)


def change_digest(change: PinChange) -> str:
    """Return a digest of a difference, so that a user allows exactly the difference that was shown."""
    return tool_hash(
        {
            "kind": change.kind,
            "part": change.part,
            "name": change.name,
            "before": change.before or {},
            "after": change.after or {},
        }
    )


async def _list_again(client: McpConnection, change: PinChange) -> None:
    """Read the lists again that an allowed difference is about; of the server itself all of them.

    Raises:
        ServerError: A list could not be read.
    """
    of_server = change.kind in ("server", "version")
    if change.part in ("tool", "instructions"):
        await client.refresh()
    if of_server or change.part != "tool":
        await client.offered_definitions()


def _write(client: McpConnection, change: PinChange, identity: ServerIdentity) -> None:
    path = lock_path(client.config)
    allow(Pins.read(path), change, identity).write(path)


def _key(server: str, seen: str) -> str:
    return hashlib.sha256(f"{server}\n{seen}".encode("utf-8", "surrogatepass")).hexdigest()
