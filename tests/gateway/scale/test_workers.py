"""Several processes that serve one port: they share what they must, and end with their parent."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import RunningGateway, gateway, spoken, until, upstream, write_gateway_config
from tests.programs import ran
from tests.redis_server import RedisServer
from tests.serve.exchanges import BOTH, call_body, modern_headers

Json = dict[str, Any]
WORKERS = 2

ASKING = """
import sys
from toolweave import CallContext, create_mcp_server

server = create_mcp_server(name="asking")
server.speak(sys.argv[1])

@server.tool
async def greet(ctx: CallContext) -> str:
    answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"Hello {(answer.content or {}).get('name')}"

server.run_stdio()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def config(folder: Path) -> Path:
    asking = folder / "asking.py"
    asking.write_text(ASKING)
    servers = {"a": upstream(folder, "a"), "q": {"command": sys.executable, "args": [str(asking), "legacy"]}}
    servers["m"] = {"command": sys.executable, "args": [str(asking), "2026-07-28"]}
    section = {"middleware": [{"name": "budget", "calls": 5, "per": "day", "only": [{"names": ["a_fail"]}]}]}
    return write_gateway_config(folder, servers, section)


@pytest.fixture(scope="module")
def running(folder: Path, config: Path) -> Generator[RunningGateway]:
    with gateway(folder, config, "--workers", WORKERS, "--metrics") as one:
        processes_of_a_session(one)  # each worker has a process of its own for callers with a handshake, from now on
        yield one


def processes_of_a_session(running: RunningGateway) -> set[int]:
    """Call a tool in one session until each worker has answered; return the processes that were called."""
    headers = {"content-type": "application/json", "accept": BOTH}
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    first = running.spoken(
        "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}, headers
    )
    headers |= {"mcp-session-id": first.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    body: Json = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "a_who", "arguments": {}}}
    seen = set[int]()

    def all_have_answered() -> bool:
        text = running.spoken("POST", "/mcp", body, headers).text
        # The first answer of a worker may come as a stream: it starts a process before.
        message = json.loads(text if text.startswith("{") else text.rpartition("data:")[2])
        seen.add(json.loads(message["result"]["content"][0]["text"])["pid"])
        return len(seen) >= WORKERS

    until(all_have_answered, "an answer of each worker")
    return seen


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def modern(base: str, tool: str, arguments: Any = None, **params: Any) -> Json:
    """Call a tool on a connection of its own, which may reach any worker."""
    headers = {name: value for name, value in modern_headers(tool).items() if name != "Content-Type"}  # it adds its own
    answer = spoken(base, "POST", "/mcp", call_body(tool, arguments, **params), headers, raw=True)
    assert answer.status == 200, answer.text
    return answer.json


@pytest.mark.slow
def test_all_workers_answer_and_each_has_upstreams_of_its_own(running: RunningGateway) -> None:
    seen = set[int]()

    def both_have_answered() -> bool:
        seen.add(modern(running.base, "a_who")["result"]["structuredContent"]["pid"])
        return len(seen) == WORKERS

    until(both_have_answered, "an answer of each worker")
    assert len(children(running.process.pid)) == WORKERS


def test_a_session_goes_on_in_any_worker(running: RunningGateway) -> None:
    assert len(processes_of_a_session(running)) == WORKERS


def test_a_budget_is_one_for_all_workers(running: RunningGateway) -> None:
    refused = ["error" in modern(running.base, "a_fail") for _ in range(12)]

    assert refused == [False] * 5 + [True] * 7


def test_figures_of_all_workers_are_on_the_page_of_any(running: RunningGateway) -> None:
    def counted() -> float:
        page = running.spoken("GET", "/metrics").text
        lines = [
            one for one in page.splitlines() if one.startswith("toolweave_tool_calls_total{") and 'tool="add"' in one
        ]
        return sum(float(one.rpartition(" ")[2]) for one in lines)

    for number in range(10):
        modern(running.base, "a_add", {"a": number, "b": 1})
    pages = {counted() for _ in range(6)}
    ready = [one for one in running.spoken("GET", "/metrics").text.splitlines() if one.startswith("toolweave_ready ")]

    assert pages == {10.0}
    assert ready == ["toolweave_ready 1.0"]


