"""A TCP proxy that can lose what a server answers: what it was told was done, and nobody is told so."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream

__all__ = ["Proxy"]


class Proxy:
    """Passes on what comes, except as many answers to a marked request as it is told to lose.

    Attributes:
        port: Where it listens.
        connections: How many were made.
        lost: How many answers were lost.
        to_lose: How many are still to be lost, each with its connection.
        lose_after: How many seconds after they came.
    """

    def __init__(self, mark: bytes) -> None:
        self.port = 0
        self.connections = 0
        self.lost = 0
        self.to_lose = 0
        self.lose_after = 0.0
        self._mark = mark

    @classmethod
    @asynccontextmanager
    async def before(cls, server: int, mark: bytes) -> AsyncGenerator[Proxy, None]:
        """Stand before a port of this machine; a request is marked when these bytes are in it."""
        proxy = cls(mark)
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):

            async def serve(client: SocketStream) -> None:
                async with client, await anyio.connect_tcp("127.0.0.1", server) as upstream:
                    await proxy._pass_on(client, upstream)

            proxy.port = listener.extra(SocketAttribute.local_port)
            tasks.start_soon(listener.serve, serve)
            yield proxy
            tasks.cancel_scope.cancel()

    async def _pass_on(self, client: SocketStream, upstream: SocketStream) -> None:
        self.connections += 1
        marked = False

        async def requests() -> None:
            nonlocal marked
            async for part in client:
                marked = marked or self._mark in part
                await upstream.send(part)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(requests)
            async for part in upstream:
                if marked and self.to_lose:
                    self.to_lose -= 1
                    self.lost += 1
                    await anyio.sleep(self.lose_after)
                    break
                marked = False
                await client.send(part)
            tasks.cancel_scope.cancel()
