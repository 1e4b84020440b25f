"""What is done about a call that was on its way when its process ended: said with the agent, the run or the worker."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.jobs.places import working
from toolweave import Agent, ScriptedModel, spawn_tools, tool, tool_call
from toolweave.agent import OnUnknown, work_runs
from toolweave.jobs import Backend
from toolweave.models import ModelRequest
from toolweave.state import MemoryStore

pytestmark = pytest.mark.slow


class Payments:
    """A tool that is interrupted in its first call, and counts."""

    def __init__(self) -> None:
        self.made = 0
        self.begun = anyio.Event()
        self.tool = tool(self._pay, name="pay")

    async def _pay(self) -> str:
        """Pay."""
        self.made += 1
        if self.made == 1:
            self.begun.set()
            await anyio.sleep_forever()
        return "paid"

    def agent(self, **options: Any) -> Agent:
        def answer(request: ModelRequest) -> Any:
            return [tool_call("pay", id="p")] if len(request.messages) == 1 else "done"

        return Agent(ScriptedModel(answer), name="payer", tools=[self.tool], **options)


async def interrupted(payments: Payments, backend: Backend, *, submit: OnUnknown | None = None) -> str:
    """Submit a run whose worker ends in the middle of a call; return its id."""
    agent = payments.agent(backend=backend)
    async with working(backend, agent):
        run = await agent.submit("go", on_unknown=submit)
        await payments.begun.wait()
    return run.id


async def ended(run_id: str, backend: Backend, agent: Agent, on_unknown: OnUnknown | None = None) -> None:
    """Have a worker do a run to its end."""
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: work_runs([agent], backend, on_unknown=on_unknown))
            while (found := await backend.store.get("runs", run_id)) is None or found.value["status"] != "completed":
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("on_unknown", "made"), [("error", 1), ("ask", 1), ("rerun", 2)])
async def test_the_agent_says_it_for_all_of_its_runs(on_unknown: OnUnknown, made: int) -> None:
    store, payments = MemoryStore(), Payments()
    first = payments.agent(store=store)
    async with first:
        run = first.send("go").start()
        await payments.begun.wait()
    resumed = await payments.agent(store=store, on_unknown=on_unknown).resume(run.id, attended=False)
    assert (await resumed).text == "done"
    assert payments.made == made


@pytest.mark.parametrize(
    ("agent", "worker", "submit", "made"),
    [
        (None, None, None, 1),
        ("rerun", None, None, 2),
        (None, "rerun", None, 2),
        (None, None, "rerun", 2),
        ("rerun", "error", None, 1),
        ("error", "rerun", "error", 1),
        ("error", "error", "rerun", 2),
    ],
)
async def test_a_worker_does_what_the_run_says_else_what_it_says_itself_else_the_agent(
    agent: OnUnknown | None, worker: OnUnknown | None, submit: OnUnknown | None, made: int
) -> None:
    payments = Payments()
    async with Backend() as backend:
        run_id = await interrupted(payments, backend, submit=submit)
        options = {} if agent is None else {"on_unknown": agent}
        await ended(run_id, backend, payments.agent(backend=backend, **options), worker)
    assert payments.made == made


@pytest.mark.parametrize("with_workers", [True, False])
@pytest.mark.parametrize(("on_unknown", "made"), [(None, 1), ("rerun", 2)])
async def test_who_recovers_tasks_says_it_for_them(on_unknown: OnUnknown | None, made: int, with_workers: bool) -> None:
    payments = Payments()
    async with Backend() as backend:
        kept: dict[str, Any] = {"backend": backend} if with_workers else {"store": backend.store}
        first = payments.agent(**kept)
        lead = Agent(ScriptedModel([tool_call("spawn", {"prompt": "go"}), "ok"]), tools=spawn_tools(first), **kept)
        result = await lead.send("go")
        (record,) = [one.value for one in await backend.store.scan("runs") if one.value["agent"] == "payer"]
        if with_workers:
            async with working(backend, first):
                await payments.begun.wait()
        else:
            async with first:  # its runs end with it
                await payments.begun.wait()
        assert result.text == "ok"
        again = payments.agent(**kept)
        runs = await spawn_tools(again).recover(on_unknown=on_unknown)
        if with_workers:
            await ended(record["run_id"], backend, again)
        else:
            assert [(await run).text for run in runs] == ["done"]
    assert payments.made == made
