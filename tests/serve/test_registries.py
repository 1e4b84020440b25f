"""What a server offers of registries, agents and lists of names that are given to it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from toolweave import (
    Agent,
    AgentRegistry,
    McpServer,
    ScriptedModel,
    ToolRegistry,
    connect_mcp,
    create_mcp_server,
    tool,
)
from toolweave.errors import DuplicateToolError, SchemaError
from toolweave.testing import MemoryServer


@tool
def a() -> str:
    return "a"


@tool
def b() -> str:
    return "b"


@tool
def c() -> str:
    return "c"


@tool
def d() -> str:
    return "d"


def agent(name: str = "general") -> Agent:
    return Agent(ScriptedModel(["said"] * 4), name=name)


async def offered(server: McpServer | MemoryServer) -> tuple[str, ...]:
    with anyio.fail_after(60):
        async with connect_mcp(server) as client:
            return (await client.list_tools()).names


@pytest.mark.slow
@pytest.mark.requirement("R83")
async def test_a_registry_is_followed_and_never_written_to() -> None:
    registry = ToolRegistry([a, b])
    servers = [create_mcp_server(name=name, version="1", tools=registry, agents=[agent()]) for name in ("s", "t")]
    servers[0].tool(c)
    with pytest.raises(DuplicateToolError):
        servers[0].tool(tool(d, name="a"))
    assert registry.list().names == ("a", "b")
    assert await offered(servers[0]) == ("c", "a", "b", "agent_general")
    assert await offered(servers[1]) == ("a", "b", "agent_general")
    with anyio.fail_after(60):
        async with connect_mcp(servers[1]) as client:
            registry.remove("a")
            registry.add(d)
            assert (await client.call_tool("d")).text == "d"
    assert registry.list().names == ("b", "d")


@pytest.mark.requirement("R83")
async def test_a_server_in_memory_does_not_write_to_a_registry_either() -> None:
    registry = ToolRegistry([a])
    server = MemoryServer(registry)
    server.tool(c)
    assert registry.list().names == ("a",)
    assert set(await offered(server)) == {"a", "c"}


@pytest.mark.requirement("R33", "R85")
async def test_names_of_tools_say_nothing_about_agents() -> None:
    server = create_mcp_server(name="u", version="1", tools=[a, b], include=["a"], agents=[agent()])
    assert await offered(server) == ("a", "agent_general")
    async with connect_mcp(server) as client:
        assert (await client.call_tool("agent_general", {"message": "hi"})).text == "said"
    assert await offered(create_mcp_server(name="u", version="1", tools=[a, b], include=["a"])) == ("a",)


@pytest.mark.requirement("R33")
async def test_a_name_that_no_tool_has_is_an_error_or_where_it_may_come_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ValueError, match="include: no tool 'aa'; did you mean 'a'"):
        create_mcp_server(name="u", version="1", tools=[a, b], include=["aa"])
    async with connect_mcp(MemoryServer([a], name="memory")) as connection:
        create_mcp_server(name="u", version="1", tools=connection, include=["a"])
        assert caplog.messages == []
        create_mcp_server(name="u", version="1", tools=connection, include=["typo"])
    assert ["'typo'" in message for message in caplog.messages] == [True]


@pytest.mark.requirement("R33", "R82", "R85")
async def test_a_registry_of_agents_offers_all_of_them_or_the_one_that_is_taken() -> None:
    agents = AgentRegistry(ScriptedModel(["said"] * 4), tools=[a])
    for name in ("one", "two"):
        agents.register(name, tool_names=["a"])
    assert await offered(create_mcp_server(name="u", version="1", agents=agents)) == ("agent_one", "agent_two")
    assert await offered(create_mcp_server(name="u", version="1", agents=[agents.get("two")])) == ("agent_two",)
    with pytest.raises(TypeError, match=r"AgentRegistry's get\('two'\)"):
        create_mcp_server(name="u", version="1", agents="two")  # pyright: ignore[reportArgumentType]


@pytest.mark.requirement("R97")
async def test_a_handler_beside_a_schema_is_refused_when_it_takes_one_of_the_properties() -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    server = create_mcp_server(name="u", version="1")

    def search(query: str) -> str:
        return query

    with pytest.raises(SchemaError, match="takes all arguments as one mapping"):
        server.tool(input_schema=schema)(search)

    @server.tool(name="find", input_schema=schema)
    def find(query: dict[str, str]) -> str:
        return query["query"]

    @server.tool(name="look", input_schema=schema)
    def look(arguments: Any) -> str:
        return arguments["query"]

    async with connect_mcp(server) as client:
        for name in ("find", "look"):
            assert (await client.call_tool(name, {"query": "x"})).text == "x"


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("name", ["agent_two", "two"])
@pytest.mark.parametrize("tools", [[], [a, b]], ids=["no tools", "tools"])
async def test_an_agent_that_is_excluded_is_not_offered(name: str, tools: list[Any]) -> None:
    agents = AgentRegistry(ScriptedModel(["said"]), tools=[a])
    for one in ("one", "two"):
        agents.register(one)

    names = await offered(create_mcp_server(name="u", version="1", tools=tools, agents=agents, exclude=[name]))

    assert names == (*(one.name for one in tools), "agent_one")
    everything = create_mcp_server(name="u", version="1", tools=tools, agents=agents, exclude="*")
    assert await offered(everything) == ()


@pytest.mark.requirement("R33")
async def test_an_excluded_name_is_that_of_a_tool_too_when_an_agent_has_it() -> None:
    server = create_mcp_server(name="u", version="1", tools=[a, b], agents=[agent("a")], exclude=["a"])
    assert await offered(server) == ("b",)


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("tools", [[], [a, b]], ids=["no tools", "tools"])
def test_a_name_to_exclude_that_neither_a_tool_nor_an_agent_has_is_an_error(tools: list[Any]) -> None:
    with pytest.raises(ValueError, match="exclude: no tool 'agent_generall'; did you mean 'agent_general'"):
        create_mcp_server(name="u", version="1", tools=tools, agents=[agent()], exclude=["agent_generall"])


@pytest.mark.requirement("R33")
async def test_a_misspelled_name_to_exclude_is_an_error_or_where_it_may_come_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ValueError, match="exclude: no tool 'aa'; did you mean 'a'"):
        create_mcp_server(name="u", version="1", tools=[a, b], exclude=["aa"])
    async with connect_mcp(MemoryServer([a], name="memory")) as connection:
        create_mcp_server(name="u", version="1", tools=connection, exclude=["typo"])
    assert ["exclude: no tool 'typo'" in message for message in caplog.messages] == [True]
