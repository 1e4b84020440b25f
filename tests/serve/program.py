"""A server process for the tests of stdio: `python -m tests.serve.program [--loop ours|sdk]`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from toolweave.errors import ToolError
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext

__all__ = ["http_program", "program"]


def program(*, expose_errors: Any = None) -> McpServer:
    """Return the server."""
    server = create_mcp_server(name="program", version="1", expose_errors=expose_errors)

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool
    async def chatter(text: str) -> str:
        """Print in every way there is."""
        print(text)
        print(text, file=sys.__stdout__, flush=True)
        with open(1, "w", closefd=False) as stdout:
            stdout.write(text)
        return text

    @server.tool
    async def reads_nothing() -> bool:
        """Say whether standard input is the null device."""
        return os.path.samestat(os.fstat(0), Path(os.devnull).stat())

    @server.tool
    async def fail(text: str) -> str:
        """Raise."""
        raise RuntimeError(text)

    @server.tool
    async def refuse(text: str) -> str:
        """Fail with a code."""
        raise ToolError(text, code="DUPLICATE", kind="denied", data={"of": [1, None]}, retryable=True)

    @server.tool
    async def grow(name: str) -> str:
        """Offer one more tool."""

        @server.tool(name=name)
        async def more() -> str:
            """Do nothing."""
            return name

        return name

    @server.tool
    async def roots(ctx: CallContext) -> list[str]:
        """Ask for the client's roots."""
        return [str(root.uri) for root in await ctx.list_roots()]

    _offer_slow(server)
    _offer_endings(server)
    return server


def _offer_endings(server: McpServer) -> None:
    endings: dict[str, BaseException] = {
        "exit": SystemExit(2),
        "interrupt": KeyboardInterrupt(),
        "generator": GeneratorExit(),
        "base": BaseException("odd"),
    }

    @server.tool
    def end_in_thread(how: str) -> None:
        """Raise what ends programs."""
        raise endings[how]

    @server.tool
    async def end_in_loop(how: str) -> None:
        """Raise what ends programs."""
        raise endings[how]


def _offer_slow(server: McpServer) -> None:
    @server.tool
    async def wait(ctx: CallContext) -> str:
        """Say that it runs, then never end."""
        await ctx.progress(0)
        await anyio.sleep_forever()
        return ""

    @server.tool
    async def nap(seconds: float, ctx: CallContext) -> str:
        """Say that it runs, then end after a while."""
        await ctx.progress(0)
        await anyio.sleep(seconds)
        return "rested"

    @server.tool
    def block(seconds: float) -> str:
        """Hold a thread."""
        time.sleep(seconds)
        return "held"


@asynccontextmanager
async def http_program() -> AsyncGenerator[str]:
    """Run the server over HTTP as its own process for the block; yield the URL of its endpoint."""
    command = [sys.executable, "-m", "tests.serve.program", "--http"]
    with anyio.fail_after(90):
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdout is not None
            try:
                lines = BufferedByteReceiveStream(process.stdout)
                yield (await lines.receive_until(b"\n", 1000)).decode() + "/mcp"
                assert process.returncode is None
            finally:
                process.terminate()
                with anyio.CancelScope(shield=True):
                    await process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--loop", default="ours", choices=("ours", "sdk"))
    parser.add_argument("--http", action="store_true")
    arguments = parser.parse_args()
    if arguments.http:
        program().run_http(port=0, on_started=lambda url: print(url, flush=True))
    elif arguments.loop == "sdk":
        from tests.serve.sdk_loop import serve_stdio

        anyio.run(serve_stdio, program())
    else:
        program().run_stdio()
