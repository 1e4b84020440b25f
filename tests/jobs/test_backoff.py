"""Waits between looks: they grow up to a second, and begin anew after a change."""

from __future__ import annotations

import anyio

from toolweave.jobs._backoff import Backoff


async def test_waits_grow_up_to_a_second_and_begin_anew_after_a_change() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pause = Backoff(sleep, first=0.2)
    told = [await pause.wait() for _ in range(6)]
    pause.restart()
    again = await pause.wait()

    assert slept == [*told, again]
    assert told == sorted(told)
    assert (told[0], told[-1], again) == (0.2, 1.0, 0.2)


async def test_a_wait_for_something_lasts_the_first_time_at_least_and_ends_with_it() -> None:
    slept: list[float] = []
    come = anyio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:  # the rest of a wait that has grown
            await anyio.sleep_forever()

    pause = Backoff(sleep, first=0.2)
    await pause.wait()
    come.set()
    await pause.wait_for(come)

    assert slept[:2] == [0.2, 0.2]
