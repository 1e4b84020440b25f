"""What the calls of a run over real servers come to when `toolweave worker` does the run, by each provider's API."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.agent_real.apis import APIS, ApiName, Call, in_turns
from tests.agent_real.conftest import running
from tests.agent_real.worked import heard_in
from tests.agent_real.workers import came_true, place

pytestmark = pytest.mark.reference

PNG = b"iVBORw0KGgo"
"""How every PNG begins, in base64."""


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> ApiName:
    """Each API in turn."""
    return request.param


@pytest.mark.requirement("C17", "R57", "R58", "R61")
async def test_calls_at_the_same_time_an_image_failures_and_what_nobody_allows_reach_the_model_of_a_worker(
    api: ApiName, tmp_path: Path, work: Path, redis_url: str
) -> None:
    denied = {"path": str(work / "no.txt"), "content": "written"}
    calls = [
        Call("one", "meet", {"number": 1}),
        Call("sum", "everything_get-sum", {"a": 2, "b": 40}),
        Call("image", "everything_get-tiny-image"),
        Call("refused", "files_read_text_file", {"path": "/etc/hostname"}),
        Call("unfit", "everything_echo", {}),
        Call("raised", "fail"),
        Call("denied", "files_write_file", denied),
        Call("other", "meet", {"number": 0}),
    ]
    say = in_turns(calls, then="that was all")
    async with place(tmp_path, redis_url, api=api, say=say, ask=True) as at, at.workers(1, command=True):
        record = await (await at.agent.submit("try", attended=False))
        read = at.provider.results

    assert (record.status, record.text, record.steps) == ("completed", "that was all", 2)
    assert list(read) == [call.id for call in calls]
    assert [read[name].text for name in ("one", "other")] == ["met 0", "met 1"]
    assert read["sum"].text == "The sum of 2 and 40 is 42."
    failures = {
        "refused": "Access denied",
        "unfit": 'missing required property "message"',
        "raised": "no such thing",
        "denied": "nobody can be asked",
    }
    for name, said in failures.items():
        assert said in read[name].text, name
    assert {name for name, one in read.items() if one.is_error} == (set(failures) if api == "anthropic" else set())
    assert not (work / "no.txt").exists()
    assert [image.startswith(PNG) for image in read["image"].images] == ([] if api == "chat" else [True])


@pytest.mark.requirement("C24")
async def test_a_server_of_a_worker_that_is_killed_between_turns_is_back_for_the_next_call_and_the_next_run(
    api: ApiName, tmp_path: Path, redis_url: str
) -> None:
    turns = [
        [Call("before", "everything_echo", {"message": "here"})],
        [Call("kill", "kill")],
        [Call("after", "everything_echo", {"message": "again"})],
    ]
    say = in_turns(*turns, then="it is back")
    async with place(tmp_path, redis_url, api=api, say=say) as at, at.workers(1, command=True) as (worker,):
        records = [await (await at.agent.submit("kill it")) for _ in range(2)]
        texts = [one.text for one in at.provider.results.values()]
        (now,) = running("server-everything", worker.pid)

    assert [(one.status, one.text) for one in records] == [("completed", "it is back")] * 2
    assert (texts[0], texts[2]) == ("Echo: here", "Echo: again")
    assert texts[1].startswith("killed ")
    assert str(now.pid) not in texts[1]


async def test_a_run_on_a_worker_that_its_submitter_cancels_in_mid_call_tells_the_server_and_leaves_nothing_at_work(
    api: ApiName, tmp_path: Path, redis_url: str
) -> None:
    long = Call("long", "everything_trigger-long-running-operation", {"duration": 600, "steps": 6000})
    say = in_turns([long, Call("own", "forever")])
    async with (
        place(tmp_path, redis_url, api=api, say=say, hear=True) as at,
        at.workers(1, command=True) as (worker,),
    ):
        run = await at.agent.submit("wait")
        await came_true(lambda: "trigger-long-running-operation" in heard_in(tmp_path).read_text())
        await came_true(lambda: f"forever began in {worker.pid}" in at.noted)
        assert await run.cancel()
        record = await run
        await at.nothing_is_left_over()

        assert (record.status, record.stop_reason, record.steps) == ("cancelled", "cancelled", 1)
        assert at.noted.count("forever ended") == 1
        assert len(at.provider.bodies) == 1
        assert not await run.cancel()
        # the record of the run does not wait for the server to read what it is told
        await came_true(lambda: "notifications/cancelled" in heard_in(tmp_path).read_text())
        sent = [json.loads(line) for line in heard_in(tmp_path).read_text().splitlines()]
        assert len(running("server-everything", worker.pid)) == 1

        worker.process.send_signal(signal.SIGTERM)
        assert await worker.process.wait() == 0

    (call,) = [one for one in sent if one.get("params", {}).get("name") == "trigger-long-running-operation"]
    told = [one["params"]["requestId"] for one in sent if one["method"] == "notifications/cancelled"]
    assert told == [call["id"]]


async def test_a_run_that_is_cancelled_stays_so_when_its_worker_dies_before_it_is_told(
    tmp_path: Path, redis_url: str
) -> None:
    say = in_turns([Call("own", "forever")])
    async with place(tmp_path, redis_url, api="anthropic", say=say) as at, at.workers(2) as workers:
        run = await at.agent.submit("wait")
        await came_true(lambda: any("forever began" in line for line in at.noted))
        (began,) = [line for line in at.noted if line.startswith("forever began in ")]
        (holder,) = [worker for worker in workers if began.endswith(f" {worker.pid}")]
        assert await run.cancel()
        holder.process.kill()
        record = await run
        await at.nothing_is_left_over()

    assert (record.status, record.stop_reason) == ("cancelled", "cancelled")
    assert len(at.provider.bodies) == 1
    assert sum("forever began" in line for line in at.noted) == 1
