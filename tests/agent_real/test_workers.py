"""Workers on Redis do a run over real servers and a provider's API: killed anywhere, each effect happens once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.agent_real.apis import APIS, ApiName
from tests.agent_real.killed_run import LINES, effects_of, writer
from tests.agent_real.workers import Place, came_true, place
from toolweave.agent import RunRecord, RunStatuses
from toolweave.models import AssistantMessage, UserMessage

pytestmark = [pytest.mark.reference, pytest.mark.requirement("R103")]

WRITES = 16
"""How often a worker writes to the store for the run below when nobody kills it."""
KILLS = [
    *(f"write:{number}" for number in range(1, WRITES + 1)),
    f"written:{WRITES}",
    *(f"{when}:{line}" for line in LINES for when in ("before", "after")),
]
TWO_KILLS = [("write:2", "write:3"), ("before:a", "after:b"), ("after:a", "write:8"), ("write:11", "write:4")]
"""Of the worker that begins, and of the one that goes on, whose writes are counted anew."""
SUBMITTED = 1
"""How often whoever submits the run writes to the store."""
SUBMITTER_KILLS = [*(f"write:{number}" for number in range(1, SUBMITTED + 1)), f"written:{SUBMITTED}"]
SENT = "note all lines"
SESSION = "the session"
ALL_NOTED = "all is noted"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which nothing is noted yet."""
    effects_of(tmp_path).parent.mkdir()
    effects_of(tmp_path).touch()
    return tmp_path


async def check(at: Place, record: RunRecord, *, deaths: int) -> None:
    """Check that a run of the writer was done once, however many workers died of it."""
    await at.nothing_is_left_over()
    assert (record.status, record.text, record.error) == ("completed", ALL_NOTED, None)
    assert sorted(effects_of(at.folder).read_text().split()) == list(LINES)
    asked_twice = len(at.provider.bodies) - record.steps
    unkept = sum(kill.startswith("write:") for kill in at.deaths)
    assert 0 <= asked_twice <= unkept  # a turn that had come and was not kept yet is asked for again
    assert record.attempts <= 1 + deaths
    unknown = [call for call, one in at.provider.results.items() if "is unknown" in one.text]
    assert len(unknown) <= deaths  # what was finished is not asked about

    said = await at.said_in(SESSION)
    assert [one.text for one in said if isinstance(one, UserMessage)] == [SENT]
    assert [one.run_id for one in await RunStatuses(at.backend.store).recent()] == [record.run_id]
    answers = [one.text for one in said if isinstance(one, AssistantMessage)]
    assert len(answers) == record.steps
    assert [text for text in answers if text] == [ALL_NOTED]


async def test_a_run_whose_worker_of_the_terminal_is_killed_goes_on_in_another_that_was_started_after_it(
    folder: Path, redis_url: str
) -> None:
    async with (
        place(folder, redis_url, api="anthropic", say=writer(folder), kills=["after:a"]) as at,
        at.workers(1, command=True) as workers,
    ):
        run = await at.agent.submit(SENT, session=SESSION)
        await came_true(lambda: workers[0].is_dead)
        async with at.workers(1, command=True):
            await check(at, await run, deaths=1)
    assert at.deaths == {"after:a"}


async def test_the_run_that_is_killed_below_writes_as_often_as_the_kills_cover(folder: Path, redis_url: str) -> None:
    async with place(folder, redis_url, api="responses", say=writer(folder)) as at, at.workers(1):
        record = await (await at.agent.submit(SENT, session=SESSION))
        await check(at, record, deaths=0)

    assert len(at.noted) == WRITES


@pytest.mark.parametrize(("api", "kill"), [(APIS[number % len(APIS)], kill) for number, kill in enumerate(KILLS)])
async def test_a_run_whose_worker_is_killed_anywhere_goes_on_in_the_other_and_every_effect_happens_exactly_once(
    folder: Path, redis_url: str, api: ApiName, kill: str
) -> None:
    async with place(folder, redis_url, api=api, say=writer(folder), kills=[kill]) as at, at.workers(2) as workers:
        record = await (await at.agent.submit(SENT, session=SESSION))
        await came_true(lambda: any(worker.is_dead for worker in workers))
        await check(at, record, deaths=1)

        (dead,) = [worker for worker in workers if worker.is_dead]
        assert dead.process.returncode == -signal.SIGKILL
    assert at.deaths == {kill}


