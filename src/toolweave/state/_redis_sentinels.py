"""The Sentinels of a Redis: they name the primary, each time when a connection is made.

Uses the client of the package `redis`, imported when it is first asked.
"""

from __future__ import annotations

from typing import Any

import anyio

from toolweave.errors import StoreError
from toolweave.state._redis_address import SentinelService


class Sentinels:
    """The Sentinels of one service, in one event loop.

    One that does not answer is passed over after a while, and the one that answered last is asked first.

    Args:
        service: The Sentinels and the name of the primary.
        options: Arguments of a connection to the primary; those of TLS are also used for the Sentinels.
        wait_seconds: Timeout of the connection to the primary; each Sentinel has a part of it.
    """

    def __init__(self, service: SentinelService, options: dict[str, Any], wait_seconds: float) -> None:
        self._service = service
        self._options = options
        # So that all of them together take half of the time, and a Sentinel that is away leaves some for the others.
        self._seconds = max(0.1, wait_seconds / (2 * len(service.hosts)))
        self._manager: Any = None

    async def primary(self) -> tuple[str, int]:
        """Return host and port of the primary.

        Raises:
            RedisError: No Sentinel answers, or none names a primary.
        """
        if self._manager is None:
            self._manager = self._made()
        return await self._manager.discover_master(self._service.name)

    async def close(self) -> None:
        """Close the connections to the Sentinels; they are made again when they are used again."""
        manager = self._manager
        self._manager = None
        if manager is not None:
            with anyio.move_on_after(1, shield=True):
                for client in manager.sentinels:
                    await client.aclose()

    def _made(self) -> Any:
        from redis.asyncio.connection import SSLConnection
        from redis.asyncio.retry import Retry
        from redis.asyncio.sentinel import Sentinel
        from redis.backoff import NoBackoff

        kind: Any = self._options.get("connection_class")
        tls = isinstance(kind, type) and issubclass(kind, SSLConnection)
        arguments = {
            "socket_timeout": self._seconds,
            "socket_connect_timeout": self._seconds,
            "retry": Retry(
                NoBackoff(), 0
            ),  # the next Sentinel is asked, and all of them again by who wants the primary
            "ssl": tls,
            **self._service.login,
            **{name: value for name, value in self._options.items() if tls and name.startswith("ssl_")},
        }
        try:
            return Sentinel(list(self._service.hosts), sentinel_kwargs=arguments)
        except (TypeError, ValueError) as exc:
            problem = StoreError(f"the Sentinels of {self._service.name!r}: an option is not understood: {exc}")
        raise problem
