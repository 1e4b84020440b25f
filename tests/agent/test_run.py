"""The life of a run: when it starts, who may watch it, and every way it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

import anyio
import pytest

from toolweave import Agent, ModelError, ToolResult, generate, stream
from toolweave.agent import (
    Event,
    ModelFailed,
    RunFinished,
    StepStarted,
    TextDelta,
    ToolCallStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UsageReported,
    current_run,
)
from toolweave.errors import RunError
from toolweave.models import (
    AssistantMessage,
    Finished,
    ModelEvent,
    ModelRequest,
    ScriptedModel,
    StreamedText,
    TextPart,
    ToolMessage,
    Usage,
    UserMessage,
    tool_call,
)
from toolweave.tools import CallContext


class Gate:
    """A tool that says when it is reached and goes on when it is let."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.open = anyio.Event()
        self.cancelled = False

    async def wait(self) -> str:
        """Wait until the gate opens."""
        self.reached.set()
        try:
            await self.open.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled = True
            raise
        return "through"


def gated(*more: str) -> tuple[Agent, Gate]:
    gate = Gate()
    return Agent(ScriptedModel([tool_call("wait"), *(more or ("done",))]), tools=[gate.wait]), gate


def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


@pytest.mark.requirement("R58", "R77")
async def test_a_run_calls_the_tools_and_returns_what_the_model_makes_of_them() -> None:
    model = ScriptedModel([tool_call("double", {"number": 21}, id="one"), "it is 42"])

    result = await Agent(model, tools=[double]).send("what is twice 21?")

    assert (result.text, result.stop_reason, result.status, result.steps) == ("it is 42", "end", "completed", 2)
    asked, called, answered, said = result.messages
    assert isinstance(asked, UserMessage)
    assert asked.text == "what is twice 21?"
    assert isinstance(called, AssistantMessage)
    assert isinstance(answered, ToolMessage)
    assert [(one.call_id, one.result.text) for one in answered.outcomes] == [("one", "42")]
    assert isinstance(said, AssistantMessage)
    assert list(model.requests[1].messages) == [asked, called, answered]


@pytest.mark.requirement("R77")
async def test_generate_and_stream_are_the_same_loop_to_await_and_to_iterate() -> None:
    turns = [tool_call("double", {"number": 2}), "four it is"]

    result = await generate(ScriptedModel(turns), "twice 2?", tools=[double], system="be brief")
    said = [event async for event in stream(ScriptedModel(turns), "twice 2?", tools=[double])]

    assert result.text == "four it is"
    assert "".join(event.text for event in said if isinstance(event, TextDelta)) == "four it is"


async def test_nothing_happens_before_a_run_is_awaited_or_iterated() -> None:
    model = ScriptedModel(["hello"])
    run = Agent(model).send("hi")

    await anyio.wait_all_tasks_blocked()

    assert (run.status, model.requests) == ("new", [])
    assert (await run).text == "hello"


async def test_a_run_may_be_awaited_again_and_its_final_is_itself() -> None:
    model = ScriptedModel(["hello"])
    run = Agent(model).send("hi")

    assert await run is await run.final
    assert len(model.requests) == 1
    assert (run.status, run.done) == ("completed", True)
    assert run.result is await run


async def test_every_iteration_sees_all_events_from_the_first_one_on() -> None:
    run = Agent(ScriptedModel([tool_call("double", {"number": 1}), "two"]), tools=[double]).send("hi")

    live = [event async for event in run]
    again = [event async for event in run]

    assert live == again
    kinds = [type(event) for event in live if not isinstance(event, TextDelta)]
    assert [kind.__name__ for kind in kinds] == [
        "RunStarted",
        "StepStarted",
        "ToolCallStarted",
        "ToolArguments",
        "UsageReported",
        "ToolStarted",
        "ToolFinished",
        "StepStarted",
        "UsageReported",
        "RunFinished",
    ]
    assert {event.run_id for event in live} == {run.id}
    last = live[-1]
    assert isinstance(last, RunFinished)
    assert last.result is await run


async def test_leaving_an_iteration_early_does_not_end_the_run() -> None:
    agent, gate = gated()
    async with agent:
        run = agent.send("hi")
        async for event in run:
            if isinstance(event, ToolStarted):
                break
        assert not run.done
        gate.open.set()
        assert (await run).text == "done"


async def test_a_watcher_that_is_cancelled_leaves_the_run_alone() -> None:
    agent, gate = gated()
    run = agent.send("hi")
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            async for _ in run:
                pass

        tasks.start_soon(watch)
        await gate.reached.wait()
        tasks.cancel_scope.cancel()
    gate.open.set()
    assert (await run).status == "completed"


