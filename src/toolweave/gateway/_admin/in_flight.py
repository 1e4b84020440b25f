"""The requests under way, so that an upstream that was removed is closed only when those of before have ended.

A request that was accepted before a change may still hold a connection that the change took away; one that came later
cannot. So it is enough to count by turns: a change begins a new turn, and waits until all turns before are empty.
Streams of notifications last as long as their clients and are not counted.
"""

from __future__ import annotations

import anyio

from toolweave.protocol import methods
from toolweave.serve import CallNext, Request
from toolweave.serve.request import Json


class InFlightRequests:
    """Middleware that counts requests, for all servers of one gateway.

    Attributes:
        streams: The number of open streams of notifications.
    """

    reads_results = False
    judges_offers = False
    # a call on the fast path is counted by its connection as soon as it is accepted
    sees_plain_calls = False

    def __init__(self) -> None:
        self.streams: int = 0
        self._turn = 0
        self._counts: dict[int, int] = {}
        self._ended: anyio.Event | None = None  # there while somebody waits

    @property
    def count(self) -> int:
        """The number of requests under way."""
        return sum(self._counts.values())

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request and count it until its answer is there."""
        if request.method == methods.SUBSCRIPTIONS_LISTEN:
            self.streams += 1
            try:
                return await call_next(request)
            finally:
                self.streams -= 1
        turn = self._turn
        self._counts[turn] = self._counts.get(turn, 0) + 1
        try:
            return await call_next(request)
        finally:
            left = self._counts[turn] - 1
            if left:
                self._counts[turn] = left
            else:
                del self._counts[turn]
                if self._ended is not None:
                    self._ended.set()
                    self._ended = None

    async def earlier_ended(self) -> None:
        """Wait until all requests that are in flight now have ended, regardless of later ones."""
        last = self._turn
        self._turn += 1
        while any(turn <= last for turn in self._counts):
            if self._ended is None:
                self._ended = anyio.Event()
            await self._ended.wait()
