"""A watchdog against orphans: a tiny process that ends our servers when this process dies in any way.

It holds the reading end of a pipe from us. When the pipe ends, by a crash or SIGKILL too, it
stops every process group that is still registered. It knows nothing but process group numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

_PROGRAM = """
import os, signal, sys, time
# The loop ends at the end of the pipe, that is when the last writing end is closed: by `_stop`, or by the kernel when
# we die, however we die. After `_stop` no group is left, and what follows does nothing.
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
def send(number):
    for group in list(groups):
        try:
            os.killpg(group, number)
        except OSError:
            groups.discard(group)
send(signal.SIGTERM)
deadline = time.monotonic() + 2
while groups and time.monotonic() < deadline:
    time.sleep(0.05)
    send(0)
send(signal.SIGKILL)
"""


class Reaper:
    """The registry of process groups at the watchdog process, which is started for the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0
        self._groups: set[int] = set()
        self._expected = 0

    def prepare(self) -> None:
        """Start the watchdog for a server that is about to start; `watch` or `abandon` must follow.

        Started after the servers, it would find no file descriptors left where they took the last ones, and without it
        none of them may run.

        Raises:
            OSError: The watchdog cannot be started.
        """
        with self._lock:
            self._forget_parent()
            if self._process is None:
                self._start()
            self._expected += 1

    def abandon(self) -> None:
        """Forget a server that did not start; the watching process ends if it has nothing to watch."""
        with self._lock:
            self._expected = max(0, self._expected - 1)
            self._stop_if_idle()

    def watch(self, group: int) -> None:
        """End this process group when our process dies."""
        with self._lock:
            self._forget_parent()
            self._expected = max(0, self._expected - 1)
            # Under the lock, because servers are started from the loops of several threads, and half a line would name
            # another group.
            self._groups.add(group)
            self._send(f"+{group}\n")

    def release(self, group: int) -> None:
        """Forget a process group that has ended; the watching process ends with the last one."""
        with self._lock:
            if self._owner_pid != os.getpid():
                return
            self._groups.discard(group)
            self._send(f"-{group}\n")
            self._stop_if_idle()

    def _forget_parent(self) -> None:
        """Reset after a fork: the parent ends the processes that it started."""
        if self._owner_pid != os.getpid():
            self._owner_pid = os.getpid()
            self._process = None
            self._groups = set()
            self._expected = 0

    def _stop_if_idle(self) -> None:
        if not self._groups and not self._expected:
            self._stop()

    def _send(self, line: str) -> None:
        if self._process is None:
            self._start()
            # A new watchdog has no groups yet: it gets all of them, this one included.
            line = "".join(f"+{group}\n" for group in self._groups)
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(line.encode())
            process.stdin.flush()
        except OSError:  # it was killed: servers still end by EOF on their stdin
            self._process = None

    def _start(self) -> None:
        if os.name != "posix" or not sys.executable:
            return
        self._process = subprocess.Popen(
            # Isolated and without `site`: it starts fast, and no module of the working directory can take the place of
            # its own.
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _stop(self) -> None:
        process = self._process
        self._process = None
        if process is None or process.stdin is None:
            return
        try:
            # Inherited by no child (PEP 446), so this is the last writing end, and the watchdog ends.
            process.stdin.close()
        except OSError:
            pass
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


reaper = Reaper()
"""The one reaper of this Python process."""
