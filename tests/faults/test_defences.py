"""The battery can fail: each row is played by a client without the defence that it asks for, and must be seen.

Without restarts, without bounds (both switches of our client), and by two programs of sixty lines that have
no defence at all, one of which swallows its errors too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.faults.clients import Ours
from tests.faults.judge import judge, serving
from tests.faults.rows import HANGS, ROWS, Row, runs

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SHORT = 1.5
"""Seconds that stand for ever where nothing else bounds a wait."""

LOST = [
    *("dies_mid_call", "dies_mid_line", "dies_between_calls", "killed_mid_call"),
    *("closes_stdin", "closes_stdout_but_lives"),
]
"""Rows whose next call needs a new process."""

HARMLESS = {
    # bytes and headers that the standard library reads as well as we do
    *("bom", "bom_body", "crlf", "http_1_0", "no_content_type", "two_lengths", "unknown_encoding", "gzip_broken"),
    *("wrong_content_type", "connection_close", "closed_silently", "extra_response", "unfinished_sse", "deep_answer"),
    # lists, versions and results are odd to one who looks at them; who takes any name for a tool sees nothing
    *("ansi_and_bidi", "bad_annotations", "duplicate_tool_names", "invalid_schema", "non_object_schema", "odd_names"),
    *("output_schema_violated", "schema_missing", "schema_null", "schema_of_text", "schema_ref_network", "schema_true"),
    *("cursor_empty_string", "cursor_loop", "cursor_null", "cursor_number", "endless_cursor", "repeated_pages"),
    *("lies_about_resources", "list_error", "missing_result_type", "unknown_result_type", "no_jsonrpc_member"),
    *("result_and_error", "result_without_content", "id_as_string"),
    # what happens at the start, at the end or beside a call does not touch who never probes, listens or says goodbye
    *("dies_at_probe", "hang_probe", "slow_start", "exits_with_code", "closes_stderr", "stderr_flood"),
    *(row.name for row in ROWS if row.on in ("GET", "DELETE")),
    "truncated_body at the handshake",
    # a list that fails once costs nothing who never kept it
    *(row.name for row in ROWS if row.on == "tools/list"),
    # what is large is only slow
    *("huge_body", "huge_line"),
}
"""Rows that ask for no defence of one who looks at nothing but the first text of an answer."""


def played(client: str, rows: list[Row]) -> dict[str, list[str]]:
    """Play rows over the handshake revisions in processes of their own; return what was wrong, by row."""
    wanted = [f"{row.name}\t{combo}\n" for row in rows for combo in runs(row) if combo.endswith("legacy")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.runner", client, "--jobs", "6", "--bound", str(SHORT)],
        input="".join(wanted),
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        check=True,
        timeout=400,
    )
    found: dict[str, list[str]] = {row.name: [] for row in rows}
    for line in done.stdout.splitlines():
        said = json.loads(line)
        found[said["row"]] += said["problems"]
    assert len(done.stdout.splitlines()) == len(wanted)
    return found


@pytest.mark.parametrize("part", range(4))
def test_every_row_is_lost_by_a_client_that_has_no_defence(part: int) -> None:
    rows = list(ROWS[part::4])
    naive = played("naive", rows)
    careless = played("careless", [row for row in rows if not naive[row.name]])

    unseen = {name for name, problems in naive.items() if not problems and not careless[name]}

    assert unseen <= HARMLESS


def test_what_is_harmless_to_the_naive_is_a_row() -> None:
    assert {row.name for row in ROWS} >= HARMLESS


@pytest.mark.anyio
@pytest.mark.parametrize("mode", LOST)
async def test_without_restarts_the_next_call_is_seen_to_fail(mode: str, tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.name == mode)
    with serving(row, "stdio-legacy", tmp_path) as target:
        client = Ours(target, 3.0, restart="never")
        with anyio.fail_after(120):
            said = await judge(row, client, again=lambda: client)

    assert [line for line in said if line.startswith("the next call: error ")]


@pytest.mark.anyio
async def test_without_bounds_every_hang_is_seen(tmp_path: Path) -> None:
    hangs = ["hang_call", "wrong_id", "stopped_mid_call", "slow_drip", "partial_line_then_hang", "endless_line"]
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
