"""The shares of callers in bounded resources: sessions, streams, running requests and connections.

Why no caller locks out the others: when a bound is reached, whatever can be ended is taken from the caller that holds
the most of it, and given to a caller that holds less. A running call cannot be ended, because nobody knows what it has
done. So callers are refused calls while some places are still free: each may hold only a multiple of the number of free
places. One caller can hold `caller_share` of them, two a little more together, and there is always a place for another.

A caller is a name: see `callers.py`. Independent of MCP and of HTTP.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator

import msgspec

from toolweave.serve._auth.middleware import identity_of
from toolweave.serve._http.asgi import ADDRESS, App, Cancels, Receive, Scope, Send, respond
from toolweave.serve._http.callers import Callers

PLACE = "toolweave.place"
"""The key in the scope of a request of its `Place`."""
RETRY_SECONDS = 1
"""The `Retry-After` of a refusal, in seconds."""
_MAX_TIMER_SECONDS = 30.0


class ShareFigures(msgspec.Struct, eq=False):
    """The figures of one kind of bounded thing.

    Attributes:
        held: The number that is held now.
        refused: How many callers were refused one.
        evicted: How many were taken from the caller that held the most.
    """

    held: int = 0
    refused: int = 0
    evicted: int = 0


class Shares:
    """The numbers of things of one kind, by caller.

    The callers are also kept by their number, so that the one that holds the most is found among the different numbers:
    a few hundred at most, because no more of them have a sum below the number of connections.

    Args:
        figures: The figures to keep up to date.
    """

    def __init__(self, figures: ShareFigures) -> None:
        self.figures = figures
        self._held: dict[str, int] = {}
        self._by_number: dict[int, dict[str, None]] = {}

    def of(self, caller: str) -> int:
        """Return the number that a caller holds."""
        return self._held.get(caller, 0)

    def add(self, caller: str) -> None:
        """Count one more for a caller."""
        self.figures.held += 1
        number = self._held.get(caller, 0)
        self._move(caller, number, number + 1)

    def remove(self, caller: str) -> None:
        """Count one less for a caller that holds one."""
        self.figures.held -= 1
        number = self._held[caller]
        self._move(caller, number, number - 1)

    def largest_first(self) -> Iterator[tuple[str, int]]:
        """Yield the callers and their numbers, those that hold the most first."""
        for number in sorted(self._by_number, reverse=True):
            for caller in self._by_number[number]:
                yield caller, number

    def _move(self, caller: str, before: int, after: int) -> None:
        if before:
            there = self._by_number[before]
            del there[caller]
            if not there:
                del self._by_number[before]
        if after:
            self._held[caller] = after
            self._by_number.setdefault(after, {})[caller] = None
        else:
            del self._held[caller]


class Place(msgspec.Struct, eq=False):
    """The place of a running request, to be left once.

    Attributes:
        caller: The caller that holds it.
        number: Its number among all places that were ever taken.
        stream: The stream of notifications that the request is, if it is one.
    """

    _requests: RunningRequests | None
    caller: str
    number: int
    stream: Cancels | None = None
    _end: float = math.inf
    _timer: asyncio.TimerHandle | None = None

    def become_stream(self, stream: Cancels, end: float = math.inf) -> None:
        """Note that the request is a stream of notifications, which may be ended for another caller.

        Args:
            stream: The stream.
            end: When the credential of the caller expires, and the stream with it, in seconds since the epoch.
        """
        if self._requests is not None:
            self.stream = stream
            self._requests.add_stream(self)
            if end < math.inf:
                self._end = end
                self._end_in_time(stream)

    def leave(self) -> None:
        """Return the place; does nothing when it was taken away."""
        requests = self._requests
        if requests is not None:
            self._requests = None
            if self._timer is not None:
                self._timer.cancel()
            requests.release(self)

    def _end_in_time(self, stream: Cancels) -> None:
        """End a stream with its credential."""
        left = self._end - time.time()
        if left <= 0:
            stream.cancel()
            return
        # A timer runs by the loop's clock, which does not follow when the time of the machine is set, nor while the
        # machine sleeps. So the time is read again now and then.
        seconds = min(left, _MAX_TIMER_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end_in_time, stream)


def note_stream(scope: Scope, stream: Cancels) -> None:
    """Note that a request is a stream of notifications, which ends with its credential or for another caller."""
    place: Place | None = scope.get(PLACE)
    if place is None:
        return
    identity = identity_of(scope)
    if identity is None or identity.expires_at is None:
        place.become_stream(stream)
    else:
        place.become_stream(stream, identity.expires_at)


class RunningRequests:
    """The places of running requests, streams of notifications among them.

    Args:
        callers: Finds the caller of a request.
        maximum: Maximum number of running requests; None for no bound.
        caller_share: The part of them that one caller may hold, while no other holds any.
        requests: The figures of all of them.
        streams: The figures of the streams among them.
    """

    def __init__(
        self,
        callers: Callers,
        *,
        maximum: int | None,
        caller_share: float,
        requests: ShareFigures,
        streams: ShareFigures,
    ) -> None:
        self._caller_of = callers.of
        self._maximum = maximum
        if caller_share >= 1:
            self._multiple = math.inf
        else:
            self._multiple = caller_share / (1 - caller_share)
        self._shares = Shares(requests)
        self._stream_figures = streams
        self._streams: dict[str, dict[Place, None]] = {}
        self._taken = 0
        self._ended: dict[str, int] = {}

    def enter(self, scope: Scope) -> Place | None:
        """Return the place of a request; None when its caller has to wait.

        A request has one place. Until it is authorized, its address holds it, and then its principal.
        """
        # Asked before the authorization and again at the endpoint; the scope carries the place from one to the other.
        # It is left before the new one is taken: no caller holds two for one request.
        caller = self._caller_of(scope)
        place: Place | None = scope.get(PLACE)
        if place is not None and place.caller == caller:
            return place
        if place is not None:
            place.leave()
        place = self.enter_as(caller)
        if place is not None:
            scope[PLACE] = place
        return place

    def enter_as(self, caller: str) -> Place | None:
        """Return one more place of a caller; None when it has to wait."""
        if self._maximum is not None and not self._admits(caller, self._maximum):
            return None
        self._shares.add(caller)
        self._taken += 1
        return Place(self, caller, self._taken)

    def refusal(self, scope: Scope) -> tuple[int, str]:
        """Count a refused request; return the status and the reason."""
        self._shares.figures.refused += 1
        held = self._shares.of(self._caller_of(scope))
        maximum = self._maximum or 0
        if self._shares.figures.held < maximum:
            return 429, f"Too many requests at once: {held} of yours are running; wait for one of them to end"
        return 503, f"The server is busy: {maximum} requests are running; try again later"

    def add_stream(self, place: Place) -> None:
        """Note that a place is that of a stream."""
        self._streams.setdefault(place.caller, {})[place] = None
        self._stream_figures.held += 1
        if place.stream is not None and place.number <= self._ended.get(place.caller, 0):
            place.stream.cancel()

    def end_streams_of(self, caller: str) -> None:
        """End the streams of a caller whose credential is not accepted any more."""
        # A request that was authorized before, and becomes a stream only now, has a lower number.
        self._ended[caller] = self._taken
        for place in tuple(self._streams.get(caller, ())):
            if place.stream is not None:
                place.stream.cancel()

    def release(self, place: Place) -> None:
        """Take a place back."""
        self._shares.remove(place.caller)
        if place.stream is not None:
            self._stream_figures.held -= 1
            there = self._streams[place.caller]
            del there[place]
            if not there:
                del self._streams[place.caller]

    def _admits(self, caller: str, maximum: int) -> bool:
        # A caller may hold `multiple` times the free places: alone it stops at `caller_share` of all, and the more
        # places others hold, the fewer it may hold. So one place is left for a caller that holds none.
        everybodys = self._shares.figures.held
        free = maximum - everybodys
        if free <= 0:
            return self._evict_stream(self._shares.of(caller))
        # Nearly always all hold together less than the one may.
        allowed = self._multiple * free
        return everybodys < allowed or self._shares.of(caller) < allowed

    def _evict_stream(self, held: int) -> bool:
        """End the oldest stream of the caller that holds the most, for one that then still holds no more than it."""
        for largest, number in self._shares.largest_first():
            if number <= held + 1:
                return False
            streams = self._streams.get(largest)
            if streams:
                place = next(iter(streams))
                stream = place.stream
                place.leave()
                self._stream_figures.evicted += 1
                if stream is not None:
                    stream.cancel()
                return True
        return False


class EndpointRequests:
    """The running requests of one endpoint of an app.

    Args:
        places: The places of the requests of the app.

    Attributes:
        places: The places.
        running: The requests that run, to be cancelled when the endpoint ends.
    """

    def __init__(self, places: RunningRequests) -> None:
        self.places = places
        self.running: set[Cancels] = set()


class HttpShares:
    """The shares of one app.

    Args:
        callers: Finds the caller of a request.
        maximum: Maximum number of running requests; None for no bound.
        caller_share: The part of them that one caller may hold, while no other holds any.

    Attributes:
        callers: Finds the caller of a request.
        figures: The figures by kind: `sessions`, `streams`, `requests` and `connections`.
        requests: The places of running requests.
    """

    def __init__(self, callers: Callers, *, maximum: int | None, caller_share: float) -> None:
        self.callers = callers
        kinds = ("sessions", "streams", "requests", "connections")
        self.figures: dict[str, ShareFigures] = {kind: ShareFigures() for kind in kinds}
        self.requests: RunningRequests = RunningRequests(
            callers,
            maximum=maximum,
            caller_share=caller_share,
            requests=self.figures["requests"],
            streams=self.figures["streams"],
        )

    def before_authorization(self, app: App) -> App:
        """Return an app that gives each request a place of its address, until its principal is known.

        Without it, requests that wait for an answer about their token would be held by nobody.
        """

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            scope[ADDRESS] = address = self.callers.address_of(scope)
            place = scope[PLACE] = self.requests.enter_as(address)
            if place is None:
                status, reason = self.requests.refusal(scope)
                await respond(send, status, reason, [(b"retry-after", b"%d" % RETRY_SECONDS)])
                return
            try:
                await app(scope, receive, send)
            finally:
                place.leave()

        return serve
