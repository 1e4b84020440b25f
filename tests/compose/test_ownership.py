"""Who opens closes: every way of using tools, with every way in which they were opened."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import pytest

from toolweave import (
    Agent,
    AgentRegistry,
    Hub,
    McpConnection,
    McpTools,
    ScriptedModel,
    connect_mcp,
    connect_mcp_servers,
    create_mcp_server,
    discover_mcp_tools,
    generate,
)
from toolweave.compose import hub_server, mcp_component
from toolweave.connect import ConnectionState
from toolweave.export import plain_functions
from toolweave.testing import MemoryServer
from toolweave.tools import (
    CallContext,
    ToolCall,
    Toolset,
    combined,
    enhanced,
    filtered,
    prefixed,
    renamed,
    traced,
    transformed,
)

pytestmark = pytest.mark.anyio

Lent: TypeAlias = McpConnection | Hub
Use: TypeAlias = Callable[[Lent], Awaitable[None]]
"""Uses what it is given twice, and lets it go."""


def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


def server() -> MemoryServer:
    return MemoryServer([greet], name="memory")


def scripted() -> ScriptedModel:
    return ScriptedModel(["said"] * 4)


async def entered(toolset: Toolset) -> None:
    for _ in range(2):
        async with toolset:
            (spec,) = (spec for spec in toolset.snapshot() if spec.original_name == "greet")
            result = await toolset.call(ToolCall(name=spec.name, arguments={"name": "Ada"}), CallContext())
            assert result.text == "hello Ada"


# the ways of using tools


async def agent_tools(lent: Lent) -> None:
    agent = Agent(scripted(), tools=[lent])
    for _ in range(2):
        assert (await agent.send("hi")).error is None


async def agent_entered(lent: Lent) -> None:
    for _ in range(2):
        async with Agent(scripted(), tools=lent) as agent:
            assert (await agent.send("hi")).error is None


async def agent_add_mcp(lent: Lent) -> None:
    agent = Agent(scripted())
    agent.add_mcp(lent)
    for _ in range(2):
        await agent.send("hi")


async def agent_mcp_servers(lent: Lent) -> None:
    agent = Agent(scripted(), mcp_servers={"x": lent})
    for _ in range(2):
        await agent.send("hi")
        assert agent.errors == {}


async def agent_send_tools(lent: Lent) -> None:
    agent = Agent(scripted())
    for _ in range(2):
        await agent.send("hi", tools=[lent])


async def generated(lent: Lent) -> None:
    for _ in range(2):
        await generate(scripted(), "hi", tools=lent)


async def agent_registry(lent: Lent) -> None:
    agents = AgentRegistry(scripted(), tools=[lent])
    agent = agents.register("helper", tool_names=["greet", "memory_greet"])
    for _ in range(2):
        await agent.send("hi")


async def called_twice(served: Any) -> None:
    for _ in range(2):
        async with connect_mcp(served) as client:
            (tool,) = await client.list_tools()
            assert (await tool.execute({"name": "Ada"})).text == "hello Ada"


async def mcp_server(lent: Lent) -> None:
    await called_twice(create_mcp_server(name="s", version="1", tools=lent))


async def mcp_server_beside_functions(lent: Lent) -> None:
    served = create_mcp_server(name="s", version="1", tools=[lent], include=["greet"])
    await called_twice(served)


async def gateway(lent: Lent) -> None:
    if isinstance(lent, Hub):
        await called_twice(hub_server(lent, name="s", version="1"))
    else:
        await entered(lent)


async def component(lent: Lent) -> None:
    for make in (lambda: McpTools("memory", client=lent), mcp_component("memory", client=lent, all=True)):
        made = make()
        agent = Agent(scripted(), tools=[made])
        for _ in range(2):
            await agent.send("hi")


async def discovered(lent: Lent) -> None:
    for _ in range(2):
        async with discover_mcp_tools({"server": server()}, client=lent) as found:
            assert found.borrowed
            await entered(found.toolset)
    held = lent.clients["memory"] if isinstance(lent, Hub) else lent
    await agent_tools(held)  # what a hub holds is the hub's


async def functions(lent: Lent) -> None:
    for _ in range(2):
        for function in plain_functions(lent):
            assert await function(name="Ada") == "hello Ada"


def wrapped(wrap: Callable[[Toolset], Toolset]) -> Use:
    async def use(lent: Lent) -> None:
        await entered(wrap(lent))

    return use


async def chained(lent: Lent) -> None:
    await entered(lent.filtered(["greet"]).prefixed("p").renamed({"p_greet": "hi"}).traced())


USES: dict[str, Use] = {
    "Agent(tools=)": agent_tools,
    "async with Agent(tools=)": agent_entered,
    "add_mcp": agent_add_mcp,
    "mcp_servers=": agent_mcp_servers,
    "agent.send(tools=)": agent_send_tools,
    "generate(tools=)": generated,
    "AgentRegistry(tools=)": agent_registry,
    "create_mcp_server(tools=)": mcp_server,
    "create_mcp_server(tools=[...])": mcp_server_beside_functions,
    "hub_server": gateway,
    "McpTools(client=)": component,
    "discover_mcp_tools(client=)": discovered,
    "plain_functions": functions,
    "itself": entered,
    "prefixed": wrapped(lambda lent: prefixed(lent, "p")),
    "renamed": wrapped(lambda lent: renamed(lent, {})),
    "filtered": wrapped(lambda lent: filtered(lent, ["greet"])),
    "enhanced": wrapped(lambda lent: enhanced(lent, lambda spec: spec.input_schema)),
    "transformed": wrapped(lambda lent: transformed(lent, lambda result, spec: result)),
    "traced": wrapped(traced),
    "combined": wrapped(combined),
    "a chain": chained,
}


# the ways of opening


@asynccontextmanager
async def awaited() -> AsyncGenerator[Lent]:
    connection = await connect_mcp(server())
    yield connection
    await connection.close()


@asynccontextmanager
async def awaited_lazily() -> AsyncGenerator[Lent]:
    connection = await connect_mcp(server(), lazy=True)
    await connection.list_tools()
    yield connection
    await connection.close()


@asynccontextmanager
async def with_block() -> AsyncGenerator[Lent]:
    async with connect_mcp(server()) as connection:
        yield connection


@asynccontextmanager
async def hub_awaited() -> AsyncGenerator[Lent]:
    hub = await connect_mcp_servers({"memory": {"server": server()}})
    yield hub
    await hub.close()


@asynccontextmanager
async def hub_with_block() -> AsyncGenerator[Lent]:
    async with connect_mcp_servers({"memory": {"server": server()}}) as hub:
        yield hub


@asynccontextmanager
async def hub_opened() -> AsyncGenerator[Lent]:
    hub = Hub({"memory": {"server": server()}})
    await hub.open()
    yield hub
    await hub.close()


OPENINGS = (awaited, awaited_lazily, with_block, hub_awaited, hub_with_block, hub_opened)


def states(lent: Lent) -> list[ConnectionState]:
    return [lent.state] if isinstance(lent, McpConnection) else list(lent.states().values())


@pytest.mark.requirement("R15", "R17", "R21", "R22")
@pytest.mark.parametrize("opening", OPENINGS, ids=lambda opening: opening.__name__)
@pytest.mark.parametrize("use", USES)
async def test_whoever_borrows_never_closes(use: str, opening: Callable[[], Any]) -> None:
    with anyio.fail_after(60):
        async with opening() as lent:
            await USES[use](lent)
            assert states(lent) == [ConnectionState.READY]
            (tool,) = lent.tools if isinstance(lent, Hub) else await lent.list_tools()
            assert (await tool.execute({"name": "Bob"})).text == "hello Bob"
        assert states(lent) in ([], [ConnectionState.CLOSED])  # a hub that is closed holds none


async def once_in_an_agent(lent: Lent) -> None:
    await Agent(scripted(), tools=[lent]).send("hi")


async def once_generated(lent: Lent) -> None:
    await generate(scripted(), "hi", tools=lent)


async def once_registered(lent: Lent) -> None:
    await AgentRegistry(scripted(), tools=lent).register("helper", tool_names=["memory:greet"]).send("hi")


async def once_served(lent: Lent) -> None:
    async with connect_mcp(create_mcp_server(name="s", version="1", tools=lent)) as client:
        assert (await client.call_tool("memory_greet", {"name": "Ada"})).text == "hello Ada"


async def once_wrapped(lent: Lent) -> None:
    async with filtered(prefixed(combined(lent), "p"), ["greet"]) as toolset:
        assert len(toolset.snapshot()) == 1


async def once_chained(lent: Lent) -> None:
    async with lent.prefixed("p").filtered(["greet"]) as toolset:
        assert len(toolset.tools) == 1


@pytest.mark.requirement("R21")
@pytest.mark.parametrize(
    "use", [once_in_an_agent, once_generated, once_registered, once_served, once_wrapped, once_chained]
)
async def test_what_is_not_open_is_opened_and_closed_by_whoever_uses_it(use: Use) -> None:
    with anyio.fail_after(60):
        hub = Hub({"memory": {"server": server()}})
        opened: list[McpConnection] = []
        hub.on("state", lambda connection, change: opened.append(connection))
        await use(hub)
        assert opened
        assert {connection.state for connection in opened} == {ConnectionState.CLOSED}


@pytest.mark.requirement("R15")
async def test_what_is_not_awaited_yet_is_refused_with_what_to_do() -> None:
    def refused(make: Callable[[Any], object]) -> None:
        with pytest.raises(TypeError, match="await"):
            make(connect_mcp(server()))

    refused(lambda lent: AgentRegistry(scripted(), tools=[lent]))
    refused(lambda lent: create_mcp_server(name="s", version="1", tools=lent))
