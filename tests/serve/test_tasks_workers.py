"""Tasks and the death of those who run them: workers that are killed, leases that are lost, stores that are away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.redis_server import RedisServer
from tests.serve.shared_tasks import DECLARED, Doings, Nobody, replica, until, working
from tests.serve.talking import talking
from tests.serve.task_worker import REDELIVERY, server
from tests.serve.till import Till
from toolweave.errors import RequestError, StoreError
from toolweave.jobs import Backend, Job, JobWorker, Reschedule
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._tasks.store import TASK_NOTES, TASKS, TaskStore
from toolweave.serve._tasks.worker import TaskJobs
from toolweave.serve._tools import Tools
from toolweave.serve.request import Client, Json, Request
from toolweave.state import RedisStore
from toolweave.tools import ToolRegistry

TEST_SECONDS = 60


@asynccontextmanager
async def worker_process(url: str, folder: Path) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Run a worker; yields what kills it with SIGKILL."""
    command = [sys.executable, "-m", "tests.serve.task_worker", url, str(folder)]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            with anyio.fail_after(60):
                assert (await process.stdout.receive()).startswith(b"ready")

            async def kill() -> None:
                process.kill()
                await process.wait()

            yield kill
        finally:
            if process.returncode is None:
                process.kill()


def effects(folder: Path) -> list[str]:
    """Return the effects that there were, in order."""
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status", "times"), [("store", "completed", 2), ("charge", "failed", 1)])
async def test_a_worker_that_is_killed_costs_a_task_at_most_its_outcome(
    redis_url: str, tmp_path: Path, name: str, status: str, times: int
) -> None:
    replica_here = server(Backend(redis_url, redelivery_seconds=REDELIVERY), tmp_path)
    async with talking(replica_here) as talk:
        async with worker_process(redis_url, tmp_path) as kill:
            task = (await talk.ask("tools/call", {"name": name}))["taskId"]
            while not effects(tmp_path):
                await anyio.sleep(0.02)
            await kill()
        between = await talk.ask("tasks/get", {"taskId": task})
        (tmp_path / "release").touch()
        async with worker_process(redis_url, tmp_path):
            shown = await until(talk, task, "completed", "failed")

    assert between["status"] == "working"
    assert shown["status"] == status
    assert effects(tmp_path) == [name] * times
    if status == "failed":
        assert "the outcome is unknown" in shown["error"]["message"]
        assert shown["error"]["data"] == {"reason": "worker_lost"}


@pytest.mark.slow
@pytest.mark.requirement("R85")
async def test_an_agent_that_is_a_task_goes_on_where_it_was_when_its_worker_is_killed(
    redis_url: str, tmp_path: Path
) -> None:
    replica_here = server(Backend(redis_url, redelivery_seconds=REDELIVERY), tmp_path)
    async with talking(replica_here) as talk:
        listed = await talk.ask("tools/list")
        async with worker_process(redis_url, tmp_path) as kill:
            asked = {"name": "agent_clerk", "arguments": {"message": "Take a note."}}
            name = (await talk.ask("tools/call", asked))["taskId"]
            while effects(tmp_path) != ["note", "said"]:
                await anyio.sleep(0.02)
            await kill()
        (tmp_path / "release").touch()
        async with worker_process(redis_url, tmp_path):
            shown = await until(talk, name, "completed", "failed")

    assert shown["result"]["content"] == [{"type": "text", "text": "saidd"}]
    assert effects(tmp_path) == ["note", "said", "said"]  # the model is asked again what it had not answered
    assert all("_meta" not in one for one in listed["tools"])


async def test_a_job_that_is_delivered_twice_runs_its_tool_once() -> None:
    till = Till()
    name, job = await till.begun("work")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(till.workers[0].do, job)
        await till.doings.until(1)
        with pytest.raises(Reschedule):
            await till.workers[1].do(job)
        till.doings.go.set()
    await till.workers[1].do(job)
    shown = await till.ask("tasks/get", taskId=name)

    assert shown["status"] == "completed"
    assert till.doings.begun == ["work"]
    assert await till.store.scan(TASK_NOTES.leases) == []


async def ended(work: Awaitable[None]) -> list[type[Exception]]:
    """Return what work raised when it ended, or nothing."""
    try:
        await work
    except Exception as exc:  # the test looks at it
        return [type(exc)]
    return []


@asynccontextmanager
async def at_work(till: Till, job: Job) -> AsyncGenerator[list[type[Exception]], None]:
    """Have a job done meanwhile, whose tool has begun; yields what holds, afterwards, what that raised."""
    raised: list[type[Exception]] = []

    async def work() -> None:
        raised.extend(await ended(till.workers[0].do(job)))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await till.doings.until(1)
            yield raised


