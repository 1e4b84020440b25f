"""`toolweave runs`: what agents did and do, from the store, and work that goes on without a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent import asking_server
from tests.cli.command import Done, toolweave, write_config
from tests.servers.fixtures import echo_command
from toolweave import Agent
from toolweave.jobs import Backend
from toolweave.models import AssistantMessage, ModelRequest, ScriptedModel, tool_call
from toolweave.state import SqliteStore

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]
ENDS = ("completed", "stopped", "cancelled", "failed", "interrupted")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TOOLWEAVE_MODEL"):
        monkeypatch.delenv(name, raising=False)


def shown(
    run_id: str, *, until: Callable[[dict[str, Any]], bool], env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Look at a run until it is as wanted; return it."""
    deadline = time.monotonic() + 60
    while True:
        run: dict[str, Any] = toolweave("runs", "show", run_id, "--json", env=env).json
        if until(run):
            return run
        assert time.monotonic() < deadline, run
        time.sleep(0.05)


def spawned(folder: Path, *words: object) -> str:
    """Begin a run in the background; return its id."""
    done = toolweave("runs", "spawn", *words, cwd=folder)
    assert done.code == 0, done.err
    return done.out.strip()


async def submitted(store: Path, count: int) -> list[str]:
    """Record runs that no worker takes; return their ids."""
    async with SqliteStore(store) as opened:
        agent = Agent(ScriptedModel(["said"]), name="chat", backend=Backend("memory://", store=opened))
        return [(await agent.submit("hello")).id for _ in range(count)]


@pytest.fixture
def numbers(folder: Path) -> Path:
    """A folder with a config with one server."""
    write_config(folder, {"numbers": [sys.executable, "-m", "toolweave.cli.demo.numbers"]})
    return folder


@pytest.mark.requirement("R103")
def test_a_spawned_run_goes_on_without_its_terminal_and_is_shown(numbers: Path) -> None:
    run_id = spawned(numbers, '/call numbers_add {"values": [40, 2]}', "--model", "command")

    run = shown(run_id, until=lambda run: run["status"] in ENDS)
    assert run["status"] == "completed"
    assert json.loads(run["text"]) == {"sum": 42}
    assert run["children"] == []

    listed = toolweave("runs", "list")
    assert run_id[:8] in listed.out
    assert "/call numbers_add" in listed.out
    told = toolweave("runs", "show", run_id[:8])
    assert json.loads(told.out) == {"sum": 42}
    assert f"{run_id}  completed" in told.err
    again = toolweave("runs", "cancel", run_id)
    assert again.code == 1
    assert "has ended already: completed" in again.err


@pytest.mark.requirement("R103")
def test_a_run_elsewhere_is_cancelled(folder: Path) -> None:
    write_config(folder, {"echo": echo_command()})
    words = ('/call echo_slow {"seconds": 600, "steps": 10}', "--model", "command", "--confirm", "never")
    run_id = spawned(folder, *words)
    shown(run_id, until=lambda run: run["status"] == "running")
    active = toolweave("runs", "list", "--status", "active", "--json").json["runs"]
    assert [run["run_id"] for run in active] == [run_id]

    done = toolweave("runs", "cancel", run_id, "--json")

    assert (done.code, done.json) == (0, {"run_id": run_id, "cancelled": True})
    assert shown(run_id, until=lambda run: run["status"] in ENDS)["status"] == "cancelled"
    assert toolweave("runs", "list", "--status", "active").err == "there are no such runs\n"


def test_a_spawned_run_waits_for_a_yes_and_is_resumed_after_it(numbers: Path) -> None:
    words = ("--model", "command", "--confirm", "always")
    run_id = spawned(numbers, '/call numbers_add {"values": [40, 2]}', *words)

    waiting = shown(run_id, until=lambda run: run["status"] in ("waiting", *ENDS))
    (call,) = waiting["waiting"]
    early = toolweave("runs", "resume", run_id, *words, cwd=numbers)
    approved = toolweave("runs", "approve", run_id, call["call_id"])
    resumed = toolweave("runs", "resume", run_id[:8], *words, cwd=numbers)
    run = shown(run_id, until=lambda run: run["status"] in ENDS)
    late = toolweave("runs", "resume", run_id, *words, cwd=numbers)

    assert (waiting["status"], call["tool"]) == ("waiting", "numbers_add")
    assert (early.code, f"waits for answers: {call['call_id']}" in early.err) == (1, True)
    assert approved.err == f"{run_id} continues with `toolweave runs resume {run_id[:8]}`: it has no workers\n"
    assert (resumed.code, resumed.out.strip()) == (0, run_id)
    assert (run["status"], json.loads(run["text"])) == ("completed", {"sum": 42})
    assert (late.code, "has ended: its status is completed" in late.err) == (1, True)


