"""The agent that opens servers by their configs: `mcp_servers=`, `add_mcp`, files, and what goes wrong there."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

import toolweave
from tests.hub.fleet import BOUND, ToolServer, absent, echo
from tests.leftovers import descendants, processes
from tests.models.fake_openai import KEY, call, chat_turn, fake_openai, said
from toolweave import (
    Agent,
    ConfigError,
    ConnectError,
    McpConnection,
    McpTools,
    TextContent,
    connect_mcp,
    connect_mcp_servers,
    generate,
    load_config,
    stream,
    tool,
)
from toolweave.agent import RunFinished
from toolweave.connect import Channel
from toolweave.models import ModelRequest, OpenAICompatibleModel, ScriptedModel, ToolMessage, UserMessage, tool_call


class CountedServer(ToolServer):
    """A server that counts how often it was entered, and how often it is entered now."""

    entered = 0
    open = 0

    async def __aenter__(self) -> Channel:
        self.entered += 1
        self.open += 1
        return await super().__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        self.open -= 1
        await super().__aexit__(*exc)


def answers(*calls: str) -> ScriptedModel:
    """Return a model that calls these tools at once and is done."""
    return ScriptedModel([[tool_call(name) for name in calls], "done"])


async def texts_of(agent: toolweave.Agent, **options: Any) -> list[str]:
    """Return what the tools of one run answered."""
    answered = (await agent.send("go", **options)).messages[2]
    assert isinstance(answered, ToolMessage)
    return [one.result.text for one in answered.outcomes]


@pytest.mark.requirement("R78", "D7", "R80")
async def test_servers_by_name_are_connected_when_the_agent_is_used_and_their_tools_are_there_for_the_model() -> None:
    servers = {"files": ToolServer("files", ["read"]), "db": ToolServer("db", ["query", "read"])}
    model = answers("files_read", "db_read")
    agent = Agent(model, mcp_servers={name: server.config() for name, server in servers.items()})
    assert isinstance(agent, toolweave.Agent)
    assert agent.tools.list().names == ()

    with anyio.fail_after(BOUND):
        assert await texts_of(agent) == ["files|read", "db|read"]

    assert [one.name for one in model.requests[0].tools] == ["files_read", "db_query", "db_read"]
    assert agent.tools.list().names == ()  # closed again


@pytest.mark.requirement("R78")
@pytest.mark.parametrize("wrapped", [None, "mcpServers", "servers"])
async def test_an_entry_may_be_whatever_connect_mcp_takes_and_a_whole_config_is_taken_too(wrapped: str | None) -> None:
    entry = echo()
    cursor = {"command": entry["command"], "args": entry["args"]}
    full = {"serverName": "other", "transport": "stdio", "connection": cursor}
    servers: dict[str, Any] = {"cursor": cursor, "full": full}
    agent = Agent(answers(), mcp_servers=servers if wrapped is None else {wrapped: servers})

    with anyio.fail_after(BOUND):
        async with agent:
            names = agent.tools.list().names
    assert {"cursor_echo", "full_echo"} <= set(names)


@pytest.mark.slow
@pytest.mark.requirement("R78", "C3")
async def test_a_config_file_is_taken_and_what_is_wrong_in_it_takes_nothing_else_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mcp.json"
    off = {**echo(), "disabled": True}
    file.write_text(json.dumps({"mcpServers": {"good": echo(), "bad": {"args": ["x"]}, "gone": absent(), "off": off}}))

    for source in (file, str(file), load_config(file)):
        agent = Agent(answers(), mcp_servers=source)
        assert list(agent.errors) == ["bad"]
        with anyio.fail_after(BOUND):
            async with agent:
                assert {name.split("_")[0] for name in agent.tools.list().names} == {"good"}
        assert {name: type(error) for name, error in agent.errors.items()} == {"bad": ConfigError, "gone": ConnectError}

    with pytest.raises(ConfigError, match="bad"):
        Agent(answers(), mcp_servers=file, on_error="raise")
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        Agent(answers(), mcp_servers=tmp_path / "nowhere.json")


@pytest.mark.requirement("C3", "C26")
async def test_a_server_that_cannot_be_reached_is_skipped_or_ends_the_run() -> None:
    servers = {"good": ToolServer("good", ["read"]).config(), "gone": absent()}
    with anyio.fail_after(BOUND):
        skipping = Agent(answers("good_read"), mcp_servers=servers)
        assert await texts_of(skipping) == ["good|read"]
        assert isinstance(skipping.errors["gone"], ConnectError)

        strict = Agent(answers("good_read"), mcp_servers=servers, on_error="raise")
        with pytest.raises(ExceptionGroup, match="not all of its tools"):
            await strict.send("go")


@pytest.mark.requirement("C3")
def test_what_cannot_be_right_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError, match="'bad'"):
        Agent(answers(), mcp_servers={"good": echo(), "bad": {"transport": "stdio"}})
    with pytest.raises(ConfigError):
        Agent(answers()).add_mcp({"transport": "http"}, name="bad")

    class Late:
        def __await__(self) -> Generator[None, None, McpConnection]:
            raise NotImplementedError

    with pytest.raises(TypeError, match=r"'late'.*the connection that awaiting"):
        Agent(answers(), mcp_servers={"late": Late()})


@pytest.mark.requirement("F4", "R39")
async def test_each_server_may_have_a_prefix_of_its_own_and_its_own_literal_one_is_kept() -> None:
    one, none, other, bare, third = (ToolServer(name, ["read"]) for name in ("one", "none", "other", "bare", "third"))
    with anyio.fail_after(BOUND):
        async with connect_mcp(third.config()) as connection:
            servers = {
                "third": connection,
                "one": one.config(tool_prefix="own-"),
                "none": none.config(tool_prefix=""),
                "off": {**absent(), "disabled": True},
            }
            agent = Agent(answers(), mcp_servers=servers)
            agent.add_mcp(other.config(), prefix="fs")
            agent.add_mcp(bare.config(exclude=["x"]), name="bare")
            async with agent:
                assert agent.tools.list().names == ("own-read", "read", "third_read", "fs_read", "bare_read")
                assert agent.tools.get("bare:read") is not None
                assert agent.errors == {}
            assert connection.state.value == "ready"  # whoever opened it closes it


async def test_what_is_odd_in_a_config_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Agent(answers(), mcp_servers={"echo": {**echo(), "colour": "red"}})

    assert "colour" in caplog.text


@pytest.mark.requirement("F4", "C28")
async def test_a_server_that_is_added_in_mid_run_is_seen_at_the_next_turn() -> None:
    agent = Agent(ScriptedModel([tool_call("more"), tool_call("late_read"), "done"]))

    @tool
    def more() -> str:
        """Add a server."""
        agent.add_mcp(ToolServer("late", ["read"]).config(), prefix="late")
        return "added"

    agent.tools.add(more)
    with anyio.fail_after(BOUND):
        result = await agent.send("go")
    answered = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert [one.outcomes[0].result.text for one in answered] == ["added", "late|read"]


@pytest.mark.requirement("R77", "R78")
async def test_generate_and_stream_take_servers_too() -> None:
    servers = {"files": ToolServer("files", ["read"]).config()}
    with anyio.fail_after(BOUND):
        result = await generate(answers("files_read"), "go", mcp_servers=servers)
        events = [event async for event in stream(answers("files_read"), "go", mcp_servers=servers)]
    assert result.text == "done"
    assert isinstance(events[-1], RunFinished)


@pytest.mark.requirement("R78", "R30")
async def test_tools_and_components_of_one_run_are_given_with_the_message_and_gone_after_it() -> None:
    model = ScriptedModel([tool_call("fs_read"), "done", "again"])
    agent = Agent(model)
    with anyio.fail_after(BOUND):
        component = McpTools(
            "files", ToolServer("files", ["read", "delete"]).config(), include="read", tool_prefix="fs_"
        )
        first = await agent.send([UserMessage(content=(TextContent(text="List files"),))], tools=[component])
        await agent.send("and now?")
    assert first.text == "done"
    assert [[one.name for one in request.tools] for request in model.requests] == [["fs_read"], ["fs_read"], []]


@pytest.mark.requirement("D19", "R81")
@pytest.mark.parametrize("ends", ["well", "by an error", "by a cancellation"])
async def test_the_one_message_of_a_program_closes_its_servers_however_it_ends(ends: str) -> None:
    reached = anyio.Event()

    async def say(request: ModelRequest) -> str:
        reached.set()
        if ends == "by an error":
            raise LookupError("the program is broken")
        if ends == "by a cancellation":
            await anyio.sleep_forever()
        return "done"

    async def program() -> None:
        await Agent(ScriptedModel([say]), mcp_servers={"echo": echo()}).send("hi")

    before = descendants(processes(), os.getpid())
    with anyio.fail_after(BOUND):
        if ends == "by an error":
            with pytest.raises(LookupError):
                await program()
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(program)
                await reached.wait()
                if ends == "by a cancellation":
                    tasks.cancel_scope.cancel()
    assert descendants(processes(), os.getpid()) == before


@pytest.mark.requirement("R81", "D19", "R64")
async def test_a_gateway_owns_its_servers_by_a_context_and_all_of_them_are_closed_at_shutdown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"tools": {"mcp_servers": {"one": echo(), "two": echo(), "gone": absent()}}}
    before = descendants(processes(), os.getpid())
    caplog.set_level(logging.WARNING, logger="toolweave")
    with anyio.fail_after(BOUND), pytest.raises(ExceptionGroup) as raised:
        async with connect_mcp_servers(settings) as connections:
            agent = Agent(ScriptedModel([tool_call("two_echo", {"text": "hi"}), "done"]), tools=[connections])
            async with agent, anyio.create_task_group():
                assert await texts_of(agent) == ["hi"]
                assert len(descendants(processes(), os.getpid())) > len(before)
                raise KeyError("shutdown")
    assert isinstance(raised.value.exceptions[0], KeyError)
    assert "'gone'" in caplog.text
    assert descendants(processes(), os.getpid()) == before


@pytest.mark.slow
@pytest.mark.requirement("D17", "D18", "R80", "R77")
async def test_over_the_wire_the_model_gets_arguments_as_json_and_reads_that_a_servers_tool_failed() -> None:
    arguments = {"text": 'say "hi"', "times": None}
    turns = (chat_turn(call(0, "one", "echo_fail", json.dumps(arguments))), said("it failed"))
    with anyio.fail_after(BOUND):
        async with (
            fake_openai(*turns) as fake,
            OpenAICompatibleModel(fake.url, model="gpt", api_key=KEY) as model,
        ):
            result = await Agent(model, mcp_servers={"echo": echo()}).send("try")
    assert result.text == "it failed"
    first, second = fake.checked
    assert "echo_fail" in [one["function"]["name"] for one in first["tools"]]
    sent = next(message for message in second["messages"] if message["role"] == "assistant")["tool_calls"][0]
    assert json.loads(sent["function"]["arguments"]) == arguments
    answered = next(message for message in second["messages"] if message["role"] == "tool")
    assert answered["content"].startswith("Error: ")


async def test_an_agent_opens_and_closes_what_connect_mcp_returns_for_each_time_that_it_is_used() -> None:
    files, db = CountedServer("files", ["read"]), CountedServer("db", ["query"])
    model = ScriptedModel([[tool_call("read"), tool_call("db_query")], "done"] * 2)
    agent = Agent(model, tools=[connect_mcp(files.config()), connect_mcp_servers({"db": db.config()})])

    for opened in (1, 2):
        with anyio.fail_after(BOUND):
            assert await texts_of(agent) == ["files|read", "db|query"]
        assert (files.entered, db.entered) == (opened, opened)
        assert (files.open, db.open) == (0, 0)


async def test_servers_by_name_may_be_what_connect_mcp_returns() -> None:
    files = ToolServer("files", ["read"])
    agent = Agent(answers("mine_read"), mcp_servers={"mine": connect_mcp(files.config())})

    with anyio.fail_after(BOUND):
        assert await texts_of(agent) == ["files|read"]
