"""Runs the server under test as a process on a free port, and always stops it; knows nothing of what it serves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

from tests.programs import free_port, wait_until_it_accepts

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
    port = free_port()
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
            wait_until_it_accepts(process, port, log, START_SECONDS)
            yield f"http://localhost:{port}/mcp"  # the suite takes the server for a local one by this name
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it died by itself
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
