"""A run outlives its process: killed anywhere it goes on where its journal ends, and in one process at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent.killed_run import LINES, RUN, CountingStore, agent_of
from toolweave import Agent
from toolweave.agent import ApprovalRequested, Durable, RunResult, RunStart, StoreJournal
from toolweave.agent._stored.records import JOURNAL, LEASES, RUNS, read_record
from toolweave.errors import ErrorKind, ModelError, RunError, StoreError
from toolweave.jobs import Lease, ask_to_cancel
from toolweave.models import (
    AssistantMessage,
    Finished,
    Message,
    ScriptedModel,
    ToolCallPart,
    ToolMessage,
    UserMessage,
    tool_call,
)
from toolweave.state import Change, MemoryStore, SqliteStore, Store, iter_documents
from toolweave.tools import tool

CHECKOUT = Path(__file__).resolve().parent.parent.parent
WRITES = 11
"""How often the run of `killed_run.py` writes to its store when nobody kills it."""
KILLS = [
    *(f"put:{number}" for number in range(1, WRITES + 1)),
    *(f"{when}:{line}" for line in LINES for when in ("before", "after")),
]


def run_in_a_process(folder: Path, where: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.agent.killed_run", str(folder), where]
    return subprocess.run(command, check=False, cwd=CHECKOUT, capture_output=True, text=True, timeout=120)


def asked(agent: Agent) -> int:
    assert isinstance(agent.model, ScriptedModel)
    return len(agent.model.requests)


async def answered(agent: Agent, run_id: str, **options: Any) -> RunResult:
    """Return what a resumed run comes to."""
    return await (await agent.resume(run_id, **options))


def nothing(_: object) -> None:
    """Let the run go on."""


@pytest.mark.slow
async def test_the_run_that_is_killed_below_writes_as_often_as_the_kills_cover(tmp_path: Path) -> None:
    whole = run_in_a_process(tmp_path, "nowhere")

    assert whole.stdout == f"{WRITES} all is written\n"
    assert sorted((tmp_path / "effects").read_text().split()) == list(LINES)


@pytest.mark.slow
@pytest.mark.parametrize("where", KILLS)
async def test_a_run_killed_anywhere_goes_on_and_every_effect_happens_exactly_once(tmp_path: Path, where: str) -> None:
    killed = run_in_a_process(tmp_path, where)
    assert killed.returncode == -9, killed.stderr

    async with CountingStore(tmp_path / "store.db", nothing) as store:
        agent = agent_of(tmp_path, store, nothing)
        turns = [found async for found in iter_documents(store, JOURNAL, f"{RUN}/") if found.key.endswith("/turn")]
        if await read_record(store, RUN) is None:  # it was killed before it existed
            result = await agent.begin([UserMessage.of("write all lines")], run_id=RUN)
        else:
            result = await answered(agent, RUN)
        record = await read_record(store, RUN)

    assert result.text == "all is written"
    assert sorted((tmp_path / "effects").read_text().split()) == list(LINES)
    assert asked(agent) == result.steps - len(turns)
    assert record is not None
    assert (record.status, record.text) == ("completed", "all is written")


async def interrupted(
    store: Store, messages: Sequence[Message], *, turns: Sequence[Finished], begun: Sequence[ToolCallPart] = ()
) -> None:
    """Leave a run in the store as a process that died leaves it."""
    spec = tool(lambda: None, name="any").spec
    journal = StoreJournal(Durable(store), RUN)
    await journal.started(RunStart(run_id=RUN, agent="agent", messages=tuple(messages), sent=len(messages)))
    for step, turn in enumerate(turns, 1):
        await journal.turn_finished(step, turn)
    for call in begun:
        await journal.call_started(len(turns), call, spec)


def turn_of(*calls: ToolCallPart) -> Finished:
    return Finished(message=AssistantMessage(parts=calls), stop_reason="tool_calls")


@pytest.mark.parametrize(
    ("annotations", "on_unknown", "made"),
    [
        (None, None, 0),
        ({"readOnlyHint": True}, None, 1),
        ({"idempotentHint": True}, None, 1),
        ({"idempotentHint": False, "readOnlyHint": False}, None, 0),
        (None, "rerun", 1),
        (None, "ask", 0),  # nobody says yes
        ({"readOnlyHint": True}, "ask", 1),
    ],
)
async def test_a_call_in_flight_is_made_again_only_where_that_does_no_harm(
    annotations: dict[str, bool] | None, on_unknown: Any, made: int
) -> None:
    store, calls = MemoryStore(), list[int]()

    @tool(annotations=annotations)
    def pay(amount: int) -> str:
        """Pay."""
        calls.append(amount)
        return "paid"

    call = tool_call("pay", {"amount": 5})
    await interrupted(store, [UserMessage.of("pay")], turns=[turn_of(call)], begun=[call])
    agent = Agent(ScriptedModel(["done"]), tools=[pay], store=store)
    run = await agent.resume(RUN, on_unknown=on_unknown)
    async for event in run:
        if isinstance(event, ApprovalRequested):
            assert run.deny(event)
    result = await run
    outcome = next(one for one in result.messages if isinstance(one, ToolMessage)).outcomes[0]

    assert result.text == "done"
    assert calls == [5] * made
    assert outcome.call_id == call.id
    if made:
        assert outcome.result.text == "paid"
    else:
        assert outcome.result.require_error().kind is ErrorKind.OUTCOME_UNKNOWN
        assert "look whether it was before calling it again" in outcome.result.text


async def test_a_person_who_is_asked_may_have_a_call_in_flight_made_again() -> None:
    store, calls = MemoryStore(), list[str]()

    @tool
    def pay() -> str:
        """Pay."""
        calls.append("paid")
        return "paid"

    call = tool_call("pay")
    await interrupted(store, [UserMessage.of("pay")], turns=[turn_of(call)], begun=[call])
    run = await Agent(ScriptedModel(["done"]), tools=[pay], store=store).resume(RUN, on_unknown="ask")
    async for event in run:
        if isinstance(event, ApprovalRequested):
            assert run.approve(event)

    assert (await run).text == "done"
    assert calls == ["paid"]


async def test_what_was_decided_about_a_call_in_flight_stands_when_the_run_is_resumed_again() -> None:
    store, call = MemoryStore(), tool_call("pay")
    await interrupted(store, [UserMessage.of("pay")], turns=[turn_of(call)], begun=[call])

    def pay() -> str:
        """Pay."""
        raise AssertionError("it was decided not to make it again")

    failing = Agent(ScriptedModel([ModelError("overloaded", model="m")]), tools=[pay], store=store)
    with pytest.raises(ModelError):
        await answered(failing, RUN)
    result = await answered(Agent(ScriptedModel(["done"]), tools=[pay], store=store), RUN, on_unknown="rerun")

    assert result.text == "done"


async def test_a_finished_call_is_replayed_though_its_tool_is_gone() -> None:
    store, call = MemoryStore(), tool_call("gone")

    def gone() -> str:
        """Be there once."""
        return "it was there"

    first = Agent(ScriptedModel([[call], ModelError("down", model="m")]), tools=[gone], store=store)
    run = first.send("go")
    with pytest.raises(ModelError):
        await run
    result = await answered(Agent(ScriptedModel(["done"]), store=store), run.id)

    assert result.text == "done"
    assert [one.outcomes[0].result.text for one in result.messages if isinstance(one, ToolMessage)] == ["it was there"]


async def test_a_resumed_run_is_offered_the_tools_that_it_had_searched_for() -> None:
    store = MemoryStore()

    def needle() -> str:
        """Sew a button on."""
        return "sewn"

    def anchor() -> str:
        """Hold a ship."""
        return "held"

    search = tool_call("search_tools", {"query": "sew a button"})
    script = ScriptedModel([[search], ModelError("down", model="m")])
    run = Agent(script, tools=[needle, anchor], store=store, defer_tools=0).send("go")
    with pytest.raises(ModelError):
        await run
    again = ScriptedModel([[tool_call("needle")], "done"])
    result = await answered(Agent(again, tools=[needle, anchor], store=store, defer_tools=0), run.id)

    assert result.text == "done"
    assert [[spec.name for spec in request.tools] for request in (script.requests[1], again.requests[0])] == [
        ["search_tools", "needle"],
        ["search_tools", "needle"],
    ]


async def test_a_run_that_failed_goes_on_after_its_last_turn_and_counts_its_attempts() -> None:
    store = MemoryStore()
    first = Agent(ScriptedModel([[tool_call("f")], ModelError("overloaded", model="m")]), tools=[lambda_f], store=store)
    run = first.send("go")
    with pytest.raises(ModelError):
        await run
    failed = await read_record(store, run.id)
    again = Agent(ScriptedModel(["done"]), tools=[lambda_f], store=store)
    result = await answered(again, run.id)
    record = await read_record(store, run.id)

    assert failed is not None
    assert (failed.status, failed.stop_reason, failed.error) == ("failed", "model_error", "model 'm': overloaded")
    assert (result.text, result.steps, asked(again)) == ("done", 2, 1)
    assert record is not None
    assert (record.status, record.attempts, record.prompt) == ("completed", 2, "go")


def lambda_f() -> int:
    """Return one."""
    return 1


lambda_f.__name__ = "f"


async def test_a_completed_run_gives_its_result_again_and_does_nothing() -> None:
    store = MemoryStore()
    run = Agent(ScriptedModel([[tool_call("f")], "done"]), tools=[lambda_f], store=store).send("go")
    first = await run
    again = Agent(ScriptedModel([]), store=store)
    second = await answered(again, run.id)

    assert (second.text, second.messages, second.usage) == (first.text, first.messages, first.usage)
    assert asked(again) == 0


@pytest.mark.parametrize("make", [MemoryStore, SqliteStore])
async def test_a_session_goes_on_in_another_process_and_its_messages_stand_once(make: Callable[[], Store]) -> None:
    async with make() as store:
        await Agent(ScriptedModel(["one"]), store=store).send("first", session="s")
        run = Agent(ScriptedModel(["two"]), store=store).send("second", session="s")
        result = await run
        began = await store.get("run-starts", run.id)
        other = await Agent(ScriptedModel(["three"]), name="other", store=store).send("hello", session="s")
        model = ScriptedModel(["?"])
        await answered(Agent(model, store=store), run.id)
        third = await Agent(ScriptedModel(["three"]), store=store).send("third", session="s")

    texts = [message.text for message in result.messages if not isinstance(message, ToolMessage)]
    assert texts == ["first", "one", "second", "two"]
    assert began is not None
    assert (began.value["shared"], len(began.value["messages"])) == (2, 1)
    assert len(other.messages) == 2
    assert model.requests == []
    assert len(third.messages) == 6


async def test_a_resumed_run_overwrites_nothing_that_its_session_said_meanwhile() -> None:
    store = MemoryStore()
    failing = Agent(ScriptedModel([ModelError("down", model="m")]), store=store).send("first", session="s")
    with pytest.raises(ModelError):
        await failing
    await Agent(ScriptedModel(["two"]), store=store).send("second", session="s")
    resumed = await answered(Agent(ScriptedModel(["one"]), store=store), failing.id)
    agent = Agent(ScriptedModel(["three"]), store=store)
    last = await agent.send("third", session="s")

    assert [one.text for one in resumed.messages if not isinstance(one, ToolMessage)] == ["first", "one"]
    texts = [one.text for one in last.messages if not isinstance(one, ToolMessage)]
    assert texts == ["second", "two", "first", "one", "third", "three"]


async def test_a_tool_allowed_for_good_is_not_asked_about_in_the_next_process_until_it_changes() -> None:
    store = MemoryStore()

    def agent(about: str) -> Agent:
        changed = tool(lambda_f, name="f", description=about)
        return Agent(ScriptedModel([[tool_call("f")], "done"]), tools=[changed], store=store, confirm="always")

    async def times_asked(agent: Agent, remember: Any) -> int:
        count = 0
        run = agent.send("go")
        async for event in run:
            if isinstance(event, ApprovalRequested):
                count += 1
                run.approve(event, remember=remember)
        assert (await run).text == "done"
        return count

    assert await times_asked(agent("Return one."), "run") == 1
    assert await times_asked(agent("Return one."), "agent") == 1
    assert await times_asked(agent("Return one."), None) == 0
    assert await times_asked(agent("Return one, and all of your money."), None) == 1


class Sleeper:
    """Sleeps until it is woken, so that a test decides when a lease is renewed."""

    def __init__(self) -> None:
        self.waiting = anyio.Event()
        self._wake = anyio.Event()

    async def __call__(self, seconds: float) -> None:
        self.waiting.set()
        await self._wake.wait()

    async def renew(self) -> None:
        """Let one renewal happen and wait until the next is awaited."""
        with anyio.fail_after(60):
            await self.waiting.wait()
            self.waiting, wake, self._wake = anyio.Event(), self._wake, anyio.Event()
            wake.set()
            await self.waiting.wait()


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def journal_of(store: Store, sleeper: Callable[[float], Awaitable[None]]) -> StoreJournal:
    return StoreJournal(Durable(store, sleep=sleeper, lease_seconds=15), RUN)


async def test_two_processes_never_run_one_run() -> None:
    clock, sleeper = Clock(), Sleeper()
    store = MemoryStore(clock=clock)
    async with journal_of(store, sleeper).held(lambda: None):
        clock.now += 14
        await sleeper.renew()
        clock.now += 14
        with pytest.raises(RunError, match=r"run 'the-run' is running elsewhere in process \d+ on "):
            async with journal_of(store, sleeper).held(lambda: None):
                raise AssertionError("both have it")
    async with journal_of(store, sleeper).held(lambda: None):
        pass

    assert await store.scan(LEASES) == []


async def test_a_run_whose_process_says_nothing_may_be_run_elsewhere_and_ends_here() -> None:
    clock, sleeper = Clock(), Sleeper()
    store = MemoryStore(clock=clock)
    ended = anyio.Event()
    with pytest.raises(RunError, match="was taken over by another process"):
        async with journal_of(store, sleeper).held(lambda: None):
            clock.now += 15
            async with journal_of(store, Sleeper()).held(lambda: None):
                try:
                    await anyio.sleep_forever()
                finally:
                    ended.set()
    assert ended.is_set()


async def test_a_machine_that_slept_keeps_its_runs_when_nobody_wanted_them() -> None:
    clock, sleeper = Clock(), Sleeper()
    store = MemoryStore(clock=clock)
    async with journal_of(store, sleeper).held(lambda: None):
        clock.now += 3_600
        await sleeper.renew()
        assert await store.get(LEASES, RUN) is not None


async def test_a_store_that_is_busy_for_a_while_does_not_end_a_run() -> None:
    class Busy(MemoryStore):
        busy = False

        async def write(self, *args: Any, **options: Any) -> Sequence[int] | None:
            if self.busy:
                raise StoreError("busy")
            return await super().write(*args, **options)

    store, sleeper = Busy(), Sleeper()
    async with journal_of(store, sleeper).held(lambda: None):
        store.busy = True
        await sleeper.renew()
        store.busy = False
        await sleeper.renew()


async def test_a_run_is_cancelled_from_another_process() -> None:
    sleeper, store = Sleeper(), MemoryStore()
    reached = anyio.Event()

    async def wait() -> None:
        """Wait."""
        reached.set()
        await anyio.sleep_forever()

    agent = Agent(ScriptedModel([[tool_call("wait")]]), tools=[wait], store=store)
    durable = Durable(store, sleep=sleeper)
    run = agent.begin([UserMessage.of("go")], run_id=RUN, journal=StoreJournal(durable, RUN)).start()
    await reached.wait()
    assert await ask_to_cancel(store, LEASES, RUN)
    await sleeper.waiting.wait()
    sleeper._wake.set()
    result = await run
    record = await read_record(store, RUN)

    assert (result.status, result.stop_reason) == ("cancelled", "cancelled")
    assert record is not None
    assert record.status == "cancelled"
    assert not await ask_to_cancel(store, LEASES, RUN)


async def test_a_journal_that_another_process_wrote_to_ends_the_run_that_finds_it() -> None:
    store = MemoryStore()
    first, second = StoreJournal(Durable(store), RUN), StoreJournal(Durable(store), RUN)
    start = RunStart(run_id=RUN, agent="agent", messages=(UserMessage.of("go"),), sent=1)
    async with first.held(lambda: None):
        await first.started(start)
        await store.delete(LEASES, RUN)  # as when it expires while the first process is stopped
        async with second.held(lambda: None):
            assert await second.started(start) == start
            await second.turn_finished(1, turn_of(tool_call("f")))

            with pytest.raises(RunError, match="was taken over"):
                await first.turn_finished(1, turn_of(tool_call("f")))
            with pytest.raises(RunError, match="was taken over"):
                await first.finished(RunResult(run_id=RUN))


async def test_a_lease_of_a_dead_process_holds_nobody_up_and_one_of_another_machine_does() -> None:
    store = MemoryStore()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    async with journal_of(store, Sleeper()).held(lambda: None):
        found = await store.get(LEASES, RUN)
    assert found is not None
    await store.put(LEASES, RUN, {**found.value, "process": dead.pid}, ttl=15)
    assert (await Lease(store, LEASES, RUN).acquire()).acquired

    await store.put(LEASES, RUN, {**found.value, "process": dead.pid, "machine": "far-away boot ns"}, ttl=15)
    with pytest.raises(RunError, match=f"in process {dead.pid} on far-away; "):
        async with journal_of(store, Sleeper()).held(lambda: None):
            pass


async def test_who_is_asked_for_what_cannot_be_resumed_says_why() -> None:
    store = MemoryStore()
    run = Agent(ScriptedModel(["hi"]), store=store).send("go", session="s")
    await run

    with pytest.raises(ValueError, match=r"agent 'agent' keeps nothing; give it a store: Agent\(\.\.\., store="):
        await Agent(ScriptedModel([])).resume(run.id)
    with pytest.raises(RunError, match="run 'nonsense' is not in the store"):
        await Agent(ScriptedModel([]), store=store).resume("nonsense")
    with pytest.raises(RunError, match="is one of agent 'agent', not of 'other'; resume it with that agent"):
        await Agent(ScriptedModel([]), name="other", store=store).resume(run.id)
    await store.put(RUNS, "newer", {"form": 2})
    with pytest.raises(StoreError, match="run 'newer' was written by a newer version of Toolweave"):
        await Agent(ScriptedModel([]), store=store).resume("newer")
    await store.delete("run-starts", run.id)
    with pytest.raises(RunError, match="how it began is no longer in the store"):
        await answered(Agent(ScriptedModel([]), store=store), run.id)


async def test_a_store_that_cannot_keep_a_run_fails_it_before_its_tools_run() -> None:
    def never() -> None:
        """Not run."""
        raise AssertionError("its call could not be recorded")

    class Full(MemoryStore):
        async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
            if any(change.collection == JOURNAL and change.key.endswith("/call/c") for change in changes):
                raise StoreError("full", collection=JOURNAL)
            return await super().write(changes, signal=signal)

    agent = Agent(ScriptedModel([[tool_call("never", id="c")]]), tools=[never], store=Full())
    with pytest.raises(StoreError, match="full"):
        await agent.send("go")


async def test_a_call_that_found_no_tool_is_not_made_when_the_run_goes_on_where_there_is_one() -> None:
    store, ran = MemoryStore(), list[str]()

    def late(name: str = "") -> str:
        ran.append(name)
        return "made"

    broken = ModelError("out of order", model="scripted")
    run = Agent(ScriptedModel([tool_call("late"), tool_call("other"), broken]), store=store).send("go")
    with pytest.raises(ModelError):
        await run

    result = await answered(Agent(ScriptedModel(["done"]), store=store, tools=[late]), run.id)

    assert (result.text, ran) == ("done", [])
