"""A folder for the servers to work on, and the two servers of npm: as an agent takes them, and as processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.leftovers import Process, descendants, processes
from tests.reference.servers import INSTALLED, stdio_entries

__all__ = ["npm_servers", "overheard", "running"]


def npm_servers(work: Path) -> dict[str, dict[str, Any]]:
    """Return the everything server and the filesystem server, which works in a folder, by the names used here."""
    entries = stdio_entries(work)
    return {"everything": entries["everything"], "files": entries["filesystem"]}


def overheard(entry: Mapping[str, Any], log: Path) -> dict[str, Any]:
    """Return an entry of the same server that keeps what it is sent in a file."""
    command = 'tee "$0" | "$@"'
    return {**entry, "command": "sh", "args": ["-c", command, str(log), entry["command"], *entry["args"]]}


def running(server: str, below: int | None = None) -> list[Process]:
    """Return the processes below this one, or another, that run a server of npm."""
    table = processes()
    ours = descendants(table, below or os.getpid())
    return [row for row in table if row.pid in ours and "node" in row.command.split(" ")[0] and server in row.command]


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    if not (INSTALLED / "npm" / ".installed").exists():
        pytest.fail(f"{INSTALLED / 'npm'} is missing; run scripts/reference-servers", pytrace=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with one text."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("first line\n")
    return folder


@pytest.fixture
def servers(work: Path) -> dict[str, dict[str, Any]]:
    """The two servers."""
    return npm_servers(work)
