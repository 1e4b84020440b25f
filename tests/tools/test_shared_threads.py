"""Functions that share a thread because they are short end like those that get threads of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from toolweave.tools._worker_threads import CallLimiter, WorkerThreads

CALLER: ContextVar[int] = ContextVar("CALLER")
PLACES = 4


class Fixed(CallLimiter):
    """A limiter whose calls all take one of the two ways, however long they last."""

    def __init__(self, *, shares: bool) -> None:
        super().__init__(PLACES)
        self.shares = shares
        self.asked = 0

    @property
    def short(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the calls share a thread."""
        self.asked += 1
        return self.shares

    @short.setter
    def short(self, found: bool) -> None:
        pass


async def doubled(number: int) -> int:
    await anyio.lowlevel.checkpoint()
    return 2 * number


def returned() -> Any:
    return {"one": [1]}


def failed() -> Any:
    raise ValueError("not so")


def stopped() -> Any:
    raise StopIteration


def ended() -> Any:
    raise SystemExit(3)


def contextual() -> Any:
    number = CALLER.get()
    CALLER.set(-1)  # which no other call sees
    return number


def on_the_loop() -> Any:
    return anyio.from_thread.run(doubled, CALLER.get())


def failed_on_the_loop() -> Any:
    return anyio.from_thread.run_sync(failed)


FUNCTIONS = (returned, failed, stopped, ended, contextual, on_the_loop, failed_on_the_loop)


async def outcomes(functions: Sequence[Callable[[], Any]], *, shares: bool) -> list[str]:
    """Return how calls of these functions end that are made at once, each by a caller of its own."""
    threads = await WorkerThreads.here()
    limiter = Fixed(shares=shares)
    found = [""] * len(functions)

    async def call(number: int, function: Callable[[], Any]) -> None:
        CALLER.set(number)
        try:
            found[number] = repr(await threads.run(function, limiter, abandon=False))
        except (Exception, SystemExit) as exc:
            found[number] = f"{exc!r} because of {exc.__cause__!r}"

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number, function in enumerate(functions):
                tasks.start_soon(call, number, function)
    assert limiter.asked >= len(functions)
    return found


@settings(max_examples=60, deadline=None)
@given(functions=st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=24))
def test_calls_that_share_a_thread_end_like_those_with_threads_of_their_own(
    functions: list[Callable[[], Any]],
) -> None:
    async def compared() -> None:
        apart = await outcomes(functions, shares=False)
        assert await outcomes(functions, shares=True) == apart

    anyio.run(compared)
