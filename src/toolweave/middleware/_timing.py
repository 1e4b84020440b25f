"""Durations of requests: in the log, or reported to a function."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import ClassVar

from toolweave._option_checks import FUNCTION
from toolweave._value import Value
from toolweave.errors import RequestError, printable, shortened
from toolweave.middleware._options import at_least, of_kinds
from toolweave.middleware._outcome import outcome_of, subject_of
from toolweave.protocol import methods
from toolweave.serve import CallNext, Request
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.middleware")

_OPEN_ENDED = frozenset({methods.SUBSCRIPTIONS_LISTEN})


def _logged(method: str, name: str | None, outcome: str, seconds: float) -> None:
    if name is None:
        shown = ""
    else:
        shown = f" {shortened(printable(name), 200)!r}"
    _log.warning("%s%s took %.3f s: %s", method, shown, seconds, outcome)


class Timing(Value, frozen=True, kw_only=True):
    """Middleware that reports requests that take long.

    Attributes:
        slow_seconds: Requests that take longer are reported; 0 for all. A listening request takes as long as it listens
            and is never reported.
        report: Called with the method, the name or URI, the outcome (`ok`, `tool_error`, `input_required`, `cancelled`
            or an error code) and the seconds; by default a warning is logged.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"report"})
    ports: ClassVar[frozenset[str]] = frozenset({"report"})
    reads_results: ClassVar[bool] = False
    judges_offers: ClassVar[bool] = False
    slow_seconds: float = 1.0
    report: Callable[[str, str | None, str, float], None] = _logged

    def __post_init__(self) -> None:
        at_least(self, 0, "slow_seconds")
        of_kinds(self, {"report": FUNCTION})

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request, and report it."""
        outcome = "cancelled"
        began = time.perf_counter()
        try:
            result = await call_next(request)
            outcome = outcome_of(result)
        except RequestError as exc:
            outcome = str(exc.code)
            raise
        finally:
            seconds = time.perf_counter() - began
            if seconds >= self.slow_seconds and request.method not in _OPEN_ENDED:
                self.report(request.method, subject_of(request), outcome, seconds)
        return result
