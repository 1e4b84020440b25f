"""Tasks that a run gives to an agent: started, looked after, cancelled, bounded, and found again after a crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolweave import Agent, ToolSpec, tool
from toolweave.agent import Durable, RunResult, SpawnTools, current_run, run_tree, spawn_tools
from toolweave.agent._stored.records import JOURNAL, read_record
from toolweave.agent._stored.status import RunStatuses
from toolweave.errors import ModelError
from toolweave.models import ModelRequest, ScriptedModel, ToolCallPart, ToolMessage, UserMessage, tool_call
from toolweave.state import MemoryStore, SqliteStore, Store
from toolweave.tools import CallContext, Tool, ToolCall, ToolSnapshot

pytestmark = pytest.mark.requirement("R103")

CHECKOUT = Path(__file__).resolve().parent.parent.parent


def results(request: ModelRequest) -> list[Any]:
    """Return the structured results that a conversation holds, in order; the text of errors."""
    outcomes = [one for message in request.messages if isinstance(message, ToolMessage) for one in message.outcomes]
    return [one.result.text if one.result.is_error else one.result.structured_content for one in outcomes]


def said(request: ModelRequest) -> str:
    """Return what was sent first."""
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    return first.text


def worker(answer: Callable[[ModelRequest], Any] = said, **options: Any) -> Agent:
    return Agent(ScriptedModel(answer), name="worker", **options)


def script(*turns: Any) -> ScriptedModel:
    """Say turns, of which functions are given the results so far."""
    left = list(turns)

    def say(request: ModelRequest) -> Any:
        turn = left.pop(0)
        return turn(results(request)) if callable(turn) else turn

    return ScriptedModel(say)


def outcomes(result: RunResult) -> list[Any]:
    found = [one for message in result.messages if isinstance(message, ToolMessage) for one in message.outcomes]
    return [one.result.text if one.result.is_error else one.result.structured_content for one in found]


async def direct(tools: Any, name: str, /, **arguments: Any) -> Any:
    """Call a tool as a client does that is no run."""
    spec = tools.snapshot().by_name[name]
    return (await Tool(spec, tools).call(arguments)).structured_content


@pytest.mark.parametrize("make", [MemoryStore, SqliteStore])
async def test_tasks_are_spawned_done_at_the_same_time_and_awaited(make: Callable[[], Store]) -> None:
    together = anyio.Event()
    begun: list[str] = []

    async def answer(request: ModelRequest) -> str:
        begun.append(said(request))
        if len(begun) == 2:
            together.set()
        with anyio.fail_after(60):
            await together.wait()
        return f"did {said(request)}"

    def look_at_the_first(seen: list[Any]) -> Any:
        return [tool_call("spawn_output", {"id": seen[0]["id"]}), tool_call("spawn_status")]

    async with make() as store:
        tools = spawn_tools(worker(answer), store)
        lead = Agent(
            script(
                [tool_call("spawn", {"prompt": "one"}), tool_call("spawn", {"prompt": "two"})],
                [tool_call("spawn_await")],
                look_at_the_first,
                "done",
            ),
            name="lead",
            tools=tools,
            store=store,
        )
        run = lead.send("go")
        result = await run
        whole = await run_tree(store, run.id)

    first, second, awaited, output, status = outcomes(result)
    assert [first["status"], second["status"]] == ["running", "running"]
    assert {one["output"] for one in awaited["tasks"]} == {"did one", "did two"}
    assert output == {"id": first["id"], "status": "completed", "output": "did one"}
    assert {(one["prompt"], one["status"]) for one in status["tasks"]} == {("one", "completed"), ("two", "completed")}
    assert whole is not None
    levels = [(level, one.record.agent, one.record.prompt, one.status) for level, one in whole.walk()]
    assert levels[0] == (0, "lead", "go", "completed")
    assert set(levels[1:]) == {(1, "worker", "one", "completed"), (1, "worker", "two", "completed")}
    assert {child.run.record.parent_id for child in whole.children} == {run.id}


async def test_a_task_that_failed_says_so_and_one_at_work_has_no_output_yet() -> None:
    reached, release = anyio.Event(), anyio.Event()

    async def answer(request: ModelRequest) -> Any:
        if said(request) == "fail":
            return ModelError("no such model", model="m", kind="invalid_request")
        reached.set()
        await release.wait()
        return "late"

    async with worker(answer) as agent:
        tools = spawn_tools(agent, MemoryStore())
        failing = await direct(tools, "spawn", prompt="fail")
        slow = await direct(tools, "spawn", prompt="slow")
        await reached.wait()
        failed = await direct(tools, "spawn_await", ids=[failing["id"]])
        waited = await direct(tools, "spawn_await", ids=[slow["id"]], seconds=0)
        early = await Tool(tools.snapshot().by_name["spawn_output"], tools).execute({"id": slow["id"]})
        release.set()
        done = await direct(tools, "spawn_await", ids=[slow["id"]])

    assert failed["tasks"][0]["status"] == "failed"
    assert failed["tasks"][0]["error"] == "model 'm': no such model"
    assert waited["tasks"] == [{"id": slow["id"], "status": "running", "prompt": "slow"}]
    assert early.is_error
    assert "is still at work; wait for it with spawn_await" in early.text
    assert done["tasks"] == [{"id": slow["id"], "status": "completed", "output": "late"}]


async def test_a_run_sees_the_tasks_of_its_session_and_no_others() -> None:
    store = MemoryStore()
    tools = spawn_tools(worker(), store)

    def lead(*turns: Any) -> Agent:
        return Agent(script(*turns), name="lead", tools=tools, store=store)

    first = await lead([tool_call("spawn", {"prompt": "x"})], [tool_call("spawn_await")], "ok").send("a", session="s")
    task = outcomes(first)[0]["id"]
    second = await lead([tool_call("spawn_output", {"id": task})], "ok").send("b", session="s")
    stranger = await lead([tool_call("spawn_output", {"id": task})], [tool_call("spawn_status")], "ok").send("c")

    assert outcomes(second)[-1]["output"] == "x"
    assert outcomes(stranger) == [f"you have no task {task!r}; spawn_status lists your tasks", {"tasks": []}]


async def test_cancelling_a_task_cancels_what_it_spawned() -> None:
    store, reached = MemoryStore(), anyio.Event()

    async def answer(request: ModelRequest) -> Any:
        if said(request) == "leaf":
            reached.set()
            await anyio.sleep_forever()
        return [tool_call("spawn", {"prompt": "leaf"})] if not results(request) else [tool_call("spawn_await")]

    async with worker(answer) as agent:
        tools = spawn_tools(agent, store)
        task = await direct(tools, "spawn", prompt="branch")
        await reached.wait()
        cancelled = await direct(tools, "spawn_cancel", id=task["id"])
        again = await direct(tools, "spawn_cancel", id=task["id"])
        whole = await run_tree(store, task["id"])

    assert (cancelled["cancelled"], again["cancelled"]) == (True, False)
    assert whole is not None
    assert [(one.record.prompt, one.status) for _, one in whole.walk()] == [
        ("branch", "cancelled"),
        ("leaf", "cancelled"),
    ]


async def test_cancelling_a_run_cancels_its_tasks() -> None:
    store, reached = MemoryStore(), anyio.Event()

    async def answer(request: ModelRequest) -> Any:
        reached.set()
        await anyio.sleep_forever()

    async with worker(answer) as agent:
        lead = Agent(
            script([tool_call("spawn", {"prompt": "x"})], [tool_call("spawn_await")]),
            tools=spawn_tools(agent, store),
            store=store,
        )
        run = lead.send("go").start()
        await reached.wait()
        run.cancel()
        await run
        (child,) = run.children.values()
        result = await child

    assert result.status == "cancelled"
    assert (await read_record(store, child.id) or result).status == "cancelled"


async def test_a_task_outlives_the_run_that_spawned_it() -> None:
    store, release = MemoryStore(), anyio.Event()

    async def answer(request: ModelRequest) -> str:
        await release.wait()
        return "did it"

    async with worker(answer) as agent:
        tools = spawn_tools(agent, store)
        result = await Agent(script([tool_call("spawn", {"prompt": "x"})], "started"), tools=tools).send("a")
        assert result.text == "started"
        (task,) = [one for one in await RunStatuses(store).active() if one.record.agent == "worker"]
        release.set()
        while (one := await RunStatuses(store).get(task.run_id)) is None or not one.record.done:
            await anyio.sleep(0)

    assert one.record.text == "did it"


async def test_a_task_at_work_in_another_process_is_awaited_there_and_not_begun_twice() -> None:
    store, reached, release = MemoryStore(), anyio.Event(), anyio.Event()
    begun: list[str] = []

    async def answer(request: ModelRequest) -> str:
        begun.append(said(request))
        reached.set()
        await release.wait()
        return "done there"

    async def look(seconds: float) -> None:
        release.set()
        await anyio.sleep(0)

    async with worker(answer) as there:
        task = await direct(spawn_tools(there, store), "spawn", prompt="x")
        await reached.wait()
        here = SpawnTools(
            worker(answer), Durable(store, agent="worker", sleep=look), depth=3, max_tasks=10, name="spawn"
        )
        status = await direct(here, "spawn_status", id=task["id"])
        awaited = await direct(here, "spawn_await")

    assert status["tasks"][0]["status"] == "running"
    assert awaited["tasks"] == [{"id": task["id"], "status": "completed", "output": "done there"}]
    assert begun == ["x"]


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("own", [True, False])
async def test_tasks_have_the_tools_down_to_the_depth_and_not_beyond(depth: int, own: bool) -> None:
    store, offered = MemoryStore(), dict[int, bool]()

    def answer(request: ModelRequest) -> Any:
        run = current_run()
        assert run is not None
        assert isinstance(request.tools, ToolSnapshot)
        offered[run.depth] = request.tools.find("spawn") is not None
        if not offered[run.depth]:
            return "too deep"
        if not results(request):
            return [tool_call("spawn", {"prompt": f"{run.depth}"})]
        return [tool_call("spawn_await")] if len(results(request)) == 1 else "done"

    agent = worker(answer)
    tools = spawn_tools(agent, store, depth=depth)
    if own:  # the agent gives tasks to itself
        agent.tools.add(tools)
        await agent.send("go")
    else:
        await agent.send("go", tools=tools)

    assert offered == {level: level < depth for level in range(depth + 1)}


async def test_a_spawn_beyond_the_depth_or_the_count_is_refused() -> None:
    async def answer(request: ModelRequest) -> Any:
        await anyio.sleep_forever()

    async with worker(answer) as agent:
        tools = spawn_tools(agent, MemoryStore(), max_tasks=2)
        spawn = Tool(tools.snapshot().by_name["spawn"], tools)
        first = await spawn.call({"prompt": "1"})
        await spawn.call({"prompt": "2"})
        refused = await spawn.execute({"prompt": "3"})
        await direct(tools, "spawn_cancel", id=first.structured_content["id"])
        again = await spawn.execute({"prompt": "3"})

    assert refused.is_error
    assert "2 tasks are at work, which is as many as there may be" in refused.text
    assert not again.is_error
    closed = spawn_tools(agent, MemoryStore(), depth=0)

    async def sneak() -> str:
        """Spawn though it is not offered."""
        return (await closed.call(ToolCall(name="spawn", arguments={"prompt": "x"}), CallContext())).text

    calls = [tool_call("spawn", {"prompt": "x"}), tool_call("sneak")]
    result = await Agent(script(calls, "ok"), tools=[closed, sneak]).send("go")
    texts = [one.result.text for message in result.messages[2:3] for one in getattr(message, "outcomes", ())]

    assert texts == ["no tool 'spawn'; there are sneak", "tasks may be nested 0 deep; do this one yourself"]


CRASHING = """
import os, signal, sys
import anyio
from tests.agent.test_spawn import crashing_lead
from toolweave.models import UserMessage
from toolweave.state import SqliteStore

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        lead = crashing_lead(store, sys.argv[2], lambda: os.kill(os.getpid(), signal.SIGKILL))
        await lead.begin([UserMessage.of("go")], run_id="lead-run")

