"""Calls that become tasks, as a client that knows tasks sees them: on every carrier, in both forms of the protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.serving import served_http
from tests.serve.talking import talking
from toolweave import Callbacks, McpConnection, ProtocolError, ServerConfig, connect_mcp
from toolweave.connect import ElicitationRequest
from toolweave.errors import RequestError, ToolError
from toolweave.serve import McpServer, TaskRule, create_mcp_server
from toolweave.serve._tasks import TaskSupport
from toolweave.state import MemoryStore
from toolweave.tools import CallContext, Elicitation

pytestmark = pytest.mark.slow

TASKS = "io.modelcontextprotocol/tasks"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


async def slow(a: int, ctx: CallContext) -> dict[str, int]:
    await ctx.progress(1, 2, "half of it")
    return {"sum": a + 1}


async def refuse() -> str:
    raise ToolError("it did not work out")


async def crash() -> str:
    raise ValueError("a secret of the inside")


async def break_off() -> str:
    raise RequestError("broken on purpose", code=-32050, data={"why": "on purpose"})


async def introduce(ctx: CallContext) -> list[Any]:
    first = await ctx.elicit("Who are you?", NAME)
    second = await ctx.elicit("Who are you?", NAME)
    both = await ctx.ask(a=Elicitation("A?", NAME), b=Elicitation("B?", NAME))
    return [(one.content or {}).get("name") for one in (first, second, both["a"], both["b"])]


async def ask_then_work(ctx: CallContext) -> str:
    answer = await ctx.elicit("Who are you?", NAME)
    return f"Hello, {(answer.content or {}).get('name')}!"


RULES: Mapping[str, TaskSupport | TaskRule] = {
    "slow": "optional",
    "refuse": "required",
    "crash": "required",
    "break_off": "required",
    "introduce": "required",
    "ask_then_work": TaskRule("required", ask_first=True),
}


def working(**options: Any) -> McpServer:
    """Return a server whose tools become tasks."""
    tools = [slow, refuse, crash, break_off, introduce, ask_then_work]
    return create_mcp_server(
        name="working", version="1", tools=tools, tasks={**RULES, **options.pop("tasks", {})}, **options
    )


@pytest.mark.requirement("R84")
@EACH_CARRIER
async def test_a_call_that_becomes_a_task_gives_its_result(carrier: str, era: str) -> None:
    async with connected(working(), carrier, era) as connection:
        result = await connection.call_tool("slow", {"a": 1})

    assert result.structured_content == {"sum": 2}
    assert not result.is_error


@EACH_CARRIER
async def test_a_tool_error_is_the_result_of_a_task_and_a_protocol_error_its_failure(carrier: str, era: str) -> None:
    async with connected(working(), carrier, era) as connection:
        refused = await connection.call_tool("refuse")
        crashed = await connection.call_tool("crash")
        with pytest.raises(ProtocolError, match="broken on purpose") as broken:
            await connection.call_tool("break_off")

    assert (refused.is_error, refused.text) == (True, "it did not work out")
    assert crashed.is_error
    assert ("secret" in crashed.text) == (carrier == "inprocess")
    assert (broken.value.code, broken.value.data) == (-32050, {"why": "on purpose"})


async def test_no_more_tasks_run_in_a_process_than_may_and_those_that_end_make_room() -> None:
    go = anyio.Event()
    server = create_mcp_server(name="holding", version="1", tasks={"hold": "required"})

    @server.tool
    async def hold() -> str:  # pyright: ignore[reportUnusedFunction]
        await go.wait()
        return "held"

    async with talking(server, "2026-07-28", {"extensions": {TASKS: {}}}) as talk:
        with anyio.fail_after(60):
            call: dict[str, Any] = {"name": "hold", "arguments": {}}
            names = [(await talk.ask("tools/call", call))["taskId"] for _ in range(1_000)]
            with pytest.raises(RequestError, match="no more tasks can be taken on now"):
                await talk.ask("tools/call", call)
            go.set()
            while (await talk.ask("tasks/get", {"taskId": names[-1]}))["status"] == "working":
                await anyio.sleep(0.01)
            assert (await talk.ask("tools/call", call))["resultType"] == "task"


@EACH_ERA
async def test_a_task_waits_for_the_answers_that_its_handler_asks_for(era: str) -> None:
    asked: list[str] = []

    def elicitation(request: ElicitationRequest) -> dict[str, Any]:
        asked.append(request.message)
        return {"name": f"{request.message} {len(asked)}"}

    config = ServerConfig(name="working", server=working(), protocol=era)
    async with connect_mcp(config, callbacks=Callbacks(elicitation=elicitation)) as connection:
        result = await connection.call_tool("introduce")

    assert asked == ["Who are you?", "Who are you?", "A?", "B?"]
    names: Any = json.loads(result.text)
    assert names == ["Who are you? 1", "Who are you? 2", "A? 3", "B? 4"]


@EACH_CARRIER
async def test_a_tool_may_ask_before_its_task_begins(carrier: str, era: str) -> None:
    async with answering(working(), carrier, era) as connection:
        result = await connection.call_tool("ask_then_work")

    assert result.text == "Hello, Alice!"


@EACH_ERA
async def test_a_client_that_refuses_to_be_asked_is_told_to_the_handler(era: str) -> None:
    config = ServerConfig(name="working", server=working(), protocol=era)
    async with connect_mcp(config) as connection:
        with pytest.raises(ProtocolError) as refused:
            await connection.call_tool("introduce")

    assert refused.value.code == -32021
    assert refused.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@asynccontextmanager
async def answering(server: McpServer, carrier: str, era: str) -> AsyncGenerator[McpConnection]:
    """Connect as a client whose user is called Alice."""
    callbacks = Callbacks(elicitation=lambda request: {"name": "Alice"})
    if carrier == "inprocess":
        async with connect_mcp({"server": server, "protocol": era}, callbacks=callbacks) as connection:
            yield connection
        return
    async with (
        served_http(server) as url,
        connect_mcp({"url": url, "protocol": era}, callbacks=callbacks) as connection,
    ):
        yield connection


@EACH_CARRIER
async def test_a_call_that_nobody_waits_for_any_more_cancels_its_task(carrier: str, era: str) -> None:
    known = anyio.Event()
    ended = anyio.Event()

    async def hang(ctx: CallContext) -> str:
        await ctx.elicit("Who are you?", NAME)  # the answer says that the client knows of the task
        known.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    server = working(tasks={"hang": "required"})
    server.tool(hang)
    async with answering(server, carrier, era) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "hang")
            with anyio.fail_after(30):
                await known.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            await ended.wait()
        again = await connection.call_tool("slow", {"a": 2})

    assert again.structured_content == {"sum": 3}


@EACH_ERA
async def test_a_task_goes_on_while_another_connection_ends(era: str) -> None:
    go = anyio.Event()
    begun = anyio.Event()

    async def wait() -> str:
        begun.set()
        await go.wait()
        return "waited"

    server = working(tasks={"wait": "required"})
    server.tool(wait)
    texts: list[str] = []

    async def call(connection: McpConnection) -> None:
        texts.append((await connection.call_tool("wait")).text)

    with anyio.fail_after(30):
        async with connected(server, "inprocess", era) as first:
            await first.list_tools()
            async with connected(server, "inprocess", era) as second, anyio.create_task_group() as tasks:
                tasks.start_soon(call, second)
                await begun.wait()
                await first.close()
                go.set()

    assert texts == ["waited"]


@EACH_ERA
async def test_tasks_that_run_when_the_server_stops_are_cancelled_and_say_so(era: str) -> None:
    store = MemoryStore()
    begun = anyio.Event()
    ended = anyio.Event()

    async def hang() -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    server = working(store=store, tasks={"hang": "required"})
    server.tool(hang)
    async with anyio.create_task_group() as tasks:
        async with connected(server, "inprocess", era) as connection:

            async def call() -> None:
                with pytest.raises(Exception, match="working"):
                    await connection.call_tool("hang")

            tasks.start_soon(call)
            with anyio.fail_after(30):
                await begun.wait()
        with anyio.fail_after(30):
            await ended.wait()

    (kept,) = await store.scan("tasks")
    assert (kept.value["task"]["status"], kept.value["task"]["statusMessage"]) == ("cancelled", "the server stopped")


async def test_a_client_without_tasks_gets_a_plain_call_or_is_told_what_it_lacks() -> None:
    server = working()
    async with connected(server, "inprocess", "2025-06-18") as connection:
        plain = await connection.call_tool("slow", {"a": 1})
        with pytest.raises(ProtocolError, match="'refuse' runs only as a task") as refused:
            await connection.call_tool("refuse")

    assert plain.structured_content == {"sum": 2}
    assert refused.value.code == -32601


def test_a_rule_is_optional_or_required() -> None:
    with pytest.raises(ValueError, match="task support is 'optional' or 'required', not 'always'"):
        create_mcp_server(name="wrong", version="1", tasks={"x": "always"})  # pyright: ignore[reportArgumentType]


@EACH_ERA
async def test_a_server_without_tasks_declares_none(era: str) -> None:
    server = create_mcp_server(name="plain", version="1", tools=[slow])
    async with connected(server, "inprocess", era) as connection:
        assert "tasks" not in connection.capabilities
        assert "extensions" not in connection.capabilities


@EACH_ERA
async def test_a_store_that_takes_nothing_any_more_costs_its_task_and_nobody_else(era: str) -> None:
    class Full(MemoryStore):
        full = False

        async def put(self, *args: Any, **options: Any) -> int | None:
            if self.full:
                raise OSError("no space left")
            return await super().put(*args, **options)

    store = Full()

    async def fill() -> str:
        store.full = True
        return "done"

    server = working(store=store, tasks={"fill": "required"})
    server.tool(fill)
    async with served_http(server) as url, connect_mcp({"url": url, "protocol": era}) as connection:
        with anyio.fail_after(30), pytest.raises(ProtocolError, match="cannot be kept"):
            await connection.call_tool("fill")
        store.full = False
        with anyio.fail_after(30):
            works = await connection.call_tool("slow", {"a": 1})

    assert works.structured_content == {"sum": 2}
