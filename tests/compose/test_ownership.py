"""Who opens closes: every way of using tools, with every way in which they were opened."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.to_thread
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from toolweave import (
    Agent,
    AgentRegistry,
    ConnectionClosedError,
    ErrorKind,
    Hub,
    McpConnection,
    McpTools,
    Run,
    ScriptedModel,
    ServerConfig,
    connect_mcp,
    connect_mcp_servers,
    create_mcp_server,
    discover_mcp_tools,
    generate,
)
from toolweave.compose import hub_server, mcp_component
from toolweave.config import server_config
from toolweave.connect import ConnectionState
from toolweave.errors import ServerError
from toolweave.export import plain_functions
from toolweave.gateway import create_gateway
from toolweave.models import ModelRequest, ToolMessage, tool_call
from toolweave.testing import MemoryServer
from toolweave.tools import (
    CallContext,
    ToolCall,
    Toolset,
    as_toolset,
    combined,
    enhanced,
    filtered,
    prefixed,
    renamed,
    traced,
    transformed,
)

TEST_SECONDS = 60

Lent: TypeAlias = McpConnection | Hub
Use: TypeAlias = Callable[[Lent], Awaitable[None]]
"""Uses what it is given twice, and lets it go."""


def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


def farewell(name: str) -> str:
    """Say goodbye to somebody."""
    return f"goodbye {name}"


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
    hub = Hub({"memory": {"server": server()}})
    opened: list[McpConnection] = []
    hub.on("state", lambda connection, change: opened.append(connection))
    await use(hub)
    assert opened
    assert {connection.state for connection in opened} == {ConnectionState.CLOSED}


# what nobody has opened: each use opens it, and the next use opens it again


def calling() -> ScriptedModel:
    """Return a model that calls the greeting that it is offered, and then repeats the result."""

    def turn(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return last.outcomes[0].result.text
        offered = [spec.name for spec in request.tools if spec.name.endswith(("greet", "hi"))]
        return tool_call(offered[0], {"name": "Ada"}) if offered else "no tools"

    return ScriptedModel(turn)


async def greeted(run: Run) -> None:
    assert (await run).text == "hello Ada"


async def sent(agent: Agent) -> None:
    for _ in range(3):
        await greeted(agent.send("hi"))
        assert agent.errors == {}


async def in_one_agent(unopened: Any) -> None:
    await sent(Agent(calling(), tools=[unopened]))


async def in_an_agent_that_is_entered(unopened: Any) -> None:
    agent = Agent(calling(), tools=unopened)
    for _ in range(3):
        async with agent:
            await greeted(agent.send("hi"))


async def in_three_agents(unopened: Any) -> None:
    for _ in range(3):
        await greeted(Agent(calling(), tools=[unopened]).send("hi"))


async def in_agents_at_the_same_time(unopened: Any) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(in_one_agent, unopened)


async def in_a_blocking_agent(unopened: Any) -> None:
    agent = Agent(calling(), tools=[unopened])
    for _ in range(3):
        assert (await anyio.to_thread.run_sync(agent.run_sync, "hi")).text == "hello Ada"
    for _ in range(3):  # and in event loops of their own
        await anyio.to_thread.run_sync(lambda: asyncio.run(agent.send("hi").outcome()))
    assert agent.errors == {}


async def added(unopened: Any) -> None:
    agent = Agent(calling())
    agent.add_mcp(unopened)
    await sent(agent)


async def among_servers(unopened: Any) -> None:
    await sent(Agent(calling(), mcp_servers={"x": unopened}))


async def in_each_run(unopened: Any) -> None:
    agent = Agent(calling())
    for _ in range(3):
        await greeted(agent.send("hi", tools=[unopened]))


async def generated_each_time(unopened: Any) -> None:
    for _ in range(3):
        await greeted(generate(calling(), "hi", tools=unopened))


async def in_a_registry(unopened: Any) -> None:
    for shared in (unopened, [unopened]):
        agents = AgentRegistry(calling(), tools=shared)
        await sent(agents.register("helper", tool_names=["greet", "memory_greet"]))


async def called_three_times(served: Any) -> None:
    for _ in range(3):
        async with connect_mcp(served) as client:
            (tool,) = await client.list_tools()
            assert (await tool.execute({"name": "Ada"})).text == "hello Ada"


async def in_a_server(unopened: Any) -> None:
    for tools in (unopened, [unopened]):
        await called_three_times(create_mcp_server(name="s", version="1", tools=tools))


async def in_an_agent_that_is_served(unopened: Any) -> None:
    agent = Agent(calling(), name="helper", tools=[unopened])
    served = create_mcp_server(name="s", version="1", agents=[agent])
    for _ in range(3):
        async with connect_mcp(served) as client:
            assert (await client.call_tool("agent_helper", {"message": "hi"})).text == "hello Ada"


async def in_a_mounted_server(unopened: Any) -> None:
    outer = create_mcp_server(name="outer", version="1")
    outer.mount(create_mcp_server(name="inner", version="1", tools=[unopened]), "inner")
    await called_three_times(outer)


async def as_a_toolset(unopened: Any) -> None:
    toolset = as_toolset(unopened)
    for _ in range(3):
        async with toolset:
            (spec,) = toolset.snapshot()
            result = await toolset.call(ToolCall(name=spec.name, arguments={"name": "Ada"}), CallContext())
            assert result.text == "hello Ada"


async def in_wrappers(unopened: Any) -> None:
    wrapped = prefixed(as_toolset(unopened), "p")
    await in_one_agent(wrapped)
    await in_a_server(wrapped)
    wraps: tuple[Callable[[Toolset], Toolset], ...] = (
        lambda inner: renamed(inner, {"greet": "hi"}),
        lambda inner: filtered(inner, ["greet", "p_memory_greet"]),
        lambda inner: enhanced(inner, lambda spec: spec.input_schema),
        lambda inner: transformed(inner, lambda result, spec: result),
        traced,
        combined,
    )
    for wrap in wraps:
        await in_one_agent(wrap(as_toolset(unopened)))


PLACES: tuple[Callable[[Any], Awaitable[None]], ...] = (
    in_one_agent,
    in_an_agent_that_is_entered,
    in_three_agents,
    in_agents_at_the_same_time,
    in_a_blocking_agent,
    added,
    among_servers,
    in_each_run,
    generated_each_time,
    in_a_registry,
    in_a_server,
    in_an_agent_that_is_served,
    in_a_mounted_server,
    as_a_toolset,
)


def named(place: Callable[[Any], Awaitable[None]]) -> str:
    return place.__name__


def config() -> ServerConfig:
    return server_config(server(), name="memory")


UNOPENED: dict[str, Callable[[], Any]] = {
    "a connection": lambda: McpConnection(config()),
    "a hub": lambda: Hub({"memory": {"server": server()}}),
    "a hub with a prefix": lambda: (
        Hub({"memory": {"server": server()}}).prefixed("p").renamed({"p_memory_greet": "greet"})
    ),
    "connect_mcp": lambda: connect_mcp(server()),
    "connect_mcp_servers": lambda: connect_mcp_servers({"memory": {"server": server()}}),
    "discover_mcp_tools": lambda: discover_mcp_tools({"server": server()}),
    "a component": lambda: McpTools("memory", {"server": server()}),
    "a component on a connection": lambda: McpTools("memory", client=McpConnection(config())),
    "a component on a hub": lambda: McpTools("memory", client=Hub({"memory": {"server": server()}})),
}


@pytest.mark.requirement("R17", "R21")
@pytest.mark.parametrize("place", [*PLACES, pytest.param(in_wrappers, marks=pytest.mark.slow)], ids=named)
@pytest.mark.parametrize("unopened", UNOPENED)
async def test_what_was_opened_once_can_be_opened_again(unopened: str, place: Callable[[Any], Awaitable[None]]) -> None:
    await place(UNOPENED[unopened]())


SERVED: dict[str, Callable[[], Any]] = {
    "a server of a connection": lambda: create_mcp_server("s", tools=McpConnection(config())),
    "a server of a hub": lambda: create_mcp_server("s", tools=[Hub({"memory": {"server": server()}})]),
    "a gateway": lambda: create_gateway({"memory": {"server": server()}}),
    "a gateway before a hub": lambda: create_gateway(Hub({"memory": {"server": server()}})),
    "a gateway before connect_mcp_servers": lambda: create_gateway(
        connect_mcp_servers({"memory": {"server": server()}})
    ),
    "a gateway with slow calls": lambda: create_gateway({"memory": {"server": server()}}, slow_call_seconds=5),
    "hub_server": lambda: hub_server(Hub({"memory": {"server": server()}}), name="s", version="1"),
    "a server of a gateway": lambda: create_mcp_server(
        "s", tools=Hub({"gateway": {"server": create_gateway({"memory": {"server": server()}})}})
    ),
}


@pytest.mark.parametrize("served", SERVED)
async def test_a_server_of_what_is_not_open_can_be_connected_to_again(served: str) -> None:
    await called_three_times(SERVED[served]())


@pytest.mark.slow
@pytest.mark.parametrize("served", SERVED)
def test_an_app_can_be_started_again_in_a_process(served: str) -> None:
    app = SERVED[served]().asgi_app()
    below = SERVED[served]().asgi_app()
    outer = Starlette(routes=[Mount("/t", below)], lifespan=below.lifespan)
    for started, path in ((app, "/mcp"), (outer, "/t/mcp")):
        for _ in range(3):
            with TestClient(started, base_url="http://localhost") as client:
                assert tools_over_http(client, path) == 1


@pytest.mark.slow
@pytest.mark.parametrize("served", SERVED)
async def test_a_server_can_be_served_over_http_again(served: str) -> None:
    server = SERVED[served]()
    for _ in range(3):
        async with anyio.create_task_group() as tasks:
            urls = list[str]()
            started = anyio.Event()

            def note(url: str, urls: list[str] = urls, started: anyio.Event = started) -> None:
                urls.append(url)
                started.set()

            tasks.start_soon(partial(server.serve_http, port=0, on_started=note))
            await started.wait()
            async with connect_mcp(f"{urls[0]}/mcp") as client:
                (tool,) = await client.list_tools()
                assert (await tool.execute({"name": "Ada"})).text == "hello Ada"
            tasks.cancel_scope.cancel()


def tools_over_http(client: TestClient, path: str) -> int:
    accept = {"accept": "application/json, text/event-stream"}
    info = {"name": "t", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    begun = client.post(path, json=request(1, "initialize", params), headers=accept)
    session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    answer = client.post(path, json=request(2, "tools/list", {}), headers={**accept, **session})
    is_event = "data: " in answer.text
    text = answer.text.split("data: ", 1)[1].split("\n")[0] if is_event else answer.text
    return len(json.loads(text)["result"]["tools"])


def request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


@pytest.mark.parametrize("unopened", [name for name in UNOPENED if name in ("a connection", "a hub")])
async def test_only_close_is_final(unopened: str) -> None:
    one = UNOPENED[unopened]()
    for _ in range(2):
        await in_one_agent(one)
        await one.open()
        await in_one_agent(one)
        async with one:
            pass
        assert states(one) == [ConnectionState.READY]  # it was opened until it is closed
        if unopened == "a connection":
            break
        await one.disconnect("memory")
        await one.connect("memory", {"server": server()})
    await one.close()
    agent = Agent(calling(), tools=[one])
    assert (await agent.send("hi")).text != "hello Ada"
    assert "closed; connect again" in str(next(iter(agent.errors.values())))
    with pytest.raises(ConnectionClosedError):
        async with one:
            pass


async def test_a_lazy_connection_connects_in_each_of_its_lives() -> None:
    connection = McpConnection(config(), lazy=True)
    for _ in range(3):
        async with connection:
            assert connection.state is ConnectionState.IDLE
            assert (await connection.call_tool("greet", {"name": "Ada"})).text == "hello Ada"
        assert connection.state is ConnectionState.CLOSED


async def test_a_call_after_the_last_user_left_starts_nothing() -> None:
    connection = McpConnection(config())
    hub = Hub({"memory": {"server": server()}})
    async with connection, hub:
        tool = (await connection.list_tools())["greet"]
        assert (await tool.execute({"name": "Ada"})).text == "hello Ada"
    assert (await tool.execute({"name": "Ada"})).require_error().kind is ErrorKind.CLOSED
    assert connection.state is ConnectionState.CLOSED
    for use in (connection.list_tools, hub.list_tools, hub.refresh, lambda: hub.connect("x", {"server": server()})):
        with pytest.raises(ConnectionClosedError):
            await use()


async def test_a_hub_that_is_opened_again_has_the_servers_that_were_added() -> None:
    hub = Hub({"memory": {"server": server()}, "gone": {"server": server()}})
    async with hub:
        await hub.connect("added", {"server": server()})
        await hub.connect("removed", {"server": server()})
        await hub.replace("memory", {"server": MemoryServer([farewell], name="memory")})
        await hub.disconnect("removed")
    async with hub:
        names = [spec.name for spec in hub.snapshot()]
        assert names == ["memory_farewell", "gone_greet", "added_greet"]


@pytest.mark.slow
async def test_a_server_that_failed_is_tried_again_by_the_next_use(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    entry = {"command": sys.executable, "args": [str(program)]}
    connection = McpConnection(server_config(entry, name="memory"))
    hub = Hub({"memory": entry}, on_error="raise")
    for one in (connection, hub):
        with pytest.raises((ServerError, ExceptionGroup)):
            await one.open()
        with pytest.raises((ServerError, ExceptionGroup)):
            async with one:
                pass
    program.write_text(
        "from toolweave import create_mcp_server\ndef greet(name): return f'hello {name}'\n"
        "create_mcp_server('memory', tools=[greet]).run()\n"
    )
    for one in (connection, hub):
        await in_one_agent(one)
        assert states(one) in ([], [ConnectionState.CLOSED])


async def test_a_cancelled_user_does_not_take_it_from_the_next() -> None:
    connection = McpConnection(config())
    for _ in range(3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(entered_and_left, connection)
            tasks.start_soon(entered_and_left, connection)
            tasks.start_soon(cancelled_while_entering, connection)
    await in_one_agent(connection)


async def entered_and_left(connection: McpConnection) -> None:
    async with connection:
        assert (await connection.call_tool("greet", {"name": "Ada"})).text == "hello Ada"


async def cancelled_while_entering(connection: McpConnection) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with connection:
            pass


@pytest.mark.requirement("R15")
async def test_a_borrower_refuses_what_is_not_awaited_yet_with_what_to_do() -> None:
    for unopened in (connect_mcp(server()), [connect_mcp(server())]):
        with pytest.raises(TypeError, match="await"):
            plain_functions(unopened)
