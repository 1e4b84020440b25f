"""How the function of a tool is run: in threads of its own, and so that it ends nothing but its call."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.programs import ran
from toolweave import Agent, ScriptedModel, tool, tool_call
from toolweave.tools import CallContext, FunctionTool, ToolCall, ToolResult

NOTHING: dict[str, Any] = {}


class OddError(BaseException):
    pass


def leave() -> NoReturn:
    sys.exit(3)


def parse() -> None:
    argparse.ArgumentParser().parse_args(["--no-such-option"])


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def function() -> NoReturn:
        raise error

    return function


ENDINGS: list[tuple[Callable[[], Any], str]] = [
    (leave, "tried to end the process (exit status 3)"),
    (parse, "tried to end the process (exit status 2)"),
    (raising(KeyboardInterrupt()), "raised KeyboardInterrupt"),
    (raising(GeneratorExit()), "raised GeneratorExit"),
    (raising(OddError("odd")), "raised OddError: odd"),
    (
        raising(BaseExceptionGroup("both", [OddError(), ValueError()])),
        "raised BaseExceptionGroup: both (2 sub-exceptions)",
    ),
]


def both(function: Callable[[], Any]) -> tuple[FunctionTool[[], Any], FunctionTool[[], Any]]:
    """Return the function as a plain and as an async tool."""

    def plain() -> Any:
        return function()

    async def in_loop() -> Any:
        await anyio.lowlevel.checkpoint()
        return function()

    return tool(plain), tool(in_loop)


@pytest.mark.parametrize(("function", "said"), ENDINGS)
@pytest.mark.requirement("C2")
def test_what_ends_programs_ends_the_call_of_the_tool_that_raised_it(function: Callable[[], Any], said: str) -> None:
    plain, in_loop = both(function)

    async def main() -> tuple[str, str]:
        return (await plain.execute({})).text, (await in_loop.execute({})).text

    by_thread, by_loop = asyncio.run(main())

    assert by_thread.startswith(f"tool 'plain' {said}")
    assert by_loop.startswith(f"tool 'in_loop' {said}")


@pytest.mark.requirement("C2")
def test_a_run_of_an_agent_goes_on_when_a_tool_ends_programs() -> None:
    model = ScriptedModel([[tool_call("plain", {}), tool_call("in_loop", {})], "neither worked"])

    async def main() -> str:
        async with Agent(model, name="a", tools=list(both(leave))) as agent:
            return (await agent.send("go")).text

    assert asyncio.run(main()) == "neither worked"


def test_an_interrupt_of_the_user_is_no_error_of_the_tool_that_runs() -> None:
    @tool
    async def busy() -> None:
        signal.raise_signal(signal.SIGINT)  # which asks the main task to end
        signal.raise_signal(signal.SIGINT)  # which a tool that does not listen gets itself

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(busy.execute({}))


def test_an_interrupt_of_the_user_is_none_without_handlers_of_asyncio_either() -> None:
    @tool
    async def busy() -> None:
        signal.raise_signal(signal.SIGINT)

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(busy.execute({}))
    finally:
        loop.close()


async def test_a_cancelled_call_is_cancelled_and_no_error() -> None:
    begun = anyio.Event()

    @tool
    async def wait() -> None:
        begun.set()
        await anyio.sleep_forever()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait.execute)
            await begun.wait()
            tasks.cancel_scope.cancel()


def test_a_call_whose_event_loop_is_gone_is_closed_without_a_word() -> None:
    closed: list[str] = []

    @tool
    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append("yes")

    async def main() -> Any:
        calling = wait.toolset.call(ToolCall(name="wait"), CallContext())
        calling.send(None)
        return calling

    calling = asyncio.run(main())
    calling.close()

    assert closed == ["yes"]


async def test_calls_that_block_all_threads_of_a_tool_leave_every_other_tool_its_own() -> None:
    running, release = threading.Semaphore(0), threading.Event()

    @tool
    def block() -> str:
        running.release()
        release.wait(30)
        return "done"

    @tool
    def echo(text: str) -> str:
        return text

    results: list[str] = []

    async def call() -> None:
        results.append((await block.execute({})).text)

    async with anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(call)
        for _ in range(40):
            await anyio.to_thread.run_sync(running.acquire, limiter=anyio.CapacityLimiter(1))
        assert (await echo.execute({"text": "here"})).text == "here"
        assert not results
        release.set()

    assert results == ["done"] * 60


@pytest.mark.parametrize("most", [1, 3])
async def test_a_tool_runs_in_as_many_threads_as_it_says(most: int) -> None:
    at_work: list[int] = []
    lock = threading.Lock()
    barrier = threading.Barrier(most)
    now = 0

    @tool(threads=most)
    def work() -> None:
        nonlocal now
        with lock:
            now += 1
            at_work.append(now)
        barrier.wait(30)
        with lock:
            now -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(work.execute)

    assert max(at_work) == most
    assert len(at_work) == 6


def test_a_tool_works_in_two_event_loops_at_the_same_time() -> None:
    meeting = threading.Barrier(2)

    @tool(threads=1)
    def meet() -> str:
        meeting.wait(30)
        return "met"

    found: list[str] = []

    def run() -> None:
        async def main() -> None:
            found.append((await meet.execute({})).text)

        asyncio.run(main())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert found == ["met", "met"]


async def test_the_number_of_threads_is_refused_where_it_says_nothing() -> None:
    async def in_loop() -> None:
        pass

    def plain() -> None:
        pass

    with pytest.raises(ValueError, match="tool 'in_loop': an async function runs in no thread"):
        tool(in_loop, threads=2)
    with pytest.raises(ValueError, match="tool 'plain': threads must be 1 or more, not 0"):
        tool(threads=0)(plain)


async def test_short_calls_do_not_wait_for_one_that_takes_longer_than_it_did_before() -> None:
    release, begun = threading.Event(), threading.Event()

    @tool
    def first(wait: bool = False) -> str:
        if wait:
            begun.set()
            release.wait(20)
        return "first"

    @tool
    def second() -> str:
        return "second"

    for _ in range(20):  # both are known to be short
        assert (await first.execute({})).text == "first"
        assert (await second.execute({})).text == "second"
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.execute, dict[str, Any](wait=True))
            for _ in range(20):
                tasks.start_soon(second.execute, NOTHING)
            await anyio.to_thread.run_sync(begun.wait, 20)
            assert (await second.execute({})).text == "second"
            assert (await first.execute({})).text == "first"
            release.set()


@pytest.mark.slow
async def test_many_short_calls_at_once_each_have_their_own_answer_and_failure() -> None:
    @tool
    def odd(number: int) -> int:
        if number % 2 == 0:
            raise ValueError(f"{number} is even")
        return number

    answers: dict[int, ToolResult] = {}

    async def call(number: int) -> None:
        answers[number] = await odd.execute({"number": number})

    for _ in range(5):
        answers.clear()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(call, number)
        for number in range(200):
            assert answers[number].is_error is (number % 2 == 0)
            assert answers[number].text.split()[-1 if number % 2 else -3] == str(number)


async def test_a_cancelled_call_waits_for_its_function_which_cannot_be_stopped() -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def stubborn() -> None:
        begun.set()
        release.wait(20)
        ended.set()

    async def cancelled(scope: anyio.CancelScope) -> None:
        with scope:
            await stubborn.execute({})
            assert ended.is_set()
            await anyio.lowlevel.checkpoint()
            raise AssertionError("the cancellation was lost")

    scope = anyio.CancelScope()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled, scope)
            await anyio.to_thread.run_sync(begun.wait, 20)
            scope.cancel()
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert not ended.is_set()
            release.set()
    assert scope.cancelled_caught


async def test_a_call_that_is_cancelled_before_it_begins_does_not_run() -> None:
    runs: list[int] = []

    @tool
    def function() -> None:
        runs.append(1)

    for _ in range(3):
        await function.execute({})
    with anyio.CancelScope() as scope:
        scope.cancel()
        await function.execute({})

    assert scope.cancelled_caught
    assert len(runs) == 3


def test_threads_end_with_their_event_loop() -> None:
    seen: set[threading.Thread] = set()

    @tool
    def where() -> None:
        seen.add(threading.current_thread())

    async def main() -> None:
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(where.execute, NOTHING)

    asyncio.run(main())
    for thread in seen:
        thread.join(10)

    assert seen
    assert not any(thread.is_alive() or thread.daemon for thread in seen)


async def test_a_function_finds_the_context_of_its_caller_and_whether_that_was_cancelled() -> None:
    name: ContextVar[str] = ContextVar("name")
    begun = threading.Event()

    @tool
    def told() -> str:
        return name.get()

    @tool
    def listening() -> str:
        begun.set()
        while True:
            anyio.from_thread.check_cancelled()

    for text in ("one", "two", "three"):
        name.set(text)
        assert (await told.execute({})).text == text
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listening.execute, NOTHING)
            await anyio.to_thread.run_sync(begun.wait, 20)
            tasks.cancel_scope.cancel()


WITHOUT_ANYIOS_PARTS = """
import anyio._backends._asyncio, anyio._core._eventloop as parts
del parts.claim_worker_thread
import asyncio
from toolweave import tool

@tool
def add(a: int, b: int) -> int:
    return a + b

async def main():
    print([(await add.execute({"a": 1, "b": n})).text for n in range(3)])

asyncio.run(main())
"""


@pytest.mark.slow
def test_functions_run_where_anyio_keeps_its_worker_threads_elsewhere() -> None:
    done = ran([sys.executable, "-W", "error", "-c", WITHOUT_ANYIOS_PARTS])

    assert (done.stdout, done.stderr) == ("['1', '2', '3']\n", "")
