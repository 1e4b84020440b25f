"""A worker, a server or a gateway that starts beside a Redis that is away, or that it can never use."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from tests.cli.command import Done, toolweave
from tests.cli.served import start
from tests.cli.working import app_in, run_when, worker
from tests.connect.proxying import certificate
from tests.programs import free_port
from tests.redis_server import RedisServer, redis_cluster
from toolweave import connect_mcp

pytestmark = pytest.mark.slow

_PEOPLE = """
from toolweave import Backend, create_mcp_server

def who() -> str:
    return "me"

server = create_mcp_server(name="people", version="1", tools=[who], tasks={"who": "optional"},
    backend=Backend.from_environment())
"""


@pytest.fixture
def late_redis(tmp_path: Path) -> Generator[RedisServer]:
    """A server with an address, not yet started."""
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(folder)
    server.port = free_port()
    try:
        yield server
    finally:
        server.kill()


def warned(process: subprocess.Popen[str]) -> str:
    """Return the first line on standard error: the start waits."""
    assert process.stderr is not None
    return process.stderr.readline()


def refused(*words: str, cwd: Path) -> Done:
    """Run a command that fails at once, far before a minute has passed."""
    begun = time.monotonic()
    done = toolweave(*words, cwd=cwd)
    assert time.monotonic() - begun < 40
    return done


def test_a_worker_waits_for_a_redis_that_starts_later_and_does_its_runs(
    tmp_path: Path, late_redis: RedisServer
) -> None:
    app = app_in(tmp_path)
    with worker(app, "--backend", late_redis.url, cwd=tmp_path) as working:
        said = warned(working.process)
        assert said.startswith(f"warning: waiting up to 60 s: {late_redis.url} cannot be reached")
        late_redis.start()

        assert working.wait_for("started")["backend"] == late_redis.url
        spawned = toolweave("runs", "spawn", "hello", "--backend", late_redis.url, "--agent", "clerk")
        run = run_when(spawned.out.strip(), late_redis.url, lambda run: run["status"] == "completed")
        assert run["text"] == "Hello."
        working.process.send_signal(signal.SIGTERM)
        assert working.end() == 0
        assert working.process.stderr is not None
        assert working.process.stderr.read() == ""  # one line for the whole wait


def test_a_worker_that_waits_for_its_redis_ends_when_it_is_asked_to(tmp_path: Path, late_redis: RedisServer) -> None:
    app = app_in(tmp_path)
    with worker(app, "--backend", late_redis.url, cwd=tmp_path) as working:
        warned(working.process)
        working.process.send_signal(signal.SIGTERM)

        assert working.end() == 0


def test_a_worker_gives_up_after_the_wait_that_its_owner_chose(tmp_path: Path, late_redis: RedisServer) -> None:
    done = refused("worker", str(app_in(tmp_path)), "--backend", late_redis.url, "--wait", "0.5", cwd=tmp_path)

    assert done.code == 3
    assert "waiting up to 0.5 s" in done.err
    assert f"error: {late_redis.url} cannot be reached" in done.err


def test_a_password_that_is_refused_ends_a_worker_at_once(tmp_path: Path) -> None:
    app = app_in(tmp_path)
    with RedisServer(tmp_path, options={"requirepass": "right-word"}) as server:
        url = server.url.replace("//", "//:wrong-word@")
        done = refused("worker", str(app), "--backend", url, cwd=tmp_path)

    assert done.code == 3
    assert "refuses the user or the password" in done.err
    assert "waiting" not in done.err
    assert "word@" not in done.err


def test_a_certificate_that_is_not_trusted_ends_a_worker_at_once(tmp_path: Path) -> None:
    app = app_in(tmp_path)
    file = str(certificate(tmp_path))
    port = free_port()
    options = {"tls-port": str(port), "tls-cert-file": file, "tls-key-file": file, "tls-ca-cert-file": file}
    with RedisServer(tmp_path, options=options):
        done = refused("worker", str(app), "--backend", f"rediss://127.0.0.1:{port}/0", cwd=tmp_path)

    assert done.code == 3
    assert "waiting" not in done.err


@contextmanager
def started_server(tmp_path: Path, url: str) -> Generator[subprocess.Popen[str]]:
    """Start `toolweave serve` for a server with a backend at an address."""
    (tmp_path / "people.py").write_text(_PEOPLE, "utf-8")
    with start("people.py", cwd=tmp_path, env={"TOOLWEAVE_BACKEND": url}) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_server_waits_for_the_redis_of_its_tasks(tmp_path: Path, late_redis: RedisServer) -> None:
    with started_server(tmp_path, late_redis.url) as process:
        assert "waiting up to 60 s" in await anyio.to_thread.run_sync(warned, process)
        late_redis.start()

        assert process.stdout is not None
        said = json.loads(await anyio.to_thread.run_sync(process.stdout.readline))
        async with connect_mcp(said["url"]) as client:
            assert [tool.name for tool in await client.list_tools()] == ["who"]


async def test_a_server_whose_redis_refuses_its_password_does_not_start(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path, options={"requirepass": "right-word"}) as server,
        started_server(tmp_path, server.url) as process,
        anyio.fail_after(60),
    ):
        _, said = await anyio.to_thread.run_sync(process.communicate)

    assert process.returncode == 1
    assert "requires a password" in said
    assert "waiting" not in said


def test_the_jobs_of_a_worker_do_not_run_at_a_cluster_and_it_says_so_at_its_start(tmp_path: Path) -> None:
    app = app_in(tmp_path)
    with redis_cluster(tmp_path) as nodes:
        ends = [refused("worker", str(app), "--backend", one.url, cwd=tmp_path) for one in nodes]

    for done, node in zip(ends, nodes, strict=True):
        assert done.code == 3
        assert f"the queue at {node.url} is at a node of a Redis Cluster, which jobs do not support" in done.err
        assert "give the address of a Redis or Valkey that is not in cluster mode" in done.err


def gateway_with(tmp_path: Path, url: str) -> Done:
    """Return how a gateway ends that cannot start with the Redis at an address."""
    config = tmp_path / "gateway.json"
    config.write_text(json.dumps({"mcpServers": {}, "gateway": {"redis": url}}), "utf-8")
    words = ("gateway", "--config", str(config), "--http", "127.0.0.1:0", "--state-keys-env", "STATE_KEYS")
    return refused(*words, cwd=tmp_path)


def test_a_gateway_at_the_wrong_node_of_a_cluster_does_not_start_and_names_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_KEYS", "k" * 40)
    with redis_cluster(tmp_path) as (other, holder):
        done = gateway_with(tmp_path, other.url)

    assert done.code == 1
    assert f"give the address of that node (127.0.0.1:{holder.port})" in done.err
    assert "calls go on without" not in done.err


def test_a_gateway_whose_redis_refuses_its_password_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_KEYS", "k" * 40)
    with RedisServer(tmp_path, options={"requirepass": "right-word"}) as server:
        done = gateway_with(tmp_path, server.url.replace("//", "//:wrong-word@"))

    assert done.code == 1
    assert "refuses the user or the password" in done.err
    assert "word@" not in done.err
