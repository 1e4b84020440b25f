"""Python functions as tools.

Reads signatures through `schema` and runs functions; knows no server and no model.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, get_args, overload

from toolweave.errors import ErrorKind, SchemaError, ToolError, as_tool_error
from toolweave.schema.annotations import implementation
from toolweave.schema.signature import MappingSignature, Signature, derive
from toolweave.schema.validate import Validator, describe
from toolweave.tools.call import CallContext, Progress, ToolCall
from toolweave.tools.media import File
from toolweave.tools.names import unknown_tool
from toolweave.tools.result import ContentBlock, ToolResult, invalid_input
from toolweave.tools.spec import Tool, ToolSpec
from toolweave.tools.toolset import ToolsChanged, ToolSnapshot, Unsubscribe

__all__ = ["FunctionTool", "is_unbound", "tool"]

_log = logging.getLogger("toolweave.tools")

P = ParamSpec("P")
R = TypeVar("R")

_OPAQUE: tuple[type, ...] = (ToolResult, File, *get_args(ContentBlock))


class FunctionTool(Tool, Generic[P, R]):
    """A tool that runs a Python function, and stays that function for whoever calls it directly.

    Attributes:
        function: The function as it was given.
    """

    __slots__ = ("_signature", "function")

    def __init__(self, function: Callable[P, R], spec: ToolSpec, signature: Signature) -> None:
        super().__init__(spec, _FunctionToolset(function, spec, signature))
        self.function = function
        self._signature = signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no validation, no result object."""
        return self.function(*args, **kwargs)

    @property
    def unbound(self) -> bool:
        """Whether it is a method that still wants its object."""
        return self._signature.unbound and not inspect.ismethod(self.function)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., R]:
        """Return the tool of a bound method for a tool defined in a class body."""
        if instance is None or not self._signature.unbound:
            return self
        bound: Callable[..., R] = self.function.__get__(instance, owner)
        return FunctionTool(bound, self.spec, self._signature)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> FunctionTool[P, R]: ...
