"""Retry policy for model requests: which failures are retried, and when. Knows no provider and no HTTP library.

A turn that breaks off after its first words is also retried; `StreamRestarted` reports that those are void.
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

from toolweave._backoff import backoff
from toolweave.errors import ModelError
from toolweave.models._base import ModelEvent, StreamRestarted

_log = logging.getLogger("toolweave.models")

_WORTH_IT = ("rate_limited", "overloaded", "unreachable")
_AS_MILLISECONDS = "retry-after-ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retry policy for a provider that is busy or cannot be reached (HTTP 429, 5xx, no connection).

    Attributes:
        attempts: Maximum number of attempts, the first included.
        first: Seconds before the first retry; the delay doubles for each further one.
        longest: Maximum delay in seconds, unless the provider asks for more.
        max_retry_after: Maximum delay in seconds that a provider may ask for (`Retry-After`); a longer one fails.
    """

    attempts: int = 4
    first: float = 0.5
    longest: float = 30.0
    max_retry_after: float = 120.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.first, self.longest, self.max_retry_after) < 0:
            raise ValueError(f"attempts must be at least 1 and no wait below 0, not {self!r}")

    def wait(self, failed: int, asked: float | None = None, *, chance: Callable[[], float] = random.random) -> float:
        """Return the delay in seconds after `failed` failures, or infinity to give up.

        A delay `asked` for by the provider is respected. Otherwise it doubles, minus a random part of up to a quarter
        (`chance` returns 0 to 1), so that many callers do not retry at the same moment.
        """
        if failed >= self.attempts:
            return math.inf
        if asked is not None:
            if asked <= self.max_retry_after:
                return asked
            return math.inf
        return backoff(failed, first=self.first, longest=self.longest, spread=(0.75, 1.0), chance=1 - chance())


NO_RETRY = Retry(attempts=1)
"""The policy without retries."""


def retry_after(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that an answer asks to wait, or None (RFC 9110, 10.2.3; `retry-after-ms` goes first).

    The names in `headers` are lower-case, or the mapping ignores case.
    """
    milliseconds = _number(headers.get(_AS_MILLISECONDS))
    # OpenAI sends both; whole seconds would make a caller wait longer than its limit needs.
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            # Written as `-0000`: universal time, of a clock that says nothing of its zone.
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now())
    except (ValueError, OverflowError):
        return None


async def with_retries(
    attempt: Callable[[], AsyncGenerator[ModelEvent, None]], retry: Retry
) -> AsyncGenerator[ModelEvent, None]:
    """Yield the events of an attempt; retry a failed one, after `StreamRestarted` if it had yielded events.

    Raises:
        ModelError: The last attempt's.
    """
    import anyio  # the room is read without it

    failed = 0
    while True:
        # An attempt has its own connection and its own timeout. Closing the generator closes the attempt first
        # (`aclosing`), so a caller that stops in the middle of a turn leaves no request open.
        begun = False
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except ModelError as exc:
            failed += 1
            # A refusal (a wrong key, a request that the API cannot read) would be the same at every attempt.
            if exc.kind in _WORTH_IT:
                seconds = retry.wait(failed, exc.retry_after)
            else:
                seconds = math.inf
            if seconds == math.inf:
                raise
            _log.info("%s; sending it again in %.1f s (%d of %d)", exc, seconds, failed + 1, retry.attempts)
            error = exc
        # Outside of `except`: an exception of the consumer at this `yield` must not carry the retried error as context.
        if begun:
            yield StreamRestarted(error=error)
        await anyio.sleep(seconds)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    if 0 <= value < math.inf:
        return value
    return None
