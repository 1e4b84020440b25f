"""A graph of LangGraph whose tool asks a person: what its sibling did is not done again."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from toolweave import SqliteStore
from toolweave.durability import durable


@tool
async def book(room: str) -> str:
    """Book a room."""
    print("booking", room)
    return "booked"


@tool
async def pay(amount: int) -> str:
    """Pay, after a person has agreed."""
    return f"paid {amount}: {interrupt(f'Pay {amount}?')}"


async def model(state: MessagesState) -> dict[str, Any]:
    """Stand in for a model."""
    if len(state["messages"]) > 1:
        return {"messages": [AIMessage("Done.")]}
    calls: list[Any] = [
        {"name": "book", "args": {"room": "12"}, "id": "c1"},
        {"name": "pay", "args": {"amount": 5}, "id": "c2"},
    ]
    return {"messages": [AIMessage("", tool_calls=calls)]}


async def main() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([book, pay]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    compiled = graph.compile(checkpointer=InMemorySaver())

    async with SqliteStore("runs.db") as store:
        clerk = durable(compiled, store, name="clerk")
        asked = await clerk.run({"messages": [("user", "Book room 12 and pay.")]}, run_id="order-17")
        print(asked["__interrupt__"][0].value)

        answered = await clerk.run(Command(resume="agreed"), run_id="order-17")
        print([message.text for message in answered["messages"]])


asyncio.run(main())
