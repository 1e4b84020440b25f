"""Replicas of one gateway in the test's own event loop, each on a port of its own. Judges nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.abc import SocketStream

from tests.serve.exchanges import BOTH, Answer, events, exchange, opened
from tests.serve.serving import served_http
from toolweave.gateway import Replicas, create_gateway, shared_redis
from toolweave.serve import HttpOptions
from toolweave.state import MemoryStore, SqliteStore, Store

__all__ = ["KEYS", "OTHER_KEYS", "STORES", "Json", "OldClient", "message", "replicas", "store_of"]

Json = dict[str, Any]
KEYS, OTHER_KEYS = ("k" * 32,), ("o" * 32,)
STORES = pytest.mark.parametrize("kind", ["memory", "file", "redis"])


def store_of(kind: str, folder: Path, redis_url: str) -> Store:
    """Return a new store for a replica; those of one kind, folder and URL hold the same, but in memory."""
    if kind == "redis":
        return shared_redis(redis_url)
    return MemoryStore() if kind == "memory" else SqliteStore(folder / "shared.db")


@asynccontextmanager
async def replicas(
    source: Any,
    *,
    count: int = 2,
    keys: Sequence[Sequence[str] | None] = (),
    stores: Sequence[Store | None] = (),
    http: HttpOptions | None = None,
    **options: Any,
) -> AsyncGenerator[list[str]]:
    """Serve a gateway several times; yield the URLs.

    Args:
        source: The upstreams.
        count: The number of replicas.
        keys: The keys of each replica; those of all by default.
        stores: The store of each replica; none by default.
        http: Options of serving.
        **options: Options of `create_gateway`.
    """
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for number in range(count):
            own = keys[number] if keys else KEYS
            store = stores[number] if stores else None
            shared = None if store is None or own is None else Replicas(store, own)
            gateway = create_gateway(source, state_keys=own, replicas=shared, **options)
            urls.append(await stack.enter_async_context(served_http(gateway, **(http or {}))))
        yield urls


def message(method: str, key: int | str | None = 2, **params: Any) -> bytes:
    """Return a request, or a notification without a key."""
    said: Json = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(said if key is None else said | {"id": key}).encode()


class OldClient:
    """A client of 2025-11-25 that chooses a replica for every request.

    Attributes:
        headers: The headers of its requests.
    """

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self.headers = {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}

    async def begin(self, url: str, **capabilities: Any) -> Json:
        """Shake hands with one replica."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "old", "version": "1"},
        }
        answer = await exchange(url, headers=self.headers, body=message("initialize", 1, **params))
        assert answer.status == 200, answer.body
        self.headers["MCP-Protocol-Version"] = "2025-11-25"
        if "mcp-session-id" in answer.headers:
            self.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        await self.post(url, message("notifications/initialized", None))
        return answer.json()

    async def post(self, url: str, body: bytes) -> Answer:
        """Send one message to a replica."""
        return await exchange(url, headers=self.headers, body=body)

    async def ask(self, url: str, method: str, key: int | str = 2, **params: Any) -> Json:
        """Send one request to a replica and return the whole answer."""
        answer = await self.post(url, message(method, key, **params))
        assert answer.status == 200, (answer.status, answer.body)
        return events(answer.body)[-1]

    async def call(self, url: str, tool: str, key: int | str = 2, **arguments: Any) -> Json:
        """Call a tool at a replica and return the whole answer."""
        return await self.ask(url, "tools/call", key, name=tool, arguments=arguments)

    async def end(self, url: str) -> int:
        """End the session at a replica; return the status."""
        return (await exchange(url, "DELETE", headers=self.headers)).status

    def opened(self, url: str, method: str, body: bytes = b"") -> AbstractAsyncContextManager[SocketStream]:
        """Send a request and leave its answer to be read."""
        return opened(url, method, self.headers, body)
