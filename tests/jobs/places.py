"""Where the tests of work put it: a backend in memory and one on a real Redis, each with nothing in it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.redis_server import NO_SERVER, RedisServer
from toolweave import Agent
from toolweave.agent import work_runs
from toolweave.jobs import Backend

PLACES = ["memory", "redis"]


def url_of(place: str, server: RedisServer | None) -> str:
    """Return the URL of an empty backend; the test is skipped where there is no Redis to be had."""
    if place == "memory":
        return "memory://"
    if server is None:
        pytest.skip(NO_SERVER)
    return f"{server.url}?name={uuid.uuid4().hex}"


def client_of(url: str) -> AbstractAsyncContextManager[Any]:
    """Return a plain client of a Redis."""
    from redis.asyncio import Redis

    kind: Any = Redis
    return kind.from_url(url)


@asynccontextmanager
async def working(backend: Backend, *agents: Agent, concurrency: int = 10) -> AsyncGenerator[None, None]:
    """Do the runs that are submitted to these agents meanwhile."""
    started = anyio.Event()

    async def work() -> None:
        await work_runs(agents, backend, concurrency=concurrency, started=started.set)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await started.wait()
            yield
            tasks.cancel_scope.cancel()
