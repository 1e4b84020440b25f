"""Plays the battery through `toolweave gateway`: many servers with faults behind one, at once, without any setting.

`python -m experiments.faults.gateway_groups` writes one JSON line for each run, like `experiments.faults.runner`.
Every fault is played in one of its combinations. One that is lost beside so many others is played once more by itself,
which counts: on a busy machine a bound may pass that would not otherwise.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import warnings
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from experiments.faults.judge import BOUND, judge, serving
from experiments.faults.rows import COMBOS, ROWS, Combo, Row, runs
from experiments.faults.runner import marked
from experiments.faults.through_gateway import Behind, GatewayProcess, SoleBehind

__all__ = ["TOGETHER", "chosen", "main", "played_together"]

TOGETHER = 24
"""Rows that share a gateway."""
Problems = dict[str, list[str]]
"""Row -> what was wrong."""


def chosen() -> dict[str, Combo]:
    """Return the combination in which each row is played."""
    found: dict[str, Combo] = {}
    for number, row in enumerate(ROWS):
        combos = runs(row)
        found[row.name] = combos[number % len(combos)]
    return found


async def played_together(rows: list[Row], combo: Combo, folder: Path) -> Problems:
    """Play rows behind one gateway, all at once."""
    problems: Problems = {}
    async with AsyncExitStack() as stack:
        targets: dict[str, list[str] | str] = {}
        for row in rows:
            server = serving(row, combo, folder)
            targets[row.name] = await anyio.to_thread.run_sync(server.__enter__)
            stack.push(server.__exit__)
        names = {f"odd{number}": row for number, row in enumerate(rows)}
        whole = GatewayProcess({name: targets[row.name] for name, row in names.items()})

        async def play(name: str, row: Row) -> None:
            client = Behind(whole, name, row.seconds)
            again = partial(SoleBehind, targets[row.name], row.seconds)
            problems[row.name] = await judge(row, client, again=again, neighbours=client.beside(), bound=BOUND)

        async with whole, anyio.create_task_group() as tasks:
            for name, row in names.items():
                tasks.start_soon(play, name, row)
    return problems


def said(rows: list[Row], combo: Combo) -> Problems:
    """Play rows behind one gateway in folders of their own; return what was wrong, processes that are left included."""
    with tempfile.TemporaryDirectory(prefix="reliability-") as name:
        folder = Path(name)
        os.environ["HOME"] = name
        problems = anyio.run(played_together, rows, combo, folder)
        left = [pid for pid in marked(folder) if pid != os.getpid()]
    for row in rows:
        problems[row.name] += [f"processes: {len(left)} left running"] if left else []
    return problems


def main() -> None:
    """Play all of it."""
    warnings.simplefilter("ignore")
    logging.disable()
    combos = chosen()
    for combo in COMBOS:
        rows = [row for row in ROWS if combos[row.name] == combo]
        count = -(-len(rows) // TOGETHER)
        for start in range(count):
            group = rows[start::count]
            found = said(group, combo)
            for row in group:
                problems = said([row], combo)[row.name] if found[row.name] else []
                sys.stdout.write(json.dumps({"row": row.name, "combo": combo, "problems": problems}) + "\n")
                sys.stdout.flush()
                if found[row.name]:
                    sys.stderr.write(f"{row.name} {combo}: {found[row.name]} alone: {problems}\n")


if __name__ == "__main__":
    main()
