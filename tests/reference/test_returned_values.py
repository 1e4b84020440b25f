"""What functions return, as clients of others get and check it: over stdio and HTTP, directly and through a gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.server_process import serving
from tests.programs import ran
from tests.reference.servers import INSTALLED
from tests.serve.returned import RETURNED
from toolweave.schema import Validator

pytestmark = [pytest.mark.reference, pytest.mark.slow]

SCRIPT = str(Path(__file__).parent / "clients" / "returned_values.py")
PYTHONS = {"sdk": sys.executable, "fastmcp": str(INSTALLED / "fastmcp" / "bin" / "python")}
SERVER = (sys.executable, "-m", "tests.serve.returned")
OBJECTS = ("model", "data_class", "typed_dict", "mapping", "objects")
SECONDS = 180


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The server over HTTP."""
    with serving(tmp_path / "log", command=SERVER) as url:
        yield url


@pytest.fixture(params=["stdio", "http", "gateway"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """The server as a command, its URL, or a gateway before it as a command."""
    if request.param == "stdio":
        return SERVER
    url = request.getfixturevalue("url")
    if request.param == "http":
        return (url,)
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"up": {"type": "http", "url": url, "tool_prefix": ""}}}))
    return (sys.executable, "-m", "toolweave", "gateway", "--config", str(config))


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("client", list(PYTHONS))
def test_a_foreign_client_gets_the_value_of_every_return_type(client: str, era: str, target: tuple[str, ...]) -> None:
    command = (PYTHONS[client], SCRIPT, client, era, *target)
    done = ran(command, seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])

    assert seen.keys() == {function.__name__ for function in RETURNED}
    for function, value in RETURNED.items():
        name = function.__name__
        found = seen[name]
        is_wrapped = era == "legacy" and name not in OBJECTS
        assert found["structured"] == ({"result": value} if is_wrapped else value), name
        assert Validator(found["schema"]).is_valid(found["structured"]), name
        assert found.get("data", value) == value, name
