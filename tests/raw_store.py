"""Places for documents whose raw bytes a test can search, for what must not be in them any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.jobs.places import client_of
from tests.redis_server import NO_SERVER, RedisServer
from toolweave import Backend
from toolweave.state import SqliteStore

__all__ = ["Raw", "raw_place"]

Raw = Callable[[], Awaitable[bytes]]


@pytest.fixture(params=["sqlite", "redis"])
def raw_place(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer | None) -> tuple[Backend, Raw]:
    """Return an empty backend, and a function that reads everything in it as bytes."""
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "runs.db")

        async def files() -> bytes:
            await store.compact()
            return b"".join(path.read_bytes() for path in sorted(tmp_path.glob("runs.db*")))

        return Backend("memory://", store=store), files
    if redis_server is None:
        pytest.skip(NO_SERVER)
    url: str = request.getfixturevalue("redis_url")
    backend = Backend(url)

    async def dumped() -> bytes:
        await backend.store.compact()  # type: ignore[attr-defined]
        async with client_of(url) as client:
            keys = [key async for key in client.scan_iter()]
            return b"".join([key + (await whole(client, key)) for key in keys])

    return backend, dumped


async def whole(client: object, key: bytes) -> bytes:
    """Return a key's value as text, of any type."""
    reads = {
        b"string": ("get", ()),
        b"hash": ("hgetall", ()),
        b"zset": ("zrange", (0, -1)),
        b"list": ("lrange", (0, -1)),
        b"set": ("smembers", ()),
        b"stream": ("xrange", ()),
    }
    kind = await getattr(client, "type")(key)  # noqa: B009
    if kind == b"none":  # it has expired since it was listed
        return b""
    name, more = reads[kind]
    return repr(await getattr(client, name)(key, *more)).encode()
