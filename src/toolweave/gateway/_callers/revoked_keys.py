"""API keys that are revoked while a gateway runs, at one replica and so at all of them.

A revoked key stays in the config until its owner removes it, so the revocation itself is kept: in the store that
replicas share, or in this process alone. It names the key by its hash, so another key of the same client is accepted.

Why a revoked key is refused everywhere: the revocation is stored before it is announced, and each replica reads the
stored ones before it serves. So a replica that the announcement does not reach finds it at its next reading, at the
latest after `_READ_SECONDS`. Nothing is ever taken back, so the order of messages does not matter. When another server
becomes the store, it may lack the last ones: each replica then stores those that it knows and that are missing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec

from toolweave._json_types import JsonObject, as_text, object_entries, text_or_empty
from toolweave.errors import RequestError, StoreError
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.gateway._replicas.sealed_documents import sealed_object
from toolweave.serve._changes import nothing_to_end
from toolweave.serve.request import Json
from toolweave.state import Put, iter_documents

if TYPE_CHECKING:
    from toolweave.serve import TokenAuth

_log = logging.getLogger("toolweave.gateway")

_REVOKED = "gateway-revoked"
_KIND = "revoked"
_READ_SECONDS = 10.0
_SHOWN_DIGITS = 8


class KeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An API key of a gateway.

    Attributes:
        name: The name of its client.
        sha256: The first digits of the key's SHA-256, which distinguish the keys of one client.
        scopes: The scopes of its requests.
        expires_at: The end of its validity, in seconds since the epoch; None for never.
        revoked: Whether it was revoked and is refused.
    """

    name: str
    sha256: str
    scopes: tuple[str, ...] = ()
    expires_at: int | None = None
    revoked: bool = False


class KeyRevocation(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of revoking the keys of a client.

    Attributes:
        name: The client.
        keys: The number of its keys that are refused from now on.
        lasting: Whether the revocation outlives this process, because replicas share a store.
        problem: Why the other replicas were not notified yet, or None. They are as soon as the store is back.
    """

    name: str
    keys: int
    lasting: bool
    problem: str | None = None


class RevokedKeys:
    """Revokes the API keys of a gateway, and applies the revocations of its other replicas.

    Args:
        auth: The authorization that has the keys, or None.
        replicas: The replicas, or None.
    """

    def __init__(self, auth: TokenAuth | None, replicas: Replicas | None) -> None:
        self._keys = None if auth is None else auth.api_keys
        self._replicas = replicas
        self._names: dict[str, str] = {}
        self._unpublished: set[str] = set()

    def statuses(self) -> Sequence[KeyStatus]:
        """Return the keys in use and the revoked ones that the config still has, by client."""
        if self._keys is None:
            return ()
        found = [
            KeyStatus(
                name=identity.client_id,
                sha256=digest.hex()[:_SHOWN_DIGITS],
                scopes=tuple(identity.scopes),
                expires_at=identity.expires_at,
                revoked=self._keys.refuses(digest),
            )
            for digest, identity in self._keys.entries()
        ]
        return sorted(found, key=lambda one: (one.name, one.sha256))

    async def revoke(self, name: str) -> KeyRevocation:
        """Refuse the keys of a client from now on, at every replica; later keys of the client are accepted.

        Raises:
            KeyError: No client of this name has a key.
        """
        entries = () if self._keys is None else self._keys.entries()
        digests = [digest.hex() for digest, identity in entries if identity.client_id == name]
        if not digests:
            raise KeyError(f"no API key is named {name!r}")
        # First here, where it cannot fail: a key that leaked is refused by this process even if the store is away.
        self._apply(dict.fromkeys(digests, name))
        _log.warning("the API keys of %r were revoked", name)
        problem = None
        if self._replicas is not None:
            self._unpublished.update(digests)
            try:
                await self._publish(self._replicas)
            except (StoreError, RequestError) as exc:
                problem = str(exc)
                _log.error("other replicas are not notified of the revoked keys until the store is back: %s", exc)
        return KeyRevocation(
            name=name, keys=len(digests), lasting=self._replicas is not None and problem is None, problem=problem
        )

    async def start(self, tasks: anyio.abc.TaskGroup) -> Callable[[], None]:
        """Read the revocations of the other replicas now and from now on; return a function that ends that.

        While the store is away, the gateway is served without them, and they are read as soon as it is back.
        """
        replicas = self._replicas
        if replicas is None or self._keys is None:
            return nothing_to_end
        ends = replicas.on(_KIND, self._received), replicas.on_return(self._returned)
        if not await self._read(replicas):
            _log.warning("keys that other replicas revoked are accepted until the store that they share is back")
        tasks.start_soon(self._read_often, replicas)

        def end() -> None:
            for one in ends:
                one()

        return end

    async def _read_often(self, replicas: Replicas) -> None:
        # Messages between replicas may be lost; this bounds how long a lost one matters.
        while True:
            await anyio.sleep(_READ_SECONDS)
            if replicas.away is None:
                await self._read(replicas)

    async def _read(self, replicas: Replicas) -> bool:
        """Apply the stored revocations; return whether the store could be read."""
        try:
            stored = [one async for one in iter_documents(replicas.store, _REVOKED)]
        except StoreError as exc:
            replicas.lost(exc)
            return False
        found = dict[str, str]()
        for one in stored:
            opened = sealed_object(replicas, one, _KIND, "a revoked key")
            if opened is not None:
                found |= _digests_in([opened])
        self._apply(found)
        return True

    async def _returned(self) -> None:
        """Store the known revocations again if they are missing, and read those that were missed."""
        replicas = self._replicas
        if replicas is None or not await self._read(replicas):
            return
        self._unpublished.update(self._names)
        try:
            await self._publish(replicas)
        except (StoreError, RequestError) as exc:
            _log.error("other replicas are not notified of the revoked keys until the store is back: %s", exc)

    async def _publish(self, replicas: Replicas) -> None:
        """Store the pending revocations, and notify the other replicas.

        Raises:
            StoreError: The store cannot be written.
            RequestError: The store is away.
        """
        if replicas.away is not None:
            raise replicas.unreachable()
        pending = sorted(self._unpublished)
        if not pending:
            return
        bodies = [{"name": self._names[digest], "digest": digest} for digest in pending]
        puts = list[Put]()
        for body in bodies:
            key = hashlib.sha256(body["digest"].encode()).hexdigest()
            puts.append(Put(collection=_REVOKED, key=key, value=replicas.sealed(body, f"{_KIND} {key}")))
        # Stored first: a replica that misses the message reads the store. What fails in between stays pending, and both
        # are repeated, since a revocation that comes twice changes nothing.
        await replicas.store.write(puts)
        await replicas.broadcast(_KIND, {"keys": bodies})
        self._unpublished.difference_update(pending)

    async def _received(self, body: Json) -> Json:
        self._apply(_digests_in(object_entries(body.get("keys"))))
        return {}

    def _apply(self, names: dict[str, str]) -> None:
        """Refuse keys by their hashes, given with the names of their clients."""
        self._names |= names
        if self._keys is not None:
            self._keys.refuse(bytes.fromhex(digest) for digest in names)


def _digests_in(entries: Iterable[JsonObject]) -> dict[str, str]:
    """Return the names of clients by the hashes of their revoked keys."""
    found = dict[str, str]()
    for one in entries:
        digest = as_text(one.get("digest"))
        if digest is not None:
            found[digest] = text_or_empty(one.get("name"))
    return found
