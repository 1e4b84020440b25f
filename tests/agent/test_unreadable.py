"""Records of runs that this version cannot read: each is told as that, and hides no other."""

from __future__ import annotations

from typing import Any

import pytest

from toolweave import Agent, ScriptedModel
from toolweave.agent import RunStatuses, run_tree
from toolweave.agent._stored.records import CHILDREN, RUNS
from toolweave.errors import StoreError
from toolweave.state import MemoryStore

FORMS: list[tuple[Any, str]] = [
    (0, r"was written by an older version of Toolweave \(form 0\)"),
    (2, r"was written by a newer version of Toolweave \(form 2\); update Toolweave"),
    (99, "was written by a newer version"),
    (None, "is damaged in the store: its form is None"),
    ("1", "is damaged in the store: its form is '1'"),
]


async def three_runs(change: Any) -> tuple[MemoryStore, str]:
    """Return a store with three runs, and the id of the one of which the record was changed."""
    store = MemoryStore()
    agent = Agent(ScriptedModel(["x"] * 3), name="a", store=store)
    for text in ("one", "two", "three"):
        await agent.send(text)
    (one,) = [found for found in await store.scan(RUNS) if found.value["prompt"] == "two"]
    await store.put(RUNS, one.key, one.value | change if isinstance(change, dict) else change)
    return store, one.key


@pytest.mark.parametrize(("form", "told"), FORMS)
async def test_a_record_of_another_form_is_a_row_among_the_others(form: Any, told: str) -> None:
    store, run_id = await three_runs({"form": form})
    statuses = RunStatuses(store)

    recent = await statuses.recent()
    assert [(one.record.prompt, one.status) for one in recent] == [
        ("three", "completed"),
        ("two", "unreadable"),
        ("one", "completed"),
    ]
    one = await statuses.get(run_id)
    assert one is not None
    with pytest.raises(StoreError, match=told):
        raise StoreError(one.record.error or "")
    # With the status with which it ended.
    assert (await statuses.stats()).by_status == {"completed": 3}
    assert [one.run_id for one in await statuses.interrupted()] == []
    assert [one.record.prompt for one in await statuses.recent(agent="a")] == ["three", "two", "one"]


@pytest.mark.parametrize("damage", [[], "text", 7, {"form": 1}, {"form": 1, "usage": 5, "run_id": "x"}])
async def test_a_record_that_is_damaged_is_a_row_among_the_others(damage: Any) -> None:
    store, run_id = await three_runs("")
    await store.put(RUNS, run_id, damage)
    recent = await RunStatuses(store).recent()
    assert sorted(one.status for one in recent) == ["completed", "completed", "unreadable"]
    (one,) = [one for one in recent if one.status == "unreadable"]
    assert one.run_id == run_id
    assert "in the store" in (one.record.error or "")


async def test_a_child_that_cannot_be_read_hides_neither_its_parent_nor_its_siblings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, run_id = await three_runs({"form": 99})
    others = [one.key for one in await store.scan(RUNS) if one.key != run_id]
    for child in (run_id, others[1]):
        await store.put(CHILDREN, f"{others[0]}/{child}", child)
    tree = await run_tree(store, others[0])
    assert tree is not None
    assert [one.run_id for _, one in tree.walk()] == others
    assert "newer version" in caplog.text
