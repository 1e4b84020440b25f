"""What a run writes stays whole: a crash beside any write, a store that refuses one, and a run that is begun twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.agent.faulty_store import MODES, FaultyStore, Mode, ProcessDiedError
from toolweave import Agent, Backend
from toolweave.agent import RunResult, RunStart, RunStatuses
from toolweave.agent._workers.submit import submit_run
from toolweave.errors import RunError, StoreError
from toolweave.models import ModelRequest, ScriptedModel, ToolCallPart, ToolMessage, UserMessage, tool_call
from toolweave.state import Change, MemoryStore, Store

RUN = "the-run"
ORDERS = ("a", "b", "c")


class InterleavedStore(FaultyStore):
    """A view of a store in which another process does something right before a write."""

    def __init__(self, store: Store, at: int, other: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._other_at = at
        self._other = other

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        if self.writes + 1 == self._other_at:
            self._other_at = 0
            await self._other()
        return await super().write(changes, signal=signal)


class ForgetfulStore(FaultyStore):
    """A view of a store that makes each write of the journal alone, and fails to answer every other one.

    Attributes:
        unanswered: How often it did not answer.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.unanswered = 0
        self._answers = True

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        revisions = await super().write(changes, signal=signal)
        if revisions is not None and all(change.collection == "run-journal" for change in changes):
            self._answers = not self._answers
            if not self._answers:
                self.unanswered += 1
                raise StoreError("the store is away")
        return revisions


@dataclass
class Shop:
    """A model that charges two orders at once and then a third, and the tool that charges them."""

    charged: Counter[str] = field(default_factory=Counter[str])
    turns: int = 0

    def agent(self, store: Store, *, workers: bool = False, **options: Any) -> Agent:
        """Return an agent that charges the orders, over a store or a backend."""

        model = ScriptedModel(self._answer)
        if workers:
            options["backend"] = Backend("memory://", store=store)
        else:
            options["store"] = store
        return Agent(model, name="shop", tools=[self.charge], **options)

    def charge(self, order: str) -> str:
        """Charge an order."""
        self.charged[order] += 1
        return f"charged {order}"

    def _answer(self, request: ModelRequest) -> str | list[ToolCallPart]:
        self.turns += 1
        done = sum(isinstance(message, ToolMessage) for message in request.messages)
        if done == 0:
            return [tool_call("charge", {"order": order}, id=order) for order in "ab"]
        if done == 1:
            return [tool_call("charge", {"order": "c"}, id="c")]
        return f"done after {self.turns} turns"


Start = Callable[[Shop, Store], Awaitable[RunResult]]


async def sent(shop: Shop, store: Store) -> RunResult:
    """Execute the run in this process."""
    return await shop.agent(store).begin([UserMessage.of("go")], run_id=RUN)


async def sent_in_a_session(shop: Shop, store: Store) -> RunResult:
    """Execute the run in this process, in a session."""
    return await shop.agent(store).begin([UserMessage.of("go")], run_id=RUN, session="s")


async def resumed(shop: Shop, store: Store) -> RunResult:
    """Execute a run that was submitted, as a worker does."""
    return await (await shop.agent(store, workers=True).resume(RUN))


async def prepare(start: Start, store: Store) -> None:
    """Submit the run if it is started by workers."""
    if start is resumed:
        durable = Shop().agent(store, workers=True).durable
        assert durable is not None
        messages = (UserMessage.of("go"),)
        await submit_run(durable, RunStart(run_id=RUN, agent="shop", messages=messages, sent=1))


async def brought_to_its_end(start: Start, shop: Shop, store: Store) -> str:
    """Return the text of a run, which is started once more if its process died before it was in the store."""
    info = await RunStatuses(store).get(RUN)
    if info is None:
        return (await start(shop, store)).text
    if info.status == "completed":
        return info.record.text
    return (await (await shop.agent(store).resume(RUN))).text


