"""The timer that bounds a plain call, and whoever else wants its task to stop: in every order, in the same turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connect.targets import ChannelServer, Json, connected, initialized
from toolweave import RequestTimeoutError
from toolweave.connect._deadline import Deadline, SharedTimer

NEVER = 3600.0
TURNS = 10
ENDS = ("answer", "expire", "cancel", "scope")
SCRIPTS = st.lists(st.sampled_from((*ENDS, "turn")), min_size=1, max_size=8)
"""What happens to a wait: what stands between two turns happens in one turn of the event loop."""


@dataclass
class Wait:
    """One wait that several want to end.

    Attributes:
        happened: What happened before its block was left.
        before: `Task.cancelling()` when the block was entered.
        after: The same when it was left without a cancellation.
        how: `"answered"`, `"expired"` or `"moved on"`; empty when the task was cancelled.
    """

    courtesy: int
    answer: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    deadline: Deadline | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    happened: set[str] = field(default_factory=set[str])
    inside: bool = False
    before: int = -1
    after: int = -1
    how: str = ""

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.before = task.cancelling()
        answered = False
        with self.scope:
            with SharedTimer().within(NEVER) as self.deadline:
                self.inside = True
                try:
                    answered = await self._answered()
                finally:
                    self.inside = False
            self.after = task.cancelling()
            if not answered:
                await anyio.lowlevel.checkpoint_if_cancelled()
            self.how = "answered" if answered else "expired"
        self.how = self.how or "moved on"

    async def _answered(self) -> bool:
        try:
            await self.answer
        except asyncio.CancelledError:
            with anyio.move_on_after(NEVER, shield=True):  # as a call does, to tell the server
                for _ in range(self.courtesy):
                    await asyncio.sleep(0)
            raise
        return True

    def do(self, event: str, task: asyncio.Task[None]) -> None:
        if not self.inside:
            return
        self.happened.add(event)
        match event:
            case "answer":
                if not self.answer.done():
                    self.answer.set_result(None)
            case "expire":
                if self.deadline is not None and not self.deadline.expired:
                    self.deadline.expire()
            case "cancel":
                task.cancel()
            case _:
                self.scope.cancel()


async def play(script: list[str], courtesy: int) -> tuple[Wait, bool]:
    """Return what became of a wait, and whether its task was cancelled."""
    wait = Wait(courtesy)
    task = asyncio.get_running_loop().create_task(wait.run())
    await asyncio.sleep(0)
    for event in (*script, *["turn"] * TURNS, "answer"):
        if event == "turn":
            await asyncio.sleep(0)
        else:
            wait.do(event, task)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
    return wait, task.cancelled()


@pytest.mark.slow
@given(SCRIPTS, st.integers(0, 3))
def test_a_cancellation_from_outside_always_wins_and_an_expired_deadline_leaves_no_trace(
    script: list[str], courtesy: int
) -> None:
    wait, cancelled = asyncio.run(play(script, courtesy))
    if "cancel" in wait.happened:
        assert cancelled
        return
    assert not cancelled
    assert wait.how != "expired" or "expire" in wait.happened
    assert wait.how != "expired" or "scope" not in wait.happened
    assert wait.how == "moved on" or wait.after == wait.before
    if wait.happened == {"expire"}:
        assert wait.how == "expired"


@pytest.mark.parametrize("bound", ["timeout", "wait_for"])
async def test_a_bound_of_asyncio_that_ends_with_the_deadline_wins(bound: str) -> None:
    expired: list[bool] = []

    async def work() -> None:
        with SharedTimer().within(0) as deadline:
            try:
                await asyncio.sleep(NEVER)
            finally:
                expired.append(deadline.expired)
        raise AssertionError("the deadline must not hide the caller's own")

    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    with pytest.raises(TimeoutError):
        if bound == "timeout":
            async with asyncio.timeout(0):
                await work()
        else:
            await asyncio.wait_for(work(), 0.000_001)
    assert task.cancelling() == before


async def test_a_deadline_within_a_deadline_ends_the_outer_one_only_when_that_is_over() -> None:
    task = asyncio.current_task()
    assert task is not None
    with SharedTimer().within(NEVER) as outer:
        with SharedTimer().within(0) as inner:
            await anyio.sleep(NEVER)
        assert inner.expired
        assert task.cancelling() == 0
        await anyio.lowlevel.checkpoint()
    assert not outer.expired
    never = SharedTimer()
    inner: Deadline | None = None
    with SharedTimer().within(0) as outer:
        with never.within(NEVER) as inner:
            await anyio.sleep(NEVER)
        raise AssertionError("the outer one is over")
    assert outer.expired
    assert inner is not None
    assert not inner.expired
    assert not never.running
    assert task.cancelling() == 0


@pytest.mark.slow
@pytest.mark.parametrize("first", ["scope", "deadline"])
@pytest.mark.parametrize(
    ("method", "arguments"),
    [("call_tool", ("t",)), ("read_resource", ("file:///x",)), ("refresh", ()), ("list_resources", ())],
)
async def test_a_request_whose_time_ends_as_its_caller_leaves_is_left_and_does_not_time_out(
    method: str, arguments: tuple[str, ...], first: str
) -> None:
    seconds = 0.5
    scope = anyio.CancelScope()
    is_listed = False

    def leave(message: Json) -> Json | None:
        nonlocal is_listed
        if message["method"] == "tools/list" and not is_listed:
            is_listed = True
            return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
        if "id" in message and not scope.cancel_called:
            loop = asyncio.get_running_loop()
            later: Callable[[], object] = (
                (lambda: loop.call_soon(scope.cancel))
                if first == "scope"
                else (lambda: loop.call_at(loop.time(), scope.cancel))
            )
            time.sleep(1.2 * seconds)  # the loop stands still until both are due
            later()
        return None

    task = asyncio.current_task()
    assert task is not None
    capabilities: Json = {"tools": {}, "resources": {}}
    async with connected(ChannelServer(initialized(leave, capabilities=capabilities))) as connection:
        with scope:
            await getattr(connection, method)(*arguments, timeout=seconds)
        assert scope.cancelled_caught
        assert task.cancelling() == 0
        with pytest.raises(RequestTimeoutError):
            await getattr(connection, method)(*arguments, timeout=0.01)
        assert task.cancelling() == 0


@pytest.mark.slow
@given(st.lists(st.sampled_from((0.01, 0.02, 0.04, NEVER)), min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_of_many_waits_under_one_timer_each_ends_at_its_own_time(bounds: list[float], answered: set[int]) -> None:
    deadlines = SharedTimer()
    ends: dict[int, float | None] = {}

    async def wait(number: int, seconds: float) -> None:
        answer = anyio.Event()
        if number in answered:
            answer.set()
        started = time.monotonic()
        with deadlines.within(seconds) as deadline:
            await answer.wait()
        ends[number] = time.monotonic() - started if deadline.expired else None

    async def all_of_them() -> None:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number, seconds in enumerate(bounds):
                    tasks.start_soon(wait, number, seconds)
                while len(ends) < sum(n in answered or bound < NEVER for n, bound in enumerate(bounds)):
                    await anyio.sleep(0.001)
                tasks.cancel_scope.cancel()

    asyncio.run(all_of_them())
    for number, seconds in enumerate(bounds):
        if number in answered:
            assert ends[number] is None
        elif seconds < NEVER:
            took = ends[number]
            assert took is not None
            assert took >= seconds
        else:
            assert number not in ends


def test_a_wait_that_ends_sooner_than_those_before_it_is_not_kept_waiting() -> None:
    deadlines = SharedTimer()

    async def sooner() -> bool:
        with deadlines.within(NEVER), deadlines.within(0.01) as deadline:
            await asyncio.Event().wait()
        return deadline.expired

    for _ in range(2):  # the second time on another event loop
        assert asyncio.run(asyncio.wait_for(sooner(), 20))
