"""Agents of the OpenAI Agents SDK, the real ones, as durable runs."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from agents import (
    Agent,
    FunctionTool,
    LocalShellTool,
    Model,
    ModelProvider,
    ModelResponse,
    RunConfig,
    SQLiteSession,
    ToolOutputText,
    Usage,
    function_tool,
    handoff,
)
from agents.mcp import MCPServerStdio
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel

from tests.durability.openai_agents_writer import said
from tests.durability.stalled_tools import stalled_tools
from toolweave import Backend
from toolweave.agent import RunStatuses, run_handlers
from toolweave.durability import DurableAgent, durable
from toolweave.errors import RunError
from toolweave.export import openai_agents_tools
from toolweave.jobs import Job
from toolweave.state import MemoryStore

QUIET = {"run_config": RunConfig(tracing_disabled=True)}


class Outage(Exception):
    """The model is away."""


class Turns(Model):
    """A model that says one turn after the other; an exception is raised once, and then the run is done."""

    def __init__(self, *turns: Any) -> None:
        self.turns = list(turns)
        self.inputs: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> ModelResponse:
        self.inputs.append(input)
        turn = self.turns.pop(0) if self.turns else "done"
        if isinstance(turn, Exception):
            raise turn
        output: list[Any] = [said(turn)] if isinstance(turn, str) else list(turn)
        return ModelResponse(output=output, usage=Usage(requests=1, input_tokens=10, output_tokens=2), response_id="r")

    def stream_response(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    def outputs(self) -> list[Any]:
        return [item["output"] for item in self.inputs[-1] if item.get("type") == "function_call_output"]


def call(name: str, call_id: str = "c1", **arguments: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", name=name, arguments=json.dumps(arguments), call_id=call_id, id=call_id
    )


def counted(calls: list[str], name: str, value: Any = "ok", **options: Any) -> FunctionTool:
    def act() -> Any:
        """Act."""
        calls.append(name)
        return value

    return function_tool(act, name_override=name, **options)


class Money(BaseModel):
    """A result of its own type."""

    euros: int


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("ok", "ok"),
        ({"n": 1}, str({"n": 1})),
        (ToolOutputText(text="ok"), [{"type": "input_text", "text": "ok"}]),
        (7, "7"),
    ],
)
async def test_a_run_goes_on_and_its_tools_are_not_called_again(value: Any, seen: Any) -> None:
    model, calls, store = Turns([call("act")], Outage("away")), list[str](), MemoryStore()
    agent = Agent[None](name="a", model=model, tools=[counted(calls, "act", value)])
    lasting = durable(agent, store, options=QUIET)
    with pytest.raises(Outage):
        await lasting.run("go", run_id="r")
    before = model.outputs()
    result = await lasting.resume("r")
    info = await RunStatuses(store).get("r")

    assert (result.final_output, calls) == ("done", ["act"])
    assert before == model.outputs() == [seen]
    assert result.context_wrapper.usage.requests == 2
    assert info is not None
    assert (info.status, info.record.text, info.record.usage.input_tokens, info.record.steps) == ("completed", "done", 20, 2)  # fmt: skip # noqa: E501


async def test_agents_that_a_run_is_handed_to_are_recorded_too() -> None:
    calls = list[str]()
    last = Agent[None](name="last", model=Turns([call("pay", "c3")], Outage("away")), tools=[counted(calls, "pay")])
    middle = Agent[None](name="middle", model=Turns([call("transfer_to_last", "c2")]), handoffs=[handoff(last)])
    first = Agent[None](name="first", model=Turns([call("transfer_to_middle")]), handoffs=[middle])
    middle.handoffs.append(first)  # and back
    lasting = durable(first, MemoryStore(), options=QUIET)
    with pytest.raises(Outage):
        await lasting.run("go", run_id="r")
    result = await lasting.resume("r")

    assert (result.final_output, result.last_agent.name, calls) == ("done", "last", ["pay"])


async def test_an_approved_call_is_made_once_in_a_run_that_goes_on_with_the_state() -> None:
    calls, store = list[str](), MemoryStore()
    model = Turns([call("pay"), call("look", "c2")], Outage("away"))
    tools: list[Any] = [counted(calls, "pay", needs_approval=True), counted(calls, "look")]
    lasting = durable(Agent[None](name="a", model=model, tools=tools), store, options=QUIET)
    asked = await lasting.run("go", run_id="one")
    info = await RunStatuses(store).get("one")
    state = asked.to_state()
    state.approve(asked.interruptions[0])
    with pytest.raises(Outage):
        await lasting.run(state, run_id="two")
    result = await lasting.resume("two")

    assert info is not None
    assert info.status == "waiting"
    assert (result.final_output, sorted(calls)) == ("done", ["look", "pay"])


async def test_calls_of_a_process_that_died_follow_the_hints_of_exported_tools() -> None:
    calls, model = list[str](), Turns([call("look"), call("pay", "c2")])

    lasting = durable(Agent[None](name="a", model=model, tools=openai_agents_tools(stalled_tools(calls))), MemoryStore(), options=QUIET)  # fmt: skip # noqa: E501
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: lasting.run([{"role": "user", "content": "go"}], run_id="r"))
        while len(calls) < 2:
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    result = await lasting.resume("r")

    assert (result.final_output, calls[2:]) == ("done", ["look"])
    assert result.input == [{"role": "user", "content": "go"}]
    looked, paid = model.outputs()
    assert looked == "look is done"
    assert "the outcome of this call of tool 'pay' is unknown" in paid


class Provider(ModelProvider):
    """A provider that has one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.asked: list[str | None] = []

    def get_model(self, model_name: str | None) -> Model:
        self.asked.append(model_name)
        return self._model


