"""A toolset in the real LangGraph."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode

from tests.export.offers import Rendezvous, registry
from toolweave.export import langchain_tools


def call(name: str, call_id: str = "c1", **args: Any) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "args": args, "id": call_id}


@pytest.mark.requirement("R77")
async def test_an_agent_loop_of_langgraph_runs_the_calls_of_a_turn_at_the_same_time() -> None:
    tools = langchain_tools([registry(), Rendezvous(3).meet])
    calls: Any = [*(call("meet", f"c{n}", number=n) for n in range(3)), call("broken", "c3", reason="rain")]
    model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=calls), AIMessage("done")]))

    def after(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else "__end__"

    async def ask(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", after)
    graph.add_edge("tools", "ask")

    final = await graph.compile().ainvoke({"messages": [("user", "go")]})

    results = [one for one in final["messages"] if isinstance(one, ToolMessage)]
    assert [one.content for one in results[:3]] == ["number 0", "number 1", "number 2"]  # pyright: ignore[reportUnknownMemberType]
    assert [one.status for one in results] == ["success"] * 3 + ["error"]
    assert final["messages"][-1].content == "done"


async def test_a_message_can_be_kept_by_a_checkpoint() -> None:
    (picture,) = (one for one in langchain_tools(registry()) if one.name == "picture")
    message = await picture.ainvoke(call("picture"))
    keeper = JsonPlusSerializer()

    assert keeper.loads_typed(keeper.dumps_typed(message)) == message
