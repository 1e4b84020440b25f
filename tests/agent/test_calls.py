"""The calls of one turn: at the same time, in order, bounded for each server, and errors as something to read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from tests.tools.doubles import Scripted, spec
from toolweave import (
    Agent,
    CallContext,
    ErrorKind,
    ToolCall,
    ToolError,
    ToolRegistry,
    ToolResult,
    Toolset,
    ToolSpec,
    tool,
)
from toolweave.agent import AgentTools, ClientTool, Limits, ToolFinished, ToolStarted
from toolweave.errors import ToolExecutionError
from toolweave.models import (
    AssistantMessage,
    ProviderTool,
    ScriptedModel,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    tool_call,
)


def answers(result: Any) -> list[tuple[str, bool, str]]:
    """Return what the model read of the last calls: name, whether it is an error, text."""
    told = next(one for one in reversed(result.messages) if isinstance(one, ToolMessage))
    return [(one.name, one.result.is_error, one.result.text) for one in told.outcomes]


class Server(Scripted):
    """A server whose calls meet: it notes how many run at once."""

    def __init__(self, *names: str, expect: int = 1, server: str = "files", kind: ErrorKind | None = None) -> None:
        super().__init__([spec(name, server=server) for name in names])
        self.running = 0
        self.most = 0
        self._expect = expect
        self._together = anyio.Event()
        self._kind = kind

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running >= self._expect:
            self._together.set()
        await self._together.wait()
        await anyio.wait_all_tasks_blocked()
        self.running -= 1
        if self._kind is not None:
            return ToolResult.failure(ToolError("MCP error: gone", kind=self._kind))
        return await super().call(call, ctx)


@pytest.mark.requirement("R52", "R57", "C28")
async def test_the_calls_of_a_turn_run_at_the_same_time_and_answer_in_their_order() -> None:
    second = anyio.Event()
    order: list[str] = []

    async def slow() -> str:
        await second.wait()
        order.append("slow")
        return "first"

    async def quick() -> str:
        order.append("quick")
        second.set()
        return "second"

    agent = Agent(ScriptedModel([[tool_call("slow"), tool_call("quick")], "done"]), tools=[slow, quick])
    result = await agent.send("go")

    assert order == ["quick", "slow"]
    assert answers(result) == [("slow", False, "first"), ("quick", False, "second")]


@pytest.mark.requirement("C28")
async def test_a_server_gets_no_more_calls_at_once_than_its_limit() -> None:
    server = Server("read", expect=2)
    calls = [tool_call("read") for _ in range(6)]
    agent = Agent(ScriptedModel([calls, "done"]), tools=server, limits=Limits(parallel_per_server=2))

    await agent.send("go")

    assert server.most == 2
    assert len(server.calls) == 6


@pytest.mark.requirement("C28")
async def test_the_limit_is_one_for_each_server() -> None:
    one, other = Server("a", expect=1), Server("b", expect=1, server="web")
    met = anyio.Event()

    async def meet(server: Server) -> None:
        server.running += 1
        if one.running and other.running:
            met.set()

    async def call_one(call: ToolCall, ctx: CallContext) -> ToolResult:
        await meet(one)
        await met.wait()
        return ToolResult.of("one")

    async def call_other(call: ToolCall, ctx: CallContext) -> ToolResult:
        await meet(other)
        await met.wait()
        return ToolResult.of("other")

    one.call, other.call = call_one, call_other  # type: ignore[method-assign]
    agent = Agent(
        ScriptedModel([[tool_call("a"), tool_call("b")], "done"]),
        tools=[one, other],
        limits=Limits(parallel_per_server=1),
    )
    result = await agent.send("go")

    assert answers(result) == [("a", False, "one"), ("b", False, "other")]


@pytest.mark.requirement("C28")
@pytest.mark.parametrize("marked", [{"annotations": {"sequential": True}}, {"meta": {"sequential": True}}])
async def test_a_sequential_tool_runs_alone_between_the_others(marked: Mapping[str, Any]) -> None:
    running: set[str] = set()
    met: list[set[str]] = []

    async def work(name: str) -> str:
        running.add(name)
        await anyio.wait_all_tasks_blocked()
        met.append(set(running))
        running.discard(name)
        return name

    alone = tool(work, name="alone", **marked)
    calls = [
        tool_call("work", {"name": "a"}),
        tool_call("work", {"name": "b"}),
        tool_call("alone", {"name": "c"}),
        tool_call("work", {"name": "d"}),
    ]
    result = await Agent(ScriptedModel([calls, "done"]), tools=[work, alone]).send("go")

    assert [text for _, _, text in answers(result)] == ["a", "b", "c", "d"]
    assert {"c"} in met
    assert not [together for together in met if "c" in together and len(together) > 1]
    assert {"a", "b"} in met


async def test_malformed_arguments_are_an_error_that_the_model_reads() -> None:
    def save(text: str) -> str:
        return text

    bad = ToolCallPart(id="x", name="save", malformed='{"text": ')
    result = await Agent(ScriptedModel([bad, "sorry"]), tools=[save]).send("go")

    ((name, is_error, text),) = answers(result)
    assert (name, is_error) == ("save", True)
    assert "not a JSON object" in text
    assert result.text == "sorry"


async def test_arguments_that_do_not_fit_and_tools_that_raise_are_errors_that_the_model_reads() -> None:
    def divide(by: int) -> float:
        return 1 / by

    calls = [tool_call("divide", {"by": "x"}), tool_call("divide", {"by": 0})]
    result = await Agent(ScriptedModel([calls, "sorry"]), tools=[divide]).send("go")

    unfit, raised = answers(result)
    assert unfit[1]
    assert "invalid arguments" in unfit[2]
    assert raised[1]
    assert "ZeroDivisionError" in raised[2]


@pytest.mark.requirement("D18")
async def test_an_unknown_tool_is_an_error_that_names_the_near_ones() -> None:
    def read_file() -> str:
        return ""

    result = await Agent(ScriptedModel([tool_call("read_fil"), "oh"]), tools=[read_file]).send("go")

    assert answers(result) == [("read_fil", True, "no tool 'read_fil'; did you mean 'read_file'?")]


async def test_a_toolset_that_raises_is_an_error_result_all_the_same() -> None:
    server = Scripted([spec("read")], fault=OSError("disk on fire"))

    result = await Agent(ScriptedModel([tool_call("read"), "oh"]), tools=server).send("go")

    assert answers(result) == [("read", True, "OSError: disk on fire")]


@pytest.mark.requirement("C2", "R60")
async def test_a_lost_server_is_something_the_model_reads_by_default() -> None:
    server = Server("read", kind=ErrorKind.OUTCOME_UNKNOWN)

    result = await Agent(ScriptedModel([tool_call("read"), "it is down"]), tools=server).send("go")

    assert answers(result) == [("read", True, "MCP error: gone")]
    assert result.text == "it is down"


@pytest.mark.requirement("C2")
async def test_a_lost_server_ends_the_run_where_that_is_asked_for() -> None:
    server = Server("read", expect=1, kind=ErrorKind.NOT_SENT)
    run = Agent(ScriptedModel([tool_call("read"), "no"]), tools=server, on_transport_error="raise").send("go")

    with pytest.raises(ToolExecutionError, match="gone"):
        await run

    assert run.result is not None
    assert (run.result.status, run.result.stop_reason) == ("failed", "transport_error")


@pytest.mark.requirement("C2")
async def test_an_error_of_the_tool_itself_never_ends_the_run() -> None:
    server = Server("read", kind=ErrorKind.EXECUTION_FAILED)
    agent = Agent(ScriptedModel([tool_call("read"), "go on"]), tools=server, on_transport_error="raise")

    assert (await agent.send("go")).text == "go on"


class Answered(Server):
    """A server that has answered itself what its kind of error says."""

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        return (await super().call(call, ctx)).replace(raw={"isError": True, "content": []})


@pytest.mark.requirement("C2")
async def test_an_error_that_the_server_answered_never_ends_the_run() -> None:
    server = Answered("read", kind=ErrorKind.TIMEOUT)
    agent = Agent(ScriptedModel([tool_call("read"), "go on"]), tools=server, on_transport_error="raise")

    assert (await agent.send("go")).text == "go on"


async def test_tools_that_change_while_a_run_goes_on_are_seen_at_its_next_turn() -> None:
    server = Scripted([spec("old")])

    def change() -> str:
        server.offer(spec("new"))
        return "changed"

    model = ScriptedModel([tool_call("change"), [tool_call("new"), tool_call("old")], "done"])
    result = await Agent(model, tools=[change, server]).send("go")

    assert [[one.name for one in request.tools] for request in model.requests] == [
        ["change", "old"],
        ["change", "new"],
        ["change", "new"],
    ]
    assert [(name, is_error) for name, is_error, _ in answers(result)] == [("new", False), ("old", True)]


async def test_the_definitions_stay_one_object_as_long_as_nothing_changes() -> None:
    server = Scripted([spec("read")])
    model = ScriptedModel([tool_call("read"), "one", "two"])
    agent = Agent(model, tools=[server])

    await agent.send("go", session="s")
    await agent.send("go", session="s")

    first, second, third = (request.tools for request in model.requests)
    assert first is second
    assert second is third


@pytest.mark.requirement("R79")
async def test_tools_are_added_removed_and_found_by_name() -> None:
    def hello() -> str:
        """Say hello."""
        return "hello"

    agent = Agent(ScriptedModel(["a", "b", "c"]))
    seen: list[tuple[str, ...]] = []

    def note(change: Any) -> None:
        seen.append((*(f"+{name}" for name in change.added), *(f"-{name}" for name in change.removed)))

    agent.tools.subscribe(note)
    server = Scripted([spec("read")])
    agent.tools.add(hello)
    agent.tools.add(server, prefix="fs")
    found = agent.tools.get("fs_read")
    assert found is not None
    assert (await found.execute({})).text == "read ran"
    assert agent.tools.list().names == ("hello", "fs_read")
    agent.tools.remove("hello")
    agent.tools.remove(server)

    assert agent.tools.get("hello") is None
    assert agent.tools.list().names == ()
    assert seen == [("+hello",), ("+fs_read",), ("-hello",), ("-fs_read",)]
    with pytest.raises(KeyError):
        agent.tools.remove(server)


async def test_a_definitions_version_grows_even_when_a_toolset_goes() -> None:
    tools = AgentTools()
    server = Scripted([spec("read")])
    versions = [tools.snapshot().version]
    tools.add(server)
    versions.append(tools.snapshot().version)
    tools.remove(server)
    versions.append(tools.snapshot().version)

    assert versions == sorted(set(versions))


async def test_a_run_may_have_tools_of_its_own() -> None:
    def extra() -> str:
        return "extra"

    model = ScriptedModel([tool_call("extra"), "done", "again"])
    agent = Agent(model)

    result = await agent.send("go", tools=[extra])
    await agent.send("go")

    assert answers(result) == [("extra", False, "extra")]
    assert [len(request.tools) for request in model.requests] == [1, 1, 0]


@pytest.mark.requirement("R51")
async def test_a_client_tool_is_passed_through_and_its_answer_goes_on_with_the_conversation() -> None:
    def local() -> str:
        return "here"

    def turns(request: Any) -> Any:
        if len(model.requests) == 1:
            return [tool_call("pick", {"n": 1}, id="p"), tool_call("local", id="l")]
        return "thanks"

    model = ScriptedModel(turns)
    pick = ClientTool(name="pick", description="Let the user pick.", input_schema={"type": "object"})
    agent = Agent(model, tools=[pick, local])

    first = await agent.send("go", session="s")
    assert (first.stop_reason, first.status) == ("client_tools", "completed")
    assert [(call.id, call.arguments) for call in first.pending] == [("p", {"n": 1})]
    picked = ToolMessage(outcomes=(ToolOutcome(call_id="p", name="pick", result=ToolResult.of("red")),))
    second = await agent.send(picked, session="s")

    assert second.text == "thanks"
    assert answers(second) == [("pick", False, "red"), ("local", False, "here")]


@pytest.mark.requirement("R51")
async def test_a_client_tool_that_nobody_answered_does_not_spoil_the_conversation() -> None:
    model = ScriptedModel([tool_call("pick", id="p"), "never mind"])
    agent = Agent(model, tools=[ClientTool(name="pick")])

    await agent.send("go", session="s")
    result = await agent.send("forget it", session="s")

    ((name, is_error, _),) = answers(result)
    assert (name, is_error) == ("pick", True)
    assert isinstance(model.requests[1].messages[1], AssistantMessage)


@pytest.mark.requirement("R51")
async def test_a_providers_own_tool_goes_into_the_request_and_is_never_run() -> None:
    search = ProviderTool(provider="anthropic", definition={"type": "web_search"})
    model = ScriptedModel(["done"])

    await Agent(model, tools=[search]).send("go")

    assert model.requests[0].provider_tools == (search,)
    assert len(model.requests[0].tools) == 0


async def test_a_call_is_made_with_its_arguments_as_one_mapping_and_its_id() -> None:
    server = Scripted([spec("read", aliases=("files:read",))])
    arguments = {"tool_name": "x", "self": 1}

    await Agent(ScriptedModel([tool_call("files:read", arguments, id="c1"), "done"]), tools=server).send("go")

    ((call, _),) = server.calls
    assert (call.name, call.arguments, call.id) == ("read", arguments, "c1")


async def test_meta_and_state_of_the_surrounding_call_reach_the_tools() -> None:
    server = Scripted([spec("read")])
    ctx = CallContext(meta={"traceparent": "00-1"}, state={"db": 7})

    agent = Agent(ScriptedModel([tool_call("read"), "done"]), tools=server, limits=Limits(call_seconds=9))
    await agent.send("go", ctx=ctx)

    ((_, seen),) = server.calls
    assert (seen.meta, seen.state, seen.timeout) == ({"traceparent": "00-1"}, {"db": 7}, 9)


async def test_events_of_a_call_say_which_tool_ran_and_what_came_of_it() -> None:
    server = Scripted([spec("read")])
    run = Agent(ScriptedModel([tool_call("read", id="c"), "done"]), tools=server).send("go")

    events = [event async for event in run if isinstance(event, (ToolStarted, ToolFinished))]

    started, finished = events
    assert isinstance(started, ToolStarted)
    assert isinstance(started.tool, ToolSpec)
    assert (started.call.id, started.tool.server, started.step) == ("c", "files", 1)
    assert isinstance(finished, ToolFinished)
    assert finished.result.text == "read ran"


def toolsets_above() -> list[str]:
    """Return the toolsets whose `call` is under way around the caller, the outermost first."""
    frame, found = sys._getframe(1), dict[int, str]()
    while frame is not None:
        toolset = frame.f_locals.get("self")
        if frame.f_code.co_name == "call" and isinstance(toolset, Toolset):
            found[id(toolset)] = type(toolset).__name__
        frame = frame.f_back
    return [*reversed(found.values())]


@pytest.mark.parametrize("beside", ["nothing", "a server", "a wrapped registry", "a search", "tools of the run"])
async def test_a_local_tool_is_reached_through_at_most_two_toolsets(beside: str) -> None:
    met = list[str]()

    @tool
    async def look() -> str:
        """Look around."""
        met.extend(toolsets_above())
        return "seen"

    given: dict[str, Any] = {
        "nothing": [look],
        "a server": [look, Server("read")],
        "a wrapped registry": [ToolRegistry([look]).filtered(["look"]).renamed({}).combined(Server("read"))],
        "a search": [look, Server(*(f"read_{number}" for number in range(50)))],
        "tools of the run": [Server("read")],
    }
    agent = Agent(
        ScriptedModel([tool_call("look"), "done"]), tools=given[beside], defer_tools=1 if beside == "a search" else None
    )
    async with agent:
        result = await agent.send("go", tools=[look] if beside == "tools of the run" else None)

    assert answers(result) == [("look", False, "seen")]
    assert 1 <= len(met) <= 2, met
