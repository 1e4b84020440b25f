"""`toolweave worker`: submitted runs are done by other processes, here and there, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.command import Done, on_terminal, toolweave, write_config
from tests.cli.served import serving
from tests.cli.working import Worker, app_in, run_when, worker
from tests.gateway.running import until
from tests.leftovers import processes
from tests.programs import free_port, ran
from tests.redis_failover import client_at, fail_over_by_sentinel, redis_pair, sentinel
from tests.redis_server import RedisServer
from tests.servers.fixtures import echo_command
from toolweave import connect_mcp

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]
NOWHERE = "redis://:hidden-word@127.0.0.1:1/0"
"""Nothing listens there."""


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TOOLWEAVE_MODEL", "TOOLWEAVE_BACKEND"):
        monkeypatch.delenv(name, raising=False)


def spawned(message: str, url: str, *more: object) -> str:
    """Give a run to the workers of the agent `clerk`; return its id."""
    done = toolweave("runs", "spawn", message, "--backend", url, "--agent", "clerk", *more)
    assert done.code == 0, done.err
    return done.out.strip()


def done_of(run: dict[str, Any]) -> bool:
    return run["status"] not in ("pending", "running", "waiting", "interrupted")


def effects(folder: Path) -> list[str]:
    """Return what the tools did, in order."""
    path = folder / "effects.txt"
    return path.read_text("utf-8").splitlines() if path.exists() else []


def looking(working: Worker, folder: Path) -> None:
    """Wait until the run of a worker is in the middle of its second call."""
    working.wait_for("begun")
    while f"looking {working.process.pid}" not in effects(folder):
        assert working.process.poll() is None, effects(folder)
        time.sleep(0.02)


def test_a_worker_does_what_was_submitted_elsewhere(folder: Path, redis_url: str) -> None:
    app = app_in(folder)
    run_id = spawned("hello", redis_url)
    listed = toolweave("runs", "list", "--store", redis_url, "--json").json["runs"]
    assert [(one["run_id"], one["status"], one["agent"]) for one in listed] == [(run_id, "pending", "clerk")]

    with worker(app, "--backend", redis_url, cwd=folder) as working:
        started = working.wait_for("started")
        assert started["topics"] == ["runs:clerk"]
        assert started["backend"] == redis_url
        assert working.wait_for("completed")["key"] == run_id

        told = toolweave("runs", "show", run_id[:8], "--store", redis_url)
        assert told.out == "Hello.\n"
        assert f"{run_id}  completed" in told.err


def test_the_environment_names_the_backend_of_all_commands(folder: Path, redis_url: str) -> None:
    write_config(folder, {"numbers": [sys.executable, "-m", "toolweave.cli.demo.numbers"]})
    env = {"TOOLWEAVE_BACKEND": redis_url}
    asked = '/call numbers_add {"values": [40, 2]}'

    with worker("--model", "command", "--confirm", "never", cwd=folder, env=env) as working:
        working.wait_for("started")
        run_id = toolweave("runs", "spawn", asked, env=env).out.strip()
        working.wait_for("completed")

    shown = toolweave("runs", "show", run_id, env=env)
    assert json.loads(shown.out) == {"sum": 42}
    assert toolweave("runs", "list", "--json").json == {"runs": []}


async def test_a_served_task_is_done_by_a_worker(folder: Path, redis_url: str) -> None:
    program = (
        "import os\nfrom toolweave import Backend, create_mcp_server\n"
        "def who() -> str:\n    return str(os.getpid())\n"
        "server = create_mcp_server(name='people', version='1', tools=[who], tasks={'who': 'optional'},\n"
        "    backend=Backend.from_environment())\n"
    )
    (folder / "people.py").write_text(program, "utf-8")
    env = {"TOOLWEAVE_BACKEND": redis_url}

    with worker("people.py", cwd=folder, env=env) as working:
        assert working.wait_for("started")["topics"] == ["tasks:people"]
        with serving("people.py", cwd=folder, env=env) as (said, _), anyio.fail_after(60):
            async with connect_mcp(said["url"]) as client:
                result = await client.call_tool("who")
        assert result.text == str(working.process.pid)
        assert working.wait_for("ended")["topic"] == "tasks:people"


def test_a_run_that_needs_a_yes_waits_for_it_while_its_worker_works_on(folder: Path, redis_url: str) -> None:
    write_config(folder, {"numbers": [sys.executable, "-m", "toolweave.cli.demo.numbers"]})
    env = {"TOOLWEAVE_BACKEND": redis_url}
    add = '/call numbers_add {"values": [40, 2]}'

    with worker("--model", "command", "--confirm", "always", "--concurrency", "1", cwd=folder, env=env) as working:
        working.wait_for("started")
        first, second = [toolweave("runs", "spawn", add, env=env).out.strip() for _ in range(2)]
        working.wait_for("waiting")
        working.wait_for("waiting")
        for run_id, answer in ((first, "approve"), (second, "deny")):
            [call] = toolweave("runs", "show", run_id, "--json", env=env).json["waiting"]
            done = toolweave("runs", answer, run_id[:8], call["call_id"], "--json", env=env)
            assert (done.code, done.json) == (0, {"run_id": run_id, "goes_on": True})
        working.wait_for("completed")
        working.wait_for("completed")

    assert json.loads(toolweave("runs", "show", first, env=env).out) == {"sum": 42}
    assert "was not allowed" in toolweave("runs", "show", second, env=env).out


def test_a_worker_finds_a_server_that_was_down_when_it_started(folder: Path, redis_url: str) -> None:
    there = folder / "there"
    late = f"test -e {there} && exec {sys.executable} -m toolweave.cli.demo.numbers; exit 1"
    write_config(folder, {"numbers": ["sh", "-c", late]})
    env = {"TOOLWEAVE_BACKEND": redis_url}

    with worker("--model", "command", cwd=folder, env=env) as working:
        working.wait_for("started")
        there.touch()
        results = list[str]()
        deadline = time.monotonic() + 100
        while "42" not in "".join(results[-1:]):
            assert time.monotonic() < deadline, results
            run_id = toolweave("runs", "spawn", '/call numbers_add {"values": [40, 2]}', env=env).out.strip()
            working.wait_for("completed")
            results.append(toolweave("runs", "show", run_id, env=env).out)

    assert json.loads(results[-1]) == {"sum": 42}


_LATE_SERVER = """
import sys
from toolweave import create_mcp_server

