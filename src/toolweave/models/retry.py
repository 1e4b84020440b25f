"""When a request to a model is worth sending again, and how long to wait before. Knows no provider and no HTTP library.

A turn that breaks off after its first words is asked for again too; `StreamRestarted` says that those are void.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from toolweave.errors import ModelError
from toolweave.models.base import ModelEvent, StreamRestarted

__all__ = ["NO_RETRY", "Retry", "retry_after", "with_retries"]

_log = logging.getLogger("toolweave.models")

_WORTH_IT = ("rate_limited", "overloaded", "unreachable")
_AS_MILLISECONDS = "retry-after-ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a request is sent again when the provider is busy or out of reach (HTTP 429, 5xx, no connection).

    Attributes:
        attempts: How often the request is sent at most, the first time included.
        first: Seconds before the first repetition; each further one waits twice as long.
        longest: Seconds that one wait takes at most, unless the provider asks for more.
        longest_asked: Seconds that a provider may ask to wait (`Retry-After`); one that asks for more is given up.
    """

    attempts: int = 4
    first: float = 0.5
    longest: float = 30.0
    longest_asked: float = 120.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.first, self.longest, self.longest_asked) < 0:
            raise ValueError(f"attempts must be at least 1 and no wait below 0, not {self!r}")

    def wait(self, failed: int, asked: float | None = None, *, chance: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait after so many failures, or infinity to give up.

        What the provider `asked` for is kept to. Otherwise the wait doubles, less up to a quarter by `chance`
        (a number from 0 to 1), so that many callers do not come back at once.
        """
        if failed >= self.attempts:
            return math.inf
        if asked is not None:
            return asked if asked <= self.longest_asked else math.inf
        return min(self.first * 2 ** min(failed - 1, 60), self.longest) * (1 - chance() / 4)


NO_RETRY = Retry(attempts=1)
"""Every failure is final."""


def retry_after(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that an answer asks to wait, or None (RFC 9110, 10.2.3; `retry-after-ms` goes first).

    The names in `headers` are lower-case, or the mapping does not mind.
    """
    milliseconds = _number(headers.get(_AS_MILLISECONDS))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:  # written as `-0000`: universal time, of a clock that says nothing of its zone
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now())
    except (ValueError, OverflowError):
        return None


async def with_retries(
    attempt: Callable[[], AsyncGenerator[ModelEvent, None]], retry: Retry
) -> AsyncGenerator[ModelEvent, None]:
    """Yield the events of an attempt; a failed one is made again, after `StreamRestarted` where it had begun.

    Raises:
        ModelError: The last attempt's.
    """
    import anyio  # the room is read without it

    failed = 0
    while True:
        begun = False
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except ModelError as exc:
            failed += 1
            seconds = retry.wait(failed, exc.retry_after) if exc.kind in _WORTH_IT else math.inf
            if seconds == math.inf:
                raise
            _log.info("%s; sending it again in %.1f s (%d of %d)", exc, seconds, failed + 1, retry.attempts)
            error = exc
        if begun:
            yield StreamRestarted(error=error)
        await anyio.sleep(seconds)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
