"""The clients of others use a server of ours: each over stdio and HTTP, in every era that it knows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.server_process import serving
from tests.conformance.suite import node
from tests.programs import ran
from tests.reference.servers import INSTALLED

pytestmark = [pytest.mark.reference, pytest.mark.slow]

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
NOTES = (sys.executable, "-W", "error", str(HERE / "notes.py"))
SECONDS = 120

PYTHON_SDK = (sys.executable, str(CLIENTS / "python_sdk.py"))
FASTMCP = (str(INSTALLED / "fastmcp" / "bin" / "python"), str(CLIENTS / "fastmcp_client.py"))
TYPESCRIPT = (str(CLIENTS / "typescript.mjs"), str(INSTALLED / "npm"))

VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
KNOWN = {
    "python-sdk": ("legacy", "modern"),
    "fastmcp": ("legacy", "modern"),
    "typescript-sdk-1": ("legacy",),
    "typescript-sdk-2": ("legacy", "modern"),
}
"""The eras that each client knows."""


def command_of(client: str) -> tuple[str, ...]:
    """Return the command of a client; its arguments are the era and the target."""
    if client == "python-sdk":
        return PYTHON_SDK
    if client == "fastmcp":
        return FASTMCP
    return (node(), *TYPESCRIPT, "sdk" if client.endswith("1") else "client")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server over HTTP."""
    with serving(tmp_path_factory.mktemp("notes") / "log", command=NOTES) as url:
        yield url


@pytest.fixture(scope="module", params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The server as a command, or its URL."""
    return NOTES if request.param == "stdio" else (request.getfixturevalue("url"),)


@pytest.mark.requirement("C4", "R83", "R109")
@pytest.mark.parametrize(("client", "era"), [(client, era) for client, eras in KNOWN.items() for era in eras])
def test_a_foreign_client_lists_calls_reads_and_answers(client: str, era: str, target: tuple[str, ...]) -> None:
    seen = run((*command_of(client), era, *target))

    progress = seen.pop("progress")
    version = seen.pop("version")
    assert version in (VERSIONS[era], None)  # one that does not tell cannot be asked
    assert progress == sorted(progress)
    assert progress[0] == [1, 3]
    if not client.startswith("typescript"):  # that one drops the news that arrive together with the answer
        assert progress[-1] == [3, 3]
    assert seen == {
        "tools": ["add", "count", "greet", "fail"],
        "sum": "5",
        "counted": "counted to 3",
        "greeting": "Hello, Ada!",
        "failure": "there is no such note",
        "resource": "A loom weaves cloth.",
        "prompt": "Explain weft to a weaver.",
    }


def run(command: tuple[str, ...]) -> dict[str, Any]:
    """Run a client and return what it saw."""
    done = ran(command, seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
