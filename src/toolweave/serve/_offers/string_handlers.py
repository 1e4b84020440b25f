"""Functions called with string arguments: those of a prompt, or the variables of a URI template.

Reads the signature, converts the strings to the annotated types, and runs the function.
"""

from __future__ import annotations

import inspect
import json
import logging
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from toolweave._json_types import Json
from toolweave._repairs import Repair
from toolweave.errors import RequestError, SchemaError, ToolError
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.server_features import PromptArgument
from toolweave.schema._annotations import (
    EMPTY,
    Parameter,
    annotation_text,
    documentation,
    function_name,
    implementation,
    read_signature,
)
from toolweave.schema._docstring import parse_docstring
from toolweave.serve.request import Request
from toolweave.tools import CallContext
from toolweave.tools._function_runner import Runner

_log = logging.getLogger("toolweave.serve")

_TEXT = (str, Any, EMPTY, str | None)
PROMPT_VALUE = Repair(
    given="a number, a boolean or null as an argument of a prompt of yours",
    read_as="its JSON as text; no argument for null",
    limit="an object or a list is an error",
    switch="nothing: arguments of prompts are texts",
)


class StringHandler:
    """A function wrapped to be called with string arguments.

    Attributes:
        name: The function's name.
        description: Its docstring, without the sections on parameters and returns.
        arguments: Its parameters in order, without the context.
    """

    __slots__ = ("_convert", "_defaults", "_function", "_injected", "_runner", "arguments", "description", "name")

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature.

        Raises:
            SchemaError: No string can be converted to a parameter; names the function and the parameter.
        """
        parts = read_signature(function, injected=CallContext)
        if parts.unbound:
            raise SchemaError(f"function {function_name(function)!r} needs its self; give the method of an object")
        prose = parse_docstring(documentation(function))
        self.name: str = function_name(function)
        self.description: str = prose.description
        arguments = [_argument(one, prose.parameters.get(one.name, "")) for one in parts.parameters]
        self.arguments: tuple[PromptArgument, ...] = tuple(arguments)
        self._function = function
        self._injected = parts.injected
        self._runner = Runner(f"function {self.name!r}", is_async=inspect.iscoroutinefunction(implementation(function)))
        self._convert: dict[str, Callable[[str], Any]] = {}
        self._defaults: Json = {}
        for one in parts.parameters:
            convert = _converter(self.name, one)
            if convert is not None:
                self._convert[one.name] = convert
            # pydantic's `Field()`
            if hasattr(one.default, "get_default"):
                self._defaults[one.name] = one.default

    def bind(self, given: Mapping[str, Any], *, what: str) -> dict[str, Any]:
        """Return the keyword arguments of a call.

        Raises:
            RequestError: -32602; an argument is missing, unknown, not a text, or not a value of its type.
        """
        texts = texts_given(given, self.arguments, what=what)
        bound: Json = {}
        for name, one in self._defaults.items():
            bound[name] = one.get_default(call_default_factory=True)
        for name, value in texts.items():
            convert = self._convert.get(name, str)
            try:
                bound[name] = convert(value)
            except ValueError as exc:
                raise RequestError(f"{what}: argument {name!r}: {exc}", code=INVALID_PARAMS) from None
        return bound

    async def call(self, arguments: Mapping[str, Any], ctx: CallContext) -> Any:
        """Run the function with the arguments from `bind`, a plain one in a worker thread."""
        named = {**arguments, **dict.fromkeys(self._injected, ctx)}
        return await self._runner.run(self._function, named, abandon=True)


def texts_given(given: Mapping[str, Any], arguments: Sequence[PromptArgument], *, what: str) -> dict[str, str]:
    """Return the texts that are given, for known arguments, and for those that are required.

    Raises:
        RequestError: -32602; an argument is missing, unknown, or an object or a list.
    """
    known = {argument.name for argument in arguments}
    texts: dict[str, str] = {}
    for name, value in given.items():
        if name not in known:
            raise RequestError(f"{what} has no argument {name!r}", code=INVALID_PARAMS)
        if isinstance(value, str):
            texts[name] = value
        elif isinstance(value, (int, float)):
            texts[name] = json.dumps(value)
        elif value is not None:
            raise RequestError(f"{what}: argument {name!r} must be a string", code=INVALID_PARAMS)
    for argument in arguments:
        if argument.required and argument.name not in texts:
            raise RequestError(f"{what} needs the argument {argument.name!r}", code=INVALID_PARAMS)
    return texts


def failure(what: str, exc: Exception, request: Request, *, expose: str | None) -> RequestError:
    """Return the error answer for an exception of a function.

    A `RequestError` is the answer itself and a `ToolError` gives its message. Any other exception is logged, and its
    message is masked over HTTP; `expose` (`"message"` or `"masked"`) overrides that.
    """
    if isinstance(exc, RequestError):
        return exc
    # A `ToolError` that its author raised was written for the caller; any other text may hold paths or data of the
    # server.
    if isinstance(exc, ToolError) and not exc.unexpected:
        return RequestError(exc.message, code=INTERNAL_ERROR, data=exc.data)
    _log.error("%s failed", what, exc_info=exc)
    if expose == "masked" or (expose is None and request.headers):
        return RequestError(f"{what} failed", code=INTERNAL_ERROR)
    reason = f"{type(exc).__name__}: {exc}"
    if isinstance(exc, ToolError):
        reason = exc.message
    return RequestError(f"{what} failed: {reason}", code=INTERNAL_ERROR)


def _argument(parameter: Parameter, description: str) -> PromptArgument:
    default = parameter.default
    required = default is EMPTY
    # pydantic's `Field()`
    is_required = getattr(default, "is_required", None)
    if callable(is_required):
        required = bool(is_required())
    text = annotation_text(parameter.annotation) or getattr(default, "description", None)
    return PromptArgument(name=parameter.name, description=text or description, required=required)


def _is_described_text(annotation: object) -> bool:
    """Return whether an annotation is `Annotated[str, ...]` with nothing but descriptions."""
    if typing.get_origin(annotation) is not Annotated:
        return False
    kind, *extras = typing.get_args(annotation)
    if kind not in _TEXT:
        return False
    return all(isinstance(extra, str) or hasattr(extra, "documentation") for extra in extras)


def _converter(function: str, parameter: Parameter) -> Callable[[str], Any] | None:
    """Return the function that makes a value of a text; None for a parameter that is a text itself."""
    annotation = parameter.annotation
    if annotation in _TEXT or _is_described_text(annotation):
        return None
    # imported late, because it takes 40 ms and most arguments are texts
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter[Any](annotation)
    except (PydanticUserError, NameError, TypeError) as exc:
        raise SchemaError(
            f"function {function!r}: no string can become its parameter {parameter.name!r}: "
            f"{str(exc).partition(chr(10))[0]}"
        ) from None

    def convert(text: str) -> Any:
        try:
            return adapter.validate_python(text)
        except ValidationError as exc:
            refused = exc
        # Only for arrays and objects: a text such as `1` or `null` must not change its type by being valid JSON.
        if text[:1] in {"[", "{"}:
            try:
                return adapter.validate_json(text)
            except ValidationError as exc:
                refused = exc
        # without the value, so that an error does not repeat untrusted input
        raise ValueError(refused.errors(include_input=False, include_url=False, include_context=False)[0]["msg"])

    return convert
