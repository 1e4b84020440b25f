"""The client half and the server half stand alone: each runs where the other's dependencies are missing.

`.ci/run` does the same with the wheel, in environments that have only what one half needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs import ran

pytestmark = pytest.mark.slow

HALVES = Path(__file__).parent / "halves"
SERVER_ONLY = ("mcp", "mcp_types", "starlette", "uvicorn", "sse_starlette", "jwt")
CLIENT_ONLY = ("httptools", "yaml", "platformdirs", "rich", "shellingham", "mcp", "mcp_types", "starlette", "uvicorn")

WITHOUT = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def command(half: str, missing: tuple[str, ...]) -> list[str]:
    """Return the command that runs one half in an interpreter that has not got some packages."""
    return [sys.executable, "-W", "error", "-c", WITHOUT.format(missing=set(missing)), str(HALVES / half)]


def run(line: list[str], text: str = "") -> str:
    """Run a program and return its output."""
    done = ran(line, given=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.requirement("R87")
def test_the_client_half_works_without_what_serving_needs() -> None:
    out = run([*command("client.py", SERVER_ONLY), *command("server.py", CLIENT_ONLY)])

    assert out.splitlines() == ["3", "sums_add", "serve loaded: False"]


@pytest.mark.requirement("R87")
def test_a_server_over_stdio_works_without_what_connecting_needs() -> None:
    out = run(command("server.py", CLIENT_ONLY), '{"jsonrpc":"2.0","id":1,"method":"ping"}\n')

    assert out == '{"jsonrpc":"2.0","id":1,"result":{}}\n'