server = create_mcp_server(name="late")

@server.tool
def look() -> str:
    "Look."
    return "saw"

server.run_http("127.0.0.1", int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    "tools",
    ["mcp_servers={'late': URL}", "tools=[connect_mcp(URL)]", "tools=[connect_mcp_servers({'late': URL})]"],
    ids=["a config", "a connection", "a hub"],
)
def test_a_worker_finds_a_server_of_a_target_that_was_down_when_it_started(
    folder: Path, redis_url: str, tools: str
) -> None:
    port = free_port()
    (folder / "late.py").write_text(_LATE_SERVER, "utf-8")
    (folder / "app.py").write_text(
        "from toolweave import Agent, Backend, ScriptedModel, connect_mcp, connect_mcp_servers, tool_call\n"
        f"URL = 'http://127.0.0.1:{port}/mcp'\n"
        "def answer(request):\n"
        "    names = [one.name for one in request.tools if one.name.endswith('look')]\n"
        "    if len(request.messages) > 1:\n"
        "        return request.messages[-1].outcomes[0].result.text\n"
        "    return [tool_call(names[0])] if names else 'no tool'\n"
        f"agent = Agent(ScriptedModel(answer), name='clerk', backend=Backend.from_environment(), {tools})\n",
        "utf-8",
    )
    with worker("app.py", "--backend", redis_url, cwd=folder) as working:
        working.wait_for("started")
        first = spawned("look", redis_url)
        working.wait_for("completed")
        texts = list[str]()
        with subprocess.Popen([sys.executable, folder / "late.py", str(port)], stderr=subprocess.DEVNULL) as late:
            try:
                deadline = time.monotonic() + 100
                while "saw" not in texts:
                    assert time.monotonic() < deadline, texts
                    run_id = spawned("look", redis_url)
                    working.wait_for("completed")
                    texts.append(toolweave("runs", "show", run_id, "--store", redis_url).out.strip())
            finally:
                late.kill()

    assert toolweave("runs", "show", first, "--store", redis_url).out == "no tool\n"
    assert {text for text in texts if "saw" not in text} <= {"no tool"}


