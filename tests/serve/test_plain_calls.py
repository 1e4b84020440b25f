"""Plain calls of a server's own tools go a shorter way over HTTP, and the answers do not show it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from tests.gateway.plain_callers import META, Plain, again, long_way, plain
from tests.gateway.relayed import MODERN, Json
from tests.gateway.test_fast_calls import passing, probes
from tests.serve.serving import served_http
from toolweave import ImageContent, TextContent, ToolError, tool
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve._http.layered import LazyReply
from toolweave.tools import CallContext


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


@tool
async def steps(ctx: CallContext) -> Any:
    """Report progress, log, and return what the call brought."""
    await ctx.progress(0.5, total=1, message="half")
    await ctx.log("warning", "a line")
    return "done"


@tool(name="versioned", version="1", scopes=["admin"])
async def older() -> str:
    """Return a text to those with a scope."""
    return "older"


@tool(name="versioned", version="2")
async def newer() -> str:
    """Return a text."""
    return "newer"


def server(middleware: Any = ()) -> McpServer:
    tools = [echo, blocks, numbers, failed, internal, empty, own, headers, params, steps, older, newer]
    return create_mcp_server(name="plain", version="1", tools=tools, middleware=middleware)


def short_replies_in(monkeypatch: pytest.MonkeyPatch) -> list[LazyReply]:
    """Return a list to which every reply of the short way is added from now on."""
    made: list[LazyReply] = []
    fill = LazyReply.fill

    async def counted(self: LazyReply, answering: Any) -> None:
        made.append(self)
        await fill(self, answering)

    monkeypatch.setattr(LazyReply, "fill", counted)
    return made


@pytest.mark.parametrize("version", [MODERN, "2025-11-25", "2025-03-26"])
async def test_the_short_way_answers_as_the_long_one(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Json] = []
    short_replies: list[int] = []  # so far, after each round
    made = short_replies_in(monkeypatch)
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


def calls_with_metadata(client: Plain) -> dict[str, tuple[bytes, Json]]:
    """Return calls with members in `_meta` that agents send, and some that are wrong."""
    given = META if client.modern else {}
    version = "io.toolweave/version"
    level = "io.modelcontextprotocol/logLevel"
    more: Json = {
        "a number as token": {"progressToken": 1},
        "a text as token": {"progressToken": "a"},
        "no token": {"com.example/k": [None, {"a": 2**70}]},
        "a trace context": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        "all of them": {"progressToken": 2, "com.example/k": 1, "traceparent": "x", level: "debug"},
        "a long member": {"com.example/long": "x" * 5_000, "progressToken": 3},
        "a log level": {level: "info"},
        "a wrong log level": {level: "loud"},
        "a token that is a boolean": {"progressToken": True},
        "a token that is a fraction": {"progressToken": 1.5},
        "a token that is null": {"progressToken": None},
        "a token that is too long": {"progressToken": "x" * 2_000},
        "nothing": {},
    }
    made = {name: client.call("steps", {}, _meta={**given, **one}) for name, one in more.items()}
    made["a wrong capability"] = client.call("steps", {}, _meta={**META, "progressToken": 1, **CAPABLE_OF_NOTHING})
    made["metadata that is not an object"] = client.call("steps", {}, _meta=[1])
    for named in ("1", "2", "3"):
        made[f"version {named}"] = client.call("versioned", {}, _meta={**given, version: named})
    return made


CAPABLE_OF_NOTHING: Json = {"io.modelcontextprotocol/clientCapabilities": {"sampling": 1}}


@pytest.mark.parametrize("version", [MODERN, "2025-11-25", "2025-03-26"])
async def test_calls_with_metadata_take_the_short_way_and_get_the_same_answers(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = short_replies_in(monkeypatch)
    found: list[Json] = []
    short: list[int] = []
    for wraps in ([], [long_way]):
        answers: Json = {}
        async with served_http(server(), middleware=wraps) as url, plain(url, version) as first:
            for name, (body, sent) in calls_with_metadata(first).items():
                async with again(first, url) as client:
                    answers[name] = await client.ask(body, sent)
        found.append(answers)
        short.append(len(made))

    assert found[0] == found[1]
    assert short[0] >= 9, "calls with metadata took the short way"
    assert short[1] == short[0]
    assert b"half" in found[0]["a number as token"][2]
    assert b"half" not in str(found[0]["no token"][2]).encode()
    assert found[0]["version 1"][0] == 403
    assert found[0]["version 2"][2]["result"]["content"][0]["text"] == "newer"


async def test_members_beside_the_envelope_are_those_of_their_own_call() -> None:
    seen: list[Any] = []

    async def noting(request: Any, call_next: Any) -> Any:
        seen.append((request.client.info["name"], request.meta.get("progressToken"), "traceparent" in request.meta))
        return await call_next(request)

    wanted: list[Any] = []
    async with served_http(server([noting])) as url, plain(url, MODERN) as client:
        for number in range(24):
            name = f"caller {number % 3}"
            has_token = bool(number % 2)
            has_trace = bool(number % 5)
            more: Json = {"io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
            more |= {"progressToken": f"of {number}"} if has_token else {}
            more |= {"traceparent": "x"} if has_trace else {}
            wanted.append((name, f"of {number}" if has_token else None, has_trace))
            status, _, _ = await client.ask(*client.call("empty", {}, _meta={**META, **more}))
            assert status == 200

    assert seen == wanted
