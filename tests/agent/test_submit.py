"""Runs that are handed to workers: recorded, done, watched and cancelled from afar, in turns within a session."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.jobs.places import PLACES, url_of, working
from tests.redis_server import RedisServer
from toolweave import Agent
from toolweave.agent import Prompt, RunStatuses
from toolweave.errors import RunError
from toolweave.jobs import Backend
from toolweave.models import AssistantMessage, ModelRequest, ScriptedModel, ToolMessage, UserMessage, tool_call
from toolweave.state import MemoryStore


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, redis_server: RedisServer | None) -> str:
    return url_of(request.param, redis_server)


def last(request: ModelRequest) -> str:
    """Return what was sent last."""
    return [one.text for one in request.messages if isinstance(one, UserMessage)][-1]


def heard(request: ModelRequest) -> str:
    """Answer with all that was said so far."""
    return " ".join(one.text for one in request.messages if not isinstance(one, ToolMessage))


def agent_at(backend: Backend, answer: Any = last, **options: Any) -> Agent:
    def say(request: ModelRequest) -> Any:
        return answer(request) if callable(answer) else answer

    return Agent(ScriptedModel(say), name=options.pop("name", "a/b"), backend=backend, **options)


async def test_what_is_submitted_is_done_by_a_worker_and_told_to_whoever_submitted_it(url: str) -> None:
    async with Backend(url) as backend:
        run = await agent_at(backend, "not here").submit("hello")
        before = await run.status()
        async with working(backend, agent_at(backend)):
            record = await run
        after = await run.status()
    assert (before.status, before.record.prompt, after.status) == ("pending", "hello", "completed")
    assert (record.run_id, record.text, record.attempts) == (run.id, "hello", 1)


@pytest.mark.slow
async def test_the_same_key_is_the_same_run_of_an_agent(url: str) -> None:
    asked: list[str] = []

    def answer(request: ModelRequest) -> str:
        asked.append(last(request))
        return "done"

    async with Backend(url) as backend:
        one, other = agent_at(backend, answer), agent_at(backend, answer, name="other")
        run, again, another, elsewhere = [
            await one.submit("x", key="k"),
            await one.submit("x", key="k"),
            await one.submit("y", key="l"),
            await other.submit("z", key="k"),
        ]
        async with working(backend, one, other):
            for submitted in (run, again, another, elsewhere):
                await submitted
            late = await one.submit("x", key="k")
            assert (await late).text == "done"
    assert run.id == again.id == late.id
    assert len({run.id, another.id, elsewhere.id}) == 3
    assert sorted(asked) == ["x", "y", "z"]


async def test_many_who_submit_one_key_at_the_same_time_have_one_run(url: str) -> None:
    async with Backend(url) as backend:
        agent = agent_at(backend)
        ids: set[str] = set()

        async def submit() -> None:
            ids.add((await agent.submit("x", key="k", session="s")).id)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(submit)
        async with working(backend, agent):
            record = await (await agent.submit("x", key="k", session="s"))
    assert ids == {record.run_id}
    assert record.attempts == 1


@pytest.mark.slow
async def test_a_key_that_stands_for_another_message_is_refused(url: str) -> None:
    async with Backend(url) as backend:
        agent = agent_at(backend)
        run = await agent.submit("x", key="k", session="s")
        await agent.send("before", session="s")
        for sent, session in (("y", "s"), ("x", "t"), ("x", None)):
            with pytest.raises(RunError, match="began with something else; its key is taken"):
                await agent.submit(sent, key="k", session=session)
        async with working(backend, agent):
            assert (await run).text == "x"
            assert (await agent.submit("x", key="k", session="s")).id == run.id


async def test_of_two_messages_that_are_submitted_with_one_key_at_the_same_time_one_is_refused(url: str) -> None:
    refused: list[str] = []
    taken: list[str] = []
    async with Backend(url) as backend:
        agent = agent_at(backend)

        async def submit(text: str) -> None:
            try:
                await agent.submit(text, key="k", session="s")
                taken.append(text)
            except RunError:
                refused.append(text)

        async with anyio.create_task_group() as tasks:
            for text in ("one", "other"):
                tasks.start_soon(submit, text)
        (listed,) = await RunStatuses(backend.store).recent()
        async with working(backend, agent):
            record = await (await agent.submit(taken[0], key="k", session="s"))
    assert sorted(taken + refused) == ["one", "other"]
    assert [listed.record.prompt] == taken == [record.text]


async def test_who_died_while_it_submitted_is_made_up_for_by_the_next_with_its_key(url: str) -> None:
    async with Backend(url) as backend:
        agent = agent_at(backend)
        run = await agent.submit("x", key="k")
        for collection in ("runs", "run-starts", "run-times"):  # it got as far as its note
            for found in await backend.store.scan(collection):
                await backend.store.delete(collection, found.key)
        async with working(backend, agent):
            again = await agent.submit("x", key="k")
            assert (await again).text == "x"
    assert again.id == run.id


async def test_who_waits_may_stop_waiting_and_the_run_goes_on(url: str) -> None:
    go_on = anyio.Event()

    async def answer(request: ModelRequest) -> str:
        await go_on.wait()
        return "done"

    async with Backend(url) as backend, working(backend, agent_at(backend, answer)):
        run = await agent_at(backend).submit("x")
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.1)
        go_on.set()
        assert (await run.result(timeout=60)).text == "done"


async def test_a_run_that_is_cancelled_before_it_begins_is_never_begun(url: str) -> None:
    async with Backend(url) as backend:
        agent = agent_at(backend)
        run = await agent.submit("x")
        assert await run.cancel()
        assert not await run.cancel()
        async with working(backend, agent):
            other = await agent.submit("y")
            await other
            record = await run
    assert (record.status, record.stop_reason, record.attempts) == ("cancelled", "cancelled", 0)


@pytest.mark.slow
async def test_a_run_is_cancelled_from_elsewhere_while_a_worker_runs_it(url: str) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def answer(request: ModelRequest) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return "never"

    async with Backend(url) as backend, working(backend, agent_at(backend, answer)):
        run = await agent_at(backend).submit("x", session="s")
        after = await agent_at(backend).submit("y", session="other")
        await begun.wait()
        assert await RunStatuses(backend.store).cancel(run.id)
        record = await run
        assert ended.is_set()
        assert await after.cancel()
    assert (record.status, record.attempts) == ("cancelled", 1)


async def test_the_type_of_a_prompt_holds_for_whoever_answers_it(url: str) -> None:
    async with Backend(url) as backend, working(backend, agent_at(backend, '{"n": 1}')):
        run = await agent_at(backend).submit(Prompt("count", output_type=dict[str, int]))
        assert (await run).output == {"n": 1}


async def test_a_run_that_may_not_wait_is_denied_what_has_to_be_allowed(url: str) -> None:
    def wipe() -> str:
        """Wipe."""
        raise AssertionError("was called")

    def answer(request: ModelRequest) -> Any:
        found = request.messages[-1]
        return found.outcomes[0].result.text if isinstance(found, ToolMessage) else [tool_call("wipe")]

    async with Backend(url) as backend, working(backend, agent_at(backend, answer, tools=[wipe], confirm="always")):
        record = await (await agent_at(backend).submit("x", attended=False))
    assert (record.status, "nobody can be asked" in record.text) == ("completed", True)


@pytest.mark.slow
async def test_a_run_goes_on_with_the_conversation_as_it_is_when_it_begins(url: str) -> None:
    async with Backend(url) as backend:
        agent = agent_at(backend, heard)
        first = await agent.submit("1", session="s")
        second = await agent.submit("2", session="s")
        spoken = (await agent.send("0", session="s")).text
        async with working(backend, agent_at(backend, heard)):
            texts = [(await run).text for run in (first, second)]
    assert spoken == "0"
    assert texts == ["0 0 1", "0 0 1 0 0 1 2"]


@pytest.mark.slow
async def test_runs_of_one_session_take_turns_in_the_order_in_which_they_were_submitted(url: str) -> None:
    going: set[str] = set()
    order: list[str] = []

    async def answer(request: ModelRequest) -> str:
        assert not going, "two at the same time"
        going.add(last(request))
        order.append(last(request))
        for _ in range(20):
            await anyio.sleep(0)
        going.clear()
        return f"({last(request)})"

    async with Backend(url) as backend:
        client = agent_at(backend)
        runs = [await client.submit(str(number), session="a/s") for number in range(5)]
        async with working(backend, agent_at(backend, answer)), working(backend, agent_at(backend, answer)):
            records = [await run for run in runs]
        assert client.durable is not None
        spoken = await client.durable.conversations.load("a/s")
    assert [record.text for record in records] == ["(0)", "(1)", "(2)", "(3)", "(4)"]
    assert order == ["0", "1", "2", "3", "4"]
    assert [one.text for one in spoken if isinstance(one, AssistantMessage)] == [f"({n})" for n in range(5)]


async def test_runs_of_two_sessions_go_on_at_the_same_time(url: str) -> None:
    waiting: set[str] = set()
    both = anyio.Event()

    async def answer(request: ModelRequest) -> str:
        waiting.add(last(request))
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return "done"

    async with Backend(url) as backend, working(backend, agent_at(backend, answer)):
        client = agent_at(backend)
        # the one's name begins like the other's
        runs = [await client.submit("1", session="a"), await client.submit("2", session="a/b")]
        assert [(await run).text for run in runs] == ["done", "done"]


async def test_a_run_of_a_session_that_is_cancelled_does_not_hold_up_the_others(url: str) -> None:
    async with Backend(url) as backend:
        agent = agent_at(backend)
        first, second = await agent.submit("1", session="s"), await agent.submit("2", session="s")
        await first.cancel()
        async with working(backend, agent):
            assert (await second).text == "2"


async def test_an_agent_without_workers_says_that_it_has_none() -> None:
    for agent in (Agent(ScriptedModel(["x"])), Agent(ScriptedModel(["x"]), store=MemoryStore())):
        with pytest.raises(ValueError, match=r"Agent\(\.\.\., backend=Backend\(url\)\)"):
            await agent.submit("x")


def test_a_backend_has_the_store() -> None:
    with pytest.raises(ValueError, match="a backend has a store"):
        Agent(ScriptedModel(["x"]), store=MemoryStore(), backend=Backend("memory://"))


async def test_a_run_that_is_no_longer_kept_is_not_waited_for() -> None:
    backend = Backend("memory://")
    run = await agent_at(backend).submit("x")
    await backend.store.delete("runs", run.id)
    with pytest.raises(RunError, match="is not in the store"):
        await run
