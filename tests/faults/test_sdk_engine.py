"""The SDK's engine under our connections, against rows of every group: what it is known to miss is listed.

The battery as a whole is played on the engine that is taken by default; see `test_battery`.
"""

from __future__ import annotations

import gc
from pathlib import Path

import anyio
import pytest

from tests.faults.clients import Ours
from tests.faults.judge import descriptors, judge, serving, zombies
from tests.faults.rows import COMBOS, ROWS, Combo, Row, runs
from toolweave.testing.servers import stdio_server_command

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

AT_ONCE = 6
GIVE_UP = 240.0

PLAYED = [
    # lists
    *("bad_annotations", "cursor_loop", "duplicate_tool_names", "endless_cursor", "schema_deep", "tool_not_object"),
    # answers
    *("duplicate_answer", "error_is_text", "nan_result", "result_and_error", "result_null", "wrong_id"),
    # bytes
    *("bom", "garbage_stdout", "invalid_utf8"),
    # the process
    *("closes_stdin", "dies_mid_call", "ignores_sigterm", "killed_mid_call", "stderr_flood"),
    # time
    *("hang_body", "hang_call", "hang_probe"),
    # statuses and bodies
    *("bad_json", "gzip_broken", "html_answer", "status_401", "status_429", "status_500", "truncated_body"),
    # connections, streams and sessions
    *("closed_silently", "dropped_sse", "gone_session", "redirect_other_host", "reset_mid_body", "restarts"),
    # other stages than the call
    *("status_500 at the handshake", "bad_json at tools/list", "status_404 at GET", "hang_headers at DELETE"),
]
MISSED: dict[str, tuple[str, str]] = {
    "nan_result": ("stdio", "the SDK reads NaN as a number before we see the answer"),
    "schema_deep": ("", "the SDK builds the whole list as objects, so one schema that is too deep loses it"),
}
"""Row -> the transport on which it is lost (all of them if empty), and why."""


def missed(name: str, combo: Combo) -> bool:
    return name in MISSED and combo.startswith(MISSED[name][0])


@pytest.mark.requirement("R24", "R45", "R62", "C3", "D12")
@pytest.mark.parametrize("combo", COMBOS)
async def test_the_engine_of_the_sdk_loses_only_what_is_known(combo: Combo, tmp_path: Path) -> None:
    rows = [row for row in ROWS if row.name in PLAYED and combo in runs(row)]
    before, lost = descriptors(), dict[str, list[str]]()
    limit = anyio.CapacityLimiter(AT_ONCE)

    def ours(target: list[str] | str, seconds: float = 10) -> Ours:
        return Ours(target, seconds, engine="sdk")

    async def play(row: Row, neighbours: list[Ours]) -> None:
        async with limit:
            with serving(row, combo, tmp_path) as target:
                client = ours(target, row.seconds)
                said = await judge(row, client, again=lambda: ours(target, row.seconds), neighbours=neighbours)
        if said:
            lost[row.name] = said

    with anyio.fail_after(GIVE_UP):
        neighbours = [ours(stdio_server_command("--version", "2025-11-25")) for _ in range(2)]
        for neighbour in neighbours:
            await neighbour.open()
        async with anyio.create_task_group() as tasks:
            for row in rows:
                tasks.start_soon(play, row, neighbours)
        for neighbour in neighbours:
            await neighbour.close()
    gc.collect()

    assert {name: said for name, said in lost.items() if not missed(name, combo)} == {}
    assert set(lost) == {row.name for row in rows if missed(row.name, combo)}
    assert zombies() == []
    assert descriptors() <= before


def test_what_is_played_and_missed_are_rows() -> None:
    assert {row.name for row in ROWS} >= set(PLAYED) >= set(MISSED)
