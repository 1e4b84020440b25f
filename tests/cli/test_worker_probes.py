"""The port of a worker: what orchestrators, Prometheus and autoscalers read of a worker and of a gateway."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import toolweave
from tests.cli.working import app_in, worker
from tests.gateway.running import Spoken, gateway, spoken, until, write_gateway_config
from tests.programs import free_port
from tests.redis_server import RedisServer

pytestmark = pytest.mark.slow


def asked(address: str, path: str, method: str = "GET") -> Spoken:
    return spoken(address, method, path)


def figure(page: str, name: str, topic: str = "runs:clerk") -> float | None:
    found = re.search(rf'^{name}{{[^}}]*topic="{topic}"[^}}]*}} (\S+)$', page, re.MULTILINE)
    return None if found is None else float(found[1])


def queued_of(page: str) -> tuple[float | None, float | None]:
    return figure(page, "toolweave_queued_jobs"), figure(page, "toolweave_oldest_queued_job_seconds")


def spawn(url: str, message: str = "hello") -> str:
    done = toolweave("runs", "spawn", message, "--backend", url, "--agent", "clerk")
    assert done.code == 0, done.err
    return done.out.strip()


def test_a_worker_is_ready_while_it_accepts_jobs_and_alive_until_it_has_ended(folder: Path, redis_url: str) -> None:
    with worker(app_in(folder), "--backend", redis_url, "--http", "0", cwd=folder) as working:
        address: str = working.wait_for("started")["http"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
        assert [(asked(address, path).status, asked(address, path).text) for path in ("/healthz", "/readyz")] == [
            (200, "ok"),
            (200, "ready"),
        ]
        assert asked(address, "/readyz", "HEAD").status == 200
        assert (asked(address, "/readyz", "POST").status, asked(address, "/metrics").status) == (405, 404)

        spawn(redis_url, "an order")
        working.wait_for("begun")
        until(lambda: "looking" in (folder / "effects.txt").read_text(), "its second call")
        working.process.send_signal(signal.SIGTERM)
        working.wait_for("stopping")
        assert (asked(address, "/readyz").status, asked(address, "/readyz").text) == (503, "stopping")
        assert asked(address, "/healthz").status == 200
        (folder / "go").touch()
        assert working.end() == 0


def test_a_worker_counts_its_jobs_and_those_that_wait(folder: Path, redis_url: str) -> None:
    options = ("--backend", redis_url, "--http", "0", "--metrics", "--concurrency", "1")
    with worker(app_in(folder), *options, cwd=folder) as working:
        address = working.wait_for("started")["http"]
        page = asked(address, "/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert queued_of(page.text) == (0, 0)
        assert figure(page.text, "toolweave_worker_jobs_in_progress") == 0

        began = time.time()
        spawn(redis_url, "an order")
        working.wait_for("begun")
        spawn(redis_url)
        spawn(redis_url)
        until(lambda: figure(asked(address, "/metrics").text, "toolweave_queued_jobs") == 2, "two runs that wait")
        page = asked(address, "/metrics")
        count, oldest = queued_of(page.text)
        assert count == 2
        assert oldest is not None
        assert 0 < oldest <= time.time() - began
        assert figure(page.text, "toolweave_worker_jobs_in_progress") == 1

        (folder / "go").touch()
        for _ in range(3):
            working.wait_for("completed")
        until(lambda: queued_of(asked(address, "/metrics").text) == (0, 0), "an empty queue")
        page = asked(address, "/metrics")
        assert figure(page.text, "toolweave_worker_jobs_in_progress") == 0
        assert figure(page.text, "toolweave_worker_jobs_total") == 3
        assert 'outcome="completed"' in page.text


def test_figures_of_a_queue_that_cannot_be_read_are_not_numbers(tmp_path: Path, folder: Path) -> None:
    with RedisServer(tmp_path) as server:
        options = ("--backend", server.url, "--http", "0", "--metrics")
        with worker(app_in(folder), *options, cwd=folder) as working:
            address = working.wait_for("started")["http"]
            assert queued_of(asked(address, "/metrics").text) == (0, 0)
            server.kill()

            def is_nan() -> bool:
                count, oldest = queued_of(asked(address, "/metrics").text)
                return math.isnan(count or 0) and math.isnan(oldest or 0)

            until(is_nan, "figures without a store")
            assert asked(address, "/healthz").status == 200


@pytest.mark.parametrize("place", ["redis", "sqlite"])
def test_a_gateway_shows_the_queue_of_its_store_of_runs(place: str, tmp_path: Path, request: Any) -> None:
    if place == "redis":
        url = request.getfixturevalue("redis_url")
        spawn(url)
    else:
        url = str(tmp_path / "runs.db")
        submit_into(tmp_path, url)
    config = write_gateway_config(tmp_path, {})
    with gateway(tmp_path, config, "--metrics", "--runs", url) as running:
        count, oldest = queued_of(running.spoken("GET", "/metrics").text)

    assert count == 1
    assert oldest is not None
    assert oldest > 0


def submit_into(folder: Path, path: str) -> None:
    """Submit a run to an agent whose jobs are noted in a file."""
    program = (
        "import asyncio, sys\nfrom toolweave import Agent, Backend, ScriptedModel\n"
        "from toolweave.state import SqliteStore\n"
        "async def main():\n    async with Backend('memory://', store=SqliteStore(sys.argv[1])) as backend:\n"
        "        await Agent(ScriptedModel(['x']), name='clerk', backend=backend).submit('hello')\n"
        "asyncio.run(main())\n"
    )
    (folder / "submit.py").write_text(program, "utf-8")
    subprocess.run([sys.executable, str(folder / "submit.py"), path], check=True, timeout=60)


def test_a_port_that_is_taken_or_not_needed_is_an_error(folder: Path, redis_url: str) -> None:
    app = app_in(folder)
    with worker(app, "--backend", redis_url, "--http", "0", cwd=folder) as working:
        address = working.wait_for("started")["http"]
        port = address.rpartition(":")[2]
        done = toolweave("worker", app, "--backend", redis_url, "--http", port)
        assert done.code != 0
        assert f"cannot listen on {port}" in done.err
    done = toolweave("worker", app, "--backend", redis_url, "--metrics")
    assert done.code == 2
    assert "--http" in done.err
    done = toolweave("worker", app, "--backend", f"redis://127.0.0.1:{free_port()}/0", "--http", "0", "--wait", "0")
    assert done.code == 3
