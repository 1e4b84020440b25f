"""The rules about whole runs hold on every wire, and the table beside other libraries has them all."""

from __future__ import annotations

import pytest

from tests.agent.wires import Wire
from tests.models.peers import RULES, played, table_on_the_page
from tests.models.run_rules import RUNS

CELLS = [
    pytest.param(rule, wire, id=f"{rule}: {wire}", marks=[pytest.mark.slow] if told.is_slow else [])
    for rule, told in RUNS.items()
    for wire in told.answers
]


@pytest.mark.parametrize(("rule", "wire"), CELLS)
async def test_a_run_ends_as_its_rule_says(rule: str, wire: Wire) -> None:
    assert await played("Toolweave", wire, rule)


def test_the_page_has_every_rule_and_none_that_this_library_breaks() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table_on_the_page().splitlines()[2:]]

    assert [row[0] for row in rows[:-1]] == list(RULES), "docs/model-apis.md is out of date: run scripts/wires --write"
    assert {row[1] for row in rows[:-1]} == {"✓"}
    right, _, of = rows[-1][1].partition(" of ")
    assert right == of
