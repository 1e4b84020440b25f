"""The types of functions that are tools, and of the state of their calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel

from toolweave import CallContext, McpServer, ToolResult, create_mcp_server, tool


class City(BaseModel):
    """A city."""

    name: str


@dataclass
class App:
    """The state of an application."""

    name: str


@tool
def greet(name: str, ctx: CallContext[App]) -> str:
    """Greet somebody."""
    assert_type(ctx.state, App)
    assert_type(ctx.state.name, str)
    return f"{ctx.state.name} greets {name}"


@tool
def add(first: int, second: int, ctx: CallContext) -> int:
    """Add two numbers."""
    assert_type(ctx.state, Mapping[str, Any])
    return first + second


assert_type(greet("Ann", CallContext(state=App("app"))), str)
assert_type(add(1, 2, CallContext()), int)

server = create_mcp_server("maths", tools=[greet])
assert_type(server, McpServer)


@server.tool
async def subtract(first: int, second: int) -> int:
    """Subtract two numbers."""
    return first - second


async def call() -> None:
    """Call tools."""
    assert_type(await subtract(2, 1), int)
    assert_type(await greet.execute({"name": "Ann"}), ToolResult)
    result = await greet.execute({"name": "Ann"})
    assert_type(result.data_as(City), City)
    assert_type(result.data_as(list[int]), list[int])
    either: int | None = result.data_as(int | None)
    assert either
