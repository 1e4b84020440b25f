"""Tasks of servers that share a backend: any replica answers about any task, wherever it runs."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from tests.serve.carriers import EACH_ERA
from tests.serve.exchanges import exchange
from tests.serve.serving import served_http
from tests.serve.shared_tasks import (
    DECLARED,
    Doings,
    Rulings,
    accept,
    answered,
    backend,
    doings,
    replica,
    two_replicas,
    until,
    working,
)
from tests.serve.talking import Talk, talking
from toolweave.errors import RequestError
from toolweave.jobs import Backend, Job, Retention, work_jobs
from toolweave.serve import TaskRule, create_mcp_server
from toolweave.serve._tasks.store import TASKS
from toolweave.serve.request import Json
from toolweave.state import MemoryStore
from toolweave.tools import CallContext

__all__ = ["backend", "doings"]  # fixtures

pytestmark = pytest.mark.slow


async def begun(talk: Talk, tool: str, era: str, **arguments: Any) -> str:
    """Call a tool that becomes a task; return the task's id."""
    asked: Json = {"name": tool, "arguments": arguments}
    result = await talk.ask("tools/call", asked if era == "2026-07-28" else {**asked, "task": {}})
    return result["taskId"] if era == "2026-07-28" else result["task"]["taskId"]


@pytest.mark.requirement("R84")
@EACH_ERA
async def test_a_task_that_one_replica_took_is_seen_and_ended_on_another(
    backend: Backend, doings: Doings, era: str
) -> None:
    async with two_replicas(backend, doings, era) as (one, two):
        name = await begun(one, "work", era)
        with anyio.fail_after(60):
            while "statusMessage" not in (shown := await two.ask("tasks/get", {"taskId": name})):
                await anyio.sleep(0.02)
        doings.go.set()
        ended = await until(two, name, "completed")
        result = ended["result"] if era == "2026-07-28" else await two.ask("tasks/result", {"taskId": name})

    assert (shown["status"], shown["statusMessage"]) == ("working", "1/3")
    assert result["content"] == [{"type": "text", "text": "worked"}]
    assert doings.begun == ["work"]


async def test_a_question_is_answered_on_whichever_replica_the_client_reaches(backend: Backend, doings: Doings) -> None:
    era = "2026-07-28"
    async with two_replicas(backend, doings, era) as (one, two):
        name = await begun(one, "ask", era)
        both = await until(two, name, "input_required")
        await two.ask("tasks/update", {"taskId": name, "inputResponses": {"x": 1, "a": accept("one")}})
        half = await one.ask("tasks/get", {"taskId": name})
        with pytest.raises(RequestError, match="does not fit the form") as wrong:
            await one.ask("tasks/update", {"taskId": name, "inputResponses": {"b": accept(5)}})  # pyright: ignore[reportArgumentType]
        await one.ask("tasks/update", {"taskId": name, "inputResponses": {"a": accept("late"), "b": accept("two")}})
        taken = await two.ask("tasks/get", {"taskId": name})
        again = await until(two, name, "input_required")
        await two.ask("tasks/update", {"taskId": name, "inputResponses": {"a-2": accept("three")}})
        ended = await until(one, name, "completed")

    assert list(both["inputRequests"]) == ["a", "b"]
    assert (half["status"], list(half["inputRequests"])) == ("input_required", ["b"])
    assert wrong.value.code == -32602
    assert (taken["status"], "inputRequests" in taken) in {("working", False), ("input_required", True)}
    assert list(again["inputRequests"]) == ["a-2"]
    assert json.loads(ended["result"]["content"][0]["text"]) == ["one", "two", "three"]


async def test_the_older_form_asks_on_the_stream_of_the_result_on_whichever_replica(
    backend: Backend, doings: Doings
) -> None:
    era = "2025-11-25"
    async with two_replicas(backend, doings, era) as (one, two):
        name = await begun(one, "ask", era)
        number = await two.send("tasks/result", {"taskId": name})
        for count, answer in enumerate(("one", "two", "three"), 1):
            await two.received("elicitation/create", count)
            asked = [said for said in two.notifications if said["method"] == "elicitation/create"]
            await two.answer(asked[-1]["id"], accept(answer))
        result = await two.result(number)

    assert json.loads(result["content"][0]["text"]) == ["one", "two", "three"]
    assert all(one["_meta"] == result["_meta"] for one in two.of("elicitation/create"))