anyio.run(main)
"""


def crashing_lead(store: Store, effects: str, crash: Callable[[], None]) -> Agent:
    """Return an agent that spawns two tasks; the second ends the process in the middle of its work."""

    def note(line: str) -> str:
        """Write a line."""
        with Path(effects).open("a") as file:
            file.write(f"{line}\n")
        return "noted"

    async def task(request: ModelRequest) -> Any:
        if not results(request):
            return [tool_call("note", {"line": said(request)})]
        if said(request) == "two":
            with anyio.fail_after(60):
                while "one" not in Path(effects).read_text():
                    await anyio.sleep(0)
            crash()
        return f"did {said(request)}"

    def say(request: ModelRequest) -> Any:
        seen = results(request)
        if not seen:
            return [tool_call("spawn", {"prompt": "one"}, id="a"), tool_call("spawn", {"prompt": "two"}, id="b")]
        return [tool_call("spawn_await", id="c")] if len(seen) == 2 else "all done"

    agent = Agent(ScriptedModel(task), name="worker", tools=[note], store=store)
    return Agent(ScriptedModel(say), name="lead", tools=spawn_tools(agent), store=store)


@pytest.mark.slow
async def test_tasks_that_a_crash_interrupted_go_on_with_their_parent_and_are_spawned_once(tmp_path: Path) -> None:
    path, effects = tmp_path / "store.db", tmp_path / "effects"
    command = [sys.executable, "-c", CRASHING, str(path), str(effects)]
    killed = subprocess.run(command, check=False, cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
    assert killed.returncode == -9, killed.stderr

    async with SqliteStore(path) as store:
        left = await RunStatuses(store).interrupted()
        lead = crashing_lead(store, str(effects), lambda: None)
        result = await (await lead.resume("lead-run"))
        whole = await run_tree(store, "lead-run")

    assert {one.record.agent for one in left} >= {"lead", "worker"}
    assert result.text == "all done"
    assert {one["output"] for one in outcomes(result)[-1]["tasks"]} == {"did one", "did two"}
    assert whole is not None
    assert sorted(one.record.prompt for _, one in whole.walk()) == ["go", "one", "two"]
    assert sorted(effects.read_text().split()) == ["one", "two"]


async def test_a_spawn_whose_process_died_before_it_was_recorded_is_the_same_task_when_it_is_made_again() -> None:
    store = MemoryStore()
    tools = spawn_tools(worker(), store)
    call = tool_call("spawn", {"prompt": "x"}, id="a")
    first = Agent(script([call], ModelError("down", model="m")), name="lead", tools=tools, store=store)
    with pytest.raises(ModelError):
        await first.begin([UserMessage.of("go")], run_id="lead-run")
    key = "lead-run/000001/call/a"
    assert await store.get(JOURNAL, key) is not None
    await store.put(JOURNAL, key, {"name": "spawn", "begun": 0})
    second = Agent(script([tool_call("spawn_await")], "ok"), name="lead", tools=tools, store=store)
    result = await (await second.resume("lead-run"))

    spawned, awaited = outcomes(result)
    assert awaited["tasks"] == [{"id": spawned["id"], "status": "completed", "output": "x"}]


@pytest.mark.slow
async def test_interrupted_tasks_go_on_without_their_parent_when_that_is_asked_for(tmp_path: Path) -> None:
    path, effects = tmp_path / "store.db", tmp_path / "effects"
    command = [sys.executable, "-c", CRASHING, str(path), str(effects)]
    killed = subprocess.run(command, check=False, cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
    assert killed.returncode == -9, killed.stderr

    async with SqliteStore(path) as store:
        agent = worker(lambda request: f"did {said(request)}", store=store)
        runs = await spawn_tools(agent).recover()
        texts = {(await run).text for run in runs}
        left = await RunStatuses(store).interrupted()

    assert "did two" in texts
    assert [one.record.agent for one in left] == ["lead"]


async def test_a_session_does_not_see_the_tasks_of_one_whose_name_goes_on_after_its_own() -> None:
    store = MemoryStore()
    worker = Agent(ScriptedModel(["secret"]), name="worker", store=store)
    tools = spawn_tools(worker)
    lead = Agent(
        ScriptedModel([tool_call("spawn", {"prompt": "secret"}), "done", tool_call("spawn_await"), "done"]), tools=tools
    )

    await lead.send("go", session="ann/private")
    result = await lead.send("go", session="ann")

    told = next(one for one in result.messages if isinstance(one, ToolMessage))
    assert told.outcomes[0].result.structured_content == {"tasks": []}


async def test_a_policy_of_the_run_that_spawns_a_task_counts_for_the_calls_of_the_task() -> None:
    done: list[str] = []

    @tool
    def rm(path: str) -> str:
        """Remove a file."""
        done.append(path)
        return "removed"

    def policy(call: ToolCallPart, spec: ToolSpec) -> bool:
        return spec.name != "rm"

    store = MemoryStore()
    child = Agent(ScriptedModel([tool_call("rm", {"path": "a"}), "done"]), name="worker", tools=[rm])
    lead = Agent(
        script(tool_call("spawn", {"prompt": "clean up"}), tool_call("spawn_await"), "over"),
        name="lead",
        tools=spawn_tools(child, store),
        store=store,
        confirm=policy,
    )
    result = await lead.run("go")

    assert outcomes(result)[1]["tasks"][0]["status"] == "completed"
    assert done == []
