"""Whose run it is when something odd happens: a disk that is full, a clock that is set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolweave import Agent, ScriptedModel, tool, tool_call
from toolweave.agent import RunStatuses
from toolweave.errors import StoreError
from toolweave.state import MemoryStore


class Full(MemoryStore):
    """A store on a disk that can be full."""

    full = False

    async def write(self, *args: Any, **options: Any) -> Sequence[int] | None:
        self._check()
        return await super().write(*args, **options)

    async def delete(self, *args: Any, **options: Any) -> bool:
        self._check()
        return await super().delete(*args, **options)

    def _check(self) -> None:
        if self.full:
            raise StoreError("database or disk is full")


@pytest.mark.slow
async def test_a_run_that_ended_with_a_full_disk_goes_on_in_the_same_process_at_once() -> None:
    store = Full()

    @tool(annotations={"readOnlyHint": True})
    def fill() -> str:
        """Fill the disk."""
        store.full = len(ran) == 0
        ran.append("fill")
        return "filled"

    ran: list[str] = []
    agent = Agent(ScriptedModel([tool_call("fill"), "done"]), tools=[fill], store=store)
    run = agent.send("go")
    with pytest.raises(StoreError, match="disk is full"):
        await run
    store.full = False
    (left,) = await RunStatuses(store).interrupted()
    assert left.run_id == run.id
    with anyio.fail_after(10):
        assert (await (await agent.resume(run.id))).text == "done"


async def test_a_clock_that_is_set_far_ahead_in_a_run_takes_it_from_nobody(tmp_path: Path) -> None:
    now = [1_000.0]
    store = MemoryStore(clock=lambda: now[0])

    @tool
    def set_the_clock() -> str:
        """Set it by a year."""
        now[0] += 366 * 86_400
        return "set"

    agent = Agent(ScriptedModel([tool_call("set_the_clock"), "done"]), tools=[set_the_clock], store=store)
    run = agent.send("go")
    assert (await run).text == "done"
    (found,) = [await RunStatuses(store).get(run.id)]
    assert found is not None
    assert (found.status, found.record.text) == ("completed", "done")


def test_a_run_is_cancelled_from_elsewhere_in_a_loop_of_asyncio_run_too() -> None:
    """Its lease is renewed there, though sniffio, where it is installed, knows no library in timers of such a loop."""
    store, begun = MemoryStore(), asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.sleep(60)
        return ""

    async def main() -> str:
        agent = Agent(ScriptedModel([tool_call("wait"), "done"]), tools=[wait], store=store)
        run = agent.send("go")
        run.start()
        async with asyncio.timeout(30):
            await begun.wait()
            assert await RunStatuses(store).cancel(run.id)
            return (await run).status

    assert asyncio.run(main()) == "cancelled"
