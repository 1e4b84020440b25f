"""The scan of definitions, beside the listing that it is a part of: 10,000 tools over stdio and HTTP; and of a result.

Every measurement is a process of its own (`python -m benchmarks.scan ENTRY`): it lists the tools without the scan, the
baseline, and then scans what it has. What the scan of a result costs is measured beside a whole call of 100 B.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.crew import ROOT, http_url, server_command
from benchmarks.measure import Figure, Sample, compare
from benchmarks.settings import Settings

__all__ = ["scan"]

TOOLS = 10_000
CALLS = 2_000
ROUNDS = 3
LISTS = ("10,000 tools listed, stdio", "10,000 tools listed, http")
CALL = "one call, 100 B"
PARTS = {"list": "scan", "call": "result"}
"""What is measured -> the part of it that is the scan."""


def sample(entry: dict[str, Any]) -> dict[str, float]:
    """Measure one fresh process."""
    command = [sys.executable, "-m", "benchmarks.scan", json.dumps(entry)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=True)
    return json.loads(done.stdout)


def scan(settings: Settings) -> list[Figure]:
    """Measure the scan of 10,000 definitions and of one result."""
    count = 1 if settings.quick else ROUNDS
    options = ("--era", "modern", "--tools", str(TOOLS))
    program, *arguments = server_command(*options)
    with http_url(*options) as url:
        entries: list[dict[str, Any]] = [{"command": program, "args": arguments}, {"type": "http", "url": url}]
        rounds = {case: [sample(entry) for _ in range(count)] for case, entry in zip(LISTS, entries, strict=True)}
    figures: list[Figure] = []
    for case, whole in ((LISTS[0], "list"), (LISTS[1], "list"), (CALL, "call")):
        if settings.wants(case):
            measured = rounds[LISTS[1] if case == CALL else case]
            samples = {
                "raw": [Sample(cpu=one[whole], wall=one[whole]) for one in measured],
                "toolweave": [Sample(cpu=one[PARTS[whole]], wall=one[PARTS[whole]]) for one in measured],
            }
            figures += compare("scan", case, samples)
    return figures


async def main() -> None:
    """Do one measurement and print it."""
    from toolweave import connect_mcp
    from toolweave.definitions import scan_result, scan_tool

    entry: dict[str, Any] = {**json.loads(sys.argv[1]), "scan": False}
    async with connect_mcp(entry) as connection:  # what is loaded at the first use does not count
        await connection.refresh()
    scan_tool(connection.snapshot()[0])
    begun = time.process_time()
    async with connect_mcp(entry) as connection:
        listed = time.process_time() - begun
        specs = list(connection.snapshot())
        begun = time.process_time()
        for spec in specs:
            scan_tool(spec)
        scanned = time.process_time() - begun
        result = await connection.call_tool("payload", {"size": 100})
        begun = time.process_time()
        for _ in range(CALLS):
            await connection.call_tool("payload", {"size": 100})
        called = (time.process_time() - begun) / CALLS
    begun = time.process_time()
    for _ in range(CALLS):
        scan_result(result)
    judged = (time.process_time() - begun) / CALLS
    print(json.dumps({"list": listed, "scan": scanned, "call": called, "result": judged}))


if __name__ == "__main__":
    asyncio.run(main())