def test_an_answer_in_the_store_alone_has_a_worker_continue_the_run(folder: Path, redis_url: str) -> None:
    write_config(folder, {"numbers": [sys.executable, "-m", "toolweave.cli.demo.numbers"]})
    env = {"TOOLWEAVE_BACKEND": redis_url}
    add = '/call numbers_add {"values": [40, 2]}'

    with worker("--model", "command", "--confirm", "always", cwd=folder, env=env) as working:
        working.wait_for("started")
        run_id = toolweave("runs", "spawn", add, env=env).out.strip()
        working.wait_for("waiting")
        [call] = toolweave("runs", "show", run_id, "--json", env=env).json["waiting"]
        done = toolweave("runs", "approve", run_id, call["call_id"], "--store", redis_url)
        working.wait_for("completed")

    assert done.code == 0
    assert "continues when one of its workers finds the answer in the store" in done.err
    assert json.loads(toolweave("runs", "show", run_id, env=env).out) == {"sum": 42}


def test_a_run_whose_worker_is_killed_goes_on_in_another_and_repeats_no_step(folder: Path, redis_url: str) -> None:
    app = app_in(folder)
    run_id = spawned("17", redis_url)
    with worker(app, "--backend", redis_url, cwd=folder) as first:
        looking(first, folder)
        with worker(app, "--backend", redis_url, cwd=folder) as second:
            second.wait_for("started")
            os.kill(first.process.pid, signal.SIGKILL)
            (folder / "go").touch()

            run = run_when(run_id, redis_url, done_of)

            assert second.wait_for("completed")["key"] == run_id
            pids = [first.process.pid, second.process.pid]
    assert (run["status"], run["text"], run["attempts"]) == ("completed", "It is done.", 2)
    assert effects(folder) == ["booked 17", *(f"looking {pid}" for pid in pids)]


def test_a_worker_at_sentinels_continues_its_run_when_another_redis_becomes_the_primary(
    folder: Path, tmp_path: Path
) -> None:
    app = app_in(folder)
    with redis_pair(tmp_path) as pair, sentinel(tmp_path, pair.primary.port) as place:
        url = f"redis+sentinel://127.0.0.1:1,{place}/0"  # the first one listed is down
        run_id = spawned("21", url)
        with worker(app, "--backend", url, cwd=folder) as working:
            assert working.wait_for("started")["backend"] == url
            looking(working, folder)
            fail_over_by_sentinel(place)
            with client_at(pair.primary.port) as old:  # until then it accepts writes, and loses them
                until(lambda: old.info("replication")["role"] == "slave", "the failover")
            (folder / "go").touch()

            assert working.wait_for("completed")["key"] == run_id
            later = spawned("hello", url)
            while working.wait_for("completed")["key"] != later:  # that of a run may be delivered twice
                pass
            pid = working.process.pid
        run = toolweave("runs", "show", run_id, "--store", url, "--json").json

    assert (run["status"], run["text"], run["attempts"]) == ("completed", "It is done.", 1)
    assert effects(folder) == ["booked 21", f"looking {pid}"]


def test_a_worker_that_is_asked_to_end_hands_over_what_has_not_ended_after_its_grace(
    folder: Path, redis_url: str
) -> None:
    app = app_in(folder)
    run_id = spawned("18", redis_url)
    with worker(app, "--backend", redis_url, "--grace", "0.2", cwd=folder) as first:
        looking(first, folder)
        first.process.send_signal(signal.SIGTERM)
        assert first.end() == 0
        assert first.events[-2:] == ["stopping", "handed over"]

        (folder / "go").touch()
        with worker(app, "--backend", redis_url, cwd=folder) as second:
            assert second.wait_for("completed")["key"] == run_id
    assert [one for one in effects(folder) if one.startswith("booked")] == ["booked 18"]
    assert toolweave("runs", "show", run_id, "--store", redis_url).out == "It is done.\n"


