"""One run of `toolweave tools` over every server of servers.json, and the raw wire's word for each of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.real.machine import BROKEN, runnable
from tests.real.raw_wire import RawListing, RawWireError, list_tools
from tests.reference.materials import make_work

START = 240
"""Seconds a server has to answer: some install themselves first, one waits 130 s for the network."""

BUSY = ("did not finish connecting within", "npm error Lock compromised")


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files, the database and the repository that the calls of servers.json name."""
    return make_work(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="session")
def entries(shared_data: Path, work: Path, homes: Path) -> dict[str, dict[str, Any]]:
    """Every entry of servers.json, runnable on this machine."""
    return runnable(shared_data / "servers.json", work=work, home=homes / "real")


@pytest.fixture(scope="session")
def listed(entries: dict[str, dict[str, Any]], work: Path) -> dict[str, Any]:
    """What `toolweave tools --json` prints for all servers and the broken ones, in one run."""
    servers = {name: {"timeout": START, **entry} for name, entry in entries.items()}
    config = work / "all.json"
    config.write_text(json.dumps({"mcpServers": {**BROKEN, **servers}}))
    listed = _tools(config, work)
    for name, server in listed["servers"].items():
        # silent for long: left out beside others, waited for when it is alone. On a small machine installers may be
        # starved by those of 57 others, which says nothing about a connection
        starved = name not in BROKEN and any(text in (server["error"] or "") for text in BUSY)
        if server["state"] == "connecting" or starved:
            alone = _tools(config, work, "--server", name)
            listed["servers"][name] = alone["servers"][name]
            listed["tools"] += alone["tools"]
    return listed


def _tools(config: Path, work: Path, *options: str) -> dict[str, Any]:
    program = str(Path(sys.executable).with_name("toolweave"))
    command = [program, "tools", "--config", str(config), "--json", *options]
    done = subprocess.run(command, cwd=work, capture_output=True, timeout=START + 120, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-5000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def raw(
    entries: dict[str, dict[str, Any]], listed: dict[str, Any], work: Path
) -> Callable[[str], RawListing | RawWireError]:
    """What the raw wire lists, taken in the era Toolweave negotiated; four servers at a time."""

    def era(name: str) -> Any:
        version = listed["servers"][name]["protocol_version"]
        return "auto" if version is None else "modern" if version == "2026-07-28" else "legacy"

    def listing(name: str) -> RawListing | RawWireError:
        try:
            return list_tools(entries[name], cwd=work, era=era(name), timeout=START)
        except RawWireError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(entries, pool.map(listing, entries), strict=True))
    return found.__getitem__