async def test_cancel_ends_the_tool_that_runs_and_gives_a_result_like_any_other() -> None:
    agent, gate = gated()
    run = agent.send("hi").start()

    await gate.reached.wait()
    run.cancel()
    result = await run

    assert gate.cancelled
    assert (result.status, result.stop_reason, result.error) == ("cancelled", "cancelled", None)
    answered = result.messages[-1]
    assert isinstance(answered, ToolMessage)
    assert answered.outcomes[0].result.is_error  # the conversation can go on


async def test_cancel_works_from_another_thread() -> None:
    agent, gate = gated()
    run = agent.send("hi").start()

    await gate.reached.wait()
    thread = threading.Thread(target=run.cancel)
    thread.start()
    result = await run
    await anyio.to_thread.run_sync(thread.join)

    assert result.status == "cancelled"


async def test_a_run_that_is_cancelled_before_it_starts_asks_no_model() -> None:
    model = ScriptedModel(["hello"])
    run = Agent(model).send("hi")

    run.cancel()

    assert (await run).status == "cancelled"
    assert model.requests == []


async def test_cancelling_whoever_awaits_a_run_cancels_it_and_waits_for_its_end() -> None:
    agent, gate = gated()
    run = agent.send("hi")
    async with anyio.create_task_group() as tasks:

        async def caller() -> None:
            await run

        tasks.start_soon(caller)
        await gate.reached.wait()
        tasks.cancel_scope.cancel()

    assert gate.cancelled
    assert run.status == "cancelled"


async def test_a_timeout_around_an_awaited_run_ends_the_run() -> None:
    agent, gate = gated()
    run = agent.send("hi")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run

    assert run.status == "cancelled"
    assert not gate.open.is_set()


async def test_a_run_that_somebody_else_still_awaits_outlives_a_cancelled_caller() -> None:
    agent, gate = gated()
    run = agent.send("hi")
    results: list[str] = []

    async def keep_waiting() -> None:
        results.append((await run).text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_waiting)
        await gate.reached.wait()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await run
        gate.open.set()

    assert results == ["done"]


async def test_leaving_the_agent_cancels_what_still_runs() -> None:
    agent, gate = gated()
    async with agent:
        run = agent.send("hi").start()
        await gate.reached.wait()

    assert gate.cancelled
    assert run.status == "cancelled"


async def test_close_cancels_what_runs_and_the_agent_can_be_used_again() -> None:
    agent, gate = gated("done", "hello again")
    run = agent.send("hi").start()
    await gate.reached.wait()
    await agent.close()
    assert run.status == "cancelled"
    assert (await agent.send("hi")).text == "done"


async def test_a_run_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()

    await Agent(ScriptedModel([tool_call("double", {"number": 1}), "two"]), tools=[double]).send("hi")

    assert asyncio.all_tasks() == before


async def test_a_model_that_fails_is_told_as_an_event_and_raised_by_the_await() -> None:
    run = Agent(ScriptedModel([ModelError("no credit", model="m", kind="auth")])).send("hi")

    seen: list[Event] = [event async for event in run]
    with pytest.raises(ModelError, match="no credit"):
        await run

    assert [type(event) for event in seen[-2:]] == [ModelFailed, RunFinished]
    assert run.result is not None
    assert (run.result.status, run.result.stop_reason) == ("failed", "model_error")


async def test_a_turn_that_breaks_off_is_a_failure_of_the_model() -> None:
    class Breaking(ScriptedModel):
        async def stream(self, request: ModelRequest):  # type: ignore[no-untyped-def]
            async for event in super().stream(request):
                if not isinstance(event, Finished):
                    yield event

    with pytest.raises(ModelError, match="broke off"):
        await Agent(Breaking(["hello"])).send("hi")


async def test_what_a_model_raises_by_mistake_reaches_whoever_awaits() -> None:
    run = Agent(ScriptedModel([ZeroDivisionError("oh")])).send("hi")

    with pytest.raises(ZeroDivisionError):
        await run

    assert run.status == "failed"


async def test_progress_of_a_tool_reaches_whoever_watches() -> None:
    async def dig(ctx: CallContext) -> str:
        await ctx.percent(50, "half way")
        return "found"

    run = Agent(ScriptedModel([tool_call("dig", id="d"), "done"]), tools=[dig]).send("dig!")

    told = [event async for event in run if isinstance(event, ToolProgress)]

    assert [(one.call.id, one.progress.progress, one.progress.message) for one in told] == [("d", 50, "half way")]


async def test_usage_is_told_for_each_turn_and_summed() -> None:
    def turn(text: str) -> Finished:
        usage = Usage(input_tokens=10, output_tokens=2, cost=0.5)
        return Finished(message=AssistantMessage(parts=(TextPart(text=text),)), usage=usage, stop_reason="pause")

    last = Finished(message=AssistantMessage(parts=(TextPart(text="end"),)), usage=Usage(input_tokens=1))
    run = Agent(ScriptedModel([turn("a"), turn("b"), last])).send("hi")

    totals = [event.total.input_tokens async for event in run if isinstance(event, UsageReported)]

    assert totals == [10, 20, 21]
    # what the last turn cost nobody knows, so neither is the sum known
    assert (await run).usage == Usage(input_tokens=21, output_tokens=4, cost=None)


