"""Signs of life of starting servers: their output, the steps of connecting, and CPU time of their processes.

Only measures; the caller acts on silence. Knows no hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import anyio
import anyio.to_thread

from toolweave.connect._report import Report
from toolweave.connect._stdio.process_tree import cpu_seconds

_OURS = frozenset({"load the SDK", "find the command", "start the process"})
"""The steps of connecting whose duration does not depend on the server."""
_CPU_SECONDS = 0.02  # timers of an idle process take less


class Monitored(Protocol):
    """A connection, or anything else with a name and a report."""

    @property
    def name(self) -> str:
        """The name in the result of a check."""
        ...

    @property
    def report(self) -> Report:
        """The steps of connecting, and the process."""
        ...


class ActivityMonitor:
    """The time since the last sign of life of several servers, measured by `look`.

    Signs are, of a process, anything on its standard output or standard error, and at least 0.02 s of CPU time of it
    and those it started (its session); over HTTP, bytes that arrive, also those of an incomplete response; of all
    others, steps of connecting that begin or end.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, float, float]] = {}

    async def look(self, servers: Iterable[Monitored]) -> Mapping[str, float]:
        """Return the seconds since the last sign of life of each server, by name; 0 at its first check."""
        watched = list(servers)
        pids = {one.name: one.report.process.pid for one in watched if one.report.process is not None}
        if pids:
            cpu = await anyio.to_thread.run_sync(cpu_seconds, frozenset(pids.values()))
        else:
            cpu = {}
        now = anyio.current_time()
        silent: dict[str, float] = {}
        for one in watched:
            taken = cpu.get(pids.get(one.name, 0), 0.0)
            traces = _traces(one.report)
            before = self._seen.get(one.name)
            if before is None or _shows_life(before, traces, taken):
                self._seen[one.name] = (traces, taken, now)
            silent[one.name] = now - self._seen[one.name][2]
        return silent


def _shows_life(before: tuple[object, float, float], traces: object, taken: float) -> bool:
    """Return whether a server has left traces or used the CPU since `before`; a step without traces counts as life."""
    if traces is None or traces != before[0]:
        return True
    return abs(taken - before[1]) >= _CPU_SECONDS


def _traces(report: Report) -> object:
    """Return a value that changes with each sign of life; None while a step does not depend on the server."""
    steps = report.steps
    if not steps:
        return None
    last = steps[-1]
    if last.outcome == "running" and last.name in _OURS:
        return None
    if (process := report.process) is not None:
        return (process.pid, process.pieces, process.stderr_position)
    if report.received_mark is not None:
        return report.received_mark()
    return (len(steps), last.outcome)