@pytest.mark.parametrize(("chosen", "asked"), [(None, "small"), ("large", "large")])
async def test_models_are_those_that_the_run_would_have(chosen: str | None, asked: str) -> None:
    provider = Provider(Turns("done"))
    config = RunConfig(tracing_disabled=True, model_provider=provider, model=chosen)
    lasting = durable(Agent[None](name="a", model="small"), MemoryStore())

    results = [await lasting.run("go", run_id="r", run_config=config) for _ in range(2)]

    assert [one.final_output for one in results] == ["done", "done"]
    assert provider.asked == [asked]  # a replayed answer needs no model


async def test_a_worker_executes_a_submitted_run_and_structured_output_is_in_its_record() -> None:
    agent = Agent[None](name="a", model=Turns('{"euros": 5}'), output_type=Money)
    async with Backend("memory://") as backend:
        lasting = durable(agent, backend, options=QUIET)
        run = await lasting.submit("go")
        (handler,) = run_handlers([lasting], backend).values()
        await handler(Job(topic=handler.topic.name, key=run.id))
        record = await run.result(timeout=60)

    assert (record.status, record.output) == ("completed", {"euros": 5})


async def test_what_cannot_be_recorded_is_refused() -> None:
    shell, files = LocalShellTool(executor=lambda _: ""), MCPServerStdio({"command": "files"})
    inner = Agent[None](name="inner", mcp_servers=[files])
    lasting: DurableAgent[Any] = durable(Agent[None](name="a"), MemoryStore())

    with pytest.raises(ValueError, match="calls of LocalShellTool of agent 'a' cannot be recorded"):
        durable(Agent[None](name="a", tools=[shell]), MemoryStore())
    with pytest.raises(ValueError, match=r"agent 'inner' has mcp_servers.*openai_agents_tools"):
        durable(Agent[None](name="a", handoffs=[inner]), MemoryStore())
    with pytest.raises(ValueError, match="session= does not go together with a durable run"):
        await lasting.run("go", session=SQLiteSession("s"))
    with pytest.raises(TypeError, match="not int"):
        await lasting.run(7)


async def test_a_tool_that_raises_ends_the_run_and_is_not_called_again() -> None:
    calls = list[str]()

    def act() -> str:
        """Act."""
        calls.append("act")
        raise OSError("the disk is full")

    one = function_tool(act, failure_error_function=None)
    lasting = durable(Agent[None](name="a", model=Turns([call("act")]), tools=[one]), MemoryStore(), options=QUIET)
    with pytest.raises(Exception, match="disk is full"):
        await lasting.run("go", run_id="r")
    with pytest.raises(Exception, match="not called again as it may not be repeated") as caught:
        await lasting.resume("r")

    assert calls == ["act"]
    assert isinstance(caught.value, RunError) or isinstance(caught.value.__cause__, RunError)