@pytest.mark.parametrize(("api", "kills"), [(APIS[number % len(APIS)], kill) for number, kill in enumerate(TWO_KILLS)])
async def test_a_run_of_which_two_workers_die_goes_on_in_a_third(
    folder: Path, redis_url: str, api: ApiName, kills: tuple[str, str]
) -> None:
    async with place(folder, redis_url, api=api, say=writer(folder), kills=kills) as at, at.workers(2) as workers:
        run = await at.agent.submit(SENT, session=SESSION)
        await came_true(lambda: all(worker.is_dead for worker in workers))
        assert (await run.status()).status in ("pending", "interrupted")
        async with at.workers(1):
            await check(at, await run, deaths=2)

    assert [worker.process.returncode for worker in workers] == [-signal.SIGKILL] * 2
    assert at.deaths == set(kills)


@pytest.mark.parametrize(
    ("api", "kill"), [(APIS[number % len(APIS)], kill) for number, kill in enumerate(SUBMITTER_KILLS)]
)
async def test_a_run_whose_submitter_is_killed_anywhere_and_submits_it_again_is_one_run(
    folder: Path, redis_url: str, api: ApiName, kill: str
) -> None:
    async with place(folder, redis_url, api=api, say=writer(folder), kills=[kill]) as at, at.workers(1):
        killed = await at.submit_in_a_process(SENT, session=SESSION, key="once")
        run = await at.agent.submit(SENT, session=SESSION, key="once")
        await check(at, await run, deaths=0)

    assert killed == -signal.SIGKILL
    assert at.deaths == {kill}


async def test_whoever_submits_a_run_writes_as_often_as_the_kills_cover(folder: Path, redis_url: str) -> None:
    async with place(folder, redis_url, api="chat", say=writer(folder)) as at:
        assert await at.submit_in_a_process(SENT, session=SESSION, key="once") == 0
        assert len(at.noted) == SUBMITTED
        async with at.workers(1):
            run = await at.agent.submit(SENT, session=SESSION, key="once")
            await check(at, await run, deaths=0)


async def test_a_run_that_is_cancelled_when_its_worker_is_dead_goes_on_nowhere(folder: Path, redis_url: str) -> None:
    async with place(folder, redis_url, api="responses", say=writer(folder), kills=["after:a"]) as at:
        run = await at.agent.submit(SENT, session=SESSION)
        async with at.workers(1) as workers:
            await came_true(lambda: workers[0].is_dead)
        assert await run.cancel()
        record = await run
        asked = len(at.provider.bodies)
        async with at.workers(1):
            await at.nothing_is_left_over()
            assert (await run).revision == record.revision

        assert (record.status, record.stop_reason) == ("cancelled", "cancelled")
        assert len(at.provider.bodies) == asked
    assert effects_of(folder).read_text() == "a\n"


@pytest.mark.parametrize("kill", ["before:b", "write:15"])
async def test_what_is_submitted_to_a_session_next_waits_for_the_run_that_goes_on_in_another_worker(
    folder: Path, redis_url: str, kill: str
) -> None:
    async with place(folder, redis_url, api="chat", say=writer(folder), kills=[kill]) as at, at.workers(2):
        runs = [await at.agent.submit(sent, session=SESSION) for sent in (SENT, "what is noted?")]
        assert [(await run).status for run in runs] == ["completed", "completed"]
        said = await at.said_in(SESSION)

    texts = [one.text for one in said if isinstance(one, (UserMessage, AssistantMessage)) and one.text]
    assert texts == [SENT, ALL_NOTED, "what is noted?", ALL_NOTED]
    assert sorted(effects_of(folder).read_text().split()) == list(LINES)
    assert at.deaths == {kill}