@pytest.mark.slow
def test_changes_reach_every_worker_and_those_that_are_started_later_and_all_end_in_peace(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--workers", WORKERS, "--no-watch", drain=0.5) as running:

        def everywhere(name: str, wanted: int) -> bool:
            answers = [running.admin("GET", "/status").json["upstreams"] for _ in range(8)]
            return all(sum(one["name"] == name for one in found) == wanted for found in answers)

        def versions() -> set[str]:
            found = [modern(running.base, "a_who")["result"]["structuredContent"] for _ in range(12)]
            return {f"{one['pid']} {one['version']}" for one in found}

        added = running.admin("POST", "/servers", {"name": "late", "config": upstream(tmp_path, "late")})
        assert added.status == 201, added.text
        until(lambda: everywhere("late", 1), "the server in every worker")
        before = set(children(running.process.pid))
        os.kill(min(before), signal.SIGKILL)
        until(lambda: len(set(children(running.process.pid)) - before) == 1, "another worker")
        until(lambda: "ended unexpectedly (SIGKILL)" in running.log, "the word of it")
        until(lambda: _answers_everywhere(running), "all workers")
        until(lambda: everywhere("late", 1), "the server in the new worker")
        assert running.admin("DELETE", "/servers/late").status == 204
        until(lambda: everywhere("late", 0), "the end of the server")

        write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a", "2")})
        running.hang_up()
        until(lambda: len(found := versions()) == WORKERS and all(one.endswith(" 2") for one in found), "version 2")
        workers = children(running.process.pid)
        running.terminate()
        assert running.process.wait(60) == 0

    assert len(workers) == WORKERS
    assert not any(_runs(one) for one in workers)


@pytest.mark.slow
def test_a_server_that_is_added_while_the_store_is_away_is_in_every_worker_when_it_is_back(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    variables = {"KEYS_OF_ALL": "k" * 40, "REDIS_OF_ALL": ""}
    with RedisServer(tmp_path, durable=True) as redis:
        variables["REDIS_OF_ALL"] = redis.url
        options = ("--workers", WORKERS, "--no-watch", "--state-keys-env", "KEYS_OF_ALL", "--redis-env", "REDIS_OF_ALL")
        with gateway(tmp_path, config, *options, env=variables) as running:
            until(lambda: _answers_everywhere(running), "all workers")
            redis.kill()
            until(lambda: running.spoken("GET", "/readyz").json["shared"] == "away", "the absence")
            added = running.admin("POST", "/servers", {"name": "late", "config": upstream(tmp_path, "late")})
            assert (added.status, added.json["only_here"]) == (201, True)

            def has_it() -> bool:
                found = [running.admin("GET", "/status").json["upstreams"] for _ in range(8)]
                late = [one for names in found for one in names if one["name"] == "late"]
                return len(late) == len(found) and not any(one["only_here"] for one in late)

            redis.start()
            until(has_it, "the server in every worker")


def _answers_everywhere(running: RunningGateway) -> bool:
    try:
        seen = {modern(running.base, "a_who")["result"]["structuredContent"]["pid"] for _ in range(12)}
    except OSError:  # what waited at the dead one
        return False
    return len(seen) == WORKERS


def _ask_and_answer(running: RunningGateway, tool: str) -> list[str]:
    """Call a tool that asks, and answer over another connection, several times; return the results."""
    meta: Json = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    answers = list[str]()
    for number in range(6):
        asked = modern(running.base, tool, meta=meta)["result"]
        given = {"action": "accept", "content": {"name": f"Ada {number}"}}
        more = {"requestState": asked["requestState"], "inputResponses": dict.fromkeys(asked["inputRequests"], given)}
        answers.append(modern(running.base, tool, meta=meta, **more)["result"]["content"][0]["text"])
    return answers


@pytest.mark.slow
def test_a_call_that_waits_is_gone_on_with_by_any_worker_and_all_end_with_a_parent_that_was_killed(
    tmp_path: Path, config: Path
) -> None:
    with gateway(tmp_path, config, "--workers", WORKERS, drain=0) as running:
        answers = _ask_and_answer(running, "q_greet")
        of_rounds = _ask_and_answer(running, "m_greet")
        workers = children(running.process.pid)
        folders = {found for one in workers for found in _folders(one)}
        running.process.send_signal(signal.SIGKILL)
        until(lambda: not any(_runs(one) for one in workers), "the end of the workers")
        assert len(folders) == 1
        assert not any(Path(one).exists() for one in folders)

    assert answers == of_rounds == [f"Hello Ada {number}" for number in range(6)]
    assert len(workers) == WORKERS


def _folders(process: int) -> set[str]:
    """Return the folders of the files `store.db` that a process has open."""
    found = set[str]()
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            found.add(str(link.readlink()))
    return {str(Path(one).parent) for one in found if one.endswith("/store.db")}


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_secret_is_in_a_command_line_or_an_environment(running: RunningGateway) -> None:
    for worker in children(running.process.pid):
        shown = Path(f"/proc/{worker}/cmdline").read_bytes() + Path(f"/proc/{worker}/environ").read_bytes()
        assert running.token.encode() not in shown
        assert b"store.db" not in shown


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (["--workers", "2"], {}, "--workers goes with --http"),
        (["--http", "0", "--workers", "2", "--redis-env", "R"], {"R": "redis://x"}, "need the same state keys"),
        (["--http", "0", "--redis-env", "R"], {"R": "redis://x"}, "need the same state keys"),
        (
            ["--http", "0", "--redis-env", "R", "--state-keys-env", "K"],
            {"R": "nonsense", "K": "k" * 32},
            "is not understood",
        ),
        (
            ["--http", "0", "--redis-env", "R", "--state-keys-env", "K"],
            {"R": "redis://h/0?socket_timeout=soon", "K": "k" * 32},
            "has a wrong value",
        ),
        (["--http", "0", "--as-worker"], {}, "is for processes that --workers starts"),
    ],
)
def test_what_cannot_work_is_refused(args: list[str], env: dict[str, str], said: str, config: Path) -> None:
    command = [sys.executable, "-m", "toolweave", "gateway", "--config", str(config), *args]
    done = ran(command, env={**os.environ, **env})

    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_config_with_a_redis_and_without_keys_is_refused(tmp_path: Path) -> None:
    section = {"redis": "redis://:${PASSWORD}@127.0.0.1:1/0"}
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")}, section)
    for more in ([], ["--workers", "2"]):
        command = [sys.executable, "-m", "toolweave", "gateway", "--config", str(config), "--http", "0", *more]
        env = {**os.environ, "PASSWORD": "hunter2"}
        done = ran(command, env=env)
        assert done.returncode == 2
        assert "--state-keys-env" in " ".join(done.stderr.split())
        assert "hunter2" not in done.stderr


@pytest.mark.slow
def test_a_gateway_whose_workers_cannot_start_ends_with_their_reason(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")}, {"middleware": [{"name": "rate_limits"}]})
    command = [sys.executable, "-m", "toolweave", "gateway", "--config", str(config), "--http", "0", "--workers", "2"]
    done = ran(command)

    assert done.returncode == 2
    assert "did you mean 'rate_limit'" in " ".join(done.stderr.split())  # however wide the terminal is
    assert "started again" not in done.stderr


@pytest.mark.slow
def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "toolweave", "gateway", "--config", str(config), "--http", where]
        done = ran([*command, "--workers", "2"])

    assert done.returncode == 2
    assert "cannot listen on" in " ".join(done.stderr.split())
