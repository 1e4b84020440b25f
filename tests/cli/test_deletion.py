"""`toolweave runs delete` and `toolweave sessions`: for ever, after a question, and only what has ended."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.cli.command import Done, toolweave
from toolweave import Agent, Backend, ScriptedModel
from toolweave.state import SqliteStore

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]
SECRET = "the-blue-giraffe"


def filled(path: Path, count: int = 1, session: str | None = "holiday") -> list[str]:
    """Have runs in a store; return their ids."""

    async def fill() -> list[str]:
        async with SqliteStore(path) as store:
            agent = Agent(ScriptedModel([f"It is {SECRET}."] * count), name="chat", store=store)
            return [(await agent.send(f"Where is {SECRET}?", session=session)).run_id for _ in range(count)]

    return anyio.run(fill)


def raw(path: Path) -> bytes:
    return b"".join(one.read_bytes() for one in path.parent.glob(f"{path.name}*"))


def test_runs_and_their_session_are_deleted_without_a_trace_in_the_file(folder: Path) -> None:
    path = folder / "runs.db"
    first, second = filled(path, 2)
    store = ("--store", path)

    done = toolweave("runs", "delete", first[:8], *store, "--yes")
    assert (done.code, done.err.strip()) == (0, "deleted 1 run")
    assert first.encode() not in raw(path)
    assert [one["run_id"] for one in toolweave("runs", "list", *store, "--json").json["runs"]] == [second]

    listed = toolweave("sessions", "list", *store, "--json").json["sessions"]
    assert listed == [{"agent": "chat", "session": "holiday", "messages": 4}]
    deleted = toolweave("sessions", "delete", "holiday", *store, "--yes", "--json")
    assert deleted.json == {"agent": "chat", "session": "holiday", "deleted_runs": 1}
    assert SECRET.encode() not in raw(path)
    assert b"holiday" not in raw(path)
    assert toolweave("sessions", "list", *store).err.strip() == "there are no sessions"


def test_nothing_is_deleted_without_a_yes_or_a_name(folder: Path) -> None:
    path = folder / "runs.db"
    (run_id,) = filled(path)
    store = ("--store", path)

    for words in (("runs", "delete", run_id), ("sessions", "delete", "holiday")):
        done = toolweave(*words, *store)
        assert done.code == 2, done
        assert "--yes" in done.err
    assert toolweave("runs", "delete", *store, "--yes").code == 2
    unknown = toolweave("sessions", "delete", "holidays", *store, "--yes")
    assert (unknown.code, "no session 'holidays'" in unknown.err) == (1, True)
    assert SECRET.encode() in raw(path)


def test_runs_that_ended_long_ago_are_deleted_and_later_ones_stay(folder: Path) -> None:
    path = folder / "runs.db"
    old, new = filled(path, 2, None)
    with sqlite3.connect(path) as connection:
        past = time.time() - 10 * 86_400
        update = "UPDATE documents SET value = json_set(value, '$.changed_at', ?) WHERE collection = 'runs' AND key = ?"
        connection.execute(update, (past, old))
    connection.close()

    done = toolweave("runs", "delete", "--older-than", "7", "--store", path, "--yes", "--json")
    assert done.json == {"deleted": 1}
    assert [one["run_id"] for one in toolweave("runs", "list", "--store", path, "--json").json["runs"]] == [new]
    assert toolweave("runs", "delete", "--older-than", "7", "--store", path).code == 0


def test_a_run_that_has_not_ended_is_cancelled_first(folder: Path, redis_url: str) -> None:
    async def submit() -> str:
        async with Backend(redis_url) as backend:
            return (await Agent(ScriptedModel(["x"]), name="chat", backend=backend).submit("hello")).id

    run_id = anyio.run(submit)
    store = ("--store", redis_url)
    done = toolweave("runs", "delete", run_id, *store, "--yes")
    assert done.code == 1
    assert f"toolweave runs cancel {run_id[:8]}" in done.err
    assert toolweave("runs", "cancel", run_id, *store).code == 0
    assert toolweave("runs", "delete", run_id, *store, "--yes").code == 0
    assert toolweave("runs", "list", *store, "--json").json == {"runs": []}
