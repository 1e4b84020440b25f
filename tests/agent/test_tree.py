"""Runs and those below them, read from a store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolweave import Agent
from toolweave.agent import root_of, run_tree
from toolweave.agent._journal import RunStart
from toolweave.agent._stored.records import create
from toolweave.models import ScriptedModel, UserMessage, tool_call
from toolweave.state import MemoryStore, SqliteStore, Store

pytestmark = pytest.mark.requirement("R103")


async def put(store: Store, run_id: str, parent_id: str | None, *, at: float) -> None:
    start = RunStart(run_id=run_id, agent="a", messages=(UserMessage.of(run_id),), sent=1, parent_id=parent_id)
    assert await create(store, start, status="completed", now=at, ttl=60) is not None


@pytest.mark.parametrize("make", [MemoryStore, SqliteStore])
async def test_a_tree_has_every_run_below_its_top_the_oldest_first(make: Callable[[], Store]) -> None:
    async with make() as store:
        await put(store, "top", None, at=1)
        await put(store, "z", "top", at=2)
        await put(store, "a", "top", at=3)
        await put(store, "deep", "z", at=4)
        await put(store, "stranger", None, at=5)
        whole = await run_tree(store, "top")
        cut = await run_tree(store, "top", levels=1)
        part = await run_tree(store, "z")

        assert whole is not None
        assert [(level, one.run_id) for level, one in whole.walk()] == [(0, "top"), (1, "z"), (2, "deep"), (1, "a")]
        assert cut is not None
        assert [one.run_id for _, one in cut.walk()] == ["top", "z", "a"]
        assert part is not None
        assert [one.run_id for _, one in part.walk()] == ["z", "deep"]
        assert await run_tree(store, "none") is None
        assert [await root_of(store, one) for one in ("deep", "top", "stranger")] == ["top", "top", "stranger"]


async def test_the_runs_of_agents_as_tools_are_in_the_tree_of_the_run_that_called_them() -> None:
    store = MemoryStore()
    expert = Agent(ScriptedModel(["42"]), name="expert", store=store)
    lead = Agent(
        ScriptedModel([[tool_call("agent_expert", {"message": "how many?"})], "it is 42"]),
        name="lead",
        tools=[expert.as_tool()],
        store=store,
    )
    run = lead.send("ask")
    await run
    whole = await run_tree(store, run.id)

    assert whole is not None
    assert [(level, one.record.agent, one.record.text) for level, one in whole.walk()] == [
        (0, "lead", "it is 42"),
        (1, "expert", "42"),
    ]


async def test_a_store_whose_runs_are_each_others_parents_is_read_to_an_end() -> None:
    store = MemoryStore()
    await put(store, "a", "b", at=1)
    await put(store, "b", "a", at=2)
    whole = await run_tree(store, "a")

    assert whole is not None
    assert [one.run_id for _, one in whole.walk()] == ["a", "b"]
    assert await root_of(store, "a") == "b"


async def test_a_run_whose_parent_is_no_longer_kept_is_the_top_of_its_tree() -> None:
    store = MemoryStore()
    await put(store, "left", "gone", at=1)

    assert await root_of(store, "left") == "left"
