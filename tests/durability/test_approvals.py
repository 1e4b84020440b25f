"""Durable runs of other frameworks' agents whose calls need a person's yes: parked, answered from anywhere, gone on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from agents import Agent as OpenAiAgent
from agents import RunConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models.function import FunctionModel

from tests.durability import langgraph_writer, openai_agents_writer, pydantic_ai_writer
from tests.durability.killed import Call, Outcome
from toolweave import Backend, ToolRegistry, tool
from toolweave.agent import Approval, RunStatuses, work_runs
from toolweave.durability import DurableAgent, durable
from toolweave.errors import RunError
from toolweave.export import langchain_tools, openai_agents_tools, pydantic_ai_toolset
from toolweave.state import MemoryStore, Store


class Till:
    """A model that makes these turns, and the tools that it calls; `done` holds what they did."""

    def __init__(self, *turns: list[Call]) -> None:
        self.turns = turns
        self.done: list[str] = []
        self.read: list[str] = []

    def decide(self, outcomes: Sequence[Outcome]) -> list[Call] | str:
        """Make the turn after those whose outcomes are there."""
        self.read = [one.text for one in outcomes]
        left = len(outcomes)
        for turn in self.turns:
            if left <= 0:
                return turn
            left -= len(turn)
        return "done"

    def tools(self) -> ToolRegistry:
        """Return a tool that pays and one that only looks."""

        @tool
        async def pay(line: str) -> str:
            """Pay."""
            self.done.append(f"paid {line}")
            return f"paid {line}"

        @tool(annotations={"readOnlyHint": True})
        async def look(line: str) -> str:
            """Look."""
            self.done.append(f"saw {line}")
            return f"saw {line}"

        return ToolRegistry([pay, look])


def of_pydantic_ai(till: Till, store: Store | Backend) -> DurableAgent[Any]:
    model = FunctionModel(pydantic_ai_writer.answering(till))
    toolset = pydantic_ai_toolset(till.tools(), confirm="destructive")
    return durable(Agent(model, name="till", toolsets=[toolset], output_type=[str, DeferredToolRequests]), store)


def of_openai_agents(till: Till, store: Store | Backend) -> DurableAgent[Any]:
    tools = openai_agents_tools(till.tools(), confirm="destructive")
    agent = OpenAiAgent[None](name="till", model=openai_agents_writer.WriterModel(till), tools=tools)
    return durable(agent, store, options={"run_config": RunConfig(tracing_disabled=True)})


def of_langgraph(till: Till, store: Store | Backend, *, saved: bool = False) -> DurableAgent[Any]:

    async def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [langgraph_writer.answer_to(till, state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode(langchain_tools(till.tools(), confirm="destructive")))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    compiled: Pregel[Any, Any, Any, Any] = graph.compile(name="till", checkpointer=InMemorySaver() if saved else None)
    return durable(compiled, store)


def of_saved_langgraph(till: Till, store: Store | Backend) -> DurableAgent[Any]:
    return of_langgraph(till, store, saved=True)


Make = Callable[[Till, "Store | Backend"], DurableAgent[Any]]
INPUTS: dict[Make, Any] = {
    of_pydantic_ai: pydantic_ai_writer.INPUT,
    of_openai_agents: openai_agents_writer.INPUT,
    of_langgraph: langgraph_writer.INPUT,
    of_saved_langgraph: langgraph_writer.INPUT,
}


@pytest.fixture(params=list(INPUTS), ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


PAY = Call("c1", "pay", {"line": "a"})
LOOK = Call("c2", "look", {"line": "b"})
PAY_TOO = Call("c3", "pay", {"line": "c"})


async def status(store: Store, run_id: str = "r") -> str | None:
    info = await RunStatuses(store).get(run_id)
    return None if info is None else info.status


async def test_a_call_that_needs_a_yes_parks_the_run_and_what_was_done_beside_it_stays_done(make: Make) -> None:
    till, store = Till([PAY, LOOK, PAY_TOO]), MemoryStore()
    await make(till, store).run(INPUTS[make], run_id="r")
    parked, seen = await status(store), list(till.done)
    lasting = make(till, store)  # as another process would make it
    asked = await lasting.waiting("r")
    await lasting.resume("r", approvals={"c1": True})
    left = await lasting.waiting("r")
    await lasting.resume("r", approvals={"c3": Approval(approved=False, reason="too dear")})

    assert (parked, seen) == ("waiting", ["saw b"])
    assert [(one.call_id, one.tool, one.arguments) for one in asked] == [
        ("c1", "pay", {"line": "a"}),
        ("c3", "pay", {"line": "c"}),
    ]
    assert "Pay." in asked[0].description
    assert [one.call_id for one in left] == ["c3"]
    assert await status(store) == "completed"
    assert till.done == ["saw b", "paid a"]
    assert {"paid a", "saw b"} < set(till.read)
    assert "too dear" in str(till.read)


async def test_a_resumed_run_without_an_answer_waits_on_and_an_answer_may_be_given_twice(make: Make) -> None:
    till, store = Till([PAY]), MemoryStore()
    lasting = make(till, store)
    await lasting.run(INPUTS[make], run_id="r")
    await lasting.resume("r")
    waits = await status(store)
    await lasting.resume("r", approvals={"c1": True})
    await lasting.resume("r", approvals={"c1": True})

    assert waits == "waiting"
    assert till.done == ["paid a"]
    with pytest.raises(RunError, match="it was approved"):
        await lasting.resume("r", approvals={"c1": False})
    with pytest.raises(RunError, match="has ended: its status is completed"):
        await lasting.resume("r", approvals={"c2": True})
    with pytest.raises(TypeError, match="True, False or an Approval"):
        answers: Any = {"c1": "no"}
        await lasting.resume("r", approvals=answers)


@pytest.mark.parametrize("make", [of_pydantic_ai, of_langgraph, of_saved_langgraph])
async def test_an_answer_holds_for_its_call_and_not_for_a_later_one_under_the_same_id(make: Make) -> None:
    till, store = Till([PAY], [Call("c1", "pay", {"line": "b"})]), MemoryStore()
    lasting = make(till, store)
    await lasting.run(INPUTS[make], run_id="r")
    await lasting.resume("r", approvals={"c1": True})
    (again,) = await lasting.waiting("r")

    assert till.done == ["paid a"]
    assert again.arguments == {"line": "b"}
    await lasting.resume("r", approvals={again.call_id: True})
    assert till.done == ["paid a", "paid b"]
    assert await status(store) == "completed"


async def test_an_answer_for_the_run_holds_for_further_calls_of_its_tool(make: Make) -> None:
    till, store = Till([PAY], [PAY_TOO]), MemoryStore()
    lasting = make(till, store)
    await lasting.run(INPUTS[make], run_id="r")
    await lasting.resume("r", approvals={"c1": Approval(approved=True, remember="run")})

    assert (till.done, await status(store)) == (["paid a", "paid c"], "completed")


@pytest.mark.slow
async def test_a_worker_parks_a_submitted_run_and_goes_on_with_it_when_it_was_approved(make: Make) -> None:
    till = Till([PAY])
    done, record = list[str](), None
    async with Backend("memory://") as backend, anyio.create_task_group() as tasks:
        lasting = make(till, backend)
        run = await lasting.submit(INPUTS[make], key="order")
        tasks.start_soon(work_runs, [lasting], backend)
        with anyio.fail_after(60):
            while not (asked := await run.waiting()):
                await anyio.sleep(0.02)
            done = list(till.done)
            await run.approve(asked[0].call_id)
            record = await run.result()
        tasks.cancel_scope.cancel()

    assert (done, till.done) == ([], ["paid a"])
    assert record is not None
    assert record.status == "completed"