async def test_a_worker_that_lost_its_lease_stops_its_tool_and_writes_nothing_more() -> None:
    till = Till(lease_seconds=1.0)
    name, job = await till.begun("hang")
    async with at_work(till, job) as raised:
        other = {"holder": "another", "process": 1, "machine": "far away"}
        await till.store.put(TASK_NOTES.leases, name, other)
        await till.doings.ended.wait()
    shown = await till.ask("tasks/get", taskId=name)

    assert raised == [StoreError]
    assert shown["status"] == "working"


async def test_a_task_that_is_cancelled_while_its_end_is_written_stays_cancelled() -> None:
    till = Till()
    name, job = await till.begun("work")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(till.workers[0].do, job)
        await till.doings.until(1)
        till.store.meanwhile = lambda: till.ask("tasks/cancel", taskId=name)
        till.doings.go.set()
    shown = await till.ask("tasks/get", taskId=name)

    assert till.store.meanwhile is None
    assert shown["status"] == "cancelled"


async def test_a_worker_whose_task_another_began_stops_its_tool_and_writes_nothing_more() -> None:
    till = Till()
    name, job = await till.begun("hang")
    revisions: list[int | None] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(till.workers[0].do, job)
        await till.doings.until(1)
        found = await till.store.get(TASKS, name)
        assert found is not None
        written = await till.store.put(TASKS, name, {**found.value, "runner": "another"})
        revisions.append(written)
        await till.doings.ended.wait()
    after = await till.store.get(TASKS, name)

    assert after is not None
    assert revisions == [after.revision]


@pytest.mark.slow
async def test_a_worker_that_cannot_reach_the_store_stops_its_tool_before_another_may_run_it() -> None:
    till = Till(lease_seconds=1.0)
    _, job = await till.begun("hang")
    async with at_work(till, job) as raised:
        till.store.away = True
        await till.doings.ended.wait()

    assert raised == [StoreError]


async def test_the_end_of_a_task_waits_for_a_store_that_is_away_for_a_moment() -> None:
    till = Till()
    name, job = await till.begun("work")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(till.workers[0].do, job)
        await till.doings.until(1)
        till.store.away = True
        till.doings.go.set()
        await anyio.wait_all_tasks_blocked()
        till.store.away = False
    shown = await till.ask("tasks/get", taskId=name)

    assert shown["result"]["content"][0]["text"] == "worked"


async def test_a_result_for_which_the_store_has_no_room_is_a_failure_that_says_so() -> None:
    till = Till()
    till.store.room = 5_000
    name, job = await till.begun("huge")
    await till.workers[0].do(job)
    shown = await till.ask("tasks/get", taskId=name)

    assert shown["error"]["message"] == "the outcome cannot be kept"


async def test_a_task_that_no_worker_takes_fails_when_its_time_is_over_and_is_forgotten_later() -> None:
    till = Till(ttl_ms=600_000)
    name, job = await till.begun("work")
    till.clock.now += 601
    shown = await till.ask("tasks/get", taskId=name)
    await till.workers[0].do(job)
    till.clock.now += 61
    with pytest.raises(RequestError, match="Unknown task"):
        await till.ask("tasks/get", taskId=name)

    assert shown["error"] == {"code": -32603, "message": "the task took longer than it may"}
    assert till.doings.begun == []
    assert await till.store.scan("task-calls") == []


async def test_a_tool_that_takes_longer_than_its_task_may_is_cancelled() -> None:
    till = Till(ttl_ms=300)
    name, job = await till.begun("hang")
    await till.workers[0].do(job)
    shown = await till.ask("tasks/get", taskId=name)

    assert shown["error"]["message"] == "the task took longer than it may"
    assert till.doings.ended.is_set()


async def test_a_store_that_is_away_is_a_clear_error_that_tells_no_secret() -> None:
    till = Till()
    name, _ = await till.begun("work")
    till.store.away = True
    said: list[str] = []
    requests: list[tuple[str, Json]] = [
        ("tools/call", {"name": "work"}),
        ("tasks/get", {"taskId": name}),
        ("tasks/update", {"taskId": name, "inputResponses": {}}),
        ("tasks/cancel", {"taskId": name}),
        ("subscriptions/listen", {"notifications": {"taskIds": [name]}}),
    ]
    for method, params in requests:
        with pytest.raises(RequestError) as refused:
            await till.ask(method, **params)
        assert refused.value.code == -32603
        said.append(refused.value.message)

    assert said[0] == "no task can be kept or given to a worker now"
    assert set(said[1:]) == {"the store of tasks cannot be reached; try again later"}


async def test_a_task_that_cannot_be_given_to_a_worker_is_not_kept() -> None:
    till = Till()
    till.queue.away = True
    with pytest.raises(RequestError, match="no task can be kept or given to a worker now"):
        await till.ask("tools/call", name="work")

    assert await till.store.scan(TASKS) == []
    assert await till.store.scan("task-calls") == []


