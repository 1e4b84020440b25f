"""Writes to a file that come at the same time: one transaction and one sync, each with an outcome of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.state.commits import commits
from toolweave import Agent, ScriptedModel, tool, tool_call
from toolweave.errors import StoreError
from toolweave.models import ModelRequest
from toolweave.state import SqliteStore
from toolweave.state._migrations import open_database


async def test_writes_of_many_tasks_are_one_transaction(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.put("c", "before", 0)
        before = commits(path)
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(store.put, "c", f"{number:02}", number)
        assert commits(path) - before == 1
        assert len(await store.scan("c")) == 51


async def test_what_was_put_is_on_the_disk_before_the_call_returns(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        for number in range(3):
            before = 0 if number == 0 else commits(path)
            await store.put("c", "one", number)
            assert commits(path) == before + 1
    connection, _ = open_database(path, 1)
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    # FULL: in the write-ahead log every commit waits for the disk (https://www.sqlite.org/pragma.html#pragma_synchronous)
    assert (synchronous, journal) == (2, "wal")


async def test_a_write_whose_expectation_does_not_hold_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    outcomes: dict[str, Any] = {}
    async with SqliteStore(path) as store:
        revision = await store.put("c", "mine", 0)
        before = commits(path)

        async def put(key: str, expect: int | None) -> None:
            outcomes[f"{key} {expect}"] = await store.put("c", key, key, expect=expect)

        async with anyio.create_task_group() as tasks:
            for key, expect in (("mine", 12_345), ("mine", revision), ("mine", revision), ("new", 0), ("new", 0)):
                tasks.start_soon(put, key, expect)
        assert commits(path) - before == 1
        assert outcomes["mine 12345"] is None
        assert {one.key: one.value for one in await store.scan("c")} == {"mine": "mine", "new": "new"}


async def test_a_write_that_is_no_text_or_too_long_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    failed: list[str] = []
    async with SqliteStore(path) as store:
        await store.put("c", "before", 0)

        async def put(key: str, value: Any) -> None:
            try:
                await store.put("c", key, value)
            except StoreError:
                failed.append(key)

        async with anyio.create_task_group() as tasks:
            for key in ("one", "\ud800", "two"):
                tasks.start_soon(put, key, True)
        assert failed == ["\ud800"]
        assert [one.key for one in await store.scan("c")] == ["before", "one", "two"]


async def test_a_write_for_which_there_is_no_room_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.put("c", "before", 0)
    limited = sqlite3.connect(path)
    limited.execute(
        "CREATE TRIGGER small BEFORE INSERT ON documents WHEN length(NEW.value) > 1000 "
        "BEGIN SELECT RAISE(ABORT, 'no room'); END"
    )
    limited.commit()
    limited.close()
    failed: list[str] = []
    async with SqliteStore(path) as store:

        async def put(key: str, value: Any) -> None:
            try:
                await store.put("c", key, value)
            except StoreError as exc:
                failed.append(f"{key}: {exc}")

        async with anyio.create_task_group() as tasks:
            for key, value in (("one", 1), ("large", "x" * 2000), ("two", 2)):
                tasks.start_soon(put, key, value)
        assert failed == [f"large: {path}: no room"]
        assert [one.key for one in await store.scan("c")] == ["before", "one", "two"]


@pytest.mark.parametrize("calls", [1, 8])
async def test_calls_at_the_same_time_wait_for_the_disk_together(tmp_path: Path, calls: int) -> None:
    path = tmp_path / "store.db"
    at: list[int] = []

    @tool
    async def note(number: int) -> int:
        """Note a number."""
        at.append(commits(path))
        return number

    def answer(request: ModelRequest) -> Any:
        at.append(commits(path))
        asked = len(request.messages) == 1
        return [tool_call("note", {"number": number}) for number in range(calls)] if asked else "done"

    async with SqliteStore(path) as store:
        agent = Agent(ScriptedModel(answer), name="a", tools=[note], store=store)
        assert (await agent.send("go")).text == "done"
    # the turn that asks, all calls begun, all calls done; a busy machine runs the calls in groups, but never each
    # alone, which would be two commits for each of them
    assert at[-1] - at[0] <= 4 + calls // 2
