"""Tasks of servers that every replica runs for itself, and of calls that were over at once; any replica is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.scale.replicas import KEYS, STORES, Json, store_of
from tests.gateway.test_tasks import ENDED, Slow, ask, before, ended, request
from tests.gateway.upstreams import LEGACY, MODERN, caller
from tests.serve.raw import Raw
from toolweave.errors import RequestError, StoreError
from toolweave.gateway import Replicas
from toolweave.gateway._callers.gateways import ServingGroups
from toolweave.gateway._tasks.kept_tasks import NO_REPLY_CHANNEL, ProcessTasks
from toolweave.serve import Client, Request
from toolweave.state import MemoryStore, Store

UPSTREAMS = pytest.mark.parametrize("upstream", [LEGACY, MODERN])
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
TASKS = "gateway-tasks"


@asynccontextmanager
async def at_replica(slow: Slow, store: Store, era: str, upstream: str = "auto") -> AsyncGenerator[Raw]:
    """Speak to a replica, which has a server of its own."""
    gateway = before(slow, upstream, state_keys=KEYS, replicas=Replicas(store, KEYS))
    async with caller(gateway, era, elicitation={}) as raw:
        yield raw


async def begun(raw: Raw, tool: str) -> str:
    """Call a tool as a task; return its id."""
    wanted: Json = {} if raw.version == MODERN else {"task": {}}
    made = await request(raw, "tools/call", name=f"up_{tool}", arguments={}, **wanted)
    return (made if raw.version == MODERN else made["task"])["taskId"]


async def outcome(raw: Raw, name: str) -> Json:
    """Return the answer to a request for how a task ended."""
    if raw.version != MODERN:
        return await ask(raw, "tasks/result", taskId=name)
    found = await request(raw, "tasks/get", taskId=name)
    return {member: found[member] for member in ("result", "error") if member in found}


@UPSTREAMS
@ERAS
async def test_a_task_is_known_to_another_replica_while_it_runs_and_when_it_has_ended(era: str, upstream: str) -> None:
    support = "required" if upstream == LEGACY else "optional"  # else a modern caller gets no task
    here, there, store = Slow(support), Slow(support), MemoryStore()
    async with at_replica(here, store, era, upstream) as one, at_replica(there, store, era, upstream) as other:
        name = await begun(one, "slow")
        running = await request(other, "tasks/get", taskId=name)
        here.go.set()
        found = await ended(other, name)
        result = await outcome(other, name)
        own = await outcome(one, name)

    assert (running["status"], found["status"]) == ("working", "completed")
    assert result["result"]["structuredContent"] == own["result"]["structuredContent"] == {"n": 1}


@STORES
@ERAS
async def test_how_a_task_ended_is_known_after_its_replica_is_gone(
    kind: str, era: str, tmp_path: Path, redis_url: str
) -> None:
    first = store_of(kind, tmp_path, redis_url)
    second = first if kind == "memory" else store_of(kind, tmp_path, redis_url)
    async with at_replica(Slow(), second, era) as other:
        here = Slow()
        async with at_replica(here, first, era) as one:
            name, wrong = await begun(one, "slow"), await begun(one, "wrong")
            here.go.set()
            await ended(one, name)
            await ended(one, wrong)
        found, failed = await outcome(other, name), await outcome(other, wrong)

    assert found["result"]["structuredContent"] == {"n": 1}
    assert failed["result"]["isError"] is True


@ERAS
async def test_how_a_task_ended_is_known_though_the_store_lost_it(era: str) -> None:
    here, store = Slow(), MemoryStore()
    async with at_replica(here, store, era) as one, at_replica(Slow(), store, era) as other:
        name = await begun(one, "slow")
        running = await store.scan(TASKS)
        here.go.set()
        await ended(one, name)
        for document in running:  # as a server that became the primary has it, without the last writes
            await store.put(TASKS, document.key, document.value)
        found = await ended(other, name)
        answer = await outcome(other, name)

    assert found["status"] == "completed"
    assert answer["result"]["structuredContent"] == {"n": 1}


class Moving(MemoryStore):
    """A store whose server can be replaced by another one, which is empty."""

    server_since = 0.0

    async def move(self) -> None:
        """Lose the tasks."""
        for document in await self.scan(TASKS):
            await self.delete(TASKS, document.key)
        self.server_since = anyio.current_time()


@pytest.mark.slow
@ERAS
async def test_tasks_that_another_server_of_the_store_does_not_know_are_stored_again(era: str) -> None:
    here, store = Slow(), Moving()
    async with at_replica(here, store, era) as one, at_replica(Slow(), store, era) as other:
        name, wrong = await begun(one, "slow"), await begun(one, "wrong")
        await ended(one, wrong)
        await store.move()
        with anyio.fail_after(30):
            while len(await store.scan(TASKS)) < 2:
                await anyio.sleep(0.01)
        running = await request(other, "tasks/get", taskId=name)
        failed = await outcome(other, wrong)
        here.go.set()
        await ended(other, name)

    assert running["status"] == "working"
    assert failed["result"]["isError"] is True


@pytest.mark.slow
@ERAS
async def test_a_task_whose_replica_is_gone_has_failed_with_an_unknown_outcome(era: str) -> None:
    store = MemoryStore()
    async with at_replica(Slow(), store, era) as other:
        async with at_replica(Slow(), store, era) as one:
            name = await begun(one, "slow")
        found = await ended(other, name)
        answer = await outcome(other, name)

    assert found["status"] == "failed"
    assert answer["error"]["code"] == -32603
    assert "the outcome is unknown" in answer["error"]["message"]


@ERAS
async def test_a_task_is_cancelled_at_another_replica(era: str) -> None:
    store = MemoryStore()
    async with at_replica(Slow(), store, era) as one, at_replica(Slow(), store, era) as other:
        name = await begun(one, "slow")
        await request(other, "tasks/cancel", taskId=name)
        found = [(await ended(raw, name))["status"] for raw in (one, other)]
        again = await ask(other, "tasks/cancel", taskId=name)

    assert found == ["cancelled", "cancelled"]
    assert ("error" in again) is (era == LEGACY)


async def test_what_a_task_asks_is_answered_at_another_replica() -> None:
    store = MemoryStore()
    async with at_replica(Slow(), store, MODERN) as one, at_replica(Slow(), store, MODERN) as other:
        name = await begun(one, "asks")
        with anyio.fail_after(30):
            while (found := await request(other, "tasks/get", taskId=name))["status"] != "input_required":
                await anyio.sleep(0.02)
        (key,) = found["inputRequests"]
        answers = {key: {"action": "accept", "content": {"city": "Oslo"}}}
        await request(other, "tasks/update", taskId=name, inputResponses=answers)
        done = await ended(other, name)

    assert done["result"]["content"][0]["text"] == "Oslo"


async def test_nobody_else_is_told_of_a_task() -> None:
    store = MemoryStore()
    async with at_replica(Slow(), store, MODERN) as one, at_replica(Slow(), store, MODERN) as other:
        name = await begun(one, "slow")
        refused = [await ask(other, "tasks/get", taskId=bad) for bad in (name[:-2], name + "A", "t1.a.b.c", "x" * 30)]
        plain = [str(one.value) for one in await store.scan("gateway-tasks")]

    assert [one["error"]["code"] for one in refused] == [-32602] * 4
    assert plain
    assert not any("working" in one or name in one for one in plain)


async def test_a_call_that_was_over_when_a_task_was_wanted_is_one_at_every_replica() -> None:
    store = MemoryStore()
    quick: Any = {"support": "optional"}
    here, there = Slow(**quick), Slow(**quick)
    async with at_replica(there, store, LEGACY, MODERN) as other:
        async with at_replica(here, store, LEGACY, MODERN) as one:
            here.server.tool(hello)
            with anyio.fail_after(30):
                while "up_hello" not in [tool["name"] for tool in (await request(one, "tools/list"))["tools"]]:
                    await anyio.sleep(0.02)
            made = await request(one, "tools/call", name="up_hello", arguments={}, task={})
        name = made["task"]["taskId"]
        found = await request(other, "tasks/get", taskId=name)
        answer = await outcome(other, name)
        unknown = await ask(other, "tasks/result", taskId=name[:-1])

    assert found["status"] in ENDED
    assert answer["result"]["content"][0]["text"] == "hello"
    assert unknown["error"]["code"] == -32602


def hello() -> str:
    """Greet."""
    return "hello"


class Away(MemoryStore):
    """A store that cannot be reached while `away` is set."""

    away = False

    async def get(self, collection: str, key: str) -> Any:
        """Return what is stored, or raise StoreError."""
        if self.away:
            raise StoreError("the store is away")
        return await super().get(collection, key)


@pytest.mark.slow
async def test_while_the_store_is_away_a_replica_knows_the_last_ten_thousand_tasks_that_began_at_it() -> None:
    store, groups = Away(), ServingGroups("tasks run")

    async def act(request: Request, name: str) -> Json:
        raise AssertionError("nobody asks this replica")

    async def end() -> Json:
        return {"taskId": "any", "status": "completed"}

    kept = ProcessTasks(Replicas(store, KEYS), groups, act)
    asked = Request("tasks/get", {}, Client(version=MODERN), NO_REPLY_CHANNEL, 0)
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            with groups.within(tasks):
                for number in range(10_001):
                    await kept.begun(f"task-{number}", {"taskId": "any", "status": "working"}, end)
    store.away = True

    assert not kept.follows("task-1")
    assert await kept.elsewhere(asked, "task-1") is None  # its server, of this replica, is asked
    with pytest.raises(RequestError, match="cannot be reached"):
        await kept.elsewhere(asked, "task-0")
