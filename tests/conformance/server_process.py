"""Runs the server under test as a process on a free port, and always stops it; knows nothing of what it serves."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

__all__ = ["COMMAND", "GATEWAY", "SERVER", "serving"]

SERVER = (sys.executable, "-W", "error", str(Path(__file__).resolve().parent / "server.py"))
"""The server under test; a warning is an error in it. It takes `--port N`."""
GATEWAY = (sys.executable, "-W", "error", str(Path(__file__).resolve().parent / "gateway.py"))
"""A gateway; it takes the URL of a server beside `--port N`."""
COMMAND = (sys.executable, "-W", "error", "-m", "toolweave", "gateway", "--no-ui", "--event-store", "memory")
"""The command of a gateway that can be polled; it takes `--config FILE` beside `--http PORT`."""
START_SECONDS = 60.0
STOP_SECONDS = 15.0


@contextlib.contextmanager
def serving(log: Path, command: Sequence[str] = SERVER, *, port_option: str = "--port") -> Generator[str]:
    """Run a server for the block and yield its URL; `log` receives what it prints.

    Args:
        log: The file.
        command: The command of the server.
        port_option: The option that takes the port.

    Raises:
        RuntimeError: Nothing listens on its port within 60 s; with what it printed.
    """
    port = _free_port()
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*command, port_option, str(port)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        ) as process,
    ):
        try:
            _wait_until_it_accepts(process, port, log)
            yield f"http://localhost:{port}/mcp"  # the suite takes the server for a local one by this name
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_it_accepts(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"{process.args!r} did not listen on port {port}: {log.read_text(errors='replace')}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it died by itself
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
