"""The image recipe, the Compose file, the manifests and the units: what they start, and with which rights."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.files import (
    CALLS_SECONDS,
    CHECKOUT,
    DEPLOY,
    WORKER_END_SECONDS,
    Started,
    compose,
    documents,
    done,
    needed,
    option,
    pods,
    started,
    unit_of,
    unknown_options,
)
from toolweave.gateway import load_gateway_config
from toolweave.version import VERSION

CHART = DEPLOY / "helm" / "toolweave"
RECIPE = DEPLOY / "Containerfile"
UID = 10001


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the image recipe."""
    text = re.sub(r"\\\n\s*", "", RECIPE.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def last_stage() -> dict[str, list[str]]:
    """Return what the instructions of the last stage of the recipe say, by instruction."""
    found: dict[str, list[str]] = {}
    for word, rest in instructions():
        if word == "FROM":
            found = {}
        found.setdefault(word, []).append(rest)
    return found


# commands


@pytest.mark.parametrize("one", list(started()), ids=lambda one: one.where)
def test_each_command_has_options_that_exist_and_time_to_end(one: Started) -> None:
    assert unknown_options(one.words) == []
    if one.is_gateway:
        assert one.seconds > option(one.words, "--drain", 2) + CALLS_SECONDS
    else:
        assert one.words[0] == "worker"
        assert one.seconds > option(one.words, "--grace", 20) + WORKER_END_SECONDS


def test_the_config_of_gateways_is_one_and_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:secret@redis:6379/0")
    monkeypatch.setenv("TOOLWEAVE_BACKEND", "redis://:secret@redis:6379/1")
    config = load_gateway_config(DEPLOY / "config" / "gateway.json")
    assert config.redis is not None
    assert config.runs is not None
    assert (config.redis.reveal(), config.runs.reveal()) == (
        "redis://:secret@redis:6379/0",
        "redis://:secret@redis:6379/1",
    )

    for name in ("gateway.json", "worker.json"):
        (mapped,) = [text for text in config_maps() if name in text]
        assert json.loads(mapped[name]) == json.loads((DEPLOY / "config" / name).read_text())
    (redis,) = [text["redis.conf"] for text in config_maps() if "redis.conf" in text]
    own = (DEPLOY / "config" / "redis.conf").read_text().splitlines()
    assert redis.split() == [word for line in own if not line.startswith("#") for word in line.split()]


def config_maps() -> list[dict[str, str]]:
    every = [one for path in (DEPLOY / "kubernetes").glob("*.yaml") for one in documents(path)]
    return [one["data"] for one in every if one["kind"] == "ConfigMap"]


# the image


def test_the_image_has_one_entry_point_a_fixed_user_and_a_probe_and_no_compiler() -> None:
    stage = last_stage()
    assert stage["ENTRYPOINT"] == ['["toolweave"]']
    assert stage["USER"] == [f"{UID}:{UID}"]
    assert stage["VOLUME"] == ['["/data"]']
    assert "/healthz" in "".join(stage["ENV"])
    assert "HEALTH_URL" in stage["HEALTHCHECK"][0]
    assert stage["STOPSIGNAL"] == ["SIGTERM"]
    assert stage["COPY"] == ["--from=build /opt/toolweave /opt/toolweave"]
    assert "ADD" not in {word for word, _ in instructions()}


def test_the_recipe_copies_what_exists_and_never_installs_as_it_pleases() -> None:
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            *sources, _ = rest.split()
            assert [one for one in sources if not (CHECKOUT / one).exists()] == []
        if word == "RUN":
            assert not re.search(r"\bsudo\b|curl|wget|chmod [0-7]*7[0-7]?7|apt-get(?!.*--no-install-recommends)", rest)
        if word == "FROM" and not rest.startswith("${PYTHON_IMAGE}"):
            raise AssertionError(rest)
    (install,) = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    assert "--constraint constraints.txt" in install
    assert "--no-cache-dir" in install
    (base,) = [rest for word, rest in instructions() if word == "ARG"]
    assert re.search(r":3\.\d+-slim", base)


@pytest.mark.slow
def test_the_image_is_built_where_an_engine_and_its_base_are() -> None:
    if shutil.which("docker") is None or done("docker", "info").returncode:
        pytest.skip("platform: no container engine runs here")
    if done("docker", "image", "inspect", "python:3.13-slim-bookworm").returncode:
        pytest.skip("platform: the engine does not have the image of Python, and tests do not fetch it")
    built = done("docker", "build", "--network", "host", "-f", RECIPE, "-t", "toolweave-test", CHECKOUT)
    assert built.returncode == 0, built.stderr
    shown = done("docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", "toolweave-test", "--version")
    assert VERSION in shown.stdout


# Compose


def test_services_have_no_more_rights_than_they_need() -> None:
    services = compose()["services"]
    assert services.keys() == {"gateway", "worker", "redis", "balancer"}
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp"], name
    for name in ("gateway", "worker", "redis"):
        assert "ports" not in services[name], name
        assert services[name]["healthcheck"]["test"], name
    for volume in [one for service in services.values() for one in service["volumes"]]:
        source = volume.partition(":")[0]
        assert source in compose()["volumes"] or (volume.endswith(":ro") and (DEPLOY / source).is_file()), volume


def compose_commands() -> list[list[str]]:
    """Return the commands of Compose that this machine has."""
    found: list[list[str]] = []
    if shutil.which("docker-compose"):
        found.append(["docker-compose"])
    if shutil.which("docker") and done("docker", "compose", "version").returncode == 0:
        found.append(["docker", "compose"])
    return found


@pytest.mark.slow
def test_compose_takes_its_file_and_asks_for_each_secret(tmp_path: Path) -> None:
    if not compose_commands():
        needed("no docker-compose on PATH (Debian: apt-get install docker-compose)")
    example = (DEPLOY / "compose.env.example").read_text()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    (tmp_path / "empty.env").write_text("")
    (tmp_path / "full.env").write_text(re.sub(r"=$", "=a-secret", example, flags=re.MULTILINE))
    for command in compose_commands():
        words = [*command, "-f", DEPLOY / "compose.yaml"]
        missing = done(*words, "--env-file", tmp_path / "empty.env", "config", env=env, cwd=tmp_path)
        assert missing.returncode != 0
        full = done(*words, "--env-file", tmp_path / "full.env", "config", env=env, cwd=tmp_path)
        assert (full.returncode, full.stderr) == (0, "")
        shown = yaml.safe_load(full.stdout)
        assert shown["services"]["gateway"]["environment"]["REDIS_URL"] == "redis://:a-secret@redis:6379/0"
        assert "--allow-host=tools.example" in shown["services"]["gateway"]["command"]


# Kubernetes


def test_pods_are_restricted_and_probed_on_routes_that_exist() -> None:
    found = dict(pods())
    assert found.keys() == {"toolweave-gateway", "toolweave-worker", "toolweave-redis"}
    for name, pod in found.items():
        (container,) = pod["containers"]
        security: Any = pod["securityContext"]
        assert security["runAsNonRoot"], name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert container["resources"].keys() == {"limits", "requests"}, name
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys(), name
    for name in ("toolweave-gateway", "toolweave-worker"):
        (container,) = found[name]["containers"]
        assert found[name]["securityContext"]["runAsUser"] == UID
        assert len(found[name]["topologySpreadConstraints"]) == 2
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        port = container["livenessProbe"]["httpGet"]["port"]
        (number,) = [one["containerPort"] for one in container["ports"] if one["name"] == port]
        assert f"--http=0.0.0.0:{number}" in container["args"]


def test_the_chart_is_of_this_version() -> None:
    (chart,) = documents(CHART / "Chart.yaml")
    assert chart["appVersion"] == VERSION


@pytest.mark.slow
def test_the_manifests_are_those_of_the_chart_and_valid() -> None:
    if not (CHECKOUT / ".cache" / "manifests" / "bin" / "python").exists():
        needed("Helm's library and kubernetes-validate are not installed: scripts/manifests --install")
    checked = done(CHECKOUT / "scripts" / "manifests", "--check")
    assert (checked.returncode, checked.stdout) == (
        0,
        "3 files as the chart has them, 3 variants valid\n",
    ), checked.stdout + checked.stderr


# systemd


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_units_are_valid_and_well_confined(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        needed("no systemd-analyze on PATH (Debian: apt-get install systemd)")
    program = tmp_path / "toolweave"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = DEPLOY / "systemd" / f"toolweave-{name}.service"
    unit = tmp_path / file.name
    unit.write_text(file.read_text().replace("/opt/toolweave/bin/toolweave", str(program)))

    verified = done("systemd-analyze", "verify", unit)
    assert [line for line in verified.stderr.splitlines() if file.name in line] == []
    scored = done("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
    assert scored.returncode == 0, scored.stdout
    settings = unit_of(name)
    assert (settings["KillSignal"], settings["KillMode"], settings["Type"]) == (["SIGTERM"], ["mixed"], ["exec"])
