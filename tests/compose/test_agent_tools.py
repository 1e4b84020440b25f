"""What an agent takes as tools, and the words of the field for its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolweave import (
    Agent,
    ConfigError,
    ScriptedModel,
    connect_mcp_servers,
    create_mcp_server,
    load_config,
    tool_call,
)
from toolweave.testing import MemoryServer

SERVER = """
from toolweave import create_mcp_server

def greet(name: str) -> str:
    return f"hello {name}"

create_mcp_server(name="greeter", version="1", tools=[greet]).run_stdio()
"""


def greet(name: str) -> str:
    return f"hello {name}"


def area(width: float) -> float:
    return width


def scripted(tool: str = "greet") -> ScriptedModel:
    return ScriptedModel([[tool_call(tool, {"name": "Ada"})], "done"])


async def said(agent: Agent) -> list[str]:
    result = await agent.run("Greet Ada")
    return [outcome.result.text for message in result.messages for outcome in getattr(message, "outcomes", ())]


@pytest.mark.slow
async def test_files_hubs_and_functions_are_tools_beside_each_other(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER, encoding="utf-8")
    async with connect_mcp_servers({"memory": {"server": MemoryServer([greet], name="memory")}}) as hub:
        async with Agent(ScriptedModel([]), tools=[str(file), hub, area]) as agent:
            assert set(agent.tools.tools.names) == {"area", "greet", "memory_greet"}
        async with Agent(scripted(), tools=file) as agent:
            assert await said(agent) == ["hello Ada"]


def configs() -> list[Any]:
    server = MemoryServer([greet], name="memory")
    return [
        server,
        create_mcp_server(name="s", version="1", tools=[greet]),
        {"server": server},
        load_config({"mcpServers": {"memory": {"server": server}}}).servers["memory"],
    ]


@pytest.mark.parametrize("number", range(4))
async def test_whatever_connect_mcp_takes_is_a_tool(number: int) -> None:
    assert await said(Agent(scripted(), tools=[configs()[number]])) == ["hello Ada"]


async def test_a_server_is_a_tool_of_one_run_too() -> None:
    result = await Agent(scripted()).run("Greet Ada", tools=configs()[0])

    assert result.text == "done"


async def test_what_is_no_server_is_refused_at_once_and_the_room_knows_no_configs() -> None:
    with pytest.raises(ConfigError, match="not a number"):
        Agent(ScriptedModel([]), tools=[3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


async def test_the_text_of_an_answer_is_streamed() -> None:
    pieces = [piece async for piece in Agent(scripted(), tools=[greet]).stream_text("Greet Ada")]

    assert "".join(pieces) == "done"


async def test_leaving_the_text_early_cancels_the_run() -> None:
    async with Agent(ScriptedModel(["one two three"]), tools=[greet]) as agent:
        run = agent.send("hi")
        text = run.stream_text()
        await anext(text)
        await text.aclose()
        result = await run
        assert result.stop_reason in {"cancelled", "end"}


def test_a_run_of_plain_code_returns_its_result_also_where_a_loop_runs() -> None:
    import asyncio

    async def cell() -> str:
        return Agent(scripted(), tools=[greet]).run_sync("Greet Ada").text

    assert asyncio.run(cell()) == "done"