async def number_of_writes(start: Start) -> int:
    """Return how often the run writes to its store when nothing goes wrong."""
    store = MemoryStore()
    await prepare(start, store)
    counting = FaultyStore(store)
    await start(Shop(), counting)
    return counting.writes


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", [sent, sent_in_a_session, resumed])
async def test_a_run_is_whole_after_a_fault_at_any_of_its_writes(start: Start, mode: Mode) -> None:
    writes = await number_of_writes(start)
    assert writes >= 10

    for number in range(1, writes + 1):
        store, shop = MemoryStore(), Shop()
        await prepare(start, store)
        with suppress(ProcessDiedError, RunError, StoreError):
            await start(shop, FaultyStore(store, number, mode))

        text = await brought_to_its_end(start, shop, store)

        where = f"{mode} at write {number}"
        info = await RunStatuses(store).get(RUN)
        assert info is not None, where
        assert (info.status, info.record.text) == ("completed", text), where
        assert text.startswith("done"), where
        assert set(shop.charged.values()) == {1}, where
        if start is sent_in_a_session:
            assert await texts_of_session(store) == ["go", "", "", text], where


async def test_entries_that_were_written_without_an_answer_are_not_those_of_another_process() -> None:
    shop, store = Shop(), MemoryStore()
    await prepare(resumed, store)
    forgetful = ForgetfulStore(store)

    result = await resumed(shop, forgetful)

    assert result.status == "completed"
    assert shop.charged == dict.fromkeys(ORDERS, 1)
    assert forgetful.unanswered > 1


async def texts_of_session(store: Store) -> list[str]:
    """Return the texts of a session's conversation, as its next run sends them."""
    model = ScriptedModel(["next"])
    await Agent(model, name="shop", store=store).send("and now?", session="s")
    messages = model.requests[0].messages[:-1]
    return [message.text for message in messages if not isinstance(message, ToolMessage)]


@pytest.mark.parametrize("start", [sent, resumed])
async def test_a_run_that_is_begun_twice_at_once_has_every_effect_once(start: Start) -> None:
    for number in range(1, await number_of_writes(start) + 1):
        store, shop = MemoryStore(), Shop()
        await prepare(start, store)
        errors: list[RunError] = []

        async def begin(view: Store, shop: Shop = shop, errors: list[RunError] = errors) -> None:
            try:
                await start(shop, view)
            except RunError as exc:
                errors.append(exc)

        # The second process begins right before a write of the first, and ends before it.
        await begin(InterleavedStore(store, number, partial(begin, store)))

        info = await RunStatuses(store).get(RUN)
        assert info is not None
        assert info.status == "completed", number
        assert shop.charged == dict.fromkeys(ORDERS, 1), number
        assert len(errors) <= 1, number


async def test_a_request_for_another_message_leaves_a_run_as_it_was() -> None:
    for status in ("pending", "completed"):
        store, shop = MemoryStore(), Shop()
        await prepare(resumed, store)
        if status == "completed":
            await resumed(shop, store)
        before = await store.get("runs", RUN)

        other = shop.agent(store, workers=True).begin([UserMessage.of("something else")], run_id=RUN)
        with pytest.raises(RunError, match="began with something else"):
            await other

        assert await store.get("runs", RUN) == before
        assert await store.get("run-leases", RUN) is None


async def test_a_run_that_is_cancelled_as_it_begins_to_wait_does_not_wait() -> None:
    def agent(store: Store) -> Agent:
        model = ScriptedModel([tool_call("charge", {"order": "a"}, id="a"), "done"])
        return Agent(model, name="shop", tools=[Shop().charge], store=store, confirm="always")

    counting = FaultyStore(MemoryStore())
    await agent(counting).begin([UserMessage.of("go")], run_id=RUN, attended="later")

    for number in range(1, counting.writes + 1):
        store = MemoryStore()
        cancelled: list[bool] = []

        async def cancel(store: Store = store, cancelled: list[bool] = cancelled) -> None:
            cancelled.append(await RunStatuses(store).cancel(RUN))

        view = InterleavedStore(store, number, cancel)
        with suppress(RunError):
            await agent(view).begin([UserMessage.of("go")], run_id=RUN, attended="later")

        info = await RunStatuses(store).get(RUN)
        assert info is not None
        assert (info.status == "cancelled") is cancelled[0], (number, info.status)
