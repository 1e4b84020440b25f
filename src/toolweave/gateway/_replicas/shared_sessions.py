"""Sessions of legacy clients that any replica can continue.

An id holds the declarations of its client, encrypted with the keys that replicas share: calls and lists need nothing
else. The state of a session (its log level, its subscriptions, its end) is a document of the shared store, and
messages that belong to a request of another replica are forwarded to the other replicas.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import object_or_empty, only_members
from toolweave.errors import RequestError, StoreError
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.gateway._replicas.sealing import SealingKeys
from toolweave.gateway._replicas.shared_streams import SharedStreams
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.jsonrpc import StrictMessage
from toolweave.serve import Client
from toolweave.serve._changes import nothing_to_end
from toolweave.serve._http.session_peers import Deliver, RestoredSession
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.gateway")

_SESSIONS = "gateway-sessions"
_NEWS = "session"
_SESSION_SECONDS = 7 * 86_400.0
"""Seconds for which an id is valid; then its client shakes hands again."""
_MAX_ID = 6_000
_MAX_ENDED = 100_000
_MAX_MEMORY = 1_000
_INFO = ("name", "title", "version")


class _Declared(msgspec.Struct, frozen=True, array_like=True):
    """The content of an id: the name of the conversation, and its client as it declared itself."""

    name: str
    since: int
    version: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] | None


class SealedSessions:
    """The `SessionPeers` of a gateway.

    Args:
        keys: The secrets that all replicas have, the newest first.
        replicas: The other replicas; None where they share keys alone, and so no memory of sessions.
        clock: The time in seconds since the epoch, the same for all replicas.

    Attributes:
        events: The streams that answer requests; None where no store is shared.
    """

    def __init__(
        self,
        keys: Sequence[str | bytes],
        replicas: Replicas | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sealing = SealingKeys(keys, "gateway sessions", "s1")
        if replicas is None:
            self.events: SharedStreams | None = None
        else:
            self.events = SharedStreams(replicas)
        self._replicas = replicas
        self._clock = clock
        self._served: list[Deliver] = []
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._unread: set[str] = set()
        self._unsaid: set[str] = set()

    def listen(self) -> Callable[[], None]:
        """Receive messages about sessions from other replicas from now on; return a function that stops it."""
        if self._replicas is None or self.events is None:
            return nothing_to_end
        ends = (
            self._replicas.on(_NEWS, self._heard),
            self._replicas.on_return(self._returned),
            self.events.listen(),
        )

        def end() -> None:
            for one in ends:
                one()

        return end

    # ids

    def issue(self, client: Client, path: str) -> str:
        """Return the id of a new session; see `SessionPeers`.

        Raises:
            RequestError: The client says more of itself than fits into a header (-32602).
        """
        # The id carries the client's declaration, encrypted: any replica can restore a session without the store. What
        # a client says of itself has no bound, so a long description is cut to name and version before it is refused.
        whole = client.info or {}
        brief = only_members(whole, _INFO)
        for info in (client.info, brief):
            name = client.conversation or secrets.token_hex(16)
            declared = _Declared(name, int(self._clock()), client.version, client.capabilities, info)
            found = self._sealing.seal(msgspec.json.encode(declared), _bound(client.principal, path))
            if len(found) <= _MAX_ID:
                return found
        raise RequestError(
            "the client's capabilities and name are longer than a session id can carry", code=INVALID_PARAMS
        )

    async def restore(self, session_id: str, principal: str | None, path: str) -> RestoredSession | None:
        """Restore a session that this replica does not know; see `SessionPeers`."""
        payload = self._sealing.open(session_id, _bound(principal, path))
        if payload is None or session_id in self._ended:
            return None
        declared = decode_json(payload, _Declared)
        if declared.since + _SESSION_SECONDS < self._clock():
            return None
        client = Client(
            version=declared.version,
            capabilities=dict(declared.capabilities),
            info=declared.info,
            principal=principal,
            conversation=declared.name,
        )
        try:
            memory = await self._memory(session_id)
        except StoreError as exc:
            _log.info("a session continues without its state: %s", exc)
            # A session without its subscriptions is better than none; `_returned` delivers them when the store is back.
            self._unread.add(session_id)
            return RestoredSession(client)
        if memory is None:
            return None
        return RestoredSession(client, memory)

    # the state of a session

    async def remember(self, session_id: str, request: StrictMessage) -> None:
        """Store a request that has changed the state of a session; see `SessionPeers`.

        Raises:
            RequestError: The shared store is away (-32603).
        """
        if self._replicas is None:
            return
        try:
            await self._change(session_id, lambda memory: _with(memory, request))
        except StoreError:
            raise self._replicas.unreachable() from None
        await self._notify_others(session_id, request)

    async def forward(self, session_id: str, message: StrictMessage) -> None:
        """Forward an answer or a cancellation to the other replicas; see `SessionPeers`.

        Raises:
            RequestError: The shared store is away (-32603).
        """
        await self._notify_others(session_id, message)

    async def end(self, session_id: str) -> None:
        """Note that a session has ended; see `SessionPeers`.

        Raises:
            RequestError: The shared store is away (-32603); the others are notified once it is back.
        """
        self._note_end(session_id)
        if self._replicas is None:
            return
        # Removed only after both writes: whatever fails in between, the end is published again by `_returned`. To end
        # a session twice is harmless.
        self._unsaid.add(session_id)
        try:
            await self._change(session_id, lambda memory: None)
        except StoreError:
            raise self._replicas.unreachable() from None
        await self._notify_others(session_id, None)
        self._unsaid.discard(session_id)

    @contextmanager
    def serving(self, path: str, deliver: Deliver) -> Generator[None]:
        """Receive messages about the sessions of an endpoint for the block; see `SessionPeers`."""
        self._served.append(deliver)
        try:
            yield
        finally:
            self._served.remove(deliver)

    # inside

    async def _notify_others(self, session_id: str, message: StrictMessage | None) -> None:
        if self._replicas is not None:
            await self._replicas.broadcast(_NEWS, {"session": session_id, "message": _members(message)})

    async def _heard(self, body: Json) -> Json:
        session_id = str(body["session"])
        members = body["message"]
        if members is None:
            self._note_end(session_id)
        if members is None:
            message = None
        else:
            message = msgspec.convert(members, StrictMessage)
        for deliver in list(self._served):
            await deliver(session_id, message)
        return {}

    def _note_end(self, session_id: str) -> None:
        self._ended[session_id] = None
        if len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)

    async def _returned(self) -> None:
        """Resynchronise after a store outage: publish ends, reload the state of sessions."""
        for session_id in list(self._unsaid):
            try:
                await self.end(session_id)
            except RequestError:
                return
        while self._unread:
            session_id = self._unread.pop()
            try:
                memory = await self._memory(session_id)
            except StoreError:
                self._unread.add(session_id)
                return
            messages: Sequence[StrictMessage | None] = [None] if memory is None else memory
            for message in messages:
                await self._heard({"session": session_id, "message": _members(message)})

    async def _memory(self, session_id: str) -> list[StrictMessage] | None:
        """Return the state of a session; None for one that has ended.

        Raises:
            StoreError: The store is away.
        """
        if self._replicas is None:
            return []
        if self._replicas.away is not None:
            raise StoreError(self._replicas.away)
        place = _digest(session_id)
        found = await self._replicas.store.get(_SESSIONS, place)
        if found is None:
            return []
        return self._read(place, found.value)

    def _read(self, place: str, text: object) -> list[StrictMessage] | None:
        assert self._replicas is not None
        opened = self._replicas.opened(text, f"session {place}")
        if opened is None:  # written with keys that are gone, or by another program
            return []
        if opened["ended"]:
            return None
        return [msgspec.convert(one, StrictMessage) for one in opened["memory"]]

    async def _change(
        self, session_id: str, change: Callable[[list[StrictMessage]], list[StrictMessage] | None]
    ) -> None:
        """Change the state of a session; None is its end.

        Raises:
            StoreError: The store is away.
        """
        replicas = self._replicas
        assert replicas is not None
        if replicas.away is not None:
            raise StoreError(replicas.away)
        place = _digest(session_id)
        # Compare and set: a write of another replica between our read and our write makes ours fail, and the change is
        # applied to the new state. Each turn means that another write succeeded, so this ends. A session that has ended
        # stays so, whichever write is last: `change` is not applied to it.
        while True:
            found = await replicas.store.get(_SESSIONS, place)
            memory = [] if found is None else self._read(place, found.value)
            changed = None if memory is None else change(memory)
            value = {"ended": changed is None, "memory": list(map(_members, changed or ()))}
            sealed = replicas.sealed(value, f"session {place}")
            expect = 0 if found is None else found.revision
            put: Awaitable[int | None] = replicas.store.put(
                _SESSIONS, place, sealed, ttl=_SESSION_SECONDS, expect=expect
            )
            if await put is not None:
                return


def _with(memory: list[StrictMessage], request: StrictMessage) -> list[StrictMessage]:
    """Return the state of a session after a request: the last level, and the subscriptions."""
    subscription = request.method in (methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE)
    uri = object_or_empty(request.params).get("uri")

    def is_outdated(one: StrictMessage) -> bool:
        if not subscription:
            return one.method == request.method
        if one.method != methods.RESOURCES_SUBSCRIBE:
            return False
        return object_or_empty(one.params).get("uri") == uri

    kept = [one for one in memory if not is_outdated(one)]
    if request.method != methods.RESOURCES_UNSUBSCRIBE:
        kept.append(request)
    return kept[-_MAX_MEMORY:]


def _members(message: StrictMessage | None) -> Json | None:
    if message is None:
        return None
    return msgspec.to_builtins(message)


def _bound(principal: str | None, path: str) -> bytes:
    return msgspec.json.encode((path, principal))


def _digest(session_id: str) -> str:
    return sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
