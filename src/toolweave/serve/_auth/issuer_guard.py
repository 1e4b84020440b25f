"""Bounds on questions to an issuer about tokens, by the address of the sender.

Invalid tokens of one address do not delay the others.
"""

# Three things are bounded by the address of the sender:
# - Questions at once: an address uses three quarters of the turns at most, so one more is always free for another.
# - Tokens that the issuer refuses: a number at once, then one a second. Further tokens are refused without a question.
# - Questions that fail: a token can be the reason, such as one that the issuer cannot read. So a failure stops only the
#   questions of its address. The issuer is regarded as away when two addresses have failed with no answer between them,
#   or when the question about a token failed that it had accepted before. While it is away, one question at a time is
#   still asked, so that its return is noticed.

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from toolweave.serve._auth.refusal import IssuerUnavailable, TooManyTokens

PAUSE_SECONDS = 5.0
MAX_REFUSED = 30
"""The refused tokens of one address at once."""
_REFUSED_PER_SECOND = 1.0
_MAX_AT_ONCE = 20
_MAX_AT_ONCE_PER_ADDRESS = 15
_MAX_ADDRESSES = 4096
_Value = TypeVar("_Value")


class IssuerGuard:
    """Bounds the questions to one issuer.

    Args:
        clock: Returns the monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = anyio.Semaphore(_MAX_AT_ONCE)
        self._turns_of: dict[str, tuple[anyio.Semaphore, list[None]]] = {}
        self._refused: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._failed: OrderedDict[str, float] = OrderedDict()
        self._failing: set[str] = set()
        self._away_until = -math.inf
        self._probes = False

    def check(self, address: str, *, proven: bool) -> None:
        """Check that a question of an address may be asked now.

        Args:
            address: The address.
            proven: Whether the issuer has accepted the token before, so that it is not garbage.

        Raises:
            IssuerUnavailable: The issuer is away, or did not answer the last question of this address.
            TooManyTokens: The issuer refused too many tokens of this address.
        """
        now = self._clock()
        wait = 0.0
        if not proven:
            wait = self._failed.get(address, -math.inf) - now
        if self._away_until > now and self._probes:
            wait = max(wait, self._away_until - now)
        # refused at once: while the issuer is down, no request has to wait for its own time limit
        if wait > 0:
            raise IssuerUnavailable(wait)
        self.check_refused(address, proven=proven)

    def check_refused(self, address: str, *, proven: bool) -> None:
        """Check that the issuer has not refused too many tokens of an address.

        Raises:
            TooManyTokens: The issuer has refused too many.
        """
        if proven:
            return
        excess = self._level(address, self._clock()) - MAX_REFUSED + 1
        if excess > 0:
            raise TooManyTokens(excess / _REFUSED_PER_SECOND)

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncGenerator[None]:
        """Wait for a turn, and hold it for the block."""
        turns, users = self._turns_of.setdefault(address, (anyio.Semaphore(_MAX_AT_ONCE_PER_ADDRESS), []))
        users.append(None)
        is_probe = self._away_until > self._clock()
        if is_probe:
            self._probes = True
        try:
            async with turns, self._turns:
                yield
        finally:
            if is_probe:
                self._probes = False
            users.pop()
            if not users:
                del self._turns_of[address]

    def answered(self) -> None:
        """Note that the issuer has answered."""
        self._failing.clear()
        self._away_until = -math.inf

    def failed(self, address: str, *, proven: bool) -> float:
        """Note that a question of an address failed; return the seconds until its next one."""
        until = self._clock() + PAUSE_SECONDS
        _put(self._failed, address, until)
        self._failing.add(address)
        if proven or len(self._failing) > 1:
            self._failing.clear()
            self._away_until = until
        return PAUSE_SECONDS

    def refused(self, address: str) -> None:
        """Note that the issuer refused a token of an address."""
        now = self._clock()
        _put(self._refused, address, (self._level(address, now) + 1, now))

    def _level(self, address: str, now: float) -> float:
        """Return the number of refused tokens of an address that are not forgotten yet (a leaky bucket)."""
        level, since = self._refused.get(address, (0.0, now))
        return max(0.0, level - (now - since) * _REFUSED_PER_SECOND)


def _put(table: OrderedDict[str, _Value], address: str, value: _Value) -> None:
    table[address] = value
    table.move_to_end(address)
    if len(table) > _MAX_ADDRESSES:
        table.popitem(last=False)
