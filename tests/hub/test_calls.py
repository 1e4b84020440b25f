"""Calls through a hub: which server gets them, under which name, and what is said when nobody can."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.hub.fleet import ToolServer, absent, echo, fault, opened
from tests.servers.fixtures import http_server
from toolweave import CallContext, ErrorKind, Progress, ToolCall
from toolweave.connect import ConnectionState
from toolweave.errors import ToolExecutionError


@pytest.mark.requirement("R40", "C1", "R41")
@pytest.mark.parametrize("name", ["b_add", "b:add", "b/add"])
async def test_a_tool_is_found_by_its_name_and_both_aliases(name: str) -> None:
    a, b = ToolServer("a", ["add"]), ToolServer("b", ["add"])
    async with opened({"a": a.config(), "b": b.config()}) as hub:
        assert (await hub.execute(name)).text == "b|add"
        assert (await hub.tools[name].execute()).text == "b|add"
        found = hub.snapshot().find(name)
        assert found is not None
        assert (found.name, found.server, found.original_name) == ("b_add", "b", "add")
    assert (a.called, b.called) == ([], ["add", "add"])


@pytest.mark.requirement("R39", "R41", "D5")
@pytest.mark.parametrize(("prefix", "name"), [("fs_", "fs_read"), ("", "read"), ("it's: ", "it's: read")])
async def test_a_prefix_is_put_before_the_name_as_it_is_and_never_sent(prefix: str, name: str) -> None:
    server = ToolServer("s", ["read"])
    async with opened({"s": server.config(tool_prefix=prefix)}) as hub:
        assert [spec.name for spec in hub.snapshot()] == [name]
        for known_as in (name, "s:read", "s/read"):
            assert (await hub.execute(known_as)).text == "s|read"
    assert server.called == ["read"] * 3


@pytest.mark.requirement("R41", "D5")
async def test_a_tool_whose_own_name_looks_prefixed_is_not_mistaken_for_its_sibling() -> None:
    server = ToolServer("s", ["read", "fs_read"])
    async with opened({"s": server.config(tool_prefix="fs_")}) as hub:
        assert (await hub.execute("fs_read")).text == "s|read"
        assert (await hub.execute("fs_fs_read")).text == "s|fs_read"
    assert server.called == ["read", "fs_read"]


@pytest.mark.requirement("R61")
async def test_an_unknown_tool_is_an_error_result_that_names_its_neighbours() -> None:
    async with opened({"files": ToolServer("files", ["read_file", "write_file"]).config()}) as hub:
        error = (await hub.execute("files_raed_file")).require_error()
        assert error.kind is ErrorKind.NOT_FOUND
        assert "no tool 'files_raed_file'" in error.message
        assert "did you mean 'files_read_file'" in error.message
        with pytest.raises(KeyError, match="no tool 'nothing'; there are files_read_file, files_write_file"):
            hub.tools["nothing"]


@pytest.mark.requirement("R24", "R69")
@pytest.mark.parametrize("name", ["dead_anything", "dead:anything", "dead/anything", "pre-anything"])
async def test_a_tool_of_a_failed_server_names_the_cause(name: str) -> None:
    dead = {"dead": fault("exits_at_once"), "other": fault("exits_at_once", tool_prefix="pre-")}
    async with opened({"good": echo(), **dead}) as hub:
        result = await hub.execute(name)
    assert result.is_error
    assert result.require_error().kind is ErrorKind.NOT_SENT
    assert f"server {'other' if name.startswith('pre') else 'dead'!r}" in result.text
    assert "fatal: no API key" in result.text
    assert result.text.startswith("MCP error: ")


async def test_the_cause_is_that_of_the_server_whose_name_fits_best() -> None:
    async with opened({"a": absent(), "a_b": fault("exits_at_once")}) as hub:
        assert "server 'a_b'" in (await hub.execute("a_b_tool")).text
        assert "server 'a'" in (await hub.execute("a_tool")).text


@pytest.mark.requirement("D16")
async def test_parameters_may_have_any_name() -> None:
    arguments = {
        "name": "n",
        "tool_name": "t",
        "self": "s",
        "arguments": {"ctx": 1},
        "ctx": 2,
        "tool_call_id": 3,
        "server": 4,
    }
    async with opened({"s": echo()}) as hub:
        by_hub = await hub.execute("s_args", arguments)
        by_tool = await hub.tools["s_args"].execute(arguments)
    assert by_hub.structured_content["arguments"] == arguments
    assert by_tool.structured_content["arguments"] == arguments


@pytest.mark.requirement("C2", "R65", "R66", "R68")
async def test_execute_returns_every_fault_and_tool_call_raises_it() -> None:
    async with opened({"s": echo(restart="never")}) as hub:
        said = await hub.execute("s_fail", {"message": "no luck"})
        refused = await hub.execute("s_rpc_error", {"message": "refused"})
        unfit = await hub.execute("s_echo", {"text": 1})
        crashed = await hub.execute("s_crash")
        gone = await hub.execute("s_echo", {"text": "anybody?"})
        with pytest.raises(ToolExecutionError) as caught:
            await hub.tools["s_echo"].call({"text": "anybody?"})
    kinds = [result.require_error().kind for result in (said, refused, unfit, crashed, gone)]
    assert kinds == [
        ErrorKind.EXECUTION_FAILED,
        ErrorKind.PROTOCOL,
        ErrorKind.INVALID_INPUT,
        ErrorKind.OUTCOME_UNKNOWN,
        ErrorKind.NOT_SENT,
    ]
    assert said.text == "no luck"
    assert refused.text.startswith("MCP error: ")
    assert caught.value.result.is_error
    assert caught.value.tool == "s_echo"


async def test_the_callers_wishes_reach_the_server() -> None:
    seen: list[Progress] = []
    context = CallContext(on_progress=seen.append, timeout=10, meta={"example.com/trace": "1"})
    async with opened({"s": echo()}) as hub:
        call = ToolCall(name="s:slow", arguments={"seconds": 0.02, "steps": 2}, id="call-1")
        assert (await hub.call(call, context)).text == "done in 2 steps"
        slow = await hub.execute("s_hang", ctx=CallContext(timeout=0.2))
    assert [progress.progress for progress in seen] == [1, 2]
    assert slow.require_error().kind is ErrorKind.TIMEOUT


async def test_calls_to_several_servers_run_beside_each_other() -> None:
    with http_server() as url:
        async with opened({"pipe": echo(), "web": {"url": url}}) as hub:
            holding = {name: anyio.Event() for name in ("pipe", "web")}
            answers: dict[str, str] = {}

            async def hold(name: str) -> None:
                context = CallContext(on_progress=lambda _: holding[name].set())
                answers[name] = (await hub.execute(f"{name}_hold", {"key": "k"}, context)).text

            async with anyio.create_task_group() as tasks:
                for name in holding:
                    tasks.start_soon(hold, name)
                for event in holding.values():
                    await event.wait()
                for name in holding:
                    await hub.execute(f"{name}_release", {"key": "k"})
    assert answers == {"pipe": "released", "web": "released"}


async def test_a_cancelled_call_is_cancelled_at_the_server_and_the_hub_goes_on() -> None:
    async with opened({"s": echo()}) as hub:
        with anyio.CancelScope() as scope:
            await hub.execute("s_hang", ctx=CallContext(on_progress=lambda _: scope.cancel()))
        assert scope.cancelled_caught
        state = json.loads((await hub.execute("s_state")).text)
        assert hub.states() == {"s": ConnectionState.READY}
    assert len(state["cancelled"]) == 1
