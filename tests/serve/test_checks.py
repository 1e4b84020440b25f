"""How often the schemas of a served tool are derived, compiled and checked: counted as Python runs them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pydantic import GetJsonSchemaHandler

from toolweave import ErrorKind, connect_mcp, tool
from toolweave.connect import McpConnection
from toolweave.schema import Validator
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import BaseToolset, CallContext, ToolCall, ToolRegistry, ToolResult, ToolSnapshot

CHECKS = (Validator.is_valid, Validator.problems)


@contextmanager
def counted(*functions: Callable[..., Any]) -> Generator[Counter[str]]:
    """Count the calls of these functions in this thread; nothing about them changes."""
    names = {function.__code__: function.__name__ for function in functions}
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in names:
            calls[names[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def add(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}


def server_of(tools: Any) -> McpServer:
    return create_mcp_server(name="sums", version="1", tools=tools)


def connected(server: McpServer) -> McpConnection:
    """Connect a client that checks nothing itself."""
    return connect_mcp({"server": server, "validate_input": False, "validate_output": "off"})  # type: ignore[return-value]


async def checks_of_a_call(server: McpServer, name: str = "add") -> int:
    async with connected(server) as connection:
        await connection.call_tool(name, {"a": 1, "b": 2})
        with counted(*CHECKS) as calls:
            result = await connection.call_tool(name, {"a": 1, "b": 2})
    assert result.structured_content == {"sum": 3}
    return calls.total()


class Odd(int):
    """A type that counts how often it is described."""

    described = 0

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler(int)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        cls.described += 1
        return handler(schema)


def test_a_tool_derives_each_of_its_schemas_once() -> None:
    def count(a: Odd) -> int:
        return a

    def listed() -> dict[str, Odd]:
        return {}

    Odd.described = 0
    tool(count)
    assert Odd.described == 1
    tool(listed)
    assert Odd.described == 2


async def test_a_served_function_compiles_each_of_its_schemas_once() -> None:
    with counted(Validator.__init__) as compiled:
        server = server_of([add])
        async with connected(server) as connection:
            await connection.call_tool("add", {"a": 1, "b": 2})

    assert compiled.total() == 2


async def test_the_arguments_and_the_result_of_a_served_function_are_checked_once() -> None:
    named = ToolRegistry([add]).prefixed("x").renamed({"x_add": "add"})

    assert await checks_of_a_call(server_of([add])) == 2
    assert await checks_of_a_call(server_of([named])) == 2


async def test_a_toolset_that_changes_results_is_checked_where_it_is_served() -> None:
    broken = ToolRegistry([add]).transformed(lambda result, _: result.replace(structured_content={"sum": "three"}))

    async with connected(server_of([broken])) as connection:
        result = await connection.call_tool("add", {"a": 1, "b": 2})

    assert result.is_error
    assert "output schema" in result.text


async def test_a_toolset_that_describes_other_arguments_is_checked_by_its_own_schema() -> None:
    narrower = ToolRegistry([add]).enhanced(
        lambda spec: {**spec.input_schema, "properties": {"a": {"type": "integer", "maximum": 5}, "b": {}}}
    )

    async with connected(server_of([narrower])) as connection:
        result = await connection.call_tool("add", {"a": 6, "b": 2})

    assert result.require_error().kind is ErrorKind.INVALID_INPUT
    assert "maximum" in result.text or "5" in result.text


async def test_a_toolset_that_changes_arguments_gets_only_those_that_its_schema_takes() -> None:
    given: list[Any] = []

    class Swapped(BaseToolset):
        def __init__(self) -> None:
            self.inner = ToolRegistry([add])

        def snapshot(self) -> ToolSnapshot:
            return self.inner.snapshot()

        async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
            given.append(call.arguments)
            return await self.inner.call(call.replace(arguments={"a": 1, "b": 2}), ctx)

    async with connected(server_of([Swapped()])) as connection:
        result = await connection.call_tool("add", {"a": "one"})

    assert result.is_error
    assert given == []


async def test_a_tool_that_is_replaced_by_one_with_its_definition_is_checked_anew() -> None:
    registry = ToolRegistry([add])
    wrong = ToolRegistry([add]).transformed(lambda result, _: result.replace(structured_content={"sum": None}))

    async with connected(server_of([registry])) as connection:
        assert not (await connection.call_tool("add", {"a": 1, "b": 2})).is_error
        registry.add(wrong.tools["add"], on_conflict="replace")
        result = await connection.call_tool("add", {"a": 1, "b": 2})

    assert result.is_error


async def test_a_tool_under_another_name_is_refused_by_that_name() -> None:
    async with connected(server_of([ToolRegistry([add]).prefixed("x")])) as connection:
        result = await connection.call_tool("x_add", {"a": "one", "b": 2})

    assert "'x_add'" in result.text
