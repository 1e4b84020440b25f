"""Agents of LangChain's `create_agent`, the real ones, as durable runs: with our approvals, and its middleware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]  # its own types are partial
from langchain.agents.middleware import HumanInTheLoopMiddleware, wrap_tool_call
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command
from pydantic import Field

from toolweave import tool
from toolweave.agent import Approval, RunStatuses
from toolweave.durability import DurableAgent, durable
from toolweave.export import langchain_tools
from toolweave.state import MemoryStore

GO: dict[str, Any] = {"messages": [("user", "go")]}


class Outage(Exception):
    """The model is away."""


class Turns(BaseChatModel):
    """A model that says one turn after the other; an exception is raised once, and then the run is done."""

    turns: list[Any]
    heard: list[list[str]] = Field(default_factory=list[list[str]])

    @property
    def _llm_type(self) -> str:
        return "turns"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        self.heard.append([str(one.content) for one in messages if isinstance(one, ToolMessage)])
        turn = self.turns.pop(0) if self.turns else "done"
        if isinstance(turn, Exception):
            raise turn
        message = AIMessage(turn) if isinstance(turn, str) else AIMessage("", tool_calls=turn)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Till:
    """Tools that note their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool(annotations={"destructiveHint": True})
        def pay(amount: int) -> str:
            """Pay."""
            self.calls.append(f"pay {amount}")
            return f"paid {amount}"

        @tool(annotations={"readOnlyHint": True})
        def look() -> str:
            """Look."""
            self.calls.append("look")
            return "seen"

        self.tools = [pay, look]


def call(name: str, call_id: str = "c1", **args: Any) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "args": args, "id": call_id}


def lasting_of(agent: Pregel[Any, Any, Any, Any], store: MemoryStore) -> DurableAgent[Any]:
    return durable(agent, store)


def untyped(agent: Pregel[Any, Any, Any, Any]) -> Any:  # the types of its `ainvoke` are partial
    return agent


def outputs(result: Any) -> list[tuple[str, str]]:
    return [(str(one.content), one.status) for one in result["messages"] if isinstance(one, ToolMessage)]


@pytest.mark.parametrize("saved", [False, True])
async def test_a_run_that_broke_goes_on_and_repeats_neither_the_model_nor_the_call(saved: bool) -> None:
    model, till, store = Turns(turns=[[call("pay", amount=5)], Outage("away")]), Till(), MemoryStore()
    saver = InMemorySaver() if saved else None
    lasting = lasting_of(create_agent(model, langchain_tools(till.tools), name="a", checkpointer=saver), store)

    with pytest.raises(Outage):
        await lasting.run(GO, run_id="r")
    result = await lasting.resume("r")

    assert result["messages"][-1].text == "done"
    assert till.calls == ["pay 5"]
    assert model.heard == [[], ["paid 5"], ["paid 5"]]


@pytest.mark.parametrize(
    "answer, text, status",
    [(True, "paid 5", "success"), (Approval(approved=False, reason="too much"), "too much", "error")],
)
async def test_a_call_that_needs_a_yes_waits_beside_its_finished_sibling(
    answer: bool | Approval, text: str, status: str
) -> None:
    model, till, store = Turns(turns=[[call("pay", amount=5), call("look", "c2")]]), Till(), MemoryStore()
    tools = langchain_tools(till.tools, confirm="destructive")

    await lasting_of(create_agent(model, tools, name="a"), store).run(GO, run_id="r")
    later = lasting_of(create_agent(model, tools, name="a"), store)  # as in another process
    (waiting,) = await later.waiting("r")
    before = list(till.calls)
    result = await later.resume("r", approvals={"c1": answer})

    assert (waiting.tool, waiting.arguments, before) == ("pay", {"amount": 5}, ["look"])
    (paid, paid_status), looked = outputs(result)
    assert (paid_status, looked) == (status, ("seen", "success"))
    assert text in paid
    assert till.calls == (["look", "pay 5"] if answer is True else ["look"])
    assert len(model.heard) == 2