@EACH_ERA
async def test_a_task_that_another_replica_cancels_is_over_at_once_and_its_tool_soon(
    backend: Backend, doings: Doings, era: str
) -> None:
    async with two_replicas(backend, doings, era) as (one, two):
        name = await begun(one, "hang", era)
        await doings.until(1)
        await two.ask("tasks/cancel", {"taskId": name})
        shown = await one.ask("tasks/get", {"taskId": name})
        with anyio.fail_after(60):
            await doings.ended.wait()
        later = await one.ask("tasks/get", {"taskId": name})

    assert (shown["status"], shown["statusMessage"]) == ("cancelled", "the client cancelled it")
    assert later["status"] == "cancelled"


async def test_a_task_that_was_cancelled_before_a_worker_came_is_never_run(backend: Backend, doings: Doings) -> None:
    doings.go.set()
    server = replica(backend, doings)
    async with talking(server) as talk:
        first = await begun(talk, "work", "2026-07-28")
        await talk.ask("tasks/cancel", {"taskId": first})
        second = await begun(talk, "work", "2026-07-28")
        async with working(server):
            await until(talk, second, "completed")
            shown = await talk.ask("tasks/get", {"taskId": first})

    assert shown["status"] == "cancelled"
    assert doings.begun == ["work"]


async def test_who_listens_on_another_replica_hears_how_a_task_goes_on_and_ends(
    backend: Backend, doings: Doings
) -> None:
    async with two_replicas(backend, doings) as (one, two):
        name = await begun(one, "work", "2026-07-28")
        await two.send("subscriptions/listen", {"notifications": {"taskIds": [name, "unknown"]}})
        await two.received("notifications/tasks")
        doings.go.set()
        with anyio.fail_after(60):
            while two.of("notifications/tasks")[-1]["status"] != "completed":
                await two.received("notifications/tasks", len(two.of("notifications/tasks")) + 1)
        shown = await one.ask("tasks/get", {"taskId": name})

    (acknowledged,) = two.of("notifications/subscriptions/acknowledged")
    assert acknowledged["notifications"] == {"taskIds": [name]}
    stamps = ("resultType", "_meta")
    received = two.of("notifications/tasks")[-1]
    assert {key: value for key, value in received.items() if key != "_meta"} == {
        key: value for key, value in shown.items() if key not in stamps
    }


async def test_nobody_else_sees_a_task_on_any_replica(backend: Backend, doings: Doings) -> None:
    one = replica(backend, doings)
    two = replica(backend, doings)
    async with one.running(), two.running():
        name = (await answered(one, "alice", "tools/call", name="hang"))["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for stranger in ("bob", None):
                with pytest.raises(RequestError, match="Unknown task") as refused:
                    await answered(two, stranger, method, taskId=name, inputResponses={})
                assert refused.value.code == -32602
        mine = await answered(two, "alice", "tasks/get", taskId=name)

    assert mine["status"] == "working"


async def test_a_server_of_another_name_knows_none_of_the_tasks(backend: Backend, doings: Doings) -> None:
    shop = replica(backend, doings)
    other = create_mcp_server(
        name="other", version="1", tools=[doings.work], tasks={"work": "required"}, backend=backend
    )
    async with shop.running(), other.running():
        name = (await answered(shop, None, "tools/call", name="hang"))["taskId"]
        with pytest.raises(RequestError, match="Unknown task"):
            await answered(other, None, "tasks/get", taskId=name)

    assert (list(shop.handlers()), list(other.handlers())) == (["tasks:shop"], ["tasks:other"])


async def test_two_http_endpoints_share_their_tasks(backend: Backend, doings: Doings) -> None:
    doings.go.set()

    async def ask(url: str, method: str, named: str, **params: Any) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": DECLARED,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": named,
        }
        answer = await exchange(url, headers=headers, body=json.dumps(body).encode())
        if answer.headers["content-type"].startswith("text/event-stream"):
            lines = [
                line for line in answer.body.decode().splitlines() if line.startswith("data:") and line[5:].strip()
            ]
            return json.loads(lines[-1][5:])["result"]
        return answer.json()["result"]

    async with (
        working(replica(backend, doings)),
        served_http(replica(backend, doings)) as one,
        served_http(replica(backend, doings)) as two,
    ):
        name = (await ask(one, "tools/call", "work", name="work", arguments={}))["taskId"]
        with anyio.fail_after(60):
            while (shown := await ask(two, "tasks/get", name, taskId=name))["status"] != "completed":
                await anyio.sleep(0.02)

    assert shown["result"]["content"] == [{"type": "text", "text": "worked"}]


