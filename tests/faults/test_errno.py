"""Operating system calls that fail, one after the other: a clear error, nothing half written, nothing left running."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ran

SITE = Path(__file__).with_name("errno_site")
BUNDLE = Path(__file__).parents[1] / "fuzz" / "corpus" / "bundles" / "stored"
CODES = ("EMFILE", "ENOSPC", "EIO", "EACCES", "ENOENT", "EPIPE", "ECONNRESET", "EINTR")
OLD = {"mcpServers": {"old": {"command": "old"}}}
PROGRAM = """
from toolweave import create_mcp_server, tool

@tool
def add(a: int, b: int) -> int:
    return a + b

server = create_mcp_server(name="numbers", version="1", tools=[add])

if __name__ == "__main__":
    server.run()
"""
COMMANDS = {
    "install": ["install", "./a.mcpb", "--config", "mcp.json", "--yes", "--set-env", "key=SECRET"],
    "stdio": ["call", "numbers_add", "a=1", "b=2", "--config", "mcp.json"],
    "http": ["call", "numbers_add", "a=1", "b=2", "--config", "mcp.json"],
    "pin": ["pin", "write", "--config", "mcp.json"],
}


class Run:
    """A command in a folder of its own, one call of which may fail."""

    def __init__(self, what: str, folder: Path, url: str, fault: str = "") -> None:
        self.work, home = folder / "work", folder / "home"
        self.work.mkdir(parents=True)
        home.mkdir()
        self.calls = folder / "calls"
        program = self.work / "server.py"
        program.write_text(PROGRAM)
        server = {"command": sys.executable, "args": [str(program)]}
        servers = {"numbers": {"url": url} if what == "http" else server}
        self.before: dict[str, Any] = OLD if what == "install" else {"mcpServers": servers}
        (self.work / "mcp.json").write_text(json.dumps(self.before))
        shutil.copy(BUNDLE, self.work / "a.mcpb")
        self.known = {"mcp.json", "mcp.json.bak1", "a.mcpb", "server.py", "toolweave.lock", "__pycache__"}
        variables = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SITE),
            "SECRET": "s",
            "TOOLWEAVE_TEST_CALLS": str(self.calls),
            **({"TOOLWEAVE_TEST_FAULT": fault} if fault else {}),
        }
        self.done = ran([sys.executable, "-m", "toolweave", *COMMANDS[what]], cwd=self.work, env=variables)

    def problems(self) -> list[str]:
        """Return what is wrong with how it ended."""
        errors, found = self.done.stderr, list[str]()
        if "Traceback" in errors or "Exception ignored" in errors:
            found.append(f"a traceback: {errors[-1500:]}")
        if self.done.returncode not in range(7):
            found.append(f"exit code {self.done.returncode}")
        if self.done.returncode and not errors.strip():
            found.append("no error was printed")
        for name in ("mcp.json", "toolweave.lock"):
            path = self.work / name
            if path.exists():
                found += self._damage(name, path.read_text())
        found += [f"{path.name} is left" for path in self.work.iterdir() if path.name not in self.known]
        return found

    def _damage(self, name: str, text: str) -> list[str]:
        try:
            value = json.loads(text)
        except ValueError:
            return [f"{name} is half written"]
        kept = self.before["mcpServers"].keys()
        lost = name == "mcp.json" and not kept <= value["mcpServers"].keys()
        return [f"{name} lost an entry"] if lost else []


@contextmanager
def serving(folder: Path) -> Generator[str]:
    program = folder / "served.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "toolweave", "serve", f"{program}:server", "--http", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
            yield url
        finally:
            process.terminate()
            process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_one_of_whose_system_calls_fails_ends_with_an_error_and_damages_nothing(
    what: str, tmp_path: Path
) -> None:
    with serving(tmp_path) as url:
        whole = Run(what, tmp_path / "whole", url)
        assert whole.problems() == []
        assert whole.done.returncode == 0, whole.done.stderr
        calls = whole.calls.read_text().splitlines()
        first = [place for place, call in enumerate(calls) if call not in calls[:place]]
        faults = [f"{place + 1}:{CODES[turn % len(CODES)]}" for turn, place in enumerate(first)]

        def problems(fault: str) -> list[str]:
            return Run(what, tmp_path / fault.replace(":", "-"), url, fault).problems()

        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(faults, pool.map(problems, faults), strict=True))

    wrong = {f"{fault} {calls[int(fault.partition(':')[0]) - 1]}": each for fault, each in found.items() if each}
    assert wrong == {}
