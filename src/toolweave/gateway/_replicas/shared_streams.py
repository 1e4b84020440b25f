"""The streams that answer the requests of legacy sessions, where all replicas can read them.

A client whose response was cut comes back with `Last-Event-ID` at any replica, which continues from there: with the
stored events, and those that the answering replica still adds. Events are encrypted, bound to their stream and kept for
a few minutes. A replica that has ended adds nothing any more, and its client gets an error that the outcome is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256

import anyio

from toolweave.errors import StoreError
from toolweave.gateway._replicas.replicas import Replicas, ReplicaWatch
from toolweave.serve._http.session_peers import SharedEvent, StreamLost
from toolweave.state import Put, listening

_EVENTS = "gateway-events"
_KEPT_SECONDS = 600.0
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 900.0
_MAX_UNKEPT = 1_000
"""Events that wait while the store is away."""
_PAGE = 100


class SharedStreams:
    """The `SharedEvents` of a gateway.

    Args:
        replicas: The replicas, with the store that they share.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._unkept: deque[Put] = deque()

    def listen(self) -> Callable[[], None]:
        """Store the delayed events once the store is back; return a function that stops it."""
        return self._replicas.on_return(self._catch_up)

    async def keep(self, stream: str, event: SharedEvent) -> None:
        """Keep an event; see `SharedEvents`."""
        key = _key(stream, event.number)
        value = {"by": self._replicas.id, "message": event.message, "last": event.last}
        sealed = self._replicas.sealed(value, f"event {key}")
        # Queued and written in order, also while the store is away: a reader stops at the first gap, so an event that
        # overtook another would hide the rest of the stream.
        self._unkept.append(Put(collection=_EVENTS, key=key, value=sealed, ttl=_KEPT_SECONDS))
        await self._catch_up()

    async def follow(self, stream: str, after: int, send: Callable[[SharedEvent], Awaitable[None]]) -> None:
        """Send the events after one; see `SharedEvents`.

        Raises:
            StreamLost: The event is no longer kept, or the replica that answers has ended.
        """
        try:
            writer = await self._writer(stream, after)
            if writer is None:
                raise StreamLost(
                    "the answer to this request is not kept any more, and cannot be sent again: repeat the "
                    "request if it may be made twice"
                )
            with anyio.move_on_after(_PATIENCE_SECONDS):
                await self._follow(stream, after, send, ReplicaWatch(self._replicas, writer))
        except StoreError as exc:
            self._replicas.lost(exc)  # the client comes back again

    async def _follow(
        self, stream: str, after: int, send: Callable[[SharedEvent], Awaitable[None]], watch: ReplicaWatch
    ) -> None:
        async with listening(self._replicas.store, _EVENTS) as listener:
            while True:
                # before the rest is read: it may have kept something as its last act
                gone = await watch.is_gone()
                events = await self._after(stream, after)
                for event in events:
                    await send(event)
                    if event.last:
                        return
                    after = event.number
                if events:
                    continue
                if gone:
                    raise StreamLost(
                        "the process of the gateway that answered this request has ended before it was complete: the "
                        "outcome is unknown"
                    )
                await listener.wait(_LOOK_SECONDS)

    # inside

    async def _catch_up(self) -> None:
        """Store the queued events, in order; while the store is away they stay queued."""
        replicas = self._replicas
        while self._unkept and replicas.away is None:
            changes = [self._unkept[place] for place in range(min(len(self._unkept), _PAGE))]
            try:
                await replicas.store.write(changes, signal=_EVENTS)
            except StoreError as exc:
                replicas.lost(exc)
                break
            for change in changes:
                # another task may have kept it, too
                if self._unkept and self._unkept[0] is change:
                    self._unkept.popleft()
        while len(self._unkept) > _MAX_UNKEPT:
            self._unkept.popleft()

    async def _writer(self, stream: str, number: int) -> str | None:
        """Return the replica that wrote an event; None for one that is not kept."""
        key = _key(stream, number)
        found = await self._replicas.store.get(_EVENTS, key)
        if found is None:
            opened = None
        else:
            opened = self._replicas.opened(found.value, f"event {key}")
        if opened is None:
            return None
        return str(opened["by"])

    async def _after(self, stream: str, number: int) -> Sequence[SharedEvent]:
        """Return the events after one, up to the first gap: a missing one may still come."""
        prefix = _key(stream, None)
        found = await self._replicas.store.scan(_EVENTS, prefix=prefix, after=_key(stream, number), limit=_PAGE)
        events: list[SharedEvent] = []
        for document in found:
            number += 1
            opened = self._replicas.opened(document.value, f"event {document.key}")
            if opened is None or document.key != _key(stream, number):
                break
            events.append(SharedEvent(number, opened["message"], bool(opened["last"])))
        return events


def _key(stream: str, number: int | None) -> str:
    """Return the key of an event, or the prefix of the keys of a stream's events."""
    name = sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()
    if number is None:
        return f"{name}/"
    return f"{name}/{number:010d}"
