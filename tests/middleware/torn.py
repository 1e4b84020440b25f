"""Calls of a server with an audit log whose disk gets full for a while: `python -m tests.middleware.torn FILE`."""

from __future__ import annotations

import logging
import resource
import signal
import sys
from pathlib import Path

import anyio

from toolweave import connect_mcp, create_mcp_server
from toolweave.middleware import AuditLog
from toolweave.tools import tool

ROOM = 100
"""Bytes that are left on the disk, which is less than a line."""


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def main(path: str) -> None:
    server = create_mcp_server(name="s", version="1", tools=[double], middleware=[AuditLog(path=path)])
    async with connect_mcp(server) as connection:
        full = Path(path).stat().st_size + ROOM
        for number in range(20):
            limit = full if number < 10 else resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            print((await connection.call_tool("double", {"number": number})).text)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    anyio.run(main, sys.argv[1])
