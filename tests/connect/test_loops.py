"""Connections on event loops of every kind, one after the other and side by side in threads."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from importlib.util import find_spec
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from tests.connect.targets import eventually, group_lives, pid_of
from tests.programs import ran
from tests.servers.fixtures import echo_command, fault_command, http_server
from toolweave import Callbacks, ConnectionClosedError, ErrorKind, McpConnection, connect_mcp
from toolweave.connect import ConnectionState, SamplingResult
from toolweave.errors import WrongLoopError
from toolweave.testing import stdio_server_command

T = TypeVar("T")


def loop_factories() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    import uvloop

    return [asyncio.new_event_loop, uvloop.new_event_loop]


async def whole_life() -> int:
    async with connect_mcp(echo_command()) as connection:
        big = "x" * 300_000
        assert (await connection.call_tool("echo", {"text": big})).text == big
        assert (await (await connection.list_tools())["crash"].execute()).is_error
        await eventually(lambda: connection.restarts == 1 and connection.state is ConnectionState.READY)
        assert (await connection.call_tool("echo", {"text": "again"})).text == "again"
        return pid_of(connection)


async def stubborn_life() -> int:
    async with connect_mcp(fault_command("ignores_sigterm"), timeout={"close": 0.5}) as connection:
        return pid_of(connection)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["asyncio", "uvloop"])
def test_a_whole_life_works_on_each_event_loop(number: int) -> None:
    factory = loop_factories()[number]
    with asyncio.Runner(loop_factory=factory) as runner:
        assert not group_lives(runner.run(whole_life()))
        assert not group_lives(runner.run(stubborn_life()))


@pytest.mark.parametrize("number", [0, 1], ids=["asyncio", "uvloop"])
def test_http_works_on_each_event_loop(number: int) -> None:
    async def use(url: str) -> str:
        async with connect_mcp(url) as connection:
            return (await connection.call_tool("echo", {"text": "hi"})).text

    with http_server("--era", "dual") as url, asyncio.Runner(loop_factory=loop_factories()[number]) as runner:
        assert runner.run(use(url)) == "hi"
        assert runner.run(use(url)) == "hi"


def test_what_a_server_asks_and_reports_is_taken_where_sniffio_is_installed() -> None:
    assert find_spec("sniffio") is not None  # OpenAI's and Anthropic's SDKs bring it; anyio then asks it
    reported: list[float] = []

    async def use() -> str:
        callbacks = Callbacks(sampling=lambda request: SamplingResult(content="said", model="parrot"))
        command = stdio_server_command("--asks", "--version", "2025-11-25")
        with anyio.fail_after(60):
            async with connect_mcp(command, callbacks=callbacks) as connection:
                await connection.call_tool(
                    "steps_later", {"steps": 2}, on_progress=lambda progress: reported.append(progress.progress)
                )
                return (await connection.call_tool("sample")).text

    assert "said" in asyncio.run(use())  # not in a test of anyio's, which tells sniffio the library
    assert reported == [1, 2]


@pytest.mark.slow
def test_loops_in_several_threads_do_not_disturb_each_other() -> None:
    groups: list[int] = []

    def work() -> None:
        groups.append(asyncio.run(whole_life()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(groups) == 3
    assert not any(group_lives(group) for group in groups)


async def test_tools_may_be_called_from_a_thread_with_a_loop_of_its_own() -> None:
    async with connect_mcp(echo_command()) as connection:

        async def use() -> list[str]:
            texts = [(await connection.call_tool("echo", {"text": "one"})).text]
            with anyio.move_on_after(0.05) as scope:
                await connection.call_tool("hang")
            assert scope.cancelled_caught
            return [*texts, (await (await connection.list_tools())["echo"].execute({"text": "two"})).text]

        # a loop in debug mode raises where another thread touches what belongs to it
        there = anyio.to_thread.run_sync(lambda: asyncio.run(use(), debug=True), abandon_on_cancel=True)
        assert await there == ["one", "two"]
        assert (await connection.call_tool("echo", {"text": "three"})).text == "three"


def test_a_call_from_another_loop_ends_with_the_loop_of_the_connection() -> None:
    ended: list[BaseException] = []

    async def leave() -> threading.Thread:
        connection = await connect_mcp(echo_command())
        before = len(asyncio.all_tasks())

        def use() -> None:
            try:
                asyncio.run(connection.call_tool("hang"))
            except ConnectionClosedError as exc:
                ended.append(exc)

        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        await eventually(lambda: len(asyncio.all_tasks()) > before)
        return thread  # and with it the loop ends, and cancels what is on it

    thread = asyncio.run(leave())
    thread.join(60)
    assert len(ended) == 1


async def in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do something in a thread with a loop of its own, in debug mode: it raises where another thread interferes."""
    with anyio.fail_after(60):
        return await anyio.to_thread.run_sync(lambda: asyncio.run(work(), debug=True), abandon_on_cancel=True)


