"""Runs of one session in several processes: each goes on with all that stands before it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.jobs.places import PLACES, url_of, working
from tests.redis_server import RedisServer
from toolweave import Agent, Backend, ScriptedModel, tool, tool_call
from toolweave.models import ModelRequest, UserMessage
from toolweave.state import MemoryStore, Store, open_store

PROCESSES, MESSAGES = 3, 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "redis"])
def test_messages_of_one_session_in_several_processes_are_one_conversation(
    tmp_path: Path, redis_url: str, kind: str
) -> None:
    place = str(tmp_path / "runs.db") if kind == "file" else redis_url
    command = [sys.executable, str(Path(__file__).with_name("session_process.py"))]
    processes = [
        subprocess.Popen(
            [*command, name, str(MESSAGES), place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "abc"
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    conversations: list[list[str]] = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        said, _ = process.communicate(timeout=120)
        conversations += json.loads(said)

    longest = max(conversations, key=len)
    assert len(longest) == PROCESSES * MESSAGES
    assert sorted(map(len, conversations)) == list(range(1, len(longest) + 1))
    assert all(longest[: len(one)] == one for one in conversations)


async def test_runs_of_one_session_of_two_agents_over_one_store_take_turns() -> None:
    store = MemoryStore()
    begun, go_on = anyio.Event(), anyio.Event()
    read: list[list[str]] = []

    async def answer(request: ModelRequest) -> str:
        read.append([one.text for one in request.messages if isinstance(one, UserMessage)])
        begun.set()
        await go_on.wait()
        return "ok"

    here, there = (Agent(ScriptedModel(answer), name="chat", store=store) for _ in range(2))
    first = here.send("first", session="s").start()
    await begun.wait()
    second = there.send("second", session="s").start()
    other = there.send("other", session="t").start()
    while len(read) < 2:
        await anyio.sleep(0.01)
    await anyio.wait_all_tasks_blocked()
    assert read == [["first"], ["other"]]
    go_on.set()
    for run in (first, second, other):
        await run

    assert read[2] == ["first", "second"]


@pytest.mark.slow
async def test_a_sent_message_waits_for_a_submitted_one_of_its_session(redis_url: str) -> None:
    begun, go_on = anyio.Event(), anyio.Event()
    read: list[list[str]] = []

    async def answer(request: ModelRequest) -> str:
        read.append([one.text for one in request.messages if isinstance(one, UserMessage)])
        begun.set()
        await go_on.wait()
        return "ok"

    backend = Backend(redis_url)
    agent, other = (Agent(ScriptedModel(answer), name="chat", backend=backend) for _ in range(2))
    async with working(backend, agent):
        submitted = await agent.submit("submitted", session="s")
        await begun.wait()
        sent = other.send("sent", session="s").start()
        await anyio.wait_all_tasks_blocked()
        assert read == [["submitted"]]
        go_on.set()
        await submitted
        await sent

    assert read[1] == ["submitted", "sent"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "redis"])
async def test_the_session_of_a_killed_process_is_free_at_once_on_this_machine(
    tmp_path: Path, redis_url: str, kind: str
) -> None:
    place = str(tmp_path / "runs.db") if kind == "file" else redis_url
    command = [sys.executable, str(Path(__file__).with_name("session_process.py")), "a", "100000", place]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        store: Store = open_store(place)
        async with store:
            with anyio.fail_after(60):
                while not await store.scan("run-leases", prefix="session:"):
                    await anyio.sleep(0.01)
            process.kill()
            process.wait()
            with anyio.fail_after(10):  # less than a lease lives
                result = await Agent(ScriptedModel(["ok"]), name="chat", store=store).send("b", session="one")

    assert result.text == "ok"


async def test_a_run_within_another_run_of_its_session_does_not_wait_for_it() -> None:
    store = MemoryStore()
    inner = Agent(ScriptedModel(["inner"]), name="chat", store=store)

    @tool
    async def ask() -> str:
        """Ask the same conversation."""
        return (await inner.send("inside", session="s")).text

    outer = Agent(ScriptedModel([tool_call("ask"), "outer"]), name="chat", tools=[ask], store=store)
    result = await outer.send("outside", session="s")

    assert result.text == "outer"


@pytest.mark.parametrize("place", PLACES)
async def test_messages_that_queue_in_a_session_are_each_delivered_when_the_one_before_has_ended(
    redis_server: RedisServer | None, place: str
) -> None:
    read: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        read.append([one.text for one in request.messages if isinstance(one, UserMessage)])
        return "ok"

    backend = Backend(url_of(place, redis_server))
    agent = Agent(ScriptedModel(answer), name="clerk", backend=backend)
    numbers = [str(number) for number in range(30)]
    async with working(backend, agent):
        # a run that is only polled waits 5 s for each run ahead of it
        runs = [await agent.submit(number, session="one") for number in numbers]
        for run in runs:
            assert (await run).status == "completed"

    assert read == [numbers[: count + 1] for count in range(len(numbers))]


async def test_a_message_that_is_cancelled_in_the_queue_of_a_session_holds_up_no_other() -> None:
    backend, go_on = Backend("memory://"), anyio.Event()

    async def answer(request: ModelRequest) -> str:
        await go_on.wait()
        return "ok"

    agent = Agent(ScriptedModel(answer), name="clerk", backend=backend)
    async with working(backend, agent):
        first, *middle, last = [await agent.submit(str(number), session="one") for number in range(12)]
        assert all([await run.cancel() for run in middle])
        go_on.set()
        records = [await run for run in (first, *middle, last)]

    assert [record.status for record in records] == ["completed", *["cancelled"] * 10, "completed"]
