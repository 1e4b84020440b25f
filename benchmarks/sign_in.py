"""A call with the token of a sign-in, beside the same call with a bearer token that never changes.

Every measurement is a process of its own (`python -m benchmarks.sign_in URL`) with a connection of each kind to one
server over HTTP; they take turns, so that what disturbs one turn disturbs both. The server looks at no token.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import AsyncExitStack

from benchmarks.crew import ROOT, http_url
from benchmarks.measure import Figure, Sample, compare
from benchmarks.settings import Settings

__all__ = ["sign_in"]

CASE = "one call over http, 100 B"
CALLS, TURNS, ROUNDS = 300, 8, 3


def sign_in(settings: Settings) -> list[Figure]:
    """Measure the lookup of a token."""
    if not settings.wants(CASE):
        return []
    rows: dict[str, list[Sample]] = {"raw": [], "toolweave": []}
    with http_url("--era", "modern") as url:
        for _ in range(1 if settings.quick else ROUNDS):
            command = [sys.executable, "-m", "benchmarks.sign_in", url]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=True)
            for name, turns in json.loads(done.stdout).items():
                rows[name] += [Sample(cpu=cpu, wall=wall) for cpu, wall in turns]
    return compare("sign_in", CASE, rows)


async def main(url: str) -> None:
    """Do one measurement and print it: `raw` is the bearer token, `toolweave` the sign-in."""
    from toolweave import connect_mcp
    from toolweave.oauth import MemoryTokenStore, OAuth, TokenKey, TokenRecord, resource_of

    store = MemoryTokenStore()
    key = TokenKey(issuer="https://login.example", resource=resource_of(url))
    expires = time.time() + 86_400
    await store.save(TokenRecord(key=key, access_token="a-token-of-a-sign-in", expires_at=expires))
    turns: dict[str, list[tuple[float, float]]] = {"raw": [], "toolweave": []}
    async with AsyncExitStack() as stack:
        auths = {"raw": "a-token-that-stays-the-same", "toolweave": OAuth(store=store)}
        connections = {
            name: await stack.enter_async_context(connect_mcp({"type": "http", "url": url, "auth": auth}))
            for name, auth in auths.items()
        }
        for turn in range(TURNS + 1):  # the first one warms up
            for name, connection in connections.items():
                cpu, wall = time.process_time(), time.perf_counter()
                for _ in range(CALLS):
                    await connection.call_tool("payload", {"size": 100})
                if turn:
                    spent = time.process_time() - cpu, time.perf_counter() - wall
                    turns[name].append((spent[0] / CALLS, spent[1] / CALLS))
    print(json.dumps(turns))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
