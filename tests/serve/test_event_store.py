"""The event store in memory: bounded by the number of events and by their size."""

from __future__ import annotations

from typing import Any

from toolweave.serve import MemoryEventStore


async def kept(store: MemoryEventStore, after: str) -> list[str] | None:
    """Return the messages after an event; None if the event is unknown."""
    found: list[str] = []

    async def receive(event: Any) -> None:
        found.append(event.message)

    return None if await store.replay_events_after(after, receive) is None else found


async def test_the_oldest_events_leave_when_there_are_too_many() -> None:
    store = MemoryEventStore(size=2)
    first, second, _ = [await store.store_event("s", text) for text in ("a", "b", "c")]

    assert await kept(store, first) is None
    assert await kept(store, second) == ["c"]


async def test_the_oldest_events_leave_when_they_are_too_large() -> None:
    store = MemoryEventStore(max_bytes=3_000)
    first, second, _ = [await store.store_event("s", text * 1_000) for text in "abc"]

    assert await kept(store, first) is None
    assert await kept(store, second) == ["c" * 1_000]


async def test_a_message_that_is_too_large_alone_is_not_kept() -> None:
    store = MemoryEventStore(max_bytes=3_000)
    first = await store.store_event("s", None)

    large = await store.store_event("s", "x" * 4_000)
    later = await store.store_event("s", "y")

    assert await kept(store, first) is None
    assert await kept(store, large) is None
    assert await kept(store, later) == []
