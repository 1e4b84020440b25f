"""Runs that wait for the answer to a question of a server: parked, answered from anywhere, and done once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent import answered_run, asking_server
from tests.jobs.places import PLACES, url_of, working
from tests.programs import ran
from tests.redis_server import RedisServer
from toolweave import Agent, ScriptedModel
from toolweave.agent import InputGiven, InputRequested, RunResult, RunStatuses, SubmittedRun
from toolweave.errors import RunError
from toolweave.jobs import Backend
from toolweave.models import ModelRequest, ToolCallPart, ToolMessage, tool_call
from toolweave.state import MemoryStore
from toolweave.tools import ElicitationResult

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[2]
WRITES = 21
"""How often the run of `answered_run.py` and its person write to the store when nobody kills it."""
MODERN, LEGACY = "2026-07-28", "2025-11-25"
ERAS = [MODERN, LEGACY]


def porter(
    folder: Path, protocol: str, *calls: ToolCallPart, key: str | None = asking_server.KEY, **options: Any
) -> Agent:
    """Return an agent that makes these calls at once, and then says what they returned."""

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return " and ".join(one.result.text for one in last.outcomes)
        return list(calls)

    options = {"questions": True, **options}
    servers = {"rooms": asking_server.entry(folder, protocol, key=key)}
    return Agent(ScriptedModel(answer), name="porter", mcp_servers=servers, **options)


def booking(guest: str = "ada", tool: str = "book") -> ToolCallPart:
    return tool_call(f"rooms_{tool}", {"guest": guest}, id=f"c-{guest}")


def effects(folder: Path) -> Sequence[str]:
    """Return what the server has done."""
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


async def parked(agent: Agent) -> RunResult:
    """Send a message to an agent whose call waits for an answer."""
    with anyio.fail_after(120):
        return await agent.send("Go.", attended="later")


async def resumed(agent: Agent, run_id: str) -> RunResult:
    with anyio.fail_after(120):
        return await (await agent.resume(run_id))


async def reached(run: SubmittedRun, status: str) -> None:
    """Wait until a run has this status."""
    while (await run.status()).status != status:
        await anyio.sleep(0.01)


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, redis_server: RedisServer | None) -> str:
    return url_of(request.param, redis_server)


async def test_a_submitted_run_whose_server_asks_waits_without_a_worker_and_goes_on_after_the_answer(
    url: str, tmp_path: Path
) -> None:
    backend = Backend(url)
    agent = porter(tmp_path, MODERN, booking(), backend=backend)
    free = Agent(ScriptedModel(["I am free."]), name="other", backend=backend)
    async with backend, agent, working(backend, agent, free, concurrency=1):
        run = await agent.submit("Go.")
        await reached(run, "waiting")
        [call] = await run.waiting()
        meanwhile = await (await free.submit("Are you free?"))
        before = effects(tmp_path)
        goes_on = await run.answer("c-ada", {"nights": 3})
        record = await run

    assert call.question is not None
    assert (call.of_call, call.tool, call.server, call.repeats) == ("c-ada", "rooms_book", "rooms", False)
    assert (call.question.message, call.question.mode) == ("How many nights for ada?", "form")
    assert call.question.schema["required"] == ["nights"]
    assert "asked_by" not in call.shown()["question"]
    assert (meanwhile.text, before, goes_on) == ("I am free.", [], True)
    assert (record.status, record.text) == ("completed", "booked ada: 3 nights, yard")
    assert effects(tmp_path) == ["ada"]


@pytest.mark.parametrize("era", ERAS)
async def test_without_workers_a_run_is_resumed_after_the_answer_by_another_agent(tmp_path: Path, era: str) -> None:
    store = MemoryStore()
    statuses = RunStatuses(store)
    async with porter(tmp_path, era, booking(tool="rebook"), store=store) as agent:
        result = await parked(agent)
    await statuses.answer(result.run_id, "c-ada:1", {"nights": 1, "view": "sea"})
    done = await resumed(porter(tmp_path, era, booking(tool="rebook"), store=store), result.run_id)

    assert (result.status, [call.id for call in result.pending]) == ("waiting", ["c-ada"])
    assert done.text == "booked ada: 1 nights, sea"
    assert effects(tmp_path) == ["ada"]
    # a round goes on; a live call of an older server is made again from its start, in another process
    begun = [line.split()[1] for line in (tmp_path / "begun").read_text().splitlines()]
    assert len(set(begun)) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [(ElicitationResult.decline(), "not booked: decline"), (ElicitationResult.cancel(), "not booked: cancel")],
)
async def test_a_question_may_be_declined_or_cancelled_later(
    tmp_path: Path, answer: ElicitationResult, said: str
) -> None:
    store = MemoryStore()
    async with porter(tmp_path, MODERN, booking(), store=store) as agent:
        result = await parked(agent)
        await RunStatuses(store).answer(result.run_id, "c-ada", answer)
        done = await resumed(agent, result.run_id)

    assert (done.text, effects(tmp_path)) == (said, [])


async def test_a_live_call_of_an_older_server_that_must_not_be_repeated_is_not_parked(tmp_path: Path) -> None:
    async with porter(tmp_path, LEGACY, booking(), store=MemoryStore()) as agent:
        result = await parked(agent)

    assert (result.status, result.text, effects(tmp_path)) == ("completed", "not booked: cancel", [])


async def test_a_live_call_of_an_older_server_is_repeated_where_the_person_who_answers_is_told(tmp_path: Path) -> None:
    store = MemoryStore()
    async with porter(tmp_path, LEGACY, booking(), store=store, on_unknown="ask") as agent:
        result = await parked(agent)
        [call] = await RunStatuses(store).waiting(result.run_id)
        await RunStatuses(store).answer(result.run_id, call.call_id, {"nights": 2})
        done = await resumed(agent, result.run_id)

    assert (call.repeats, done.text, effects(tmp_path)) == (True, "booked ada: 2 nights, yard", ["ada"])


@pytest.mark.parametrize("era", ERAS)
async def test_calls_that_ask_at_the_same_time_are_each_asked_about_by_its_own_id(tmp_path: Path, era: str) -> None:
    store = MemoryStore()
    statuses = RunStatuses(store)
    calls = [booking("ada", "rebook"), booking("bob", "rebook")]
    async with porter(tmp_path, era, *calls, store=store) as agent:
        result = await parked(agent)
        found = {call.of_call: call for call in await statuses.waiting(result.run_id)}
        first = await statuses.answer(result.run_id, "c-bob", {"nights": 7})
        second = await statuses.answer(result.run_id, "c-ada", {"nights": 5})
        done = await resumed(agent, result.run_id)

    asked = {name: call.question.message for name, call in found.items() if call.question is not None}
    assert asked == {"c-ada": "How many nights for ada?", "c-bob": "How many nights for bob?"}
    assert (first, second) == (False, True)
    assert done.text == "booked ada: 5 nights, yard and booked bob: 7 nights, yard"
    assert sorted(effects(tmp_path)) == ["ada", "bob"]


async def test_an_answer_that_does_not_fit_the_form_is_refused_and_the_question_still_waits(tmp_path: Path) -> None:
    store = MemoryStore()
    statuses = RunStatuses(store)
    async with porter(tmp_path, MODERN, booking(), store=store) as agent:
        result = await parked(agent)
        for wrong in ({"nights": 0}, {"nights": "two"}, {}, {"nights": 1, "view": "moon"}):
            with pytest.raises(RunError, match="has a form 'c-ada:1' that the answer does not fit: "):
                await statuses.answer(result.run_id, "c-ada", wrong)
        with pytest.raises(RunError, match="waits for an answer, not for a yes"):
            await statuses.approve(result.run_id, "c-ada:1")
        with pytest.raises(RunError, match="has no call 'c-bob' that waits; those that do: c-ada:1"):
            await statuses.answer(result.run_id, "c-bob", {"nights": 1})
        await statuses.answer(result.run_id, "c-ada:1", {"nights": 1})
        with pytest.raises(RunError, match="has an answer to call 'c-ada:1' already: it was accepted"):
            await statuses.answer(result.run_id, "c-ada:1", ElicitationResult.decline())
        again = await statuses.answer(result.run_id, "c-ada:1", {"nights": 1})
        done = await resumed(agent, result.run_id)

    assert (again, done.text, effects(tmp_path)) == (True, "booked ada: 1 nights, yard", ["ada"])


async def test_a_call_that_needs_a_yes_cannot_be_answered(tmp_path: Path) -> None:
    store = MemoryStore()
    async with porter(tmp_path, MODERN, booking(), store=store, confirm="always") as agent:
        result = await parked(agent)
        with pytest.raises(RunError, match="waits for a yes or a no, not for an answer"):
            await RunStatuses(store).answer(result.run_id, "c-ada", {"nights": 1})


async def test_a_call_that_was_approved_and_asks_is_not_approved_again(tmp_path: Path) -> None:
    store = MemoryStore()
    statuses = RunStatuses(store)
    async with porter(tmp_path, MODERN, booking(), store=store, confirm="always") as agent:
        result = await parked(agent)
        await statuses.approve(result.run_id, "c-ada")
        again = await resumed(agent, result.run_id)
        [call] = await statuses.waiting(result.run_id)
        await statuses.answer(result.run_id, call.call_id, {"nights": 1})
        done = await resumed(agent, result.run_id)

    assert (again.status, call.question is not None) == ("waiting", True)
    assert (done.status, effects(tmp_path)) == ("completed", ["ada"])


async def test_two_questions_of_one_round_wait_together_and_the_call_goes_on_after_both(tmp_path: Path) -> None:
    store = MemoryStore()
    statuses = RunStatuses(store)
    async with porter(tmp_path, MODERN, tool_call("rooms_furnish", id="f"), store=store) as agent:
        result = await parked(agent)
        waiting = await statuses.waiting(result.run_id)
        by_message = {call.question.message: call.call_id for call in waiting if call.question is not None}
        with pytest.raises(RunError, match="has no call 'f' that waits"):  # which of the two?
            await statuses.answer(result.run_id, "f", {})
        first = await statuses.answer(result.run_id, by_message["Which lamp?"], ElicitationResult.decline())
        second = await statuses.answer(result.run_id, by_message["Which bed?"], {})
        done = await resumed(agent, result.run_id)

    assert (first, second) == (False, True)
    assert done.text == "bed accept lamp decline"


async def test_a_call_may_ask_again_and_again_and_each_question_has_its_own_answer(tmp_path: Path) -> None:
    store = MemoryStore()
    statuses = RunStatuses(store)
    async with porter(tmp_path, MODERN, tool_call("rooms_twice", id="t"), store=store) as agent:
        result = await parked(agent)
        await statuses.answer(result.run_id, "t", {})
        again = await resumed(agent, result.run_id)
        [second] = await statuses.waiting(result.run_id)
        await statuses.answer(result.run_id, "t", ElicitationResult.decline())
        done = await resumed(agent, result.run_id)

    assert (again.status, second.call_id) == ("waiting", "t:2")
    assert (done.text, effects(tmp_path)) == ("accept, decline", ["twice"])


@pytest.mark.parametrize("era", ERAS)
async def test_a_page_to_visit_waits_too(tmp_path: Path, era: str) -> None:
    store = MemoryStore()
    statuses = RunStatuses(store)
    call = tool_call("rooms_pay", id="p")
    async with porter(tmp_path, era, call, store=store, on_unknown="rerun") as agent:
        result = await parked(agent)
        [asked] = await statuses.waiting(result.run_id)
        with pytest.raises(RunError, match="about a page to visit, which takes no values"):
            await statuses.answer(result.run_id, "p", {"card": "1234"})
        await statuses.answer(result.run_id, "p", ElicitationResult.accept())
        done = await resumed(agent, result.run_id)

    assert asked.question is not None
    assert (asked.question.mode, asked.question.url) == ("url", "https://pay.example/7")
    assert done.text == "accept"


async def test_a_server_that_lost_its_state_is_asked_anew_only_where_that_does_no_harm(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    for tool in ("book", "rebook"):
        store = MemoryStore()
        async with porter(tmp_path, MODERN, booking(tool, tool), key=None, store=store) as agent:
            result = await parked(agent)
        await RunStatuses(store).answer(result.run_id, f"c-{tool}", {"nights": 4})
        done = await resumed(porter(tmp_path, MODERN, booking(tool, tool), key=None, store=store), result.run_id)
        texts[tool] = done.text

    assert "repeat the request" in texts["book"]
    assert texts["rebook"] == "booked rebook: 4 nights, yard"
    assert effects(tmp_path) == ["rebook"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_who_is_there_answers_at_once(tmp_path: Path, era: str) -> None:
    asked: list[InputRequested] = []
    given: list[InputGiven] = []
    async with porter(tmp_path, era, booking()) as agent:
        with anyio.fail_after(120):
            run = agent.send("Go.")
            async for event in run:
                if isinstance(event, InputRequested):
                    asked.append(event)
                    with pytest.raises(RunError, match="does not fit"):
                        run.answer(event, {"nights": -1})
                    assert run.answer(event, {"nights": 2})
                    assert not run.answer(event, {"nights": 2})
                elif isinstance(event, InputGiven):
                    given.append(event)
            result = await run

    assert [event.request.server for event in asked] == ["rooms"]
    assert [event.action for event in given] == ["accept"]
    assert (result.text, effects(tmp_path)) == ("booked ada: 2 nights, yard", ["ada"])


@pytest.mark.parametrize("era", ERAS)
async def test_where_nobody_can_be_asked_a_question_is_cancelled(tmp_path: Path, era: str) -> None:
    async with porter(tmp_path, era, booking()) as agent:
        with anyio.fail_after(120):
            result = await agent.send("Go.", attended=False)

    assert (result.text, effects(tmp_path)) == ("not booked: cancel", [])


@pytest.mark.parametrize("questions", [True, False])
@pytest.mark.parametrize("era", ERAS)
async def test_servers_are_told_that_somebody_can_be_asked_only_where_the_agent_takes_questions(
    tmp_path: Path, era: str, questions: bool
) -> None:
    async with porter(tmp_path, era, tool_call("rooms_able", id="a"), questions=questions) as agent:
        with anyio.fail_after(120):
            result = await agent.send("Go.")

    assert result.text == str(questions)


def run_in_a_process(folder: Path, where: str, era: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.agent.answered_run", str(folder), where, era]
    return ran(command, cwd=CHECKOUT)


@pytest.mark.parametrize("era", ERAS)
async def test_the_answered_run_that_is_killed_below_writes_as_often_as_the_kills_cover(
    tmp_path: Path, era: str
) -> None:
    whole = run_in_a_process(tmp_path, "nowhere", era)

    assert whole.stdout == f"{WRITES} all is booked\n", whole.stderr
    assert sorted(effects(tmp_path)) == list(answered_run.GUESTS)


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("where", [f"put:{number}" for number in range(1, WRITES + 1)])
async def test_an_answered_run_killed_anywhere_has_every_effect_exactly_once(
    tmp_path: Path, where: str, era: str
) -> None:
    killed = run_in_a_process(tmp_path, where, era)
    assert killed.returncode == -9, killed.stderr

    whole = run_in_a_process(tmp_path, "nowhere", era)

    assert whole.stdout.endswith(" all is booked\n"), whole.stderr
    assert sorted(effects(tmp_path)) == list(answered_run.GUESTS)
