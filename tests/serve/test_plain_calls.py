"""Plain calls of a server's own tools go a shorter way over HTTP, and nobody can tell by the answers."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
import pytest
from pydantic import Field

from tests.gateway.plain_callers import SECONDS, again, long_way, plain
from tests.gateway.relayed import MODERN, Json
from tests.gateway.test_fast_calls import passing, probes
from tests.serve.serving import served_http
from toolweave import ImageContent, TextContent, ToolError, tool
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve._http.layered import LazyReply

pytestmark = pytest.mark.anyio


@tool
async def echo(a: Any = None, b: Any = None, deep: Any = None) -> dict[str, Any]:
    """Return the arguments."""
    return {"a": a, "b": b, "deep": deep}


@tool
def blocks() -> list[TextContent | ImageContent]:
    """Return two blocks."""
    return [TextContent(text="one"), ImageContent(data="aGk=", mime_type="image/png")]


@tool
async def numbers() -> list[float]:
    """Return numbers that JSON has, and one that it has not."""
    return [1.5, 2**60, float("nan")]


@tool
async def failed() -> str:
    """Fail with a message for the model."""
    raise ToolError("no such row", data={"row": 7})


@tool
async def internal() -> str:
    """Fail unexpectedly."""
    raise ValueError("a secret")


@tool
async def empty() -> None:
    """Return nothing."""


@tool(scopes=["admin"])
async def own() -> str:
    """Return a text to those with a scope."""
    return "done"


@tool
async def headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "") -> str:
    """Return an argument that is mirrored into a header."""
    return region


@tool
async def params(number: int) -> int:
    """Return a number."""
    return number


def server(middleware: Any = ()) -> McpServer:
    tools = [echo, blocks, numbers, failed, internal, empty, own, headers, params]
    return create_mcp_server(name="plain", version="1", tools=tools, middleware=middleware)


@pytest.mark.parametrize("version", [MODERN, "2025-11-25", "2025-03-26"])
async def test_the_short_way_answers_as_the_long_one(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Json] = []
    short_replies: list[int] = []  # so far, after each round
    made: list[LazyReply] = []
    fill = LazyReply.fill

    async def counted(self: LazyReply, answering: Any) -> None:
        made.append(self)
        await fill(self, answering)

    monkeypatch.setattr(LazyReply, "fill", counted)
    with anyio.fail_after(SECONDS):
        for middleware, wraps in ([], []), ([passing], []), ([], [long_way]), ([passing], [long_way]):
            found: Json = {}
            async with served_http(server(middleware), middleware=wraps) as url, plain(url, version) as first:
                for name, (body, sent, twice) in probes(first).items():
                    async with again(first, url) as client:
                        found[name] = await client.ask(body, sent, twice)
            answers.append(found)
            short_replies.append(len(made))

    short, layered, long, long_and_layered = answers
    first, second, *others = short_replies
    assert first >= 15, "plain calls took the short way"
    assert second == 2 * first
    assert others == [second, second]
    assert short == long
    assert layered == long_and_layered == long
    assert short["an indented text"][0] == 200
    assert short["an indented text"][2]["result"]["structuredContent"]["a"] == {"b": 1}
    assert "a secret" not in str(short["the tool internal"])
    assert short["the tool own"][0] == 403
    assert short["the tool params"][2]["result"]["isError"] is True
