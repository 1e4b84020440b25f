"""Arguments that arrive as texts of JSON at a server, as several clients send all of theirs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolweave import McpConnection, ProtocolError, connect_mcp, create_mcp_server
from toolweave.serve import CallNext, Request

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


MEANT: list[tuple[Any, str]] = [
    *(([], "3"), (None, "3"), ("{}", "3"), ('{"x": 4}', "4"), ('{"x": "4"}', "4")),
    ('```json\n{"x": 4}\n```', "4"),
]
"""Values of `arguments` that are not an object, and what the tool with an optional number gets."""


async def call_with(client: McpConnection, arguments: Any) -> str:
    """Call the tool with an optional number, with any value as `arguments`."""
    result = await client.request("tools/call", {"name": "optional", "arguments": arguments})
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("arguments", "gets"), MEANT)
async def test_arguments_that_are_not_an_object_are_the_one_that_is_meant(
    version: str, arguments: Any, gets: str
) -> None:
    async with calling(version) as client:
        assert await call_with(client, arguments) == gets


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("arguments", [5, True, "x", "[1]", [1], '"{}"', "```\n[1]\n```", 'So: ```{"x": 4}```'])
async def test_arguments_of_no_plain_meaning_are_refused(version: str, arguments: Any) -> None:
    async with calling(version) as client:
        with pytest.raises(ProtocolError, match="'arguments' must be an object"):
            await call_with(client, arguments)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("arguments", [[], "{}"])
async def test_a_server_can_refuse_arguments_that_are_not_an_object(version: str, arguments: Any) -> None:
    async with calling(version, repair_arguments=False) as client:
        with pytest.raises(ProtocolError, match="'arguments' must be an object"):
            await call_with(client, arguments)


@pytest.mark.parametrize("arguments", [[], None, "{}", '{"x": 4}'])
async def test_middleware_reads_the_object_that_is_meant(arguments: Any) -> None:
    seen: list[Any] = []

    async def watch(request: Request, call_next: CallNext) -> dict[str, Any]:
        if request.method == "tools/call":
            seen.append(request.params["arguments"])
        return await call_next(request)

    async with calling("2026-07-28", middleware=[watch]) as client:
        await call_with(client, arguments)
    assert seen == [{"x": 4} if isinstance(arguments, str) and "x" in arguments else {}]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("arguments", [[], None, "{}", '{"name": "you"}'])
async def test_a_prompt_gets_the_object_that_is_meant(version: str, arguments: Any) -> None:
    def greet(name: str = "all") -> str:
        return name

    async with connect_mcp({"server": create_mcp_server("s", prompts=[greet]), "protocol": version}) as client:
        result = await client.request("prompts/get", {"name": "greet", "arguments": arguments})

    wanted = "you" if isinstance(arguments, str) and "you" in arguments else "all"
    assert result["messages"][0]["content"]["text"] == wanted


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": 5}, "5 1"),
        ({"name": True}, "true 1"),
        ({"name": 1.5, "n": 2}, "1.5 2"),
        ({"name": "x", "n": None}, "x 1"),
    ],
)
async def test_a_value_that_is_no_text_is_one_for_a_prompt(version: str, arguments: Any, text: str) -> None:
    def greet(name: str, n: int = 1) -> str:
        return f"{name} {n}"

    async with connect_mcp({"server": create_mcp_server("s", prompts=[greet]), "protocol": version}) as client:
        result = await client.request("prompts/get", {"name": "greet", "arguments": arguments})
        assert result["messages"][0]["content"]["text"] == text
        values: list[Any] = [None, [1], {}]
        for refused in values:
            with pytest.raises(ProtocolError, match="argument 'name'"):
                await client.request("prompts/get", {"name": "greet", "arguments": {"name": refused}})
