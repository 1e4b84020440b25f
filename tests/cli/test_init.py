"""`toolweave init`: a first config, new or from an editor."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Done
from toolweave.config import load_config

Cli = Callable[..., Done]


def test_the_first_config_can_be_loaded(cli: Cli, folder: Path) -> None:
    done = cli("init")

    assert (done.code, done.out) == (0, "")
    assert "wrote mcp.json with time, files; next: toolweave tools\n" in done.err
    loaded = load_config(folder / "mcp.json")
    assert list(loaded.servers) == ["time", "files"]
    assert not loaded.errors
    assert not loaded.warnings


def test_an_existing_file_is_replaced_only_by_force(cli: Cli, folder: Path) -> None:
    (folder / "mine.json").write_text("mine")

    refused = cli("init", "mine.json")
    assert refused.code == 2
    assert "'mine.json' exists" in refused.err
    assert (folder / "mine.json").read_text() == "mine"

    assert cli("init", "mine.json", "--force").code == 0
    assert list(load_config(folder / "mine.json").servers) == ["time", "files"]
    assert [path.name for path in folder.iterdir()] == ["mine.json"]


@pytest.mark.parametrize(
    "editor, place, section",
    [
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("claude", ".claude.json", "mcpServers"),
        ("claude", ".config/Claude/claude_desktop_config.json", "mcpServers"),
        ("vscode", ".config/Code/User/mcp.json", "servers"),
    ],
)
@pytest.mark.skipif("sys.platform != 'linux'", reason="platform: the editors keep their files elsewhere")
def test_the_servers_of_an_editor_are_taken_over_with_their_variables(
    cli: Cli, folder: Path, home: Path, editor: str, place: str, section: str
) -> None:
    entry = {"command": "x", "env": {"TOKEN": "${TOKEN}", "KEY": "${input:key}"}}
    inputs = [{"id": "key", "type": "promptString"}]
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    (home / place).write_text("// mine\n" + json.dumps({section: {"mine": entry}, "inputs": inputs, "other": 1}))

    done = cli("init", "--from", editor)

    assert done.code == 0, done.err
    written = json.loads((folder / "mcp.json").read_text())
    assert written == {"mcpServers": {"mine": entry}, "inputs": inputs}
    assert stat.S_IMODE((folder / "mcp.json").stat().st_mode) == 0o600


def test_an_editor_without_servers_is_exit_code_2(cli: Cli, folder: Path) -> None:
    done = cli("init", "--from", "cursor")

    assert done.code == 2
    assert "no servers of cursor were found" in done.err
    assert not (folder / "mcp.json").exists()


def test_an_unknown_editor_is_wrong_usage(cli: Cli) -> None:
    assert cli("init", "--from", "emacs").code == 2


def test_a_folder_that_does_not_exist_is_told(cli: Cli) -> None:
    done = cli("init", "absent/mcp.json")

    assert done.code == 2
    assert "cannot write 'absent/mcp.json'" in done.err
