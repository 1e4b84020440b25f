"""What handlers say that JSON has no word for, on every way out: an answer always comes, and it is JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.exchanges import call, call_body, events, exchange, handshake, modern_headers
from tests.serve.raw import LEGACY, raw_client
from tests.serve.serving import served_http
from toolweave.errors import RequestError
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext, ToolResult

HALF = "caf\udce9.txt"  # the form in which `os.listdir` returns a name that is not UTF-8
WAYS = pytest.mark.parametrize("way", ["modern", "legacy", "inprocess"])
Json = dict[str, Any]


async def files() -> str:
    return HALF


async def odd_result() -> ToolResult:
    return ToolResult(meta={"made": object()})


async def odd_number() -> ToolResult:
    return ToolResult(structured_content={"a": [math.inf]})


async def odd_refusal() -> None:
    raise RequestError(f"no {HALF}", code=-32050, data={"why": object()})


async def odd_report(ctx: CallContext) -> str:
    await ctx.progress(1, math.nan, HALF)
    return "done"


async def odd_log(ctx: CallContext) -> str:
    await ctx.log("info", object())
    return "never"


async def measured() -> Any:
    return {"a": math.nan, "b": [1.5, -math.inf, None]}


async def echo(value: Any) -> Any:
    return value


def odd_server() -> McpServer:
    tools = [files, odd_result, odd_number, odd_refusal, odd_report, odd_log, measured, echo]
    server = create_mcp_server(name="odd", version="1", tools=tools, logging=True)
    server.resource("odd://measured")(measured)
    return server


async def answers(way: str, tool: str) -> list[Json]:
    """Call a tool with a progress token; return all that came back."""
    server = odd_server()
    meta = {"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"}
    params = {"name": tool, "arguments": {}, "_meta": meta}
    if way == "inprocess":
        async with raw_client(server, LEGACY) as client:
            last = await client.ask(client.request("tools/call", params))
            return [*client.take_early(), last]
    async with served_http(server) as url:
        if way == "legacy":
            _, session = await handshake(url)
            message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
            return events((await exchange(url, headers=session, body=json.dumps(message).encode())).body)
        answer = await call(url, tool, meta=meta)
        assert answer.status == 200
        return events(answer.body) if b"data:" in answer.body else [answer.json()]


@WAYS
async def test_half_a_surrogate_pair_is_replaced(way: str) -> None:
    (answer,) = await answers(way, "files")

    assert answer["result"]["content"] == [{"type": "text", "text": "caf?.txt"}]


@WAYS
@pytest.mark.parametrize("tool", ["odd_result", "odd_number"])
async def test_a_result_that_is_no_json_is_an_internal_error(way: str, tool: str) -> None:
    (answer,) = await answers(way, tool)

    assert answer["error"] == {"code": -32603, "message": "Internal error"}


@WAYS
async def test_the_data_of_an_error_that_is_no_json_is_left_out(way: str) -> None:
    (answer,) = await answers(way, "odd_refusal")

    assert answer["error"] == {"code": -32050, "message": "no caf?.txt"}


@WAYS
@pytest.mark.requirement("C13")
async def test_a_total_that_is_no_number_is_left_out_of_progress(way: str) -> None:
    progress, answer = await answers(way, "odd_report")

    assert progress["params"] == {"progressToken": 1, "progress": 1, "message": "caf?.txt"}
    assert answer["result"]["content"] == [{"type": "text", "text": "done"}]


@WAYS
async def test_a_log_message_that_is_no_json_is_the_handlers_mistake(way: str) -> None:
    (answer,) = await answers(way, "odd_log")

    assert answer["result"]["isError"] is True


@EACH_CARRIER
@pytest.mark.requirement("C16")
async def test_numbers_that_are_not_finite_are_null_in_results_and_in_their_text(carrier: str, era: str) -> None:
    async with connected(odd_server(), carrier, era) as connection:
        result = await connection.call_tool("measured")
        (content,) = await connection.read_resource("odd://measured")

    assert result.structured_content == {"a": None, "b": [1.5, None, None]}
    assert json.loads(result.text) == result.structured_content
    assert json.loads(content.text or "") == result.structured_content


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"1e999", rb'"\ud800"'])
@EACH_ERA
async def test_what_is_no_json_reaches_no_handler(era: str, value: bytes) -> None:
    async with served_http(odd_server()) as url:
        _, session = await handshake(url)
        headers = session if era == LEGACY else modern_headers("echo")
        body = call_body("echo", {"value": "HERE"}).replace(b'"HERE"', value)
        answer = await exchange(url, headers=headers, body=body)
        after = await call(url, "echo", {"value": 1})

    assert (answer.status, answer.json()["error"]["code"]) == (400, -32700)
    assert after.status == 200
