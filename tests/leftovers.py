"""Finds processes that a test started and left running.

A process is a leftover if it descends from this one, or if its HOME lies under the tests' homes: the
second also finds a grandchild whose parent died and that now belongs to init. Knows nothing of Toolweave.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

__all__ = ["Process", "Watch"]

GRACE = 3.0
"""Seconds a process has to end by itself after its test: a closed pipe is seen a moment later."""
HAVE_PROC = Path("/proc/self/stat").exists()


class Process(NamedTuple):
    """One row of the process table."""

    pid: int
    parent: int
    started: str
    command: str


OF_THE_SESSION: set[int] = set()
"""Processes that stay until the session ends, though the first test that needs one starts it."""


class Watch:
    """Remembers what runs now; later names what was not there and still runs.

    Every test looks twice, so the first look takes the ids alone, and the second reads about the ids that are new: to
    read about every process of the machine takes a hundred times as long. An id that a new process was given again in
    between is missed.
    """

    def __init__(self, homes: Path) -> None:
        self.homes = homes
        self.before = _ids()

    def leftovers(self) -> list[Process]:
        """Return the processes of ours that started since."""
        new = _ids() - self.before - OF_THE_SESSION
        if not new:
            return []
        table = {row.pid: row for row in _rows(new)}
        return [row for row in list(table.values()) if self._is_below_us(row, table) or self._has_our_home(row.pid)]

    def _is_below_us(self, row: Process, table: dict[int, Process]) -> bool:
        """Say whether a process descends from this one; `table` is filled with the parents that had to be read."""
        while row.parent > 1:
            if row.parent == os.getpid():
                return True
            if row.parent not in table:
                table |= {parent.pid: parent for parent in _rows({row.parent})}
            if row.parent not in table:  # it ended while we looked
                return False
            row = table[row.parent]
        return False

    def fail_on_leftovers(self, who: str) -> None:
        """Wait up to GRACE seconds for leftovers to end; end the rest and fail, naming their command lines."""
        deadline = time.monotonic() + GRACE
        while (left := self.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not left:
            return
        for row in left:
            try:
                os.kill(row.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended between the look and the kill
        lines = "\n".join(f"  {row.pid}: {row.command}" for row in left)
        pytest.fail(f"{who} left {len(left)} process(es) running:\n{lines}", pytrace=False)

    def _has_our_home(self, pid: int) -> bool:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # it ended, is not ours, or there is no /proc
            return False
        mark = b"HOME=" + os.fsencode(self.homes) + b"/"
        return any(entry.startswith(mark) for entry in environ.split(b"\0"))


def descendants(table: list[Process], root: int) -> set[int]:
    """Return the pids below `root`."""
    children: dict[int, list[int]] = {}
    for row in table:
        children.setdefault(row.parent, []).append(row.pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), []):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found


def processes() -> list[Process]:
    """Return every running process that this user can see; zombies do not count as running."""
    return _rows(_ids())


def _ids() -> set[int]:
    """Return the ids of all processes, zombies too."""
    if HAVE_PROC:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 - only the names
    return {row.pid for row in _from_ps()}


def _rows(pids: set[int]) -> list[Process]:
    """Return those of the processes that run."""
    if HAVE_PROC:
        return [row for pid in sorted(pids) if (row := _from_proc(str(pid)))]
    return [row for row in _from_ps() if row.pid in pids]


def _from_proc(pid: str) -> Process | None:
    try:
        stat = Path("/proc", pid, "stat").read_text(errors="replace")
        command = Path("/proc", pid, "cmdline").read_bytes()
    except OSError:  # it ended while we looked
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    state, parent, *fields = rest.split()
    if state in "ZX":
        return None
    text = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return Process(pid=int(pid), parent=int(parent), started=fields[17], command=text or f"[{name}]")


def _from_ps() -> list[Process]:
    with subprocess.Popen(
        ["ps", "-axo", "pid=,ppid=,state=,lstart=,command="], stdout=subprocess.PIPE, text=True
    ) as ps:
        out = ps.communicate()[0]
        own = ps.pid
    rows: list[Process] = []
    for line in out.splitlines():
        pid, parent, state, *rest = line.split()
        if int(pid) != own and not state.startswith("Z"):
            rows.append(Process(int(pid), int(parent), " ".join(rest[:5]), " ".join(rest[5:])))
    return rows
