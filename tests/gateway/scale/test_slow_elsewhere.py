"""Calls that have become tasks in one replica because they take long, while their caller asks another one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.gateway.scale.replicas import KEYS, Json
from tests.gateway.test_slow_calls import ENDED, Held, before
from tests.serve.talking import Talk, talking
from toolweave.errors import RequestError
from toolweave.gateway import Gateway, Replicas
from toolweave.state import MemoryStore


def replica(held: Held, store: MemoryStore) -> Gateway:
    """Return a replica before the upstream."""
    return before(held, state_keys=KEYS, replicas=Replicas(store, KEYS))


@asynccontextmanager
async def pair(held: Held, store: MemoryStore) -> AsyncGenerator[tuple[Talk, Talk]]:
    """Speak to two replicas as one caller."""
    with anyio.fail_after(60):
        async with talking(replica(held, store)) as here, talking(replica(held, store)) as there:
            yield here, there


async def begun(talk: Talk, tool: str) -> str:
    """Call a tool that is held; return the id of its task."""
    return (await talk.ask("tools/call", {"name": tool, "arguments": {}}))["taskId"]


async def until(talk: Talk, name: str, *statuses: str) -> Json:
    """Return a task once it has one of these states."""
    while True:
        found = await talk.ask("tasks/get", {"taskId": name})
        if found["status"] in statuses:
            return found
        await anyio.sleep(0.02)


async def test_any_replica_knows_how_a_task_is_and_how_it_ended() -> None:
    held, store = Held(), MemoryStore()
    async with pair(held, store) as (here, there):
        name = await begun(here, "slow")
        running = await there.ask("tasks/get", {"taskId": name})
        kept = await store.get("tasks", name)
        held.go.set()
        ended = await until(there, name, *ENDED)
        with pytest.raises(RequestError, match="Unknown task") as refused:
            await there.ask("tasks/get", {"taskId": name[:-1]})

    assert (running["status"], ended["status"]) == ("working", "completed")
    assert ended["result"]["structuredContent"] == {"n": 1}
    assert refused.value.code == -32602
    assert kept is not None
    assert "working" not in str(kept.value)


async def test_what_a_task_asks_is_answered_by_any_replica() -> None:
    held = Held()
    async with pair(held, MemoryStore()) as (here, there):
        name = await begun(here, "asks")
        held.go.set()
        asked = await until(there, name, "input_required")
        (key,) = asked["inputRequests"]
        with pytest.raises(RequestError, match="must be an object") as refused:
            await there.ask("tasks/update", {"taskId": name, "inputResponses": {key: "Oslo"}})
        answers = {key: {"action": "accept", "content": {"city": "Oslo"}}}
        await there.ask("tasks/update", {"taskId": name, "inputResponses": answers})
        done = await until(there, name, *ENDED)

    assert refused.value.code == -32602
    assert done["result"]["content"][0]["text"] == "Oslo"


async def test_a_task_is_cancelled_by_any_replica() -> None:
    held = Held()
    async with pair(held, MemoryStore()) as (here, there):
        name = await begun(here, "slow")
        await there.ask("tasks/cancel", {"taskId": name})
        await held.cancelled.wait()
        found = await until(there, name, *ENDED)
        await there.ask("tasks/cancel", {"taskId": name})

    assert found["status"] == "cancelled"


@pytest.mark.slow
async def test_who_listens_at_any_replica_hears_of_the_end() -> None:
    held = Held()
    async with pair(held, MemoryStore()) as (here, there):
        name = await begun(here, "slow")
        await there.send("subscriptions/listen", {"notifications": {"taskIds": [name]}})
        (acknowledged,) = await there.received("notifications/subscriptions/acknowledged")
        held.go.set()
        await there.until(lambda: any(one["status"] == "completed" for one in there.of("notifications/tasks")))

    assert acknowledged["notifications"] == {"taskIds": [name]}


@pytest.mark.slow
async def test_a_task_whose_replica_died_has_failed_and_nobody_knows_its_outcome() -> None:
    held, store = Held(), MemoryStore()
    with anyio.fail_after(60):
        async with talking(replica(held, store)) as there:
            async with talking(replica(held, store)) as here:
                name = await begun(here, "slow")
                kept = await store.get("tasks", name)
            assert kept is not None
            await store.put("tasks", name, kept.value)  # as if it had not had the time to say how it ended
            found = await there.ask("tasks/get", {"taskId": name})
            await there.ask("tasks/cancel", {"taskId": name})

    assert found["status"] == "failed"
    assert found["error"]["code"] == -32603
    assert "the outcome is unknown" in found["error"]["message"]
