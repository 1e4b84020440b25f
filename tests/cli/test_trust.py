"""Servers that came with a folder start after one yes, on a terminal or by `--trust`, and never without."""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import COMMAND, Done, on_terminal, toolweave
from tests.cli.tmux import open_tmux
from tests.servers.fixtures import echo_command
from toolweave.config import TrustedFiles, default_config

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]
ALL_THAT_START = (
    ["tools"],
    ["call", "echo_add", "a=1", "b=2"],
    ["status"],
    ["doctor"],
    ["doctor", "--conformance"],
    ["resources"],
    ["prompts"],
    ["chat", "--model", "command", "-m", "hello"],
    ["runs", "spawn", "hello", "--model", "command"],
)


def starting(folder: Path, name: str = "one") -> dict[str, Any]:
    """Return an entry that works as a server and leaves a file where it was started."""
    program, *args = echo_command()
    script = 'touch "$0" && exec "$@"'
    return {"command": "sh", "args": ["-c", script, str(folder / f"started-{name}"), program, *args]}


def put(folder: Path, path: str, entries: dict[str, Any], *, section: str = "mcpServers") -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({section: entries}), "utf-8")
    return file


def started(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("started-*"))


@pytest.mark.parametrize("command", ALL_THAT_START, ids=" ".join)
def test_nothing_that_came_with_a_folder_starts_where_nobody_can_be_asked(command: list[str], folder: Path) -> None:
    file = put(folder, ".mcp.json", {"echo": starting(folder)})

    done = toolweave(*command, cwd=folder)

    assert done.code == 4
    assert f"{file} came with this folder" in done.err
    assert f"--trust, or --config {file}" in done.err
    assert started(folder) == []


@pytest.mark.parametrize(
    "path, section",
    [
        ("mcp.json", "mcpServers"),
        (".mcp.json", "mcpServers"),
        (".vscode/mcp.json", "servers"),
        (".cursor/mcp.json", "mcpServers"),
    ],
)
def test_every_file_of_a_project_is_asked_about(path: str, section: str, cli: Cli, folder: Path) -> None:
    file = put(folder, path, {"echo": starting(folder)}, section=section)

    done = cli("tools")

    assert (done.code, str(file) in done.err, started(folder)) == (4, True, [])


def test_a_pyproject_is_asked_about(cli: Cli, folder: Path) -> None:
    entry = starting(folder)
    text = f"[tool.toolweave.servers.echo]\ncommand = 'sh'\nargs = {json.dumps(entry['args'])}\n"
    (folder / "pyproject.toml").write_text(text)

    assert cli("tools").code == 4
    assert started(folder) == []
    assert cli("tools", "--trust").code == 0
    assert started(folder) == ["started-one"]


def test_a_file_of_a_folder_above_is_asked_about_and_its_servers_start_there(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "deep" / "er").mkdir(parents=True)
    put(folder, "mcp.json", {"echo": {**starting(folder), "args": ["-c", f"pwd > started-here; {sleepless()}"]}})

    assert toolweave("tools", cwd=folder / "deep" / "er").code == 4
    assert toolweave("tools", "--trust", cwd=folder / "deep" / "er").code == 0
    assert (folder / "started-here").read_text().strip() == str(folder)


def sleepless() -> str:
    """Return a shell command that is the echo server."""
    return "exec " + " ".join(echo_command())


def test_trust_is_for_one_command_line(cli: Cli, folder: Path) -> None:
    put(folder, "mcp.json", {"echo": starting(folder)})

    assert cli("tools", "--trust").code == 0
    assert cli("tools").code == 4


def test_a_file_that_is_named_and_the_files_of_the_user_are_trusted(cli: Cli, folder: Path, home: Path) -> None:
    file = put(folder, "mcp.json", {"echo": starting(folder)})
    assert cli("tools", "--config", file).code == 0

    file.unlink()
    put(home, ".cursor/mcp.json", {"echo": starting(folder, "user")})
    assert cli("tools").code == 0
    assert started(folder) == ["started-one", "started-user"]


