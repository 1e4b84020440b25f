"""The files of deploy/: read, with the commands in them and the options that these commands know."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.cli.command import toolweave

__all__ = [
    "CALLS_SECONDS",
    "CHECKOUT",
    "DEPLOY",
    "WORKER_END_SECONDS",
    "Started",
    "compose",
    "documents",
    "done",
    "filled",
    "needed",
    "option",
    "pods",
    "started",
    "unit_of",
    "unknown_options",
]

CHECKOUT = Path(__file__).parents[2]
DEPLOY = CHECKOUT / "deploy"
CALLS_SECONDS = 30.0
"""Seconds that a gateway gives to calls under way after it has drained."""
WORKER_END_SECONDS = 8.0
"""Seconds that a worker takes at most after its grace."""


class Started(NamedTuple):
    """A command that a file starts, and the seconds that it is given to end."""

    where: str
    words: list[str]
    seconds: float

    @property
    def is_gateway(self) -> bool:
        """Whether it is a gateway, not a worker."""
        return self.words[0] == "gateway"


def needed(reason: str) -> None:
    """Skip the test for a missing tool; in CI, which installs all of them, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def compose() -> Any:
    """Return the Compose file, before its variables are filled in."""
    (found,) = documents(DEPLOY / "compose.yaml")
    return found


def pods() -> Iterator[tuple[str, Any]]:
    """Yield the pods of the manifests, each with its name."""
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in documents(path):
            if document["kind"] in ("Deployment", "StatefulSet"):
                yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def unit_of(name: str) -> dict[str, list[str]]:
    """Return the settings of a unit, by name."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd" / f"toolweave-{name}.service").read_text(encoding="utf-8").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def started() -> Iterator[Started]:
    """Yield the gateways and workers that the files start."""
    for name in ("gateway", "worker"):
        service = compose()["services"][name]
        yield Started(f"compose {name}", service["command"], float(service["stop_grace_period"].removesuffix("s")))
        unit = unit_of(name)
        program, *words = shlex.split(unit["ExecStart"][0])
        assert program == "/opt/toolweave/bin/toolweave"
        yield Started(f"systemd {name}", words, float(unit["TimeoutStopSec"][0]))
    for name, pod in pods():
        if not name.endswith("redis"):
            (container,) = pod["containers"]
            yield Started(f"kubernetes {name}", container["args"], float(pod["terminationGracePeriodSeconds"]))


def option(words: Sequence[str], name: str, default: float) -> float:
    """Return the number that a command line gives for an option."""
    for number, word in enumerate(words):
        if word == name:
            return float(words[number + 1])
        if word.startswith(f"{name}="):
            return float(word.partition("=")[2])
    return default


def unknown_options(words: Sequence[str]) -> list[str]:
    """Return the options of a command line that its command does not know."""
    known = _options_of("gateway run" if words[0] == "gateway" else words[0])
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]


@cache
def _options_of(command: str) -> frozenset[str]:
    """Return the options that the help of a command names."""
    return frozenset(re.findall(r"--[a-z-]+", toolweave(*command.split(), "--help").out))


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text of the Compose file with its variables, without their messages and defaults."""
    for name, value in values.items():
        while (at := text.find(f"${{{name}")) >= 0:
            text = text[:at] + value + text[text.index("}", at) + 1 :]
    return text.replace("$$", "$")


def done(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program of the system to its end."""
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120, check=False, **more)
