"""The table of docs/features.md: ours does what it says, and it has a cell of the vocabulary for every library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from experiments.features.playing import CHECKOUT, played
from experiments.features.report import LIBRARIES, OURS, read, table
from experiments.features.rows import ROWS

OUTCOMES = read()


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
async def test_ours_does_what_the_table_says(row: str, tmp_path: Path) -> None:
    cell, observed = await played(OURS, sys.executable, row, tmp_path)

    assert cell == OUTCOMES.cells[row][OURS], (observed.facts, "run scripts/features --write")


@pytest.mark.parametrize("row", ROWS)
def test_every_library_has_an_outcome_in_every_row(row: str) -> None:
    cells = OUTCOMES.cells[row]

    assert set(cells) == {OURS, *LIBRARIES}, "run scripts/features --write"
    assert {cell.outcome for cell in cells.values()} <= {"yes", "partly", "no", "not measured"}
    assert all(cell.note for cell in cells.values() if cell.outcome == "partly")


@pytest.mark.parametrize("row", ROWS)
def test_every_experiment_tells_libraries_apart(row: str) -> None:
    assert len({cell.outcome for cell in OUTCOMES.cells[row].values()}) > 1


def test_the_table_names_the_versions_that_were_measured() -> None:
    assert set(OUTCOMES.versions) == set(LIBRARIES)
    head = "".join(table(OUTCOMES)).splitlines()[2]
    assert all(f"{peer.title} {OUTCOMES.versions[name]}" in head for name, peer in LIBRARIES.items())


def test_the_page_has_the_table() -> None:
    assert "".join(table(OUTCOMES)) in (CHECKOUT / "docs" / "features.md").read_text(encoding="utf-8"), (
        "run scripts/docs"
    )
