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


def test_a_user_is_erased_after_a_yes_and_what_still_names_them_is_an_exit_code(folder: Path) -> None:
    path = folder / "runs.db"
    filled(path, 2, session="user-17/holiday")
    filled(path, 1, session="user-170")
    store = ("--store", path)

    asked = toolweave("users", "erase", "user-17", *store)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert b"user-17/holiday" in raw(path)
    done = toolweave("users", "erase", "user-17", *store, "--yes", "--json")
    assert (done.code, done.json) == (
        0,
        {
            "principal": "user-17",
            "sessions": 1,
            "runs": 2,
            "documents": 0,
            "sign_ins": 0,
            "audit_lines": 0,
            "mentions": {},
            "unsearched": [],
        },
    )
    assert b"user-17/holiday" not in raw(path)
    assert b"user-170" in raw(path)

    filled(path, 1, session="of user-17")
    again = toolweave("users", "erase", "user-17", *store, "--yes")
    assert again.code == 1
    assert "the store still names 'user-17' in 1 other document in 'conversations'" in again.err


def test_the_lines_of_an_erased_user_go_from_an_audit_log_that_is_named(folder: Path) -> None:
    audit = folder / "audit.jsonl"
    who = '{"client": "app", "issuer": null, "subject": "ada"}'
    audit.write_text(f'{{"time": "2026-01-01T00:00:00Z", "principal": {who}}}\n{{"time": "t", "principal": null}}\n')
    filled(folder / "runs.db")
    store = ("--store", folder / "runs.db")

    assert toolweave("users", "erase", "ada", *store, "--yes").code == 0
    assert "ada" in audit.read_text()
    done = toolweave("users", "erase", "ada", *store, "--yes", "--audit", audit)
    assert (done.code, "1 audit line" in done.err) == (0, True)
    erased, other = audit.read_text().splitlines()
    assert erased.rstrip() == '{"time": "2026-01-01T00:00:00Z", "erased": true}'
    assert other == '{"time": "t", "principal": null}'
    missing = toolweave("users", "erase", "ada", *store, "--yes", "--audit", folder / "none")
    assert (missing.code, "No such file" in missing.err) == (1, True)
