"""The writer of `killed.py` as a graph of LangGraph: a node for its model, and a `ToolNode`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]

from tests.durability.killed import Decider, Outcome, Writer
from toolweave.durability import DurableAgent, durable
from toolweave.state import Store

INPUT: dict[str, Any] = {"messages": [("user", "write all lines")]}


def answer_to(writer: Decider, messages: Sequence[BaseMessage]) -> AIMessage:
    """Return the model's answer."""
    calls = {call["id"]: call for one in messages if isinstance(one, AIMessage) for call in one.tool_calls}
    outcomes = [
        Outcome(str(one.name), calls[one.tool_call_id]["args"].get("line", ""), str(one.content))
        for one in messages
        if isinstance(one, ToolMessage)
    ]
    now = writer.decide(outcomes)
    if isinstance(now, str):
        return AIMessage(now)
    return AIMessage("", tool_calls=[{"name": one.name, "args": dict(one.arguments), "id": one.id} for one in now])


def agent_of(writer: Writer, store: Store, *, approved: bool = False) -> DurableAgent[Any]:
    """Return the durable graph."""
    return durable(graph_of(writer, approved=approved), store)


def graph_of(writer: Writer, *, approved: bool = False) -> Pregel[Any, Any, Any, Any]:
    """Return the graph."""

    async def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [answer_to(writer, state["messages"])]}

    look = StructuredTool.from_function(writer.look, metadata={"annotations": {"readOnlyHint": True}})
    write = StructuredTool.from_function(writer.write, metadata={"requires_approval": approved})
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([write, look]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    compiled: Pregel[Any, Any, Any, Any] = graph.compile(name="writer")
    return compiled


def answer_of(result: Any) -> Any:
    """Return the answer."""
    return result["messages"][-1].content
