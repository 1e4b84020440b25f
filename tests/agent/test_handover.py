"""A worker that is asked to stop: turns and calls under way end, and their runs continue in another worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent.test_refused_writes import full
from tests.jobs.places import PLACES, url_of, working
from tests.redis_server import RedisServer
from toolweave import Agent, Backend, ScriptedModel, tool, tool_call
from toolweave.agent import RunRecord, work_runs
from toolweave.models import ModelRequest, ToolCallPart, ToolMessage
from toolweave.tools import CallContext, FunctionTool


class Work:
    """A tool whose calls end when the test lets them, and all that agents have read and done.

    Attributes:
        begun: How often each call was made, by its name.
        ended: How often each of them ended.
        go_on: Lets calls end.
        texts: The results that models have read.
    """

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.go_on = anyio.Event()
        self.texts: list[str] = []

    def tool(self) -> FunctionTool[..., Any]:
        """Return the tool."""

        @tool
        async def charge(order: str) -> str:
            """Charge an order.

            Args:
                order: Its name.
            """
            self.begun[order] += 1
            await self.go_on.wait()
            self.ended[order] += 1
            return f"charged {order}"

        return charge

    def model(self, *turns: list[ToolCallPart]) -> ScriptedModel:
        """Return a model that makes these calls, turn by turn, and then says that it is done."""

        def answer(request: ModelRequest) -> str | list[ToolCallPart]:
            done = [message for message in request.messages if isinstance(message, ToolMessage)]
            self.texts += [outcome.result.text for message in done[-1:] for outcome in message.outcomes]
            return "done" if len(done) == len(turns) else turns[len(done)]

        return ScriptedModel(answer)

    async def under_way(self, calls: int) -> None:
        """Wait until so many calls have begun."""
        while self.begun.total() < calls:
            await anyio.sleep(0.01)


def charge(order: str) -> ToolCallPart:
    """Return a call."""
    return tool_call("charge", {"order": order}, id=order)


@asynccontextmanager
async def stopping(backend: Backend, *agents: Agent, grace_seconds: float = 60) -> AsyncGenerator[Callable[[], None]]:
    """Run a worker; yield the function that asks it to stop, and wait for its end."""
    started = anyio.Event()
    asked = anyio.CancelScope()

    async def work() -> None:
        with asked:
            await work_runs(agents, backend, grace_seconds=grace_seconds, started=started.set)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await started.wait()
            yield asked.cancel


async def run_in_two_workers(work: Work, backend: Backend, agent: Agent, *, calls: int) -> RunRecord:
    """Submit a run, stop its worker in the middle of so many calls, and let another continue; return its record."""
    async with backend:
        async with stopping(backend, agent) as stop:
            run = await agent.submit("go")
            await work.under_way(calls)
            stop()
            work.go_on.set()
        assert work.begun == work.ended
        assert work.begun.total() == calls
        async with working(backend, agent):
            return await run.result(timeout=60)


@pytest.mark.parametrize("place", PLACES)
async def test_all_calls_of_a_turn_end_and_no_other_step_begins(redis_server: RedisServer | None, place: str) -> None:
    work = Work()
    model = work.model([charge("a"), charge("b")], [charge("c")])
    backend = Backend(url_of(place, redis_server))
    agent = Agent(model, name="shop", tools=[work.tool()], backend=backend)

    record = await run_in_two_workers(work, backend, agent, calls=2)

    assert (record.status, record.text, record.attempts) == ("completed", "done", 2)
    assert work.texts == ["charged a", "charged b", "charged c"]
    assert set(work.ended.values()) == {1}


async def test_a_run_below_a_run_ends_its_call_and_continues_after_it() -> None:
    work = Work()
    backend = Backend("memory://")
    clerk = Agent(work.model([charge("a")], [charge("b")]), name="clerk", tools=[work.tool()], backend=backend)
    order = [tool_call("agent_clerk", {"message": "go"}, id="c1"), charge("c")]
    chief = Agent(work.model(order), name="chief", tools=[clerk.as_tool(), work.tool()], backend=backend)

    record = await run_in_two_workers(work, backend, chief, calls=2)

    assert (record.status, record.text) == ("completed", "done")
    assert work.texts == ["charged a", "charged b", "done", "charged c"]
    assert set(work.ended.values()) == {1}


async def test_a_tool_that_runs_an_agent_by_itself_ends_with_it() -> None:
    work = Work()
    backend = Backend("memory://")
    clerk = Agent(work.model([charge("a")], [charge("b")]), name="clerk", tools=[work.tool()])
    calls: list[str] = []

    @tool
    async def delegate(ctx: CallContext) -> str:
        """Have the clerk do it."""
        calls.append("delegate")
        return (await clerk.send("go")).text

    chief = Agent(work.model([tool_call("delegate", {}, id="d")]), name="chief", tools=[delegate], backend=backend)
    async with backend:
        async with stopping(backend, chief) as stop:
            run = await chief.submit("go")
            await work.under_way(1)
            stop()
            work.go_on.set()
        assert work.ended == {"a": 1, "b": 1}
        async with working(backend, chief):
            record = await run.result(timeout=60)

    assert (record.status, record.text) == ("completed", "done")
    assert calls == ["delegate"]


async def test_a_worker_that_stops_takes_no_further_run_and_ends_when_the_last_one_has(
    redis_server: RedisServer | None,
) -> None:
    work = Work()
    backend = Backend(url_of("redis", redis_server))
    agent = Agent(work.model([charge("a")]), name="shop", tools=[work.tool()], backend=backend)
    async with backend:
        async with stopping(backend, agent) as stop:
            first = await agent.submit("go")
            await work.under_way(1)
            stop()
            second = await agent.submit("go")
            with anyio.move_on_after(2):  # longer than it takes to read the queue
                await work.under_way(2)
            assert work.begun == {"a": 1}
            work.go_on.set()
        async with working(backend, agent):
            records = [await run.result(timeout=60) for run in (first, second)]

    assert [record.status for record in records] == ["completed"] * 2
    assert [record.attempts for record in records] == [2, 1]


@pytest.mark.slow
async def test_a_result_is_kept_although_the_worker_is_stopped_while_the_store_refuses_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    with RedisServer(tmp_path) as server:
        backend = Backend(server.url)
        agent = Agent(work.model([charge("a")]), name="shop", tools=[work.tool()], backend=backend)
        async with backend:
            async with stopping(backend, agent, grace_seconds=0) as stop:
                run = await agent.submit("go")
                await work.under_way(1)

                async def refused() -> None:
                    work.go_on.set()
                    while "its journal cannot be written, trying again" not in caplog.text:
                        await anyio.sleep(0.01)
                    stop()
                    await anyio.sleep(0.5)

                await full(server, refused)
            async with working(backend, agent):
                record = await run.result(timeout=60)

    assert record.status == "completed"
    assert work.texts == ["charged a"]
    assert work.ended == {"a": 1}
