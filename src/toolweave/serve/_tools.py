"""The tools of a server: `tools/list` and `tools/call` over any `Toolset`.

Independent of the transport; a running tool's questions and progress, and calls that become tasks, are elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

# so that the first call of a plain function imports nothing
import toolweave.tools._worker_threads  # noqa: F401  # pyright: ignore[reportUnusedImport]
from toolweave._json_types import as_object
from toolweave.errors import ErrorKind, RequestError, SchemaError, ToolError, printable
from toolweave.protocol import methods
from toolweave.protocol.component_meta import asked_version
from toolweave.protocol.headers import mirrored_arguments, mirroring_problem
from toolweave.schema import Validator
from toolweave.schema.fitting import fitted, fitted_or_same
from toolweave.schema.validate import UsableValidators
from toolweave.serve._middleware import checked
from toolweave.serve._offers.pagination import DEFAULT_PAGE_SIZE, checked_definition, only_for_caller
from toolweave.serve._offers.tool_pages import ToolPages
from toolweave.serve._request_context import HandlerRunner, Work
from toolweave.serve._unknown import not_offered
from toolweave.serve.request import Json, Method, Middleware, Request, with_object
from toolweave.tools import CallContext, ToolCall, ToolResult, ToolsChanged, Toolset, ToolSnapshot, ToolSpec
from toolweave.tools._function import FunctionToolset, check_schemas, function_called
from toolweave.tools.mcp import call_result, tool_definition
from toolweave.tools.result import OUTPUT_MISMATCH_META, invalid_input

_log = logging.getLogger("toolweave.serve")

ExposeErrors: TypeAlias = Literal["message", "masked"]
"""A client's view of an unexpected exception of a tool: its message, or only that there was one."""

# definitions of tools that are gone: calls that outlive their tool come back to them
_SPARE = 64


class TaskStarter(Protocol):
    """Turns calls into tasks: the part of the tasks feature that tool calls use."""

    def takes(self, spec: ToolSpec, request: Request) -> bool:
        """Whether this call becomes a task.

        Raises:
            RequestError: The tool requires tasks and the client does not support them.
        """
        ...

    async def start(self, request: Request, spec: ToolSpec, work: Work) -> Json:
        """Start the work as a task and return the result that names it."""
        ...

    def support(self, spec: ToolSpec, *, modern: bool) -> Json:
        """Return the members of a tool definition that declare its task support."""
        ...


