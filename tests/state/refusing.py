"""A TCP proxy before a Redis that can answer with an error instead, as a server does that is not the primary."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream

__all__ = ["RefusingProxy"]


class RefusingProxy:
    """Passes on everything, except scripts on connections that are to be refused.

    Attributes:
        port: Where it listens.
        connections: The number of connections so far.
        refused: The number of scripts that were refused.
    """

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.refused = 0
        self._error = b""
        self._refused_below = 0

    @classmethod
    @asynccontextmanager
    async def before(cls, server: int) -> AsyncGenerator[RefusingProxy, None]:
        """Listen before a port of this machine for the block."""
        proxy = cls()
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):

            async def serve(client: SocketStream) -> None:
                proxy.connections += 1
                async with client, await anyio.connect_tcp("127.0.0.1", server) as upstream:
                    await proxy._pass_on(client, upstream, proxy.connections)

            proxy.port = listener.extra(SocketAttribute.local_port)
            tasks.start_soon(listener.serve, serve)
            yield proxy
            tasks.cancel_scope.cancel()

    def refuse_present_connections(self, error: str) -> None:
        """Answer scripts on the connections that there are with an error."""
        self._error = f"-{error}\r\n".encode()
        self._refused_below = self.connections + 1

    def refuse_all(self, error: str) -> None:
        """Answer scripts on all connections with an error."""
        self.refuse_present_connections(error)
        self._refused_below = 1_000_000

    async def _pass_on(self, client: SocketStream, upstream: SocketStream, number: int) -> None:
        async with anyio.create_task_group() as tasks:

            async def answers() -> None:
                async for part in upstream:
                    await client.send(part)

            tasks.start_soon(answers)
            async for part in client:
                scripts = part.count(b"\r\nEVAL")
                if scripts and number < self._refused_below:
                    self.refused += scripts
                    await client.send(self._error * scripts)
                else:
                    await upstream.send(part)
            tasks.cancel_scope.cancel()
