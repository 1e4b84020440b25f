"""The restart policy of lost connections: a pure function of the past losses, without clock or I/O."""

from __future__ import annotations

from collections.abc import Sequence

from toolweave._backoff import backoff
from toolweave._value import Value


class ConnectionLoss(Value, frozen=True, kw_only=True):
    """One unrequested end of a connection.

    Attributes:
        at: The time, in seconds of the clock of `now`.
        held: The seconds it had been ready; None when it never was.
    """

    at: float
    held: float | None


class RetryAfter(Value, frozen=True):
    """Try again after so many seconds.

    Attributes:
        seconds: The wait.
        slow: Whether the quick attempts are used up, which ends an ordinary connection and slows an endless one down.
    """

    seconds: float
    slow: bool = False


class GiveUp(Value, frozen=True):
    """Do not try again by itself; `why` completes the sentence "given up after ..."."""

    why: str


class RestartPolicy(Value, frozen=True, kw_only=True):
    """Exponential backoff with jitter, a cap and an end, and a circuit breaker.

    An endless connection, such as the upstream of a gateway, has no end: where others are given up, its waits grow on
    from `cap` to `slowest`.

    Two things end it. Too many failures in a row: the server does not come up, or not for long. Too many
    losses within a window: it comes up each time and falls again, which the first count forgives. Either
    way the circuit is open for `cooldown` seconds; the next use after that closes it or opens it again.

    Attributes:
        first: Seconds before the first attempt.
        first_unreached: The same for an endless connection that was never ready: a server that crashes as it starts is
            not started over at once.
        factor: Each further wait is this many times longer.
        cap: The longest wait, in seconds.
        slowest: The longest wait of an endless connection, in seconds.
        attempts: After so many failures in a row the connection is given up.
        stable: A connection that was ready for so many seconds resets the count of failures.
        losses: After more than so many losses within `window` seconds the connection is given up.
        cooldown: Seconds for which a connection that was given up answers at once with the cause.
        auth_cooldown: The same for one that needs other credentials, which may be there at any time.
    """

    first: float = 0.1
    first_unreached: float = 1.0
    factor: float = 3.0
    cap: float = 30.0
    slowest: float = 300.0
    attempts: int = 6
    stable: float = 5.0
    losses: int = 20
    window: float = 300.0
    cooldown: float = 30.0
    auth_cooldown: float = 1.0

    def next(
        self, history: Sequence[ConnectionLoss], now: float, jitter: float, *, endless: bool = False
    ) -> RetryAfter | GiveUp:
        """Return the action after the last loss of `history`, which is in the order of time.

        `jitter` in [0, 1) spreads the wait over its upper half, so that many clients do not return at once. `endless`
        gives up never.
        """
        failures = self.failures(history)
        why = self._used_up(failures, history, now)
        if why is not None and not endless:
            return GiveUp(why)
        if why is not None:
            beyond = failures - self.attempts
            wait = backoff(beyond, first=self.cap, longest=self.slowest, factor=1.5, spread=(0.5, 1.0), chance=jitter)
            return RetryAfter(wait, slow=True)
        reached = not endless or any(loss.held is not None for loss in history)
        first = self.first if reached else self.first_unreached
        wait = backoff(failures, first=first, longest=self.cap, factor=self.factor, spread=(0.5, 1.0), chance=jitter)
        return RetryAfter(wait)

    def _used_up(self, failures: int, history: Sequence[ConnectionLoss], now: float) -> str | None:
        """Return why the quick attempts are used up, or None while they are not."""
        if failures > self.attempts:
            return f"{failures} failures in a row"
        # A server that stays up just longer than `stable` and then falls resets the row each time; only the window sees
        # it.
        recent = sum(now - loss.at < self.window for loss in history)
        if recent > self.losses:
            return f"{recent} losses within {self.window:g} s"
        return None

    def failures(self, history: Sequence[ConnectionLoss]) -> int:
        """Return the failures in a row at the end of `history`; one that held for long begins the row."""
        count = 0
        for loss in reversed(history):
            count += 1
            # The loss that ended a long session counts as the first failure of the new row, so that the first wait is
            # the short one.
            if loss.held is not None and loss.held >= self.stable:
                break
        return count

    @property
    def memory(self) -> int:
        """The number of losses that `next` needs."""
        return max(self.attempts, self.losses) + 1
