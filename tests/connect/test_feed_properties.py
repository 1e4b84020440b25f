"""What holds for any sequence of listings, any paging, and any mixture of readers of one list."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave import ProtocolError, ServerConfig, ToolsChanged
from toolweave.connect import ListChanged
from toolweave.connect._catalog import Catalog
from toolweave.connect._feed.list_cache import LiveList, backoff_seconds, in_old_order
from toolweave.connect._feed.list_reader import MAX_ENTRIES, EntryReader, ParsedList, list_all

Json = dict[str, Any]
NAMES = st.sampled_from(list("abcdefgh"))
TOOLS = st.lists(st.tuples(NAMES, st.integers(0, 2)), max_size=8, unique_by=lambda tool: tool[0])
"""Names with what their definition says."""


def page_of(tools: list[tuple[str, int]]) -> Json:
    return {"tools": [{"name": name, "description": str(text), "inputSchema": {}} for name, text in tools]}


@pytest.mark.slow
@given(st.lists(TOOLS | st.none(), max_size=8))
@pytest.mark.requirement("C9")
def test_the_changes_of_any_listings_applied_to_nothing_give_the_last_snapshot(
    listings: list[list[tuple[str, int]] | None],
) -> None:
    told: list[ToolsChanged] = []
    known: dict[str, str] = {}

    def on_change(change: ToolsChanged) -> None:
        told.append(change)
        for name in change.removed:
            del known[name]
        for name in (*change.added, *change.changed):
            assert (name in known) == (name in change.changed)
            text = catalog.snapshot.by_name[name].description
            assert known.get(name) != text
            known[name] = text

    catalog = Catalog(ServerConfig(name="any", command="any"), on_change)

    async def run() -> None:
        for listing in listings:
            before, order = catalog.snapshot, [spec.name for spec in catalog.snapshot]

            async def request(_method: str, _params: Mapping[str, Any], tools: Any = listing) -> Json:
                if tools is None:
                    raise ProtocolError("down", server="any", code=-32603)
                return page_of(tools)

            try:
                change = await catalog.refresh(request)
            except ProtocolError:
                assert listing is None
                assert catalog.snapshot is before
                continue
            assert listing is not None
            after = {spec.name: spec.description for spec in catalog.snapshot}
            assert after == {name: str(text) for name, text in listing} == known
            assert bool(change) == (told[-1:] == [change])
            assert catalog.snapshot.version == before.version + (bool(change) or before.version == 0)
            stayed = [name for name in after if name in order]
            assert stayed == [name for name in order if name in after]
            if not change and before.version:
                assert catalog.snapshot is before

    anyio.run(run)


@given(st.permutations("abcdef"), st.permutations("abcdefgh"), st.sets(NAMES))
@pytest.mark.requirement("C9")
def test_what_stays_keeps_its_place_whatever_the_server_does(old: list[str], new: list[str], gone: set[str]) -> None:
    left = [name for name in new if name not in gone]
    result = in_old_order(old, left, str)
    assert sorted(result) == sorted(left)
    assert [name for name in result if name in old] == [name for name in old if name in left]
    if [name for name in left if name in old] == [name for name in old if name in left]:
        assert list(result) == left
    assert in_old_order(result, left, str) == result


@given(st.lists(NAMES | st.integers(), max_size=30), st.lists(st.integers(0, 5), max_size=12), st.booleans())
@pytest.mark.requirement("R28")
def test_any_paging_of_any_list_gives_the_same_list(entries: list[Any], sizes: list[int], lost_once: bool) -> None:
    pages: list[list[Any]] = []
    rest = entries
    for size in sizes:
        pages.append(rest[:size])
        rest = rest[size:]
    pages.append(rest)
    refusals = 1 if lost_once else 0

    async def request(_method: str, params: Mapping[str, Any]) -> Json:
        nonlocal refusals
        number = 0 if "cursor" not in params else len(str(params["cursor"]))
        if number == len(pages) - 1 and number and refusals:
            refusals -= 1
            raise ProtocolError("Invalid cursor", server="any", code=-32602)
        page: Json = {"things": pages[number]}
        return page if number == len(pages) - 1 else page | {"nextCursor": "x" * (number + 1)}

    listing = asyncio.run(list_all(request, "things/list", "things", server="any"))
    assert listing.entries == entries
    assert listing.pages == len(pages)
    assert listing.problems == []


@given(st.integers(0, 20), st.integers(0, 20), st.booleans())
@pytest.mark.requirement("R28")
def test_cursors_that_repeat_or_never_end_come_to_an_end(lead: int, loop: int, empty: bool) -> None:
    asked = 0

    async def request(_method: str, params: Mapping[str, Any]) -> Json:
        nonlocal asked
        asked += 1
        number = int(params.get("cursor", 0))
        following = number + 1 if loop == 0 or number < lead + loop else lead
        return {"things": [] if empty else [number], "nextCursor": str(following)}

    listing = asyncio.run(list_all(request, "things/list", "things", server="any"))
    assert asked == listing.pages <= (1_000 if loop == 0 else lead + loop + 2)
    assert len(listing.entries) <= MAX_ENTRIES
    assert len(listing.problems) == 1


async def test_a_cursor_that_is_refused_twice_is_an_error() -> None:
    asked: list[Any] = []

    async def request(_method: str, params: Mapping[str, Any]) -> Json:
        asked.append(params.get("cursor"))
        if "cursor" in params:
            raise ProtocolError("Invalid cursor", server="any", code=-32602)
        return {"things": [1], "nextCursor": "2"}

    with pytest.raises(ProtocolError, match="Invalid cursor"):
        await list_all(request, "things/list", "things", server="any")
    assert asked == [None, "2", None, "2"]


STEPS = st.lists(st.sampled_from(["read", "read", "change", "cancel", "turn", "turn", "fail"]), max_size=30)


class Growing:
    """A server whose list of prompts grows, and answers after some turns of the event loop.

    Attributes:
        value: The list has one entry more than this.
        most: How many requests there were at the same time.
    """

    def __init__(self, turns: int) -> None:
        self.value = 0
        self.fails = False
        self.most = 0
        self._turns = turns
        self._running = 0

    async def request(self, _method: str, _params: Mapping[str, Any]) -> Json:
        self._running += 1
        self.most = max(self.most, self._running)
        seen = self.value
        try:
            for _ in range(self._turns):
                await asyncio.sleep(0)
        finally:
            self._running -= 1
        if self.fails:
            raise ProtocolError("down", server="any", code=-32603)
        return {"prompts": [{"name": str(number)} for number in range(seen + 1)]}


async def read_names(entries: list[Any], refusal: object) -> ParsedList[str]:
    return await EntryReader(entries, "name", lambda entry: entry["name"], noun="prompt").read_in_steps()


@pytest.mark.slow
@given(STEPS, st.integers(0, 4))
@pytest.mark.requirement("C8", "C9")
def test_whoever_reads_gets_what_was_there_when_he_asked_and_readings_never_overlap(
    steps: list[str], turns: int
) -> None:
    server = Growing(turns)
    told: list[ListChanged] = []
    live: LiveList[str] = LiveList(
        "any",
        "prompts",
        identity=str,
        judge=read_names,
        on_change=told.append,
    )

    async def read(scope: anyio.CancelScope) -> None:
        asked_at = server.value
        with scope, suppress(ProtocolError):
            await live.refresh(server.request)
            assert len(live.items) > asked_at

    async def run() -> None:
        scopes: list[anyio.CancelScope] = []
        async with anyio.create_task_group() as tasks:
            for step in steps:
                if step == "read":
                    scopes.append(anyio.CancelScope())
                    tasks.start_soon(read, scopes[-1])
                elif step == "change":
                    server.value += 1
                    live.expire()
                elif step == "cancel" and scopes:
                    scopes.pop(0).cancel()
                elif step == "fail":
                    server.fails = not server.fails
                await asyncio.sleep(0)
        server.fails = False
        await live.refresh(server.request)
        assert live.fresh
        assert live.due == float("inf")

    anyio.run(run)
    known: set[str] = set()
    for change in told:
        known = (known - set(change.removed)) | set(change.added)
    assert known == set(live.items) == {str(number) for number in range(server.value + 1)}
    assert [change.version for change in told] == list(range(1, live.version + 1))
    assert server.most == 1


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_waits_after_failures_are_bounded_on_both_sides(failures: int, jitter: float) -> None:
    assert 1.0 <= backoff_seconds(failures, jitter) <= 33.0
    assert backoff_seconds(failures, jitter) <= backoff_seconds(failures + 1, jitter)


@given(st.integers() | st.floats(allow_nan=True) | st.booleans() | st.text(max_size=3) | st.none())
@pytest.mark.requirement("C8")
def test_no_time_to_live_makes_a_list_be_read_in_a_tight_loop(ttl: Any) -> None:
    live: LiveList[str] = LiveList("any", "prompts", identity=str, judge=read_names, on_change=lambda _change: None)

    async def request(_method: str, _params: Mapping[str, Any]) -> Json:
        return {"prompts": [], "ttlMs": ttl}

    async def run() -> None:
        begun = anyio.current_time()
        await live.refresh(request)
        assert live.due >= begun + 1.0
        assert live.ttl_seconds is None or 0 <= live.ttl_seconds <= 24 * 3600

    anyio.run(run)
