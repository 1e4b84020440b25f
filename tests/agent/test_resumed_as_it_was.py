"""A resumed run is the run that began: what was given to it alone, who attends it, and what it and others took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from toolweave import Agent
from toolweave.agent import ApprovalRequested, Limits, Prompt, RunResult, RunStatuses, spawn_tools
from toolweave.agent._stored.records import RUNS, STARTS
from toolweave.errors import ErrorKind, ModelError
from toolweave.models import (
    AssistantMessage,
    Finished,
    Model,
    ScriptedModel,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
    tool_call,
)
from toolweave.protocol.content import ImageContent
from toolweave.state import MemoryStore, SqliteStore, Store
from toolweave.tools import CallContext, ToolResult, tool

DOWN = ModelError("down", model="m")


@dataclass
class Invoice:
    """What is to be paid."""

    total: float


async def broken(agent: Agent, sent: Any = "go", **options: Any) -> str:
    """Return the id of a run whose model broke down at some turn."""
    run = agent.send(sent, **options)
    with pytest.raises(ModelError):
        await run
    return run.id


async def goes_on(agent: Agent, run_id: str, **options: Any) -> RunResult:
    """Return what a resumed run comes to."""
    return await (await agent.resume(run_id, **options))


def turn(*parts: Any, tokens: int = 0, cost: float | None = None) -> Finished:
    """Return a turn that took so much."""
    calls = any(isinstance(part, ToolCallPart) for part in parts)
    message = AssistantMessage(parts=tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts))
    usage = Usage(input_tokens=tokens, cost=cost)
    return Finished(message=message, usage=usage, stop_reason="tool_calls" if calls else "end")


# what its answer has to be


@pytest.mark.parametrize(
    ("given", "fits", "fits_not", "value"),
    [
        (Invoice, '{"total": 4}', '{"sum": 4}', {"total": 4}),
        (list[int], '{"value": [1, 2]}', '["a"]', [1, 2]),
        (int | str, '{"value": 7}', '{"value": null}', 7),
        ({"type": "array", "items": {"type": "string"}}, '{"value": ["ä"]}', '{"value": [1]}', ["ä"]),
        ({"type": "object", "required": ["value"]}, '{"value": 1}', "{}", {"value": 1}),
    ],
)
async def test_the_answer_of_a_resumed_run_still_has_to_be_what_its_prompt_asked_for(
    given: Any, fits: str, fits_not: str, value: Any
) -> None:
    store = MemoryStore()
    run_id = await broken(Agent(ScriptedModel([DOWN]), store=store), Prompt("go", output_type=given))
    model = ScriptedModel([fits_not, fits])
    result = await goes_on(Agent(model, store=store), run_id)

    assert (result.output, result.steps) == (value, 2)
    assert all(request.output_schema is not None for request in model.requests)


async def test_a_resumed_run_gives_a_value_of_its_type_when_that_is_given_again_or_is_the_agents_own() -> None:
    store = MemoryStore()
    asked = Prompt("go", output_type=Invoice)
    first = await broken(Agent(ScriptedModel([DOWN]), store=store), asked)
    second = await broken(Agent(ScriptedModel([DOWN]), store=store), asked)
    answer = '{"total": 4}'

    given = await goes_on(Agent(ScriptedModel([answer]), store=store), first, output_type=Invoice)
    own = await goes_on(Agent(ScriptedModel([answer]), store=store, output_type=Invoice), second)
    again = await goes_on(Agent(ScriptedModel([]), store=store), second)

    assert (given.output, own.output) == (Invoice(4), Invoice(4))
    assert again.output == {"total": 4}


# who attends it, and what surrounds it


def delete() -> str:
    """Delete all."""
    return "deleted"


async def test_a_run_that_nobody_attended_is_resumed_unattended_unless_somebody_says_so() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel([DOWN, DOWN]), store=store)
    first, second = [await broken(agent, attended=False) for _ in range(2)]

    def deleting() -> Agent:
        return Agent(ScriptedModel([tool_call("delete"), "done"]), tools=[delete], store=store, confirm="always")

    alone = await goes_on(deleting(), first)
    run = await deleting().resume(second, attended=True)
    async for event in run:
        if isinstance(event, ApprovalRequested):
            assert run.approve(event)

    assert "nobody can be asked" in outcome(alone).text
    assert outcome(await run).text == "deleted"


async def test_agents_below_a_run_that_is_resumed_unattended_are_unattended_too() -> None:
    store = MemoryStore()
    inner = Agent(ScriptedModel([tool_call("delete"), "as you wish"]), name="b", tools=[delete], confirm="always")
    run_id = await broken(Agent(ScriptedModel([DOWN]), store=store), attended=False)
    model = ScriptedModel([tool_call("agent_b", {"message": "x"}), "done"])
    result = await goes_on(Agent(model, tools=[inner.as_tool()], store=store), run_id)

    assert outcome(result).text == "as you wish"


async def test_a_run_that_was_begun_elsewhere_may_be_unattended_from_the_start() -> None:
    agent = Agent(ScriptedModel([tool_call("delete"), "done"]), tools=[delete], confirm="always")
    result = await agent.begin([UserMessage.of("go")], attended=False)

    assert outcome(result).require_error().kind is ErrorKind.DENIED


async def test_tools_of_a_resumed_run_see_the_meta_that_it_began_with_and_the_state_that_is_given_again() -> None:
    store, seen = MemoryStore(), list[tuple[Any, ...]]()

    @tool
    def look(ctx: CallContext) -> str:
        """Look around."""
        seen.append((ctx.meta["com.example/tenant"], ctx.meta.get("com.example/again"), dict(ctx.state)))
        return "seen"

    calls = [tool_call("look"), DOWN]
    began = CallContext(meta={"com.example/tenant": "Zoë"}, state={"db": "old"})
    first = Agent(ScriptedModel(calls), tools=[look], store=store)
    run_id = await broken(first, ctx=began)
    again = CallContext(meta={"com.example/again": 1}, state={"db": "new"})
    await goes_on(Agent(ScriptedModel([tool_call("look"), "done"]), tools=[look], store=store), run_id, ctx=again)

    assert seen == [("Zoë", None, {"db": "old"}), ("Zoë", 1, {"db": "new"})]


async def test_a_run_that_an_older_version_recorded_is_resumed_as_those_were() -> None:
    store = MemoryStore()
    run_id = await broken(Agent(ScriptedModel([DOWN]), store=store), "plain")
    began = await store.get(STARTS, run_id)

    assert began is not None
    assert set(began.value) == {"form", "shared", "messages", "sent"}
    run = await Agent(ScriptedModel(["done"]), store=store).resume(run_id)
    assert ((await run).output, run.attended) == (None, True)


# what it and others took


async def test_what_runs_below_took_counts_again_when_the_run_above_is_resumed() -> None:
    store = MemoryStore()
    inner = Agent(ScriptedModel([turn("answer", tokens=100, cost=0.5)]), name="b")
    ask = tool_call("agent_b", {"message": "x"})
    script = [turn(ask, tokens=10, cost=0.25), DOWN]
    run_id = await broken(Agent(ScriptedModel(script), tools=[inner.as_tool()], store=store))
    failed = await RunStatuses(store).get(run_id)
    result = await goes_on(Agent(ScriptedModel([turn("done", tokens=1, cost=0.25)]), store=store), run_id)

    assert failed is not None
    assert (failed.record.usage.input_tokens, failed.record.usage.cost) == (110, 0.75)
    assert (result.usage.input_tokens, result.usage.cost) == (111, 1.0)


async def test_a_token_limit_counts_what_was_before_the_resume_below_too() -> None:
    store = MemoryStore()
    inner = Agent(ScriptedModel([turn("answer", tokens=100)]), name="b")
    script = [turn(tool_call("agent_b", {"message": "x"}), tokens=10), turn(tool_call("nothing"), tokens=1), DOWN]
    run_id = await broken(Agent(ScriptedModel(script), tools=[inner.as_tool()], store=store))
    result = await goes_on(Agent(ScriptedModel([]), store=store, limits=Limits(tokens=111)), run_id)

    assert (result.stop_reason, result.usage.input_tokens) == ("token_limit", 111)


@pytest.mark.parametrize("made", [MemoryStore, SqliteStore])
async def test_a_run_below_that_goes_on_too_is_counted_once(made: Callable[[], Store]) -> None:
    async with made() as store:

        def team(outer: Model, inner: Model) -> Agent:
            below = Agent(inner, name="b", store=store)
            return Agent(outer, tools=[below.as_tool()], store=store)

        twice = [tool_call("agent_b", {"message": "x"}, id="1"), tool_call("agent_b", {"message": "y"}, id="2")]
        inner = ScriptedModel([turn("one", tokens=100), turn("two", tokens=100)])
        run_id = await broken(team(ScriptedModel([turn(*twice, tokens=10), DOWN]), inner))
        # as if the process had died before the second call was recorded
        entry = next(one for one in await store.scan("run-journal") if one.key.endswith("/call/2"))
        await store.put("run-journal", entry.key, {"name": "agent_b", "begun": 1.0})
        result = await goes_on(team(ScriptedModel([turn("done", tokens=1)]), ScriptedModel([])), run_id)

    assert result.usage.input_tokens == 211
    assert [one.result.text for one in outcomes(result)] == ["one", "two"]


async def test_what_a_task_in_the_background_took_counts_again_too() -> None:
    store = MemoryStore()
    worker = Agent(ScriptedModel([turn("done", tokens=100)]), name="worker")
    script = [turn(tool_call("spawn", {"prompt": "work"}), tokens=1), turn(tool_call("spawn_await"), tokens=1), DOWN]
    run_id = await broken(Agent(ScriptedModel(script), tools=[spawn_tools(worker, store)], store=store))
    result = await goes_on(Agent(ScriptedModel([turn("done", tokens=1)]), store=store), run_id)

    assert result.usage.input_tokens == 103


async def test_steps_and_calls_from_before_the_resume_count_for_their_limits() -> None:
    store = MemoryStore()
    script = [tool_call("delete"), [tool_call("delete"), tool_call("delete")], DOWN]
    first, second = [await broken(Agent(ScriptedModel(script), tools=[delete], store=store)) for _ in range(2)]

    steps = await goes_on(Agent(ScriptedModel([]), tools=[delete], store=store, max_steps=2), first)
    more = ScriptedModel([tool_call("delete")])
    calls = await goes_on(Agent(more, tools=[delete], store=store, limits=Limits(tool_calls=3)), second)

    assert (steps.stop_reason, steps.steps) == ("max_steps", 2)
    assert (calls.stop_reason, calls.steps) == ("tool_call_limit", 3)


# and what else may be different when it is resumed


async def test_a_tool_that_was_renamed_meanwhile_is_replayed_and_its_call_in_flight_is_not_made() -> None:
    store, ran = MemoryStore(), list[str]()

    def named(name: str) -> Any:
        return tool(lambda: ran.append(name) or name, name=name)

    script = [tool_call("old", id="1"), [tool_call("old", id="2")], DOWN]
    run_id = await broken(Agent(ScriptedModel(script), tools=[named("old")], store=store))
    entry = next(one for one in await store.scan("run-journal") if one.key.endswith("/call/2"))
    await store.put("run-journal", entry.key, {"name": "old", "begun": 1.0})
    result = await goes_on(Agent(ScriptedModel(["done"]), tools=[named("new")], store=store), run_id)

    assert ran == ["old", "old"]
    assert outcome(result).text == "old"
    assert outcomes(result)[1].result.require_error().kind is ErrorKind.OUTCOME_UNKNOWN


async def test_pictures_odd_names_and_odd_values_are_the_same_when_a_run_is_resumed() -> None:
    async with SqliteStore() as store:
        session = "тест/🧵 %_/\u0000"
        picture = ImageContent(data="aGVsbG8=", mime_type="image/png")
        odd = ToolResult(content=(picture,), structured_content={"ключ": [1.5, None, "\ud800"]})

        @tool
        def draw() -> ToolResult:
            """Draw."""
            return odd

        agent = Agent(ScriptedModel([tool_call("draw", id="ä/🧵"), DOWN]), name="名/前", tools=[draw], store=store)
        run_id = await broken(agent, session=session)
        result = await goes_on(Agent(ScriptedModel(["done"]), name="名/前", store=store), run_id)
        last = await Agent(ScriptedModel(["yes"]), name="名/前", store=store).send("more", session=session)

    assert outcome(result).content == (picture,)
    assert outcome(result).structured_content == odd.structured_content
    assert last.messages[: len(result.messages)] == result.messages


async def test_a_completed_run_is_completed_when_the_agent_has_become_stricter() -> None:
    store = MemoryStore()
    run = Agent(ScriptedModel([tool_call("delete"), turn("done", tokens=9)]), tools=[delete], store=store).send("go")
    await run
    strict = Agent(ScriptedModel([]), store=store, max_steps=1, limits=Limits(tokens=1, tool_calls=0))
    result = await goes_on(strict, run.id)
    record = await store.get(RUNS, run.id)

    assert (result.status, result.text) == ("completed", "done")
    assert record is not None
    assert record.value["status"] == "completed"


async def test_a_tool_that_was_allowed_for_the_run_is_not_asked_about_again_when_it_is_resumed() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel([tool_call("delete"), DOWN]), tools=[delete], store=store, confirm="always")
    run = agent.send("go")
    async for event in run:
        if isinstance(event, ApprovalRequested):
            assert run.approve(event, remember="run")
    again = Agent(ScriptedModel([tool_call("delete"), "done"]), tools=[delete], store=store, confirm="always")
    result = await goes_on(again, run.id, attended=False)
    other = Agent(ScriptedModel([tool_call("delete"), "done"]), tools=[delete], store=store, confirm="always")

    assert [one.result.text for one in outcomes(result)] == ["deleted", "deleted"]
    assert outcome(await other.send("go", attended=False)).is_error


def outcomes(result: RunResult) -> list[Any]:
    return [one for message in result.messages if isinstance(message, ToolMessage) for one in message.outcomes]


def outcome(result: RunResult) -> ToolResult:
    return outcomes(result)[0].result
