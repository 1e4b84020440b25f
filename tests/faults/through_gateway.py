"""A server with a fault between two healthy ones, behind `toolweave gateway` in a process of its own. Judges nothing.

The gateway has no option and no setting but the three servers; only its caller has the bounds of a row.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from tests.gateway.running import RunningGateway, gateway, write_gateway_config
from toolweave import McpConnection, connect_mcp
from toolweave.gateway import GatewayAdmin
from toolweave.testing.servers import stdio_server_command

__all__ = ["GatewayProcess"]

ODD, BESIDE = "odd", ("before", "after")
UNDER_WAY = frozenset({"idle", "connecting"})
END_SECONDS = 60.0


class GatewayProcess:
    """The gateway, and its one caller.

    Args:
        target: The URL or the command of the server.
        timeout: The bounds of the caller.
    """

    def __init__(self, target: list[str] | str, timeout: dict[str, float]) -> None:
        self._servers = {BESIDE[0]: entry(healthy()), ODD: entry(target), BESIDE[1]: entry(healthy())}
        self._timeout = timeout
        self._life = contextlib.ExitStack()
        self._running: RunningGateway | None = None
        self._caller: McpConnection | None = None

    async def open(self) -> None:
        """Start the gateway and connect to it, and wait for what becomes of the server.

        Raises:
            RuntimeError: The server cannot be used; with what the gateway tells whoever runs it.
        """
        running = await anyio.to_thread.run_sync(self._started)  # a gateway does not wait for servers that are silent
        self._caller = await connect_mcp(running.entry(), timeout=self._timeout)
        async with GatewayAdmin(running.base, running.token) as admin:
            while True:
                (odd,) = [one for one in (await admin.status()).upstreams if one.name == ODD]
                if odd.state not in UNDER_WAY:
                    break
                await anyio.sleep(0.05)
        if odd.error is not None and odd.state != "ready":
            raise RuntimeError(odd.error)

    def _started(self) -> RunningGateway:
        folder = Path(self._life.enter_context(tempfile.TemporaryDirectory(prefix="gateway-")))
        config = write_gateway_config(folder, self._servers)
        self._running = self._life.enter_context(gateway(folder, config, drain=None))
        return self._running

    async def tools(self, server: str = ODD) -> Iterable[str]:
        """Return the names of a server's tools, as it has them itself."""
        caller = self._connected()
        await caller.refresh()
        listed = [tool.name for tool in await caller.list_tools()]
        return {name.removeprefix(f"{server}_") for name in listed if name.startswith(f"{server}_")}

    async def call(self, text: str, server: str = ODD) -> str:
        """Call `echo` of a server and return the text of its result.

        Raises:
            RuntimeError: The result is an error.
        """
        result = await self._connected().call_tool(f"{server}_echo", {"text": text})
        if result.is_error:
            raise RuntimeError(result.text)
        return result.text

    async def close(self) -> None:
        """Disconnect, and end the gateway as Ctrl-C does."""
        if self._caller is not None:
            await self._caller.close()
        if self._running is not None:
            self._running.process.send_signal(signal.SIGINT)
            await anyio.to_thread.run_sync(self._running.process.wait, END_SECONDS)
        await anyio.to_thread.run_sync(self._life.close)

    def beside(self) -> list[Beside]:
        """Return the healthy servers, as clients that are open as long as the gateway is."""
        return [Beside(self, name) for name in BESIDE]

    def _connected(self) -> McpConnection:
        if self._caller is None:
            raise RuntimeError("the gateway did not start")
        return self._caller


class Beside:
    """A healthy server behind the same gateway, through the same caller."""

    def __init__(self, whole: GatewayProcess, name: str) -> None:
        self._whole, self._name = whole, name

    async def open(self) -> None:
        """Do nothing: the gateway is opened by itself."""

    async def tools(self) -> Iterable[str]:
        """Return the names of its tools."""
        return await self._whole.tools(self._name)

    async def call(self, text: str) -> str:
        """Call its `echo`."""
        return await self._whole.call(text, self._name)

    async def close(self) -> None:
        """Do nothing, as above."""


def healthy() -> list[str]:
    """Return the command of a healthy server."""
    return stdio_server_command("--version", "2025-11-25")


def entry(target: list[str] | str) -> dict[str, Any]:
    """Return the entry of a server in a config."""
    return {"url": target} if isinstance(target, str) else {"command": target[0], "args": target[1:]}
