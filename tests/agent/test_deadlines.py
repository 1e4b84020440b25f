"""Runs that wait for a person have a deadline: a reminder before it, and an end of the wait, each once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tests.agent.faulty_store import FaultyStore, ProcessDiedError
from tests.clocks import Clock
from tests.jobs.places import PLACES, url_of, working
from tests.redis_server import RedisServer
from toolweave import Agent, Backend, ScriptedModel, tool_call
from toolweave.agent import RunRecord, RunStatuses, WaitingNotice, WaitingPolicy
from toolweave.errors import RunError
from toolweave.jobs import Retention
from toolweave.models import ModelRequest, ToolMessage
from toolweave.state import MemoryStore, Store

DAY = 86_400.0
RUN = "the-run"


@dataclass
class Desk:
    """A store, a clock, and an agent that deletes files after a yes."""

    clock: Clock = field(default_factory=Clock)
    deleted: list[str] = field(default_factory=list[str])
    notices: list[WaitingNotice] = field(default_factory=list[WaitingNotice])

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock)
        self.statuses = RunStatuses(self.store, clock=self.clock)

    def agent(self, **options: Any) -> Agent:
        """Return the agent."""

        def delete(name: str) -> str:
            self.deleted.append(name)
            return f"{name} is deleted"

        if "backend" not in options:
            options.setdefault("store", self.store)
        agent = Agent(ScriptedModel(self._answer), name="desk", tools=[delete], confirm="always", **options)
        assert agent.durable is not None
        agent.durable.clock = self.clock
        return agent

    async def note(self, notice: WaitingNotice) -> None:
        self.notices.append(notice)

    def _answer(self, request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return " and ".join(one.result.text for one in last.outcomes)
        return [tool_call("delete", {"name": name}, id=f"c-{name}") for name in "ab"]


def policy(**options: Any) -> WaitingPolicy:
    given: dict[str, Any] = {"seconds": 3 * DAY, "remind_seconds": DAY, **options}
    return WaitingPolicy(**given)


async def parked(desk: Desk, **options: Any) -> str:
    """Return the id of a run that waits for two answers."""
    result = await desk.agent(waiting=policy(**options)).send("go", attended="later")
    assert result.status == "waiting"
    return result.run_id


async def record_of(desk: Desk, run_id: str) -> RunRecord:
    info = await desk.statuses.get(run_id)
    assert info is not None
    return info.record


async def test_a_run_that_waits_is_reminded_of_once_and_denied_at_its_deadline() -> None:
    desk = Desk()
    run_id = await parked(desk)
    assert (await record_of(desk, run_id)).due_at == desk.clock.now + 3 * DAY
    assert await desk.statuses.apply_deadlines() == []

    desk.clock.now += 2 * DAY
    [reminder] = await desk.statuses.apply_deadlines()
    assert (reminder.kind, reminder.run_id, reminder.agent, reminder.session) == ("reminder", run_id, "desk", None)
    assert reminder.due_at == desk.clock.now + DAY
    assert [call.call_id for call in reminder.calls] == ["c-a", "c-b"]
    desk.clock.now += DAY - 1
    assert await desk.statuses.apply_deadlines() == []
    assert [one.run_id for one in await desk.statuses.waiting_runs()] == [run_id]

    desk.clock.now += 1
    [denied] = await desk.statuses.apply_deadlines()
    assert (denied.kind, [call.call_id for call in denied.calls]) == ("denied", ["c-a", "c-b"])
    assert await desk.statuses.waiting_runs() == []
    assert await desk.statuses.apply_deadlines() == []
    result = await (await desk.agent().resume(run_id))
    assert result.status == "completed"
    assert result.text.count("nobody answered in time") == 2
    assert desk.deleted == []


async def test_a_run_is_cancelled_at_its_deadline_where_its_owner_wants_that() -> None:
    desk = Desk()
    run_id = await parked(desk, when_due="cancel", remind_seconds=None)
    desk.clock.now += 2.5 * DAY
    assert await desk.statuses.apply_deadlines() == []
    desk.clock.now += DAY
    assert [one.kind for one in await desk.statuses.apply_deadlines()] == ["cancelled"]
    assert (await record_of(desk, run_id)).status == "cancelled"
    assert await desk.statuses.apply_deadlines() == []


async def test_an_answer_to_one_of_two_calls_leaves_the_deadline_where_it_is() -> None:
    desk = Desk()
    run_id = await parked(desk)
    due_at = (await record_of(desk, run_id)).due_at
    desk.clock.now += 2.5 * DAY
    assert not await desk.statuses.approve(run_id, "c-a")
    assert (await record_of(desk, run_id)).due_at == due_at
    desk.clock.now += DAY
    [denied] = await desk.statuses.apply_deadlines()
    assert [call.call_id for call in denied.calls] == ["c-b"]
    await (await desk.agent().resume(run_id))
    assert desk.deleted == ["a"]


async def test_a_run_that_was_answered_has_no_deadline_and_one_that_waits_again_has_a_new_one() -> None:
    desk = Desk()
    run_id = await parked(desk)
    for call in ("c-a", "c-b"):
        await desk.statuses.approve(run_id, call)
    assert (await record_of(desk, run_id)).due_at is None
    desk.clock.now += 5 * DAY
    assert await desk.statuses.apply_deadlines() == []

    other = await parked(desk)
    assert (await record_of(desk, other)).due_at == desk.clock.now + 3 * DAY


async def test_without_a_deadline_a_run_waits_until_it_is_deleted() -> None:
    desk = Desk()
    run_id = await parked(desk, seconds=None)
    desk.clock.now += 29 * DAY
    assert await desk.statuses.apply_deadlines() == []
    assert (await record_of(desk, run_id)).status == "waiting"


async def test_the_default_deadline_comes_before_the_run_is_deleted() -> None:
    desk = Desk()
    result = await desk.agent(retention=Retention(run_seconds=4 * DAY)).send("go", attended="later")
    desk.clock.now += 2 * DAY
    assert [one.kind for one in await desk.statuses.apply_deadlines()] == ["denied"]
    assert (await record_of(desk, result.run_id)).status == "pending"
    result = await desk.agent().send("go", attended="later")
    assert (await record_of(desk, result.run_id)).due_at == desk.clock.now + 14 * DAY


async def test_of_many_processes_one_applies_a_deadline() -> None:
    desk = Desk()
    await parked(desk)
    notices: Counter[str] = Counter()

    async def apply() -> None:
        notices.update(one.kind for one in await RunStatuses(desk.store, clock=desk.clock).apply_deadlines())

    for _ in range(2):
        desk.clock.now += 2 * DAY
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(apply)
    assert notices == {"reminder": 1, "denied": 1}


async def test_a_deadline_is_applied_although_the_process_that_began_with_it_died() -> None:
    for number in range(1, 6):
        desk = Desk()
        run_id = await parked(desk)
        desk.clock.now += 4 * DAY
        with suppress(ProcessDiedError):
            await RunStatuses(FaultyStore(desk.store, number, "dies after"), clock=desk.clock).apply_deadlines()
        desk.clock.now += 61
        await desk.statuses.apply_deadlines()
        result = await (await desk.agent().resume(run_id))
        assert result.text.count("nobody answered in time") == 2, number


async def test_an_answer_that_comes_at_the_deadline_counts() -> None:
    class AnsweredStore(FaultyStore):
        """A view of a store in which a person answers right before the calls are denied."""

        async def get(self, collection: str, key: str) -> Any:
            if collection == "run-journal":
                for call in ("c-a", "c-b"):
                    with suppress(RunError):
                        await desk.statuses.approve(run_id, call)
            return await super().get(collection, key)

    desk = Desk()
    run_id = await parked(desk)
    desk.clock.now += 4 * DAY
    view: Store = AnsweredStore(desk.store)
    await RunStatuses(view, clock=desk.clock).apply_deadlines()
    result = await (await desk.agent().resume(run_id))
    assert result.status == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
async def test_workers_apply_deadlines_once_and_continue_the_run(place: str, redis_server: RedisServer | None) -> None:
    desk = Desk()
    backend = Backend(url_of(place, redis_server))
    agents = [desk.agent(backend=backend, waiting=policy(notify=desk.note)) for _ in range(2)]
    async with backend:
        run = await agents[0].submit("go")
        async with working(backend, agents[0]):
            while (await run.status()).status != "waiting":
                await anyio.sleep(0.01)
        desk.clock.now += 4 * DAY
        async with working(backend, agents[0]), working(backend, agents[1]):
            record = await run.result(timeout=60)
    assert record.status == "completed"
    assert record.text.count("nobody answered in time") == 2
    assert [one.kind for one in desk.notices] == ["denied"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"seconds": 0}, ValueError, "seconds is a number of seconds, finite and more than 0, not 0"),
        ({"seconds": -1.5}, ValueError, "seconds is a number of seconds, finite and more than 0, not -1.5"),
        ({"remind_seconds": float("nan")}, ValueError, "remind_seconds is a number of seconds, finite and more than 0"),
        ({"seconds": float("inf")}, ValueError, "seconds is a number of seconds, finite and more than 0, not inf"),
        ({"seconds": "3 days"}, TypeError, "seconds is a number of seconds, not str"),
        ({"seconds": True}, TypeError, "seconds is a number of seconds, not bool"),
        ({"when_due": "approve"}, ValueError, "when_due is 'deny' or 'cancel', not 'approve'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        WaitingPolicy(**options)


def test_a_deadline_after_the_deletion_of_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a run that waits for 2\.592e\+06 s is deleted after 86400 s"):
        Desk().agent(waiting=WaitingPolicy(seconds=30 * DAY), retention=Retention(run_seconds=DAY))
