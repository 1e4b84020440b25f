"""A Redis that refuses writes for a while, or does not answer: calls that have ended keep their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from tests.jobs.places import working
from tests.redis_failover import client_at
from tests.redis_server import RedisServer
from toolweave import Agent, Backend, ScriptedModel, tool, tool_call
from toolweave.agent import RunRecord
from toolweave.models import ModelRequest, ToolCallPart, ToolMessage, UserMessage
from toolweave.state import RedisStore

pytestmark = pytest.mark.slow

RUNS, STEPS = 4, 3


class Shop:
    """Tools whose calls end while the store refuses them, and a model that makes two of them in each of its turns.

    Attributes:
        effects: How often each order was charged.
        texts: The results that the model has read.
        go_on: Lets the calls end.
    """

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.texts: set[str] = set()
        self.go_on = anyio.Event()

    def agent(self, backend: Backend | None = None, store: RedisStore | None = None) -> Agent:
        """Return an agent with the tools."""

        @tool
        async def charge(order: str) -> str:
            """Charge an order.

            Args:
                order: Its name.
            """
            self.effects[order] += 1
            await self.go_on.wait()
            return "charged"

        return Agent(ScriptedModel(self._answer), name="shop", tools=[charge], backend=backend, store=store)

    async def all_begun(self, calls: int) -> None:
        """Wait until so many calls run."""
        while self.effects.total() < calls:
            await anyio.sleep(0.01)

    def _answer(self, request: ModelRequest) -> str | list[ToolCallPart]:
        done = [message for message in request.messages if isinstance(message, ToolMessage)]
        self.texts |= {outcome.result.text for message in done for outcome in message.outcomes}
        run = next(message.text for message in request.messages if isinstance(message, UserMessage))
        if len(done) == STEPS:
            return "done"
        return [tool_call("charge", {"order": f"{run}-{len(done)}-{at}"}, id=f"c{len(done)}{at}") for at in "ab"]


async def full(server: RedisServer, for_a_while: Callable[[], Awaitable[None]]) -> None:
    """Let a Redis refuse writes, as when its memory is full."""
    with client_at(server.port) as client:
        client.config_set("maxmemory", "1")
        await for_a_while()
        client.config_set("maxmemory", "0")


async def paused(server: RedisServer, for_a_while: Callable[[], Awaitable[None]]) -> None:
    """Let a Redis answer no write, as while it is moved."""
    with client_at(server.port) as client:
        client.execute_command("CLIENT", "PAUSE", "600000", "WRITE")
        await for_a_while()
        client.execute_command("CLIENT", "UNPAUSE")


async def demoted(server: RedisServer, for_a_while: Callable[[], Awaitable[None]]) -> None:
    """Let a Redis be a replica, as after a failover before the address leads to the new primary."""
    with client_at(server.port) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        await for_a_while()
        client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize("refuse", [full, paused, demoted])
@pytest.mark.parametrize("workers", [1, 2])
async def test_calls_that_end_while_redis_refuses_writes_keep_their_results(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refuse: Callable[..., Awaitable[None]], workers: int
) -> None:
    shop = Shop()

    async def refused() -> None:
        shop.go_on.set()
        while "its journal cannot be written, trying again" not in caplog.text:
            await anyio.sleep(0.01)
        await anyio.sleep(6)  # longer than a lease lives

    with RedisServer(tmp_path) as server:
        backends = [Backend(server.url) for _ in range(workers)]
        records: list[RunRecord] = []
        async with anyio.create_task_group() as tasks:
            started: list[anyio.Event] = []
            for backend in backends:
                started.append(anyio.Event())
                tasks.start_soon(_work, backend, shop.agent(backend), started[-1])
            with anyio.fail_after(150):
                for one in started:
                    await one.wait()
                submitter = shop.agent(Backend(server.url))
                runs = [await submitter.submit(f"run{number}") for number in range(RUNS)]
                await shop.all_begun(RUNS * 2)
                await refuse(server, refused)
                records = [await run.result(timeout=90) for run in runs]
            tasks.cancel_scope.cancel()

    assert [record.status for record in records] == ["completed"] * RUNS
    assert shop.texts == {"charged"}
    assert set(shop.effects.values()) == {1}
    assert shop.effects.total() == RUNS * STEPS * 2


async def test_a_call_of_a_run_without_workers_keeps_its_result_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop()

    async def refused() -> None:
        shop.go_on.set()
        while "its journal cannot be written, trying again" not in caplog.text:
            await anyio.sleep(0.01)

    with RedisServer(tmp_path) as server, anyio.fail_after(120):
        async with RedisStore(server.url) as store:
            run = shop.agent(store=store).send("run").start()
            await shop.all_begun(2)
            await full(server, refused)
            result = await run

    assert result.status == "completed"
    assert shop.texts == {"charged"}
    assert set(shop.effects.values()) == {1}


async def _work(backend: Backend, agent: Agent, started: anyio.Event) -> None:
    async with working(backend, agent):
        started.set()
        await anyio.sleep_forever()
