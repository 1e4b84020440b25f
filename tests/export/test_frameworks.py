"""What an export carries into each framework, from a real server: approvals, instructions, progress, new tools."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable
from typing import Any

import anyio
import pytest
from agents import Agent as OpenAiAgent
from agents import ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import ModelResponse as TheirResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from tests.durability.openai_agents_writer import said
from tests.export.shop import PROGRESS, QUOTED, shop
from tests.export.test_openai_agents import call
from tests.hub.fleet import echo
from toolweave import McpConnection, ToolRegistry, connect_mcp, connect_mcp_servers
from toolweave.config import ServerConfig
from toolweave.export import (
    ConfirmCalls,
    langchain_tools,
    openai_agents_tools,
    pydantic_ai_toolset,
    server_instructions,
)
from toolweave.providers import AnthropicTools
from toolweave.tools import Progress, combined, filtered, prefixed

QUIET = RunConfig(tracing_disabled=True)
EXPENSIVE: list[ConfirmCalls] = ["destructive", lambda call, spec: call.arguments.get("euros", 0) > 100]
"""Policies that ask for `pay` with 500 euros, and not for `look`."""


async def until_offered(connection: McpConnection, name: str) -> None:
    with anyio.fail_after(60):
        while name not in connection.snapshot().by_name:
            await anyio.sleep(0.01)


class Turns(Model):
    """A model of the OpenAI Agents SDK that makes these turns; `offered` holds the tools of each request."""

    def __init__(self, connection: McpConnection, *turns: list[Any]) -> None:
        self.connection = connection
        self.turns = list(turns)
        self.offered: list[set[str]] = []
        self.read: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *more: Any, **named: Any) -> ModelResponse:  # fmt: skip # noqa: E501
        self.offered.append({one.name for one in tools})
        self.read = [] if isinstance(input, str) else [one["output"] for one in input if "output" in one]
        if "open" in self.read:
            await until_offered(self.connection, "enter")
        output: list[Any] = self.turns.pop(0) if self.turns else [said("done")]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError


def answering(*turns: list[ToolCallPart], connection: McpConnection | None = None) -> tuple[FunctionModel, list[Any]]:
    """Return a model of Pydantic AI that makes these turns, and a list for what it was offered."""
    infos: list[Any] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> TheirResponse:
        infos.append(info)
        number = sum(isinstance(one, TheirResponse) for one in messages)
        if connection is not None and number:
            await until_offered(connection, "enter")
        return TheirResponse(parts=[*turns[number]] if number < len(turns) else [TextPart("done")])

    return FunctionModel(answer), infos


def returned(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]


@pytest.mark.parametrize("confirm", EXPENSIVE)
async def test_pydantic_ai_defers_the_calls_that_need_a_yes_and_makes_them_when_they_are_approved(
    confirm: ConfirmCalls,
) -> None:
    paid = list[int]()
    model, _ = answering([ToolCallPart("look", {}, "c1"), ToolCallPart("pay", {"euros": 500}, "c2")])
    async with connect_mcp(shop(paid), name="shop") as connection:
        toolset = pydantic_ai_toolset(connection, confirm=confirm)
        agent = Agent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests])
        asked = await agent.run("go")
        before = list(paid)
        assert isinstance(asked.output, DeferredToolRequests)
        answers = DeferredToolResults(approvals={"c2": True})
        result = await agent.run(message_history=asked.all_messages(), deferred_tool_results=answers)

    assert [one.tool_name for one in asked.output.approvals] == ["pay"]
    assert (before, paid) == ([], [500])
    assert returned(result.all_messages()) == ["seen", "paid 500"]


async def test_pydantic_ai_has_what_the_servers_say_among_the_agents_instructions_where_it_is_wanted() -> None:
    async with connect_mcp(shop([]), name="shop") as connection:
        told: list[Any] = []
        for wanted in (True, False):
            model, infos = answering()
            toolset = pydantic_ai_toolset(connection, include_instructions=wanted)
            await Agent(model, toolsets=[toolset], instructions="Be brief.").run("go")
            told.append(infos[0].instructions)

    assert "Be brief." in told[0]
    assert QUOTED in told[0]
    assert told[1] == "Be brief."


async def test_progress_is_an_event_of_pydantic_ais_stream() -> None:
    seen: list[Any] = []

    async def handle(ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
        seen.extend([one async for one in events if getattr(one, "name", "") == "toolweave_progress"])

    async with connect_mcp(shop([]), name="shop") as connection:
        agent = Agent(TestModel(call_tools=["look"]), toolsets=[pydantic_ai_toolset(connection)])
        await agent.run("go", event_stream_handler=handle)

    assert [(one.progress, one.total, one.message) for one in seen] == PROGRESS
    assert {one.tool_name for one in seen} == {"look"}
    assert all(one.tool_call_id for one in seen)


async def test_a_tool_that_a_server_adds_is_offered_at_the_next_step_of_pydantic_ai() -> None:
    async with connect_mcp(shop([]), name="shop") as connection:
        turns = [[ToolCallPart(name, {}, f"c{n}")] for n, name in enumerate(("open_gate", "look", "enter"))]
        model, infos = answering(*turns, connection=connection)
        result = await Agent(model, toolsets=[pydantic_ai_toolset(connection)]).run("go")

    assert returned(result.all_messages()) == ["open", "seen", "inside"]
    assert "enter" not in {one.name for one in infos[0].function_tools}
    assert "enter" in {one.name for one in infos[2].function_tools}


@pytest.mark.parametrize("confirm", EXPENSIVE)
@pytest.mark.parametrize("approved", [True, False])
async def test_the_openai_agents_sdk_is_interrupted_by_the_calls_that_need_a_yes(
    confirm: ConfirmCalls, approved: bool
) -> None:
    paid = list[int]()
    async with connect_mcp(shop(paid), name="shop") as connection:
        model = Turns(connection, [call("look", "c1"), call("pay", "c2", euros=500)])
        agent = OpenAiAgent[None](name="a", model=model, tools=openai_agents_tools(connection, confirm=confirm))
        asked = await Runner.run(agent, "go", run_config=QUIET)
        before, state = list(paid), asked.to_state()
        (state.approve if approved else state.reject)(asked.interruptions[0])
        result = await Runner.run(agent, state, run_config=QUIET)

    assert [one.name for one in asked.interruptions] == ["pay"]
    assert (before, paid) == ([], [500] if approved else [])
    assert result.final_output == "done"
    assert "seen" in model.read
    assert ("paid 500" in model.read) is approved


async def test_progress_in_the_openai_agents_sdk_is_told_with_the_context_of_its_call() -> None:
    seen: list[Any] = []

    def tell(progress: Progress, context: Any) -> None:
        seen.append((context.tool_call_id, context.context, progress.progress, progress.total, progress.message))

    async with connect_mcp(shop([]), name="shop") as connection:
        model = Turns(connection, [call("look", "c1")])
        tools = openai_agents_tools(connection, on_progress=tell)
        await Runner.run(OpenAiAgent(name="a", model=model, tools=tools), "go", context="mine", run_config=QUIET)

    assert seen == [("c1", "mine", *one) for one in PROGRESS]


@pytest.mark.slow
@pytest.mark.parametrize("live", [True, False])
async def test_a_tool_that_a_server_adds_is_offered_at_the_next_turn_of_a_live_list_of_the_sdk(live: bool) -> None:
    async with connect_mcp(shop([]), name="shop") as connection:
        turns = [[call(name, f"c{n}")] for n, name in enumerate(("open_gate", "look", "enter" if live else "look"))]
        model = Turns(connection, *turns)
        tools = openai_agents_tools(connection, live=live)
        await Runner.run(OpenAiAgent[None](name="a", model=model, tools=tools), "go", run_config=QUIET)

    assert "enter" not in model.offered[0]
    assert ("enter" in model.offered[2]) is live
    assert model.read == ["open", "seen", "inside" if live else "seen"]


async def test_a_live_list_keeps_what_others_put_into_it_and_tools_that_did_not_change() -> None:
    def one() -> str:
        """One."""
        return "1"

    def two() -> str:
        """Two."""
        return "2"

    registry = ToolRegistry([one])
    tools = openai_agents_tools(registry, live=True)
    (first,) = tools
    (other,) = openai_agents_tools([two])
    tools.append(other)
    registry.add(two)

    assert next(iter(tools)) is first
    assert [known.name for known in tools] == ["one", "two", "two"]
    registry.remove("one")
    assert [known.name for known in tools] == ["two", "two"]
    assert [*tools][-1] is other


def graph_of(turns: list[AIMessage], tools: list[Any], *, saved: bool = True) -> Any:
    async def model(state: MessagesState) -> dict[str, Any]:
        number = sum(isinstance(one, AIMessage) for one in state["messages"])
        return {"messages": [turns[number] if number < len(turns) else AIMessage("done")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver() if saved else None)


def made(name: str, call_id: str, **args: Any) -> Any:
    return {"type": "tool_call", "name": name, "args": args, "id": call_id}


THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}


@pytest.mark.parametrize("confirm", EXPENSIVE)
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"decisions": [{"type": "approve"}]}, "paid 500"),
        (True, "paid 500"),
        ({"decisions": [{"type": "reject", "message": "too dear"}]}, "was not approved: too dear"),
        ("yes", "was not approved"),
    ],
)
async def test_langgraph_is_interrupted_by_a_call_that_needs_a_yes(
    confirm: ConfirmCalls, answer: Any, told: str
) -> None:
    paid = list[int]()
    async with connect_mcp(shop(paid), name="shop") as connection:
        tools = langchain_tools(connection, confirm=confirm)
        graph = graph_of([AIMessage("", tool_calls=[made("pay", "c1", euros=500)])], tools)
        asked = await graph.ainvoke(GO, THREAD)
        before = list(paid)
        result = await graph.ainvoke(Command(resume=answer), THREAD)

    (interrupt,) = asked["__interrupt__"]
    assert interrupt.value["action_requests"] == [{"name": "pay", "args": {"euros": 500}, "description": "Pay."}]
    assert interrupt.value["review_configs"] == [{"action_name": "pay", "allowed_decisions": ["approve", "reject"]}]
    assert interrupt.value["tool_call_id"] == "c1"
    (message,) = [one for one in result["messages"] if isinstance(one, ToolMessage)]
    assert told in str(message.content)  # pyright: ignore[reportUnknownMemberType]
    assert (before, paid) == ([], [500] if told == "paid 500" else [])


async def test_a_langchain_tool_that_needs_a_yes_says_so_and_is_not_called_where_nobody_can_be_asked() -> None:
    paid = list[int]()
    async with connect_mcp(shop(paid), name="shop") as connection:
        tools = {one.name: one for one in langchain_tools(connection, confirm="destructive")}
        with pytest.raises(RuntimeError, match=r"tool 'pay' needs a person's approval.*checkpointer"):
            await tools["pay"].ainvoke({"euros": 5})
        looked = await tools["look"].ainvoke({})

    asks = {name: (one.metadata or {}).get("requires_approval", False) for name, one in tools.items()}
    assert asks == {"look": False, "pay": True, "open_gate": False}
    assert (looked, paid) == ("seen", [])


async def test_progress_is_in_the_custom_stream_of_langgraph() -> None:
    async with connect_mcp(shop([]), name="shop") as connection:
        graph = graph_of([AIMessage("", tool_calls=[made("look", "c1")])], langchain_tools(connection), saved=False)
        seen = [one async for one in graph.astream(GO, stream_mode="custom")]

    assert [(one["progress"], one["total"], one["message"]) for one in seen] == PROGRESS
    assert {(one["type"], one["tool"], one["tool_call_id"]) for one in seen} == {("toolweave_progress", "look", "c1")}


async def test_a_tool_that_a_server_adds_is_in_the_next_definitions_and_lists() -> None:
    async with connect_mcp(shop([]), name="shop") as connection:
        tools = AnthropicTools(connection)
        before = {one["name"] for one in tools.definitions()}
        await connection.call_tool("open_gate")
        await until_offered(connection, "enter")
        after = {one["name"] for one in tools.definitions()}
        listed = {one.name for one in langchain_tools(connection)}

    assert after - before == {"enter"}
    assert listed == after


async def test_instructions_are_those_of_the_servers_that_have_a_tool_in_the_toolset() -> None:
    async with connect_mcp(shop([]), name="shop") as connection, connect_mcp(shop([]), name="other") as other:
        both = combined(prefixed(connection, "a"), prefixed(other, "b"))
        told = server_instructions(both)
        one = server_instructions(filtered(both, predicate=lambda spec: spec.server == "shop"))
        none = server_instructions([quiet])

    assert told.startswith(QUOTED)
    assert "other:\n> Look before you pay." in told
    assert one == QUOTED
    assert none == ""


def quiet() -> str:
    """Answer."""
    return "x"


async def test_instructions_of_a_hub_are_those_of_its_servers() -> None:
    numbers = {"command": sys.executable, "args": ["-m", "toolweave.cli.demo.numbers"]}
    async with connect_mcp_servers({"mcpServers": {"numbers": numbers, "echo": echo()}}) as hub:
        told = [server_instructions(hub), server_instructions([hub, quiet])]

    assert told == ["numbers:\n> Arithmetic for those who can wait.\n\necho:\n> Use echo to test."] * 2


def test_a_policy_that_does_not_exist_is_refused() -> None:
    wrong: Any = "sometimes"
    for export in (pydantic_ai_toolset, openai_agents_tools, langchain_tools):
        with pytest.raises(ValueError, match="confirm= is"):
            export([quiet], confirm=wrong)


async def test_calls_that_the_config_wants_approved_are_deferred_by_default_in_every_framework() -> None:
    paid = list[int]()
    model, _ = answering([ToolCallPart("look", {}, "c1"), ToolCallPart("pay", {"euros": 500}, "c2")])
    entry = ServerConfig(name="shop", server=shop(paid), confirm={"pay": "always"}, tool_prefix="")
    async with connect_mcp(entry) as connection:
        agent = Agent(model, toolsets=[pydantic_ai_toolset(connection)], output_type=[str, DeferredToolRequests])
        asked = await agent.run("go")
        tools = {one.name: one for one in langchain_tools(connection)}

        assert isinstance(asked.output, DeferredToolRequests)
        assert [one.tool_name for one in asked.output.approvals] == ["pay"]
        assert paid == []
        assert [name for name, one in tools.items() if (one.metadata or {}).get("requires_approval")] == ["pay"]
        exported: list[Any] = list(openai_agents_tools(connection))
        assert all(callable(one.needs_approval) for one in exported)
