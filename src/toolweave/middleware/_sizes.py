"""Limits on the size of arguments and results.

The size is that of the JSON text, in bytes of UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolweave._value import Value
from toolweave.errors import ErrorKind, RequestError, ToolError
from toolweave.middleware._options import as_tuples, at_least, of_kinds
from toolweave.middleware._selection import SELECTIONS, TO_LEARN, OfferSelection, learn, selected, target_of
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.jsonrpc import encode_value
from toolweave.serve import CallNext, Request
from toolweave.serve.request import Json
from toolweave.tools import ToolResult
from toolweave.tools.mcp import call_result

_LIMITED = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ})


class SizeLimits(Value, frozen=True, kw_only=True):
    """Middleware that refuses arguments and results above a size. A tool's answer then is an error that a model reads.

    Attributes:
        arguments: Bytes of the arguments of a call; None for no limit.
        results: Bytes of a whole result; None for no limit.
        only: The tools, prompts and resources that are limited; all where none are selected.
    """

    arguments: int | None = None
    results: int | None = None
    only: Sequence[OfferSelection] = ()

    def __post_init__(self) -> None:
        as_tuples(self, "only")
        of_kinds(self, {"only": SELECTIONS})
        at_least(self, 1, "arguments", "results")

    @property
    def reads_results(self) -> bool:
        """Whether it needs results as values, with no member left as a JSON text."""
        return self.results is not None

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request, or refuse it or its result."""
        if request.method in _LIMITED:
            if request.method in TO_LEARN:
                await learn(request)
            target = target_of(request)
        else:
            target = None
        if target is None or not selected(self.only, target):
            return await call_next(request)
        if self.arguments is not None:
            size = _size(request.params.get("arguments"))
            if size > self.arguments:
                return _too_large(request, f"the arguments are {size} bytes, and {self.arguments} are allowed")
        result = await call_next(request)
        if self.results is None:
            return result
        size = _size(result)
        if size <= self.results:
            return result
        said = f"the result is {size} bytes, and {self.results} are allowed; ask for less of it"
        return _too_large(request, said, code=INTERNAL_ERROR)


def _size(value: object) -> int:
    if value is None:
        return 0
    return len(encode_value(value, errors="replace"))


def _too_large(request: Request, said: str, *, code: int = INVALID_PARAMS) -> Json:
    if request.method != methods.TOOLS_CALL:
        raise RequestError(said, code=code)
    return call_result(ToolResult.failure(ToolError(said, kind=ErrorKind.TOO_LARGE)), modern=request.modern)
