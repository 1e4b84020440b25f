"""What is told twice is done once: the keys of calls, and runs that a key stands for."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.connect.targets import EACH_ERA, connected, serving
from tests.tools.doubles import Scripted, spec
from toolweave import Agent
from toolweave.agent import RunResult, RunStatuses, parallelize
from toolweave.agent._idempotency import call_key, part_key, run_id_of
from toolweave.agent._stored.durable import Durable
from toolweave.errors import ModelError, RunError
from toolweave.models import Model, ScriptedModel, ToolMessage, tool_call
from toolweave.state import MemoryStore, Store
from toolweave.tools import IDEMPOTENCY_KEY, RESUMABLE, CallContext, Tool, tool

DOWN = ModelError("down", model="m")


def noting(keys: list[Any], **options: Any) -> Tool:
    """Return a tool that notes under which key it is called."""

    def note(number: int = 0, *, ctx: CallContext) -> str:
        """Note."""
        keys.append(ctx.meta.get(IDEMPOTENCY_KEY))
        return f"noted {number}"

    return tool(note, **options)


def texts(result: RunResult) -> list[str]:
    told = [one for message in result.messages if isinstance(message, ToolMessage) for one in message.outcomes]
    return [one.result.text for one in told]


async def begun_again(store: Store, run_id: str, call_id: str) -> None:
    """Make a recorded call one that had begun when its process died."""
    entry = next(one for one in await store.scan("run-journal", prefix=run_id) if one.key.endswith(f"/call/{call_id}"))
    await store.put("run-journal", entry.key, {"name": entry.value["name"], "begun": 1.0})


# the keys of calls


async def test_every_call_of_a_run_that_is_kept_has_a_key_and_the_same_one_when_it_is_made_again() -> None:
    store, keys = MemoryStore(), list[Any]()
    note = noting(keys, annotations={"idempotentHint": True})
    twice: list[Any] = [[tool_call("note", id="a"), tool_call("note", id="b")], [tool_call("note", id="c")], DOWN]
    run = Agent(ScriptedModel(twice), tools=[note], store=store).send("go")
    with pytest.raises(ModelError):
        await run
    await begun_again(store, run.id, "b")
    await (await Agent(ScriptedModel(["done"]), tools=[note], store=store).resume(run.id))

    a, b, c = (call_key(run.id, step, one) for step, one in ((1, "a"), (1, "b"), (2, "c")))
    assert len({a, b, c}) == 3
    assert set(keys[:2]) == {a, b}  # calls of one turn run at the same time, each in a thread
    assert keys[2:] == [c, b]


async def test_a_run_that_nobody_keeps_adds_nothing_to_its_calls() -> None:
    server = Scripted([spec("read", server="files")])
    await Agent(ScriptedModel([tool_call("read"), "done"]), tools=server).send("go")

    assert server.calls[0][1].meta == {}


@EACH_ERA
async def test_servers_are_told_the_key_in_meta_and_nothing_by_a_run_that_nobody_keeps(version: str) -> None:
    with serving("channel", version) as server:
        async with connected(server) as connection:
            for store in (MemoryStore(), None):
                script = ScriptedModel([tool_call("echo", {"text": "hi"}, id="a"), "done"])
                run = Agent(script, tools=connection, store=store).send("go")
                assert texts(await run) == ["hi"]
                told = [one["params"].get("_meta", {}) for one in server.received if one["method"] == "tools/call"]
                wanted = None if store is None else call_key(run.id, 1, "a")
                assert told[-1].get(IDEMPOTENCY_KEY) == wanted
                assert wanted is not None or "io.toolweave" not in str(told[-1])


async def test_the_key_of_one_call_is_not_handed_on_to_others() -> None:
    keys: list[Any] = []
    given = CallContext(meta={IDEMPOTENCY_KEY: "of somebody's call", "com.example/tenant": "a"})
    plain = Agent(ScriptedModel([tool_call("note"), "done"]), name="b", tools=[noting(keys)])
    await plain.send("go", ctx=given)
    outer = Agent(
        ScriptedModel([tool_call("agent_b", {"message": "x"}), "done"]),
        tools=[Agent(ScriptedModel([tool_call("note"), "done"]), name="b", tools=[noting(keys)]).as_tool()],
        store=MemoryStore(),
    )
    await outer.send("go", ctx=given)

    assert keys == [None, None]


async def test_each_of_many_calls_in_one_has_a_key_of_its_own() -> None:
    keys: list[Any] = []
    many = tool_call("parallel_note", {"calls": [{"number": 1}, {"number": 2}]}, id="a")
    agent = Agent(ScriptedModel([many, "done"]), tools=[parallelize(noting(keys), limit=1)], store=MemoryStore())
    run = agent.send("go")
    await run

    assert keys == [part_key(call_key(run.id, 1, "a"), number) for number in range(2)]


def test_keys_of_different_things_are_different() -> None:
    parts = [("a", 1, "1/b"), ("a", 11, "/b"), ("a1", 1, "/b"), ("a", 1, "b")]

    assert len({call_key(*one) for one in parts} | {run_id_of("a", "b"), run_id_of("ab", ""), part_key("a", 1)}) == 7


# runs that a key stands for


async def test_a_message_that_is_sent_again_with_its_key_is_the_same_run() -> None:
    store, keys = MemoryStore(), list[Any]()
    model = ScriptedModel([tool_call("note"), DOWN, "done"])
    agent = Agent(model, name="payer", tools=[noting(keys)], store=store)
    with pytest.raises(ModelError):
        await agent.send("go", key="order 7")
    second = agent.send("go", key="order 7")
    first, again = await second, await agent.send("go", key="order 7")
    other = agent.send("go", key="order 8")

    assert (first.text, again.text, len(keys), len(model.requests)) == ("done", "done", 1, 3)
    assert second.id == run_id_of("payer", "order 7") != other.id
    assert len(await RunStatuses(store).recent()) == 1


async def test_a_key_that_stands_for_something_else_is_refused_and_nothing_changes() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(["done"]), store=store)
    run = agent.send("go", key="k")
    await run
    for other in (agent.send("stop", key="k"), agent.send("go", key="k", session="s")):
        with pytest.raises(RunError, match="began with something else; its id, or its key, is taken"):
            await other
    found = await RunStatuses(store).get(run.id)

    assert found is not None
    assert (found.status, found.record.attempts) == ("completed", 1)
    with pytest.raises(ValueError, match="keeps nothing to find a key in"):
        Agent(ScriptedModel([])).send("go", key="k")


async def test_a_key_whose_run_goes_on_already_is_refused_until_it_has_ended_and_nothing_is_said_to_have_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reached, go = anyio.Event(), anyio.Event()

    async def wait() -> str:
        """Wait."""
        reached.set()
        await go.wait()
        return "waited"

    agent = Agent(ScriptedModel([tool_call("wait"), "done"]), tools=[wait], store=MemoryStore())
    first = agent.send("go", key="k", session="s").start()
    await reached.wait()
    other = Agent(ScriptedModel([]), store=agent.durable.store if agent.durable else None)
    with pytest.raises(RunError, match="is running elsewhere"):
        await other.send("go", key="k", session="s")
    go.set()
    texts = [(await first).text, (await agent.send("go", key="k", session="s")).text]

    assert texts == ["done", "done"]
    assert [one for one in caplog.records if "failed" in one.message] == []


def team(outer: Model, inner: Model, store: Store, *tools: Tool) -> Agent:
    """Return an agent that asks another; both are kept."""
    below = Agent(inner, name="b", tools=tools, store=store)
    return Agent(outer, tools=[below.as_tool()], store=store)


async def test_an_agent_that_was_at_work_for_another_goes_on_where_it_was() -> None:
    store, keys = MemoryStore(), list[Any]()
    ask = tool_call("agent_b", {"message": "pay"}, id="a")
    run = team(ScriptedModel([ask, DOWN]), ScriptedModel([tool_call("note"), DOWN]), store, noting(keys)).send("go")
    with pytest.raises(ModelError):
        await run
    await begun_again(store, run.id, "a")
    inner = ScriptedModel(["it is paid"])
    again = team(ScriptedModel(["done"]), inner, store, noting(keys))
    result = await (await again.resume(run.id))
    children = [one.record.agent for one in await RunStatuses(store).recent()]

    assert (texts(result), len(keys), len(inner.requests)) == (["it is paid"], 1, 1)
    assert sorted(children) == ["agent", "b"]


async def test_an_agents_tool_says_that_it_goes_on_only_when_its_runs_are_kept() -> None:
    kept, plain = Agent(ScriptedModel([]), store=MemoryStore()).as_tool(), Agent(ScriptedModel([])).as_tool()

    assert (kept.spec.meta, plain.spec.meta) == ({RESUMABLE: True}, {})
    assert parallelize(kept).spec.meta == {RESUMABLE: True}


async def test_a_server_is_not_believed_that_its_tool_goes_on() -> None:
    store = MemoryStore()
    server = Scripted([spec("pay", server="bank", meta={RESUMABLE: True})])
    run = Agent(ScriptedModel([tool_call("pay", id="a"), DOWN]), tools=server, store=store).send("go")
    with pytest.raises(ModelError):
        await run
    await begun_again(store, run.id, "a")
    await (await Agent(ScriptedModel(["done"]), tools=server, store=store).resume(run.id))

    assert len(server.calls) == 1


async def test_a_call_that_is_delivered_twice_at_the_same_time_waits_for_the_first() -> None:
    store, waits = MemoryStore(), anyio.Event()
    reached, go = anyio.Event(), anyio.Event()
    model = ScriptedModel([tool_call("wait"), "done"])

    async def wait() -> str:
        """Wait."""
        reached.set()
        await go.wait()
        return "waited"

    async def sleep(seconds: float) -> None:
        waits.set()
        await anyio.wait_all_tasks_blocked()

    def served() -> Tool:
        agent = Agent(model, name="b", tools=[wait], store=store)
        agent.durable = Durable(store, agent="b", sleep=sleep)
        return agent.as_tool()

    ctx, answers = CallContext(meta={IDEMPOTENCY_KEY: "k"}), list[str]()

    async def deliver() -> None:
        answers.append((await served().execute({"message": "x"}, ctx)).text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deliver)
        await reached.wait()
        tasks.start_soon(deliver)
        await waits.wait()
        go.set()

    assert (answers, len(model.requests)) == (["done", "done"], 2)
