"""The published page: what its cells say, and that it knows every fault of the kit."""

from __future__ import annotations

import pytest

from experiments.faults.clients import Defaults
from experiments.faults.report import (
    KINDS,
    PAGE,
    TABLE,
    Outcomes,
    all_columns,
    as_page,
    as_table,
    introduction,
    kinds,
    named,
    published_columns,
    totals,
    wrong,
)
from experiments.faults.rows import COMBOS, ROWS, Combo, runs
from tests.docs.pages import tables
from toolweave.config import Timeouts
from toolweave.testing.servers import stdio_server_command

FINDINGS = {
    "the call: hang None": "hang",
    "the client's process: killed, it hung for good": "hang",
    "the next call: wrong value 'late'": "wrong value",
    "the call: escaped CancelledError: ": "escaped",
    "the event loop: BaseExceptionGroup: 2": "escaped",
    "a neighbour: error MCPError: Connection closed": "neighbour",
    "a neighbour: escaped CancelledError: ": "neighbour",
    "the next call: error MCPError: Connection closed": "no next call",
    "the next try: error MCPError: Connection closed": "no next call",
    "connecting: error MCPError: Connection closed": "no connection",
    "connecting: it connected": "silent",
    "the call: error MCPError: timed out": "lost call",
    "the call: a value where only an error is right": "silent",
    "the call: the error does not say '500': error MCPError: no": "no cause",
    "the list: lacks {'echo'}": "lost tools",
    "the list afterwards: right set()": "lost tools",
    "closing: error RuntimeError: x": "close",
    "processes: 1 left running": "process",
    "zombies: 1": "process",
    "file descriptors: 1 left open": "descriptor",
}


@pytest.mark.parametrize(("finding", "kind"), FINDINGS.items())
def test_a_finding_has_its_kind(finding: str, kind: str) -> None:
    assert kinds([finding]) == [kind]


def test_the_worst_is_said_first() -> None:
    assert set(FINDINGS.values()) == set(KINDS)
    assert kinds(list(reversed(FINDINGS))) == list(KINDS)


def outcomes() -> Outcomes:
    clean: dict[tuple[str, Combo], list[str]] = {(row.name, combo): [] for row in ROWS for combo in runs(row)}
    broken = dict(clean)
    broken["bom", "stdio-legacy"] = ["the call: hang None", "processes: 1 left running"]
    return {"toolweave": clean, "sdk": broken}


def test_a_page_counts_and_shows_what_was_found() -> None:
    found = outcomes()
    columns = all_columns(found, {"toolweave": "1", "sdk": "2"}, {})
    (line,) = [line for line in as_table(columns).splitlines() if line.startswith("| `bom` ")]

    assert line.endswith("| ✓ | ✓ | - | - | hang, process |")
    assert "`bom`" not in as_page(columns)
    stdio = sum(any(combo.startswith("stdio") for combo in runs(row)) for row in ROWS)
    figures = totals(found)["stdio: faults passed in every revision"]
    assert figures == {"toolweave": f"{stdio} of {stdio}", "sdk": f"{stdio - 1} of {stdio}"}


def test_default_settings_have_a_column_of_their_own() -> None:
    found = outcomes()
    found = {"toolweave": found["toolweave"], "defaults": found["sdk"], "sdk": found["toolweave"]}
    columns = all_columns(found, {"toolweave": "1", "defaults": "1", "sdk": "2"}, {})
    page = as_page(columns)
    (line,) = [line for line in as_table(columns).splitlines() if line.startswith("| `bom` ")]
    (failed,) = [line for line in page.splitlines() if line.startswith("| `bom` ")]

    assert "| Toolweave 1 | Toolweave, default settings 1 | MCP SDK 2 |" in page
    assert "a wait of more than 10 s counts as a" in page
    assert failed.endswith("| ✓ | hang, process |")
    assert line.endswith("| hang, process | ✓ |")


async def test_default_settings_are_no_settings_at_all() -> None:
    client = Defaults(stdio_server_command(), 0.001)
    await client.open()
    try:
        assert await client.call("here") == "here"
        assert client.connection.config.timeout == Timeouts()
    finally:
        await client.close()


def test_the_published_page_says_what_the_tests_show() -> None:
    published = PAGE.read_text(encoding="utf-8")

    assert published.startswith("\n".join([*introduction(), "## Totals"]))


def test_the_published_page_knows_every_fault_and_ours_pass() -> None:
    published = {
        cells[0]: cells[2 : 2 + len(COMBOS)] for cells in tables("experiments/faults/faults.md", "Every fault")
    }

    assert set(published) - {"fault"} == {f"`{row.mode}`{row.name.removeprefix(row.mode)}" for row in ROWS}
    for row in ROWS:
        cells = published[f"`{row.mode}`{row.name.removeprefix(row.mode)}"]
        assert cells == ["✓" if combo in runs(row) else "-" for combo in COMBOS]


def test_what_is_played_through_a_gateway_has_a_column_of_its_own() -> None:
    found = outcomes()
    played = {"toolweave": found["toolweave"], "gateway": found["sdk"]}
    columns = all_columns(played, {"toolweave": "1", "gateway": "1"}, {})
    page = as_page(columns)
    (line,) = [line for line in as_table(columns).splitlines() if line.startswith("| `bom` ")]

    assert "| Toolweave 1 | Toolweave, through a gateway 1 |" in page
    assert "a separate\nprocess with up to" in page
    assert line.endswith("| hang, process |")


def test_a_client_that_is_played_alone_leaves_the_other_columns_as_they_are() -> None:
    found = outcomes()
    before = all_columns(found, {"toolweave": "1", "sdk": "2"}, {})
    alone = {"gateway": found["sdk"]}
    columns = all_columns(alone, {"gateway": "1"}, published_columns(as_page(before), as_table(before)))
    whole = all_columns(
        {"toolweave": found["toolweave"], "gateway": found["sdk"], "sdk": found["sdk"]},
        {"toolweave": "1", "gateway": "1", "sdk": "2"},
        {},
    )

    assert (as_page(columns), as_table(columns)) == (as_page(whole), as_table(whole))
    assert all_columns(alone, {"gateway": "1"}, columns) == columns


def test_what_ours_must_not_do_is_told_from_a_silence_that_is_waited_for() -> None:
    found = outcomes()
    silent: dict[tuple[str, Combo], list[str]] = {("bom", "stdio-legacy"): ["the call: hang None"]}
    lost: dict[tuple[str, Combo], list[str]] = {("bom", "stdio-legacy"): ["the call: error MCPError: timed out"]}

    assert not wrong({"toolweave": found["toolweave"], "gateway": silent, "sdk": lost})
    assert wrong({"gateway": lost})
    assert wrong({"toolweave": silent})


def test_the_published_page_says_what_a_gateway_without_settings_makes_of_every_fault() -> None:
    column = published_columns(PAGE.read_text(encoding="utf-8"), TABLE.read_text(encoding="utf-8"))["gateway"]
    cells = {name: said for name, (said,) in column.cells.items()}

    assert set(cells) == {named(row) for row in ROWS}
    assert set(cells.values()) <= {"✓", "hang"}
