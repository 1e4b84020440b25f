"""Plain code: the same names with nothing to await, from any thread, in notebooks and at the end of the interpreter."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import toolweave
from toolweave import (
    CallContext,
    ConnectError,
    ConnectionClosedError,
    ScriptedModel,
    ToolList,
    sync,
    tool_call,
)
from toolweave.agent import ApprovalRequested, RunFinished, TextDelta, ToolFinished
from toolweave.connect import ConnectionState
from toolweave.testing import MemoryServer

NUMBERS = {"command": sys.executable, "args": ["-m", "toolweave.cli.demo.numbers"]}


def add(a: int, b: int) -> int:
    return a + b


def one() -> int:
    return 1


def memory() -> MemoryServer:
    return MemoryServer([add], name="memory")


@pytest.fixture
def server() -> Iterator[sync.SyncConnection]:
    with sync.connect_mcp(memory()) as connection:
        yield connection


def test_a_server_is_connected_called_and_closed_without_awaiting() -> None:
    with sync.connect_mcp(NUMBERS, name="numbers") as server:
        assert server.state is ConnectionState.READY
        assert server.call_tool("add", {"values": [1, 2, 39]}).data.sum == 42
        assert server.list_tools(prefix="n").names[0] == "n_add"
    assert server.state is ConnectionState.CLOSED
    with pytest.raises(ConnectionClosedError):
        server.call_tool("add", {"values": []})


def test_a_connection_is_open_from_the_beginning_and_closed_by_close() -> None:
    server = sync.connect_mcp(memory())

    assert server.tools["add"].execute({"a": 1, "b": 2}).text == "3"
    server.close()
    server.close()
    assert server.state is ConnectionState.CLOSED


def test_a_server_that_cannot_start_raises_the_same_error() -> None:
    with pytest.raises(ConnectError, match="no-such-program"):
        sync.connect_mcp("no-such-program")


def test_tools_are_a_sequence_indexed_by_name_that_runs_them(server: sync.SyncConnection) -> None:
    tools = server.tools

    assert [one.name for one in tools] == ["add"]
    assert len(tools) == 1
    assert "add" in tools
    assert tools[0].call({"a": 1, "b": 2}).text == "3"
    assert tools[:1].names == ("add",)
    assert tools[0].input_schema["required"] == ["a", "b"]
    assert isinstance(tools.wrapped, ToolList)
    assert "add" in repr(tools)
    assert "add" in repr(tools[0])


def test_toolsets_chain(server: sync.SyncConnection) -> None:
    with server.filtered(["add"]).prefixed("x").renamed({"x_add": "plus"}) as tools:
        assert tools.tools.names == ("plus",)
        assert tools.execute("plus", {"a": 1, "b": 2}).text == "3"
    assert server.state is ConnectionState.READY


def test_many_servers_are_a_hub() -> None:
    with sync.connect_mcp_servers({"memory": {"server": memory()}, "broken": {"command": "no-such-program"}}) as hub:
        assert hub.execute("memory_add", {"a": 1, "b": 2}).text == "3"
        assert list(hub.errors) == ["broken"]
        assert hub.connect("more", {"server": memory()}).call_tool("add", {"a": 2, "b": 2}).text == "4"
        hub.disconnect("more")
        assert list(hub.clients) == ["memory"]
    assert hub.clients == {}


def test_a_connection_reports_what_is_wrong_like_the_async_one() -> None:
    entry = {**NUMBERS, "include": ["add", "subtract"]}
    with sync.connect_mcp(entry, name="numbers") as server:
        assert ["subtract" in problem for problem in server.problems] == [True]
        assert set(server.excluded_tools) == {"divide", "primes"}
        assert (server.withheld, server.findings, server.pin_changes, server.pin_problems) == ({}, (), (), ())
        assert (server.restarts, server.silent_for, server.stderr_tail) == (0, 0.0, "")
        assert {step.outcome for step in server.report.steps} <= {"ok", "skipped"}
        assert "tools" in server.capabilities
        assert len(server.request("tools/list")["tools"]) == 3
        assert server.list_skills() == ()


def test_a_server_of_a_hub_is_replaced_and_detached() -> None:
    with sync.connect_mcp_servers({"memory": {"server": memory()}}) as hub:
        previous = hub.replace("memory", {"server": MemoryServer([one], name="memory")})
        assert previous is not None
        assert previous.call_tool("add", {"a": 1, "b": 2}).text == "3"
        previous.close()
        assert hub.call_tool("memory_one").text == "1"
        detached = hub.detach("memory")
        assert detached is not None
        assert detached.call_tool("one").text == "1"
        detached.close()
        assert hub.clients == {}


ONLY_ASYNC = {
    "connection": {
        *("call", "forward", "gateway_side", "listen_to_task", "offered_definitions", "snapshot", "subscribe"),  # rooms
        *("combined", "enhanced", "traced", "transformed"),  # toolsets of `wrapped`
        *("away", "busy", "filter_problems", "is_used", "keep_trying", "pinned_as", "redact", "skipped_by_server"),
        *("on", "open", "start"),  # a listener would run in the thread of the connections
    },
    "hub": {"call", "combined", "enhanced", "is_used", "on", "open", "snapshot", "subscribe", "traced", "transformed"},
}


@pytest.mark.parametrize("kind", ["connection", "hub"])
def test_blocking_objects_have_the_methods_of_the_async_ones(kind: str) -> None:
    asynchronous, synchronous = {
        "connection": (toolweave.McpConnection, sync.SyncConnection),
        "hub": (toolweave.Hub, sync.SyncHub),
    }[kind]

    missing = {name for name in dir(asynchronous) if not name.startswith("_")} - set(dir(synchronous))

    assert missing == ONLY_ASYNC[kind]


def test_changes_are_iterated_over() -> None:
    offered = memory()
    with sync.connect_mcp(offered) as server:
        changes = server.changes()
        offered.tool(one)
        assert next(changes).added == ("one",)
        changes.close()


def test_many_threads_use_one_connection_at_the_same_time() -> None:
    together = threading.Barrier(8, timeout=60)

    def meet(n: int) -> int:
        together.wait()
        return n

    with sync.connect_mcp(MemoryServer([meet], name="memory")) as server, ThreadPoolExecutor(8) as threads:
        found = [threads.submit(server.call_tool, "meet", {"n": n}) for n in range(8)]
        assert [one.result().text for one in found] == [str(n) for n in range(8)]


def test_it_works_in_a_thread_whose_event_loop_runs_as_in_a_notebook(server: sync.SyncConnection) -> None:
    async def cell() -> str:
        return server.call_tool("add", {"a": 1, "b": 2}).text

    assert asyncio.run(cell()) == "3"


def test_what_plain_code_opened_is_used_from_another_event_loop(server: sync.SyncConnection) -> None:
    assert asyncio.run(server.wrapped.call_tool("add", {"a": 1, "b": 2})).text == "3"


def test_an_async_function_in_the_portals_own_loop_is_told_to_await(server: sync.SyncConnection) -> None:
    async def nested() -> str:
        return server.call_tool("add", {"a": 1, "b": 2}).text

    with sync.connect_mcp(MemoryServer([nested], name="nested")) as outer:
        assert "await the same call" in outer.call_tool("nested").text


def test_a_plain_tool_may_call_another_server(server: sync.SyncConnection) -> None:
    def nested() -> str:
        return server.call_tool("add", {"a": 1, "b": 2}).text

    with sync.connect_mcp(MemoryServer([nested], name="nested")) as outer:
        assert outer.call_tool("nested").text == "3"


def scripted() -> ScriptedModel:
    return ScriptedModel([[tool_call("add", {"a": 1, "b": 2})], "It is 3."])


def test_an_agent_runs_with_what_plain_code_opened(server: sync.SyncConnection) -> None:
    assert sync.Agent(scripted(), tools=[server]).run("1 + 2?").text == "It is 3."
    assert sync.Agent(scripted(), tools=server.tools).run_sync("1 + 2?").text == "It is 3."
    assert sync.generate(scripted(), "1 + 2?", tools=server).text == "It is 3."


def test_a_run_is_iterated_for_its_events_and_its_text() -> None:
    with sync.Agent(scripted(), tools=[add], name="adder") as agent:
        run = agent.send("1 + 2?")
        events = list(run)
        assert [type(event) for event in events if isinstance(event, (ToolFinished, RunFinished))] == [
            ToolFinished,
            RunFinished,
        ]
        assert run.final.text == "It is 3."
        assert agent.name == "adder"
    assert "".join(sync.Agent(scripted(), tools=[add]).stream_text("1 + 2?")) == "It is 3."
    assert any(isinstance(event, TextDelta) for event in sync.stream(scripted(), "1 + 2?", tools=[add]))


def test_a_call_that_has_to_be_allowed_is_allowed_while_iterating() -> None:
    agent = sync.Agent(scripted(), tools=[add], confirm="always")
    run = agent.send("1 + 2?")

    for event in run:
        if isinstance(event, ApprovalRequested):
            assert run.approve(event.call.id)
    assert run.final.text == "It is 3."


def test_a_run_is_cancelled_from_another_thread() -> None:
    started = threading.Event()

    async def wait(ctx: CallContext) -> None:
        started.set()
        await asyncio.sleep(600)

    run = sync.Agent(ScriptedModel([[tool_call("wait", {})]]), tools=[wait]).send("wait").start()
    assert started.wait(60)
    run.cancel()
    assert run.final.stop_reason == "cancelled"
    assert run.done


def test_the_async_agent_has_the_plain_call_too() -> None:
    assert toolweave.Agent(scripted(), tools=[add]).run_sync("1 + 2?").text == "It is 3."


def test_every_function_has_the_parameters_of_the_async_one() -> None:
    for name in ("connect_mcp", "connect_mcp_servers", "generate", "stream", "Agent"):
        own, of_async = inspect.signature(getattr(sync, name)), inspect.signature(getattr(toolweave, name))
        assert list(own.parameters) == list(of_async.parameters), name
    method = inspect.signature(sync.SyncConnection.call_tool)
    assert list(method.parameters) == list(inspect.signature(toolweave.McpConnection.call_tool).parameters)
    assert (sync.SyncConnection.call_tool.__doc__ or "").startswith("Call a tool")


def child(code: str, tmp_path: Path) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )


WAITING = """
import os, sys, threading
from toolweave import sync

