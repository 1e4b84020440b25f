"""Servers that share their tasks: replicas and workers, on each kind of backend. Asserts nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from tests.redis_server import NO_SERVER, RedisServer
from tests.serve.talking import MODERN_VERSION, Talk, talking
from toolweave import tool
from toolweave.errors import RequestError
from toolweave.jobs import Backend, WorkBackend
from toolweave.serve import McpServer, TaskRule, create_mcp_server
from toolweave.serve._tasks import TaskSupport
from toolweave.serve.request import Client, Json, Request
from toolweave.tools import CallContext, Elicitation

__all__ = [
    "DECLARED",
    "NAME",
    "Doings",
    "Nobody",
    "Rulings",
    "accept",
    "answered",
    "backend",
    "doings",
    "replica",
    "two_replicas",
    "until",
    "working",
]

DECLARED: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
Rulings = Mapping[str, TaskSupport | TaskRule]
RULES: Rulings = {
    "work": "optional",
    "ask": "required",
    "hang": "required",
    "harmless": "required",
    "refuse": "required",
}


@pytest.fixture(params=["memory", "redis"])
def backend(redis_server: RedisServer | None, request: pytest.FixtureRequest) -> Backend:
    """A backend of each kind, with nothing in it."""
    if request.param == "memory":
        return Backend("memory://")
    if redis_server is None:
        pytest.skip(NO_SERVER)
    return Backend(f"redis://127.0.0.1:{redis_server.port}/0", name=f"tasks-{id(request):x}")


class Doings:
    """What tools did in this process, and what they wait for."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.keys: list[Any] = []
        self.go = anyio.Event()
        self.news = anyio.Event()
        self.ended = anyio.Event()

    async def until(self, count: int) -> None:
        """Wait until tools have begun so many times."""
        with anyio.fail_after(60):
            while len(self.begun) < count:
                await self.news.wait()

    def begin(self, name: str, ctx: CallContext) -> None:
        """Note that a tool begins."""
        self.begun.append(name)
        self.keys.append(ctx.meta.get("io.toolweave/idempotency-key"))
        news = self.news
        self.news = anyio.Event()
        news.set()

    async def work(self, ctx: CallContext) -> str:
        """Report progress, wait, and return."""
        self.begin("work", ctx)
        await ctx.progress(1, 3)
        await self.go.wait()
        return "worked"

    async def ask(self, ctx: CallContext) -> list[Any]:
        """Ask twice, for two names and for one."""
        self.begin("ask", ctx)
        both = await ctx.ask(a=Elicitation("A?", NAME), b=Elicitation("B?", NAME))
        again = await ctx.elicit("A?", NAME, key="a")
        return [(one.content or {}).get("name") for one in (both["a"], both["b"], again)]

    async def hang(self, ctx: CallContext) -> str:
        """Hang until cancelled."""
        self.begin("hang", ctx)
        return await self._hang()

    async def harmless(self, ctx: CallContext) -> str:
        """Hang the first time, and return the second."""
        self.begin("harmless", ctx)
        return await self._hang() if len(self.begun) == 1 else "done in the end"

    async def refuse(self, ctx: CallContext) -> str:
        """Fail in the protocol."""
        raise RequestError("broken on purpose", code=-32050, data={"why": "on purpose"})

    async def _hang(self) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            self.ended.set()
        return ""


@pytest.fixture
def doings() -> Doings:
    """What the tools of the test's replicas do, and wait for."""
    return Doings()


def replica(
    backend: WorkBackend, doings: Doings, *, tasks: Mapping[str, Any] | None = None, **options: Any
) -> McpServer:
    """Return one more server of the same name that shares its tasks."""
    rerun = tool(annotations={"idempotentHint": True})(doings.harmless)
    tools = [doings.work, doings.ask, doings.hang, rerun, doings.refuse]
    rules: Rulings = {**RULES, **(tasks or {})}
    return create_mcp_server(name="shop", version="1", tools=tools, tasks=rules, backend=backend)


@asynccontextmanager
async def _working(server: McpServer) -> AsyncGenerator[None]:
    backend = server.backend
    assert backend is not None

    async def work(*, task_status: TaskStatus[None]) -> None:
        await backend.queue.work(server.handlers(), started=task_status.started)

    async with backend, anyio.create_task_group() as tasks:
        with anyio.fail_after(60):
            await tasks.start(work)
        yield
        tasks.cancel_scope.cancel()


def working(server: McpServer) -> AbstractAsyncContextManager[None]:
    """Let a worker in this process do a server's tasks for the block."""
    return _working(server)


@asynccontextmanager
async def two_replicas(
    backend: WorkBackend, doings: Doings, era: str = MODERN_VERSION
) -> AsyncGenerator[tuple[Talk, Talk]]:
    """Talk to two replicas in the way of a revision, while a worker does their tasks."""
    async with (
        working(replica(backend, doings)),
        talking(replica(backend, doings), era) as one,
        talking(replica(backend, doings), era) as two,
    ):
        yield one, two


def accept(name: str) -> Json:
    """Return an answer to a question for a name."""
    return {"action": "accept", "content": {"name": name}}


async def until(talk: Talk, name: str, *statuses: str) -> Json:
    """Look at a task until it has one of the statuses."""
    with anyio.fail_after(60):
        while True:
            shown = await talk.ask("tasks/get", {"taskId": name})
            if shown["status"] in statuses:
                return shown
            await anyio.sleep(0.02)


async def answered(server: McpServer, principal: str | None, method: str, **params: Any) -> Json:
    """Return what a server answers a stateless client that is somebody."""
    client = Client(version="2026-07-28", capabilities=DECLARED, principal=principal)
    return await server.endpoint.answer(
        Request(method=method, params=params, client=client, reply_channel=Nobody(), id=1)
    )


class Nobody:
    """The line to a client that only waits for its answer."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Notify nobody."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Ask nobody."""
        raise RequestError("nobody is there", code=-32603)

    async def release(self) -> None:
        """Release nothing."""
