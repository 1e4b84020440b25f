"""Arguments that arrive as texts of JSON at a server, as several clients send all of theirs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolweave import McpConnection, connect_mcp, create_mcp_server
from toolweave.serve import CallNext, Request

pytestmark = pytest.mark.anyio

VERSIONS = ["2025-06-18", "2026-07-28"]


def whole(x: int) -> str:
    return repr(x)


def numbers(x: list[int]) -> str:
    return repr(x)


def either(x: str | list[int]) -> str:
    return repr(x)


def optional(x: int = 3) -> str:
    return repr(x)


@asynccontextmanager
async def calling(version: str, **options: Any) -> AsyncGenerator[McpConnection]:
    server = create_mcp_server("s", tools=[whole, numbers, either, optional], **options)
    async with connect_mcp({"server": server, "protocol": version}) as client:
        yield client


async def call(client: McpConnection, tool: str, value: Any) -> str:
    """Call a tool as another client would, past the checks of ours."""
    result = await client.request("tools/call", {"name": tool, "arguments": {"x": value}})
    return "error" if result.get("isError") else str(result["content"][0]["text"])


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_text_is_read_where_the_schema_takes_no_text(version: str) -> None:
    async with calling(version) as client:
        assert await call(client, "whole", "5") == "5"
        assert await call(client, "numbers", "[1, 2]") == "[1, 2]"
        assert await call(client, "either", "[1]") == "'[1]'"
        assert await call(client, "optional", None) == "3"
        assert await call(client, "whole", "five") == "error"
        assert await call(client, "numbers", "1,2") == "error"
        assert await call(client, "whole", None) == "error"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_server_can_refuse_such_arguments(version: str) -> None:
    async with calling(version, repair_arguments=False) as client:
        assert await call(client, "whole", "5") == "error"
        assert await call(client, "optional", None) == "error"
        assert await call(client, "whole", 5) == "5"


@pytest.mark.parametrize("version", VERSIONS)
async def test_middleware_reads_the_arguments_that_the_tool_gets(version: str) -> None:
    seen: list[Any] = []

    async def reading(request: Request, call_next: CallNext) -> dict[str, Any]:
        if request.method == "tools/call":
            seen.append(request.params["arguments"])
        return await call_next(request)

    async with calling(version, middleware=[reading]) as client:
        assert await call(client, "whole", "5") == "5"
        assert await call(client, "numbers", "[1]") == "[1]"
        assert await call(client, "whole", "five") == "error"
    assert seen == [{"x": 5}, {"x": [1]}, {"x": "five"}]
