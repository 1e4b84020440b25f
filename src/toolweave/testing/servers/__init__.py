"""Test servers as processes of their own: well-behaved ones, and one for each way to misbehave.

    async with connect_mcp(stdio_fault_command("dies_mid_call")) as connection: ...

    with http_fault_server("status_429", "--times", 1) as url:
        async with connect_mcp(url) as connection: ...

The servers are hand-written JSON-RPC on the standard library; they share nothing with the client they test.
"""

from __future__ import annotations

from toolweave.testing.servers.faults import STDIO_FAULTS
from toolweave.testing.servers.http_misbehaviour import HTTP_FAULTS
from toolweave.testing.servers.processes import (
    http_fault_server,
    http_server,
    stdio_fault_command,
    stdio_server_command,
)

__all__ = [
    "HTTP_FAULTS",
    "STDIO_FAULTS",
    "http_fault_server",
    "http_server",
    "stdio_fault_command",
    "stdio_server_command",
]
