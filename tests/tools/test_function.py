"""Python functions as tools."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import sys
import threading
from collections import deque
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import PurePath
from typing import Annotated, Any

import anyio
import anyio.from_thread
import pytest
from pydantic import BaseModel, Field

from tests.programs import ran
from toolweave import (
    CallContext,
    ErrorKind,
    ImageContent,
    Progress,
    TextContent,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    tool,
)
from toolweave.errors import SchemaError, ToolExecutionError


@dataclass
class Point:
    x: int
    y: int


class Report(BaseModel):
    total: int
    rows: list[str] = []


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first.
    """
    return a + b


@pytest.mark.requirement("R48", "R89", "R108")
def test_a_decorated_function_has_what_every_tool_has() -> None:
    assert isinstance(add, Tool)
    assert (add.name, add.original_name, add.server, add.title) == ("add", "add", None, None)
    assert add.description == "Add two numbers."
    assert add.parameters == add.input_schema
    assert add.input_schema["properties"]["a"] == {"type": "integer", "description": "The first."}
    assert add.output_schema == {"type": "integer"}
    assert repr(add) == "<Tool 'add'>"


def test_a_decorated_function_is_still_the_function() -> None:
    assert add(1, b=2) == 3


def test_everything_about_the_tool_can_be_said_in_the_decorator() -> None:
    @tool(
        name="sum",
        title="Sum",
        description="Sums.",
        annotations={"readOnlyHint": True, "acme/cost": "high"},
        output_schema={"type": "object"},
        meta={"team": "math"},
    )
    async def f(a: int) -> dict[str, int]:
        """Not this."""
        return {"a": a}

    assert (f.name, f.title, f.description) == ("sum", "Sum", "Sums.")
    assert f.input_schema["title"] == "Sum"
    assert f.output_schema == {"type": "object"}
    assert f.spec.meta == {"team": "math"}
    assert f.spec.hint("readOnlyHint") is True
    assert f.spec.annotations == {"readOnlyHint": True, "acme/cost": "high"}
    assert f.spec.hint("openWorldHint") is None


RETURNED: list[tuple[Any, str, Any]] = [
    ("plain", "plain", None),
    (None, "null", None),
    ([1, 2, 3], "[1, 2, 3]", [1, 2, 3]),
    (True, "true", True),
    (3.5, "3.5", 3.5),
    ({"ä": 1}, '{"ä": 1}', {"ä": 1}),
    (Point(1, 2), '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
    (Report(total=1), '{"total": 1, "rows": []}', {"total": 1, "rows": []}),
    ([Report(total=1)], '[{"total": 1, "rows": []}]', [{"total": 1, "rows": []}]),
    ({"when": PurePath("odd")}, '{"when": "odd"}', {"when": "odd"}),
    (deque([1]), "[1]", [1]),
    (IPv4Address("127.0.0.1"), "127.0.0.1", "127.0.0.1"),
    (ToolResult(structured_content=1), "1", 1),
    (TextContent(text="block"), "block", None),
    ([TextContent(text="a"), ImageContent(data="QQ==", mime_type="image/png")], "a\n[image: image/png, 1 B]", None),
]


@pytest.mark.requirement("R84", "C18")
@pytest.mark.parametrize("value, text, structured", RETURNED, ids=repr)
async def test_whatever_a_function_returns_becomes_a_result(value: Any, text: str, structured: Any) -> None:
    @tool
    def f() -> Any:
        return value

    result = await f.execute()

    assert not result.is_error
    assert (result.text, result.structured_content) == (text, structured)


@pytest.mark.requirement("C16", "C19")
async def test_an_image_that_a_function_returns_reaches_the_caller_as_an_image() -> None:
    @tool
    def draw() -> ImageContent:
        return ImageContent(data="QUI=", mime_type="image/png")

    block = (await draw.execute()).content[0]

    assert isinstance(block, ImageContent)
    assert (block.decode(), block.mime_type) == (b"AB", "image/png")
    assert draw.output_schema is None


@pytest.mark.requirement("R54", "R108")
async def test_async_functions_run_too() -> None:
    @tool
    async def double(n: int) -> int:
        await anyio.lowlevel.checkpoint()
        return 2 * n

    assert (await double.execute({"n": 2})).structured_content == 4


async def test_a_plain_function_runs_in_a_worker_thread_with_the_callers_context_variables() -> None:
    user = contextvars.ContextVar("user", default="nobody")
    user.set("ada")

    @tool
    def who() -> list[Any]:
        return [user.get(), threading.get_ident()]

    name, thread = (await who.execute()).structured_content

    assert name == "ada"
    assert thread != threading.get_ident()


async def test_plain_functions_do_not_wait_for_each_other() -> None:
    both = threading.Barrier(2)

    @tool
    def meet() -> None:
        both.wait(5)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meet.execute)
            tasks.start_soon(meet.execute)


