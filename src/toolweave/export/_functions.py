"""A toolset as plain Python functions, for frameworks that read signatures and docstrings, and for scripts."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Collection, Sequence
from inspect import Parameter, Signature
from typing import Any, Literal, Union

from toolweave._json_types import Json, JsonObject, array_or_empty, as_object, not_none, object_or_empty, text_or_empty
from toolweave.errors import ToolError, ToolExecutionError
from toolweave.export._blocking import Bridge
from toolweave.providers._tool_calls import run_call
from toolweave.tools import NameMap, ToolCall, Toolset, ToolSource, ToolSpec
from toolweave.tools.sources import borrowed_toolset
from toolweave.tools.visible import shown_spec, shown_value

_TYPES: JsonObject = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
    "object": Json,
    "array": list[Any],
}
_MORE = "more"


def plain_functions(source: ToolSource, *, blocking: bool = False) -> list[Callable[..., Any]]:
    """Return the tools of a toolset as functions with a name, a typed signature and a docstring of their own.

    A function takes its arguments by name or in order, and returns the tool's structured content, or its text without
    structured content. An argument that is left out is not sent. Arguments whose names Python does not allow are passed
    as `**{"a-b": 1}`, and so are the additional ones of a schema that allows or requires any. The list is a snapshot; a
    call goes to the current toolset.

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        blocking: Return ordinary functions, to be called in a thread without an event loop; they run on the loop in
            which this was called, if there was one. False returns async functions.

    Raises:
        ToolExecutionError: By the functions, when the tool answers with an error; it has the whole result.
        TypeError: By the functions, for arguments that the signature does not have.
    """
    toolset = borrowed_toolset(source)
    snapshot = toolset.snapshot()
    names = NameMap(snapshot)
    bridge = Bridge() if blocking else None
    return [_function(toolset, spec, names.wire(spec.name), bridge) for spec in snapshot if spec.for_models]


def _function(toolset: Toolset, spec: ToolSpec, name: str, bridge: Bridge | None) -> Callable[..., Any]:
    signature = _signature(spec.input_schema)

    async def call(*args: Any, **kwargs: Any) -> Any:
        return await _returned_value(toolset, spec.name, _arguments(signature, args, kwargs))

    def call_blocking(*args: Any, **kwargs: Any) -> Any:
        assert bridge is not None
        arguments = _arguments(signature, args, kwargs)
        return bridge.run(
            lambda: _returned_value(toolset, spec.name, arguments), instead="export without blocking=True"
        )

    function: Any = call if bridge is None else call_blocking
    function.__name__ = function.__qualname__ = name
    function.__doc__ = _docstring(spec)
    function.__signature__ = signature
    function.__annotations__ = {part.name: part.annotation for part in signature.parameters.values()} | {"return": Any}
    return function


async def _returned_value(toolset: Toolset, name: str, arguments: JsonObject) -> Any:
    """Call a tool; return the value of its exported function.

    Raises:
        ToolExecutionError: The result is an error.
    """
    result = await run_call(toolset, ToolCall(name=name, arguments=arguments))
    if result.is_error:
        # Frameworks give the message of an exception to a model, so it is what a model is given of the result.
        error = result.require_error()
        message = result.for_model().text
        if message.strip():
            error = ToolError(message, kind=error.kind, code=error.code, retryable=error.retryable, data=error.data)
        raise ToolExecutionError(error, result=result, tool=name)
    if result.structured_content is None:
        return result.for_model().text
    # Frameworks give what a function returns to a model.
    return shown_value(result.structured_content)


def _arguments(signature: Signature, args: Sequence[Any], kwargs: JsonObject) -> Json:
    """Return the given arguments, without a None that means `left out`."""
    given: Json = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is Parameter.VAR_KEYWORD:
            given |= value
        elif value is not None or not isinstance(parameter, _OptionalParameter):
            given[name] = value
    return given


class _OptionalParameter(Parameter):
    """A parameter whose None means that it was left out."""

    __slots__ = ()


def _signature(schema: JsonObject) -> Signature:
    properties = object_or_empty(schema.get("properties"))
    required = set(array_or_empty(schema.get("required")))
    parameters: list[Parameter] = []
    for name, member in properties.items():
        if name.isidentifier() and not keyword.iskeyword(name):
            parameters.append(_parameter(name, object_or_empty(member), needed=name in required))
    is_complete = len(parameters) == len(properties)
    # Python wants those without a default first.
    parameters.sort(key=lambda parameter: parameter.default is not Parameter.empty)
    if not is_complete or _allows_unlisted(schema, required - properties.keys()):
        more = _MORE
        while more in properties:
            more += "_"
        parameters.append(Parameter(more, Parameter.VAR_KEYWORD, annotation=Any))
    return Signature(parameters, return_annotation=Any)


def _allows_unlisted(schema: JsonObject, unlisted: Collection[str]) -> bool:
    """Return whether a schema explicitly allows arguments beside its properties."""
    if unlisted or any(map(schema.get, ("additionalProperties", "patternProperties"))):
        return True
    return not schema.keys().isdisjoint(("$ref", "allOf", "anyOf", "oneOf"))


def _parameter(name: str, schema: JsonObject, *, needed: bool) -> Parameter:
    annotation = _annotation(schema, 0)
    kind = Parameter.POSITIONAL_OR_KEYWORD
    if needed:
        return Parameter(name, kind, annotation=annotation)
    if "default" in schema:
        return Parameter(name, kind, annotation=annotation, default=schema["default"])
    optional = Union[annotation, None]  # noqa: UP007 - `|` has no meaning for every annotation
    return (Parameter if optional == annotation else _OptionalParameter)(name, kind, annotation=optional, default=None)


def _annotation(schema: JsonObject, depth: int) -> Any:
    """Return the Python type of a schema; Any for a schema without a type."""
    if depth > 8:
        return Any
    choices = array_or_empty(schema.get("enum"))
    if not choices and "const" in schema:
        choices = [schema["const"]]
    if choices and all(isinstance(choice, str | int | bool | None) for choice in choices):
        return _literal(choices)
    options = array_or_empty(schema.get("anyOf")) or array_or_empty(schema.get("oneOf"))
    if options:
        return _union([_annotation(object_or_empty(option), depth + 1) for option in options])
    kinds = schema.get("type")
    items = as_object(schema.get("items"))
    if kinds == "array" and items is not None:
        return list[_annotation(items, depth + 1)]
    if isinstance(kinds, str):
        return _union([_TYPES.get(kinds, Any)])
    return _union([_TYPES.get(str(kind), Any) for kind in array_or_empty(kinds)])


def _literal(choices: Sequence[Any]) -> Any:
    """Return the type of one of several values; None among them is a type beside the literals."""
    values = tuple(not_none(choices))
    kinds: list[Any] = []
    if values:
        kinds.append(Literal[values])
    if len(values) < len(choices):
        kinds.append(None)
    return _union(kinds)


def _union(types: Sequence[Any]) -> Any:
    if types and Any not in types:
        return Union[tuple(types)]  # noqa: UP007 - made of a list
    return Any


def _docstring(spec: ToolSpec) -> str:
    spec = shown_spec(spec)
    lines: list[str] = []
    for name, schema in object_or_empty(spec.input_schema.get("properties")).items():
        words = text_or_empty(object_or_empty(schema).get("description")).split()
        if words:
            lines.append(f"    {name}: {' '.join(words)}")
    if lines:
        lines = ["", "Args:", *lines]
    return inspect.cleandoc("\n".join([spec.description, *lines]))
