"""Messages between replicas that a store accepted and lost, as a Redis does that fails over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from tests.gateway.scale.replicas import KEYS, Json
from toolweave.gateway import Replicas
from toolweave.state import MemoryStore, Put

pytestmark = pytest.mark.slow


class Forgetful(MemoryStore):
    """A store that loses some of the messages that it accepts.

    Attributes:
        lost: The numbers of the messages to lose, in the order in which they are written.
    """

    def __init__(self, lost: set[int]) -> None:
        super().__init__()
        self.lost = lost
        self.number = 0

    async def write(self, changes: Sequence[Any], **options: Any) -> Any:
        """Write all changes but lost messages."""
        kept = list[Any]()
        for one in changes:
            is_mail = isinstance(one, Put) and one.collection == "gateway-mail"
            self.number += is_mail
            if not is_mail or self.number not in self.lost:
                kept.append(one)
        return await super().write(kept, **options)


@pytest.mark.parametrize("lost", [{1}, {2}, {1, 2}, {2, 4}], ids=str)
async def test_a_question_is_answered_and_acted_on_once_though_it_or_its_answer_was_lost(lost: set[int]) -> None:
    store = Forgetful(lost)
    here, there = Replicas(store, KEYS), Replicas(store, KEYS)
    answer: Json = {}
    received = list[Json]()

    async def act(body: Json) -> Json:
        received.append(body)
        return {"done": body["what"]}

    there.on("do", act)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            await tasks.start(here.run)
            await tasks.start(there.run)
            answer = await here.ask(there.id, "do", {"what": "this"})
            tasks.cancel_scope.cancel()

    assert answer == {"done": "this"}
    assert received == [{"what": "this"}]


async def test_a_question_that_takes_long_is_acted_on_once() -> None:
    store = Forgetful(set())
    here, there = Replicas(store, KEYS), Replicas(store, KEYS)
    received = list[Json]()

    async def act(body: Json) -> Json:
        received.append(body)
        while store.number < 3:  # the question, and two reminders
            await anyio.sleep(0.05)
        return {}

    there.on("do", act)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            await tasks.start(here.run)
            await tasks.start(there.run)
            await here.ask(there.id, "do", {})
            tasks.cancel_scope.cancel()

    assert len(received) == 1
