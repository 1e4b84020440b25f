"""The process tree of a server: the living members of its process group, and descendants that left the group.

Reads `/proc` where there is one; elsewhere only the existence of the group is known. Knows no server.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Iterable
from contextlib import suppress

from toolweave._value import Value

_GONE = frozenset("ZX")  # a zombie does nothing any more, and its parent may never collect it
# of /proc/PID/stat, counted after the name (man proc_pid_stat)
_STATE = 0
_PARENT = 1
_GROUP = 2
_SESSION = 3
_TIMES = slice(11, 15)
_STARTED = 19


class Escapee(Value, frozen=True):
    """A descendant of a server process in another process group.

    Attributes:
        started: Its start time in clock ticks, which distinguishes it from a later process with the same id.
    """

    pid: int
    started: str


def group_lives(group: int) -> bool:
    """Whether the group has a process that is not a zombie."""
    if group <= 0 or os.name != "posix":
        return False
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    members = [state for _, state, _, its_group, _ in _processes() if its_group == group]
    if not members:  # without /proc
        return True
    # `killpg` succeeds for a group of zombies alone, which stays until its parent collects it: waiting for that could
    # last for ever.
    return not _GONE.issuperset(members)


def escapees_of(pid: int) -> tuple[Escapee, ...]:
    """Return the descendants of `pid` that left its group, which a signal to the group misses.

    A daemon that detached itself by a double fork has no known ancestor and is not among them.
    """
    children: dict[int, list[tuple[int, int, str]]] = {}
    for one, _, parent, group, started in _processes():
        children.setdefault(parent, []).append((one, group, started))
    found: list[Escapee] = []
    # All descendants, not only children: one that stayed in the group may have started one that left it.
    waiting = [pid]
    while waiting:
        for one, group, started in children.pop(waiting.pop(), ()):
            waiting.append(one)
            if group != pid:
                found.append(Escapee(one, started))
    return tuple(found)


def escapee_lives(stray: Escapee) -> bool:
    """Whether this very process still runs."""
    fields = _stat(stray.pid)
    if fields is None or fields[_STARTED] != stray.started:
        return False
    return fields[_STATE] not in _GONE


def cpu_seconds(sessions: frozenset[int]) -> dict[int, float]:
    """Return the CPU seconds of the processes of each session, with those of their reaped children.

    Blocks while it reads all processes; an unknown session is left out.
    """
    if not os.path.exists("/proc/self/stat"):  # noqa: PTH110 - as below
        return _cpu_seconds_by_ps(sessions)
    found: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    with suppress(OSError):  # too many files are open
        for name in os.listdir("/proc"):  # noqa: PTH208 - as below
            fields = _stat(int(name)) if name.isdecimal() else None
            if fields is not None and int(fields[_SESSION]) in sessions:
                session = int(fields[_SESSION])
                found[session] = found.get(session, 0.0) + sum(map(int, fields[_TIMES])) / tick
    return found


def _cpu_seconds_by_ps(groups: frozenset[int]) -> dict[int, float]:
    """Return CPU seconds by process group, from `ps`, which does not know sessions everywhere."""
    try:
        output = subprocess.run(
            ["ps", "-A", "-o", "pgid=,time="],
            capture_output=True,
            text=True,
            timeout=2,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[int, float] = {}
    for line in output.splitlines():
        group, _, time = line.strip().partition(" ")
        if group.isdecimal() and int(group) in groups:
            found[int(group)] = found.get(int(group), 0.0) + _ps_seconds(time.strip())
    return found


def _ps_seconds(time: str) -> float:
    """Read `[[days-]hours:]minutes:seconds[.hundredths]`; 0 for anything else."""
    days, _, clock = time.rpartition("-")
    try:
        seconds = 0.0
        for part in clock.split(":"):
            seconds = 60 * seconds + float(part)
        return seconds + 86400 * int(days or 0)
    except ValueError:
        return 0.0


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group; to the process alone where there are no groups."""
    if group <= 0:
        return
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(group, number)
        else:
            os.kill(group, number)


def signal_escapees(strays: Iterable[Escapee], number: int) -> None:
    """Send a signal to each of them; never to another process that reuses an id."""
    for stray in strays:
        with suppress(OSError):
            # Order matters: pin, then compare the start time, then signal. Comparing first would leave a moment in
            # which the id is given to another process.
            descriptor = os.pidfd_open(stray.pid)  # pins one process, which is checked below
            try:
                if escapee_lives(stray):
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def _processes() -> Generator[tuple[int, str, int, int, str], None, None]:
    """Yield pid, state, parent, group and time of start of every process, or nothing without `/proc`."""
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 - as below
            if name.isdecimal() and (fields := _stat(int(name))) is not None:
                yield int(name), fields[_STATE], int(fields[_PARENT]), int(fields[_GROUP]), fields[_STARTED]


def _stat(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - read for every process, often
            # The second field is the program's name in brackets and may hold spaces and brackets; after the
            # last one come plain fields.
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None
