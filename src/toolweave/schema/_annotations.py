"""Reading of Python signatures: parameters, their annotations, and the parameters that the caller injects.

Reads signatures; knows nothing of JSON Schema and imports no pydantic.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, cast

from toolweave.errors import SchemaError

Annotation: TypeAlias = Any
"""A type, or any other form that pydantic takes as an annotation; Python has no type for all of them."""
Function: TypeAlias = Callable[..., Any]
"""A function, a method, a `functools.partial`, a class or an object with `__call__`."""
EMPTY = inspect.Parameter.empty
_PYTHONS_OWN = frozenset(map(inspect.getdoc, (type.__call__, object.__init__, object)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter that becomes a property.

    Attributes:
        annotation: The evaluated annotation, `Any` when there is none.
        default: The default, or `inspect.Parameter.empty`.
    """

    name: str
    annotation: Annotation
    default: object = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureParts:
    """The parts of a function's signature.

    Attributes:
        parameters: The parameters that the schema describes, in order.
        injected: Names of the parameters that the caller fills in.
        returns: The evaluated return annotation, or `inspect.Parameter.empty`.
        unbound: True for a function of a class body; its `self` is left out and bound later.
    """

    parameters: tuple[Parameter, ...]
    injected: tuple[str, ...]
    returns: Annotation
    unbound: bool


def function_name(function: Function) -> str:
    """Return the name of a function, of a partial's function, or of the class of an object with `__call__`."""
    target: Any = function
    while isinstance(target, functools.partial):
        # As `update_wrapper` sets it.
        own: Any = getattr(cast("object", target), "__name__", None)
        if isinstance(own, str):
            return own
        target = cast("functools.partial[Any]", target).func
    return getattr(target, "__name__", None) or type(target).__name__


def implementation(function: Function) -> Function:
    """Return the function that carries the annotations: behind partials, or an object's `__call__`."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = cast("functools.partial[Any]", target).func
    if isinstance(target, type):
        return target.__init__
    if inspect.isroutine(target):
        return target
    return type(target).__call__


def documentation(function: Function) -> str | None:
    """Return the docstring of a function, of a partial or its function, or of an object with `__call__`."""
    target = implementation(function)
    if isinstance(function, functools.partial):
        # As `update_wrapper` sets it.
        own_text: object = vars(cast("object", function)).get("__doc__")
        if isinstance(own_text, str):
            return inspect.cleandoc(own_text)
        return _own_text(target)
    if inspect.isroutine(function):
        return _own_text(target)
    if isinstance(function, type):
        return _own_text(function) or _own_text(target)
    return _own_text(target) or _own_text(type(function))


def _own_text(documented: object) -> str | None:
    """Return an object's own docstring; None for the ones of Python's built-in types."""
    text = inspect.getdoc(documented)
    if text in _PYTHONS_OWN:
        return None
    return text


def annotation_text(annotation: Annotation) -> str | None:
    """Return the description inside an `Annotated`: of the last `Field` or `Doc`, else the first bare string."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    extras = typing.get_args(annotation)[1:]
    # `Field` of pydantic has a description, `Doc` of typing_extensions a documentation.
    for extra in reversed(extras):
        for attribute in ("description", "documentation"):
            text = getattr(extra, attribute, None)
            if text and isinstance(text, str):
                return text
    for extra in extras:
        if isinstance(extra, str):
            return extra
    return None


def read_signature(function: Function, *, injected: type | None = None) -> SignatureParts:
    """Return the parts of a function's signature.

    Args:
        function: A function, method, `functools.partial` or object with `__call__`.
        injected: A type; parameters annotated with it, also as an optional or a string, are left out.

    Raises:
        SchemaError: Naming the function and the parameter that cannot be a member of a JSON object.
    """
    name = function_name(function)
    try:
        signature = inspect.signature(_without_wrapped(function))
    except (TypeError, ValueError):
        raise SchemaError(f"{name!r} has no signature to derive a schema from; wrap it in a function") from None
    hints = _hints(implementation(function))
    found: list[Parameter] = []
    given: list[str] = []
    parameters = list(signature.parameters.values())
    unbound = bool(parameters) and _is_self(function, parameters[0])
    if unbound:
        del parameters[0]
    for parameter in parameters:
        annotation = hints.get(parameter.name, Any)
        if injected is not None and _mentions(annotation, injected):
            given.append(parameter.name)
            continue
        _check(name, parameter, annotation)
        found.append(Parameter(name=parameter.name, annotation=modern(annotation), default=parameter.default))
    returns = hints.get("return", EMPTY)
    if isinstance(returns, str):
        returns = EMPTY
    return SignatureParts(parameters=tuple(found), injected=tuple(given), returns=modern(returns), unbound=unbound)


