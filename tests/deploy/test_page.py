"""The commands of docs/deploy.md: each is run, as far as it needs no cluster, engine or service manager."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.deploy.files import CHECKOUT, DEPLOY, documents, done, needed, pods

PAGE = CHECKOUT / "docs" / "deploy.md"
HELM = CHECKOUT / ".cache" / "manifests" / "bin" / "python"


RENDER = """
import json, sys
import helm_python

values = {}
for text in sys.argv[2:]:
    name, _, value = text.partition("=")
    *path, last = name.split(".")
    inner = values
    for part in path:
        inner = inner.setdefault(part, {})
    inner[last] = {"true": True, "false": False}.get(value, value)
print(json.dumps(helm_python.Chart.load(sys.argv[1]).render(values, name="t")))
"""
"""Renders a chart with values as `helm install --set` has them."""


def commands() -> list[str]:
    """Return the commands of the page."""
    found = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in found for line in block.splitlines()]


def starting(*beginnings: str) -> list[str]:
    return [line for line in commands() if line.startswith(beginnings)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with a copy of deploy/."""
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns(".env"))
    return tmp_path


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return done("bash", "-euc", line, cwd=folder)


CONFIG = {"gateway.auth", "gateway.json"}
"""Names of the page that begin like values of the chart: a setting of the gateway's config, and its file."""
COPIES = ("cp ", "install ")
IMAGES = ("docker build ", "docker push ")
SERVICES = ("python3 -m venv ", "/opt/toolweave/bin/pip ", "systemctl ")


def test_each_command_has_a_test() -> None:
    tested = starting(
        *COPIES, *IMAGES, *SERVICES, "docker compose ", "kubectl create ", "kubectl apply ", "helm install "
    )
    assert tested == commands()
    assert len(tested) > 10


def test_files_are_copied_to_their_places(checkout: Path) -> None:
    for line in starting(*COPIES):
        copied = run(line.replace(" /etc/", " etc/"), checkout)
        if "systemd" in line:
            (checkout / "etc/systemd/system").mkdir(parents=True)
            copied = run(line.replace(" /etc/", " etc/"), checkout)
        assert copied.returncode == 0, copied.stderr
    assert (checkout / "deploy/.env").exists()
    assert (checkout / "etc/toolweave/gateway.env").stat().st_mode & 0o777 == 0o600
    assert "deploy/.env" in (CHECKOUT / ".gitignore").read_text().splitlines()
    unit = (checkout / "etc/systemd/system/toolweave-gateway.service").read_text()
    assert "/etc/toolweave/gateway.env" in unit
    assert "/etc/toolweave/gateway.json" in unit


def test_the_image_that_is_pushed_is_the_one_that_was_built_and_deployed() -> None:
    build, push = (shlex.split(line) for line in starting(*IMAGES))
    assert (CHECKOUT / build[build.index("-f") + 1]).is_file()
    assert build[build.index("-t") + 1] == push[-1]
    (helm,) = starting("helm install toolweave")
    assert f"image.repository={push[-1].rpartition(':')[0]}" in helm
    (chart,) = documents(DEPLOY / "helm" / "toolweave" / "Chart.yaml")
    assert push[-1].rpartition(":")[2] == chart["appVersion"]


@pytest.mark.slow
def test_compose_finds_its_settings_where_they_were_copied(checkout: Path) -> None:
    if shutil.which("docker-compose") is None:
        needed("no docker-compose on PATH (Debian: apt-get install docker-compose)")
    (copy,) = starting("cp ")
    assert run(copy, checkout).returncode == 0
    env = checkout / "deploy/.env"
    env.write_text(re.sub(r"=$", "=a-secret", env.read_text(), flags=re.MULTILINE))
    services = documents(DEPLOY / "compose.yaml")[0]["services"]
    known = done("docker-compose", "up", "--help").stdout
    for line in starting("docker compose "):
        words = shlex.split(line)
        assert words[2:5] == ["-f", "deploy/compose.yaml", "up"]
        assert [word for word in words[5:] if word.startswith("-") and word not in known] == []
        assert set(re.findall(r"--scale (\w+)=", line)) <= services.keys()
        shown = done("docker-compose", *words[2:4], "config", cwd=checkout)
        assert shown.returncode == 0, shown.stderr
        assert "a-secret" in shown.stdout


@pytest.mark.slow
def test_the_secrets_are_those_that_the_pods_read(checkout: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("platform: no kubectl on PATH")
    made: dict[str, set[str]] = {}
    for line in starting("kubectl create "):
        shown = run(f"ANTHROPIC_API_KEY=a-key; {line} --dry-run=client -o yaml", checkout)
        assert shown.returncode == 0, shown.stderr
        document = yaml.safe_load(shown.stdout)
        if document["kind"] == "Secret":
            made[document["metadata"]["name"]] = set(document["data"])
    wanted: set[tuple[str, str]] = set()
    for _, pod in pods():
        (container,) = pod["containers"]
        for one in container.get("env", []):
            if "valueFrom" in one:
                reference = one["valueFrom"]["secretKeyRef"]
                wanted.add((reference["name"], reference["key"]))
        for source in container.get("envFrom", []):
            assert source["secretRef"]["name"] in made
    assert {key for key in wanted if key[1] not in made[key[0]]} == set()
    (apply,) = starting("kubectl apply ")
    assert list((checkout / shlex.split(apply)[-1]).glob("*.yaml"))


@pytest.mark.slow
def test_the_chart_takes_the_values_of_the_page() -> None:
    if not HELM.exists():
        needed("Helm's library is not installed: scripts/manifests --install")
    found = re.findall(r"`((?:gateway|worker|redis)\.[\w.]+)(?:=(\w+))?`", PAGE.read_text(encoding="utf-8"))
    named = [one for one in found if one[0] not in CONFIG]
    given = [f"{name}={value}" for name, value in named if value]
    (install,) = starting("helm install toolweave")
    given.append(install.rpartition("--set ")[2])
    shown = done(HELM, "-c", RENDER, DEPLOY / "helm" / "toolweave", *given)
    assert shown.returncode == 0, shown.stderr
    assert "registry.example/toolweave:" in shown.stdout
    (values,) = documents(DEPLOY / "helm" / "toolweave" / "values.yaml")
    for name, _ in named:
        inner = values
        for part in name.split("."):
            assert part in inner, name
            inner = inner[part]


def test_the_adapter_provides_what_the_autoscaler_asks_for() -> None:
    (line,) = starting("helm install adapter")
    (adapter,) = documents(CHECKOUT / shlex.split(line)[-1])
    provided = {
        name for rule in adapter["rules"]["external"] for name in re.findall(r"toolweave_\w+", rule["seriesQuery"])
    }
    every = documents(DEPLOY / "kubernetes" / "worker.yaml")
    (scaler,) = [one for one in every if one["kind"] == "HorizontalPodAutoscaler"]
    assert provided == {metric["external"]["metric"]["name"] for metric in scaler["spec"]["metrics"]}


def test_the_extras_and_units_of_the_page_exist() -> None:
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (install,) = starting("/opt/toolweave/bin/pip ")
    (named,) = re.findall(r"toolweave\[([\w,]+)\]", install)
    assert set(named.split(",")) <= extras.keys()
    (venv,) = starting("python3 -m venv ")
    assert venv.split()[-1] == "/opt/toolweave"
    (enable,) = starting("systemctl ")
    assert (DEPLOY / "systemd" / f"{enable.split()[-1]}.service").is_file()
