"""What every store promises, held against a plain dictionary; and what the store in memory does when it is full."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clocks import Clock
from tests.redis_server import NO_SERVER, RedisServer
from toolweave.errors import StoreError
from toolweave.state import Document, MemoryStore, Put, RedisStore, SqliteStore, Store
from toolweave.state._sqlite import default_path
from toolweave.state.store import ListableStore, SearchableStore, iter_containing

StoreMaker = Callable[[Clock], Store]


def in_memory(clock: Clock) -> Store:
    return MemoryStore(clock=clock)


def in_a_file(clock: Clock) -> Store:
    return SqliteStore(default_path().with_name(f"{next(numbers)}.db"), clock=clock)


@pytest.fixture(scope="session")
def make(request: pytest.FixtureRequest, redis_server: RedisServer | None) -> StoreMaker:
    """What makes an empty store of a kind."""
    if request.param != "on a server":
        return in_memory if request.param == "in memory" else in_a_file
    if redis_server is None:
        pytest.skip(NO_SERVER)
    url = redis_server.url

    def on_a_server(clock: Clock) -> Store:
        return RedisStore(url, prefix=f"test_store-{os.getpid()}-{next(numbers)}", clock=clock)

    return on_a_server


numbers = itertools.count()
every_store = pytest.mark.parametrize("make", ["in memory", "in a file", "on a server"], indirect=True)


@every_store
async def test_a_document_comes_back_as_it_was_put(make: StoreMaker) -> None:
    value: Any = {"a": [1, 2.5, None, True, "ö\ud800"], "b": {}}
    async with make(Clock()) as store:
        revision = await store.put("runs", "one", value)
        found = await store.get("runs", "one")

        assert found == Document(key="one", value=value, revision=revision or 0)
        assert await store.get("runs", "two") is None
        assert await store.get("other", "one") is None


@every_store
async def test_reading_no_names_returns_no_documents(make: StoreMaker) -> None:
    async with make(Clock()) as store:
        assert list(await store.read([])) == []


@every_store
async def test_what_is_done_to_a_value_outside_does_not_change_the_document(make: StoreMaker) -> None:
    value: dict[str, Any] = {"steps": [1]}
    async with make(Clock()) as store:
        await store.put("runs", "one", value)
        value["steps"].append(2)
        first = await store.get("runs", "one")
        assert first is not None
        first.value["steps"].append(3)
        second = await store.get("runs", "one")

    assert second is not None
    assert second.value == {"steps": [1]}


@every_store
async def test_of_many_who_write_the_revision_they_read_one_wins(make: StoreMaker) -> None:
    written: list[int] = []
    async with make(Clock()) as store:
        revision = await store.put("runs", "one", 0)

        async def write(value: int) -> None:
            if await store.put("runs", "one", value, expect=revision) is not None:
                written.append(value)

        async with anyio.create_task_group() as tasks:
            for value in range(1, 9):
                tasks.start_soon(write, value)
        found = await store.get("runs", "one")

    assert found is not None
    assert written == [found.value]


@every_store
async def test_expecting_no_document_makes_one_only_once(make: StoreMaker) -> None:
    async with make(Clock()) as store:
        assert await store.put("leases", "lock", "me", expect=0) is not None
        assert await store.put("leases", "lock", "you", expect=0) is None
        found = await store.get("leases", "lock")

    assert found is not None
    assert found.value == "me"


@every_store
async def test_a_revision_is_never_used_again_after_a_deletion(make: StoreMaker) -> None:
    async with make(Clock()) as store:
        first = await store.put("runs", "one", 1)
        assert await store.delete("runs", "one")
        await store.put("runs", "one", 2)

        assert await store.put("runs", "one", 3, expect=first) is None
        assert not await store.delete("runs", "one", expect=first)


@every_store
async def test_a_document_is_gone_when_its_ttl_is_over(make: StoreMaker) -> None:
    clock = Clock(1_000.0)
    async with make(clock) as store:
        await store.put("tasks", "short", 1, ttl=10)
        await store.put("tasks", "kept", 1, ttl=10)
        await store.put("tasks", "kept", 2)
        clock.now += 9.9
        there = await store.get("tasks", "short")
        clock.now += 0.1

        assert there is not None
        assert there.expires_at == 1_010.0
        assert await store.get("tasks", "short") is None
        assert [found.key for found in await store.scan("tasks")] == ["kept"]
        assert await store.put("tasks", "short", 2, expect=0) is not None


@every_store
async def test_pages_neither_skip_nor_repeat_what_stays_while_others_come_and_go(make: StoreMaker) -> None:
    async with make(Clock()) as store:
        for key in ("a/1", "a/2", "a/3", "a/4", "b/1"):
            await store.put("journal", key, key)
        first = await store.scan("journal", prefix="a/", limit=2)
        await store.delete("journal", "a/2")
        await store.put("journal", "a/0", "new")
        second = await store.scan("journal", prefix="a/", after=first[-1].key, limit=2)
        third = await store.scan("journal", prefix="a/", after=second[-1].key, limit=2)

    assert [found.key for found in first] == ["a/1", "a/2"]
    assert [found.key for found in second] == ["a/3", "a/4"]
    assert third == []


@every_store
@pytest.mark.parametrize("value", [float("nan"), object(), {"a": {1, 2}}])
async def test_what_is_no_json_is_refused(make: StoreMaker, value: object) -> None:
    async with make(Clock()) as store:
        with pytest.raises(StoreError, match=r"collection 'runs': the value of 'one' is not JSON"):
            await store.put("runs", "one", value)
        assert await store.get("runs", "one") is None


keys = st.sampled_from(["a", "ab", "b", "ö", "z"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, st.sampled_from([None, 5, 20])),
        st.tuples(st.just("delete"), keys, st.none()),
        st.tuples(st.just("wait"), st.none(), st.sampled_from([1, 5, 10])),
    ),
    max_size=40,
)


@pytest.mark.slow
@every_store
@settings(deadline=None)  # a file is as slow as its disk
@given(steps=steps)
async def test_a_store_behaves_like_a_dictionary_that_forgets(make: StoreMaker, steps: list[Any]) -> None:
    clock, model = Clock(), dict[str, tuple[int, float]]()
    async with make(clock) as store:
        for count, (what, key, seconds) in enumerate(steps):
            if what == "put":
                await store.put("c", key, count, ttl=seconds)
                model[key] = (count, float("inf") if seconds is None else clock.now + seconds)
            elif what == "delete":
                assert await store.delete("c", key) == (key in model)
                model.pop(key, None)
            else:
                clock.now += seconds
            model = {known: one for known, one in model.items() if one[1] > clock.now}
            for prefix in ("", "a", "ö"):
                found = {one.key: one.value for one in await store.scan("c", prefix=prefix)}
                assert list(found.items()) == [
                    (known, one[0]) for known, one in sorted(model.items()) if known.startswith(prefix)
                ]


@every_store
async def test_a_store_is_entered_by_many_and_used_until_the_last_has_left(make: StoreMaker) -> None:
    store = make(Clock())
    async with store:
        async with store:
            await store.put("runs", "one", 1)
        assert await store.get("runs", "one") is not None
        assert isinstance(store, Store)


@every_store
async def test_two_tasks_count_up_one_document_without_losing_a_count(make: StoreMaker) -> None:
    async with make(Clock()) as store:

        async def count_up() -> None:
            for _ in range(20):
                written = None
                while written is None:
                    found = await store.get("c", "n")
                    value, revision = (0, 0) if found is None else (found.value, found.revision)
                    written = await store.put("c", "n", value + 1, expect=revision)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count_up)
            tasks.start_soon(count_up)
        found = await store.get("c", "n")

    assert found is not None
    assert found.value == 40


async def test_a_full_store_in_memory_refuses_and_forgets_nothing() -> None:
    clock = Clock(1_000.0)
    store = MemoryStore(max_documents=2, max_bytes=100, clock=clock)
    await store.put("runs", "one", 1)
    await store.put("runs", "two", 2, ttl=10)

    with pytest.raises(StoreError, match="no room for 'three': the store holds 2 documents"):
        await store.put("runs", "three", 3)
    with pytest.raises(StoreError, match="no room"):
        await store.put("runs", "one", "x" * 200)
    one = await store.get("runs", "one")
    assert one is not None
    assert one.value == 1
    clock.now += 10
    assert await store.put("runs", "three", 3) is not None


async def test_writing_one_document_for_ever_takes_no_more_room() -> None:
    store = MemoryStore(max_documents=1, max_bytes=100)
    for count in range(1_000):
        await store.put("runs", "one", count, ttl=60 + count)

    assert len(store._expiring) < 100
    assert repr(store) == "<MemoryStore, 1 documents, 6 bytes>"


async def test_threads_share_a_store_in_memory() -> None:
    store = MemoryStore()

    async def write(number: int) -> None:
        for count in range(50):
            await store.put("c", f"{number}-{count}", count)
            await store.delete("c", f"{number}-{count - 1}")

    workers = [threading.Thread(target=anyio.run, args=(write, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        await anyio.to_thread.run_sync(worker.join)

    assert [found.key for found in await store.scan("c")] == [f"{number}-49" for number in range(4)]


@every_store
async def test_collections_are_those_with_documents_whatever_their_names(make: StoreMaker) -> None:
    clock = Clock(1_000.0)
    store = make(clock)
    assert isinstance(store, ListableStore)
    assert await store.collections() == []
    names = ["a", "a:b", "b" * 12, "ä 1:", "10:x"]
    for name in names:
        for key in ("", "k", "\uffff", ":"):
            await store.put(name, key, 1)
    await store.put("brief", "k", 1, ttl=5)
    await store.put("gone", "k", 1)
    await store.delete("gone", "k")
    assert await store.collections() == sorted([*names, "brief"])
    clock.now += 6
    assert await store.collections() == sorted(names)


@every_store
async def test_a_search_finds_the_documents_that_contain_a_text_as_it_is_and_no_others(make: StoreMaker) -> None:
    clock = Clock(1_000.0)
    async with make(clock) as store:
        assert isinstance(store, SearchableStore)
        found_by = {"key ada": 1, "value": ["of ada", {"b": 1}], "escaped": 'the "ada"', "ümlaut": "zoë"}
        for key, value in found_by.items():
            await store.put("notes", key, value)
        await store.put("notes", "brief", "ada", ttl=5)
        for key, value in {"wild": "a%a a_a a.a", "upper": "ADA", "1000": 1}.items():
            await store.put("notes", key, value)
        await store.put("ada", "other", "of another collection")
        clock.now += 6

        async def keys(*texts: str) -> list[str]:
            return [one.key async for one in iter_containing(store, "notes", texts)]

        assert await keys("ada") == ["escaped", "key ada", "value"]
        assert await keys("ada", "\\u00eb") == ["escaped", "key ada", "value", "ümlaut"]
        assert await keys('\\"ada\\"') == ["escaped"]
        assert await keys("a_a") == ["wild"]
        assert await keys("nobody") == await keys("notes") == []
        assert await keys("1001") == []  # a revision is not of the document
        value = [one.value async for one in iter_containing(store, "notes", ["of ada"])]
        assert value == [["of ada", {"b": 1}]]


@pytest.mark.slow
@every_store
async def test_a_search_of_many_documents_finds_each_once(make: StoreMaker) -> None:
    numbers = range(5_300)  # more than any store searches at once
    async with make(Clock()) as store:
        for first in range(0, len(numbers), 100):
            texts = {number: "needle" if number % 7 == 0 else "hay" for number in numbers[first : first + 100]}
            await store.write([Put(collection="c", key=f"{number:05}", value=text) for number, text in texts.items()])
        found = [one.key async for one in iter_containing(store, "c", ["needle"])]

    assert found == [f"{number:05}" for number in numbers if number % 7 == 0]
