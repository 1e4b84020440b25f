"""The examples of docs/scale.md for Compose, Kubernetes and systemd, and that of a team: valid, with known options."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import SNIPPETS, blocks, source_of
from toolweave.cli._commands.gateway import COMMAND
from toolweave.gateway import load_gateway_config

COMPOSE, KUBERNETES = SNIPPETS / "scale_compose.yaml", SNIPPETS / "scale_kubernetes.yaml"
UNIT = SNIPPETS / "scale_gateway.service"
CALLS_SECONDS = 30


def read(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def deployment() -> Any:
    return next(one for one in read(KUBERNETES) if one["kind"] == "Deployment")["spec"]["template"]["spec"]


def unit_setting(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    return found


def commands() -> Iterator[tuple[str, list[str], int]]:
    """Yield the command of each example, and the seconds that it is given to end."""
    (compose,) = read(COMPOSE)
    gateway = compose["services"]["gateway"]
    yield "compose", gateway["command"], int(gateway["stop_grace_period"].removesuffix("s"))
    pod = deployment()
    yield "kubernetes", pod["containers"][0]["command"], pod["terminationGracePeriodSeconds"]
    yield "systemd", shlex.split(unit_setting("ExecStart")), int(unit_setting("TimeoutStopSec"))


@pytest.mark.parametrize("kind", ["yaml", "ini"])
def test_a_block_is_the_file_it_names(kind: str) -> None:
    found = [block for block in blocks(kind) if block.source is not None]

    assert found
    for block in found:
        assert block.text == source_of(block.source or ""), block.where


@pytest.mark.parametrize(("name", "command", "seconds"), list(commands()), ids=[one[0] for one in commands()])
def test_its_command_is_one_and_may_end_in_peace(name: str, command: list[str], seconds: int) -> None:
    program, group, *words = command
    known = {option.names[0] for _, option in COMMAND.commands["run"].options}
    drain = next((float(word.partition("=")[2]) for word in words if word.startswith("--drain")), 2.0)

    assert (Path(program).name, group) == ("toolweave", "gateway")
    assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in known] == []
    assert seconds > drain + CALLS_SECONDS


def test_its_probes_ask_for_what_the_gateway_answers() -> None:
    (container,) = deployment()["containers"]

    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_its_config_is_one_with_the_redis_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:secret@redis:6379/0")
    config = load_gateway_config(SNIPPETS / "scale_gateway.json")

    assert config.redis is not None
    assert config.redis.reveal() == "redis://:secret@redis:6379/0"
    assert "secret@" not in repr(config)
    assert "REDIS_URL" in json.dumps(read(COMPOSE))


def test_the_config_of_the_team_gives_each_person_a_key_and_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADA_KEY", "a key of more than sixteen characters")
    monkeypatch.setenv("BUILD_KEY", "another key of more than sixteen characters")
    config = load_gateway_config(SNIPPETS / "team_gateway.json")

    assert config.auth is not None
    assert len(config.middleware) == 3
    assert "sixteen" not in repr(config)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="platform: it has no systemd")
def test_the_unit_is_one(tmp_path: Path) -> None:
    program = tmp_path / "toolweave"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "toolweave-gateway.service"
    unit.write_text(UNIT.read_text().replace("/opt/toolweave/bin/toolweave", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )

    own = [line for line in done.stderr.splitlines() if "toolweave-gateway" in line]
    assert own == []