class Tools:
    """Lists and calls the tools of a toolset."""

    def __init__(
        self,
        toolset: Toolset,
        *,
        runner: HandlerRunner,
        tasks: TaskStarter | None = None,
        page_size: int | None = DEFAULT_PAGE_SIZE,
        expose_errors: ExposeErrors | None = None,
        repair_arguments: bool = True,
    ) -> None:
        self._toolset = toolset
        self._repair = repair_arguments
        self._fitting = UsableValidators()
        self._runner = runner
        self._tasks = tasks
        self._expose = expose_errors
        self._pages = ToolPages(page_size, more=self._support)
        self._checked: dict[str, tuple[ToolSpec, _Checks | None]] = {}
        # All of this is derived from one snapshot, `_seen`, and is made anew when the toolset has another one.
        # Snapshots are compared by identity: a toolset returns the same object until something changes.
        self._seen: ToolSnapshot | None = None
        # of those seen, by name and version asked for
        self._found: dict[tuple[str, str | None], _FoundTool] = {}
        self._listed: ToolSnapshot = ToolSnapshot()
        toolset.subscribe(self._changed)

    def use(self, toolset: Toolset) -> None:
        """List and call the tools of another toolset from now on."""
        self._toolset = toolset
        self._seen = None
        self._found.clear()
        toolset.subscribe(self._changed)

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return `tools/list` and `tools/call`."""
        return {methods.TOOLS_LIST: self._list, methods.TOOLS_CALL: self._call}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the `tools` capability."""
        return {"tools": {"listChanged": True}}

    def admit(self, spec: ToolSpec) -> None:
        """Compile the schemas of a local tool before it is offered.

        Raises:
            SchemaError: A schema is invalid; names the tool, the schema and the JSON pointer.
        """
        if spec.server is None:
            self._checked[spec.name] = (spec, _compiled(spec, function_called(self._toolset, spec.name)))

    def admit_all(self) -> None:
        """Compile the schemas of all local tools that are offered now.

        Raises:
            SchemaError: As `admit`.
        """
        snapshot = self._toolset.snapshot()
        for spec in snapshot:
            self.admit(spec)
        self._seen = self._listed = snapshot
        self._found.clear()

    def find(self, name: str, version: str | None = None) -> ToolSpec | None:
        """Return the definition of a tool that is offered under this name, the newest or one version, or None."""
        found = self._find(name, version)
        if found is None:
            return None
        return found[0]

    def is_plain(self, name: str) -> bool:
        """Whether calls of a tool need nothing but their arguments: no scopes, no headers; False for no tool."""
        found = self._find(name)
        if found is None:
            return False
        return found[3]

    def _find(self, name: str, version: str | None = None) -> _FoundTool | None:
        """Return an offered tool, its validators and its name in the toolset, or None."""
        if self._toolset.snapshot() is self._seen:
            known = self._found.get((name, version))
            if known is not None:
                return known
        snapshot = self._snapshot()
        newest = snapshot.find(name)
        if newest is None or newest.name not in snapshot.by_name:  # else it names one version
            return None
        found = self._version_of(newest, name, version, snapshot)
        if found is not None:
            self._found[name, version] = found
        return found

    def _version_of(
        self, newest: ToolSpec, name: str, version: str | None, snapshot: ToolSnapshot
    ) -> _FoundTool | None:
        # A foreign server knows the older versions of its tools, and is sent the requested version with the call.
        if version is None or newest.server is not None:
            spec = newest
        else:
            spec = snapshot.find_version(name, version)
        checks = None if spec is None else self._checks(spec)
        if spec is None or checks is None:
            return None
        if spec is newest:
            shown = spec
            called = name
        else:
            shown = spec.replace(name=newest.name)
            called = spec.name
        if self._repair and spec.server is None:
            function = function_called(self._toolset, spec.name)
            if function is not None:
                checks = checks.beside(function, shown)
        is_plain = not shown.scopes and not mirrored_arguments(shown.input_schema)
        return (shown, checks, called, is_plain)

    def _snapshot(self) -> ToolSnapshot:
        """Return the tools to list: all but local tools with invalid schemas."""
        snapshot = self._toolset.snapshot()
        if snapshot is not self._seen:
            sound = [spec for spec in snapshot if spec.server is not None or self._sound(spec)]
            if len(sound) == len(snapshot):
                self._listed = snapshot
            else:
                self._listed = ToolSnapshot(sound, version=snapshot.version, older=snapshot.older)
            self._seen = snapshot
            self._found.clear()
            # A toolset whose tools come and go announces each that goes, but one that is replaced announces nothing.
            if len(self._checked) > 2 * len(snapshot) + _SPARE:
                self._changed(ToolsChanged(removed=tuple(self._checked.keys() - snapshot.by_name.keys())))
        return self._listed

    async def _list(self, request: Request) -> Json:
        cursor: Any = request.params.get("cursor")
        snapshot = self._snapshot()
        may = request.client.may
        if may is None:
            return self._pages.of(snapshot, cursor, modern=request.modern)
        allowed = [spec for spec in snapshot if may("tools", spec.name, spec.scopes, spec.server)]
        return self._pages.selected(allowed, cursor, modern=request.modern) | only_for_caller(request)

    def _support(self, spec: ToolSpec, modern: bool) -> Json:
        if self._tasks is None:
            return {}
        return self._tasks.support(spec, modern=modern)

    async def _call(self, request: Request) -> Json:
        name = request.text("name")
        given = request.params.get("arguments")
        if self._repair and not isinstance(given, dict):
            request = with_object(request)
            given = request.params.get("arguments")
        arguments = {} if given is None else request.object("arguments")
        version = asked_version(request.params)
        found = self._find(name, version)
        if found is None:
            raise not_offered("tools", _asked(name, version), modern=request.modern)
        spec, checks, called, _ = found
        starts_task = self._tasks is not None and self._tasks.takes(spec, request)
        if starts_task:
            validator = checks.task_arguments
        else:
            validator = checks.arguments
        if validator is not None and not validator.is_valid(arguments):
            # Repaired only after they were refused: arguments that are valid are never changed.
            repaired = fitted(validator, arguments) if self._repair else None
            if repaired is None:
                return call_result(invalid_input(spec.name, validator.problems(arguments)), modern=request.modern)
            arguments = repaired[0]
        work = partial(self._run, request, spec, checks, ToolCall(name=called, arguments=arguments))
        if self._tasks is not None and starts_task:
            return await self._tasks.start(request, spec, work)
        return await self._runner.run(request, work)

    def with_fitting(self, middleware: Sequence[Middleware]) -> Sequence[Middleware]:
        """Return middleware before which the arguments of calls are made to fit.

        Raises:
            TypeError: An item is not middleware.
        """
        found = checked(middleware)
        if found and self._repair:
            return (FitArguments(self), *found)
        return found

    def with_fitted_arguments(self, request: Request) -> Request:
        """Return a call whose arguments fit the schema of its tool, or the request itself."""
        if request.method != methods.TOOLS_CALL:
            return request
        if not isinstance(request.params.get("arguments"), dict):
            request = with_object(request)
        arguments = as_object(request.params.get("arguments"))
        if arguments is None:
            return request
        validator = self._fitting_of(request.params)
        if validator is None:
            found = arguments
        else:
            found = fitted_or_same(validator, arguments)
        if found is arguments:
            return request
        return request.replace(params={**request.params, "arguments": found})

    def _fitting_of(self, params: Mapping[str, Any]) -> Validator | None:
        """Return the validator of the arguments of a call, or None for no tool."""
        name = params.get("name")
        if isinstance(name, str):
            found = self._find(name, asked_version(params))
        else:
            found = None
        if found is None:
            return None
        spec, checks = found[:2]
        if checks.task_arguments is not None:  # a tool of ours
            return checks.task_arguments
        return self._fitting.of(spec.input_schema)

    def prepare(self, request: Request) -> tuple[ToolSpec, Work]:
        """Return the tool of a call that was accepted earlier, and the work that runs it.

        Raises:
            RequestError: The tool was removed.
        """
        name = request.text("name")
        version = asked_version(request.params)
        found = self._find(name, version)
        if found is None:
            raise not_offered("tools", _asked(name, version), modern=request.modern)
        spec, checks, called, _ = found
        call = ToolCall(name=called, arguments=request.object("arguments"))
        return spec, partial(self._run, request, spec, checks, call)

    async def _run(self, request: Request, spec: ToolSpec, checks: _Checks, call: ToolCall, ctx: CallContext) -> Json:
        result = await self._toolset.call(call, ctx)
        if result.is_error:
            return self._failure(request, spec, result)
        # A raw result is that of a foreign server, which has checked it.
        output = checks.output if result.raw is None else None
        if output is not None and not output.is_valid(result.structured_content):
            # the call succeeded, and its text says what came
            if OUTPUT_MISMATCH_META in result.meta:
                return call_result(result.replace(structured_content=None), modern=request.modern)
            problems = output.problems(result.structured_content)
            found = "; ".join(f"{one.path or 'it'} {one.message}" for one in problems)
            _log.error("tool %r returned what its output schema does not allow: %s", spec.name, printable(found))
            result = ToolResult.failure(
                f"tool {spec.name!r} returned what its output schema does not allow",
                kind=ErrorKind.INVALID_OUTPUT,
            )
        return call_result(result, modern=request.modern, output=spec.output_schema)

    def _failure(self, request: Request, spec: ToolSpec, result: ToolResult) -> Json:
        error = result.require_error()
        if error.kind is ErrorKind.NOT_FOUND and self._snapshot().find(spec.name) is None:
            # it went away meanwhile
            raise not_offered("tools", spec.name, modern=request.modern)
        if error.kind is ErrorKind.PROTOCOL and isinstance(error.code, int) and spec.server is None:
            # a handler of ours chose it
            raise RequestError(error.message, code=error.code, data=error.data)
        if error.unexpected and self._masks(request):
            result = ToolResult.failure(ToolError(f"Error executing tool {spec.name!r}"))
        return call_result(result, modern=request.modern)

    def _masks(self, request: Request) -> bool:
        """Whether unexpected errors are masked: by default over HTTP, where callers are untrusted."""
        if self._expose is None:
            return bool(request.headers)
        return self._expose == "masked"

    def _sound(self, spec: ToolSpec) -> bool:
        return self._checks(spec) is not None

    def _checks(self, spec: ToolSpec) -> _Checks | None:
        """Return the validators of a tool, or None for a local tool with invalid schemas."""
        known = self._checked.get(spec.name)
        if known is not None and known[0] is spec:
            return known[1]
        if spec.server is not None:
            checks = _FOREIGN
        else:
            checks = _checks(spec, function_called(self._toolset, spec.name))
        self._checked[spec.name] = (spec, checks)
        return checks

    def _changed(self, change: ToolsChanged) -> None:
        self._pages.forget(change.removed)
        for name in change.removed:
            self._checked.pop(name, None)


