"""What an agent opens and closes: what its tools need, when they need it, and nothing that was open before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
import pytest

from tests.models.fake_openai import said
from tests.models.http_server import Answer, Received, serve
from tests.tools.doubles import Scripted, spec
from toolweave import Agent, ModelError, Run, connect_mcp, create_mcp_server
from toolweave.agent import StepStarted, ToolStarted
from toolweave.agent._lifespan import CLOSE_SECONDS
from toolweave.errors import ConfigError, DuplicateToolError
from toolweave.models import ModelRequest, OpenAICompatibleModel, ScriptedModel, ToolMessage, tool_call
from toolweave.tools import Toolset

PATIENCE = 30.0


class Guarded(Scripted):
    """A toolset that notes in which task it is entered and left."""

    def __init__(self, name: str = "read") -> None:
        super().__init__([spec(name)])
        self.entered = 0
        self.tasks: list[asyncio.Task[object] | None] = []

    async def __aenter__(self) -> Self:
        self.entered += 1
        self.tasks.append(asyncio.current_task())
        return await super().__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.tasks.append(asyncio.current_task())
        await super().__aexit__(exc_type, exc, traceback)


class Opener:
    """Opens a new toolset each time, as a config of a server does."""

    def __init__(self) -> None:
        self.made: list[Scripted] = []

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[Toolset, None]:
        toolset = Scripted([spec("read")])
        self.made.append(toolset)
        async with toolset:
            yield toolset


def says(*texts: str) -> ScriptedModel:
    return ScriptedModel(list(texts))


async def test_a_toolset_is_open_while_a_run_goes_on_and_closed_after_it() -> None:
    toolset = Guarded()

    def look(request: ModelRequest) -> str:
        return f"open: {toolset.open}"

    result = await Agent(ScriptedModel([look]), tools=toolset).send("go")

    assert result.text == "open: 1"
    assert toolset.open == 0


@pytest.mark.requirement("D19", "R81")
async def test_a_run_that_fails_closes_what_it_opened_too() -> None:
    toolset = Guarded()

    with pytest.raises(ModelError):
        await Agent(ScriptedModel([ModelError("busy", model="m")]), tools=toolset).send("go")

    assert (toolset.entered, toolset.open) == (1, 0)


async def test_in_async_with_a_toolset_stays_open_between_runs() -> None:
    toolset = Guarded()

    async with Agent(says("a", "b"), tools=toolset) as agent:
        await agent.send("go")
        assert toolset.open == 1
        await agent.send("go")

    assert (toolset.open, toolset.entered) == (0, 1)


async def test_what_was_open_before_stays_open() -> None:
    toolset = Guarded()
    async with toolset:
        async with Agent(says("a"), tools=toolset) as agent:
            await agent.send("go")
            assert toolset.open == 2
        assert toolset.open == 1


async def test_entering_an_agent_counts_and_the_last_to_leave_closes() -> None:
    toolset = Guarded()
    agent = Agent(says("a"), tools=toolset)

    async with agent:
        async with agent:
            pass
        assert toolset.open == 1
    assert toolset.open == 0


async def test_a_toolset_is_entered_and_left_in_one_task_whoever_opens_and_closes() -> None:
    toolset = Guarded()
    agent = Agent(says("a"), tools=toolset)

    async def enter() -> None:
        await agent.__aenter__()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter)
    await agent.close()

    entered, left = toolset.tasks
    assert entered is left
    assert entered is not asyncio.current_task()


async def test_toolsets_open_at_the_same_time() -> None:
    both = anyio.Event()
    waiting: list[str] = []

    def opener(name: str):  # type: ignore[no-untyped-def]
        @asynccontextmanager
        async def opened() -> AsyncGenerator[Toolset, None]:
            waiting.append(name)
            if len(waiting) == 2:
                both.set()
            await both.wait()
            yield Scripted([spec(name)])

        return opened

    model = says("a")
    agent = Agent(model, mcp_servers={"one": opener("a"), "two": opener("b")})
    await agent.send("go")

    assert [tool.name for tool in model.requests[0].tools] == ["one_a", "two_b"]


@pytest.mark.requirement("C3")
async def test_a_toolset_that_cannot_be_opened_is_skipped_and_told() -> None:
    good = Scripted([spec("read")])

    def broken() -> Toolset:
        return Scripted([spec("never")], fault=ConnectionError("no route"))

    model = says("a", "b")
    async with Agent(model, tools=good, mcp_servers={"bad": broken}) as agent:
        await agent.send("go")

        assert [tool.name for tool in model.requests[0].tools] == ["read"]
        assert str(agent.errors["bad"]) == "no route"
        assert good.open == 1
    assert good.open == 0


class Late:
    """Opens a toolset, which cannot be reached before it has come."""

    def __init__(self) -> None:
        self.there = False
        self.attempts = 0

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[Toolset, None]:
        self.attempts += 1
        if not self.there:
            raise ConnectionError("no route")
        async with Scripted([spec("read")]) as toolset:
            yield toolset


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before it opens", "after it has opened"])
async def test_an_agent_that_keeps_trying_finds_a_server_that_was_down_when_it_opened(when: str) -> None:
    late = Late()
    model = says("a", "b")
    agent = Agent(model, mcp_servers={"late": late})
    if when == "before it opens":
        await agent.keep_trying()
    with anyio.fail_after(PATIENCE):
        async with agent:
            await agent.keep_trying()
            await agent.send("go")
            assert str(agent.errors["late"]) == "no route"
            late.there = True
            while "late_read" not in [tool.name for tool in agent.tools.snapshot()]:
                await anyio.sleep(0.02)
            await agent.send("go")

            assert agent.errors == {}

    assert [[tool.name for tool in request.tools] for request in model.requests] == [[], ["late_read"]]


@pytest.mark.slow
async def test_an_agent_that_keeps_trying_closes_at_once_between_two_attempts() -> None:
    late = Late()
    agent = Agent(says("a"), mcp_servers={"late": late})
    await agent.keep_trying()
    with anyio.fail_after(CLOSE_SECONDS - 1):
        async with agent:
            while late.attempts < 3:  # the next one is seconds away
                await anyio.sleep(0.02)
        attempts = late.attempts

    await anyio.sleep(0)
    assert late.attempts == attempts


async def test_an_agent_that_does_not_keep_trying_opens_a_server_once() -> None:
    late = Late()
    async with Agent(says("a", "b"), mcp_servers={"late": late}) as agent:
        await agent.send("go")
        await agent.send("go")

    assert late.attempts == 1


async def test_a_call_of_an_unknown_tool_names_the_server_that_may_have_it_and_is_down() -> None:
    model = ScriptedModel([[tool_call("late_read"), tool_call("other_read")], "done"])
    agent = Agent(model, tools=Scripted([spec("read")]), mcp_servers={"late": Late()})
    await agent.send("go")

    answered = model.requests[1].messages[-1]
    assert isinstance(answered, ToolMessage)
    texts = [outcome.result.text for outcome in answered.outcomes]
    assert texts[0].endswith("It may be a tool of 'late', which cannot be reached now")
    assert "cannot be reached" not in texts[1]


@pytest.mark.requirement("C3")
async def test_with_on_error_raise_nothing_stays_open_when_one_toolset_cannot_be_opened() -> None:
    good = Scripted([spec("read")])
    bad = Scripted([spec("never")], fault=ConnectionError("no route"))
    agent = Agent(says("a"), tools=[good, bad], on_error="raise")

    with pytest.raises(ExceptionGroup, match="could be opened"):
        await agent.send("go")
    with pytest.raises(ExceptionGroup, match="could be opened"):
        async with agent:
            pass

    assert good.open == 0


@pytest.mark.requirement("F4")
async def test_a_server_is_added_under_a_prefix_and_called_by_its_own_name() -> None:
    server = Scripted([spec("read")])
    model = ScriptedModel([tool_call("fs_read"), "done"])
    agent = Agent(model)
    agent.add_mcp(server, prefix="fs")

    await agent.send("go")

    assert [tool.name for tool in model.requests[0].tools] == ["fs_read"]
    assert [call.name for call, _ in server.calls] == ["read"]


async def test_an_opener_is_opened_anew_for_each_time_of_use() -> None:
    opener = Opener()
    model = ScriptedModel([tool_call("fs_read"), "done", "again"])
    agent = Agent(model, mcp_servers={"fs": opener})

    await agent.send("go")
    await agent.send("go")

    assert [one.open for one in opener.made] == [0, 0]
    assert len(opener.made[0].calls) == 1
    assert agent.tools.list().names == ()


async def test_a_toolset_that_is_added_while_a_run_goes_on_is_opened_for_its_next_turn() -> None:
    opener = Opener()

    def grow() -> str:
        agent.add_mcp(opener, prefix="fs")
        return "grown"

    model = ScriptedModel([tool_call("grow"), tool_call("fs_read"), "done"])
    agent = Agent(model, tools=[grow])

    result = await agent.send("go")

    assert [tool.name for tool in model.requests[1].tools] == ["grow", "fs_read"]
    assert result.text == "done"
    assert opener.made[0].open == 0


async def test_the_tools_of_one_run_are_closed_with_it() -> None:
    toolset = Guarded()

    async with Agent(says("a", "b")) as agent:
        await agent.send("go", tools=toolset)

        assert (toolset.entered, toolset.open) == (1, 0)


async def test_two_runs_at_once_share_what_is_open() -> None:
    opener = Opener()
    both = anyio.Event()

    async def meet(request: ModelRequest) -> str:
        if len(model.requests) == 2:
            both.set()
        await both.wait()
        return "ok"

    model = ScriptedModel(meet)
    agent = Agent(model, mcp_servers={"fs": opener})
    first, second = agent.send("a").start(), agent.send("b").start()
    await first
    await second

    assert len(opener.made) == 1
    assert opener.made[0].open == 0


async def test_a_run_that_is_cancelled_while_its_tools_open_leaves_nothing_open() -> None:
    opening = anyio.Event()
    left: list[str] = []

    @asynccontextmanager
    async def slow() -> AsyncGenerator[Toolset, None]:
        opening.set()
        try:
            await anyio.sleep_forever()
            yield Scripted()
        finally:
            left.append("left")

    agent = Agent(says("a"), mcp_servers={"slow": slow})
    run = agent.send("go").start()
    with anyio.fail_after(CLOSE_SECONDS - 1):  # it is not waited for like one that closes
        await opening.wait()
        run.cancel()
        result = await run

    assert result.status == "cancelled"
    assert left == ["left"]


class Slow(Scripted):
    """A toolset that takes its time to leave, and notes what happens when."""

    def __init__(self) -> None:
        super().__init__([spec("read")])
        self.may_leave = anyio.Event()
        self.leaving = anyio.Event()
        self.noted: list[str] = []

    async def __aenter__(self) -> Self:
        self.noted.append("entered")
        return await super().__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leaving.set()
        await self.may_leave.wait()
        self.noted.append("left")
        await super().__aexit__(exc_type, exc, traceback)


async def test_a_toolset_leaves_in_peace_and_is_entered_again_only_then() -> None:
    toolset = Slow()
    agent = Agent(says("a", "b"), tools=toolset)
    first = agent.send("go").start()
    await toolset.leaving.wait()
    second = agent.send("go").start()
    await anyio.wait_all_tasks_blocked()
    assert toolset.noted == ["entered"]
    assert second.status == "queued"
    toolset.may_leave.set()
    assert [(await run).text for run in (first, second)] == ["a", "b"]

    assert toolset.noted == ["entered", "left", "entered", "left"]


async def test_a_tool_may_close_its_own_agent() -> None:
    toolset = Guarded()

    async def leave() -> None:
        await agent.close()
        await anyio.sleep_forever()

    agent = Agent(ScriptedModel([tool_call("leave"), "x"]), tools=[toolset, leave])
    with anyio.fail_after(CLOSE_SECONDS - 1):
        async with agent:
            run = agent.send("go")
            assert (await run).status == "cancelled"
            assert toolset.open == 0


async def test_connections_of_a_model_named_by_a_text_are_closed_and_those_of_a_given_one_are_not() -> None:
    async def hello(request: Received) -> Answer:
        return said("hello")

    async with serve(hello) as server:
        named = Agent(f"{server.url}#m")
        async with named:
            await named.send("go")
            await named.send("go")
        assert server.connections == 1
        await named.send("go")
        assert server.connections == 2

    async with serve(hello) as server, OpenAICompatibleModel(server.url, model="m") as given:
        await Agent(given).send("go")
        await Agent(given).send("go")
        assert server.connections == 1


def test_an_agent_works_in_one_event_loop_after_another() -> None:
    toolset = Guarded()
    agent = Agent(says("a", "b"), tools=toolset)

    async def once() -> str:
        return (await agent.send("go", session="s")).text

    assert [asyncio.run(once()), asyncio.run(once())] == ["a", "b"]
    assert toolset.open == 0


def test_a_loop_that_ends_in_the_middle_of_a_run_ends_the_run() -> None:
    toolset = Guarded()

    async def forever() -> None:
        await anyio.sleep_forever()

    agent = Agent(ScriptedModel([tool_call("forever"), "x"]), tools=[toolset, forever])
    runs: list[Run] = []

    async def leave() -> None:
        run = agent.send("go")
        runs.append(run)
        async for event in run:
            if isinstance(event, StepStarted):
                return

    asyncio.run(leave())

    assert runs[0].status == "cancelled"
    assert toolset.open == 0


async def held(agent: Agent, begun: threading.Event, end: threading.Event) -> str:
    """Await a run that goes on until it is told to end."""
    run = agent.send("hold").start()
    async for event in run:
        if isinstance(event, ToolStarted):
            begun.set()
            await anyio.to_thread.run_sync(end.wait)
    return (await run).text


def test_an_agent_that_is_at_work_in_one_event_loop_refuses_another_and_takes_it_afterwards() -> None:
    toolset, begun, end = Guarded(), threading.Event(), threading.Event()

    async def hold() -> None:
        """Wait."""
        await anyio.to_thread.run_sync(end.wait)

    async def later(sent: str) -> str:
        return (await agent.send(sent, session="s")).text

    async def entered() -> None:
        async with agent:
            raise AssertionError("it is at work elsewhere")

    agent = Agent(ScriptedModel([tool_call("hold"), "held", "later"]), name="busy", tools=[toolset, hold])
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(asyncio.run(held(agent, begun, end))))
    thread.start()
    try:
        assert begun.wait(PATIENCE)
        for use in (lambda: later("now"), entered):
            with pytest.raises(
                RuntimeError,
                match=r"agent 'busy' is at work in the event loop <.*> and was used in <.*>; make an agent for",
            ):
                asyncio.run(use())
        assert toolset.open == 1
    finally:
        end.set()
        thread.join()

    assert (told, asyncio.run(later("then"))) == (["held"], "later")
    assert toolset.open == 0


def test_a_loop_that_was_torn_down_with_the_agent_open_does_not_keep_it_from_the_next() -> None:
    toolset = Guarded()
    agent = Agent(says("a", "b"), tools=toolset)

    async def leave_open() -> None:
        await agent.__aenter__()
        await agent.send("go", session="s")

    async def once() -> str:
        async with agent:
            return (await agent.send("go", session="s")).text

    asyncio.run(leave_open())

    assert asyncio.run(once()) == "b"
    assert toolset.open == 0


def test_what_is_no_server_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="server 'fs'"):
        Agent(says()).add_mcp(7, name="fs")


def test_what_offers_no_tools_is_refused() -> None:
    with pytest.raises(ConfigError):
        Agent(says(), tools="")
    with pytest.raises(ConfigError):
        Agent(says(), tools=[3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


@pytest.mark.requirement("R48", "R77")
async def test_tools_of_a_real_server_and_plain_functions_are_all_the_same_to_a_run() -> None:
    server = create_mcp_server(name="math", version="1")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    def double(number: int) -> int:
        return 2 * number

    model = ScriptedModel([[tool_call("add", {"a": 1, "b": 2}), tool_call("double", {"number": 4})], "3 and 8"])
    async with connect_mcp(server) as connection:
        result = await Agent(model, tools=[connection, double]).send("go")
        assert (await connection.call_tool("add", {"a": 2, "b": 2})).text == "4"

    told = result.messages[-2]
    assert [one.result.text for one in told.outcomes] == ["3", "8"]  # type: ignore[union-attr]


@pytest.mark.requirement("C20", "R22")
async def test_tools_of_two_servers_with_one_name_are_told_apart() -> None:
    def search(q: str) -> str:
        return q

    one, two = (create_mcp_server(name=name, version="1", tools=[search]) for name in ("one", "two"))
    async with connect_mcp(one, name="one") as a, connect_mcp(two, name="two") as b:
        agent = Agent(ScriptedModel(["x"]), tools=[*await a.list_tools(), *await b.list_tools()])
        assert agent.tools.list().names == ("search", "two_search")
        assert [tool.server for tool in agent.tools.list()] == ["one", "two"]
        assert (await agent.tools.list()["two_search"].execute({"q": "?"})).text == "?"
        with pytest.raises(DuplicateToolError):
            Agent(ScriptedModel(["x"]), tools=[search, search])
