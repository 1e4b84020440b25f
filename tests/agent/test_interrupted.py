"""Who ends a run decides what is recorded: whoever cancels it, or a process that ends and leaves it to be resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent.interrupted_run import RUN
from toolweave import Agent
from toolweave.agent import Run, RunStatuses
from toolweave.agent._idempotency import run_id_of
from toolweave.agent._run import runtime_of
from toolweave.agent._stored.records import CONVERSATIONS, LEASES
from toolweave.models import ScriptedModel, tool_call
from toolweave.state import MemoryStore, SqliteStore

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["await", "watch", "leave", "below"])
async def test_a_run_whose_process_is_interrupted_can_be_resumed(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-m", "tests.agent.interrupted_run", str(tmp_path / "store.db"), how]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in errors

    name = "lead" if how == "below" else "worker"
    run_id = run_id_of(name, RUN)
    async with SqliteStore(tmp_path / "store.db") as store:
        left = await RunStatuses(store).interrupted(agent=name)
        assert [one.run_id for one in left] == [run_id]
        assert await store.scan(LEASES) == []
        assert await store.scan(CONVERSATIONS) == []

        worker = Agent(ScriptedModel(["done below"]), name="worker", store=store)
        agent = Agent(ScriptedModel(["done"]), name="lead", tools=[worker.as_tool()], store=store)
        result = await (await (agent if how == "below" else worker).resume(run_id))
        said = await store.scan(CONVERSATIONS)

    assert result.status == "completed"
    assert [one.key for one in said if one.key.startswith(f"{name}/")] == [f"{name}/s"]


def waiting(**options: Any) -> tuple[Agent, anyio.Event]:
    """Return an agent whose tool waits, and what is set when it does."""
    reached = anyio.Event()

    async def wait() -> None:
        """Wait."""
        reached.set()
        await anyio.sleep_forever()

    return Agent(ScriptedModel([tool_call("wait")]), tools=[wait], **options), reached


async def cancelled(run: Run) -> None:
    run.cancel()
    await run


async def forgotten(run: Run) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run


async def closed(run: Run) -> None:
    period = runtime_of(run).lifespan.period
    assert period is not None
    await period.close()


@pytest.mark.parametrize(
    ("end", "status"), [(cancelled, "cancelled"), (forgotten, "interrupted"), (closed, "interrupted")]
)
async def test_a_run_is_cancelled_only_when_somebody_says_so(
    end: Callable[[Run], Awaitable[None]], status: str
) -> None:
    store = MemoryStore()
    agent, reached = waiting(store=store)
    run = agent.send("go").start()
    await reached.wait()
    await end(run)
    found = await RunStatuses(store).get(run.id)

    assert run.status == "cancelled"
    assert found is not None
    assert found.status == status


async def test_a_run_in_memory_that_nobody_awaits_any_more_leaves_what_was_said_in_its_session() -> None:
    agent, reached = waiting()
    run = agent.send("go", session="s").start()
    await reached.wait()
    await forgotten(run)
    conversation = await agent._runtime.conversations.load("s")

    assert len(conversation) == 3


async def test_a_run_below_is_cancelled_when_the_run_above_gives_it_up() -> None:
    store = MemoryStore()
    below, reached = waiting(name="b", store=store)
    ask = tool_call("agent_b", {"message": "x"})
    run = Agent(ScriptedModel([ask, "done"]), tools=[below.as_tool()], store=store).send("go")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_awaited, run)
        await reached.wait()
        run.cancel()
    found = await RunStatuses(store).recent()

    assert {one.record.agent: one.status for one in found} == {"agent": "cancelled", "b": "cancelled"}


async def test_an_agents_tool_that_is_called_by_no_run_cancels_its_run_when_its_caller_goes() -> None:
    store = MemoryStore()
    agent, reached = waiting(name="b", store=store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.as_tool().execute, {"message": "x"})
        await reached.wait()
        tasks.cancel_scope.cancel()

    assert [one.status for one in await RunStatuses(store).recent()] == ["cancelled"]


async def _awaited(run: Run) -> None:
    await run
