"""The client half and the server half stand alone: each runs where the other's dependencies are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVER_ONLY = ("mcp", "mcp_types", "starlette", "uvicorn", "sse_starlette", "python_multipart", "jwt")
CLIENT_ONLY = ("httptools", "yaml", "platformdirs", "rich", "typer", "mcp", "mcp_types", "starlette", "uvicorn")

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""

CLIENT = """
import anyio, sys
from toolweave import connect_mcp, connect_mcp_servers

async def main():
    async with connect_mcp({"command": sys.executable, "args": ["-c", sys.argv[1]]}) as connection:
        print((await connection.call_tool("add", {"a": 1, "b": 2})).text)
    async with connect_mcp_servers({"sums": {"command": sys.executable, "args": ["-c", sys.argv[1]]}}) as hub:
        print(*(spec.name for spec in hub.snapshot()))

anyio.run(main)
print("serve", any(name.startswith("toolweave.serve") for name in sys.modules))
"""

SERVER = """
import sys
from toolweave import create_mcp_server

def add(a: int, b: int) -> int:
    return a + b

create_mcp_server(name="sums", version="1", tools=[add]).run_stdio()
foreign = [name for name in sys.modules if name.startswith(("toolweave.connect", "toolweave.hub", "toolweave.cli"))]
assert not foreign, foreign
"""


def run(code: str, *arguments: str, missing: tuple[str, ...]) -> str:
    """Run a program in an interpreter that has not got some packages."""
    program = WITHOUT.format(missing=set(missing)) + code
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.requirement("R87")
def test_the_client_half_works_without_what_serving_needs() -> None:
    out = run(CLIENT, WITHOUT.format(missing=set(CLIENT_ONLY)) + SERVER, missing=SERVER_ONLY)

    assert out.splitlines() == ["3", "sums_add", "serve False"]


@pytest.mark.requirement("R87")
def test_a_server_over_stdio_works_without_what_connecting_needs() -> None:
    hello = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    program = WITHOUT.format(missing=set(CLIENT_ONLY)) + SERVER
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        input=hello,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == '{"jsonrpc":"2.0","id":1,"result":{}}\n'