def test_a_worker_that_is_asked_to_end_finishes_the_call_under_way_and_begins_no_other_step(
    folder: Path, redis_url: str
) -> None:
    app = app_in(folder)
    run_id = spawned("20", redis_url)
    with worker(app, "--backend", redis_url, cwd=folder) as first:
        looking(first, folder)
        first.process.send_signal(signal.SIGTERM)
        first.wait_for("stopping")
        with worker(app, "--backend", redis_url, cwd=folder) as second:
            second.wait_for("started")
            (folder / "go").touch()
            assert first.end() == 0
            assert second.wait_for("completed")["key"] == run_id
            pid = first.process.pid

    run = toolweave("runs", "show", run_id, "--store", redis_url, "--json").json
    assert (run["status"], run["text"], run["attempts"]) == ("completed", "It is done.", 2)
    assert effects(folder) == ["booked 20", f"looking {pid}"]
    assert first.events[-2:] == ["stopping", "handed over"]


def test_a_run_is_cancelled_wherever_its_worker_is(folder: Path, redis_url: str) -> None:
    app = app_in(folder)
    run_id = spawned("19", redis_url)
    with worker(app, "--backend", redis_url, cwd=folder) as working:
        looking(working, folder)

        assert toolweave("runs", "cancel", run_id, "--store", redis_url).code == 0

        assert working.wait_for("cancelled")["key"] == run_id


def test_a_second_signal_ends_a_worker_at_once(folder: Path, redis_url: str) -> None:
    app = app_in(folder)
    app.write_text(
        app.read_text("utf-8").replace(
            "await anyio.sleep(0.02)", "with anyio.CancelScope(shield=True): await anyio.sleep(0.02)"
        ),
        "utf-8",
    )
    spawned("20", redis_url)
    with worker(app, "--backend", redis_url, cwd=folder) as working:
        looking(working, folder)
        working.process.send_signal(signal.SIGINT)
        working.wait_for("stopping")

        working.process.send_signal(signal.SIGINT)

        assert working.end() == 130


def test_the_same_key_is_the_same_run(folder: Path, redis_url: str) -> None:
    first = spawned("hello", redis_url, "--key", "order-17")

    assert spawned("hello", redis_url, "--key", "order-17") == first
    assert spawned("hello", redis_url, "--key", "order-18") != first
    assert len(toolweave("runs", "list", "--store", redis_url, "--json").json["runs"]) == 2


def test_a_name_in_the_url_keeps_installations_apart(folder: Path, redis_url: str) -> None:
    run_id = spawned("hello", f"{redis_url}?name=staging")

    assert toolweave("runs", "list", "--store", redis_url, "--json").json == {"runs": []}
    listed = toolweave("runs", "list", "--store", f"{redis_url}?name=staging", "--json").json["runs"]
    assert [one["run_id"] for one in listed] == [run_id]


def test_a_conversation_is_kept_in_redis_too(folder: Path, redis_url: str) -> None:
    for text in ("one", "two"):
        words = ("--model", "test:x", "-m", text, "--resume", "talk", "--store", redis_url)
        assert toolweave("chat", *words).code == 0

    runs = toolweave("runs", "list", "--store", redis_url, "--json").json["runs"]
    assert [run["prompt"] for run in runs] == ["two", "one"]


def test_a_run_in_a_process_of_its_own_may_be_kept_in_redis(folder: Path, redis_url: str) -> None:
    done = toolweave("runs", "spawn", "hello", "--model", "test:x", "--store", redis_url, cwd=folder)

    assert done.code == 0, done.err
    assert run_when(done.out.strip(), redis_url, done_of)["text"] == "x"


