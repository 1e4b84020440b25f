"""Agents of Pydantic AI, the real ones, as durable runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    BinaryContent,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolReturn,
)
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from toolweave import Backend, CallContext, tool
from toolweave.agent import RunRecord, RunStatuses, SubmittedRun, work_runs
from toolweave.durability import DurableAgent, durable
from toolweave.errors import ConfigError, RunError, StoreError
from toolweave.export import calling, pydantic_ai_toolset
from toolweave.state import MemoryStore, Store
from toolweave.tools import IDEMPOTENCY_KEY

Turn = list[ToolCallPart] | str | Exception


class Script:
    """A model of Pydantic AI that says one turn after the other, by the number of answers in the conversation."""

    def __init__(self, *turns: Turn) -> None:
        self.turns = list(turns)
        self.asked: list[list[ModelMessage]] = []
        self.model = FunctionModel(self._answer)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(messages)
        number = sum(isinstance(one, ModelResponse) for one in messages)
        turn = self.turns[number]
        if isinstance(turn, Exception):
            self.turns[number] = "done"
            raise turn
        return ModelResponse(parts=[TextPart(turn)] if isinstance(turn, str) else list(turn))


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(name, arguments, call_id)


def returned(messages: list[ModelMessage]) -> list[tuple[Any, Any]]:
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return [(part.content, part.outcome) for part in parts]


class Outage(Exception):
    """The model is away."""


@pytest.mark.parametrize(
    ("tell", "content", "outcome"),
    [
        (lambda: "fine", "fine", "success"),
        (lambda: {"kind": "binary", "n": 1}, {"kind": "binary", "n": 1}, "success"),
        (lambda: ToolReturn("fine", metadata={"x": 1}), "fine", "success"),
        (lambda: ModelRetry("try another"), "try another", "retried"),
        (lambda: ToolFailed("no such thing"), "no such thing", "failed"),
    ],
)
async def test_what_a_tool_came_to_is_replayed_and_the_tool_not_called_again(
    tell: Callable[[], Any], content: Any, outcome: str
) -> None:
    script, calls = Script([call("act")], Outage("away")), list[str]()
    agent = Agent(script.model, name="a")

    @agent.tool_plain
    def act() -> Any:
        calls.append("act")
        told = tell()
        if isinstance(told, Exception):
            raise told
        return told

    lasting = durable(agent, MemoryStore())
    with pytest.raises(Outage):
        await lasting.run("go", run_id="r")
    first = returned(script.asked[-1])
    result = await lasting.resume("r")

    assert result.output == "done"
    assert calls == ["act"]
    assert first == returned(result.all_messages()) == [(content, outcome)]
    assert result.usage.requests == 2
    assert result.usage.tool_calls == int(outcome == "success")
    if isinstance(told := tell(), ToolReturn):
        (part,) = [one for message in result.all_messages() for one in message.parts if isinstance(one, ToolReturnPart)]
        assert part.metadata == told.metadata


@pytest.mark.parametrize("error", [CallDeferred({"job": 7}), ApprovalRequired({"why": "money"})])
async def test_a_call_that_was_deferred_is_deferred_again_and_not_made_again(error: Exception) -> None:
    calls = list[str]()
    agent = Agent(Script([call("act")], "done").model, name="a", output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def act() -> str:
        calls.append("act")
        raise error

    lasting = durable(agent, MemoryStore())
    results = [await lasting.run("go", run_id="r") for _ in range(2)]

    assert calls == ["act"]
    for one in results:
        assert isinstance(one.output, DeferredToolRequests)
        assert one.output.metadata == {"c1": error.metadata}  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def test_an_approved_call_is_made_once_in_a_run_that_goes_on_with_the_conversation() -> None:
    script, calls = Script([call("pay", euros=5)], Outage("away")), list[int]()
    agent = Agent(script.model, name="a", output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def pay(euros: int) -> str:
        calls.append(euros)
        return "paid"

    lasting = durable(agent, MemoryStore())
    asked = await lasting.run("go", run_id="one")
    assert isinstance(asked.output, DeferredToolRequests)
    assert calls == []
    answers = DeferredToolResults(approvals={"c1": True})
    with pytest.raises(Outage):
        await lasting.run(None, run_id="two", message_history=asked.all_messages(), deferred_tool_results=answers)
    result = await lasting.resume("two")  # with the conversation and the answers that it began with

    assert (result.output, calls) == ("done", [5])


def interrupted_agent(store: Store, calls: list[str], **options: Any) -> DurableAgent[Any]:
    """Return an agent that has died in the middle of the call of each of its tools, in the run `r`."""
    agent = Agent(Script([call("pay"), call("look", "c2"), call("find", "c3")], "done").model, name="a")

    @agent.tool_plain
    async def pay() -> str:
        return await act("pay")

    @agent.tool_plain(metadata={"annotations": {"readOnlyHint": True}})
    async def look() -> str:
        return await act("look")

    @agent.tool_plain
    async def find() -> str:
        return await act("find")

    async def act(name: str) -> str:
        calls.append(name)
        if len(calls) <= 3:
            await anyio.sleep_forever()
        return f"{name} is done"

    return durable(agent, store, **options)


async def die(lasting: DurableAgent[Any], calls: list[str]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: lasting.run("go", run_id="r"))
        with anyio.fail_after(60):
            while len(calls) < 3:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("options", "again"),
    [
        ({}, {"look"}),
        ({"repeatable": ["find"]}, {"look", "find"}),
        ({"on_unknown": "rerun"}, {"pay", "look", "find"}),
    ],
)
async def test_a_call_without_an_outcome_is_made_again_where_that_does_no_harm_else_it_is_unknown(
    options: dict[str, Any], again: set[str]
) -> None:
    store, calls = MemoryStore(), list[str]()
    lasting = interrupted_agent(store, calls, **options)
    await die(lasting, calls)
    (left,) = await lasting.unfinished()
    result = await lasting.resume(left.run_id)

    assert (left.run_id, left.status) == ("r", "interrupted")
    assert set(calls[3:]) == again
    for name, (content, outcome) in zip(("pay", "look", "find"), returned(result.all_messages()), strict=True):
        if name in again:
            assert (content, outcome) == (f"{name} is done", "success")
        else:
            assert "outcome of this call" in content
            assert outcome == "failed"
    assert await lasting.unfinished() == []


async def test_a_policy_of_agents_of_our_own_is_refused() -> None:
    policy: Any = "ask"
    with pytest.raises(ValueError, match="is 'error' or 'rerun', not 'ask'"):
        interrupted_agent(MemoryStore(), [], on_unknown=policy)
    with pytest.raises(ValueError, match="is 'error' or 'rerun', not 'ask'"):
        await interrupted_agent(MemoryStore(), []).submit("go", on_unknown=policy)


@pytest.mark.parametrize(("hint", "calls"), [("readOnlyHint", 2), ("idempotentHint", 2), ("openWorldHint", 1)])
async def test_a_tool_that_raised_is_called_again_only_where_that_does_no_harm(hint: str, calls: int) -> None:
    made = list[int]()
    agent = Agent(Script([call("act")], "done").model, name="a")

    @agent.tool_plain(metadata={"annotations": {hint: True}})
    def act() -> str:
        made.append(1)
        if len(made) == 1:
            raise OSError("the disk is full")
        return "ok"

    lasting, result = durable(agent, store := MemoryStore()), None
    with pytest.raises(OSError, match="disk is full"):
        await lasting.run("go", run_id="r")
    failed = await RunStatuses(store).get("r")
    if calls == 1:
        with pytest.raises(RunError, match="not called again as it may not be repeated; it had raised OSError"):
            await lasting.resume("r")
    else:
        result = await lasting.resume("r")

    assert failed is not None
    assert (failed.status, failed.record.error) == ("failed", "the disk is full")
    assert len(made) == calls
    assert result is None or result.output == "done"


async def test_a_run_that_makes_other_calls_than_the_recorded_stops_and_says_so() -> None:
    store = MemoryStore()

    def agent_of(tools: list[Callable[..., str]], turn: Turn) -> DurableAgent[Any]:
        return durable(Agent(Script(turn, Outage("away")).model, name="a", tools=tools), store)

    def act(n: int) -> str:
        return "ok"

    def other(n: int) -> str:
        return "ok"

    with pytest.raises(Outage):
        await agent_of([act], [call("act", n=1)]).run("go", run_id="r")
    (key,) = [one.key for one in await store.scan("run-journal") if one.key.endswith("/turn")]
    for found in [await store.get("run-journal", key)]:
        assert found is not None
        text = str(found.value["message"]["parts"][-1]["raw"]["answer"])
        for now, what in ((text.replace('"n":1', '"n":2'), "its arguments differ"), (text.replace('"act"', '"other"'), "recorded for tool 'act'")):  # fmt: skip # noqa: E501
            assert now != text
            found.value["message"]["parts"][-1]["raw"]["answer"] = now
            await store.put("run-journal", key, found.value)
            with pytest.raises(RunError, match=what):
                await agent_of([act, other], [call("act", n=1)]).resume("r")


async def test_a_run_goes_on_in_one_place_at_a_time_and_under_one_input() -> None:
    store, reached = MemoryStore(), anyio.Event()
    agent = Agent(Script([call("wait")], "done").model, name="a")
    go = anyio.Event()

    @agent.tool_plain
    async def wait() -> str:
        reached.set()
        await go.wait()
        return "ok"

    lasting = durable(agent, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: lasting.run("go", run_id="r"))
        await reached.wait()
        with pytest.raises(RunError, match="is running elsewhere"):
            await lasting.run("go", run_id="r")
        go.set()
    with pytest.raises(RunError, match="began with something else"):
        await lasting.run("stay", run_id="r")
    with pytest.raises(RunError, match="of agent 'a', not of 'b'"):
        await durable(agent, store, name="b").resume("r")
    with pytest.raises(RunError, match="not in the store"):
        await lasting.resume("none")
    assert (await lasting.run(run_id="r")).output == "done"


async def test_a_run_is_cancelled_from_anywhere() -> None:
    store, reached = MemoryStore(), anyio.Event()
    agent = Agent(Script([call("wait")], "done").model, name="a")

    @agent.tool_plain
    async def wait() -> str:
        reached.set()
        await anyio.sleep_forever()
        return ""

    lasting, said = durable(agent, store), list[str]()

    async def running() -> None:
        with pytest.raises(RunError, match="was cancelled") as caught:
            await lasting.run("go", run_id="r")
        said.append(caught.value.reason)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running)
        await reached.wait()
        assert await RunStatuses(store).cancel("r")
    info = await RunStatuses(store).get("r")

    assert said == ["cancelled"]
    assert info is not None
    assert info.status == "cancelled"


async def test_prompts_with_images_and_conversations_are_recorded_with_the_run() -> None:
    script = Script("one", Outage("away"))
    lasting = durable(Agent(script.model, name="a"), MemoryStore())
    before = await lasting.run("first")
    picture = BinaryContent(data=b"\x89PNG", media_type="image/png")
    with pytest.raises(Outage):
        await lasting.run(["see", picture], run_id="r", message_history=before.all_messages())
    result = await lasting.resume("r")

    prompts = [
        part.content
        for message in result.all_messages()
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    assert result.output == "done"
    assert prompts[0] == "first"
    text, seen = prompts[1]
    assert (text, getattr(seen, "data", None), getattr(seen, "media_type", None)) == ("see", picture.data, "image/png")


async def test_events_are_streamed_of_a_live_run_and_of_a_replayed_one() -> None:
    events: list[list[str]] = []
    lasting = durable(Agent(TestModel(custom_output_text="done"), name="a"), MemoryStore())

    async def handler(ctx: RunContext[Any], stream: Any) -> None:
        seen: list[AgentStreamEvent] = [event async for event in stream]
        events.append([event.event_kind for event in seen])

    for _ in range(2):
        assert (await lasting.run("go", run_id="r", event_stream_handler=handler)).output == "done"
    live, replayed = [one for one in events if one]
    assert {"part_start", "final_result", "part_delta", "part_end"} == set(live)
    assert {"part_start", "final_result", "part_end"} == set(replayed)


async def test_dependencies_are_those_of_the_process_and_structured_output_is_in_the_record() -> None:
    store, seen = MemoryStore(), list[str]()
    agent = Agent(TestModel(custom_output_args={"n": 3}), name="a", deps_type=str, output_type=dict[str, int])

    @agent.tool
    def act(ctx: RunContext[str]) -> str:
        seen.append(ctx.deps)
        return ctx.deps

    result = await durable(agent, store, options={"deps": "ours"}).run("go", run_id="r")
    info = await RunStatuses(store).get("r")

    assert (result.output, seen) == ({"n": 3}, ["ours"])
    assert info is not None
    assert (info.status, info.record.output, info.record.prompt) == ("completed", {"n": 3}, "go")
    assert info.record.usage.input_tokens == result.usage.input_tokens > 0
    assert info.record.steps == 2


async def worked(lasting: DurableAgent[Any], run: SubmittedRun, backend: Backend) -> RunRecord:
    """Have a worker execute a run, and return its record."""
    working = asyncio.create_task(work_runs([lasting], backend))
    record = await run.result(timeout=60)
    working.cancel()
    return record


async def test_a_submitted_run_is_executed_by_a_worker() -> None:
    calls = list[int]()
    agent = Agent(Script([call("act")], "done").model, name="worked")

    @agent.tool_plain
    def act() -> str:
        calls.append(1)
        return "ok"

    async with Backend("memory://") as backend:
        lasting = durable(agent, backend)
        run = await lasting.submit("go", key="order-1")
        same = await lasting.submit("go", key="order-1")
        with pytest.raises(RunError, match="began with something else"):
            await lasting.submit("stay", key="order-1")
        record = await worked(lasting, run, backend)
        again = await lasting.resume(run.id)

    assert run.id == same.id
    assert (record.status, record.text, record.steps) == ("completed", "done", 2)
    assert (again.output, calls) == ("done", [1])


async def test_a_failed_run_is_done_for_its_worker() -> None:
    agent = Agent(Script(Outage("away")).model, name="worked")
    async with Backend("memory://") as backend:
        lasting = durable(agent, backend)
        run = await lasting.submit("go")
        record = await worked(lasting, run, backend)

    assert (record.status, record.error) == ("failed", "away")


async def test_exported_tools_see_a_key_of_their_call_and_the_context_of_whoever_runs_the_agent() -> None:
    keys, seen = list[Any](), list[Any]()

    @tool(annotations={"idempotentHint": True})
    async def charge(context: CallContext) -> str:
        """Charge."""
        keys.append(context.meta[IDEMPOTENCY_KEY])
        seen.append((context.state["tenant"], context.meta["trace"]))
        if len(keys) == 1:
            await anyio.sleep_forever()
        return "charged"

    agent = Agent(Script([call("charge")], "done").model, name="a", toolsets=[pydantic_ai_toolset([charge])])
    lasting = durable(agent, MemoryStore())
    with calling(CallContext(state={"tenant": "acme"}, meta={"trace": "t"})):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: lasting.run("go", run_id="r"))
            while not keys:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        result = await lasting.resume("r")

    assert result.output == "done"
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert seen == [("acme", "t")] * 2


async def test_a_result_that_cannot_be_recorded_ends_the_run_and_its_call_is_unknown_afterwards() -> None:
    calls, info = list[int](), None
    agent = Agent(Script([call("act")], "done").model, name="a")

    @agent.tool_plain
    def act() -> Any:
        calls.append(1)
        return object()

    lasting = durable(agent, store := MemoryStore())
    with pytest.raises(RunError, match="what 'act' returned cannot be recorded"):
        await lasting.run("go", run_id="r")
    info = await RunStatuses(store).get("r")
    result = await lasting.resume("r")

    assert info is not None
    assert info.status == "failed"
    assert len(calls) == 1
    assert "is unknown" in returned(result.all_messages())[0][0]


class FailingStore(MemoryStore):
    """A store whose disk is full from the write on that is counted down to."""

    left = 1000

    async def write(self, *args: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left <= 0:
            raise StoreError("the disk is full")
        return await super().write(*args, **named)


@pytest.mark.slow  # it tries for fifteen seconds
async def test_a_store_that_fails_ends_the_run_here_and_it_goes_on_when_the_store_is_back() -> None:
    store, calls = FailingStore(), list[int]()
    agent = Agent(Script([call("act")], "done").model, name="a")

    @agent.tool_plain
    def act() -> str:
        calls.append(1)
        store.left = 1
        return "ok"

    lasting = durable(agent, store)
    with pytest.raises(StoreError, match="disk is full"):
        await lasting.run("go", run_id="r")
    store.left = 1000
    (left,) = await lasting.unfinished()
    result = await lasting.resume(left.run_id)

    assert len(calls) == 1
    assert "is unknown" in returned(result.all_messages())[0][0]


def test_only_named_agents_of_known_frameworks_are_taken_and_options_that_cannot_last_are_refused() -> None:
    with pytest.raises(ValueError, match="has no name to keep its runs under; pass name="):
        durable(Agent(TestModel()), MemoryStore())
    with pytest.raises(TypeError, match="not str; an Agent of Toolweave is durable by itself"):
        durable("agent", MemoryStore())  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert repr(durable(Agent(TestModel()), MemoryStore(), name="b")) == "<DurableAgent 'b' of pydantic-ai>"


async def test_options_that_cannot_last_are_refused() -> None:
    lasting = durable(Agent(TestModel(), name="a"), MemoryStore())
    with pytest.raises(
        ValueError, match="conversation= does not go together with a durable run; pass message_history="
    ):
        await lasting.run("go", conversation="c")
    with pytest.raises(ValueError, match="has no workers"):
        await lasting.submit("go")


async def test_a_worker_that_stops_lets_a_call_end_and_the_run_continues_elsewhere() -> None:
    begun, go_on, ended = anyio.Event(), anyio.Event(), list[str]()
    script = Script([ToolCallPart("charge", {"order": "a"})], [ToolCallPart("charge", {"order": "b"})], "done")
    agent = Agent(script.model, name="shop")

    @agent.tool_plain
    async def charge(order: str) -> str:  # pyright: ignore[reportUnusedFunction] - the agent's
        begun.set()
        await go_on.wait()
        ended.append(order)
        return f"charged {order}"

    backend = Backend("memory://")
    shop = durable(agent, backend)
    scope = anyio.CancelScope()

    async def stopped() -> None:
        with scope:
            await work_runs([shop], backend, grace_seconds=60)

    async with backend:
        run = await shop.submit("go")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stopped)
            await begun.wait()
            scope.cancel()
            go_on.set()
        assert ended == ["a"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work_runs, [shop], backend)
            assert (await run.result(timeout=30)).text == "done"
            tasks.cancel_scope.cancel()

    assert ended == ["a", "b"]


def test_a_pydantic_ai_that_is_too_old_for_durable_runs_is_refused_with_the_version_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "pydantic_ai_slim-2.62.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pydantic-ai-slim\nVersion: 2.62.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(ConfigError, match=r"need pydantic-ai-slim 2\.68 or newer, and 2\.62\.0 is installed: pip"):
        durable(Agent(TestModel(), name="b"), MemoryStore())