class FitArguments:
    """Middleware that makes the arguments of calls fit before other middleware reads them.

    A rule about `count > 3` would not see the number in the text "5", which the tool gets as a number.
    """

    reads_results = False

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def __call__(self, request: Request, call_next: Method) -> Json:
        """Answer a request, a call with the arguments that its tool will get."""
        return await call_next(self._tools.with_fitted_arguments(request))


class _Checks:
    """The checks of the calls of one tool, before and after they run.

    A foreign tool's own server validates, and a function checks every call itself: what comes straight from it is not
    checked again. A toolset around it may change arguments, results or the schemas, so that both are also checked here.

    Attributes:
        arguments: The validator of the arguments of a call that runs now, or None.
        task_arguments: The same for a call that becomes a task, which is refused before the task exists.
        output: The validator of the structured content, or None.
    """

    __slots__ = ("arguments", "output", "task_arguments")

    def __init__(
        self,
        arguments: Validator | None = None,
        output: Validator | None = None,
        *,
        task_arguments: Validator | None = None,
    ) -> None:
        self.arguments = arguments
        if task_arguments is None:
            self.task_arguments = arguments
        else:
            self.task_arguments = task_arguments
        self.output = output

    def beside(self, function: FunctionToolset, spec: ToolSpec) -> _Checks:
        """Return the checks of calls under this definition that the function does not make itself."""
        own = function.spec
        # which its errors say
        same_arguments = spec.input_schema is own.input_schema and spec.name == own.name
        return _Checks(
            None if same_arguments else self.arguments,
            None if spec.output_schema is own.output_schema else self.output,
            task_arguments=self.task_arguments,
        )


