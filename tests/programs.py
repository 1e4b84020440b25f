"""Programs that a test runs, and the ports they listen on. Asserts nothing."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["free_port", "ran", "wait_until_it_accepts"]

SECONDS = 120.0


def ran(
    command: Sequence[str | Path],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str | None = None,
    seconds: float = SECONDS,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing on standard input unless something is given; return what it wrote, as text.

    Raises:
        CalledProcessError: `check` is set, and it ended with another code than 0.
        TimeoutExpired: It did not end in this time, and was killed.
    """
    stdin = subprocess.DEVNULL if given is None else None
    return subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=stdin,
        input=given,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=check,
    )


def free_port() -> int:
    """Return a port of this machine that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_it_accepts(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float) -> None:
    """Wait until a program accepts connections on a port.

    Raises:
        RuntimeError: It ended or did not listen in time; with the text of its log.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"{process.args!r} did not listen on port {port}: {log.read_text(errors='replace')}")