async def test_a_protocol_error_of_the_tool_is_the_failure_of_the_task(backend: Backend, doings: Doings) -> None:
    async with working(replica(backend, doings)), talking(replica(backend, doings)) as talk:
        shown = await until(talk, await begun(talk, "refuse", "2026-07-28"), "failed")

    assert shown["error"] == {"code": -32050, "message": "broken on purpose", "data": {"why": "on purpose"}}


async def test_a_tool_that_does_no_harm_runs_again_after_its_worker_stopped(backend: Backend, doings: Doings) -> None:
    async with talking(replica(backend, doings)) as talk:
        async with working(replica(backend, doings)):
            name = await begun(talk, "harmless", "2026-07-28")
            await doings.until(1)
        between = await talk.ask("tasks/get", {"taskId": name})
        (do,) = replica(backend, doings).handlers().values()
        delivered: list[Job] = []

        async def work(job: Job) -> None:
            delivered.append(job)
            await do(job)

        shown: dict[str, Any] = {}
        async with backend, anyio.create_task_group() as tasks:
            tasks.start_soon(backend.queue.work, {"tasks:shop": work})
            shown = await until(talk, name, "completed", "failed")
            tasks.cancel_scope.cancel()

    assert between["status"] == "working"
    assert [job.deaths for job in delivered] == [0]
    assert shown["result"]["content"][0]["text"] == "done in the end"
    assert doings.begun == ["harmless", "harmless"]
    assert doings.keys[0] == doings.keys[1]
    assert name not in doings.keys[0]


async def test_a_tool_that_may_do_harm_is_not_run_again_after_its_worker_stopped(
    backend: Backend, doings: Doings
) -> None:
    async with talking(replica(backend, doings)) as talk:
        async with working(replica(backend, doings)):
            name = await begun(talk, "hang", "2026-07-28")
            await doings.until(1)
        shown = await until(talk, name, "failed")
        async with working(replica(backend, doings)):
            later = await until(talk, name, "failed")

    assert "the outcome is unknown" in shown["error"]["message"]
    assert shown["error"]["data"] == {"reason": "worker_lost"}
    assert later == shown
    assert doings.begun == ["hang"]


async def test_a_tool_under_way_ends_within_the_grace_of_its_worker(backend: Backend, doings: Doings) -> None:
    server = replica(backend, doings)
    stopped = anyio.CancelScope()

    async def work(*, task_status: TaskStatus[None]) -> None:
        with stopped:
            await work_jobs(server.handlers(), backend, grace_seconds=60, started=task_status.started)

    name = ""
    async with talking(server) as talk, backend:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                await tasks.start(work)
                name = await begun(talk, "work", "2026-07-28")
                await doings.until(1)
                stopped.cancel()
                doings.go.set()
        shown = await talk.ask("tasks/get", {"taskId": name})

    assert shown["status"] == "completed"
    assert shown["result"]["content"][0]["text"] == "worked"
    assert doings.begun == ["work"]


async def test_a_rule_says_that_a_tool_runs_again_whatever_it_says_of_itself(doings: Doings) -> None:
    backend = Backend("memory://")
    rules: Rulings = {"hang": TaskRule("required", on_lost="rerun"), "harmless": TaskRule("required", on_lost="fail")}
    async with talking(replica(backend, doings, tasks=rules)) as talk:
        async with working(replica(backend, doings, tasks=rules)):
            harmless = await begun(talk, "harmless", "2026-07-28")
            await doings.until(1)
            hang = await begun(talk, "hang", "2026-07-28")
            await doings.until(2)
        async with working(replica(backend, doings, tasks=rules)):
            await doings.until(3)
            failed = await until(talk, harmless, "failed")
            await talk.ask("tasks/cancel", {"taskId": hang})

    assert "the outcome is unknown" in failed["error"]["message"]
    assert doings.begun == ["harmless", "hang", "hang"]


