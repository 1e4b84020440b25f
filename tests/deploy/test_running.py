"""The services of the Compose file as processes: a run uses a tool of the gateway, and the dashboard has figures."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.command import COMMAND, toolweave
from tests.deploy.files import DEPLOY, compose, documents, filled
from tests.gateway.running import Spoken, spoken, until
from tests.programs import free_port
from tests.redis_server import NO_SERVER

pytestmark = pytest.mark.slow

FIGURES = re.compile(r"^# TYPE (\w+) (\w+)$", re.MULTILINE)
METRIC = re.compile(r"\btoolweave_\w+")


class Services(NamedTuple):
    """The addresses of what runs."""

    gateway: str
    worker: str
    backend: str
    token: str


@contextmanager
def process(words: list[str], env: Mapping[str, str], folder: Path) -> Generator[subprocess.Popen[str]]:
    """Run a service, which has to end in peace."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the image has the package in its python3, too
    with (
        (folder / f"{words[-1].replace('/', '_')[:20]}.log").open("w") as log,
        subprocess.Popen(
            words, env={"PATH": path, "HOME": str(folder), **env}, cwd=folder, stdout=log, stderr=log, text=True
        ) as one,
    ):
        try:
            yield one
            one.send_signal(signal.SIGTERM)
            assert one.wait(60) == 0
        finally:
            one.kill()


def ready(address: str) -> bool:
    try:
        return spoken(address, "GET", "/readyz").status == 200
    except OSError:
        return False


def probed(service: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Return whether the health check of a service succeeds."""
    kind, *words = service["healthcheck"]["test"]
    command = ["sh", "-c", words[0].replace("$$", "$")] if kind == "CMD-SHELL" else [sys.executable, *words[1:]]
    env = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(command, env=env, timeout=30, check=False, capture_output=True).returncode == 0


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """Run Redis, the gateway and the worker by the commands of the Compose file, on ports of this machine."""
    if shutil.which("redis-server") is None:
        pytest.skip(NO_SERVER)
    folder = tmp_path
    found = compose()["services"]
    ports = {name: free_port() for name in ("redis", "gateway", "worker")}
    values = {
        "PUBLIC_HOST": "tools.example",
        "GATEWAY_TOKEN": "a-token-of-the-gateway-0123456789",
        "STATE_KEYS": "a-key-of-the-gateways-0123456789-0123456789",
        "REDIS_PASSWORD": "a-password",
        "TOOLWEAVE_MODEL": "command",
        "ANTHROPIC_API_KEY": "",
    }

    def here(text: str) -> str:
        text = filled(text, values).replace("/etc/toolweave", str(DEPLOY / "config")).replace("0.0.0.0", "127.0.0.1")
        for name, port in (("redis", "6379"), ("gateway", "8000"), ("worker", "8001")):
            text = text.replace(f"{name}:{port}", f"127.0.0.1:{ports[name]}")
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{ports[name]}")
        return text

    def environment(name: str) -> dict[str, str]:
        own = {key: here(value) for key, value in found[name]["environment"].items()}
        return {"HEALTH_URL": f"http://127.0.0.1:{ports[name]}/healthz", **own}

    (folder / "redis.conf").write_text(
        (DEPLOY / "config" / "redis.conf").read_text().replace("/data", str(folder)) + f"port {ports['redis']}\n"
    )
    (shell, flag, script) = found["redis"]["command"]
    script = here(script).replace("/etc/redis.conf", "redis.conf").replace("/tmp/redis.conf", "with-password.conf")
    with ExitStack() as stack:
        redis = environment("redis")
        stack.enter_context(process([shell, flag, script], redis, folder))
        checked = {**found["redis"], "healthcheck": {"test": list(found["redis"]["healthcheck"]["test"])}}
        checked["healthcheck"]["test"][1] = checked["healthcheck"]["test"][1].replace(
            "ping", f"-p {ports['redis']} ping"
        )
        until(lambda: probed(checked, redis), "Redis")
        assert (folder / "with-password.conf").stat().st_mode & 0o077 == 0
        for name in ("gateway", "worker"):
            words = [*COMMAND, *(here(word) for word in found[name]["command"])]
            stack.enter_context(process(words, environment(name), folder))
            address = f"http://127.0.0.1:{ports[name]}"
            until(lambda address=address: ready(address), name)
            assert probed(found[name], environment(name))
        urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        backend = environment("worker")["TOOLWEAVE_BACKEND"]
        yield Services(urls["gateway"], urls["worker"], backend, values["GATEWAY_TOKEN"])


def page_of(address: str) -> str:
    found: Spoken = spoken(address, "GET", "/metrics")
    assert found.status == 200
    return found.text


def names_of(page: str) -> set[str]:
    """Return the names of the series of a page."""
    found: set[str] = set()
    for name, kind in FIGURES.findall(page):
        if kind == "counter":
            found.add(name)
        elif kind == "histogram":
            found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        else:
            found.add(name)
    return found


def test_a_run_is_done_by_the_worker_with_a_tool_of_the_gateway(services: Services) -> None:
    assert spoken(services.gateway, "POST", "/mcp", {}).status == 401
    assert spoken(services.gateway, "POST", "/mcp", {}, {"authorization": f"Bearer {services.token}"}).status == 400

    asked = '/call team_notes_search_notes {"query": "MCP"}'
    env = {"TOOLWEAVE_BACKEND": services.backend}
    spawned = toolweave("runs", "spawn", asked, env=env)
    assert spawned.code == 0, spawned.err

    def status() -> str:
        return toolweave("runs", "show", spawned.out.strip(), "--json", env=env).json["status"]

    until(lambda: status() not in ("pending", "running", "interrupted"), "the run")
    shown = toolweave("runs", "show", spawned.out.strip(), env=env)
    assert "notes" in json.loads(shown.out), shown
    calls = [line for line in page_of(services.gateway).splitlines() if line.startswith("toolweave_tool_calls_total")]
    assert calls == ['toolweave_tool_calls_total{outcome="ok",tool="search_notes",upstream="notes"} 1.0']


def test_the_dashboard_shows_each_metric_and_the_autoscaler_uses_those_of_the_queue(services: Services) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "toolweave.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    shown = {name for panel in panels for target in panel["targets"] for name in METRIC.findall(target["expr"])}
    exported = names_of(page_of(services.gateway)) | names_of(page_of(services.worker))
    exported = {name for name in exported if not name.endswith("_created")}

    assert shown - exported == set()
    assert exported - shown == set()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)

    (scaler,) = [
        one for one in documents(DEPLOY / "kubernetes" / "worker.yaml") if one["kind"] == "HorizontalPodAutoscaler"
    ]
    assert {metric["external"]["metric"]["name"] for metric in scaler["spec"]["metrics"]} <= exported
