"""The test servers by the names that tests of every room use; the servers live in `toolweave.testing.servers`."""

from __future__ import annotations

import sys
from pathlib import Path

from toolweave.testing.servers import http_server
from toolweave.testing.servers import stdio_fault_command as fault_command
from toolweave.testing.servers import stdio_server_command as echo_command
from toolweave.testing.servers.processes import http_command, running

__all__ = [
    "SERVERS",
    "echo_command",
    "fault_command",
    "http_command",
    "http_server",
    "relay_command",
    "running",
    "sdk_command",
]

SERVERS = Path(__file__).parent


def sdk_command(*args: object) -> list[str]:
    """Return the command of the server on the official SDK."""
    return [sys.executable, str(SERVERS / "sdk_server.py"), *(str(arg) for arg in args)]


def relay_command(eras: Path) -> list[str]:
    """Return the command of a relay to a server of the era that the file names, whenever that changes."""
    return [sys.executable, str(SERVERS / "relay.py"), str(eras), *echo_command()]
