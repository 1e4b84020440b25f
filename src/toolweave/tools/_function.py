"""Python functions as tools.

Reads signatures through `schema` and runs functions; knows no server and no model.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, get_args, overload

from toolweave._json_types import Json, JsonObject
from toolweave._option_checks import COUNT, MAPPING, TEXT, OptionKind, check_kinds, instance_of, list_of
from toolweave.errors import ErrorKind, SchemaError, ToolError, as_tool_error
from toolweave.protocol.component_meta import component_meta
from toolweave.protocol.content import ContentBlock
from toolweave.schema import Signature, Validator, derive, describe
from toolweave.schema._annotations import implementation
from toolweave.schema._signature import MappingSignature
from toolweave.schema.fitting import fitted
from toolweave.tools._call import CallContext, Progress, ToolCall
from toolweave.tools._function_runner import THREADS, Runner
from toolweave.tools._scopes import scope_list
from toolweave.tools._wrappers import BaseToolset, route_of
from toolweave.tools.media import BINARY_TYPES, File
from toolweave.tools.names import unknown_tool
from toolweave.tools.result import ToolResult, invalid_input, typed
from toolweave.tools.selection import check_hints
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import Tool, Toolset, ToolSnapshot

_log = logging.getLogger("toolweave.tools")

P = ParamSpec("P")
R = TypeVar("R")

_SCHEMA = instance_of(Mapping, "a JSON Schema, as a mapping").or_none
_TEXT_LIST = instance_of(Iterable, "a list of strings")
_KINDS: Mapping[str, OptionKind] = {
    "name": TEXT.or_none,
    "description": TEXT.or_none,
    "annotations": MAPPING.or_none,
    "input_schema": _SCHEMA,
    "output_schema": instance_of((Mapping, bool), "a JSON Schema, as a mapping").or_none,
    "threads": COUNT.or_none,
    "title": TEXT.or_none,
    "icons": list_of(Mapping, "a list of icon objects"),
    "tags": _TEXT_LIST,
    "version": TEXT.or_none,
    "scopes": _TEXT_LIST,
    "meta": MAPPING.or_none,
}

_OPAQUE: tuple[type, ...] = (ToolResult, File, *BINARY_TYPES, PurePath, *get_args(ContentBlock))
"""Types that become content blocks; a path is the file there, if there is one."""


class ToolAbout(TypedDict, total=False):
    """Optional members of a tool's definition.

    Attributes:
        title: A human-readable name.
        icons: Icon objects of the MCP specification.
        tags: Tags, by which it is chosen, enabled and disabled; in its `_meta`.
        version: Its version, such as `"1.2"`; several versions of one name may be offered.
        scopes: The OAuth scopes that a caller's token needs, where it is served over HTTP; not in the definition.
        meta: The definition's `_meta`.
    """

    title: str | None
    icons: Sequence[JsonObject]
    tags: Iterable[str]
    version: str | None
    scopes: Sequence[str]
    meta: JsonObject | None


class FunctionTool(Tool, Generic[P, R]):
    """A tool that runs a Python function; calling it directly calls the function.

    Attributes:
        function: The function as it was given.
    """

    __slots__ = ("_signature", "_threads", "function")

    def __init__(
        self, function: Callable[P, R], spec: ToolSpec, signature: Signature, *, threads: int = THREADS
    ) -> None:
        super().__init__(spec, FunctionToolset(function, spec, signature, threads))
        self.function: Callable[P, R] = function
        self._signature = signature
        self._threads = threads

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no validation, no result object."""
        return self.function(*args, **kwargs)

    @property
    def unbound(self) -> bool:
        """Whether it is an unbound method."""
        return self._signature.unbound and not inspect.ismethod(self.function)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., R]:
        """Return the tool of a bound method for a tool defined in a class body."""
        if instance is None or not self._signature.unbound:
            return self
        bound: Callable[..., R] = self.function.__get__(instance, owner)
        return FunctionTool(bound, self.spec, self._signature, threads=self._threads)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    annotations: JsonObject | None = None,
    input_schema: JsonObject | None = None,
    output_schema: JsonObject | None = None,
    threads: int | None = None,
    **about: Unpack[ToolAbout],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    annotations: JsonObject | None = None,
    input_schema: JsonObject | None = None,
    output_schema: JsonObject | None = None,
    threads: int | None = None,
    **about: Unpack[ToolAbout],
) -> FunctionTool[P, R]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    annotations: JsonObject | None = None,
    input_schema: JsonObject | None = None,
    output_schema: JsonObject | None = None,
    threads: int | None = None,
    **about: Unpack[ToolAbout],
) -> Any:
    """Make a tool of a function; use as `@tool`, `@tool(name=...)` or `tool(function)`.

    The input schema comes from the annotations, defaults, `Annotated` texts and the docstring's
    descriptions of the parameters. A parameter annotated `CallContext` receives the call's context
    and is not in the schema. A plain function runs in a worker thread, an async one in the event loop.

    Args:
        function: A function, method, `functools.partial` or object with `__call__`.
        name: The tool's name; the function's by default.
        description: Its description for models; the docstring without its sections on parameters by default.
        annotations: Behaviour hints, such as `{"readOnlyHint": True}`.
        input_schema: JSON Schema of the arguments, taken as it is; the function then takes one parameter beside a
            `CallContext`, the arguments as a mapping.
        output_schema: JSON Schema of the structured content; by default derived from a return
            annotation. One that is content, such as `bytes`, a `Path` or a content block, has none, and neither has
            `Any` or a list of anything.
        threads: How many calls of a plain function may run at the same time, 40 by default. Further ones wait;
            other tools have threads of their own.
        **about: `title`, `icons`, `tags`, `version`, `scopes` and `meta`, as `ToolAbout` says.

    Raises:
        SchemaError: Naming the function and the parameter that cannot be a member of a JSON object.
        ValueError: `threads` is less than 1, or given for an `async` function, which runs in none; or a scope, a tag,
            the version or a hint is not valid.
        TypeError: An option has another type.
    """
    options: Json = {"name": name, "description": description, "annotations": annotations, **about}
    schemas = {"input_schema": input_schema, "output_schema": output_schema}
    check_kinds({**options, **schemas, "threads": threads}, _KINDS, owner="tool")
    if function is None:
        return functools.partial(tool, **options, **schemas, threads=threads)
    if isinstance(function, str):
        raise TypeError(f"the first argument of a tool is its function; its name is given as name={function!r}")
    if isinstance(function, FunctionTool):
        function = function.function  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if input_schema is None:
        signature = derive(function, injected=CallContext, opaque=_OPAQUE)
    else:
        signature = MappingSignature(function, input_schema, injected=CallContext, opaque=_OPAQUE)
    if name is None and signature.name == "<lambda>":
        raise SchemaError("a lambda has no name to expose; give it one with tool(..., name=...)")
    title = about.get("title")
    spec = ToolSpec(
        name=name or signature.name,
        title=title,
        description=signature.description if description is None else description,
        input_schema=input_schema or {**signature.input_schema, "title": title or name or signature.name},
        output_schema=signature.output_schema if output_schema is None else output_schema,
        annotations=annotations,
        **_about(about),
    )
    if annotations is not None:
        check_hints(annotations, f"tool {spec.name!r}: annotations")
    return FunctionTool(function, spec, signature, threads=_threads(threads, function, spec.name))