def tool(  # noqa: PLR0913  # keyword-only, each with a default of its own
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Any:
    """Make a tool of a function; use as `@tool`, `@tool(name=...)` or `tool(function)`.

    The input schema comes from the annotations, defaults, `Annotated` texts and the docstring's
    descriptions of the parameters. A parameter annotated `CallContext` receives the call's context
    and is not in the schema. A plain function runs in a worker thread, an async one in the event loop.

    Args:
        function: A function, method, `functools.partial` or object with `__call__`.
        name: The tool's name; the function's by default.
        title: A name for people.
        description: What it does; the docstring without its sections on parameters by default.
        annotations: Behaviour hints, such as `{"readOnlyHint": True}`.
        icons: Icon objects of the MCP specification.
        input_schema: JSON Schema of the arguments, taken as it is; the function then takes one parameter beside a
            `CallContext`, the arguments as a mapping (requirement R97).
        output_schema: JSON Schema of the structured content; by default derived from a return
            annotation that is a model, a dataclass, a TypedDict or a dict.
        meta: The definition's `_meta`.

    Raises:
        SchemaError: Naming the function and the parameter that has no place in a JSON object.
    """
    if function is None:
        options = {"name": name, "title": title, "description": description, "annotations": annotations, "icons": icons}
        return functools.partial(tool, **options, input_schema=input_schema, output_schema=output_schema, meta=meta)
    if isinstance(function, str):
        raise TypeError(f"the first argument of a tool is its function; its name is given as name={function!r}")
    if isinstance(function, FunctionTool):
        function = function.function  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if input_schema is None:
        signature = derive(function, injected=CallContext, opaque=_OPAQUE)
    else:
        signature = MappingSignature(function, input_schema, injected=CallContext)
    if name is None and signature.name == "<lambda>":
        raise SchemaError("a lambda has no name to expose; give it one with tool(..., name=...)")
    spec = ToolSpec(
        name=name or signature.name,
        title=title,
        description=signature.description if description is None else description,
        input_schema=input_schema or {**signature.input_schema, "title": title or name or signature.name},
        output_schema=signature.output_schema if output_schema is None else output_schema,
        annotations=annotations,
        icons=tuple(icons),
        meta={} if meta is None else meta,
    )
    return FunctionTool(function, spec, signature)


def _is_its_own(exc: BaseException) -> bool:
    """Whether it is a cancellation that nobody asked this task for: of something that a function waited for."""
    import asyncio  # who runs a tool has it loaded

    task = asyncio.current_task()
    return isinstance(exc, asyncio.CancelledError) and task is not None and not task.cancelling()


def is_unbound(item: Tool) -> bool:
    """Whether a tool is a method that still wants its object."""
    return isinstance(item, FunctionTool) and item.unbound


class _FunctionToolset:
    """The toolset of one function."""

    __slots__ = ("_function", "_is_async", "_output", "_signature", "_snapshot", "_spec")

    def __init__(self, function: Callable[..., Any], spec: ToolSpec, signature: Signature) -> None:
        self._function = function
        self._spec = spec
        self._signature = signature
        self._is_async = inspect.iscoroutinefunction(implementation(function))
        self._snapshot = ToolSnapshot((spec,), version=1)
        self._output: Validator | None = None

    def snapshot(self) -> ToolSnapshot:
        return self._snapshot

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        return lambda: None  # one function never changes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        name = self._spec.name
        if call.name != name:
            return ToolResult.failure(unknown_tool(call.name, (name,)), kind=ErrorKind.NOT_FOUND)
        try:
            kwargs, problems = self._signature.bind(call.arguments)
            if problems:
                return invalid_input(name, problems)
            value = await (self._run(kwargs, ctx) if ctx.timeout is None else self._run_bounded(kwargs, ctx))
            return self._result(value)
        except Exception as exc:  # boundary: user code
            error = as_tool_error(exc)
            _log.log(logging.WARNING if error.unexpected else logging.DEBUG, "tool %r failed", name, exc_info=exc)
            return ToolResult.failure(error)
        except BaseException as exc:
            if not _is_its_own(exc):
                raise
            return ToolResult.failure(f"tool {name!r} failed: what it waited for was cancelled")

    async def _run(self, kwargs: dict[str, Any], ctx: CallContext) -> Any:
        for name in self._signature.injected:
            kwargs[name] = ctx
        if self._is_async:
            return await self._function(**kwargs)
        from anyio import to_thread  # 15 ms; tools are defined where none is run

        function = functools.partial(self._function, **kwargs)
        value = await to_thread.run_sync(function, abandon_on_cancel=ctx.timeout is not None)
        return await value if inspect.isawaitable(value) else value

    async def _run_bounded(self, kwargs: dict[str, Any], ctx: CallContext) -> Any:
        """Run with `ctx.timeout` as the longest silence; a thread that passes it is left behind."""
        import anyio  # see _run

        timeout = ctx.timeout or 0.0
        on_progress = ctx.on_progress

        async def alive(progress: Progress) -> None:
            scope.deadline = anyio.current_time() + timeout
            outcome = on_progress(progress) if on_progress is not None else None
            if inspect.isawaitable(outcome):
                await outcome

        with anyio.move_on_after(timeout) as scope:
            return await self._run(kwargs, replace(ctx, on_progress=alive))
        raise ToolError(
            f"tool {self._spec.name!r} gave no sign of life for {timeout:g} s", kind=ErrorKind.TIMEOUT, retryable=False
        )

    def _result(self, value: Any) -> ToolResult:
        schema = self._spec.output_schema
        if schema is None:
            return ToolResult.of(value)
        result = value if isinstance(value, ToolResult) else self._structured(value)
        if result.is_error:
            return result
        if self._output is None:
            self._output = Validator(schema)
        if self._output.is_valid(result.structured_content):
            return result
        found = describe(self._output.problems(result.structured_content))
        message = f"tool {self._spec.name!r} returned what its output schema does not allow: {found}"
        return ToolResult.failure(message, kind=ErrorKind.INVALID_OUTPUT)

    def _structured(self, value: Any) -> ToolResult:
        if self._spec.output_schema is self._signature.output_schema:
            return ToolResult.of_json(self._signature.dump(value))
        return ToolResult.of(value)
