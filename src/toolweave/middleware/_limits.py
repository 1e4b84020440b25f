"""Limits on how often callers use offers: a rate, and a budget for a period.

Counts what is asked for, also what is refused behind it. Where the counts are kept is a `LimitStore`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from toolweave._option_checks import OptionKind, instance_of
from toolweave._value import Value
from toolweave.errors import RequestError
from toolweave.middleware._limit_store import LimitStore, MemoryLimits
from toolweave.middleware._options import as_tuples, at_least, of_kinds, one_of
from toolweave.middleware._selection import (
    SELECTIONS,
    TO_LEARN,
    OfferSelection,
    RequestTarget,
    learn,
    selected,
    target_of,
)
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.serve import CallNext, Request
from toolweave.serve.request import Json

LimitKey: TypeAlias = Literal["principal", "tool", "server"]
_KINDS: Mapping[str, OptionKind] = {
    "only": SELECTIONS,
    "store": instance_of(LimitStore, "a MemoryLimits() or StoreLimits(...)"),
}
_COUNTED = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ})
_PERIODS = {"minute": 60.0, "hour": 3_600.0, "day": 86_400.0}


class _Limit(Value, frozen=True, kw_only=True):
    """The part that every limit has.

    Attributes:
        by: One count for each of these: `principal`, `tool` (or prompt, or resource), `server`; none of them is one
            count for all. A caller without a token counts as its conversation, and over HTTP without sessions as one
            caller.
        only: The selections that are counted, of calls, prompts that are got and resources that are read; all where
            there are none.
        store: Where the counts are; in this process by default.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"store"})
    ports: ClassVar[frozenset[str]] = frozenset({"store"})
    reads_results: ClassVar[bool] = False
    by: Sequence[LimitKey] = ("principal",)
    only: Sequence[OfferSelection] = ()
    store: LimitStore = msgspec.field(default_factory=MemoryLimits)

    def __post_init__(self) -> None:
        as_tuples(self, "by", "only")
        of_kinds(self, _KINDS)
        unknown = set(self.by) - {"principal", "tool", "server"}
        if unknown:
            raise ValueError(f"{type(self).__name__}: by is principal, tool or server, not {min(unknown)!r}")

    def key(self, request: Request) -> str | None:
        """Return the count that a request belongs to; None for one that is not counted."""
        if request.method not in _COUNTED:
            return None
        target = target_of(request)
        if not selected(self.only, target) or target is None:
            return None
        parts: Any = [self._part(name, request, target) for name in self.by]
        # As JSON and not joined by a separator: with one, the names `a:b` and `c` could share a count with `a` and
        # `b:c`.
        return msgspec.json.encode((type(self).__name__, self.by, parts)).decode()

    def _part(self, name: LimitKey, request: Request, target: RequestTarget) -> str:
        if name == "principal":
            return request.client.key or ""
        if name == "server":
            return target.servers[0] or ""
        # A template counts in place of its URIs: each URI would be a new bucket that is full.
        return f"{target.kind}:{target.names[-1]}"


class RateLimit(_Limit, frozen=True, kw_only=True):
    """Middleware that refuses calls above a rate (a token bucket), with -32603 and `data.retryAfterMs`.

    Attributes:
        calls: The calls that are allowed in `seconds`, on average.
        seconds: The time in which they are.
        burst: The most calls at once; `calls` by default.
    """

    calls: float
    seconds: float = 1.0
    burst: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0.001, "calls", "seconds")
        at_least(self, 1, "burst")

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request, or refuse it."""
        if request.method in TO_LEARN:
            await learn(request)
        key = self.key(request)
        if key is not None:
            # A bucket below one token would never let a call through, as with half a call a second.
            burst = max(1.0, self.calls if self.burst is None else self.burst)
            wait = await self.store.take(key, rate=self.calls / self.seconds, burst=burst)
            if wait > 0:
                raise _refusal(f"the limit is {self.calls:g} calls in {self.seconds:g} s", wait)
        return await call_next(request)


class CallBudget(_Limit, frozen=True, kw_only=True):
    """Middleware that refuses calls beyond a number in a period, with -32603 and `data.retryAfterMs`.

    Attributes:
        calls: The calls that are allowed in a period.
        per: The period, in UTC: `minute`, `hour` or `day`.
    """

    calls: int
    per: Literal["minute", "hour", "day"] = "day"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "calls")
        one_of(self, "per", *_PERIODS)

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request, or refuse it."""
        if request.method in TO_LEARN:
            await learn(request)
        key = self.key(request)
        if key is not None:
            wait = await self.store.spend(f"{self.per}:{key}", limit=self.calls, period=_PERIODS[self.per])
            if wait > 0:
                raise _refusal(f"the budget is {self.calls} calls a {self.per}", wait)
        return await call_next(request)


def _refusal(limit: str, wait: float) -> RequestError:
    # Rounded up: a client that waits exactly this long must not come too early by a fraction.
    seconds = math.ceil(wait * 1000) / 1000
    data = {"retryable": True, "retryAfterMs": math.ceil(wait * 1000)}
    return RequestError(f"too many calls: {limit}; try again in {seconds:g} s", code=INTERNAL_ERROR, data=data)