async def test_who_listens_hears_the_end_of_a_task_although_the_store_was_away_meanwhile() -> None:
    till = Till()
    name, job = await till.begun("work")
    till.doings.go.set()
    received: list[Json] = []
    over = anyio.Event()

    def hear(known: str, shown: Json) -> None:
        received.append(shown)
        if shown["status"] == "completed":
            over.set()

    current = await till.tasks.current(listener(), [name])
    async with anyio.create_task_group() as tasks:
        till.store.away = True
        tasks.start_soon(till.tasks.watch, current, hear)
        await anyio.sleep(0.15)  # so that it is likely looked for in vain
        till.store.away = False
        tasks.start_soon(till.workers[0].do, job)
        await over.wait()

    assert received[-1]["status"] == "completed"


def listener() -> Request:
    """Return the request of a client that listens."""
    client = Client(version="2026-07-28", capabilities=DECLARED)
    return Request(method="subscriptions/listen", params={}, client=client, reply_channel=Nobody(), id=1)


@pytest.mark.parametrize(("deaths", "status"), [(2, "completed"), (3, "failed")])
async def test_a_task_costs_no_more_than_a_few_workers(deaths: int, status: str) -> None:
    till = Till()
    name, job = await till.begun("again")
    found = await till.store.get(TASKS, name)
    assert found is not None
    await till.store.put(TASKS, name, {**found.value, "runner": "it died"}, ttl=60)
    await till.store.put(TASK_NOTES.deaths, name, {"deaths": deaths, "holder": None})
    await till.workers[0].do(job)
    shown = await till.ask("tasks/get", taskId=name)

    assert shown["status"] == status


@pytest.mark.parametrize("carried", ["in process", "over HTTP"])
async def test_what_went_wrong_inside_is_masked_for_strangers_wherever_the_tool_runs(carried: str) -> None:
    till = Till()
    headers = {"authorization": "Bearer a-token", "mcp-name": "crash"} if carried == "over HTTP" else {}
    name = (await till.ask("tools/call", headers, name="crash"))["taskId"]
    (kept,) = await till.store.scan("task-calls")
    await till.workers[0].do(till.queue.jobs[-1])
    shown = await till.ask("tasks/get", taskId=name)

    assert shown["result"]["isError"]
    assert ("a secret" in shown["result"]["content"][0]["text"]) == (carried == "in process")
    assert "a-token" not in str(kept.value)
    assert await till.store.scan("task-calls") == []


async def test_a_client_of_the_older_form_that_refuses_to_be_asked_is_told_to_the_handler() -> None:
    till = Till()
    task = (await till.ask_in_core("tools/call", name="ask", task={}))["task"]
    results: list[Json] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(till.workers[0].do, till.queue.jobs[-1])
        results.append(await till.ask_in_core("tasks/result", taskId=task["taskId"]))

    (result,) = results
    assert result["isError"]
    assert result["content"][0]["text"] == "nobody is there"


async def test_a_task_whose_tool_is_gone_fails() -> None:
    till = Till()
    other = Till()
    name, job = await till.begun("work")
    kept = TaskStore(till.store, till.queue, "till", till.clock)
    calls = Tools(ToolRegistry([other.huge]), runner=HandlerRunner())
    jobs = TaskJobs(till.tasks.rules, runner=HandlerRunner(), tasks=kept, prepare=calls.prepare)
    await JobWorker(jobs).do(job)
    shown = await till.ask("tasks/get", taskId=name)

    assert shown["error"] == {"code": -32602, "message": "Unknown tool: work"}


async def test_a_result_that_is_waited_for_comes_in_time_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.serve._tasks.feature.SLACK_SECONDS", 0.05)
    till = Till(ttl_ms=200)
    task = (await till.ask_in_core("tools/call", name="work", task={}))["task"]
    with pytest.raises(RequestError, match="was not over when it had to be") as refused:
        await till.ask_in_core("tasks/result", taskId=task["taskId"])

    assert refused.value.code == -32603


async def test_a_redis_that_goes_away_is_a_clear_error_and_its_tasks_go_on_when_it_is_back(tmp_path: Path) -> None:
    doings = Doings()
    with RedisServer(tmp_path, durable=True) as redis:
        store = RedisStore(redis.url, wait_seconds=0.5)
        backend = Backend(redis.url, store=store)
        shop = replica(backend, doings)
        async with talking(shop) as talk, working(replica(backend, doings)):
            name = (await talk.ask("tools/call", {"name": "work"}))["taskId"]
            await doings.until(1)
            redis.kill()
            with pytest.raises(RequestError, match="cannot be reached; try again later"):
                await talk.ask("tasks/get", {"taskId": name})
            redis.start()
            doings.go.set()
            shown = await until(talk, name, "completed", "failed")

    assert shown["result"]["content"][0]["text"] == "worked"
    assert doings.begun == ["work"]
