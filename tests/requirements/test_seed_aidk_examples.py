"""The design "MCP Module Architecture" of AIDK: each of its six usage examples, with the engine as our agent."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, echo
from tests.servers.fixtures import http_server
from toolweave import (
    Agent,
    McpTools,
    TextContent,
    ToolRegistry,
    connect_mcp_servers,
    discover_mcp_tools,
    mcp_component,
)
from toolweave.config import merge_config, normalize_config
from toolweave.models import ScriptedModel, ToolMessage, UserMessage, tool_call

TOKEN = "s3ss10n-t0k3n-0123456789"
FILES = ("read_file", "write_file", "list_directory")


def calling(*names: str) -> ScriptedModel:
    """Return a model that calls these tools and is done."""
    return ScriptedModel([[tool_call(name) for name in names], "done"])


def answers(messages: Any) -> list[str]:
    """Return what the tools answered."""
    return [one.result.text for message in messages if isinstance(message, ToolMessage) for one in message.outcomes]


def shown(model: ScriptedModel) -> set[str]:
    """Return the tools that the model saw first."""
    return {one.name for one in model.requests[0].tools}


@pytest.mark.requirement("R76", "R78", "D7")
async def test_the_engine_with_servers_finds_their_tools_when_it_executes() -> None:
    command = echo()
    servers = {name: {"command": command["command"], "args": command["args"]} for name in ("filesystem", "postgres")}
    model = calling("filesystem_cwd", "postgres_cwd")
    engine = Agent(model, mcp_servers=servers)

    with anyio.fail_after(BOUND):
        messages = [UserMessage(content=(TextContent(text="List files in the current directory"),))]
        result = await engine.send(messages)

    assert result.text == "done"
    assert len(answers(result.messages)) == 2
    assert {"filesystem_echo", "postgres_echo"} <= shown(model)


@pytest.mark.requirement("R76", "R71", "R27", "R31", "R39")
async def test_an_element_with_two_servers_filters_the_one_and_signs_in_to_the_other() -> None:
    filesystem = ToolServer("filesystem", FILES)

    def my_agent(user_token: str, url: str) -> list[McpTools]:
        return [
            McpTools("filesystem", filesystem.config(), include=["read_file", "list_directory"], tool_prefix="fs_"),
            McpTools(
                "api",
                {"transport": "sse", "connection": {"url": url}},
                runtime_config={"auth": {"type": "bearer", "token": user_token}},
                exclude=["crash"],
            ),
        ]

    model = ScriptedModel([[tool_call("fs_read_file"), tool_call("echo", {"text": "in"})], "done"])
    with http_server("--require-bearer", TOKEN, "--era", "sse") as url, anyio.fail_after(BOUND):
        result = await Agent(model, on_error="raise").send("go", tools=my_agent(TOKEN, url))

    assert answers(result.messages) == ["filesystem|read_file", "in"]
    assert {"fs_read_file", "fs_list_directory", "echo"} <= shown(model)
    assert not {"write_file", "fs_write_file", "crash"} & shown(model)


@pytest.mark.requirement("R76", "R30", "R78")
async def test_tools_that_were_discovered_are_passed_to_one_execution() -> None:
    server = ToolServer("filesystem", FILES)
    model = calling("fs_write_file")

    with anyio.fail_after(BOUND):
        found = discover_mcp_tools(server.config(), include=["read_file", "write_file"], tool_prefix="fs_")
        async with found as tools:
            result = await Agent(model).send("go", tools=tools)

    assert answers(result.messages) == ["filesystem|write_file"]
    assert shown(model) == {"fs_read_file", "fs_write_file"}
    assert server.called == ["write_file"]


@pytest.mark.requirement("R76", "R19", "R32")
async def test_a_service_connects_and_the_tools_that_are_safe_are_registered_one_by_one() -> None:
    server = ToolServer("postgres", ["query", "delete_rows"])
    com = ToolRegistry()
    model = calling("query")

    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({}) as service:
            connection = await service.connect("postgres", server.config())
            for tool in [tool for tool in await connection.list_tools() if "delete" not in tool.name]:
                com.add(tool)
            result = await Agent(model, tools=com).send("go")

    assert answers(result.messages) == ["postgres|query"]
    assert shown(model) == {"query"}


@pytest.mark.requirement("R76", "R75", "C25")
async def test_a_component_made_by_the_factory_is_one_tool_in_any_agent() -> None:
    ReadFile = mcp_component("filesystem", ToolServer("filesystem", FILES).config(), tool_name="read_file")

    for _ in range(2):
        model = calling("read_file")
        with anyio.fail_after(BOUND):
            result = await Agent(model, tools=[ReadFile()]).send("review")
        assert answers(result.messages) == ["filesystem|read_file"]
        assert shown(model) == {"read_file"}


@pytest.mark.requirement("R76", "R21")
async def test_several_components_share_one_client_that_outlives_them() -> None:
    postgres, filesystem = ToolServer("postgres", ["query"]), ToolServer("filesystem", FILES)
    model = calling("query", "read_file")

    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({}) as shared:
            tools = [McpTools(server.name, server.config(), client=shared) for server in (postgres, filesystem)]
            result = await Agent(model, tools=tools).send("go")
            assert [client.state.value for client in shared.clients.values()] == ["ready", "ready"]

    assert answers(result.messages) == ["postgres|query", "filesystem|read_file"]


@pytest.mark.requirement("R73", "R6", "R7")
async def test_configs_in_their_full_form_are_what_a_component_takes() -> None:
    command = echo()
    cursor = {"command": command["command"], "args": command["args"]}
    full = merge_config(normalize_config("echo", cursor), {"connection": {"env": {"WHO": "ada"}}})

    with anyio.fail_after(BOUND):
        async with McpTools("echo", full) as component:
            result = await component.tools["env"].execute({"names": ["WHO"]})
    assert result.structured_content == {"WHO": "ada"}