@pytest.mark.parametrize(
    "decision, text, status, calls",
    [
        ({"type": "approve"}, "paid 5", "success", ["pay 5"]),
        ({"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 3}}}, "paid 3", "success", ["pay 3"]),
        ({"type": "reject", "message": "too much"}, "too much", "error", []),
    ],
)
async def test_the_middleware_that_asks_a_person_parks_the_run_and_its_answer_goes_on(
    decision: dict[str, Any], text: str, status: str, calls: list[str]
) -> None:
    model, till, store = Turns(turns=[[call("pay", amount=5)], Outage("away")]), Till(), MemoryStore()
    saver = InMemorySaver()

    def lasting() -> DurableAgent[Any]:
        asking = HumanInTheLoopMiddleware[Any, Any](interrupt_on={"pay": True})
        agent = create_agent(model, langchain_tools(till.tools), name="a", middleware=[asking], checkpointer=saver)
        return lasting_of(agent, store)

    asked = await lasting().run(GO, run_id="r")
    info = await RunStatuses(store).get("r")
    with pytest.raises(Outage):
        await lasting().run(Command(resume={"decisions": [decision]}), run_id="r")
    result = await lasting().resume("r")

    assert asked["__interrupt__"][0].value["action_requests"][0]["args"] == {"amount": 5}
    assert info is not None
    assert info.status == "waiting"
    ((content, outcome),) = outputs(result)
    assert content.endswith(text)
    assert (outcome, till.calls) == (status, calls)
    assert len(model.heard) == 3  # once before the question; then it was away, and answered


async def test_a_call_that_both_ask_about_is_asked_about_twice_and_made_once() -> None:
    model, till, store = Turns(turns=[[call("pay", amount=5)]]), Till(), MemoryStore()
    asking = HumanInTheLoopMiddleware[Any, Any](interrupt_on={"pay": True})
    tools = langchain_tools(till.tools, confirm="destructive")
    agent = create_agent(model, tools, name="a", middleware=[asking], checkpointer=InMemorySaver())
    lasting = lasting_of(agent, store)

    await lasting.run(GO, run_id="r")
    first = await lasting.waiting("r")
    await lasting.run(Command(resume={"decisions": [{"type": "approve"}]}), run_id="r")
    (second,) = await lasting.waiting("r")
    before = list(till.calls)
    result = await lasting.resume("r", approvals={second.call_id: True})

    assert (first, before, till.calls) == ([], [], ["pay 5"])
    assert outputs(result) == [("paid 5", "success")]


async def test_a_middleware_of_the_agent_around_calls_is_kept_and_what_it_returned_recorded() -> None:
    seen = list[str]()

    @wrap_tool_call
    async def noted(request: Any, handler: Any) -> Any:
        seen.append(request.tool_call["name"])
        return await handler(request)

    model, till = Turns(turns=[[call("pay", amount=5)], Outage("away")]), Till()
    agent = create_agent(model, langchain_tools(till.tools), name="a", middleware=[noted])
    lasting = lasting_of(agent, MemoryStore())
    with pytest.raises(Outage):
        await lasting.run(GO, run_id="r")
    await lasting.resume("r")

    assert (seen, till.calls) == (["pay"], ["pay 5"])


async def test_without_a_durable_run_too_the_sibling_of_a_call_that_waits_is_made_once() -> None:
    model, till = Turns(turns=[[call("pay", amount=5), call("look", "c2")]]), Till()
    tools = langchain_tools(till.tools, confirm="destructive")
    agent: Any = untyped(create_agent(model, tools, checkpointer=InMemorySaver()))
    thread = {"configurable": {"thread_id": "1"}}

    asked = await agent.ainvoke(GO, thread)
    result = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), thread)

    assert [one["name"] for one in asked["__interrupt__"][0].value["action_requests"]] == ["pay"]
    assert till.calls == ["look", "pay 5"]
    assert outputs(result) == [("paid 5", "success"), ("seen", "success")]
