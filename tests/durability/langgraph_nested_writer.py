"""The writer of `killed.py` as a graph of LangGraph that is a node of another one."""

from __future__ import annotations

from typing import Any

from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]

from tests.durability.killed import Writer
from tests.durability.langgraph_writer import INPUT, answer_of, graph_of
from toolweave.durability import DurableAgent, durable
from toolweave.state import Store

__all__ = ["INPUT", "agent_of", "answer_of"]


def agent_of(writer: Writer, store: Store, *, approved: bool = False) -> DurableAgent[Any]:
    """Return the durable graph."""
    graph: Any = StateGraph(MessagesState)
    graph.add_node("desk", graph_of(writer, approved=approved))
    graph.add_edge(START, "desk")
    compiled: Pregel[Any, Any, Any, Any] = graph.compile(name="writer")
    return durable(compiled, store)
