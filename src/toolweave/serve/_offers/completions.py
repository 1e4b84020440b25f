"""Completions of a prompt's arguments and of a URI template's variables (`completion/complete`).

Knows prompts and templates only by their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

from toolweave._json_types import as_object, without_members
from toolweave.errors import RequestError, SchemaError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from toolweave.protocol.input_required import INPUT_RESPONSES, REQUEST_STATE
from toolweave.protocol.server_features import MAX_COMPLETIONS, completion_json, read_reference
from toolweave.schema._annotations import function_name, implementation, read_signature
from toolweave.serve._offers.string_handlers import failure
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._tools import ExposeErrors
from toolweave.serve._unknown import unknown_reference
from toolweave.serve.request import Json, Method, Request
from toolweave.tools import CallContext
from toolweave.tools._function_runner import Runner

F = TypeVar("F", bound=Callable[..., Any])

_COUNTED = 10_000
"""Maximum values that are counted of a function, which may yield for ever."""

Known: TypeAlias = Callable[[str], Awaitable[bool]]
"""Returns whether a name is offered."""

_OF_ROUNDS = frozenset({INPUT_RESPONSES, REQUEST_STATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A partial list of values, when a completion knows more than it returns.

    Attributes:
        total: The number of all values, when it is known.
        has_more: Whether there are more.
    """

    values: Sequence[str]
    total: int | None = None
    has_more: bool | None = None


class CompletionSource(Protocol):
    """Completions of another server."""

    @property
    def offered(self) -> bool:
        """Whether it completes anything."""
        ...

    async def complete(self, kind: str, name: str, request: Request, ctx: CallContext) -> Json | None:
        """Return the members of a `CompleteResult`, or None for something that is not its own."""
        ...


class Completions:
    """The feature: completions by functions, and by other sources.

    Attributes:
        sources: The others, asked in this order.

    Args:
        runner: Runs the functions.
        prompts: Returns whether a prompt is offered; others are refused (-32602).
        resources: Returns the same for a URI or a template.
        expose_errors: As for tools: the client's view of an unexpected exception.
    """

    def __init__(
        self, *, runner: HandlerRunner, prompts: Known, resources: Known, expose_errors: ExposeErrors | None = None
    ) -> None:
        self._runner = runner
        self._known = {"prompt": prompts, "resource": resources}
        self._expose = expose_errors
        self.sources: list[CompletionSource] = []
        self._functions: dict[tuple[str, str, str], _Completer] = {}

    def add(self, ref: str, argument: str, function: F) -> F:
        """Complete an argument by a function, and return it.

        The function takes the text so far; a second parameter named `arguments` gets the values of the other
        arguments that are known already, one annotated `CallContext` the context. It returns values, or `Completed`.

        Args:
            ref: `"prompt:NAME"` or `"resource:TEMPLATE"`.
            argument: The name of the argument or variable.
            function: Plain or async.

        Raises:
            SchemaError: The function has other parameters.
            ValueError: The reference is of another form, or the argument is completed already.
        """
        kind, _, name = ref.partition(":")
        if kind not in self._known or not name:
            raise ValueError(f"completion for {ref!r}: write 'prompt:NAME' or 'resource:TEMPLATE'")
        if (kind, name, argument) in self._functions:
            raise ValueError(f"argument {argument!r} of {ref!r} is completed already")
        self._functions[kind, name, argument] = _Completer(function)
        return function

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return `completion/complete`."""
        return {methods.COMPLETION_COMPLETE: self._complete}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the `completions` capability, once something is completed."""
        if self.offered:
            return {"completions": {}}
        return {}

    @property
    def offered(self) -> bool:
        """Whether anything is completed."""
        return bool(self._functions) or any(one.offered for one in self.sources)

    async def _complete(self, request: Request) -> Json:
        if not self.offered:
            raise RequestError("Method not found", code=METHOD_NOT_FOUND, data=request.method)
        if not _OF_ROUNDS.isdisjoint(request.params):
            # a completion has no rounds of input, and parameters that a method does not have are ignored
            params = without_members(request.params, *_OF_ROUNDS)
            request = request.replace(params=params)
        return await self._runner.run(request, partial(self.answer, request))

    async def answer(self, request: Request, ctx: CallContext) -> Json:
        """Return the members of a `CompleteResult`.

        Raises:
            RequestError: -32602, the request is malformed, or its reference is not offered.
        """
        try:
            kind, name = read_reference(request.object("ref"))
        except ValueError as exc:
            raise RequestError(f"completion/complete needs 'ref': {exc}", code=INVALID_PARAMS) from None
        argument = request.object("argument")
        target = argument.get("name")
        text = argument.get("value")
        if not isinstance(target, str) or not isinstance(text, str):
            raise RequestError(
                "completion/complete needs 'argument' with 'name' and 'value', both strings", code=INVALID_PARAMS
            )
        others = _others(request.object("context"))
        function = self._functions.get((kind, name, target))
        if function is not None:
            return await self._run(request, function, text, others, ctx)
        for source in self.sources:
            made = await source.complete(kind, name, request, ctx)
            if made is not None:
                return made
        if not await self._known[kind](name):
            raise unknown_reference(kind, name)
        return _result(())

    async def _run(
        self, request: Request, function: _Completer, text: str, others: Mapping[str, str], ctx: CallContext
    ) -> Json:
        try:
            return _result(await function(text, others, ctx))
        except Exception as exc:  # boundary: user code
            raise failure("completion", exc, request, expose=self._expose) from None


class _Completer:
    """A completion function, and the optional parameters that it has."""

    __slots__ = ("_function", "_injected", "_runner", "_takes_others")

    def __init__(self, function: Callable[..., Any]) -> None:
        parts = read_signature(function, injected=CallContext)
        names = [parameter.name for parameter in parts.parameters]
        if not 1 <= len(names) <= 1 + ("arguments" in names[1:]):
            raise SchemaError(
                f"function {function_name(function)!r} completes texts: it takes one, "
                "and optionally a mapping named 'arguments' and a CallContext"
            )
        self._function = function
        self._injected = parts.injected
        self._takes_others = len(names) == 2
        self._runner = Runner(
            f"function {function_name(function)!r}", is_async=inspect.iscoroutinefunction(implementation(function))
        )

    async def __call__(self, text: str, others: Mapping[str, str], ctx: CallContext) -> Any:
        named: dict[str, Any] = dict.fromkeys(self._injected, ctx)
        if self._takes_others:
            named["arguments"] = others
        return await self._runner.run(partial(self._function, text), named, abandon=True)


def _others(context: Json) -> Mapping[str, str]:
    arguments = as_object(context.get("arguments", {}))
    if arguments is None:
        raise RequestError("completion/complete: 'context.arguments' must be an object", code=INVALID_PARAMS)
    return {name: value for name, value in arguments.items() if isinstance(value, str)}


def _result(found: Completed | Iterable[Any] | None) -> Json:
    """Return the members of a `CompleteResult`: at most 100 values, and the number of all."""
    total: int | None = None
    more: bool | None = None
    if isinstance(found, Completed):
        values = list(found.values)
        total = found.total
        more = found.has_more
    elif isinstance(found, str):
        values = [found]
        total = 1
    else:
        values = list(islice(found or (), _COUNTED))
        if len(values) < _COUNTED:
            total = len(values)
    shown = list(map(str, values[:MAX_COMPLETIONS]))
    if more is None:
        more = max(len(values), total or 0) > len(shown)
    return completion_json(shown, total=total, has_more=more)