@pytest.mark.requirement("R60", "R68", "R104", "R108")
async def test_what_a_function_raises_is_an_error_result_without_a_stack(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def fail() -> None:
        raise ValueError("the disk is full")

    with caplog.at_level(logging.DEBUG, "toolweave.tools"):
        result = await fail.execute()

    assert result.is_error
    assert result.error is not None
    assert result.error.kind is ErrorKind.EXECUTION_FAILED
    assert result.text == "ValueError: the disk is full"
    assert "Traceback" not in str(result)
    assert caplog.records[0].exc_info is not None


@pytest.mark.requirement("R92")
async def test_a_tool_error_keeps_its_kind_code_and_data() -> None:
    @tool
    async def find() -> None:
        raise ToolError("no such row", kind="not_found", code=404, data={"id": 7})

    error = (await find.execute()).require_error()

    assert (error.kind, error.code, error.data) == (ErrorKind.NOT_FOUND, 404, {"id": 7})


async def test_a_function_that_raises_stop_iteration_does_not_hang() -> None:
    @tool
    def stop() -> None:
        raise StopIteration

    with anyio.fail_after(5):
        assert (await stop.execute()).is_error


@pytest.mark.requirement("C2")
async def test_call_raises_what_execute_returns() -> None:
    @tool
    def fail() -> None:
        raise ToolError("no", code="E7")

    with pytest.raises(ToolExecutionError, match="no") as caught:
        await fail.call()

    assert (caught.value.tool, caught.value.code) == ("fail", "E7")
    assert caught.value.result.is_error
    assert (await add.call({"a": 1})).structured_content == 2


@pytest.mark.requirement("C2")
async def test_cancellation_goes_through() -> None:
    @tool
    async def wait() -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0) as scope:
        await wait.execute()

    assert scope.cancelled_caught


async def test_a_function_that_waited_for_what_was_cancelled_has_failed_and_cancels_nobody() -> None:
    @tool
    async def wait() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with anyio.create_task_group() as tasks:
        result = await wait.execute()
        assert not tasks.cancel_scope.cancel_called
        assert result.require_error().kind is ErrorKind.EXECUTION_FAILED
        assert result.text == "tool 'wait' failed: what it waited for was cancelled"


@pytest.mark.requirement("R46", "R94", "C10")
async def test_arguments_that_do_not_fit_are_an_error_the_model_can_fix() -> None:
    result = await add.execute({"a": "one", "c": 2})

    error = result.require_error()
    assert error.kind is ErrorKind.INVALID_INPUT
    assert error.message == (
        "invalid arguments for tool 'add':\n"
        '- "a": expected integer, got string "one"\n'
        '- "c" is not a known property (allowed: a, b)'
    )
    assert error.data["problems"][0] == {"path": "a", "message": 'expected integer, got string "one"'}
    assert (await add.execute()).text == "invalid arguments for tool 'add': missing required property \"a\""
    assert (await add.execute([1])).require_error().kind is ErrorKind.INVALID_INPUT  # type: ignore[arg-type]


