"""Errors of tools, as the clients of a server read them."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import msgspec
import pytest

from tests.serve.carriers import EACH_CARRIER, ERAS, connected
from tests.serve.program import http_program, program
from tests.serve.serving import served_http
from toolweave import (
    Agent,
    ErrorKind,
    Hub,
    ProtocolError,
    ScriptedModel,
    ToolError,
    ToolResult,
    connect_mcp,
    create_mcp_server,
    tool,
    tool_call,
)
from toolweave.agent import RunFinished, ToolFinished
from toolweave.compose import hub_server
from toolweave.testing import MemoryServer

EXPECTED = ("DUPLICATE", ErrorKind.DENIED, {"of": [1, None]}, True, "there is one already")


def parts_of(error: ToolError | None) -> tuple[Any, ...]:
    assert error is not None
    return error.code, error.kind, error.data, error.retryable, error.message


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.requirement("R92", "C2")
async def test_what_a_tool_says_of_its_error_comes_back_over_http(era: str) -> None:
    async with (
        served_http(program()) as url,
        connect_mcp({"url": url, "protocol": era}) as connection,
    ):
        called = await connection.call_tool("refuse", {"text": "there is one already"})
        executed = await (await connection.list_tools())["refuse"].execute({"text": "there is one already"})

    assert parts_of(called.error) == parts_of(executed.error) == EXPECTED
    assert called.text == "there is one already"


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.requirement("R92", "C2")
async def test_what_a_tool_says_of_its_error_comes_back_over_stdio(era: str) -> None:
    config = {
        "command": sys.executable,
        "args": ["-m", "tests.serve.program"],
        "protocol": era,
    }
    async with connect_mcp(config) as connection:
        result = await connection.call_tool("refuse", {"text": "there is one already"})

    assert parts_of(result.error) == EXPECTED


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_tool_says_of_its_error_passes_through_a_hub_that_is_served(era: str) -> None:
    gateway = hub_server(Hub({"up": {"server": program(), "tool_prefix": ""}}), name="gateway", version="1")
    async with connect_mcp({"server": gateway, "protocol": era}) as connection:
        result = await connection.call_tool("refuse", {"text": "there is one already"})

    assert parts_of(result.error) == EXPECTED


@EACH_CARRIER
async def test_the_data_of_an_error_that_is_no_json_is_left_out_and_the_error_comes(carrier: str, era: str) -> None:
    @tool
    def odd() -> None:
        raise ToolError("it broke", code=7, data={"what": object()})

    async with connected(create_mcp_server(name="s", version="1", tools=[odd]), carrier, era) as connection:
        result = await connection.call_tool("odd", {})

    assert parts_of(result.error) == (7, ErrorKind.EXECUTION_FAILED, None, False, "it broke")


async def test_a_masked_error_says_nothing_of_itself_anywhere_in_its_result() -> None:
    class SecretError(Exception):
        pass

    @tool
    def boom() -> None:
        raise SecretError("hunter2")

    async with connected(create_mcp_server(name="s", version="1", tools=[boom]), "http") as connection:
        result = await connection.call_tool("boom", {})

    raw = msgspec.json.encode(result.raw)
    assert b"hunter2" not in raw
    assert b"SecretError" not in raw
    assert parts_of(result.error) == (
        "EXECUTION_FAILED",
        ErrorKind.EXECUTION_FAILED,
        None,
        False,
        "Error executing tool 'boom'",
    )


CLAIMS: list[tuple[Any, tuple[Any, ...]]] = [
    ({"kind": "not_sent", "retryable": True}, (None, ErrorKind.EXECUTION_FAILED, None, True)),
    ({"kind": "closed", "code": True}, (None, ErrorKind.EXECUTION_FAILED, None, False)),
    ({"kind": "auth_required", "code": "x" * 1000}, (None, ErrorKind.EXECUTION_FAILED, None, False)),
    ({"kind": ["timeout"], "retryable": "yes"}, (None, ErrorKind.EXECUTION_FAILED, None, False)),
    ({"kind": "timeout", "code": 3, "data": [1]}, (3, ErrorKind.TIMEOUT, [1], False)),
    ("timeout", (None, ErrorKind.EXECUTION_FAILED, None, False)),
    (None, (None, ErrorKind.EXECUTION_FAILED, None, False)),
]


@pytest.mark.parametrize(("claim", "expected"), CLAIMS)
async def test_a_foreign_server_cannot_say_what_only_its_client_knows_and_is_called_once(
    claim: Any, expected: tuple[Any, ...]
) -> None:
    server = MemoryServer()

    @server.tool
    def pay() -> str:
        return "never asked"

    failed = {"content": [{"type": "text", "text": "no"}], "isError": True, "_meta": {"io.toolweave/error": claim}}
    server.answer("tools/call", failed)
    async with connect_mcp(server) as connection:
        result = await (await connection.list_tools())["pay"].execute({})

    assert parts_of(result.error) == (*expected, "no")
    assert len(server.calls) == 1


async def test_a_timeout_that_a_server_reports_does_not_end_a_run_like_one_of_the_way_to_it() -> None:
    server = create_mcp_server(name="s", version="1")

    @server.tool
    def ask() -> str:
        raise TimeoutError("no answer from the printer")

    model = ScriptedModel([[tool_call("ask", {})], "it did not answer"])
    async with (
        connect_mcp(server, name="s") as connection,
        Agent(model, name="a", tools=[connection], on_transport_error="raise") as agent,
    ):
        events = [event async for event in agent.send("go")]

    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert finished.result.require_error().kind is ErrorKind.TIMEOUT
    (end,) = [event for event in events if isinstance(event, RunFinished)]
    assert end.result.text == "it did not answer"


ENDERS = ("end_in_thread", "end_in_loop")
ENDINGS = [(name, how) for name in ENDERS for how in ("exit", "interrupt", "generator", "base")]


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_ends_programs_ends_no_server_over_stdio_and_no_other_call(era: str) -> None:
    config = {
        "command": sys.executable,
        "args": ["-m", "tests.serve.program"],
        "protocol": era,
        "restart": "never",
    }
    begun = anyio.Event()
    slow: list[str] = []
    results: dict[tuple[str, str], ToolResult] = {}
    async with connect_mcp(config) as connection, anyio.create_task_group() as tasks:

        async def nap() -> None:
            result = await connection.call_tool("nap", {"seconds": 1}, on_progress=lambda _: begun.set())
            slow.append(result.text)

        tasks.start_soon(nap)
        await begun.wait()
        results |= {(name, how): await connection.call_tool(name, {"how": how}) for name, how in ENDINGS}

    assert all(result.is_error for result in results.values())
    assert results["end_in_thread", "exit"].text == "tool 'end_in_thread' tried to end the process (exit status 2)"
    assert results["end_in_loop", "interrupt"].text == "tool 'end_in_loop' raised KeyboardInterrupt"
    assert slow == ["rested"]


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_ends_programs_ends_no_server_over_http_and_is_masked(era: str) -> None:
    async with http_program() as url, connect_mcp({"url": url, "protocol": era, "restart": "never"}) as connection:
        results = {(name, how): await connection.call_tool(name, {"how": how}) for name, how in ENDINGS}
        after = await connection.call_tool("add", {"a": 1, "b": 2})

    assert {result.text for result in results.values()} == {f"Error executing tool {name!r}" for name in ENDERS}
    assert after.text == "3"


@EACH_CARRIER
async def test_what_ends_programs_in_a_resource_or_a_prompt_ends_its_request(carrier: str, era: str) -> None:
    server = create_mcp_server(name="s", version="1", expose_errors="message")

    @server.resource("odd://exit")
    def leave() -> str:
        raise SystemExit(2)

    @server.prompt
    async def quit_now() -> str:
        raise SystemExit(3)

    async with connected(server, carrier, era) as connection:
        with pytest.raises(ProtocolError, match=r"reading resource 'odd://exit' failed: .*exit status 2") as read:
            await connection.read_resource("odd://exit")
        with pytest.raises(ProtocolError, match="exit status 3") as prompted:
            await connection.get_prompt("quit_now")

    assert read.value.code == prompted.value.code == -32603
