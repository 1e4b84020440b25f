"""Where `scripts/reference-servers` put the reference servers, and how each one is started.

Knows paths and command lines only, nothing of Toolweave.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.programs import free_port, wait_until_it_accepts

__all__ = ["BROKEN", "HTTP_PATHS", "INSTALLED", "everything_over_http", "stdio_entries"]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
INSTALLED = CHECKOUT / ".cache" / "reference"
HTTP_PATHS = {"streamableHttp": "/mcp", "sse": "/sse"}
"""The everything server's own names of its transports, and the path each is served at."""
BROKEN: dict[str, dict[str, Any]] = {
    "absent": {"command": "toolweave-test-no-such-command"},
    "dies": {"command": str(INSTALLED / "sqlite-broken" / "bin" / "mcp-server-sqlite")},
}
"""Two servers that cannot start: no such command, and a good server that dies of a newer SDK."""


PATIENCE = {"connect": 60, "probe": 60}
"""Seconds. All eight answer the discovery probe; on a busy machine the usual bound would be taken for silence."""


def stdio_entries(work: Path) -> dict[str, dict[str, Any]]:
    """Return the eight reference servers as `mcpServers` entries that work in the folder `work`."""
    servers = {
        "everything": _npm("everything"),
        "filesystem": _npm("filesystem", str(work)),
        "memory": {**_npm("memory"), "env": {"MEMORY_FILE_PATH": str(work / "memory.jsonl")}},
        "sequential-thinking": _npm("sequential-thinking"),
        "time": _pypi("time", "--local-timezone", "Europe/Oslo"),
        "git": _pypi("git"),
        "fetch": _pypi("fetch", "--allow-private-ips"),
        "sqlite": _pypi("sqlite", "--db-path", str(work / "test.db")),
    }
    return {name: {**entry, "timeout": PATIENCE} for name, entry in servers.items()}


def _npm(name: str, *args: str) -> dict[str, Any]:
    script = INSTALLED / "npm" / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    return {"command": "node", "args": [str(script), *args]}


def _pypi(name: str, *args: str) -> dict[str, Any]:
    return {"command": str(INSTALLED / name / "bin" / f"mcp-server-{name}"), "args": list(args)}


@contextlib.contextmanager
def everything_over_http(transport: str, log: Path) -> Generator[str]:
    """Run the everything server over one of its HTTP transports on a free port; yields its URL."""
    entry = _npm("everything", transport)
    port = free_port()  # it prints the port it was given, not the one it got: port 0 is of no use
    with log.open("wb") as out:
        process = subprocess.Popen(
            [entry["command"], *entry["args"]],
            env={**os.environ, "PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        wait_until_it_accepts(process, port, log, 30)
        yield f"http://127.0.0.1:{port}{HTTP_PATHS[transport]}"
    finally:
        with contextlib.suppress(ProcessLookupError):  # it died by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