def test_a_sqlite_file_as_the_backend_keeps_runs_of_this_machine(numbers: Path) -> None:
    env = {"TOOLWEAVE_BACKEND": f"sqlite:///{numbers / 'shared.db'}"}
    words = ("--model", "command", "--confirm", "always")

    begun = toolweave("runs", "spawn", '/call numbers_add {"values": [40, 2]}', *words, cwd=numbers, env=env)
    run_id = begun.out.strip()
    (call,) = shown(run_id, until=lambda run: run["status"] in ("waiting", *ENDS), env=env)["waiting"]
    denied = toolweave("runs", "deny", run_id, call["call_id"], "--reason", "not today", env=env)
    resumed = toolweave("runs", "resume", run_id, *words, cwd=numbers, env=env)
    run = shown(run_id, until=lambda run: run["status"] in ENDS, env=env)
    worked = toolweave("worker", "--model", "command", cwd=numbers, env=env)
    given = toolweave("runs", "spawn", "x", "--backend", env["TOOLWEAVE_BACKEND"], cwd=numbers)

    assert (begun.code, denied.code, resumed.code) == (0, 0, 0)
    assert (run["status"], "not today" in run["text"]) == ("completed", True)
    assert (worked.code, "TOOLWEAVE_BACKEND is a store without a queue: it wakes no workers" in worked.err) == (2, True)
    assert (given.code, "--backend: a file is a store without a queue" in given.err) == (2, True)


def test_a_spawned_run_whose_server_asks_waits_for_the_answer(folder: Path) -> None:
    write_config(folder, {"rooms": asking_server.entry(folder, "2026-07-28")})
    words = ("--model", "command", "--confirm", "never")
    run_id = spawned(folder, '/call rooms_book {"guest": "Ada"}', *words)

    waiting = shown(run_id, until=lambda run: run["status"] in ("waiting", *ENDS))["waiting"]
    answered = toolweave("runs", "answer", run_id, waiting[0]["call_id"], "nights=2", "view=sea")
    resumed = toolweave("runs", "resume", run_id, *words, cwd=folder)
    run = shown(run_id, until=lambda run: run["status"] in ENDS)

    assert waiting[0]["question"]["message"] == "How many nights for Ada?"
    assert (answered.code, resumed.code, run["status"]) == (0, 0, "completed")
    assert "2" in run["text"]


def test_a_run_of_another_agent_is_resumed_by_its_own_program(folder: Path) -> None:
    store = folder / "store.db"
    run_id = anyio.run(waiting_run, store)

    done = toolweave("runs", "resume", run_id, "--store", store, "--model", "command", cwd=folder)

    assert (done.code, "is a run of agent 'desk', which its own program resumes" in done.err) == (2, True)


async def waiting_run(store: Path) -> str:
    """Leave a run in a store that waits with two calls; return its id."""

    def delete(name: str) -> str:
        """Delete a file."""
        return name

    calls = [tool_call("delete", {"name": "x" * 300}, id="call_1"), tool_call("delete", {"name": "y"}, id="call_2")]
    async with SqliteStore(store) as opened:
        agent = Agent(ScriptedModel([calls]), name="desk", tools=[delete], confirm="always", store=opened)
        return (await agent.send("delete", attended="later")).run_id


def test_a_run_that_waits_is_listed_shown_whole_and_answered(folder: Path) -> None:
    store = folder / "store.db"
    run_id = anyio.run(waiting_run, store)
    at = ("--store", store)

    listed = toolweave("runs", "list", "--status", "waiting", *at)
    told = toolweave("runs", "show", run_id[:8], *at)
    first = toolweave("runs", "approve", run_id[:8], "call_1", *at)
    again = toolweave("runs", "approve", run_id[:8], "call_1", "--json", *at)
    other = toolweave("runs", "deny", run_id[:8], "call_1", *at)
    none = toolweave("runs", "approve", run_id[:8], "call_9", *at)
    last = toolweave("runs", "deny", run_id[:8], "call_2", "--reason", "not y", *at)

    assert run_id[:8] in listed.out
    assert f'waits for a yes: delete {{"name": "{"x" * 300}"}}' in told.err
    assert f"toolweave runs approve {run_id[:8]} call_1" in told.err
    assert (first.code, first.err) == (0, f"{run_id} waits for answers to other calls\n")
    assert (again.code, again.json) == (0, {"run_id": run_id, "goes_on": False})
    assert (other.code, "has an answer to call 'call_1' already: it was approved" in other.err) == (1, True)
    assert (none.code, "has no call 'call_9' that waits; those that do: call_2" in none.err) == (1, True)
    assert (last.code, last.err) == (0, f"{run_id} continues when its program resumes it: it has no workers\n")
    assert toolweave("runs", "show", run_id, "--json", *at).json["waiting"] == []
    both = toolweave("runs", "approve", run_id, "call_1", *at, "--backend", "redis://127.0.0.1:1/0")
    assert (both.code, "exclude each other" in both.err) == (2, True)