def _about(about: ToolAbout) -> Json:
    """Return the members of a definition for those of `ToolAbout`, except the title."""
    unknown = about.keys() - ToolAbout.__annotations__.keys()
    if unknown:
        raise TypeError(f"tool() got an unexpected keyword argument {min(unknown)!r}")
    meta = component_meta(about.get("meta"), tags=about.get("tags", ()), version=about.get("version"))
    return {"icons": tuple(about.get("icons", ())), "meta": meta, "scopes": scope_list(about.get("scopes", ()))}


def _threads(threads: int | None, function: Callable[..., Any], name: str) -> int:
    if threads is None:
        return THREADS
    if threads < 1:
        raise ValueError(f"tool {name!r}: threads must be 1 or more, not {threads!r}")
    if inspect.iscoroutinefunction(implementation(function)):
        raise ValueError(f"tool {name!r}: an async function runs in no thread; threads= is for plain ones")
    return threads


def check_tool(item: Tool) -> None:
    """Compile the schemas of a local tool, whether they were given or come from a signature.

    Raises:
        SchemaError: As `check_schemas`.
    """
    function = function_called(item.toolset, item.name)
    if function is not None and function.spec is item.spec:
        function.validators()
    else:
        check_schemas(item.spec)


def function_called(toolset: Toolset, name: str) -> FunctionToolset | None:
    """Return the function that calls by the name of an offered tool end at; None if something else runs them."""
    found = route_of(toolset, name)
    if found is not None and isinstance(found[0], FunctionToolset):
        return found[0]
    return None


def check_schemas(spec: ToolSpec) -> tuple[Validator, Validator | None]:
    """Compile the schemas of a local tool: of its arguments and, if it has one, of its output.

    Raises:
        SchemaError: A schema is invalid; names the tool, the schema and the JSON pointer.
    """
    if spec.input_schema.get("type") != "object":
        raise SchemaError(f"tool {spec.name!r}: inputSchema must have type 'object' at its root", pointer="/type")
    arguments = _compiled(spec, "inputSchema", spec.input_schema)
    return arguments, None if spec.output_schema is None else _compiled(spec, "outputSchema", spec.output_schema)


def _compiled(spec: ToolSpec, what: str, schema: JsonObject | bool) -> Validator:
    try:
        return Validator(schema)
    except SchemaError as exc:
        raise SchemaError(f"tool {spec.name!r}: {what}: {exc.message}", pointer=exc.pointer) from None


