"""Middleware around an endpoint: the chain, and the handling of errors in it.

A layer is one more coroutine for each request. Knows no method; an endpoint without middleware does not use it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from toolweave.errors import RequestError, printable
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.serve.request import Json, Method, Middleware, Request

_log = logging.getLogger("toolweave.serve")


def checked(middleware: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """Return the middleware of a server, outermost first.

    Raises:
        TypeError: One cannot be called, or is a class instead of an instance of it.
    """
    if callable(middleware):
        raise TypeError("middleware= takes a sequence of middleware; put the one into a list")
    found: tuple[Any, ...] = tuple(middleware)  # strangers pass anything
    for one in found:
        if isinstance(one, type):
            raise TypeError(f"middleware= takes instances; give {one.__name__}(...) instead of the class")
        if not callable(one):
            raise TypeError(
                f"{type(one).__name__} is not middleware: write `async def middleware(request, call_next)`, or a class "
                "with such a __call__"
            )
    return found


def chained(middleware: Iterable[Middleware], answer: Method) -> Method:
    """Return a function that answers a request through all of the middleware, the first outermost."""
    # From the inside out: each layer gets the one behind it.
    for one in reversed(tuple(middleware)):
        answer = _layer(one, answer)
    return answer


def _layer(middleware: Middleware, call_next: Method) -> Method:
    """Return one layer; an error in it becomes a `RequestError` for those around it, like any other refusal."""

    async def layer(request: Request) -> Json:
        try:
            result: Any = await middleware(request, call_next)
        except RequestError:
            raise
        except Exception:  # boundary: user code
            _log.exception("middleware %s failed at %s", _name(middleware), printable(request.method))
            raise RequestError("Internal error", code=INTERNAL_ERROR) from None
        if not isinstance(result, dict):
            _log.error(
                "middleware %s answered %s with %s, which is not a result: return what `await call_next(request)` "
                "returns, or a dict with the members of a result",
                _name(middleware),
                printable(request.method),
                type(result).__name__,
            )
            raise RequestError("Internal error", code=INTERNAL_ERROR)
        return result  # pyright: ignore[reportUnknownVariableType]  # its members are checked where they are read

    return layer


def _name(middleware: Middleware) -> str:
    named: Any = middleware
    return repr(getattr(named, "__qualname__", None) or type(middleware).__qualname__)
