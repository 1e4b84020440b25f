"""Servers with faults between two healthy ones, behind one `toolweave gateway`, a process of its own. Judges nothing.

The gateway has no option and no setting but its servers; only its one caller has the bounds of the rows.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread

from tests.gateway.running import RunningGateway, gateway, write_gateway_config
from toolweave import McpConnection, connect_mcp
from toolweave.gateway import GatewayAdmin, UpstreamStatus
from toolweave.testing.servers import stdio_server_command

__all__ = ["Behind", "GatewayProcess", "SoleBehind"]

Target = list[str] | str
BESIDE = ("before", "after")
UNDER_WAY, USABLE = frozenset({"idle", "connecting"}), frozenset({"ready", "degraded"})


class GatewayProcess:
    """The gateway, and its one caller; open while it is entered.

    Args:
        targets: The URL or the command of each server, by name.
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        odd = {name: entry(target) for name, target in targets.items()}
        self._servers = {BESIDE[0]: entry(healthy()), **odd, BESIDE[1]: entry(healthy())}
        self._life = contextlib.ExitStack()
        self._running: RunningGateway | None = None
        self._caller: McpConnection | None = None

    async def __aenter__(self) -> Self:
        running = await anyio.to_thread.run_sync(self._started)  # a gateway does not wait for servers that are silent
        self._caller = await connect_mcp(running.entry())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect, and end the gateway as SIGTERM does, within a bound."""
        if self._caller is not None:
            await self._caller.close()
        await anyio.to_thread.run_sync(self._life.close)

    def _started(self) -> RunningGateway:
        folder = Path(self._life.enter_context(tempfile.TemporaryDirectory(prefix="gateway-")))
        config = write_gateway_config(folder, self._servers)
        self._running = self._life.enter_context(gateway(folder, config, drain=None))
        return self._running

    @property
    def caller(self) -> McpConnection:
        """The connection of its caller."""
        if self._caller is None:
            raise RuntimeError("the gateway did not start")
        return self._caller

    async def status(self, server: str) -> UpstreamStatus:
        """Return what it tells of a server to whoever runs it."""
        assert self._running is not None
        async with GatewayAdmin(self._running.base, self._running.token) as admin:
            return next(one for one in (await admin.status()).upstreams if one.name == server)


class Behind:
    """One server, as the caller of its gateway reaches it.

    Args:
        whole: The gateway, which is open.
        name: The server.
        seconds: The caller's bound of a call.
    """

    def __init__(self, whole: GatewayProcess, name: str, seconds: float = 10) -> None:
        self.whole, self.name, self.seconds = whole, name, seconds

    async def open(self) -> None:
        """Wait for what becomes of the server.

        Raises:
            RuntimeError: It cannot be used; with what the gateway tells whoever runs it.
        """
        while (found := await self.whole.status(self.name)).state in UNDER_WAY:
            await anyio.sleep(0.1)
        if found.error is not None and found.state not in USABLE:
            raise RuntimeError(found.error)

    async def tools(self) -> Iterable[str]:
        """Return the names of its tools, as it has them itself."""
        caller = self.whole.caller
        await caller.refresh()
        prefix = f"{self.name}_"
        listed = [tool.name for tool in await caller.list_tools()]
        return {name.removeprefix(prefix) for name in listed if name.startswith(prefix)}

    async def call(self, text: str) -> str:
        """Call its `echo` and return the text of the result.

        Raises:
            RuntimeError: The result is an error.
        """
        result = await self.whole.caller.call_tool(f"{self.name}_echo", {"text": text}, timeout=self.seconds)
        if result.is_error:
            raise RuntimeError(result.text)
        return result.text

    async def close(self) -> None:
        """Do nothing: the gateway is closed by itself."""

    def beside(self) -> list[Behind]:
        """Return the healthy servers behind the same gateway."""
        return [Behind(self.whole, name) for name in BESIDE]


class SoleBehind(Behind):
    """One server behind a gateway of its own."""

    def __init__(self, target: Target, seconds: float) -> None:
        super().__init__(GatewayProcess({"odd": target}), "odd", seconds)

    async def open(self) -> None:
        """Start the gateway, and wait for what becomes of the server."""
        await self.whole.__aenter__()
        await super().open()

    async def close(self) -> None:
        """End the gateway."""
        await self.whole.__aexit__()


def healthy() -> list[str]:
    """Return the command of a healthy server."""
    return stdio_server_command("--version", "2025-11-25")


def entry(target: Target) -> dict[str, Any]:
    """Return the entry of a server in a config."""
    return {"url": target} if isinstance(target, str) else {"command": target[0], "args": target[1:]}
