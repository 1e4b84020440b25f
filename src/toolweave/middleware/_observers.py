"""The end of a request as one event, for metrics, recent calls and other observers.

Observers neither change a request nor wait, so whatever answers a request can report its end to them. A call that is
sent at once passes no middleware, and ends with the same event.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import msgspec

from toolweave.errors import RequestError
from toolweave.middleware._outcome import first_text, outcome_of, subject_of
from toolweave.protocol import methods
from toolweave.serve import CallNext, Client, Request
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.middleware")


class RequestEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a request.

    Attributes:
        method: Its method.
        name: The name or URI that it is about, or None.
        server: The upstream; "" for a request that the server answers itself, and where it is not known.
        tool: The upstream's own name of the tool, or None.
        arguments: The arguments as they were sent; None where there are none.
        client: The client, with its authorized principal.
        seconds: The time until the answer was there.
        outcome: `ok`, `tool_error`, `input_required`, `task`, `error` or `cancelled`.
        result: The result, whose members may be left as JSON texts (`msgspec.Raw`); None where there is none.
        exception: The exception in place of a result; a `RequestError` if the answer is a JSON-RPC error.
    """

    method: str
    name: str | None
    server: str
    tool: str | None
    arguments: object
    client: Client
    seconds: float
    outcome: str
    result: Mapping[str, Any] | None = None
    exception: BaseException | None = None

    @property
    def error(self) -> str:
        """The text of a failed tool or of a JSON-RPC error; "" for none."""
        if isinstance(self.exception, RequestError):
            return self.exception.message
        if self.result is not None and self.outcome == "tool_error":
            return first_text(self.result)
        return ""


Observer: TypeAlias = Callable[[RequestEnd], object]
"""Receives the end of each request, without waiting."""


class RequestSubject(NamedTuple):
    """The subject of a request.

    Attributes:
        upstream: The server that it goes to; "" for a request that is answered here, and where it is not known.
        tool: The upstream's own name of the tool, or None.
    """

    upstream: str
    tool: str | None


def request_subject(request: Request) -> RequestSubject:
    """Return the subject of a request, as the endpoint will find it."""
    server = request.server
    if server is None:
        return RequestSubject("", None)
    name = request.params.get("name")
    if request.method == methods.TOOLS_CALL:
        spec = server.find_tool(name) if isinstance(name, str) else None
        if spec is None:
            return RequestSubject("", None)
        return RequestSubject(spec.server or "", spec.original_name)
    owners = (offer.server for offer in server.offers_of(request.method, request.params))
    return RequestSubject(next((owner for owner in owners if owner is not None), ""), None)


class Observers:
    """Middleware that reports the end of each request to observers.

    An exception of an observer is logged and changes nothing else.

    Args:
        *observers: Receive the event, one after the other.

    Attributes:
        observers: Receive the event.
    """

    reads_results: ClassVar[bool] = False
    judges_offers: ClassVar[bool] = False
    # Whatever sends them reports their end.
    sees_plain_calls: ClassVar[bool] = False

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request, and report its end."""
        # Before the call: it may leave with its server.
        subject = request_subject(request)
        began = time.perf_counter()
        try:
            result = await call_next(request)
        except BaseException as exc:
            # A cancellation is a `BaseException`. It is reported and raised again like any other.
            outcome = "error" if isinstance(exc, Exception) else "cancelled"
            report(self.observers, _end(request, subject, began, outcome, exception=exc))
            raise
        report(self.observers, _end(request, subject, began, outcome_of(result), result=result))
        return result


def report(observers: Iterable[Observer], end: RequestEnd) -> None:
    """Report the end of a request to observers."""
    for observer in observers:
        try:
            observer(end)
        except Exception:  # boundary: user code
            _log.exception("an observer of requests failed at %s", end.method[:200])


def _end(request: Request, subject: RequestSubject, began: float, outcome: str, **answer: Any) -> RequestEnd:
    return RequestEnd(
        method=request.method,
        name=subject_of(request),
        server=subject.upstream,
        tool=subject.tool,
        arguments=cast("object", request.params.get("arguments")),
        client=request.client,
        seconds=time.perf_counter() - began,
        outcome=outcome,
        **answer,
    )
