"""Starts the test servers as processes and always stops them, group and all. For tests of every room."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

__all__ = ["SERVERS", "echo_command", "fault_command", "http_command", "http_server", "running", "sdk_command"]

SERVERS = Path(__file__).parent
START_SECONDS = 15.0


def script(name: str, *args: object) -> list[str]:
    """Return the command that runs a server of this folder fast (no site packages)."""
    return [sys.executable, "-S", "-E", str(SERVERS / name), *(str(arg) for arg in args)]


def echo_command(*args: object) -> list[str]:
    """Return the command of the well-behaved stdio server."""
    return script("echo.py", *args)


def fault_command(mode: str, *args: object) -> list[str]:
    """Return the command of a misbehaving stdio server."""
    return script("fault.py", "--mode", mode, *args)


def http_command(*args: object) -> list[str]:
    """Return the command of the HTTP server; it ends with its standard input."""
    return script("http_server.py", "--tied", *args)


def sdk_command(*args: object) -> list[str]:
    """Return the command of the server on the official SDK."""
    return [sys.executable, str(SERVERS / "sdk_server.py"), *(str(arg) for arg in args)]


def read_line(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Return the first line of standard output, or raise within `seconds`."""
    assert process.stdout is not None
    fd, data, deadline = process.stdout.fileno(), b"", time.monotonic() + seconds
    while b"\n" not in data:
        ready, _, _ = select.select([fd], [], [], max(deadline - time.monotonic(), 0))
        chunk = os.read(fd, 4096) if ready else b""
        if not chunk:
            raise RuntimeError(f"{process.args!r} printed no port; it printed {data!r}, exit code {process.poll()}")
        data += chunk
    return data.partition(b"\n")[0].decode()


@contextlib.contextmanager
def running(command: Sequence[str], *, seconds: float = START_SECONDS) -> Generator[int]:
    """Run a server that prints its port as the first line; yield the port.

    The process group is killed at the end, whatever happened. Raises `RuntimeError` when no port appears
    within `seconds`.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield int(read_line(process, seconds))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def http_server(*args: object, path: str = "/mcp") -> Generator[str]:
    """Run `http_server.py` with these options; yield its URL."""
    with running(http_command(*args)) as port:
        yield f"http://127.0.0.1:{port}{path}"