async def test_a_tool_knows_the_run_that_calls_it() -> None:
    seen: list[str] = []

    async def look() -> None:
        run = current_run()
        assert run is not None
        seen.append(run.id)

    run = Agent(ScriptedModel([tool_call("look"), "done"]), tools=[look]).send("hi")
    await run

    assert seen == [run.id]
    assert current_run() is None


async def test_a_run_that_its_own_tool_awaits_says_so_instead_of_waiting_for_ever() -> None:
    async def ask_myself() -> str:
        run = current_run()
        assert run is not None
        return (await run).text

    run = Agent(ScriptedModel([tool_call("ask_myself"), "done"]), tools=[ask_myself]).send("hi")

    finished = [event async for event in run if isinstance(event, ToolFinished)]

    assert "wait for itself" in finished[0].result.text


async def test_check_raises_for_a_run_that_ended_before_it_was_done() -> None:
    cut = Finished(message=AssistantMessage(parts=(TextPart(text="and th"),)), stop_reason="max_tokens")

    result = await Agent(ScriptedModel([cut])).send("hi")

    assert (result.text, result.status, result.stop_reason) == ("and th", "stopped", "max_tokens")
    with pytest.raises(RunError, match="max_tokens"):
        result.check()
    done = await Agent(ScriptedModel(["fine"])).send("hi")
    assert done.check() is done


async def test_a_refusal_stops_the_run() -> None:
    no = Finished(message=AssistantMessage(parts=(TextPart(text="I will not"),)), stop_reason="refusal")

    result = await Agent(ScriptedModel([no])).send("hi")

    assert (result.status, result.stop_reason) == ("stopped", "refusal")


async def test_a_call_is_announced_with_its_name_while_the_model_writes_it() -> None:
    run = Agent(ScriptedModel([tool_call("double", {"number": 1}, id="x"), "two"]), tools=[double]).send("hi")

    begun = [event async for event in run if isinstance(event, (ToolCallStarted, StepStarted))]

    assert [type(event) for event in begun] == [StepStarted, ToolCallStarted, StepStarted]
    call = begun[1]
    assert isinstance(call, ToolCallStarted)
    assert (call.call.id, call.call.name) == ("x", "double")


async def test_images_and_other_blocks_travel_to_the_model_as_they_are(tmp_path: object) -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"0" * 20

    def photo() -> bytes:
        return png

    model = ScriptedModel([tool_call("photo"), "nice"])
    await Agent(model, tools=[photo]).send("look")

    told = model.requests[1].messages[-1]
    assert isinstance(told, ToolMessage)
    assert told.outcomes[0].result.content == ToolResult.of(png).content


async def test_several_may_close_an_agent_at_the_same_time_and_none_waits_for_its_bound() -> None:
    started, release = anyio.Event(), anyio.Event()
    closed: list[int] = []

    async def stubborn() -> None:
        started.set()
        with anyio.CancelScope(shield=True):
            await release.wait()

    agent = Agent(ScriptedModel([tool_call("stubborn"), "done"]), tools=[stubborn])
    agent.send("go").start()

    async def close(number: int) -> None:
        await agent.close()
        closed.append(number)

    with anyio.fail_after(20.0):
        await started.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close, 1)
            tasks.start_soon(close, 2)
            await anyio.wait_all_tasks_blocked()
            release.set()

    assert sorted(closed) == [1, 2]


async def test_progress_without_end_does_not_fill_the_memory() -> None:
    async def noisy(ctx: CallContext) -> None:
        for number in range(1, 20_001):
            await ctx.progress(number)

    run = Agent(ScriptedModel([tool_call("noisy"), "done"]), tools=[noisy]).send("go")

    told = [event.progress.progress async for event in run if isinstance(event, ToolProgress)]

    assert told[:1000] == list(range(1, 1001))
    assert told[-1] > 19_000
    assert len(told) < 4000


async def test_what_was_said_before_a_cancel_is_in_the_result_and_the_session() -> None:
    begun = anyio.Event()

    class Slow(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            if begun.is_set():
                async for event in super().stream(request):
                    yield event
                return
            yield StreamedText(text="half an ")
            yield StreamedText(text="answer")
            begun.set()
            await anyio.sleep_forever()

    model = Slow(["whole"])
    agent = Agent(model)
    run = agent.send("hi", session="s").start()
    await begun.wait()
    run.cancel()
    result = await run
    await agent.send("and now?", session="s")

    assert (result.status, result.text, result.steps) == ("cancelled", "half an answer", 0)
    assert result.messages[-1] == AssistantMessage(parts=(TextPart(text="half an answer"),))
    (request,) = model.requests
    assert [one.text for one in request.messages if isinstance(one, AssistantMessage)] == ["half an answer"]
