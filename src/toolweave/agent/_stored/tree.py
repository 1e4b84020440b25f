"""Runs and the runs that their tools started, as a tree read from a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from toolweave.agent._stored.records import children_of, read_record
from toolweave.agent._stored.status import RunInfo, RunStatuses
from toolweave.state import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTree:
    """A run with its descendants.

    Attributes:
        children: The runs that its tools started, the oldest first.
    """

    run: RunInfo
    children: tuple[RunTree, ...] = ()

    def walk(self, level: int = 0) -> Iterator[tuple[int, RunInfo]]:
        """Yield every run with its level, each before its descendants."""
        yield level, self.run
        for child in self.children:
            yield from child.walk(level + 1)


async def run_tree(store: Store, run_id: str, *, levels: int = 20) -> RunTree | None:
    """Return a run with its descendants, or None when the store has none of this id.

    Args:
        store: The store of the run.
        run_id: The run at the top.
        levels: Maximum depth to read.
    """
    statuses = RunStatuses(store)
    top = await statuses.get(run_id)
    if top is None:
        return None
    return await _below(store, statuses, top, levels, frozenset({run_id}))


async def root_of(store: Store, run_id: str) -> str:
    """Return the id of the run at the top of the tree that a run is in; its own when the store knows no parent."""
    seen = {run_id}
    while True:
        record = await read_record(store, run_id)
        if record is None or record.parent_id is None or record.parent_id in seen:
            return run_id
        if await read_record(store, record.parent_id) is None:
            return run_id
        run_id = record.parent_id
        seen.add(run_id)


async def _below(store: Store, statuses: RunStatuses, run: RunInfo, levels: int, above: frozenset[str]) -> RunTree:
    if not levels:
        return RunTree(run=run)
    children: list[RunTree] = []
    for record in await children_of(store, run.run_id):
        if record.run_id not in above:  # a store may hold anything
            child = await statuses.info(record)
            children.append(await _below(store, statuses, child, levels - 1, above | {record.run_id}))
    return RunTree(run=run, children=tuple(children))
