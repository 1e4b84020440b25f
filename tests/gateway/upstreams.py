"""Upstreams and callers for the tests of this folder: the strange server, and clients that read raw messages.

Asserts nothing.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from tests.serve.raw import LEGACY, MODERN, Piped, Raw
from tests.servers.fixtures import running
from toolweave.gateway import Gateway

__all__ = ["LEGACY", "MODERN", "UPSTREAMS", "Json", "caller", "pages", "strange", "strange_directly"]

Json = dict[str, Any]
UPSTREAMS = "io.toolweave/upstreams"
SCRIPT = Path(__file__).with_name("strange_server.py")


@asynccontextmanager
async def strange(era: str, transport: str) -> AsyncGenerator[Json]:
    """Yield the config entry of a strange server, which runs for the block where it is not started by its client."""
    command = [sys.executable, "-I", "-S", str(SCRIPT), era, transport]
    settings: Json = {"tool_prefix": "", "validate_output": "off"}
    if transport == "stdio":
        yield {"command": command[0], "args": command[1:], **settings}
        return
    with running(command) as port:
        yield {"url": f"http://127.0.0.1:{port}/mcp", "type": "http", **settings}


@asynccontextmanager
async def strange_directly(era: str) -> AsyncGenerator[Raw]:
    """Speak to a strange server without anything between."""
    command = [sys.executable, "-I", "-S", str(SCRIPT), era, "stdio"]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, stderr=None) as process:
            piped = Piped(process)
            await piped.shake_hands(MODERN if era == "modern" else LEGACY)
            yield piped
            await piped.hang_up()


@asynccontextmanager
async def caller(server: Gateway, version: str, **capabilities: Any) -> AsyncGenerator[Raw]:
    """Speak to a gateway in this process, in a revision."""
    with anyio.fail_after(60):
        async with server as channel:
            raw = Raw(channel.send, channel.receive)
            await raw.shake_hands(version, **capabilities)
            yield raw


async def pages(raw: Raw, method: str) -> list[Json]:
    """Return the results of all pages of a list."""
    found: list[Json] = []
    params: Json = {}
    while True:
        answer = await raw.ask(raw.request(method, params))
        found.append(answer["result"])
        if "nextCursor" not in answer["result"]:
            return found
        params = {"cursor": answer["result"]["nextCursor"]}
