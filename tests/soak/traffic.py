"""The callers of a soak: each call has an id that its answer must carry, and ends in one line of a file."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import anyio

from tests.soak.verdict import Record
from toolweave.hub import Hub
from toolweave.tools import CallContext, ToolCall, ToolResult

__all__ = ["Traffic", "read_records"]

WEIGHTS = {"once": 8, "again": 4, "work": 3, "big": 1, "rows": 2, "fail": 1, "extra": 1}
CALL_SECONDS = 30.0
PATIENCE = 0.15
"""Seconds after which a caller gives up, where it does."""
SLOW = 2.0
PAUSE = 0.02
SIZES = (100, 10_000, 300_000)


class Traffic:
    """Makes calls and writes down how each of them ended.

    Attributes:
        begun: How many calls were begun.
        ended: How many of them came back, by outcome.
    """

    def __init__(self, hub: Hub, servers: list[str], records: TextIO, seed: int) -> None:
        self.begun = 0
        self.ended: Counter[str] = Counter()
        self.stopping = False
        self._hub = hub
        self._servers = servers
        self._records = records
        self._seed = seed

    async def caller(self, number: int) -> None:
        """Call random tools of random servers, one after the other, until told to stop."""
        chance = random.Random(f"caller {self._seed} {number}")
        count = 0
        while not self.stopping:
            count += 1
            server = chance.choice(self._servers)
            tool = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            await self.call(f"c{number}-{count}", server, tool, chance)
            if chance.random() < 0.7:
                await anyio.sleep(chance.random() * PAUSE)

    async def call(self, ident: str, server: str, tool: str, chance: random.Random) -> Record:
        """Make one call and write down how it ended."""
        arguments: dict[str, Any] = {"id": ident}
        timeout, gives_up, slow = CALL_SECONDS, chance.random() < 0.05, False
        if tool == "work":
            slow = chance.random() < 0.1
            arguments["seconds"] = SLOW if slow or gives_up else chance.random() * 0.1
            timeout = PATIENCE if slow and not gives_up else CALL_SECONDS
        if tool == "big":
            arguments["size"] = chance.choice(SIZES)
        progress: list[float] = []
        watched = tool == "work" and not slow and chance.random() < 0.5
        ctx = CallContext(
            timeout=timeout, on_progress=(lambda step: progress.append(step.progress)) if watched else None
        )
        self.begun += 1
        began, result = time.monotonic(), None
        with anyio.move_on_after(PATIENCE if gives_up else None):
            result = await self._hub.call(ToolCall(name=f"{server}_{tool}", arguments=arguments), ctx)
        outcome, detail = judged(result, f"{server} {ident}", tool)
        if progress != sorted(progress):
            outcome, detail = "wrong", f"progress out of order: {progress}"
        record = Record(
            id=ident,
            server=server,
            tool=tool,
            outcome=outcome,
            detail=detail,
            slow=slow,
            began=began,
            ended=time.monotonic(),
        )
        self._write(record)
        return record

    def _write(self, record: Record) -> None:
        self.ended[record.outcome] += 1
        cells = (record.id, record.server, record.tool, record.outcome, record.began, record.ended, int(record.slow))
        self._records.write("\t".join(map(str, (*cells, record.detail))) + "\n")


def judged(result: ToolResult | None, expected: str, tool: str) -> tuple[str, str]:
    """Return the outcome of a call; None is a call that its caller gave up."""
    if result is None:
        return "cancelled", ""
    if result.error is not None and result.error.kind.value != "execution_failed":
        return result.error.kind.value, " ".join(str(result.error).split())[:200]
    text = result.text.rstrip(".")
    if text != expected or (tool == "rows" and not carries(result.structured_content, expected)):
        return "wrong", text[:100]
    return ("execution_failed" if result.is_error else "ok"), ""


def carries(structured: Any, expected: str) -> bool:
    """Whether structured content is that of the call."""
    return isinstance(structured, Mapping) and f"{structured['server']} {structured['id']}" == expected


def read_records(lines: Iterable[str]) -> list[Record]:
    """Return what was written down."""
    records: list[Record] = []
    for line in lines:
        ident, server, tool, outcome, began, ended, slow, detail = line.rstrip("\n").split("\t")
        records.append(
            Record(
                id=ident,
                server=server,
                tool=tool,
                outcome=outcome,
                began=float(began),
                ended=float(ended),
                slow=slow == "1",
                detail=detail,
            )
        )
    return records