_FOREIGN = _Checks()

_FoundTool: TypeAlias = tuple[ToolSpec, _Checks, str, bool]
"""A tool that is offered: its definition under the exposed name, its validators, the name that its calls have, and
whether they need nothing but their arguments."""


def _asked(name: str, version: str | None) -> str:
    if version is None:
        return name
    return f"{name}, version {version}"


def _checks(spec: ToolSpec, function: FunctionToolset | None) -> _Checks | None:
    try:
        return _compiled(spec, function)
    except SchemaError as exc:
        _log.error("%s; the tool is not offered", exc)
        return None


def _compiled(spec: ToolSpec, function: FunctionToolset | None) -> _Checks:
    """Compile the schemas of a tool of ours, or take those that the function of its calls has compiled.

    Raises:
        SchemaError: A schema is invalid; names the tool, the schema and the JSON pointer.
    """
    if function is not None and function.has_schemas_of(spec):
        arguments, output = function.validators()
    else:
        arguments, output = check_schemas(spec)
    checked_definition(tool_definition(spec, modern=True), f"tool {spec.name!r}")
    wrong = mirroring_problem(spec.input_schema)
    if wrong is not None:
        raise SchemaError(f"tool {spec.name!r}: inputSchema: {wrong[0]}", pointer=wrong[1])
    return _Checks(arguments, output)
