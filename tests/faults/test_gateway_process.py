"""Faults of every group behind `toolweave gateway`, a process without any setting; `scripts/reliability` plays all."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from experiments.faults.gateway_groups import chosen, played_together
from experiments.faults.rows import COMBOS, ROWS, Combo, runs

pytestmark = pytest.mark.slow

PLAYED: dict[str, Combo] = {
    "bom": "stdio-modern",
    "dies_mid_call": "stdio-modern",
    "exits_at_once": "stdio-legacy",
    "duplicate_answer": "stdio-legacy",
    "hang_call": "stdio-legacy",
    "list_changed_storm": "stdio-modern",
    "schema_deep": "stdio-legacy",
    "dropped_sse": "http-legacy",
    "gone_session": "http-legacy",
    "hang_headers": "http-modern",
    "reset_mid_body": "http-modern",
    "status_500": "http-legacy",
}


@pytest.mark.parametrize("combo", COMBOS)
async def test_a_fault_costs_the_caller_of_a_gateway_at_most_its_one_call(combo: Combo, tmp_path: Path) -> None:
    rows = [row for row in ROWS if PLAYED.get(row.name) == combo]

    with anyio.fail_after(240):
        problems = await played_together(rows, combo, tmp_path)

    assert problems == {row.name: [] for row in rows}


def test_every_fault_is_played_in_one_of_its_combinations() -> None:
    combos = chosen()

    assert set(combos) == {row.name for row in ROWS}
    assert all(combos[row.name] in runs(row) for row in ROWS)
    assert set(combos.values()) == set(COMBOS)
