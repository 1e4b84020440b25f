"""The server that the HTTP tests call: one tool per behaviour. Asserts nothing."""

from __future__ import annotations

from typing import Any

import anyio

from toolweave import tool
from toolweave.errors import ToolError
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext

__all__ = ["SECRET", "Doings", "doing_server"]

SECRET = "postgres://admin:hunter2@db"


class Doings:
    """What the tools of one server did, and what they wait for."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.release = anyio.Event()
        self.cancelled = anyio.Event()
        self.finished = anyio.Event()
        self.calls = 0

    async def wait(self) -> str:
        """Wait to be released."""
        self.started.set()
        try:
            await self.release.wait()
        except BaseException:
            self.cancelled.set()
            raise
        self.finished.set()
        return "released"

    async def report(self, ctx: CallContext) -> str:
        """Report progress, then wait to be released."""
        await ctx.progress(1, total=3, message="begun")
        return await self.wait()

    async def steps(self, ctx: CallContext) -> str:
        """Report progress three times."""
        for step in range(1, 4):
            await ctx.progress(step, total=3)
        return "done"

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.calls += 1
        return a + b

    def echo(self, value: Any = None) -> str:
        """Return a value as text."""
        return str(value)[:200]

    def crash(self) -> str:
        """Fail in a way nobody foresaw."""
        raise RuntimeError(f"cannot reach {SECRET}")

    def refuse(self) -> str:
        """Fail on purpose."""
        raise ToolError("only on Mondays")


def doing_server(doings: Doings | None = None, **options: Any) -> McpServer:
    """Return a server with those tools."""
    done = doings or Doings()
    methods = (done.wait, done.report, done.steps, done.add, done.echo, done.crash, done.refuse)
    return create_mcp_server(name="doing", version="1.2.3", tools=[tool(method) for method in methods], **options)