def note(text):
    print(text + "\\n", end="", flush=True)  # in one piece: two threads print

async def slow():
    import anyio
    note("begun")
    try:
        await anyio.sleep(600)
    finally:
        note("cancelled")

from toolweave.testing import MemoryServer
with sync.connect_mcp(MemoryServer([slow], name="slow")) as server:
    try:
        server.call_tool("slow")
    except KeyboardInterrupt:
        note("interrupted")
    note(server.state.value)
note(server.state.value)
"""


@pytest.mark.slow
def test_an_interrupt_cancels_the_call_and_leaves_the_connection(tmp_path: Path) -> None:
    process = child(WAITING, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert sorted(said.split()) == ["cancelled", "closed", "interrupted", "ready"]


OPEN_AT_EXIT = """
import sys
from toolweave import sync
server = sync.connect_mcp([sys.executable, "-m", "toolweave.cli.demo.numbers"])
print(server.wrapped.report.process.pid, flush=True)
"""


@pytest.mark.slow
def test_what_is_left_open_is_closed_when_the_interpreter_exits(tmp_path: Path) -> None:
    process = child(OPEN_AT_EXIT, tmp_path)
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(said), 0)


@pytest.mark.slow
def test_a_forked_process_begins_with_a_thread_of_its_own(server: sync.SyncConnection) -> None:
    assert server.tools
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with sync.connect_mcp(memory()) as own:
                code = 0 if own.call_tool("add", {"a": 1, "b": 2}).text == "3" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


FORK_SECONDS = 20


def forked(use: Callable[[], object]) -> str:
    """Return what `use` raises in a forked process, or an empty text; a process that hangs is ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(FORK_SECONDS)
        try:
            use()
        except BaseException as exc:
            os.write(writing, str(exc).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        raised = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the forked process hung"
    return raised


@pytest.mark.slow
def test_what_was_opened_before_a_fork_is_refused_in_the_forked_process_at_once() -> None:
    model = ScriptedModel([tool_call("one"), "done", "again"])
    with (
        sync.connect_mcp(NUMBERS, name="numbers") as server,
        sync.connect_mcp_servers({"numbers": NUMBERS}) as hub,
        server.filtered(["add"]) as narrowed,
        sync.Agent(model, tools=[one]) as agent,
    ):
        run = agent.send("hello")
        assert run.final.text == "done"
        uses: dict[str, Callable[[], object]] = {
            "call": lambda: server.call_tool("add", {"values": [1]}),
            "list": server.list_tools,
            "execute": lambda: narrowed.execute("add", {"values": [1]}).raise_for_error(),
            "tool": lambda: hub.tools[0].execute({"values": [1]}).raise_for_error(),
            "connect": lambda: hub.connect("more", NUMBERS),
            "run": lambda: run.final,
            "events": lambda: list(run),
        }
        for name, use in uses.items():
            assert "before a fork" in forked(use), name
        closes = (server.close, hub.close, agent.close, lambda: narrowed.__exit__(None, None, None))
        assert [forked(close) for close in closes] == ["", "", "", ""]
        assert forked(lambda: agent.run("more")) == ""

        assert server.call_tool("add", {"values": [1, 2]}).data.sum == 3
        assert hub.tools
    assert server.state is ConnectionState.CLOSED


OPENED: dict[str, Callable[[], sync.SyncConnection | sync.SyncHub]] = {
    "a connection": lambda: sync.connect_mcp(memory()),
    "a hub": lambda: sync.connect_mcp_servers({"memory": memory()}),
}


@pytest.mark.parametrize("kind", OPENED)
def test_what_a_block_closed_is_opened_again_by_the_next_block(kind: str) -> None:
    opened = OPENED[kind]()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), opened:
            assert [tool.execute({"a": 1, "b": 2}).text for tool in opened.tools] == ["3"]
            raise ZeroDivisionError


@pytest.mark.parametrize("kind", OPENED)
def test_a_block_within_a_block_leaves_it_open(kind: str) -> None:
    with OPENED[kind]() as opened:
        with opened:
            pass
        assert [tool.execute({"a": 1, "b": 2}).text for tool in opened.tools] == ["3"]


@pytest.mark.parametrize("kind", OPENED)
def test_what_was_closed_by_hand_is_refused_by_a_block(kind: str) -> None:
    opened = OPENED[kind]()
    opened.close()

    with pytest.raises(ConnectionClosedError), opened:
        pass


def test_a_block_with_a_client_of_a_hub_leaves_it_to_the_hub() -> None:
    with sync.connect_mcp_servers({"memory": memory()}) as hub:
        with hub.clients["memory"] as client:
            assert client.state is ConnectionState.READY
        assert hub.states() == {"memory": ConnectionState.READY}