@pytest.mark.requirement("R95")
async def test_the_context_is_handed_to_whoever_asks_for_it() -> None:
    @tool
    async def whoami(ctx: CallContext, greeting: str = "hi") -> str:
        return f"{greeting} {ctx.state['user']}"

    assert "ctx" not in whoami.input_schema["properties"]
    assert (await whoami.execute({}, CallContext(state={"user": "ada"}))).text == "hi ada"
    assert (await whoami.execute({"ctx": {}})).require_error().kind is ErrorKind.INVALID_INPUT


@pytest.mark.requirement("D16")
async def test_a_parameter_may_have_any_name() -> None:
    @tool
    def odd(self: str, name: str, tool_name: str, arguments: str, function: str, ctx: str) -> list[str]:
        return [self, name, tool_name, arguments, function, ctx]

    names = ["self", "name", "tool_name", "arguments", "function", "ctx"]

    assert (await odd.execute(dict(zip(names, names, strict=True)))).structured_content == names


async def test_progress_reaches_the_caller_from_async_and_from_threads() -> None:
    seen: list[Progress] = []

    async def slowly(progress: Progress) -> None:
        seen.append(progress)

    @tool
    async def by_loop(ctx: CallContext) -> None:
        await ctx.progress(1, 2, "half")

    @tool
    def by_thread(ctx: CallContext) -> None:
        anyio.from_thread.run(ctx.progress, 2)

    await by_loop.execute({}, CallContext(on_progress=seen.append))
    await by_thread.execute({}, CallContext(on_progress=slowly))
    await by_loop.execute()

    assert seen == [Progress(progress=1, total=2, message="half"), Progress(progress=2)]


async def test_silence_beyond_the_timeout_is_an_error_and_not_a_hang() -> None:
    released = threading.Event()

    @tool
    async def sleepy() -> None:
        await anyio.sleep_forever()

    @tool
    def stuck() -> None:
        released.wait(30)

    with anyio.fail_after(5):
        results = [await one.execute({}, CallContext(timeout=0.01)) for one in (sleepy, stuck)]
    released.set()

    assert [result.require_error().kind for result in results] == [ErrorKind.TIMEOUT] * 2
    assert "'sleepy' gave no sign of life for 0.01 s" in results[0].text


async def test_progress_is_a_sign_of_life() -> None:
    seen: list[float] = []

    async def note(progress: Progress) -> None:
        seen.append(progress.progress)

    @tool
    async def busy(ctx: CallContext) -> list[float]:
        deadlines = [anyio.current_effective_deadline()]
        for step in range(2):
            await ctx.progress(step)
            deadlines.append(anyio.current_effective_deadline())
        return deadlines

    # shorter than the bound of the test, which would be the effective deadline
    for ctx in (CallContext(timeout=10, on_progress=note), CallContext(timeout=10)):
        first, second, third = (await busy.execute({}, ctx)).structured_content
        assert first < second < third
    assert seen == [0, 1]


@pytest.mark.requirement("C15", "C18")
async def test_a_returned_object_is_checked_against_its_output_schema() -> None:
    @tool
    def good() -> Report:
        return Report(total=1)

    @tool
    def bad() -> Report:
        return {"totl": 1}  # type: ignore[return-value]

    @tool
    def by_hand() -> Report:
        return ToolResult(structured_content={"total": "x"})  # type: ignore[return-value]

    @tool(output_schema={"type": "object", "required": ["a"]})
    def other() -> str:
        return "no object"

    @tool
    def refused() -> Report:
        return ToolResult.failure("no")  # type: ignore[return-value]

    for _ in range(2):
        assert (await good.execute()).structured_content == {"total": 1, "rows": []}
    for one in (bad, by_hand, other):
        error = (await one.execute()).require_error()
        assert error.kind is ErrorKind.INVALID_OUTPUT
        assert repr(one.name) in error.message
    assert (await refused.execute()).text == "no"


