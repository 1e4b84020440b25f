"""The scan of definitions, beside the listing that it is a part of: 10,000 tools over HTTP; and of a call's result.

Every measurement is a process of its own (`python -m benchmarks.scan URL`): it lists the tools without the scan, the
baseline, and then scans what it has. What the scan of a result costs is measured beside a whole call of 100 B.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.crew import ROOT, http_url
from benchmarks.measure import Figure, Sample, compare
from benchmarks.settings import Settings

__all__ = ["scan"]

TOOLS = 10_000
CALLS = 2_000
ROUNDS = 3
LIST, CALL = "10,000 tools listed", "one call, 100 B"


def sample(url: str) -> dict[str, float]:
    """Measure one fresh process."""
    command = [sys.executable, "-m", "benchmarks.scan", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=True)
    return json.loads(done.stdout)


def scan(settings: Settings) -> list[Figure]:
    """Measure the scan of 10,000 definitions and of one result."""
    figures: list[Figure] = []
    with http_url("--era", "modern", "--tools", TOOLS) as url:
        rounds = [sample(url) for _ in range(1 if settings.quick else ROUNDS)]
    for case, whole, part in ((LIST, "list", "scan"), (CALL, "call", "result")):
        if settings.wants(case):
            samples = {
                "raw": [Sample(cpu=one[whole], wall=one[whole]) for one in rounds],
                "toolweave": [Sample(cpu=one[part], wall=one[part]) for one in rounds],
            }
            figures += compare("scan", case, samples)
    return figures


async def main() -> None:
    """Do one measurement and print it."""
    from toolweave import connect_mcp
    from toolweave.trust import scan_result, scan_tool

    url = sys.argv[1]
    entry: dict[str, Any] = {"type": "http", "url": url, "scan": False}
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
