"""What is told instead of being looked for: the end of a submitted run, and the wish that a run ends."""

from __future__ import annotations

import math

import anyio
import pytest

from tests.jobs.places import PLACES, client_of, url_of, working
from tests.redis_server import RedisServer
from toolweave import Agent, ScriptedModel, tool, tool_call
from toolweave.agent import RunStatuses
from toolweave.agent._stored.durable import Durable
from toolweave.jobs import Backend


async def never(seconds: float) -> None:
    """Stand for waits that do not end."""
    await anyio.sleep(math.inf)


def patient(agent: Agent, backend: Backend) -> Agent:
    """Let an agent look at nothing twice unless it is told to."""
    assert agent.durable is not None
    agent.durable = Durable(backend.store, agent=agent.name, queue=backend.queue, sleep=never)
    return agent


@pytest.mark.parametrize("place", PLACES)
async def test_who_waits_for_a_run_is_told_of_its_end(place: str, redis_server: RedisServer | None) -> None:
    async with Backend(url_of(place, redis_server)) as backend:
        waiting = patient(Agent(ScriptedModel([]), name="a", backend=backend), backend)
        async with working(backend, Agent(ScriptedModel(["x"] * 3), name="a", backend=backend)):
            for number in range(3):
                assert (await (await waiting.submit(str(number)))).text == "x"


@pytest.mark.parametrize("place", PLACES)
async def test_a_run_hears_at_once_that_it_is_to_end(place: str, redis_server: RedisServer | None) -> None:
    begun = anyio.Event()

    @tool
    async def work() -> str:
        """Work for ever."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    url = url_of(place, redis_server)
    async with Backend(url) as backend:
        agent = Agent(ScriptedModel([tool_call("work")]), name="a", tools=[work], backend=backend)
        patient(agent, backend)
        async with working(backend, agent):
            run = await agent.submit("go")
            await begun.wait()
            assert await RunStatuses(backend.store).cancel(run.id)
            assert (await run).status == "cancelled"


@pytest.mark.slow
async def test_an_empty_run_costs_few_commands(redis_url: str) -> None:
    """Docket alone takes 30 for an empty job; what is more keeps the run, its lease, its journal and its end."""
    runs = 40

    async def count() -> float:
        stats = await redis.info("commandstats")
        looking = ("info", "ping", "xinfo|consumers", "set", "zcard", "select", "hello", "config|resetstat")
        return sum(one["calls"] for name, one in stats.items() if name.removeprefix("cmdstat_") not in looking)

    async with Backend(redis_url) as backend, client_of(redis_url) as redis:
        agent = Agent(ScriptedModel(["x"] * (runs + 1)), name="a", backend=backend)
        async with working(backend, agent):
            await (await agent.submit("the scripts are known then"))
            before = await count()
            for one in [await agent.submit(str(number)) for number in range(runs)]:
                await one
            spent = await count() - before
    assert spent / runs <= 55