async def test_methods_partials_and_callable_objects_are_tools_too() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        @tool
        def more(self, by: int = 1) -> int:
            """Count."""
            self.count += by
            return self.count

        @tool(name="later")
        async def more_later(self, by: int) -> int:
            self.count += by
            return self.count

        async def __call__(self, by: int) -> int:
            self.count += by
            return self.count

        plain = add

    counter = Counter()

    assert list(counter.more.input_schema["properties"]) == ["by"]
    assert counter.more(by=2) == 2
    assert (await counter.more.execute({"by": 2})).structured_content == 4
    assert (await counter.more_later.execute({"by": 2})).structured_content == 6
    assert (await tool(counter).execute({"by": 1})).structured_content == 7
    assert (await tool(functools.partial(add.function, 40)).execute({"b": 2})).structured_content == 42
    assert (await counter.plain.execute({"a": 1})).structured_content == 2
    assert isinstance(Counter.more, Tool)
    assert Counter().more.spec is Counter.more.spec


async def test_what_a_plain_function_returns_to_be_awaited_is_awaited() -> None:
    async def inner() -> int:
        return 5

    def outer() -> Any:
        return inner()

    assert (await tool(outer).execute()).structured_content == 5


def test_a_lambda_needs_a_name_and_a_tool_can_be_made_again_under_another() -> None:
    nameless: Any = lambda: None  # noqa: E731  # a lambda is the subject
    with pytest.raises(SchemaError, match="name"):
        tool(nameless)

    again = tool(add, name="plus")

    assert (again.name, again.function) == ("plus", add.function)


async def test_the_toolset_of_a_function_offers_that_function_only() -> None:
    toolset = add.toolset

    assert [spec.name for spec in toolset.snapshot()] == ["add"]
    assert toolset.subscribe(lambda change: None)() is None
    async with toolset:
        result = await toolset.call(ToolCall(name="subtract"), CallContext())
    assert result.require_error().kind is ErrorKind.NOT_FOUND


async def test_a_validator_that_breaks_is_an_error_result() -> None:
    class Odd(BaseModel):
        n: Annotated[int, Field()]

        def model_post_init(self, context: Any) -> None:
            raise RuntimeError("broken")

    @tool
    def f(odd: Odd) -> None: ...

    assert (await f.execute({"odd": {"n": 1}})).text == "RuntimeError: broken"


@pytest.mark.slow
def test_importing_the_rooms_loads_nothing_heavy() -> None:
    code = """
import sys
import toolweave, toolweave.tools, toolweave.schema
toolweave.ToolRegistry, toolweave.ServerConfig
heavy = {"pydantic", "jsonschema_rs", "anyio", "mcp", "pydantic_core"}
first = sorted(heavy & sys.modules.keys())
"""
    done = ran([sys.executable, "-c", code + "print(first)"], check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.requirement("R89")
def test_a_function_without_a_docstring_has_no_description_of_anybody_elses() -> None:
    def silent(a: int) -> int:
        return a

    assert [tool(one, name="a").description for one in (silent, functools.partial(silent, 1))] == ["", ""]


def test_what_python_says_of_its_own_objects_is_no_description(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __call__(self, a: int) -> int:
            return a

    class Telling(Silent):
        """Tells."""

    class Made:
        def __init__(self, a: int) -> None:
            self.a = a

    def silent(a: int, b: int) -> int:
        return a + b

    def telling(a: int, b: int) -> int:
        """Adds."""
        return a + b

    def described() -> list[str]:
        partials = [functools.partial(silent, 1), functools.partial(telling, 1), functools.partial(Silent())]
        return [tool(one, name="a").description for one in (Silent(), Telling(), Made, *partials)]

    assert described() == ["", "Tells.", "", "", "Adds.", ""]
    real = inspect.isroutine

    def isroutine(one: object) -> bool:
        return isinstance(one, functools.partial) or real(one)

    monkeypatch.setattr(inspect, "isroutine", isroutine)
    assert described() == ["", "Tells.", "", "", "Adds.", ""]  # as on Python 3.14, where a partial is a descriptor
