"""The battery can fail: each row is played by a client without the defence that it asks for, and must be seen.

Each row is played once, and the rows take turns over the transports and revisions.
Most rows are lost by two small programs that have no defence at all, one of which swallows its errors too. Those
that ask for a single defence are played by a client that passes them, and loses each with that defence taken out.
Besides, ours with settings that take a defence out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from experiments.faults.clients import Ours
from experiments.faults.defences import ABSENCES, DEFENCES, SETTINGS
from experiments.faults.judge import BOUND, judge, serving
from experiments.faults.report import kinds
from experiments.faults.rows import HANGS, ROWS, Combo, Row, runs
from tests.programs import ran
from toolweave import connect_mcp
from toolweave.testing.servers import stdio_fault_command

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SHORT = 1.5
"""Seconds that stand for ever where nothing else bounds a wait."""

LOST = [
    *("dies_mid_call", "dies_mid_line", "dies_between_calls", "killed_mid_call"),
    *("closes_stdin", "closes_stdout_but_lives"),
]
"""Rows whose next call needs a new process."""

READ_BY_PYTHON = {"nan_result"}
"""Rows that Python's decoder of JSON survives, which the clients here use."""

OTHERS = [row for row in ROWS if row.name not in {*DEFENCES, *SETTINGS, *READ_BY_PYTHON}]
"""Rows that are lost without any defence at all."""

Found = dict[tuple[str, Combo], list[str]]


def played(client: str, lines: list[str], bound: float = SHORT) -> Found:
    """Let the runner play what its lines ask for; return what was wrong."""
    done = ran(
        [sys.executable, "-m", "experiments.faults.runner", client, "--jobs", "6", "--bound", str(bound)],
        cwd=CHECKOUT,
        given="".join(f"{line}\n" for line in lines),
        seconds=400,
        check=True,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(lines)
    return {(one["row"], one["combo"]): one["problems"] for one in said}


def one_run(row: Row, combos: Sequence[Combo]) -> Combo:
    """Return one of the combinations; neighbouring rows take different ones, so that all are played."""
    return combos[ROWS.index(row) % len(combos)]


def handshaking(rows: list[Row]) -> list[str]:
    """Return the lines that ask for each row once, over a handshake revision."""
    return [f"{row.name}\t{one_run(row, [c for c in runs(row) if c.endswith('legacy')])}" for row in rows]


def defended() -> list[tuple[Row, Combo]]:
    """Return a run of each row that asks for one defence; a handshake revision has no resultType to miss."""
    found: list[tuple[Row, Combo]] = []
    for row in ROWS:
        if row.name not in DEFENCES:
            continue
        is_modern = row.name == "missing_result_type"
        combos: list[Combo] = [combo for combo in runs(row) if combo.endswith("modern") or not is_modern]
        found.append((row, one_run(row, combos)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_every_other_row_is_lost_by_a_client_that_has_no_defence(part: int) -> None:
    rows = OTHERS[part::3]
    naive = {name for (name, _), problems in played("naive", handshaking(rows)).items() if problems}
    unseen = [row for row in rows if row.name not in naive]
    careless = {name for (name, _), problems in played("careless", handshaking(unseen)).items() if problems}

    assert {row.name for row in unseen} - careless == set()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_each_row_is_lost_by_a_client_whose_defence_against_it_is_taken_out(part: int) -> None:
    chosen = defended()[part::2]
    found = played("brittle", [f"{row.name}\t{combo}\t{' '.join(DEFENCES[row.name])}" for row, combo in chosen])

    assert {run for run, problems in found.items() if not problems} == set()
    # what is absent matters nowhere else: healthy servers are served as before
    assert {run for run, problems in found.items() if {"neighbour", "escaped"} & {*kinds(problems)}} == set()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_the_same_client_with_its_defences_passes(part: int) -> None:
    found = played("brittle", [f"{row.name}\t{combo}" for row, combo in defended()[part::2]], bound=BOUND)

    assert {run: problems for run, problems in found.items() if problems} == {}


def test_the_defences_and_the_rows_are_known() -> None:
    names = {row.name for row in ROWS}

    assert names >= {*DEFENCES, *SETTINGS}
    assert not DEFENCES.keys() & SETTINGS.keys()
    assert {name for absent in DEFENCES.values() for name in absent} == ABSENCES.keys()


@pytest.mark.parametrize("mode", LOST)
async def test_without_restarts_the_next_call_is_seen_to_fail(mode: str, tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.name == mode)
    with serving(row, "stdio-legacy", tmp_path) as target:
        client = Ours(target, 3.0, restart="never")
        with anyio.fail_after(120):
            said = await judge(row, client, again=lambda: client)

    assert [line for line in said if line.startswith("the next call: error ")]


async def test_with_a_bound_shorter_than_its_start_a_server_is_seen_to_be_lost(tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.name == "slow_start")
    with serving(row, "stdio-legacy", tmp_path) as target:
        client = Ours(target, 0.1)
        with anyio.fail_after(120):
            said = await judge(row, client, again=lambda: client)

    assert "no connection" in kinds(said)


@pytest.mark.parametrize(("setting", "broken"), [({}, []), ({"validate_output": "off"}, ["violates", "omits"])])
async def test_without_the_check_of_results_what_breaks_its_schema_comes_through(
    setting: dict[str, str], broken: list[str]
) -> None:
    command, *args = stdio_fault_command("output_schema_violated")
    with anyio.fail_after(60):
        async with connect_mcp({"command": command, "args": args, **setting}) as connection:
            results = {name: await connection.call_tool(name) for name in ("violates", "omits")}

    assert [name for name, result in results.items() if not result.is_error] == broken


@pytest.mark.slow
async def test_without_bounds_every_hang_is_seen(tmp_path: Path) -> None:
    hangs = ["hang_call", "stopped_mid_call", "slow_drip", "partial_line_then_hang", "endless_line"]
    rows = {row.name: row for row in ROWS if row.name in hangs}
    said: dict[str, list[str]] = {}

    async def play(row: Row) -> None:
        with serving(row, "stdio-legacy", tmp_path) as target:
            client = Ours(target, 3600)
            said[row.name] = await judge(row, client, again=lambda: client, bound=SHORT)

    with anyio.fail_after(200):
        async with anyio.create_task_group() as tasks:
            for row in rows.values():
                tasks.start_soon(play, row)

    assert set(hangs) <= set(HANGS)
    assert {
        name: any(one.startswith("the call: hang") for one in lines) for name, lines in said.items()
    } == dict.fromkeys(hangs, True)
