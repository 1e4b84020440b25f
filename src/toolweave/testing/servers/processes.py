"""Starts the test servers as processes and always stops them, group and all; knows none of their options."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence

__all__ = ["http_command", "http_fault_server", "http_server", "running", "stdio_fault_command", "stdio_server_command"]

START_SECONDS = 15.0


def _command(server: str, *args: object) -> list[str]:
    # no site packages and no settings of the user's: the server starts as fast as a bare interpreter
    script = os.path.join(os.path.dirname(__file__), "run.py")  # noqa: PTH118, PTH120
    return [sys.executable, "-I", "-S", script, server, *(str(arg) for arg in args)]


def stdio_server_command(*args: object) -> list[str]:
    """Return the command of a well-behaved stdio server; `args` are its options, `--help` lists them."""
    return _command("echo", *args)


def stdio_fault_command(mode: str, *args: object) -> list[str]:
    """Return the command of a stdio server that misbehaves in one way; `STDIO_FAULTS` has the modes.

    `args` are further options, `--help` lists them; `"--times", n` limits the fault to the first `n` times.
    """
    return _command("faults", "--mode", mode, *args)


def http_command(*args: object) -> list[str]:
    """Return the command of the HTTP server; it prints its port and ends with its standard input."""
    return _command("http", "--tied", *args)


@contextlib.contextmanager
def http_server(*args: object, path: str = "/mcp") -> Generator[str]:
    """Run a well-behaved HTTP server on the loopback interface for the block and yield its URL.

    Raises:
        RuntimeError: The server printed no port within 15 s.
    """
    with running(http_command(*args)) as port:
        yield f"http://127.0.0.1:{port}{path}"


@contextlib.contextmanager
def http_fault_server(mode: str, *args: object, path: str = "/mcp") -> Generator[str]:
    """Run an HTTP server that misbehaves in one way for the block and yield its URL; `HTTP_FAULTS` has the modes.

    `args` are further options, `--help` lists them; `"--on", "tools/call"` limits the fault to a method,
    `"--times", n` to its first `n` requests.

    Raises:
        RuntimeError: The server printed no port within 15 s.
    """
    with http_server("--mode", mode, *args, path=path) as url:
        yield url


@contextlib.contextmanager
def running(command: Sequence[str], *, seconds: float = START_SECONDS) -> Generator[int]:
    """Run a server that prints its port as the first line; yield the port.

    The process group is killed at the end, whatever happened.

    Raises:
        RuntimeError: No port appeared within `seconds`.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield int(_first_line(process, seconds))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _first_line(process: subprocess.Popen[bytes], seconds: float) -> str:
    assert process.stdout is not None
    fd = process.stdout.fileno()
    data = b""
    deadline = time.monotonic() + seconds
    while b"\n" not in data:
        ready, _, _ = select.select([fd], [], [], max(deadline - time.monotonic(), 0))
        chunk = os.read(fd, 4096) if ready else b""
        if not chunk:
            raise RuntimeError(f"{process.args!r} printed no port; it printed {data!r}, exit code {process.poll()}")
        data += chunk
    return data.partition(b"\n")[0].decode()
