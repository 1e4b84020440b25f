"""Results for programs: the value of a result as its own type, and errors that are raised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from toolweave import ErrorKind, Tool, ToolError, ToolResult, connect_mcp, create_mcp_server, tool
from toolweave.errors import SchemaError, ToolExecutionError
from toolweave.testing import MemoryServer


@dataclass
class Place:
    name: str
    since: date


class Town(BaseModel):
    name: str
    twin: Town | None = None


def dated() -> Place:
    return Place("Oslo", date(1048, 1, 1))


def modelled() -> Town:
    return Town(name="Oslo", twin=Town(name="Madison"))


def day() -> date:
    return date(1048, 1, 1)


def several() -> list[Town]:
    return [Town(name="Oslo"), Town(name="Madison")]


def number() -> int:
    return 42


def text() -> str:
    return "hello"


def untyped():  # as users write them
    return {"a": 1}


@pytest.mark.parametrize(
    "function, data",
    [
        (dated, dated()),
        (modelled, modelled()),
        (day, day()),
        (several, several()),
        (number, 42),
        (text, "hello"),
        (untyped, {"a": 1}),
    ],
)
async def test_the_data_of_a_local_tool_is_of_the_type_that_its_function_returns(
    function: Callable[[], Any], data: object
) -> None:
    assert (await tool(function).execute()).data == data


async def test_the_data_of_a_servers_tool_is_a_model_of_its_output_schema() -> None:
    async with connect_mcp(create_mcp_server(name="s", version="1", tools=[dated, modelled, text])) as server:
        assert (await server.call_tool("dated")).data.name == "Oslo"
        town = (await server.call_tool("modelled")).data
        assert town.twin.name == "Madison"
        assert type(town) is type((await server.call_tool("modelled")).data)
        assert (await server.call_tool("text")).data == "hello"


def foreign(schema: dict[str, Any], value: object) -> MemoryServer:
    def answer(arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(structured_content=value)

    made = tool(answer, input_schema={"type": "object"}, output_schema=schema)
    return MemoryServer([made], name="foreign")


@pytest.mark.parametrize(
    "schema, value, data",
    [
        ({"type": "object"}, {"a": 1}, {"a": 1}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
        (
            {"type": "object", "properties": {"result": {"type": "integer"}}, "x-fastmcp-wrap-result": True},
            {"result": 3},
            3,
        ),
        ({"type": "object", "properties": {"x": {"not": {"type": "string"}}}}, {"x": 1}, 1),
    ],
)
async def test_data_stays_plain_where_a_schema_names_no_field_and_is_unwrapped_where_it_says_so(
    schema: dict[str, Any], value: object, data: object
) -> None:
    async with connect_mcp(foreign(schema, value)) as server:
        found = (await server.call_tool("answer")).data
    assert getattr(found, "x", found) == data


def even(value: int) -> int:
    if value % 2:
        raise ValueError("it must be even")
    return value


async def test_data_that_does_not_fit_its_type_is_the_structured_content() -> None:
    def odd() -> Annotated[int, AfterValidator(even)]:
        return 3

    assert (await tool(odd).execute()).data == 3


async def test_what_a_function_returns_instead_of_its_type_is_an_error() -> None:
    def wrong() -> int:
        return ["soon"]  # pyright: ignore[reportReturnType]

    result = await tool(wrong).execute()

    assert result.error is not None
    assert result.error.kind is ErrorKind.INVALID_OUTPUT
    assert "tool 'wrong' returned what its output schema does not allow: expected integer, got array" in result.text


def test_data_of_an_error_and_of_a_result_without_a_type_is_what_there_is() -> None:
    assert ToolResult.failure("no").data == "no"
    assert ToolResult(structured_content=[1]).data == [1]
    assert ToolResult().data == ""


@pytest.mark.parametrize("transport", ["local", "server"])
@pytest.mark.parametrize(
    "function, kind, data",
    [
        (dated, Place, dated()),
        (modelled, Town, modelled()),
        (several, list[Town], several()),
        (number, int, 42),
        (number, str | int, 42),
        (text, str, "hello"),
    ],
)
async def test_data_is_of_the_type_that_is_asked_for_wherever_the_tool_runs(
    function: Callable[[], Any], kind: Any, data: object, transport: str
) -> None:
    if transport == "local":
        result = await tool(function).execute()
    else:
        async with connect_mcp(create_mcp_server(name="s", version="1", tools=[function])) as server:
            result = await server.call_tool(function.__name__)

    found = result.data_as(kind)

    assert found == data
    assert type(found) is type(data)


async def test_a_text_that_is_json_is_read_as_the_type_that_is_asked_for() -> None:
    result = ToolResult.of('{"name": "Oslo", "since": "1048-01-01"}')

    assert result.data_as(Place) == Place(name="Oslo", since=date(1048, 1, 1))
    assert result.data_as(str) == '{"name": "Oslo", "since": "1048-01-01"}'
    assert ToolResult.of("5").data_as(int) == 5


def test_data_of_another_type_than_asked_for_is_an_error_without_the_values() -> None:
    for result in (ToolResult(structured_content={"name": ["s3cret"]}), ToolResult.of("s3cret")):
        with pytest.raises(ToolError, match="the result is not of the type that was asked for") as caught:
            result.data_as(Place)
        assert caught.value.kind is ErrorKind.INVALID_OUTPUT
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ToolExecutionError, match="no"):
        ToolResult.failure("no").data_as(str)
    with pytest.raises(SchemaError, match="has no JSON form"):
        ToolResult.of("x").data_as(type(iter([])))


async def test_a_result_that_is_no_error_returns_itself_from_raise_for_error() -> None:
    result = await tool(number).execute()

    assert result.raise_for_error() is result


async def test_an_error_is_raised_with_the_servers_text_and_the_whole_result() -> None:
    def fail() -> None:
        raise ToolError("the door is shut", kind=ErrorKind.DENIED)

    async with connect_mcp(MemoryServer([fail], name="memory")) as server:
        result = await server.call_tool("fail")
        tools: list[Tool] = list(await server.list_tools())
    with pytest.raises(ToolExecutionError, match="the door is shut") as caught:
        result.raise_for_error()
    assert caught.value.result is result
    assert caught.value.tool == ""
    assert [one.name for one in tools] == ["fail"]
