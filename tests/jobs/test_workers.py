"""Workers as processes on a real Redis: killed anywhere, ended, many at once; each effect happens once.

What a run did is counted in a file beside it, and no answer is given twice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from toolweave import Agent
from toolweave.agent import RunRecord, RunStatuses, SubmittedRun
from toolweave.jobs import Backend
from toolweave.models import AssistantMessage, ScriptedModel
from toolweave.state import iter_documents

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parent.parent.parent


@contextmanager
def worker(url: str, folder: Path, where: str = "") -> Generator[subprocess.Popen[str]]:
    """Run a worker that takes jobs; it is killed in the end."""
    command = [sys.executable, "-m", "tests.jobs.worker_process", url, str(folder), where]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        try:
            said(process, "started")
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


async def reaping(run: SubmittedRun, *processes: subprocess.Popen[str]) -> RunRecord:
    """Wait for a run and let the dead be gone, as whoever starts workers does: a zombie counts as living."""
    while (info := await run.status()).status in ("pending", "running", "interrupted"):
        for process in processes:
            process.poll()
        await anyio.sleep(0.05)
    return info.record


def client(name: str, backend: Backend) -> Agent:
    """Return what submits to the agent of this name."""
    return Agent(ScriptedModel(["not here"]), name=name, backend=backend)


def effects(folder: Path) -> list[str]:
    return (folder / "effects").read_text().splitlines()


@pytest.mark.parametrize(
    "where", ["turn:1", "before:a", "after:a", "after:b", "turn:3", "before:c", "after:c", "turn:5"]
)
@pytest.mark.requirement("R103")
async def test_a_run_whose_worker_is_killed_goes_on_on_another(redis_url: str, tmp_path: Path, where: str) -> None:
    with worker(redis_url, tmp_path, where) as one, worker(redis_url, tmp_path, where) as other:
        async with Backend(redis_url) as backend:
            agent = client("writer", backend)
            run = await agent.submit("write all lines", session="s")
            with anyio.fail_after(120):
                record = await reaping(run, one, other)
            assert agent.durable is not None
            spoken = await agent.durable.conversations.load("s")
            journal = [
                found.key.split("/", 1)[1] async for found in iter_documents(backend.store, "run-journal", f"{run.id}/")
            ]
        dead = [process.poll() for process in (one, other)]
    assert sorted(map(str, dead)) == ["-9", "None"]
    assert sorted(effects(tmp_path)) == ["a", "b", "c"]
    assert (record.status, record.text, record.attempts) == ("completed", "all is written", 2)
    answers = [one for one in spoken if isinstance(one, AssistantMessage)]
    assert len([one for one in answers if one.text == "all is written"]) == 1
    turns = [key for key in journal if key.endswith("/turn")]
    assert len(turns) == len(answers) == record.steps


@pytest.mark.requirement("R103")
async def test_a_worker_that_is_told_to_end_hands_its_run_over_in_mid_call(redis_url: str, tmp_path: Path) -> None:
    async with Backend(redis_url) as backend:
        run = await client("writer", backend).submit("write all lines")
        with worker(redis_url, tmp_path, "hold:a") as one, anyio.fail_after(120):
            await anyio.to_thread.run_sync(said, one, "held")
            one.send_signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(one.wait) == 0
            # its redelivery timeout is an hour
            with worker(redis_url, tmp_path, "hold:a"):
                record = await run
    assert (record.status, record.text) == ("completed", "all is written")
    assert sorted(effects(tmp_path)) == ["a", "b", "c"]


async def test_two_workers_do_fifty_runs_once_each_also_when_they_are_submitted_twice(
    redis_url: str, tmp_path: Path
) -> None:
    async with Backend(redis_url) as backend:
        agent = client("noter", backend)
        before = [await agent.submit(f"{number}", key=f"key {number}") for number in range(25)]
        with worker(redis_url, tmp_path), worker(redis_url, tmp_path), anyio.fail_after(120):
            runs = [await agent.submit(f"{number}", key=f"key {number}") for number in range(50)]
            records = [await run for run in runs]
            again = [await agent.submit(f"{number}", key=f"key {number}") for number in range(50)]
        stats = await RunStatuses(backend.store).stats()
    assert [run.id for run in before] == [run.id for run in runs[:25]]
    assert [run.id for run in again] == [run.id for run in runs]
    assert Counter(effects(tmp_path)) == Counter(map(str, range(50)))
    assert [(record.status, record.text, record.attempts) for record in records] == [("completed", "noted", 1)] * 50
    assert (stats.total, dict(stats.by_status)) == (50, {"completed": 50})
