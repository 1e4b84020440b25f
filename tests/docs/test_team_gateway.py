"""The page about a gateway for a team, executed: from nothing to keys, a limit, a log, an editor and the console."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.programs import ran

pytestmark = pytest.mark.slow

SECONDS = 60


def page_commands() -> list[list[str]]:
    """Return the commands of the page, in their order."""
    own = [block.text for block in blocks("sh") if block.page == "docs/howto-team-gateway.md"]
    return [shlex.split(text.replace("\\\n", " ")) for text in own]


def at_port(words: list[str], port: int) -> list[str]:
    return [re.sub(r"\b8000\b", str(port), word) for word in words]


@contextlib.contextmanager
def served(words: list[str], environment: Mapping[str, str]) -> Generator[None]:
    """Run a command that serves for the block, until it has said that it does."""
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if "console" in line:
                    break
            else:
                pytest.fail("it did not start")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=SECONDS)
            finally:
                process.kill()


def test_five_commands_lead_from_nothing_to_a_gateway_for_a_team(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    def run(words: list[str], **more: str) -> str:
        done = ran(at_port(words, port), env={**environment, **more}, seconds=SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    init, check, serve, console, tools = page_commands()
    keys = dict(line.split() for line in run(init).splitlines())
    assert list(keys) == ["ada", "bob"]

    shown = run(check)
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.strip()}
    assert rows["ada"][:3] == ["ada", "/mcp", "10"]
    assert rows["bob"][:3] == ["bob", "/mcp", "9"]
    page = [block.text for block in blocks("text") if block.page == "docs/howto-team-gateway.md"]
    assert [line.split() for line in page[0].splitlines()] == [line.split() for line in shown.splitlines()]

    with served(at_port(serve, port), environment):
        assert f"http://127.0.0.1:{port}/ui" in run(console)
        listed = run([*tools, "--json"], ADA_KEY=keys["ada"])
        assert len(json.loads(listed)["tools"]) == 10
        listed = run([*tools, "--json"], ADA_KEY=keys["bob"])
        assert len(json.loads(listed)["tools"]) == 9
        refused = subprocess.run(
            at_port(tools, port),
            env={**environment, "ADA_KEY": "wrong"},
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        assert refused.returncode != 0

    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert {one["principal"]["client"] for one in lines} == {"ada", "bob"}
    editor = json.loads((Path.home() / ".claude.json").read_text())["mcpServers"]["team"]
    assert editor["args"][-1] == str(tmp_path / "team.json")
