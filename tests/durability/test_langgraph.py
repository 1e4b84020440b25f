"""Graphs of LangGraph, the real ones, as durable runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import anyio
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command, RetryPolicy, Send, interrupt

from tests.durability.stalled_tools import stalled_tools
from toolweave import Backend
from toolweave.agent import RunStatuses, run_handlers
from toolweave.durability import DurableAgent, durable
from toolweave.errors import RunError
from toolweave.export import langchain_tools
from toolweave.jobs import Job
from toolweave.state import Change, MemoryStore, Store

GO: dict[str, Any] = {"messages": [("user", "go")]}


class Outage(Exception):
    """The model is away."""


class Turns:
    """A model node that says one turn after the other; an exception is raised once, and then the run is done."""

    def __init__(self, *turns: Any) -> None:
        self.turns = list(turns)
        self.asked = 0

    async def __call__(self, state: MessagesState) -> dict[str, Any]:
        self.asked += 1
        turn = self.turns.pop(0) if self.turns else "done"
        if isinstance(turn, Exception):
            raise turn
        used = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
        if isinstance(turn, str):
            return {"messages": [AIMessage(turn, usage_metadata=used)]}
        return {"messages": [AIMessage("", tool_calls=turn, usage_metadata=used)]}


def call(name: str, call_id: str = "c1", **args: Any) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "args": args, "id": call_id}


def graph_of(model: Turns, tools: ToolNode | list[BaseTool], *, saved: bool = False, **options: Any) -> Any:
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", model.__call__)
    graph.add_node("tools", tools if isinstance(tools, ToolNode) else ToolNode(tools), **options)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(name="a", checkpointer=InMemorySaver() if saved else None)


def lasting_of(graph: Pregel[Any, Any, Any, Any], store: Store | Backend, **options: Any) -> DurableAgent[Any]:
    return durable(graph, store, **options)


def made(function: Callable[..., Any], **metadata: Any) -> StructuredTool:
    return StructuredTool.from_function(coroutine=function, name=function.__name__, metadata=metadata or None)


def outputs(result: Any) -> list[tuple[str, str]]:
    return [(str(one.content), one.status) for one in result["messages"] if isinstance(one, ToolMessage)]


@pytest.mark.parametrize("saved", [False, True])
async def test_a_run_goes_on_and_nothing_that_was_done_is_done_again(saved: bool) -> None:
    model, calls, store = Turns([call("act", n=1)], Outage("away")), list[int](), MemoryStore()

    async def act(n: int) -> str:
        """Act."""
        calls.append(n)
        return "ok"

    lasting = lasting_of(graph_of(model, [made(act)], saved=saved), store)
    with pytest.raises(Outage):
        await lasting.run(GO, run_id="r")
    result = await lasting.resume("r")
    again = await lasting.resume("r")
    info = await RunStatuses(store).get("r")

    assert [one.text for one in result["messages"]] == ["go", "", "ok", "done"]
    assert [one.text for one in again["messages"]] == ["go", "", "ok", "done"]
    assert (calls, model.asked) == ([1], 3)
    assert info is not None
    assert (info.status, info.record.prompt) == ("completed", "go")


async def test_usage_and_steps_of_the_models_are_in_the_record() -> None:
    store = MemoryStore()
    await lasting_of(graph_of(Turns("done"), []), store).run(GO, run_id="r")
    info = await RunStatuses(store).get("r")

    assert info is not None
    assert (info.record.text, info.record.steps) == ("done", 1)
    assert (info.record.usage.input_tokens, info.record.usage.output_tokens) == (10, 2)


async def test_the_finished_sibling_of_an_interrupted_tool_is_not_called_again() -> None:
    model, calls, store = Turns([call("pay"), call("ask", "c2")], Outage("away")), list[str](), MemoryStore()

    async def pay() -> str:
        """Pay."""
        calls.append("pay")
        return "paid"

    async def ask() -> str:
        """Ask."""
        calls.append("ask")
        answer = interrupt("really?")
        calls.append(answer)
        return f"they say {answer}"

    lasting = lasting_of(graph_of(model, [made(pay), made(ask)], saved=True), store)
    asked = await lasting.run(GO, run_id="r")
    waiting = await RunStatuses(store).get("r")
    with pytest.raises(Outage):
        await lasting.run(Command(resume="yes"), run_id="r")
    result = await lasting.resume("r")

    assert asked["__interrupt__"][0].value == "really?"
    assert waiting is not None
    assert waiting.status == "waiting"
    assert calls == ["pay", "ask", "ask", "yes"]
    assert outputs(result) == [("paid", "success"), ("they say yes", "success")]
    assert result["messages"][-1].text == "done"
    with pytest.raises(ValueError, match="needs its run_id"):
        await lasting.run(Command(resume="yes"))


async def test_calls_of_a_process_that_died_follow_the_hints_of_exported_tools() -> None:
    calls = list[str]()

    node = ToolNode(langchain_tools(stalled_tools(calls)), handle_tool_errors=True)
    lasting = lasting_of(graph_of(Turns([call("look"), call("pay", "c2")]), node), MemoryStore())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: lasting.run(GO, run_id="r"))
        while len(calls) < 2:
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    looked, paid = outputs(await lasting.resume("r"))

    assert calls[2:] == ["look"]
    assert looked == ("look is done", "success")
    assert paid[1] == "error"
    assert "the outcome of this call of tool 'pay' is unknown" in paid[0]


async def test_a_wrapper_of_the_tool_node_is_kept_and_a_fault_is_not_told_to_the_model() -> None:
    seen, calls = list[str](), list[str]()

    async def wrap(request: Any, execute: Any) -> Any:
        seen.append(request.tool_call["name"])
        return await execute(request)

    async def act() -> Any:
        """Act."""
        calls.append("act")
        return "ok"

    class Failing(MemoryStore):
        async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
            if calls and any("c1" in change.key for change in changes):
                raise OSError("the disk is full")
            return await super().write(changes, signal=signal)

    node = ToolNode([made(act)], awrap_tool_call=wrap, handle_tool_errors=True)
    store = Failing()
    lasting = lasting_of(graph_of(Turns([call("act")]), node), store)
    with pytest.raises(OSError, match="disk is full"):
        await lasting.run(GO, run_id="r")
    (left,) = await lasting.unfinished()

    assert (seen, calls, left.run_id) == (["act"], ["act"], "r")


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_tool_that_raised_is_called_again_by_the_policy_of_its_node_and_not_by_a_resumed_run(
    attempts: int,
) -> None:
    calls = list[str]()

    async def act() -> str:
        """Act."""
        calls.append("act")
        raise OSError("the disk is full")

    node = ToolNode([made(act)], handle_tool_errors=False)
    policy = RetryPolicy(max_attempts=attempts, retry_on=OSError, initial_interval=0.001)
    lasting = lasting_of(graph_of(Turns([call("act")]), node, retry_policy=policy), MemoryStore())
    with pytest.raises(OSError, match="disk is full"):
        await lasting.run(GO, run_id="r")
    with pytest.raises(RunError, match="not called again as it may not be repeated"):
        await lasting.resume("r")

    assert calls == ["act"] * attempts


class Many(TypedDict):
    """The state of a graph that fans out."""

    found: Annotated[list[int], operator.add]


async def test_branches_of_one_step_are_recorded_each() -> None:
    calls = list[int]()

    async def start(state: Many) -> dict[str, Any]:
        return {}

    async def one(state: dict[str, int]) -> dict[str, Any]:
        calls.append(state["n"])
        return {"found": [state["n"]]}

    async def last(state: Many) -> dict[str, Any]:
        if len(calls) == 3:
            calls.append(0)
            raise Outage
        return {}

    def fan(state: Many) -> list[Send]:
        return [Send("one", {"n": n}) for n in (1, 2, 3)]

    graph: Any = StateGraph(Many)
    for node in (start, one, last):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "start")
    graph.add_conditional_edges("start", fan, ["one"])
    graph.add_edge("one", "last")
    graph.add_edge("last", END)
    lasting = lasting_of(graph.compile(name="fan"), MemoryStore())
    with pytest.raises(Outage):
        await lasting.run({"found": []}, run_id="r")
    result = await lasting.resume("r")

    assert result == {"found": [1, 2, 3]}
    assert sorted(calls) == [0, 1, 2, 3]


async def test_a_worker_executes_a_submitted_run() -> None:
    async with Backend("memory://") as backend:
        lasting = lasting_of(graph_of(Turns("done"), []), backend)
        run = await lasting.submit(GO)
        (handler,) = run_handlers([lasting], backend).values()
        await handler(Job(topic=handler.topic.name, key=run.id))
        record = await run.result(timeout=60)

    assert (record.status, record.text) == ("completed", "done")


def test_a_store_is_needed() -> None:
    with pytest.raises(TypeError, match="or a Backend, not in NoneType"):
        lasting_of(graph_of(Turns("done"), []), None)  # pyright: ignore[reportArgumentType]


def around(inner: Any, *, saved: bool = False) -> Any:
    """A graph whose node is a graph, and that is a node of the outermost one; which runs it twice."""
    middle: Any = StateGraph(MessagesState)
    middle.add_node("desk", inner)
    middle.add_edge(START, "desk")
    outer: Any = StateGraph(MessagesState)
    outer.add_node("office", middle.compile())
    outer.add_node("again", lambda state: {"messages": [("user", "again")]})  # pyright: ignore[reportUnknownLambdaType]
    outer.add_edge(START, "office")
    outer.add_conditional_edges("office", _next)
    outer.add_edge("again", "office")
    return outer.compile(name="outer", checkpointer=InMemorySaver() if saved else None)


def _next(state: MessagesState) -> str:
    return END if any(one.content == "again" for one in state["messages"]) else "again"


@pytest.mark.parametrize("saved", [False, True])
async def test_the_calls_of_a_graph_that_is_a_node_are_recorded_each_time_it_runs(saved: bool) -> None:
    calls, store = list[int](), MemoryStore()
    model = Turns([call("act", n=1)], [call("act", n=2)], "once", [call("act", n=3)], Outage("away"), "twice")

    async def act(n: int) -> str:
        """Act."""
        calls.append(n)
        return f"did {n}"

    lasting = lasting_of(around(graph_of(model, [made(act)]), saved=saved), store)
    with pytest.raises(Outage):
        await lasting.run(GO, run_id="r")
    result = await lasting.resume("r")
    info = await RunStatuses(store).get("r")

    assert (calls, model.asked) == ([1, 2, 3], 6)  # of the same id, in different steps
    assert [text for text, _ in outputs(result)] == ["did 1", "did 2", "did 3"]
    assert result["messages"][-1].text == "twice"
    assert info is not None
    assert info.status == "completed"
    assert saved or info.record.steps == 5


@pytest.mark.parametrize("saved", [False, True])
async def test_a_call_in_a_graph_that_is_a_node_waits_for_its_approval(saved: bool) -> None:
    calls, store = list[str](), MemoryStore()

    async def pay() -> str:
        """Pay."""
        calls.append("pay")
        return "paid"

    async def look() -> str:
        """Look."""
        calls.append("look")
        return "seen"

    model = Turns([call("pay"), call("look", "c2")], "once", "twice")
    lasting = lasting_of(around(graph_of(model, [made(pay, requires_approval=True), made(look)]), saved=saved), store)
    await lasting.run(GO, run_id="r")
    (waiting,) = await lasting.waiting("r")
    before = list(calls)
    await RunStatuses(store).approve("r", waiting.call_id)
    result = await lasting.resume("r")

    assert (waiting.tool, waiting.call_id) == ("pay", "office/1/desk/2/c1")
    assert (before, calls) == (["look"], ["look", "pay"])
    assert [text for text, _ in outputs(result)] == ["paid", "seen"]
    assert result["messages"][-1].text == "twice"


async def test_an_interrupt_in_a_graph_that_is_a_node_is_answered_and_its_sibling_is_not_called_again() -> None:
    calls, store = list[str](), MemoryStore()

    async def pay() -> str:
        """Pay."""
        calls.append("pay")
        return "paid"

    async def ask() -> str:
        """Ask."""
        return f"they say {interrupt('really?')}"

    model = Turns([call("pay"), call("ask", "c2")], "once", "twice")
    lasting = lasting_of(around(graph_of(model, [made(pay), made(ask)]), saved=True), store)
    asked = await lasting.run(GO, run_id="r")
    result = await lasting.run(Command(resume="yes"), run_id="r")

    assert asked["__interrupt__"][0].value == "really?"
    assert (calls, model.asked) == (["pay"], 3)
    assert outputs(result) == [("paid", "success"), ("they say yes", "success")]


async def test_a_graph_that_runs_several_times_in_one_step_has_entries_for_each() -> None:
    calls, store = list[str](), MemoryStore()

    async def act(of: str) -> str:
        """Act."""
        calls.append(of)
        return f"for {of}"

    async def model(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1]
        if isinstance(last, ToolMessage):
            return {"messages": [AIMessage(f"done {last.text}")]}
        return {"messages": [AIMessage("", tool_calls=[call("act", of=last.text)])]}

    failing = [Outage("away")]

    async def end(state: MessagesState) -> dict[str, Any]:
        if failing:
            raise failing.pop()
        return {}

    inner: Any = StateGraph(MessagesState)
    inner.add_node("model", model)
    inner.add_node("tools", ToolNode([made(act)]))
    inner.add_edge(START, "model")
    inner.add_conditional_edges("model", tools_condition)
    inner.add_edge("tools", "model")
    outer: Any = StateGraph(MessagesState)
    outer.add_node("desk", inner.compile())
    outer.add_node("end", end)
    outer.add_conditional_edges(START, lambda _: [Send("desk", {"messages": [("user", one)]}) for one in ("a", "b")])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    outer.add_edge("desk", "end")
    lasting = lasting_of(outer.compile(name="outer"), store)
    with pytest.raises(Outage):
        await lasting.run(GO, run_id="r")
    result = await lasting.resume("r")

    assert sorted(calls) == ["a", "b"]
    assert sorted(text for text, _ in outputs(result)) == ["for a", "for b"]


def test_graphs_whose_calls_cannot_be_recorded_are_refused() -> None:
    inner = graph_of(Turns("done"), [])

    async def runs_a_graph(state: MessagesState) -> Any:
        return await inner.ainvoke(state)

    outer: Any = StateGraph(MessagesState)
    outer.add_node("inner", runs_a_graph)
    outer.add_edge(START, "inner")

    def wrap(request: Any, execute: Any) -> Any:
        return execute(request)

    blocking = ToolNode([], wrap_tool_call=wrap)

    with pytest.raises(ValueError, match="node 'inner' is a function that runs a graph"):
        lasting_of(outer.compile(name="outer"), MemoryStore())
    with pytest.raises(ValueError, match="give it as awrap_tool_call"):
        lasting_of(around(graph_of(Turns("done"), blocking)), MemoryStore())
