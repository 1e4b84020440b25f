"""Redis servers of which another one becomes the primary: by hand behind one address, or by a real Sentinel.

Knows how the programs are started and told to change; nothing of what is kept in them.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis
from anyio.abc import SocketAttribute, SocketStream

from tests.programs import free_port
from tests.redis_server import RedisServer

__all__ = ["RedisPair", "Switch", "client_at", "fail_over_by_sentinel", "name_primary", "redis_pair", "sentinel"]

SERVICE = "mymaster"


def client_at(port: int) -> Any:
    """Return a plain client of the server at a port of this machine."""
    kind: Any = redis.Redis
    return kind(host="127.0.0.1", port=port)


class RedisPair:
    """A primary and its replica, which can change places."""

    def __init__(self, primary: RedisServer, replica: RedisServer) -> None:
        self.primary = primary
        self.replica = replica

    def fail_over(self) -> None:
        """Have the replica become the primary once it has everything; the old primary keeps its connections."""
        with client_at(self.primary.port) as old, client_at(self.replica.port) as new:
            old.execute_command("FAILOVER")
            _until(lambda: new.info("replication")["role"] == "master")
        self.swapped()

    def swapped(self) -> None:
        """Note that the two have changed places."""
        self.primary, self.replica = self.replica, self.primary


@contextmanager
def redis_pair(folder: Path) -> Generator[RedisPair, None, None]:
    """Run a primary and a replica that has everything of it."""
    for name in ("a", "b"):
        (folder / name).mkdir()
    with (
        RedisServer(folder / "a", durable=True) as primary,
        RedisServer(folder / "b", durable=True, options={"replicaof": f"127.0.0.1 {primary.port}"}) as replica,
    ):
        with client_at(replica.port) as client, client_at(primary.port) as source:
            _until(lambda: client.info("replication").get("master_link_status") == "up")
            _until(lambda: source.info("replication")["slave0"]["state"] == "online")
        yield RedisPair(primary, replica)


@contextmanager
def sentinel(folder: Path, primary: int) -> Generator[str, None, None]:
    """Run a Sentinel that watches the primary at a port; yield its address in a URL, with the name of the service."""
    port = free_port()
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor {SERVICE} 127.0.0.1 {primary} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} 500\n"
        f"sentinel failover-timeout {SERVICE} 3000\n"
    )
    process = subprocess.Popen(["redis-server", str(config), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        with client_at(port) as client:
            _until(client.ping)
            _until(lambda: client.sentinel_master(SERVICE)["num-slaves"] == 1)
        yield f"127.0.0.1:{port}/{SERVICE}"
    finally:
        process.kill()
        process.wait()


def fail_over_by_sentinel(place: str) -> None:
    """Have the Sentinel at a place, as `sentinel` yields it, start a planned failover.

    A Sentinel refuses until it has checked the replica by itself (NOGOODSLAVE), so it is asked until it agrees.
    """
    address, _, service = place.partition("/")
    with client_at(int(address.partition(":")[2])) as manager:
        _until(lambda: manager.execute_command("SENTINEL", "FAILOVER", service))


def name_primary(place: str, port: int) -> None:
    """Have the Sentinel at a place name the server at a port as the primary, and leave the one before as it is."""
    address, _, service = place.partition("/")
    with client_at(int(address.partition(":")[2])) as manager:
        manager.execute_command("SENTINEL", "REMOVE", service)
        manager.execute_command("SENTINEL", "MONITOR", service, "127.0.0.1", port, 1)


class Switch:
    """An address that leads each new connection to the present target, and leaves those that there are alone.

    Attributes:
        port: Where it listens.
        target: The port to which new connections lead.
        connections: The number of connections so far.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self.target = target
        self.connections = 0

    @classmethod
    @asynccontextmanager
    async def before(cls, target: int) -> AsyncGenerator[Switch, None]:
        """Listen on a free port of this machine for the block."""
        switch = cls(target)
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            switch.port = listener.extra(SocketAttribute.local_port)
            tasks.start_soon(listener.serve, switch._serve)
            yield switch
            tasks.cancel_scope.cancel()

    async def _serve(self, client: SocketStream) -> None:
        self.connections += 1
        try:
            upstream = await anyio.connect_tcp("127.0.0.1", self.target)
        except OSError:
            await client.aclose()
            return
        async with client, upstream, anyio.create_task_group() as tasks:

            async def pass_on(source: SocketStream, target: SocketStream) -> None:
                try:
                    async for part in source:
                        await target.send(part)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(pass_on, client, upstream)
            tasks.start_soon(pass_on, upstream, client)


def _until(look: Any) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if look():
                return
        except (redis.RedisError, KeyError):
            pass
        time.sleep(0.05)
    pytest.fail("the servers were not ready within 30 s")
