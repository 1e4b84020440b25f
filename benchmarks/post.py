"""One POST through an HTTP library: the lean lane against others (DESIGN decision 8).

Each library is a process of its own (`python -m benchmarks.post LIBRARY URL`), in the environment that has it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any

__all__ = ["post"]

BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
    "name": "payload", "arguments": {"size": 100}, "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
}}, separators=(",", ":")).encode()  # fmt: skip
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "payload",
}
WARM_UP_SECONDS = 0.1
TURN_SECONDS = 0.3

Post = Callable[[], Awaitable[bytes]]


async def open_raw(stack: AsyncExitStack, url: str) -> Post:
    """Post with the baseline, its message encoded every time."""
    from benchmarks.raw import RawHttp

    client = RawHttp(url, modern=True)
    stack.push_async_callback(client.close)
    message = json.loads(BODY)

    async def post() -> bytes:
        return await client.post("tools/call", "payload", message)

    return post


async def open_lean(stack: AsyncExitStack, url: str) -> Post:
    """Post with our own lane."""
    from toolweave.http import HttpClient

    client = HttpClient(url, connect_seconds=10)
    stack.callback(client.close)

    async def post() -> bytes:
        with await client.send("POST", "/mcp", HEADERS, BODY) as response:
            body = await response.read(1_000_000)
            response.finish()
            return body

    return post


async def open_aiohttp(stack: AsyncExitStack, url: str) -> Post:
    """Post with aiohttp."""
    aiohttp: Any = importlib.import_module("aiohttp")
    session = await stack.enter_async_context(aiohttp.ClientSession())

    async def post() -> bytes:
        async with session.post(url, data=BODY, headers=HEADERS) as response:
            return await response.read()

    return post


async def open_httpx(stack: AsyncExitStack, url: str, module: str = "httpx") -> Post:
    """Post with httpx."""
    httpx: Any = importlib.import_module(module)
    client = await stack.enter_async_context(httpx.AsyncClient())

    async def post() -> bytes:
        return (await client.post(url, content=BODY, headers=HEADERS)).content

    return post


async def open_httpx2(stack: AsyncExitStack, url: str) -> Post:
    """Post with httpx2."""
    return await open_httpx(stack, url, "httpx2")


LIBRARIES: dict[str, tuple[str, Callable[[AsyncExitStack, str], Awaitable[Post]]]] = {
    "raw": ("msgspec", open_raw),
    "toolweave": ("toolweave", open_lean),
    "aiohttp": ("aiohttp", open_aiohttp),
    "httpx2": ("httpx2", open_httpx2),
    "httpx": ("httpx", open_httpx),
}
"""Contender -> the module it needs and how to open it."""


async def work(name: str, url: str) -> dict[str, float]:
    """Post one after the other, first untimed, then timed."""
    async with AsyncExitStack() as stack:
        post = await LIBRARIES[name][1](stack, url)
        await spend(post, WARM_UP_SECONDS)
        cpu, wall = time.process_time(), time.perf_counter()
        calls = await spend(post, TURN_SECONDS)
        return {"cpu": (time.process_time() - cpu) / calls, "wall": (time.perf_counter() - wall) / calls}


async def spend(post: Post, seconds: float) -> int:
    """Post until the time is over; return how often."""
    calls, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        await post()
        calls += 1
    return calls


def post(settings: Any) -> list[Any]:
    """Measure every library that is installed, here or among the peers."""
    from benchmarks.crew import ROOT, http_url
    from benchmarks.measure import Figure, Sample, compare
    from benchmarks.peers import POST, python_in

    other = python_in(POST)
    pythons = {name: sys.executable if find_spec(module) else other for name, (module, _) in LIBRARIES.items()}
    samples: dict[str, list[Sample]] = {name: [] for name, python in pythons.items() if python is not None}
    figures: list[Figure] = []
    if settings.wants("one POST, 100 B"):
        with http_url("--era", "modern") as url:
            for _ in range(min(settings.rounds, 5)):
                for name, rows in samples.items():
                    command = [str(pythons[name]), "-m", "benchmarks.post", name, url]
                    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=True)
                    rows.append(Sample(**json.loads(done.stdout)))
        figures += compare("post", "one POST, 100 B", samples)
    return figures


if __name__ == "__main__":
    print(json.dumps(asyncio.run(work(sys.argv[1], sys.argv[2]))))