@pytest.mark.parametrize(
    "words",
    [
        ["worker", "--model", "command", "--backend", NOWHERE, "--wait", "0"],
        ["runs", "spawn", "x", "--backend", NOWHERE],
        ["runs", "list", "--store", NOWHERE],
        ["chat", "-m", "x", "--model", "test:x", "--store", NOWHERE],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_backend_that_is_not_there_is_told_without_its_password(folder: Path, words: list[str]) -> None:
    done = toolweave(*words, cwd=folder)

    assert done.code == 3, done.err
    assert "127.0.0.1:1" in done.err
    assert "hidden-word" not in done.err + done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "words, said",
    [
        (["worker", "--model", "command"], "no backend is named"),
        (["worker", "--backend", "memory://"], "the memory of one process"),
        (["worker", "--backend", "localhost"], "expected a URL"),
        (["worker", "--backend", "http://localhost", "--model", "command"], "redis://"),
        (["worker", "--backend", NOWHERE, "--quiet", "--json"], "exclude each other"),
        (["worker", "--backend", NOWHERE, "absent.py"], "the file 'absent.py' does not exist"),
        (["worker", "--backend", NOWHERE, "app.py", "--model", "x"], "--model is for the worker without a TARGET"),
        (["worker", "--backend", NOWHERE, "app.py:book"], "a worker works for agents and servers"),
        (["worker", "--backend", NOWHERE, "empty.py"], "a worker works for agents and servers"),
        (["worker", "--backend", NOWHERE, "two.py"], "two agents are named 'same'"),
        (["runs", "spawn", "x", "--backend", "memory://"], "the memory of one process"),
        (["runs", "spawn", "x", "--backend", NOWHERE, "--store", "x.db"], "exclude each other"),
        (["runs", "spawn", "x", "--backend", NOWHERE, "--model", "y"], "--model does not go to workers"),
        (["runs", "spawn", "x", "--model", "test:x", "--key", "y"], "--key goes with --backend"),
        (["runs", "spawn", "x", "--model", "test:x", "--store", "memory://"], "memory"),
        (["runs", "list", "--store", "http://localhost"], "no store is known as http://"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(folder: Path, words: list[str], said: str) -> None:
    app_in(folder)
    (folder / "empty.py").write_text("", "utf-8")
    two = "from toolweave import Agent\none, two = (Agent('test:x', name='same') for _ in '12')\n"
    (folder / "two.py").write_text(two, "utf-8")

    done = toolweave(*words, cwd=folder)

    assert done.code == 2, done.err
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "kept, said",
    [
        ("backend=Backend('memory://')", "agent 'clerk' keeps its work elsewhere"),
        ("backend=Backend(os.environ['OTHER'])", "agent 'clerk' keeps its work elsewhere"),
        ("store=MemoryStore()", "agent 'clerk' has a store and no queue of work"),
    ],
)
def test_an_agent_that_keeps_its_runs_elsewhere_is_told(folder: Path, redis_url: str, kept: str, said: str) -> None:
    imports = "import os\nfrom toolweave import Agent, Backend\nfrom toolweave.state import MemoryStore\n"
    program = f"{imports}agent = Agent('test:x', name='clerk', {kept})\n"
    (folder / "app.py").write_text(program, "utf-8")
    env = {"OTHER": f"{redis_url}?name=other"}

    done = toolweave("worker", "app.py", "--backend", redis_url, cwd=folder, env=env)

    assert done.code == 2, done.err
    assert said in done.err
    assert "backend=Backend.from_environment()" in done.err


def test_a_server_without_tasks_has_nothing_to_do_for_a_worker_and_no_backend_is_opened(folder: Path) -> None:
    program = "from toolweave import create_mcp_server\nserver = create_mcp_server(name='s', version='1')\n"
    (folder / "app.py").write_text(program, "utf-8")

    done = toolweave("worker", "app.py", "--backend", NOWHERE, cwd=folder)

    assert done.code == 2, done.err
    assert "warning: server 's' has no work for workers" in done.err
    assert "there is nothing to work on" in done.err


def test_an_agent_that_keeps_nothing_keeps_its_runs_where_the_worker_does(folder: Path, redis_url: str) -> None:
    program = "from toolweave import Agent\nagent = Agent('test:Hello.', name='clerk')\n"
    (folder / "app.py").write_text(program, "utf-8")
    run_id = spawned("x", redis_url)

    with worker("app.py:agent", "--backend", redis_url, cwd=folder) as working:
        assert working.wait_for("completed")["key"] == run_id


def test_a_worker_tells_people_what_it_does(folder: Path, redis_url: str) -> None:
    app_in(folder)
    run_id = spawned("hello", redis_url)

    with on_terminal("worker", "app.py", "--backend", redis_url, cwd=folder) as terminal:
        terminal.wait_for("runs of agent 'clerk'")
        terminal.wait_for(f"run {run_id[:8]} of 'clerk'  completed")
        terminal.type("\x03")
        terminal.wait_for("stopping: turns and calls under way may end")

        assert terminal.end() == 0
        assert "Traceback" not in terminal.text


def test_a_password_is_shown_nowhere(folder: Path, tmp_path: Path) -> None:
    app_in(folder)
    with RedisServer(tmp_path, options={"requirepass": "hidden-word"}) as server:
        url = server.url.replace("://", "://:hidden-word@")
        run_id = spawned("hello", url)
        with worker("app.py", "--backend", url, cwd=folder) as working:
            assert working.wait_for("started")["backend"] == server.url
            working.wait_for("completed")
            working.process.send_signal(signal.SIGTERM)
            assert working.end() == 0
            assert working.process.stderr is not None
            assert "hidden-word" not in working.process.stderr.read() + str(working.said)
        refused = toolweave("runs", "show", run_id, "--store", url.replace("hidden-word", "wrong-word"))

    assert refused.code == 3
    assert "refuses the user" in refused.err
    assert "-word" not in refused.err


def test_a_password_is_not_on_the_command_line_of_a_process_that_is_begun(folder: Path, tmp_path: Path) -> None:
    write_config(folder, {"echo": echo_command()})
    asked = ('/call echo_slow {"seconds": 600, "steps": 10}', "--model", "command", "--confirm", "never")
    with RedisServer(tmp_path, options={"requirepass": "hidden-word"}) as server:
        url = server.url.replace("://", "://:hidden-word@")
        run_id = toolweave("runs", "spawn", *asked, "--store", url, cwd=folder).out.strip()
        run_when(run_id, url, lambda run: run["status"] == "running")

        shown = [row.command for row in processes() if run_id in row.command]

        assert toolweave("runs", "cancel", run_id, "--store", url).code == 0
        run_when(run_id, url, done_of)
    assert len(shown) == 1
    assert "hidden-word" not in shown[0]


@pytest.mark.parametrize(
    "words, missing",
    [
        (["worker", "--model", "command", "--backend", NOWHERE], "docket"),
        (["runs", "spawn", "x", "--backend", NOWHERE], "docket"),
        (["runs", "list", "--store", NOWHERE], "redis"),
    ],
    ids=["worker", "spawn", "list"],
)
def test_what_is_not_installed_is_named_with_how_to_install_it(folder: Path, words: list[str], missing: str) -> None:
    program = (
        f"import sys\nsys.modules[{missing!r}] = None\nfrom toolweave.cli.main import main\nsys.exit(main({words!r}))"
    )

    done = ran([sys.executable, "-c", program])

    assert done.returncode in (2, 3)
    assert "pip install 'toolweave[distributed]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_code_of_a_worker_sees_the_backend_that_was_named(folder: Path) -> None:
    program = "import os\nraise RuntimeError('backend is ' + os.environ['TOOLWEAVE_BACKEND'].rpartition('@')[2])\n"
    (folder / "app.py").write_text(program, "utf-8")

    done = toolweave("worker", "app.py", "--backend", NOWHERE, cwd=folder)

    assert "backend is 127.0.0.1:1/0" in done.err


def test_a_shell_completes_the_command(folder: Path) -> None:
    env = {"_TOOLWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": "toolweave wor", "COMP_CWORD": "1"}

    assert toolweave(env=env, cwd=folder).out.split() == ["worker"]
