"""Runs that wait for a person: parked without a worker, answered from anywhere, carried out once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent import approved_run
from tests.jobs.places import PLACES, url_of, working
from tests.programs import ran
from tests.redis_server import RedisServer
from toolweave import Agent, ScriptedModel
from toolweave.agent import ApprovalRequested, RunStatuses, SubmittedRun
from toolweave.errors import RunError
from toolweave.jobs import Backend
from toolweave.models import ModelRequest, ToolMessage, UserMessage, tool_call
from toolweave.state import MemoryStore, SqliteStore
from toolweave.tools import tool

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[2]
WRITES = 18
"""How often the run of `approved_run.py` and its person write to the store when nobody kills it."""
KILLS = [
    *(f"put:{number}" for number in range(1, WRITES + 1)),
    *(f"{when}:{line}" for line in approved_run.LINES for when in ("before", "after")),
]


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, redis_server: RedisServer | None) -> str:
    return url_of(request.param, redis_server)


class Desk:
    """An agent that deletes what it is told to, and looks meanwhile; deleting needs a yes."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.looked = 0
        self.text = "Delete a file."

    def agent(self, **options: Any) -> Agent:
        """Return the agent."""

        def delete(name: str) -> str:
            self.deleted.append(name)
            return f"{name} is deleted"

        def look() -> str:
            self.looked += 1
            return "there are files"

        tools = [
            tool(delete, description=self.text),
            tool(look, description="Look.", annotations={"readOnlyHint": True}),
        ]
        return Agent(ScriptedModel(self._answer), name="desk", tools=tools, confirm="destructive", **options)

    def _answer(self, request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return " and ".join(one.result.text for one in last.outcomes)
        assert isinstance(last, UserMessage)
        names = last.text.split()
        deleting = [tool_call("delete", {"name": name}, id=f"c-{name}") for name in names if name != "nothing"]
        return [*deleting, tool_call("look", id="l")] if deleting else "nothing is done"


@asynccontextmanager
async def parked(backend: Backend, desk: Desk, names: str = "a", **options: Any) -> AsyncGenerator[SubmittedRun]:
    """Submit a run to a worker that has one slot; yield the run once it waits, while the worker works."""
    agent = desk.agent(backend=backend)
    async with backend, working(backend, agent, concurrency=1):
        run = await agent.submit(names, **options)
        await reached(run, "waiting")
        yield run


async def reached(run: SubmittedRun, status: str) -> None:
    """Wait until a run has this status."""
    while (await run.status()).status != status:
        await anyio.sleep(0.01)


async def test_a_submitted_run_that_needs_a_yes_waits_without_a_worker_and_goes_on_after_it(url: str) -> None:
    desk = Desk()
    async with parked(Backend(url), desk) as run:
        [call] = await run.waiting()
        before = list(desk.deleted)
        goes_on = await run.approve(call.call_id)
        record = await run

    assert (call.run_id, call.call_id, call.tool, call.arguments) == (run.id, "c-a", "delete", {"name": "a"})
    assert (call.description, call.server, call.repeats) == ("Delete a file.", None, False)
    assert (before, goes_on, desk.deleted, desk.looked) == ([], True, ["a"], 1)
    assert (record.status, record.text) == ("completed", "a is deleted and there are files")


async def test_the_one_slot_of_a_worker_is_free_while_a_run_waits() -> None:
    backend, desk = Backend("memory://"), Desk()
    async with parked(backend, desk):
        record = await (await desk.agent(backend=backend).submit("nothing"))

    assert record.text == "nothing is done"


async def test_a_call_that_is_denied_later_is_an_error_that_the_model_reads() -> None:
    desk = Desk()
    async with parked(Backend("memory://"), desk) as run:
        await run.deny("c-a", reason="it is needed")
        record = await run

    assert record.text == "the call of tool 'delete' was not allowed: it is needed and there are files"
    assert desk.deleted == []


async def test_a_run_goes_on_after_the_last_answer() -> None:
    desk = Desk()
    async with parked(Backend("memory://"), desk, "a b") as run:
        first = await run.approve("c-a")
        left = [call.call_id for call in await run.waiting()]
        still = (await run.status()).status
        second = await run.deny("c-b")
        await run

    assert (first, left, still, second) == (False, ["c-b"], "waiting", True)
    assert (desk.deleted, desk.looked) == (["a"], 1)


async def test_an_answer_that_is_remembered_counts_for_all_waiting_calls_of_the_tool_and_later_ones() -> None:
    backend, desk = Backend("memory://"), Desk()
    async with parked(backend, desk, "a b") as run:
        goes_on = await run.approve("c-a", remember="agent")
        await run
        later = await (await desk.agent(backend=backend).submit("c"))

    assert (goes_on, later.status) == (True, "completed")
    assert sorted(desk.deleted) == ["a", "b", "c"]


async def test_an_approval_counts_for_the_definition_that_was_shown() -> None:
    backend, desk = Backend("memory://"), Desk()
    async with parked(backend, desk) as run:
        [shown] = await run.waiting()
    desk.text = "Delete everything."
    await run.approve("c-a")
    async with backend, working(backend, desk.agent(backend=backend)):
        await reached(run, "waiting")
        [again] = await run.waiting()
        before = list(desk.deleted)
        await run.approve("c-a")
        await run

    assert (shown.description, again.description) == ("Delete a file.", "Delete everything.")
    assert (before, desk.deleted) == ([], ["a"])


async def test_the_first_answer_counts_and_may_be_given_again() -> None:
    backend, desk = Backend("memory://"), Desk()
    statuses = RunStatuses(backend.store, queue=backend.queue)
    async with parked(backend, desk, "a b") as run:
        given = [await run.approve("c-a") for _ in range(2)]
        with pytest.raises(RunError, match="has an answer to call 'c-a' already: it was approved"):
            await run.deny("c-a")
        with pytest.raises(RunError, match="has no call 'c-x' that waits; those that do: c-b"):
            await run.approve("c-x")
        await run.approve("c-b")
        await run
        with pytest.raises(RunError, match="has ended: its status is completed"):
            await run.approve("c-b")
        with pytest.raises(RunError, match="is not in the store"):
            await statuses.approve("no-run", "c-a")
        none = await statuses.waiting("no-run")

    assert (given, list(none), sorted(desk.deleted)) == ([False, False], [], ["a", "b"])


async def test_an_answer_that_was_given_without_the_queue_reaches_the_workers_when_it_is_given_again() -> None:
    backend, desk = Backend("memory://"), Desk()
    async with parked(backend, desk) as run:
        alone = await RunStatuses(backend.store).approve(run.id, "c-a")
        before = (await run.status()).status
        again = await run.approve("c-a")
        with anyio.fail_after(30):
            record = await run

    assert (alone, before, again) == (True, "pending", True)
    assert (record.status, desk.deleted) == ("completed", ["a"])


async def test_answers_that_are_given_at_the_same_time_let_a_run_go_on_once() -> None:
    desk = Desk()
    names = [f"f{number}" for number in range(8)]
    goes_on: list[bool] = []
    async with parked(Backend("memory://"), desk, " ".join(names)) as run:

        async def approve(name: str) -> None:
            goes_on.append(await run.approve(f"c-{name}"))

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(approve, name)
        record = await run

    assert sorted(goes_on) == [False] * 7 + [True]
    assert (sorted(desk.deleted), record.attempts) == (names, 2)


async def test_a_call_whose_worker_died_is_asked_about_anew_whatever_was_approved_before() -> None:
    backend, begun, made = Backend("memory://"), anyio.Event(), list[str]()

    async def pay() -> str:
        """Pay."""
        made.append("paid")
        if len(made) == 1:
            begun.set()
            await anyio.sleep_forever()
        return "paid"

    def agent() -> Agent:
        def answer(request: ModelRequest) -> Any:
            return [tool_call("pay", id="p")] if len(request.messages) == 1 else "done"

        return Agent(ScriptedModel(answer), tools=[pay], confirm="always", on_unknown="ask", backend=backend)

    first = agent()
    async with backend:
        async with working(backend, first):
            run = await first.submit("go")
            await reached(run, "waiting")
            await run.approve("p")
            await begun.wait()
        async with working(backend, agent()):
            await reached(run, "waiting")
            [call] = await run.waiting()
            assert len(made) == 1
            await run.approve("p")
            record = await run

    assert (call.repeats, len(made), record.text) == (True, 2, "done")


async def test_a_run_that_waits_can_be_cancelled() -> None:
    desk = Desk()
    async with parked(Backend("memory://"), desk) as run:
        assert await run.cancel()
        record = await run
        with pytest.raises(RunError, match="has ended: its status is cancelled"):
            await run.approve("c-a")

    assert (record.status, desk.deleted) == ("cancelled", [])


async def test_the_next_run_of_a_session_comes_after_one_that_waits() -> None:
    backend, desk = Backend("memory://"), Desk()
    async with parked(backend, desk, session="s") as run:
        second = await desk.agent(backend=backend).submit("nothing", session="s")
        await anyio.sleep(0.3)
        held = (await second.status()).status
        await run.approve("c-a")
        await run
        record = await second

    start = await backend.store.get("conversations", "desk/s")
    assert start is not None
    said = [one["role"] for one in start.value["messages"]]
    assert (held, record.text) == ("pending", "nothing is done")
    assert said == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_without_workers_a_run_ends_as_waiting_and_is_resumed_after_the_answer(tmp_path: Path) -> None:
    desk = Desk()
    async with SqliteStore(tmp_path / "runs.db") as store:
        statuses = RunStatuses(store)
        with anyio.fail_after(60):
            result = await desk.agent(store=store).send("a", attended="later")
            waiting = await statuses.waiting_runs(agent="desk")
            elsewhere = await statuses.waiting_runs(agent="other")
            with pytest.raises(RunError, match="ended before it was done: waiting"):
                result.check()
            goes_on = await statuses.approve(result.run_id, "c-a")
            done = await (await desk.agent(store=store).resume(result.run_id))

    assert (result.status, result.stop_reason) == ("waiting", "waiting")
    assert [call.id for call in result.pending] == ["c-a"]
    assert ([one.run_id for one in waiting], elsewhere) == ([result.run_id], [])
    assert (goes_on, done.text, desk.deleted, desk.looked) == (True, "a is deleted and there are files", ["a"], 1)


async def test_a_run_that_waits_may_be_resumed_where_a_person_is() -> None:
    store, desk = MemoryStore(), Desk()
    with anyio.fail_after(60):
        result = await desk.agent(store=store).send("a", attended="later")
        run = await desk.agent(store=store).resume(result.run_id, attended=True)
        async for event in run:
            if isinstance(event, ApprovalRequested):
                run.approve("c-a")
        done = await run

    assert (done.status, desk.deleted, desk.looked) == ("completed", ["a"], 1)


async def test_a_run_can_only_wait_where_it_is_kept() -> None:
    with pytest.raises(ValueError, match="keeps no run that waits"):
        Desk().agent().send("a", attended="later")


def run_in_a_process(folder: Path, where: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.agent.approved_run", str(folder), where]
    return ran(command, cwd=CHECKOUT)


async def test_the_approved_run_that_is_killed_below_writes_as_often_as_the_kills_cover(tmp_path: Path) -> None:
    whole = run_in_a_process(tmp_path, "nowhere")

    assert whole.stdout == f"{WRITES} all is written\n", whole.stderr
    assert sorted((tmp_path / "effects").read_text().split()) == list(approved_run.LINES)


@pytest.mark.slow
@pytest.mark.parametrize("where", KILLS)
async def test_an_approved_run_killed_anywhere_has_every_effect_exactly_once(tmp_path: Path, where: str) -> None:
    killed = run_in_a_process(tmp_path, where)
    assert killed.returncode == -9, killed.stderr

    nothing: Callable[[str], None] = lambda _: None  # noqa: E731
    async with SqliteStore(tmp_path / "store.db") as store:
        text = await approved_run.go_on(approved_run.agent_of(tmp_path, store, nothing), store, tmp_path)

    assert text == "all is written"
    assert sorted((tmp_path / "effects").read_text().split()) == list(approved_run.LINES)


@pytest.mark.parametrize("place", PLACES)
async def test_an_answer_without_the_queue_has_a_worker_continue_the_run(
    redis_server: RedisServer | None, place: str
) -> None:
    backend, desk = Backend(url_of(place, redis_server)), Desk()
    agent = desk.agent(backend=backend)
    async with working(backend, agent):
        with anyio.fail_after(45):
            run = await agent.submit("a")
            while (await run.status()).status != "waiting":
                await anyio.sleep(0.01)
            assert await RunStatuses(backend.store).approve(run.id, "c-a")  # which knows the store alone
            record = await run

    assert (record.status, desk.deleted) == ("completed", ["a"])