def _without_wrapped(function: Function) -> Function:
    """Return a function whose signature is that of the call.

    `update_wrapper` makes a partial refer to the function whose arguments it binds. `inspect` would follow that to a
    signature that still has them.
    """

    def is_partial(one: Function) -> bool:
        return isinstance(one, functools.partial)

    last = inspect.unwrap(function, stop=is_partial)
    if not isinstance(last, functools.partial):
        return function
    bound = cast("functools.partial[Any]", last)
    return functools.partial(_without_wrapped(bound.func), *bound.args, **bound.keywords)


def _check(name: str, parameter: inspect.Parameter, annotation: Annotation) -> None:
    if parameter.kind == parameter.VAR_POSITIONAL:
        raise SchemaError(f"function {name!r} takes *{parameter.name}; name every parameter of a tool")
    if parameter.kind == parameter.VAR_KEYWORD:
        raise SchemaError(f"function {name!r} takes **{parameter.name}; name every parameter of a tool")
    if parameter.kind == parameter.POSITIONAL_ONLY:
        raise SchemaError(f"function {name!r}: parameter {parameter.name!r} is positional-only; remove the /")
    if isinstance(annotation, str):
        raise SchemaError(
            f"function {name!r}: annotation {annotation!r} of parameter {parameter.name!r} cannot be evaluated; "
            "import what it names at run time"
        )


def _is_self(function: Function, parameter: inspect.Parameter) -> bool:
    """Return whether this is the `self` of a function in a class body, which is bound later."""
    if parameter.name not in {"self", "cls"}:
        return False
    if parameter.annotation is not EMPTY or not inspect.isfunction(function):
        return False
    owner = function.__qualname__.rpartition(".")[0]
    # The owner of a function within a function is `outer.<locals>`, which is not a class.
    return owner != "" and not owner.endswith("<locals>")


def _hints(target: Function) -> dict[str, Annotation]:
    """Return evaluated annotations; one that cannot be evaluated stays a string."""
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:
        # Boundary: evaluating annotations runs user code.
        module = inspect.unwrap(target)
        names = {**getattr(module, "__globals__", {}), **_enclosing_locals(target)}
        raw: Mapping[str, Any] = getattr(target, "__annotations__", {})
        return {name: _evaluated(annotation, names) for name, annotation in raw.items()}


def _evaluated(annotation: Annotation, names: dict[str, Any]) -> Annotation:
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["it"]
    except Exception:  # boundary: see _hints
        return annotation


def _enclosing_locals(target: Function) -> dict[str, Any]:
    """Return the local names of the enclosing functions that are still running."""
    qualname: str = getattr(target, "__qualname__", "")
    names: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:
        if qualname.startswith(f"{frame.f_code.co_qualname}.<locals>."):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _mentions(annotation: Annotation, wanted: type) -> bool:
    """Return whether an annotation is a type, with arguments or without, a union with it, or a string that names it."""
    if isinstance(annotation, str):
        return re.search(rf"\b{wanted.__name__}\b", annotation) is not None
    if isinstance(annotation, type):
        return issubclass(annotation, wanted)
    origin = typing.get_origin(annotation)
    if origin in {Annotated, typing.Union, types.UnionType}:
        return any(_mentions(argument, wanted) for argument in typing.get_args(annotation))
    # A generic type with its arguments.
    return isinstance(origin, type) and issubclass(origin, wanted)


def modern(annotation: Annotation) -> Annotation:
    """Replace TypedDicts of `typing` by those of typing_extensions, which pydantic needs before Python 3.12."""
    if sys.version_info >= (3, 12):  # pragma: no cover
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _modern_typed_dict(annotation)
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    # The arguments of `Literal` are values, not types.
    if not arguments or origin in (None, typing.Literal):
        return annotation
    renewed = tuple(map(modern, arguments))
    if renewed == arguments:
        return annotation
    if origin in {typing.Union, types.UnionType}:
        return typing.Union[renewed]  # noqa: UP007  # of a tuple
    if origin is Annotated:
        return Annotated[renewed]
    return origin[renewed]


@functools.cache
def _modern_typed_dict(annotation: Annotation) -> Annotation:
    import typing_extensions  # comes with pydantic, which needs it here

    hints = typing.get_type_hints(annotation, include_extras=True)
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        # Says more than __required_keys__, which string annotations mislead.
        marker: Any = typing.get_origin(hint)
        if marker in {typing.Required, typing.NotRequired}:
            hint = typing.get_args(hint)[0]
        elif name in annotation.__required_keys__:
            marker = typing.Required
        else:
            marker = typing.NotRequired
        fields[name] = marker[modern(hint)]
    renewed: Any = typing_extensions.TypedDict(annotation.__name__, fields)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues]
    renewed.__doc__ = annotation.__doc__
    return renewed