@pytest.mark.requirement("R17")
async def test_a_connection_is_asked_and_closed_from_another_threads_loop() -> None:
    connection = await connect_mcp(echo_command())
    group = pid_of(connection)
    assert not await in_thread(connection.refresh)
    assert "echo" in (await in_thread(connection.list_tools)).names
    assert await in_thread(connection.list_prompts) == await connection.list_prompts()
    await in_thread(connection.ping)
    waits: list[float | None] = []
    wait = asyncio.wait

    async def counted(tasks: Iterable[Any], *, timeout: float | None = None) -> Any:
        done, pending = await wait(tasks, timeout=timeout)
        waits.append(None if not pending else timeout)
        return done, pending

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "wait", counted)
        await in_thread(connection.close)
    assert waits == [None]  # woken by the end, not by a bound
    assert connection.state is ConnectionState.CLOSED
    assert not group_lives(group)
    await in_thread(connection.close)


def test_closing_when_the_event_loop_has_ended_does_nothing_more() -> None:
    left = asyncio.run(_left())
    asyncio.run(left.close())
    assert left.state is ConnectionState.CLOSED
    with pytest.raises(ConnectionClosedError):
        asyncio.run(left.call_tool("echo", {"text": "x"}))


async def _left() -> McpConnection:
    return await connect_mcp(echo_command())


def test_a_connection_says_which_loops_there_are_when_its_own_does_not_run() -> None:
    one, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    connection = one.run_until_complete(_left())
    try:
        tool = one.run_until_complete(connection.list_tools())["echo"]
        refused = other.run_until_complete(tool.execute({"text": "x"})).require_error()
        assert refused.kind is ErrorKind.NOT_SENT
        for loop in (one, other):
            assert f"{id(loop):#x}" in refused.message
        for work in (connection.refresh, connection.list_tools, connection.close, connection.ping, connection.open):
            with pytest.raises(WrongLoopError, match="is not running"):
                other.run_until_complete(work())
        assert one.run_until_complete(tool.execute({"text": "x"})).text == "x"
    finally:
        one.run_until_complete(connection.close())
        one.close()
        other.close()


CLOSED_OVER = """
import asyncio, sys
from toolweave import McpConnection, connect_mcp
from toolweave.config import server_config
from toolweave.errors import WrongLoopError
from toolweave.testing import MemoryServer

async def opened():
    return await connect_mcp(MemoryServer())

one = asyncio.new_event_loop()
connection = one.run_until_complete(opened())
one.close()
try:
    asyncio.run(connection.ping())
except WrongLoopError as error:
    print("which is closed" in str(error))
asyncio.run(connection.close())
print(connection.state.value)

async def used(connection):
    async with connection:
        return connection.state.value

async def left(connection):
    await connection.__aexit__(None, None, None)

again = McpConnection(server_config(MemoryServer()))
two = asyncio.new_event_loop()
two.run_until_complete(again.__aenter__())
two.close()
asyncio.run(left(again))
print(asyncio.run(used(again)))
"""


@pytest.mark.slow
def test_a_loop_that_was_closed_over_a_connection_is_named_and_it_can_be_closed_or_left_and_opened_again() -> None:
    done = ran([sys.executable, "-c", CLOSED_OVER], check=True)
    assert done.stdout.split() == ["True", "closed", "ready"]


def test_trio_is_told_that_asyncio_is_needed() -> None:
    with pytest.raises(RuntimeError, match="Toolweave runs on asyncio"):
        connect_mcp(echo_command()).__await__().send(None)  # as any loop but asyncio's would run it
