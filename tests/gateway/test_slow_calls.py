"""A call that takes long becomes a task of a caller that takes tasks, and goes on where it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.gateway.relayed import upstream
from tests.gateway.upstreams import MODERN, Json, caller
from tests.serve.raw import Raw
from toolweave import CallContext, McpServer, ToolError, create_mcp_server
from toolweave.errors import ConfigError
from toolweave.gateway import Gateway, create_gateway, load_gateway_config
from toolweave.state import MemoryStore

ABLE: Json = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
ENDED = ("completed", "failed", "cancelled")
EACH_UPSTREAM = pytest.mark.parametrize("protocol", ["2025-11-25", MODERN])


@dataclass
class Wish:
    """An answer of the user."""

    city: str


class Held:
    """An upstream whose calls are held until they are let go.

    Attributes:
        server: The server.
        go: Lets them go.
        runs: The number of calls that began.
        cancelled: Set once a call was cancelled.
        gave_up: Set once a call that waits for an answer was cancelled.
    """

    def __init__(self) -> None:
        self.server: McpServer = create_mcp_server(name="held", version="1")
        self.go, self.cancelled, self.runs = anyio.Event(), anyio.Event(), 0
        self.gave_up = anyio.Event()
        for tool in (self.slow, self.wrong, self.asks, self.quick, self.reports):
            self.server.tool(tool)

    async def slow(self, ctx: CallContext) -> dict[str, int]:
        self.runs += 1
        try:
            await self.go.wait()
        except BaseException:
            self.cancelled.set()
            raise
        return {"n": 1}

    async def wrong(self) -> str:
        await self.go.wait()
        raise ToolError("no luck")

    async def asks(self, ctx: CallContext) -> str:
        await self.go.wait()
        try:
            answer = await ctx.elicit("Where to?", Wish)
        except anyio.get_cancelled_exc_class():
            self.gave_up.set()
            raise
        return answer.value.city if answer.value else "nowhere"

    async def reports(self, ctx: CallContext) -> str:
        for step in range(5):
            await ctx.progress(step, total=5)
            await anyio.sleep(0.05)  # longer in all than a call may take before it becomes a task
        return "reported"

    async def quick(self) -> str:
        return "at once"


def before(held: Held, protocol: str = "auto", seconds: float = 0.05, **options: Any) -> Gateway:
    """Return a gateway before the upstream, for which a call is slow after some seconds."""
    upstream = {"server": held.server, "protocol": protocol, "tool_prefix": ""}
    return create_gateway({"up": upstream}, slow_call_seconds=seconds, **options)


@asynccontextmanager
async def calling(held: Held, protocol: str = "auto", **options: Any) -> AsyncGenerator[Raw]:
    """Speak to a gateway before the upstream."""
    async with caller(before(held, protocol, **options), MODERN) as raw:
        yield raw


async def ask(raw: Raw, method: str, *, able: Json = ABLE, **params: Any) -> Json:
    """Make a request; return the answer."""
    params["_meta"] = {"io.modelcontextprotocol/clientCapabilities": able}
    return await raw.ask(raw.request(method, params))


async def result(raw: Raw, method: str, **params: Any) -> Json:
    """Make a request; return the result."""
    answer = await ask(raw, method, **params)
    assert "result" in answer, answer
    return answer["result"]


async def ended(raw: Raw, name: str) -> Json:
    """Return a task once it has ended."""
    while True:
        found = await result(raw, "tasks/get", taskId=name)
        if found["status"] in ENDED:
            return found
        await anyio.sleep(0.02)


@pytest.mark.slow
@EACH_UPSTREAM
async def test_a_call_that_takes_long_is_a_task_with_its_result_and_runs_once(protocol: str) -> None:
    held = Held()
    async with calling(held, protocol) as raw:
        created = await result(raw, "tools/call", name="slow", arguments={})
        running = await result(raw, "tasks/get", taskId=created["taskId"])
        held.go.set()
        found = await ended(raw, created["taskId"])

    assert (created["resultType"], running["status"], found["status"]) == ("task", "working", "completed")
    assert found["result"]["structuredContent"] == {"n": 1}
    assert held.runs == 1


@EACH_UPSTREAM
async def test_a_tool_that_fails_has_completed_with_that_result(protocol: str) -> None:
    held = Held()
    async with calling(held, protocol) as raw:
        created = await result(raw, "tools/call", name="wrong", arguments={})
        held.go.set()
        found = await ended(raw, created["taskId"])

    assert found["status"] == "completed"
    assert found["result"]["isError"] is True
    assert "no luck" in found["result"]["content"][0]["text"]


@EACH_UPSTREAM
async def test_what_the_tool_asks_then_is_asked_of_the_task(protocol: str) -> None:
    held = Held()
    async with calling(held, protocol) as raw:
        created = await result(raw, "tools/call", name="asks", arguments={})
        held.go.set()
        while True:
            found = await result(raw, "tasks/get", taskId=created["taskId"])
            if found["status"] == "input_required":
                break
            await anyio.sleep(0.02)
        ((key, question),) = found["inputRequests"].items()
        answers = {key: {"action": "accept", "content": {"city": "Oslo"}}}
        await result(raw, "tasks/update", taskId=created["taskId"], inputResponses=answers)
        done = await ended(raw, created["taskId"])

    assert question["params"]["message"] == "Where to?"
    assert done["result"]["content"][0]["text"] == "Oslo"


@EACH_UPSTREAM
async def test_a_task_that_is_cancelled_is_cancelled_at_its_upstream(protocol: str) -> None:
    held = Held()
    async with calling(held, protocol) as raw:
        created = await result(raw, "tools/call", name="slow", arguments={})
        await result(raw, "tasks/cancel", taskId=created["taskId"])
        found = await result(raw, "tasks/get", taskId=created["taskId"])
        await held.cancelled.wait()

    assert found["status"] == "cancelled"


@EACH_UPSTREAM
async def test_a_call_that_is_cancelled_before_it_becomes_a_task_is_cancelled_at_its_upstream(protocol: str) -> None:
    held = Held()
    async with calling(held, protocol, seconds=60.0) as raw:
        meta = {"io.modelcontextprotocol/clientCapabilities": ABLE}
        await raw.send(raw.request("tools/call", {"name": "slow", "arguments": {}, "_meta": meta}, id="c"))
        while not held.runs:
            await anyio.sleep(0.01)
        await raw.notify("notifications/cancelled", requestId="c")
        await held.cancelled.wait()


async def test_a_task_that_is_cancelled_while_it_asks_ends_the_call_that_waits_at_its_upstream() -> None:
    held = Held()
    async with calling(held, "2025-11-25") as raw:  # in the other era no call waits while its caller is asked
        created = await result(raw, "tools/call", name="asks", arguments={})
        held.go.set()
        while (await result(raw, "tasks/get", taskId=created["taskId"]))["status"] != "input_required":
            await anyio.sleep(0.02)
        await result(raw, "tasks/cancel", taskId=created["taskId"])
        await held.gave_up.wait()
        found = await result(raw, "tasks/get", taskId=created["taskId"])

    assert found["status"] == "cancelled"


@pytest.mark.slow
@EACH_UPSTREAM
async def test_a_call_whose_caller_asked_for_progress_stays_a_call_and_reports_to_its_end(protocol: str) -> None:
    held = Held()
    async with calling(held, protocol) as raw:
        meta = {"io.modelcontextprotocol/clientCapabilities": ABLE, "progressToken": 0}
        params = {"name": "reports", "arguments": {}, "_meta": meta}
        answer = await raw.ask(raw.request("tools/call", params))
        reports = [one["params"] for one in raw.take_early() if one["method"] == "notifications/progress"]

    assert answer["result"]["content"][0]["text"] == "reported"
    assert [(one["progressToken"], one["progress"]) for one in reports] == [(0, step) for step in range(5)]


async def test_quick_calls_and_those_of_callers_without_tasks_are_answered_themselves() -> None:
    held = Held()
    async with calling(held, seconds=30) as raw:
        quick = await result(raw, "tools/call", name="quick", arguments={})
    async with calling(held) as raw:
        waiting: Json = {}

        async def wait() -> None:
            waiting.update(await ask(raw, "tools/call", able={}, name="slow", arguments={}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.2)  # longer than the calls of others are waited for
            held.go.set()

    assert quick["content"][0]["text"] == "at once"
    assert waiting["result"]["structuredContent"] == {"n": 1}


async def test_a_task_is_in_the_store_before_its_caller_knows_of_it_and_listeners_hear_of_its_end() -> None:
    held, store = Held(), MemoryStore()
    async with calling(held, task_store=store) as raw:
        created = await result(raw, "tools/call", name="slow", arguments={})
        kept = await store.get("tasks", created["taskId"])
        request = raw.request(
            "subscriptions/listen",
            {
                "notifications": {"taskIds": [created["taskId"]]},
                "_meta": {"io.modelcontextprotocol/clientCapabilities": ABLE},
            },
        )
        await raw.send(request)
        acknowledged = await raw.receive()
        held.go.set()
        while (told := await raw.receive())["params"]["status"] == "working":
            pass

    assert kept is not None
    assert acknowledged["params"]["notifications"] == {"taskIds": [created["taskId"]]}
    assert (told["method"], told["params"]["status"]) == ("notifications/tasks", "completed")


async def test_the_extension_is_declared_where_calls_may_become_tasks() -> None:
    async with calling(Held()) as raw:
        found = await result(raw, "server/discover")

    assert "io.modelcontextprotocol/tasks" in found["capabilities"]["extensions"]


async def test_a_slow_call_is_cancelled_when_the_time_of_its_task_is_over() -> None:
    held = Held()
    async with calling(held, task_seconds=0.5) as raw:
        created = await result(raw, "tools/call", name="slow", arguments={})
        with anyio.fail_after(20):
            while "error" not in (found := await ask(raw, "tasks/get", taskId=created["taskId"])):
                if found["result"]["status"] != "working":
                    break

    assert created["ttlMs"] == 500
    assert found.get("result", {}).get("status") != "completed"


def test_seconds_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="task_seconds is a number of seconds, finite and more than 0"):
        before(Held(), task_seconds=0)
    with pytest.raises(ConfigError, match=r"'gateway\.task_seconds' must be more than 0 seconds"):
        load_gateway_config({"mcpServers": {}, "gateway": {"task_seconds": 0}})
    with pytest.raises(ValueError, match="slow_call_seconds must be more than 0"):
        before(Held(), seconds=0)
    with pytest.raises(ConfigError, match=r"'gateway\.slow_call_seconds' must be a number of seconds, not a string"):
        load_gateway_config({"mcpServers": {}, "gateway": {"slow_call_seconds": "5"}})


@pytest.mark.slow
async def test_a_slow_call_of_a_server_in_a_process_becomes_a_task() -> None:
    with anyio.fail_after(60), upstream("stdio-modern") as config:
        gateway = create_gateway({"up": config}, slow_call_seconds=0.05)
        async with caller(gateway, MODERN) as raw:
            created = await result(raw, "tools/call", name="hang", arguments={})

    assert created["resultType"] == "task"
