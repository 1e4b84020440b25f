"""The table of docs/features.md about gateways: each of our features has a test, and each cell of others a source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from experiments.gateways.report import GATEWAYS, GatewayRow, read_gateway_rows, read_sources, table

CHECKOUT = Path(__file__).parents[2]
ROWS = read_gateway_rows()
each_row = pytest.mark.parametrize("row", ROWS, ids=[row.feature for row in ROWS])


@each_row
def test_each_of_our_features_names_a_test_that_exists(row: GatewayRow) -> None:
    file, _, name = row.ours.test.partition("::")
    if row.ours.outcome == "yes":
        assert file
    if name:
        tree = ast.parse((CHECKOUT / file).read_text(encoding="utf-8"))
        functions = {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions
    elif file:
        assert list((CHECKOUT / file).glob("test_*.py"))


@each_row
def test_what_is_said_of_another_gateway_has_a_source_and_every_source_is_used(row: GatewayRow) -> None:
    for cell in row.others.values():
        assert (cell.outcome == "not documented") == (not cell.source)
    used = {cell.source for row in ROWS for cell in row.others.values() if cell.source}
    assert used == set(read_sources().pages)


@pytest.mark.parametrize("name", GATEWAYS)
def test_each_other_gateway_leads_in_some_row(name: str) -> None:
    assert any(row.others[name].outcome == "yes" and row.ours.outcome != "yes" for row in ROWS)


def test_the_page_has_the_table_of_gateways() -> None:
    text = (CHECKOUT / "docs" / "features.md").read_text(encoding="utf-8")
    assert "".join(table()) in text, "run scripts/docs"
