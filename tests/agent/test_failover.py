"""Runs of workers while another Redis becomes the primary: nothing is lost, and no effect is made twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import pytest

from tests.jobs.places import working
from tests.redis_failover import Switch, redis_pair
from toolweave import Agent, Backend, ScriptedModel, tool, tool_call
from toolweave.models import ModelRequest, ToolCallPart, ToolMessage, UserMessage

pytestmark = pytest.mark.slow

RUNS, STEPS = 6, 10


async def test_runs_of_workers_continue_after_a_planned_failover_without_doing_anything_twice(tmp_path: Path) -> None:
    effects: Counter[str] = Counter()
    texts: list[str] = []

    @tool
    async def charge(order: str) -> str:
        """Charge an order.

        Args:
            order: Its name.
        """
        effects[order] += 1
        await anyio.sleep(0.05)
        return "charged"

    def answer(request: ModelRequest) -> str | list[ToolCallPart]:
        done = [message for message in request.messages if isinstance(message, ToolMessage)]
        texts.extend(outcome.result.text for message in done for outcome in message.outcomes)
        run = next(message.text for message in request.messages if isinstance(message, UserMessage))
        if len(done) == STEPS:
            return "done"
        return [tool_call("charge", {"order": f"{run}-{len(done)}"}, id=f"c{len(done)}")]

    with redis_pair(tmp_path) as pair:
        async with Switch.before(pair.primary.port) as switch:
            url = f"redis://127.0.0.1:{switch.port}/0"
            agents = [Agent(ScriptedModel(answer), name="shop", tools=[charge], backend=Backend(url)) for _ in range(3)]
            backends = [Backend(url), Backend(url)]
            async with working(backends[0], agents[0]), working(backends[1], agents[1]):
                runs = [await agents[2].submit(f"run{number}") for number in range(RUNS)]
                while effects.total() < RUNS * 2:
                    await anyio.sleep(0.01)
                await anyio.to_thread.run_sync(pair.fail_over)
                switch.target = pair.primary.port
                records = [await run.result(timeout=60) for run in runs]
                later = await (await agents[2].submit("later")).result(timeout=60)

    assert [record.status for record in [*records, later]] == ["completed"] * (RUNS + 1)
    assert set(texts) == {"charged"}
    assert set(effects.values()) == {1}
    assert effects.total() == (RUNS + 1) * STEPS