def is_unbound(item: Tool) -> bool:
    """Whether a tool is an unbound method."""
    return isinstance(item, FunctionTool) and item.unbound


class FunctionToolset(BaseToolset):
    """The toolset of one function.

    Attributes:
        spec: The definition, by whose schemas it checks the arguments and the result of every call.
    """

    __slots__ = ("_function", "_runner", "_signature", "_snapshot", "_validators", "spec")

    def __init__(self, function: Callable[..., Any], spec: ToolSpec, signature: Signature, threads: int) -> None:
        self._function = function
        self.spec = spec
        self._signature = signature
        self._runner = Runner(
            f"tool {spec.name!r}", is_async=inspect.iscoroutinefunction(implementation(function)), threads=threads
        )
        self._snapshot = ToolSnapshot((spec,), version=1)
        self._validators: tuple[Validator, Validator | None] | None = None

    def validators(self) -> tuple[Validator, Validator | None]:
        """Return the compiled schemas of the arguments and, if it has one, of the output.

        Raises:
            SchemaError: As `check_schemas`.
        """
        if self._validators is None:
            self._validators = check_schemas(self.spec)
        return self._validators

    def has_schemas_of(self, spec: ToolSpec) -> bool:
        """Whether a definition, under whichever name, has the schemas of the function's own."""
        return spec.input_schema is self.spec.input_schema and spec.output_schema is self.spec.output_schema

    def snapshot(self) -> ToolSnapshot:
        return self._snapshot

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        name = self.spec.name
        if call.name != name:
            return ToolResult.failure(unknown_tool(call.name, (name,)), kind=ErrorKind.NOT_FOUND)
        try:
            arguments, output = self.validators()
            given = call.arguments
            if not arguments.is_valid(given):
                found = fitted(arguments, given)
                if found is None:
                    return invalid_input(name, arguments.problems(given))
                given = found[0]
            kwargs, problems = self._signature.convert(given)
            if problems:
                return invalid_input(name, problems)
            value = await (self._run(kwargs, ctx) if ctx.timeout is None else self._run_bounded(kwargs, ctx))
            return self._result(value, output)
        except Exception as exc:  # boundary: user code
            error = as_tool_error(exc)
            _log.log(logging.WARNING if error.unexpected else logging.DEBUG, "tool %r failed", name, exc_info=exc)
            return ToolResult.failure(error)

    def _run(self, kwargs: Json, ctx: CallContext) -> Awaitable[Any]:
        for name in self._signature.injected:
            kwargs[name] = ctx
        return self._runner.run(self._function, kwargs, abandon=ctx.timeout is not None)

    async def _run_bounded(self, kwargs: Json, ctx: CallContext) -> Any:
        """Run with `ctx.timeout` as the longest time without progress; a thread that exceeds it is abandoned."""
        import anyio  # see _run

        timeout = ctx.timeout or 0.0
        on_progress = ctx.on_progress

        async def alive(progress: Progress) -> None:
            scope.deadline = anyio.current_time() + timeout
            if on_progress is not None:
                outcome = on_progress(progress)
            else:
                outcome = None
            if inspect.isawaitable(outcome):
                await outcome

        with anyio.move_on_after(timeout) as scope:
            return await self._run(kwargs, ctx.replace(on_progress=alive))
        raise ToolError(
            f"tool {self.spec.name!r} gave no sign of life for {timeout:g} s", kind=ErrorKind.TIMEOUT, retryable=False
        )

    def _result(self, value: Any, output: Validator | None) -> ToolResult:
        if isinstance(value, ToolResult):
            result = value
        else:
            result = typed(self._made(value), self._signature.load)
        if output is None or result.is_error or output.is_valid(result.structured_content):
            return result
        found = describe(output.problems(result.structured_content))
        message = f"tool {self.spec.name!r} returned what its output schema does not allow: {found}"
        return ToolResult.failure(message, kind=ErrorKind.INVALID_OUTPUT)

    def _made(self, value: Any) -> ToolResult:
        """Return the result of a returned value.

        Raises:
            ToolError: JSON cannot express it.
        """
        schema = self.spec.output_schema
        try:
            # The derived schema is for the dumped value. A schema that the author gave is for the value as it is
            # returned.
            if schema is not None and schema is self._signature.output_schema:
                return ToolResult.of_json(self._signature.dump(value))
            return ToolResult.of(value)
        except ToolError as exc:
            if exc.kind is not ErrorKind.INVALID_OUTPUT:
                raise
            reason = exc.message
        except ValueError as exc:
            # Of pydantic, or bytes that are not text.
            reason = str(exc).partition("\n")[0]
        message = f"tool {self.spec.name!r} returned a value of the type {type(value).__name__!r}: {reason}"
        raise ToolError(message, kind=ErrorKind.INVALID_OUTPUT)
