"""The errors of callers whose upstream fails: what happened to the request, and nothing that is for the owner alone."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.programs import free_port, wait_until_it_accepts
from tests.serve.carriers import EACH_ERA
from tests.serve.serving import served_app
from toolweave import connect_mcp
from toolweave.gateway import GatewayManager

BOUND = 60
WORDS = "no route to db.internal"
UPSTREAM = f"""
import os, sys
from toolweave import create_mcp_server

server = create_mcp_server(name="up", version="1")

@server.tool
def ping() -> str:
    "Answer."
    return "pong"

@server.tool
def die() -> str:
    "End the process."
    print("error: {WORDS}", file=sys.stderr, flush=True)
    os._exit(3)

if len(sys.argv) > 1:
    server.run_http(port=int(sys.argv[1]))
else:
    server.run_stdio()
"""


def from_pipes(folder: Path) -> dict[str, Any]:
    """Return the entry of an upstream that runs as a process of the gateway."""
    file = folder / "up.py"
    file.write_text(UPSTREAM)
    return {"command": sys.executable, "args": [str(file)]}


@contextmanager
def at_a_url(folder: Path) -> Generator[dict[str, Any]]:
    """Run an upstream over HTTP, and yield its entry."""
    from_pipes(folder)
    port = free_port()
    log = folder / "up.log"
    command = [sys.executable, str(folder / "up.py"), str(port)]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        wait_until_it_accepts(process, port, log, BOUND)
        yield {"url": f"http://127.0.0.1:{port}/mcp"}
        process.kill()


async def texts_of(entry: dict[str, Any], era: str, *tools: str) -> list[str]:
    """Return what a caller reads of calls that fail."""
    manager = GatewayManager({"up": entry})
    async with (
        served_app(manager.asgi_app()) as base,
        connect_mcp({"url": f"{base}/mcp", "protocol": era}, name="g") as caller,
    ):
        results = [await caller.call_tool(f"up_{one}") for one in tools]
    assert all(one.is_error for one in results), results
    return [f"{one.text} {one.meta} {one.structured_content}" for one in results]


@EACH_ERA
async def test_a_caller_reads_nothing_of_the_process_of_an_upstream_that_died(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolweave.gateway")
    (text,) = await texts_of(from_pipes(tmp_path), era, "die")

    assert "the outcome of the request is unknown" in text
    assert WORDS not in text
    assert "exit" not in text
    assert WORDS in caplog.text


@EACH_ERA
async def test_a_caller_reads_nothing_of_the_address_of_an_upstream_that_is_away(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolweave.gateway")
    with at_a_url(tmp_path) as entry, anyio.fail_after(BOUND):
        address = entry["url"].removeprefix("http://").removesuffix("/mcp")
        texts = await texts_of(entry, era, "die", "ping", "ping")

    assert "the outcome of the request is unknown" in texts[0]
    assert "the request was not sent" in texts[2]
    for text in texts:
        assert address.rpartition(":")[2] not in text
    assert address in caplog.text
