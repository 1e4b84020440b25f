"""Agents that name their tools: the names are wired to what is offered, whenever it is."""

from __future__ import annotations

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, absent, next_change, opened
from toolweave import (
    Agent,
    AgentRegistry,
    McpTools,
    ToolRegistry,
    connect_mcp,
    connect_mcp_servers,
    create_mcp_server,
    tool,
)
from toolweave.models import ScriptedModel, ToolMessage, tool_call


def get_weather(city: str) -> str:
    """Say what the weather is like."""
    return f"rain in {city}"


def shown(model: ScriptedModel, request: int = 0) -> list[str]:
    """Return the tools that the model saw."""
    return [one.name for one in model.requests[request].tools]


@pytest.mark.requirement("R82", "D27", "R37", "R40")
async def test_an_agent_has_exactly_the_tools_that_it_names_native_ones_and_those_of_servers_mixed() -> None:
    model = ScriptedModel([[tool_call("get_weather", {"city": "Oslo"}), tool_call("github_createIssue")], "done"])
    tools = ToolRegistry([get_weather])
    github = ToolServer("github", ["createIssue", "listPRs", "deleteRepo"])
    async with opened({"github": github.config()}) as hub:
        agents = AgentRegistry(model, tools=[tools, hub])
        made = agents.register("dev-assistant", tool_names=["get_weather", "github:createIssue", "github/listPRs"])
        assert agents.get("dev-assistant") is made
        assert [agent.name for agent in agents.list()] == ["dev-assistant"]

        result = await agents.get("dev-assistant").send("Open an issue: it rains in Oslo.")

    assert shown(model) == ["get_weather", "github_createIssue", "github_listPRs"]
    answered = result.messages[2]
    assert isinstance(answered, ToolMessage)
    assert [one.result.text for one in answered.outcomes] == ["rain in Oslo", "github|createIssue"]


@pytest.mark.requirement("D27")
async def test_a_name_that_nobody_offers_yet_is_said_and_wired_as_soon_as_somebody_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    github = ToolServer("github", ["createIssue"])
    model = ScriptedModel(lambda _: "done")
    async with opened({"github": github.config()}) as hub:
        agents = AgentRegistry(model, tools=hub)
        agents.register("helper", tool_names=["github:createIsue", "github:listPRs", "github:createIssue"])
        assert "agent 'helper': no tool 'github:createIsue'; did you mean 'github_createIssue'? (yet)" in caplog.text
        assert agents.missing("helper") == ("github:createIsue", "github:listPRs")
        await agents.get("helper").send("one")
        async with next_change(hub, adds="github_listPRs"):
            await github.changed(["createIssue", "listPRs"])
        await agents.get("helper").send("two")
        assert agents.missing("helper") == ("github:createIsue",)
    assert (shown(model, 0), shown(model, 1)) == (["github_createIssue"], ["github_createIssue", "github_listPRs"])


@pytest.mark.requirement("R82")
async def test_a_hub_that_is_not_open_is_opened_by_the_agent_that_uses_it() -> None:
    hub_config = {"github": ToolServer("github", ["createIssue"]).config()}
    model = ScriptedModel([tool_call("github_createIssue"), "done"])
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers(hub_config) as hub:
            agents = AgentRegistry(model, tools=[hub, get_weather])
            assert (await agents.register("a", tool_names="github:createIssue").send("go")).text == "done"
            assert hub.clients["github"].state.value == "ready"
    assert shown(model) == ["github_createIssue"]


@pytest.mark.requirement("D24", "R82")
async def test_an_agent_without_tools_works_by_itself_and_behind_a_server() -> None:
    shared = McpTools("gone", absent())
    agents = AgentRegistry(ScriptedModel(lambda _: "I have no tools and answer all the same"), tools=shared)
    agents.register("general")

    with anyio.fail_after(BOUND):
        assert (await agents.get("general").send("hi")).text.startswith("I have no tools")
        assert agents.get("general").errors == {}  # what it does not use is not opened for it
        async with connect_mcp(create_mcp_server(name="s", version="1", agents=agents.list())) as client:
            answer = await client.call_tool("agent_general", {"message": "hi"})
    assert (answer.is_error, answer.text) == (False, "I have no tools and answer all the same")


@pytest.mark.requirement("C22", "R82")
def test_an_unknown_agent_is_an_error_and_so_is_a_second_one_of_a_name() -> None:
    agents = AgentRegistry(ScriptedModel([]))
    agents.register("general")

    with pytest.raises(KeyError, match="did you mean 'general'"):
        agents.get("genral")
    with pytest.raises(KeyError, match="no agent 'x'; there are general"):
        agents.missing("x")
    with pytest.raises(ValueError, match="registered already"):
        agents.register("general")


def test_an_agent_in_place_of_a_name_is_an_error_with_the_way_out() -> None:
    agents = AgentRegistry(ScriptedModel([]))
    made = agents.register("a")

    with pytest.raises(TypeError, match=r"register\('name', model=...\)"):
        agents.register(made)  # pyright: ignore[reportArgumentType]


@pytest.mark.requirement("R82")
async def test_an_agent_may_have_a_model_and_tools_of_its_own() -> None:
    @tool
    def own() -> str:
        """Its own."""
        return "own"

    shared, mine = ScriptedModel(["shared"]), ScriptedModel(["mine"])
    agents = AgentRegistry(shared, tools=[get_weather], system="be brief")
    agent = agents.register("special", tool_names=["get_weather"], model=mine, tools=[own])
    assert isinstance(agent, Agent)

    assert (await agent.send("hi")).text == "mine"
    assert sorted(shown(mine)) == ["get_weather", "own"]
    assert mine.requests[0].system == "be brief"