async def test_an_answer_that_fits_the_form_but_not_its_model_is_asked_for_again(doings: Doings) -> None:
    from pydantic import BaseModel, field_validator

    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd")
            return value

    async def count(ctx: CallContext) -> str:
        answer = await ctx.elicit("An even number?", Even, key="n")
        return "none" if answer.value is None else str(answer.value.number)

    backend = Backend("memory://")
    worker, server = (replica(backend, doings, tasks={"count": "required"}) for _ in range(2))
    for one in (worker, server):
        one.tool(count)
    async with working(worker), talking(server) as talk:
        name = await begun(talk, "count", "2026-07-28")
        await until(talk, name, "input_required")
        odd = {"action": "accept", "content": {"number": 3}}
        await talk.ask("tasks/update", {"taskId": name, "inputResponses": {"n": odd}})
        again = await until(talk, name, "input_required")
        even = {"action": "accept", "content": {"number": 4}}
        await talk.ask("tasks/update", {"taskId": name, "inputResponses": {"n-2": even}})
        ended = await until(talk, name, "completed")

    assert list(again["inputRequests"]) == ["n-2"]
    assert ended["result"]["content"][0]["text"] == "4"


async def test_answers_that_were_given_are_not_asked_for_again_when_the_tool_runs_again(doings: Doings) -> None:
    backend = Backend("memory://")
    rules: Rulings = {"ask": TaskRule("required", on_lost="rerun")}
    async with talking(replica(backend, doings, tasks=rules)) as talk:
        async with working(replica(backend, doings, tasks=rules)):
            name = await begun(talk, "ask", "2026-07-28")
            await until(talk, name, "input_required")
            answers = {"a": accept("one"), "b": accept("two")}
            await talk.ask("tasks/update", {"taskId": name, "inputResponses": answers})
            with anyio.fail_after(60):
                while "a-2" not in (await until(talk, name, "input_required"))["inputRequests"]:
                    await anyio.sleep(0.02)
        async with working(replica(backend, doings, tasks=rules)):
            await doings.until(2)
            await until(talk, name, "input_required")
            await talk.ask("tasks/update", {"taskId": name, "inputResponses": {"a-2": accept("three")}})
            ended = await until(talk, name, "completed")

    assert json.loads(ended["result"]["content"][0]["text"]) == ["one", "two", "three"]


async def test_a_client_s_idempotency_key_is_its_principal_s_alone(doings: Doings) -> None:
    backend = Backend("memory://")
    doings.go.set()
    server = replica(backend, doings)
    async with working(replica(backend, doings)), server.running():
        for count, principal in enumerate(("alice", "alice", "bob"), 1):
            meta = {"io.toolweave/idempotency-key": "the same"}
            await answered(server, principal, "tools/call", name="work", _meta=meta)
            await doings.until(count)

    assert doings.keys[0] == doings.keys[1] != doings.keys[2]
    assert "the same" not in doings.keys


def test_a_server_has_a_store_or_a_backend() -> None:
    with pytest.raises(ValueError, match="give store= or backend=, not both"):
        create_mcp_server(name="x", version="1", store=MemoryStore(), backend=Backend("memory://"))


def test_a_server_without_a_backend_or_without_tasks_has_nothing_for_workers(doings: Doings) -> None:
    alone = create_mcp_server(name="x", version="1", tools=[doings.work], tasks={"work": "optional"})
    plain = create_mcp_server(name="x", version="1", tools=[doings.work], backend=Backend("memory://"))

    assert alone.handlers() == plain.handlers() == {}


def test_what_is_done_about_a_lost_task_is_one_of_two_things() -> None:
    with pytest.raises(ValueError, match="on_lost is 'rerun', 'fail' or None, not 'again'"):
        TaskRule("required", on_lost="again")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("retention", "seconds"), [(None, 3_600), (Retention(task_seconds=7), 7)])
async def test_a_task_is_kept_as_long_as_the_retention_of_the_backend(
    doings: Doings, retention: Retention | None, seconds: int
) -> None:
    store = MemoryStore()
    server = replica(Backend("memory://", store=store, retention=retention), doings)
    async with server.running():
        made = await answered(server, "alice", "tools/call", name="hang")
        (kept,) = await store.scan(TASKS)

    assert made["ttlMs"] == 1_000 * seconds
    assert kept.expires_at is not None
    # while it runs, a little longer, so that its outcome can be read
    assert seconds - 5 < kept.expires_at - time.time() <= seconds + 61


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan")])
def test_a_retention_of_tasks_that_is_not_a_time_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="task_seconds"):
        Retention(task_seconds=wrong)
