"""Faults of every group behind `toolweave gateway`, a process without any setting; `scripts/reliability` plays all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.clients import CLIENTS
from tests.faults.rows import ROWS, Combo
from tests.faults.runner import play

pytestmark = pytest.mark.slow

PLAYED: dict[str, Combo] = {
    "bom": "stdio-modern",
    "dies_mid_call": "stdio-modern",
    "exits_at_once": "stdio-legacy",
    "foreign_answer": "stdio-legacy",
    "hang_call": "stdio-legacy",
    "list_changed_storm": "stdio-modern",
    "schema_deep": "stdio-legacy",
    "dropped_sse": "http-legacy",
    "gone_session": "http-legacy",
    "hang_headers": "http-modern",
    "reset_mid_body": "http-modern",
    "status_500": "http-legacy",
}


@pytest.mark.parametrize("name", PLAYED)
def test_a_fault_costs_the_caller_of_a_gateway_at_most_its_one_call(name: str, tmp_path: Path) -> None:
    (row,) = [row for row in ROWS if row.name == name]

    assert play(CLIENTS["gateway"], row, PLAYED[name], tmp_path) == []