class Deleting:
    """A run of two turns that deletes a file in each: the second call's id begins with the first one's."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.deleted: list[str] = []

    async def resumed(self, run_id: str | None = None) -> str:
        """Begin the run, or resume it, until it waits or ends; return its id."""

        def delete(name: str) -> str:
            """Delete a file."""
            self.deleted.append(name)
            return name

        def answer(request: ModelRequest) -> Any:
            turns = sum(isinstance(one, AssistantMessage) for one in request.messages)
            calls = [("call_1", "old"), ("call_1_2", "new")]
            return [tool_call("delete", {"name": name}, id=one) for one, name in calls[turns : turns + 1]] or "done"

        async with SqliteStore(self.store) as store:
            agent = Agent(ScriptedModel(answer), name="desk", tools=[delete], confirm="always", store=store)
            if run_id is None:
                return (await agent.send("delete", attended="later")).run_id
            return (await (await agent.resume(run_id))).run_id


def test_an_id_that_the_run_knows_is_never_the_beginning_of_another(folder: Path) -> None:
    desk = Deleting(folder / "store.db")
    at = ("--store", desk.store)
    run_id = anyio.run(desk.resumed)
    assert toolweave("runs", "approve", run_id, "call_1", *at).code == 0
    anyio.run(desk.resumed, run_id)

    stale = {verb: toolweave("runs", verb, run_id, "call_1", *at) for verb in ("approve", "deny")}
    answered = toolweave("runs", "answer", run_id, "call_1", "--accept", *at)

    for done in (*stale.values(), answered):
        assert (done.code, "has a call 'call_1', but it does not wait; those that do: call_1_2" in done.err) == (
            1,
            True,
        )
    waiting = toolweave("runs", "show", run_id, "--json", *at).json["waiting"]
    assert ([call["call_id"] for call in waiting], desk.deleted) == (["call_1_2"], ["old"])

    assert toolweave("runs", "approve", run_id, "call_1_", *at).code == 0
    anyio.run(desk.resumed, run_id)
    assert desk.deleted == ["old", "new"]
    for verb, *more in (("approve",), ("deny",), ("answer", "--accept")):
        ended = toolweave("runs", verb, run_id, "call_1_2", *more, *at)
        assert (ended.code, "has ended: its status is completed" in ended.err) == (1, True)


def test_an_empty_id_and_one_that_begins_several_answer_no_call(folder: Path) -> None:
    store = folder / "store.db"
    run_id = anyio.run(waiting_run, store)
    at = ("--store", store)
    first = toolweave("runs", "approve", run_id, "call_1", *at)

    empty = toolweave("runs", "approve", run_id, "", *at)
    again = toolweave("runs", "approve", run_id, "call_1", *at)
    denied = toolweave("runs", "deny", run_id, "call_2", *at)
    twice = toolweave("runs", "deny", run_id, "call_2", *at)

    assert first.code == 0
    assert (empty.code, "the id of the call is empty" in empty.err) == (2, True)
    assert (again.code, "call 'call_1' has this answer already" in again.err) == (0, True)
    assert (denied.code, twice.code, "call 'call_2' has this answer already" in twice.err) == (0, 0, True)
    several = anyio.run(waiting_run, store)
    both = toolweave("runs", "approve", several, "call_", *at)
    assert (both.code, "2 calls that wait begin with 'call_'" in both.err) == (2, True)


async def asking_run(folder: Path) -> str:
    """Leave a run in a store that waits for the answer to a question; return its id."""
    call = tool_call("rooms_book", {"guest": "Ada"}, id="call_1")
    servers = {"rooms": asking_server.entry(folder, "2026-07-28")}
    async with SqliteStore(folder / "store.db") as store:
        model = ScriptedModel([call])
        async with Agent(model, name="desk", mcp_servers=servers, questions=True, store=store) as agent:
            return (await agent.send("book", attended="later")).run_id


def test_a_question_of_a_server_is_shown_and_answered(folder: Path) -> None:
    run_id = anyio.run(asking_run, folder)
    at = ("--store", folder / "store.db")

    told = toolweave("runs", "show", run_id[:8], *at)
    as_json = toolweave("runs", "show", run_id, "--json", *at).json["waiting"]
    silent = toolweave("runs", "answer", run_id, "call_1", *at)
    both = toolweave("runs", "answer", run_id, "call_1", "--accept", "--decline", *at)
    yes = toolweave("runs", "approve", run_id, "call_1", *at)
    word = toolweave("runs", "answer", run_id, "call_1", "nights=many", *at)
    small = toolweave("runs", "answer", run_id, "call_1", "--accept", "nights=0", *at)
    done = toolweave("runs", "answer", run_id[:8], "call_1", "nights=2", "view=sea", *at)
    other = toolweave("runs", "answer", run_id, "call_1:1", "--decline", *at)

    assert "waits for an answer: rooms_book (server rooms)" in told.err
    assert "the server asks: How many nights for Ada?" in told.err
    assert f"toolweave runs answer {run_id[:8]} call_1:1" in told.err
    assert as_json[0]["question"]["schema"]["required"] == ["nights"]
    assert "asked_by" not in as_json[0]["question"]
    assert (silent.code, "the answer is missing" in silent.err) == (2, True)
    assert (both.code, "exclude each other" in both.err) == (2, True)
    assert (yes.code, "waits for an answer, not for a yes" in yes.err) == (1, True)
    assert (word.code, "nights" in word.err) == (1, True)
    assert (small.code, "has a form 'call_1:1' that the answer does not fit" in small.err) == (1, True)
    assert (done.code, done.err) == (0, f"{run_id} continues when its program resumes it: it has no workers\n")
    assert (other.code, "already: it was accepted" in other.err) == (1, True)


@pytest.mark.parametrize(
    "words, said",
    [
        (["x"], "no model is named"),
        (["x", "--model", "openai:x"], "set OPENAI_API_KEY"),
        (["x", "--model", "command", "--config", "absent.json"], "absent.json"),
        ([" ", "--model", "command"], "the message is empty"),
    ],
)
def test_what_cannot_begin_is_told_at_once_and_not_recorded(folder: Path, words: list[str], said: str) -> None:
    done = toolweave("runs", "spawn", *words, cwd=folder)

    assert done.code == 2
    assert said in done.err
    assert toolweave("runs", "list", "--json").json == {"runs": []}


def test_what_keeps_a_spawned_run_from_beginning_is_in_its_record(folder: Path) -> None:
    store = folder / "store.db"

    (run_id,) = anyio.run(submitted, store, 1)

    toolweave("chat", "--run-id", run_id, "--store", store, "--model", "command", "--config", "absent.json", cwd=folder)

    run = toolweave("runs", "show", run_id, "--store", store, "--json").json
    assert run["status"] == "failed"
    assert "absent.json" in run["error"]
    assert "error: " in toolweave("runs", "show", run_id, "--store", store).err


def test_the_runs_of_a_conversation_are_listed_too(cli: Cli, folder: Path) -> None:
    for text in ("one", "two", "three"):
        assert cli("chat", "--model", "test:x", "-m", text).code == 0

    runs = cli("runs", "list", "-n", "2", "--json").json["runs"]

    assert [(run["prompt"], run["status"], run["text"]) for run in runs] == [
        ("three", "completed", "x"),
        ("two", "completed", "x"),
    ]
    assert cli("runs", "list", "--status", "interrupted", "--json").json == {"runs": []}


def test_a_run_that_is_not_there_is_wrong_usage(cli: Cli, folder: Path) -> None:
    for verb in ("show", "cancel"):
        done = cli("runs", verb, "nothing")
        assert done.code == 2
        assert "unknown run 'nothing'" in done.err


def test_a_beginning_that_several_runs_have_is_not_enough(cli: Cli, folder: Path) -> None:
    store = folder / "store.db"
    run_ids = anyio.run(submitted, store, 17)  # of which two begin with the same of sixteen digits
    digit, count = Counter(run_id[0] for run_id in run_ids).most_common(1)[0]

    assert f"{count} runs begin with {digit!r}" in cli("runs", "show", digit, "--store", store).err
    assert cli("runs", "show", run_ids[0], "--store", store, "--json").json["run_id"] == run_ids[0]


@pytest.mark.parametrize("verb", ["spawn", "list", "show", "cancel"])
def test_the_help_has_examples(cli: Cli, verb: str) -> None:
    done = cli("runs", verb, "--help")

    assert done.code == 0
    assert f"Examples:\n    toolweave runs {verb}" in done.out