def test_one_yes_is_remembered_until_the_file_changes(folder: Path) -> None:
    file = put(folder, ".mcp.json", {"echo": starting(folder)})

    with on_terminal("tools", cwd=folder, columns=1_000) as terminal:
        terminal.wait_for(r"start them, now and until the file changes\? \[y\]es, \[n\]o: $")
        assert started(folder) == []
        shown = terminal.text
        terminal.type("y\n")
        assert terminal.end() == 0
    assert json.dumps(starting(folder)) in shown
    assert started(folder) == ["started-one"]
    assert toolweave("tools", cwd=folder).code == 0

    mode = stat.S_IMODE(TrustedFiles().path.stat().st_mode)
    assert (mode, str(file) in TrustedFiles().path.read_text()) == (0o600, True)
    put(folder, ".mcp.json", {"echo": starting(folder), "new": {"command": "sh", "args": ["-c", "touch started-new"]}})
    assert toolweave("tools", cwd=folder).code == 4
    assert started(folder) == ["started-one"]


def test_a_no_starts_nothing_and_is_not_remembered(folder: Path) -> None:
    put(folder, "mcp.json", {"echo": starting(folder)})

    for answer in ("n\n", "\n", "\x04"):
        with on_terminal("tools", cwd=folder) as terminal:
            terminal.wait_for(r"\[n\]o: $")
            terminal.type(answer)
            assert terminal.end() == 4
    assert started(folder) == []


def test_a_yes_to_one_folder_is_no_yes_to_a_copy_elsewhere(cli: Cli, folder: Path) -> None:
    assert cli("init").code == 0
    (folder / "copy").mkdir()
    shutil.copy(folder / "mcp.json", folder / "copy" / "mcp.json")

    assert TrustedFiles().path.exists()
    assert toolweave("tools", cwd=folder / "copy").code == 4


@pytest.mark.parametrize("text", ["", "[]", '{"files": []}', '{"files": {"*": "x"}}', "\xff", '{"files": {"*": [5]}}'])
def test_what_is_remembered_may_be_broken_and_is_asked_again(text: str, cli: Cli, folder: Path) -> None:
    put(folder, "mcp.json", {"echo": starting(folder)})
    remembered = TrustedFiles().path
    remembered.parent.mkdir(parents=True)
    remembered.write_text(text, "latin-1")

    assert cli("tools").code == 4


def test_the_question_hides_nothing_and_moves_no_cursor(tmp_path: Path, folder: Path) -> None:
    tricky = {
        "echo": {"command": "sh", "args": ["-c", "x=1; " + " " * 3000 + "touch started-hidden # \u202e\x1b[2J"]},
        "\x1b[8mtwo": {
            "command": "${input:what}",
            "env": {"API_KEY": "${OPENAI_API_KEY}", "NODE_OPTIONS": "--require x"},
        },
    }
    (folder / "mcp.json").write_text(
        json.dumps({"mcpServers": tricky, "inputs": [{"id": "what", "default": "touch started-input"}]})
    )
    with open_tmux(tmp_path) as tmux:
        tmux.do(
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "24",
            "-c",
            str(folder),
            "sh",
            "-c",
            f"{' '.join(COMMAND)} tools; cat",
        )
        screen = tmux.wait_for("[v]iew all of it")
        assert "NOT shown here" in screen
        for shown in ('"NODE_OPTIONS": "--require x"', "${OPENAI_API_KEY}", "touch started-input", "\\x1b[8mtwo"):
            assert shown in re.sub(r"\n", "", screen), shown
        tmux.type("v")
        found = re.search(r"--- (\d+) more lines", tmux.wait_for("more lines; Enter continues"))
        assert found is not None
        for left in range(int(found[1]), 0, -18):  # a page is the screen without six lines
            tmux.wait_for(f"--- {left} more lines; Enter continues")
            tmux.type("")
        tmux.wait_for("touch started-hidden # \\u202e\\u001b[2J")
        tmux.type("n")
        tmux.wait_for("hint: --config FILE")
    assert started(folder) == []


def test_what_toolweave_wrote_itself_needs_no_question(cli: Cli, folder: Path) -> None:
    printed = cli("demo", "--config").out
    (folder / "mcp.json").write_text(printed)
    assert cli("tools").code == 0

    (folder / "mcp.json").write_text(printed.replace("notes", "nodes"))
    assert cli("tools").code == 4

    assert cli("init", "--force").code == 0
    assert TrustedFiles().untrusted(default_config(folder)) == []
