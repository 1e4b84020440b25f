"""Tasks that workers do: given to the queue, waited for from afar, and done by who waits when no worker takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.jobs.places import PLACES, url_of, working
from tests.redis_server import RedisServer
from toolweave import Agent, ToolSpec, tool
from toolweave.agent import ApprovalRequested, RunStatuses, current_run, spawn_tools
from toolweave.jobs import Backend
from toolweave.models import ModelRequest, ScriptedModel, ToolCallPart, ToolMessage, UserMessage, tool_call
from toolweave.state import MemoryStore

pytestmark = [pytest.mark.requirement("R103"), pytest.mark.slow]


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, redis_server: RedisServer | None) -> str:
    return url_of(request.param, redis_server)


def said(request: ModelRequest) -> str:
    """Return what was sent first."""
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    return first.text


def outcomes(request: ModelRequest) -> list[Any]:
    """Return the structured results of the last calls."""
    found = request.messages[-1]
    assert isinstance(found, ToolMessage)
    return [one.result.text if one.result.is_error else one.result.structured_content for one in found.outcomes]


def divide(request: ModelRequest) -> Any:
    """Do a text of one letter; give each half of a longer one to a task and put together what they come to."""
    text, turn = said(request), len(request.messages)
    if len(text) == 1:
        return text.upper()
    if turn == 1:
        half = len(text) // 2
        return [tool_call("spawn", {"prompt": part}, id=part) for part in (text[:half], text[half:])]
    if turn == 3:
        return [tool_call("spawn_await", {"ids": [one["id"] for one in outcomes(request)]})]
    return "".join(task["output"] for task in outcomes(request)[0]["tasks"])


def dividing(backend: Backend) -> Agent:
    agent = Agent(ScriptedModel(divide), name="divide", backend=backend)
    agent.tools.add(spawn_tools(agent))
    return agent


async def test_workers_do_the_tasks_of_a_run_and_its_answer_has_what_they_came_to(url: str) -> None:
    def elsewhere(request: ModelRequest) -> str:
        run = current_run()
        assert run is None or run.parent is None  # not below the run that asked for it, which is another process's
        return f"did {said(request)}"

    def ask(request: ModelRequest) -> Any:
        turn = len(request.messages)
        if turn == 1:
            return [tool_call("spawn", {"prompt": name}, id=name) for name in "ab"]
        if turn == 3:
            assert [one["status"] for one in outcomes(request)] == ["pending", "pending"]
            return [tool_call("spawn_await")]
        return " ".join(task["output"] for task in outcomes(request)[0]["tasks"])

    async with Backend(url) as backend:
        here = Agent(ScriptedModel(lambda request: "not here"), name="worker", backend=backend)
        there = Agent(ScriptedModel(elsewhere), name="worker", backend=backend)
        boss = Agent(ScriptedModel(ask), name="boss", tools=[spawn_tools(here)], backend=backend)
        async with working(backend, there):
            result = await boss.send("go")
        tasks = [one.record for one in await RunStatuses(backend.store).recent(agent="worker")]
    assert result.text == "did a did b"
    assert [(task.parent_id, task.depth, task.attempts) for task in tasks] == [(result.run_id, 1, 1)] * 2


async def test_who_waits_for_tasks_that_no_worker_takes_does_them(url: str) -> None:
    async with Backend(url) as backend:
        assert (await dividing(backend).send("ab")).text == "AB"
        stats = await RunStatuses(backend.store).stats()
    assert dict(stats.by_status) == {"completed": 3}


@pytest.mark.slow
async def test_runs_that_wait_for_their_tasks_do_not_keep_them_from_being_done(url: str) -> None:
    async with Backend(url) as backend:
        agent = dividing(backend)
        async with working(backend, agent, concurrency=1):
            runs = [await agent.submit(text) for text in ("abcd", "efgh")]
            records = [await run for run in runs]
        found = [one.record for one in await RunStatuses(backend.store).recent(100)]
    assert [record.text for record in records] == ["ABCD", "EFGH"]
    # each task once: they are found by the calls that spawned them
    assert sorted(record.prompt for record in found) == sorted(
        ["abcd", "ab", "cd", "a", "b", "c", "d", "efgh", "ef", "gh", "e", "f", "g", "h"]
    )
    assert {(record.status, record.attempts) for record in found} == {("completed", 1)}


async def test_a_task_that_a_worker_does_may_spawn_as_deep_as_it_was_allowed_to() -> None:
    seen: dict[str, bool] = {}

    def nest(request: ModelRequest) -> Any:
        seen[said(request)] = any(one.name == "sub" for one in request.tools)
        if len(request.messages) > 1 or not seen[said(request)]:
            return "done"
        return [tool_call("sub", {"prompt": f"{said(request)}+"}, id=said(request))]

    async with Backend() as backend:
        agent = Agent(ScriptedModel(nest), name="nest", backend=backend)
        boss = Agent(ScriptedModel(nest), name="boss", tools=[spawn_tools(agent, depth=2, name="sub")], backend=backend)
        async with working(backend, agent):
            await boss.send("x")
            while "x++" not in seen:
                await anyio.sleep(0.01)
    assert seen == {"x": True, "x+": True, "x++": False}


async def test_two_who_wait_for_one_interrupted_task_at_the_same_time_both_get_its_result() -> None:
    begun: list[str] = []
    stop = anyio.Event()

    async def slow(request: ModelRequest) -> str:
        begun.append(said(request))
        if len(begun) == 1:
            stop.set()
            await anyio.sleep_forever()
        return "done"

    def ask(request: ModelRequest) -> Any:
        turn = len(request.messages)
        if turn == 1:
            return [tool_call("spawn", {"prompt": "a"})]
        if turn == 3:
            ids = [outcomes(request)[0]["id"]]
            return [tool_call("spawn_await", {"ids": ids}, id=f"await {number}") for number in range(5)]
        return repr([answer["tasks"][0].get("output") for answer in outcomes(request)])

    class Restarting:
        """Interrupts the task between the call that spawns it and those that wait for it."""

        async def __call__(self, request: ModelRequest) -> Any:
            if len(request.messages) == 3:
                await stop.wait()
                await worker.close()
            return ask(request)

    worker = Agent(ScriptedModel(slow), name="worker", store=(store := MemoryStore()))
    boss = Agent(ScriptedModel(Restarting()), name="boss", tools=[spawn_tools(worker)], store=store)
    assert (await boss.send("go")).text == repr(["done"] * 5)
    assert begun == ["a", "a"]


def only_reading(call: ToolCallPart, spec: ToolSpec) -> bool:
    return spec.name != "rm"


@pytest.mark.parametrize(
    ("policy", "removed"), [("never", ["a"]), ("destructive", []), ("always", []), (only_reading, [])]
)
async def test_a_call_of_a_task_at_a_worker_is_refused_if_a_run_above_wants_a_person_asked(
    policy: Any, removed: list[str]
) -> None:
    done: list[str] = []

    @tool(annotations={"destructiveHint": True})
    def rm(path: str) -> str:
        """Remove a file."""
        done.append(path)
        return "removed"

    def clean(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return tool_call("rm", {"path": "a"})
        (outcome,) = outcomes(request)
        return f"it {outcome}"

    def ask(request: ModelRequest) -> Any:
        turn = len(request.messages)
        if turn == 1:
            return tool_call("spawn", {"prompt": "clean up"})
        if turn == 3:
            return tool_call("spawn_await")
        return outcomes(request)[0]["tasks"][0]["output"]

    async with Backend("memory://") as backend:
        here = Agent(ScriptedModel(lambda request: "not here"), name="worker", backend=backend)
        there = Agent(ScriptedModel(clean), name="worker", tools=[rm], backend=backend)
        top = Agent(ScriptedModel(ask), name="boss", tools=[spawn_tools(here)], backend=backend, confirm=policy)
        async with working(backend, there):
            run = top.send("go")
            async for event in run:
                if isinstance(event, ApprovalRequested):  # spawning is a call as well
                    run.approve(event.call.id)
            result = await run

    assert done == removed
    assert ("nobody can be asked" in result.text) == (not removed)


async def test_the_policy_of_a_run_counts_for_tasks_of_its_tasks_at_workers() -> None:
    done: list[str] = []

    @tool(annotations={"destructiveHint": True})
    def rm(path: str) -> str:
        """Remove a file."""
        done.append(path)
        return "removed"

    def spawning(then: str) -> Callable[[ModelRequest], Any]:
        def ask(request: ModelRequest) -> Any:
            turn = len(request.messages)
            if turn == 1:
                return tool_call("spawn", {"prompt": then})
            if turn == 3:
                return tool_call("spawn_await")
            return outcomes(request)[0]["tasks"][0]["output"]

        return ask

    def work(request: ModelRequest) -> Any:
        if said(request) == "pass it on":
            return spawning("clean up")(request)
        if len(request.messages) == 1:
            return tool_call("rm", {"path": "a"})
        return f"it {outcomes(request)[0]}"

    async with Backend("memory://") as backend:
        agent = Agent(ScriptedModel(work), name="worker", tools=[rm], backend=backend)
        agent.tools.add(spawn_tools(agent))
        top = Agent(
            ScriptedModel(spawning("pass it on")),
            name="boss",
            tools=[spawn_tools(agent)],
            backend=backend,
            confirm="destructive",
        )
        async with working(backend, agent):
            result = await top.run("go")

    assert done == []
    assert "nobody can be asked" in result.text
