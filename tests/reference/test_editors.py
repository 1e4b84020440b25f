"""What `toolweave serve --install` writes starts the server the way an editor does: from elsewhere, with few variables.

The Inspector reads the editor's own file and starts the command that stands there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.suite import node
from tests.programs import ran
from tests.reference.test_inspector import LAUNCHER, told

pytestmark = [pytest.mark.reference, pytest.mark.slow]

NOTES = Path(__file__).with_name("notes.py")
SECONDS = 120


@pytest.mark.requirement("R83")
@pytest.mark.parametrize("editor", ["claude", "cursor", "vscode"])
def test_the_entry_that_is_written_starts_the_server_as_the_editor_would(
    editor: str, home: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "toolweave", "serve", str(NOTES), "--install", editor]
    written = ran(command, seconds=SECONDS)
    assert written.returncode == 0, written.stderr
    (file,) = [path for path in home.rglob("*.json") if not path.is_symlink() and "notes" in path.read_text()]

    listed = inspect(readable(file, tmp_path), "tools/list", "--strict")
    result = inspect(
        readable(file, tmp_path), "tools/call", "--tool-name", "add", "--tool-args-json", '{"a": 2, "b": 3}'
    )

    assert [tool["name"] for tool in told(listed)["tools"]] == ["add", "count", "greet", "fail"]
    assert [block["text"] for block in told(result)["content"]] == ["5"]


def readable(file: Path, folder: Path) -> Path:
    """Return the editor's file as the Inspector reads it: what VS Code calls `servers` is `mcpServers` elsewhere."""
    config = json.loads(file.read_text(encoding="utf-8"))
    if "servers" not in config:
        return file
    made = folder / "mcp.json"
    made.write_text(json.dumps({"mcpServers": config["servers"]}), encoding="utf-8")
    return made


def inspect(config: Path, method: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the Inspector on the server of a config, from a folder and with an environment that know nothing of it."""
    return ran(
        [
            *(node(), str(LAUNCHER / "index.js"), "--cli", "--config", str(config), "--server", "notes"),
            *("--method", method, "--format", "json", *arguments),
        ],
        cwd="/",
        env={"HOME": str(config.parent), "PATH": "/usr/bin:/bin"},
        seconds=SECONDS,
    )
