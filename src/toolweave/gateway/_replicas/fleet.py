"""The replicas of a gateway as its console shows and changes them.

Each replica keeps the content of its pages in memory. Another replica requests it when a page is opened, so a call
writes nothing to the shared store, and a fleet whose consoles nobody opens writes nothing at all. Responses are kept
for a second: however many browsers are open, a replica requests a page's content at most once in that time.

Replies have the order of the replicas' names, whichever replica requests them, so a page is the same at each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import anyio

from toolweave._json_types import as_object, text_or_empty
from toolweave.errors import RequestError
from toolweave.gateway._replicas.replicas import ReplicaGone, Replicas, UnknownToReplica
from toolweave.serve._changes import nothing_to_end
from toolweave.serve.request import Json

_KIND = "console"
_LOOK_SECONDS = 4.0
_ACT_SECONDS = 60.0
_KEPT_SECONDS = 1.0

TopicHandler: TypeAlias = Callable[[Json], Awaitable[Json]]
"""Returns the content of a page in this process, or the outcome of a change."""


class Peer(NamedTuple):
    """A replica.

    Attributes:
        name: Its human-readable name: host and process.
        id: Its id.
    """

    name: str
    id: str


class FleetReplies(NamedTuple):
    """The replies of the replicas.

    Attributes:
        found: The reply of each replica, by the replicas' names.
        silent: The replicas that did not reply, each with the reason.
    """

    found: Mapping[Peer, Json]
    silent: Mapping[Peer, str]


class Fleet:
    """The replicas of a gateway, this process included.

    Args:
        replicas: The replicas, or None for a gateway of one process.
    """

    def __init__(self, replicas: Replicas | None) -> None:
        self._replicas = replicas
        self._handlers: dict[str, TopicHandler] = {}
        self._kept: dict[str, tuple[float, FleetReplies]] = {}
        self._looking: dict[str, anyio.Lock] = {}
        if replicas is None:
            self.here: Peer = Peer("", "")
        else:
            self.here = Peer(replicas.name, replicas.id)

    @property
    def replicas(self) -> Replicas | None:
        """The replicas, or None for a gateway of one process."""
        return self._replicas

    @property
    def away(self) -> str | None:
        """The reason why no other replica can be reached now, or None."""
        return None if self._replicas is None else self._replicas.away

    def on(self, topic: str, handler: TopicHandler) -> None:
        """Answer requests about a topic, of this replica and of others."""
        self._handlers[topic] = handler

    def listen(self) -> Callable[[], None]:
        """Answer the other replicas from now on; return a function that ends that."""
        if self._replicas is None:
            return nothing_to_end
        return self._replicas.on(_KIND, self._received)

    async def look(self, topic: str, body: Json) -> FleetReplies:
        """Return the content of a page at all replicas, at most a second old."""
        key = f"{topic} {sorted(body.items())}"
        # One look at a page at a time: browsers that ask meanwhile get the replies of the look before them.
        async with self._looking.setdefault(key, anyio.Lock()):
            now = anyio.current_time()
            self._kept = {one: kept for one, kept in self._kept.items() if kept[0] > now - _KEPT_SECONDS}
            # A page's key has what its reader typed, so the locks of pages that nobody reads are dropped. One that is
            # held stays: a second lock for the same page would let two looks run at once.
            for one in self._looking.keys() - self._kept.keys():
                if not self._looking[one].locked():
                    del self._looking[one]
            if self._replicas is not None and key in self._kept:
                return self._kept[key][1]
            replies = await self._request_all(topic, body, _LOOK_SECONDS)
            self._kept[key] = (anyio.current_time(), replies)
            return replies

    async def act(self, topic: str, body: Json, *, replica: str | None = None) -> FleetReplies:
        """Change something at all replicas, or at one; return the outcomes.

        Args:
            topic: The topic.
            body: The change.
            replica: The id of the replica; by default all of them.
        """
        replies = await self._request_all(topic, body, _ACT_SECONDS, replica=replica)
        self.forget()
        return replies

    def forget(self) -> None:
        """Request the content of pages again at the next look, because something was changed."""
        self._kept.clear()

    async def _request_all(self, topic: str, body: Json, seconds: float, *, replica: str | None = None) -> FleetReplies:
        found: dict[Peer, Json] = {}
        silent: dict[Peer, str] = {}
        failures: list[Exception] = []
        peers = [one for one in await self._peers() if replica is None or one.id == replica]

        async def request(peer: Peer) -> None:
            try:
                found[peer] = await self._request(peer, topic, body, seconds)
            except TimeoutError:
                silent[peer] = f"no response within {seconds:g} s"
            except ReplicaGone:
                silent[peer] = "it has ended"
            except UnknownToReplica:
                silent[peer] = "it has no console"
            except RequestError as error:
                silent[peer] = error.message
            except Exception as error:  # boundary: raised below, as a page of one process raises it
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            for peer in peers:
                tasks.start_soon(request, peer)
        if failures:
            raise failures[0]
        return FleetReplies(
            {one: found[one] for one in peers if one in found}, {one: silent[one] for one in peers if one in silent}
        )

    async def _request(self, peer: Peer, topic: str, body: Json, seconds: float) -> Json:
        """Return the reply of a replica; this one may take as long as its own handler does.

        Raises:
            TimeoutError: Another one did not reply in time.
        """
        if self._replicas is None or peer == self.here:
            return await self._handlers[topic](body)
        with anyio.fail_after(seconds):
            return await self._replicas.ask(peer.id, _KIND, {"topic": topic, "body": body})

    async def _peers(self) -> Sequence[Peer]:
        """Return the living replicas by their names; this one alone while the store is away."""
        if self._replicas is None or self._replicas.away is not None:
            return [self.here]
        try:
            others = await self._replicas.others()
        except RequestError:
            return [self.here]
        return sorted([self.here, *(Peer(name, key) for key, name in others.items())])

    async def _received(self, body: Json) -> Json | None:
        handler = self._handlers.get(text_or_empty(body.get("topic")))
        request = as_object(body.get("body"))
        if handler is None or request is None:
            return None
        return await handler(dict(request))
