"""A toolset as plain functions."""

from __future__ import annotations

import asyncio
import inspect
import threading
import typing
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, Literal

import anyio
import anyio.to_thread
import pytest

from tests.export.offers import registry
from tests.servers.fixtures import echo_command
from tests.tools.doubles import Scripted, spec
from toolweave import ToolResult, connect_mcp, tool
from toolweave.errors import ToolExecutionError
from toolweave.export import plain_functions


def by_name(functions: list[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {one.__name__: one for one in functions}


def signature_of(schema: dict[str, Any]) -> inspect.Signature:
    (function,) = plain_functions(Scripted([spec("one", input_schema=schema)]))
    return inspect.signature(function)


def test_a_function_says_what_it_takes() -> None:
    add = by_name(plain_functions(registry()))["add"]

    assert inspect.iscoroutinefunction(add)
    assert str(inspect.signature(add)) == "(a: int, b: int = 2) -> Any"
    assert typing.get_type_hints(add) == {"a": int, "b": int, "return": Any}
    assert inspect.getdoc(add) == "Adds two numbers.\n\nArgs:\n    a: The first one.\n    b: The second one."


@pytest.mark.parametrize(
    ("schema", "annotation"),
    [
        ({"type": "string"}, str),
        ({"type": ["integer", "null"]}, int | None),
        ({"type": "array", "items": {"type": "number"}}, list[float]),
        ({"type": "array"}, list[Any]),
        ({"type": "object", "properties": {"x": {}}}, dict[str, Any]),
        ({"enum": ["a", "b", None]}, Literal["a", "b"] | None),
        ({"const": 3}, Literal[3]),
        ({"enum": [{"odd": 1}]}, Any),
        ({"anyOf": [{"type": "string"}, {"type": "boolean"}]}, str | bool),
        ({"oneOf": [{"type": "string"}, {"$ref": "#/x"}]}, Any),
        ({"type": "colour"}, Any),
        ({"type": [3]}, Any),
        ({}, Any),
        (True, Any),
    ],
)
def test_a_schema_is_the_nearest_type_of_python(schema: Any, annotation: Any) -> None:
    parameter = signature_of({"type": "object", "properties": {"x": schema}, "required": ["x"]}).parameters["x"]

    assert parameter.annotation == annotation


def test_what_is_needed_comes_first_and_what_python_cannot_name_goes_into_the_rest() -> None:
    signature = signature_of(
        {
            "type": "object",
            "properties": {"late": {"type": "string"}, "more": {}, "a-b": {}, "class": {}, "first": {"type": "string"}},
            "required": ["first"],
        }
    )

    assert [*signature.parameters] == ["first", "late", "more", "more_"]
    assert signature.parameters["late"].default is None
    assert signature.parameters["more_"].kind is inspect.Parameter.VAR_KEYWORD


@pytest.mark.parametrize(
    "says",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"patternProperties": {"^x": {}}},
        {"required": ["z"]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"z": {}}}}},
        {"oneOf": [{"required": ["z"]}, {"required": ["y"]}]},
    ],
)
async def test_a_tool_that_takes_more_than_it_lists_is_given_it(says: dict[str, Any]) -> None:
    inner = Scripted([spec("one", input_schema={"type": "object", "properties": {"a": {}}, **says})])
    (one,) = plain_functions(inner)

    await one(a=1, z=2)

    assert [call.arguments for call, _ in inner.calls] == [{"a": 1, "z": 2}]
    for closed in ({}, {"additionalProperties": False}):
        assert [*signature_of({"type": "object", "properties": {"a": {}}, **closed}).parameters] == ["a"]


async def test_arguments_go_by_name_or_in_order_and_what_is_left_out_is_not_sent() -> None:
    inner = Scripted(
        [
            spec(
                "one",
                input_schema={
                    "type": "object",
                    "properties": {
                        "a": {"type": "string"},
                        "b": {"type": "string"},
                        "n": {"type": ["string", "null"]},
                        "d": {"default": 5},
                        "x-y": {},
                    },
                },
            )
        ]
    )
    (one,) = plain_functions(inner)

    await one("A", b=None, n=None)
    await one(**{"x-y": 1})
    with pytest.raises(TypeError, match="too many positional"):
        await one(1, 2, 3, 4, 5)

    assert [call.arguments for call, _ in inner.calls] == [{"a": "A", "n": None}, {"x-y": 1}]


async def test_a_function_returns_structured_content_or_text_and_raises_errors() -> None:
    @tool
    def fields() -> dict[str, int]:
        """Returns fields."""
        return {"x": 1}

    functions = by_name(plain_functions(registry(fields)))

    assert await functions["fields"]() == {"x": 1}
    assert await functions["add"](1) == 3
    assert "[image" in await functions["picture"]()
    assert await functions["odd_name"](config="x", **{"a-b": "y"}) == "a-b=y, config=x"
    with pytest.raises(ToolExecutionError, match="it broke: rain") as raised:
        await functions["broken"]("rain")
    assert isinstance(raised.value.result, ToolResult)


def test_blocking_functions_work_in_a_script() -> None:
    functions = by_name(plain_functions(registry(), blocking=True))

    assert not inspect.iscoroutinefunction(functions["add"])
    assert functions["add"](1, b=4) == 5
    assert functions["whoami"]() == "timeout None"
    with pytest.raises(ToolExecutionError, match="it broke"):
        functions["broken"]("rain")


async def test_a_blocking_function_refuses_to_stop_the_loop_it_would_wait_for() -> None:
    add = by_name(plain_functions(registry(), blocking=True))["add"]

    with pytest.raises(RuntimeError, match="without blocking=True"):
        add(1)


async def test_a_blocking_function_in_a_thread_runs_on_the_loop_that_has_the_connection() -> None:
    async with connect_mcp(echo_command()) as connection:
        echo = by_name(plain_functions(connection, blocking=True))["echo"]

        texts = [await anyio.to_thread.run_sync(lambda n=n: echo(text=f"hi {n}")) for n in range(3)]

    assert texts == ["hi 0", "hi 1", "hi 2"]


async def test_a_call_that_is_cancelled_on_its_loop_ends_the_wait_of_its_thread() -> None:
    started = anyio.Event()
    ended: list[BaseException] = []

    async def forever() -> None:
        started.set()
        await anyio.sleep_forever()

    (function,) = plain_functions([forever], blocking=True)
    before = asyncio.all_tasks()

    def work() -> None:
        try:
            function()
        except CancelledError as exc:
            ended.append(exc)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    await started.wait()
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await anyio.to_thread.run_sync(thread.join, abandon_on_cancel=True)

    assert len(ended) == 1


def test_functions_of_a_loop_that_has_ended_say_so() -> None:
    async def export() -> Callable[..., Any]:
        return by_name(plain_functions(registry(), blocking=True))["add"]

    add = asyncio.run(export())

    with pytest.raises(RuntimeError, match="has ended; export them again"):
        add(1)
