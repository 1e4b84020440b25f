"""A folder for the servers to work on, and the two servers of npm as an agent takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reference.servers import INSTALLED, stdio_entries

__all__ = ["npm_servers"]


def npm_servers(work: Path) -> dict[str, dict[str, Any]]:
    """Return the everything server and the filesystem server, which works in a folder, by the names used here."""
    entries = stdio_entries(work)
    return {"everything": entries["everything"], "files": entries["filesystem"]}


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
