"""Programs that a shell finds and an editor does not: entries that start them all the same, and warnings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.command import Done, toolweave
from tests.cli.editor_files import EDITOR_FILES
from toolweave import connect_mcp
from toolweave.config import load_config

pytestmark = pytest.mark.skipif("os.name != 'posix'", reason="platform: editors of Windows have the PATH of their user")

EDITOR_PATH = "/usr/bin:/bin"
SERVER = """
from toolweave import create_mcp_server

server = create_mcp_server(name="s")

@server.tool
def hello() -> str:
    "Greet."
    return "hello"

server.run_stdio()
"""


def program(folder: Path, name: str, interpreter: str = "") -> Path:
    """Write a program that is a server, as a script of a shell or of another interpreter in the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "server.py").write_text(SERVER)
    file = folder / name
    run = f'exec "{sys.executable}" "{folder / "server.py"}"\n'
    file.write_text(f"#!/usr/bin/env {interpreter}\n{run}" if interpreter else f"#!/bin/sh\n{run}")
    file.chmod(0o755)
    return file


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs that only the shell has on its PATH."""
    return tmp_path / "tools"


def shell(tools: Path, *words: object, cwd: Path | None = None) -> Done:
    return toolweave(*words, cwd=cwd, env={"PATH": f"{tools}:{EDITOR_PATH}"})


def written(tmp_path: Path, *servers: dict[str, Any]) -> Path:
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"mcpServers": {f"s{number}": entry for number, entry in enumerate(servers)}}))
    return path


def file_of(editor: str) -> Path:
    return Path.home() / EDITOR_FILES[editor]


def as_editor(editor: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the entry of the editor's file, to be started with the editor's PATH."""
    monkeypatch.setenv("PATH", EDITOR_PATH)
    (config,) = load_config(file_of(editor)).servers.values()
    return config


async def names_of(config: Any) -> list[str]:
    with anyio.fail_after(60):
        async with connect_mcp(config) as connection:
            return list((await connection.list_tools()).names)


@pytest.mark.slow
@pytest.mark.skipif("sys.platform != 'linux'", reason="platform: the editors keep their files elsewhere")
@pytest.mark.parametrize("editor", EDITOR_FILES)
@pytest.mark.parametrize("command", ["gateway", "serve"])
async def test_an_installed_config_has_all_its_servers_with_the_path_of_the_editor(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, editor: str, command: str
) -> None:
    program(tools, "only-here")
    program(tools, "shebang", interpreter="my-shell")
    (tools / "my-shell").symlink_to("/bin/sh")
    config = written(tmp_path, {"command": "only-here"}, {"command": str(tools / "shebang")})

    done = shell(tools, command, "--config", config, "--name", "many", "--install", editor)

    assert done.code == 0, done.err
    assert f"'only-here' was found by the PATH of this shell, which {editor} may not have" in done.err
    assert "so the entry has this PATH" in done.err
    assert await names_of(as_editor(editor, monkeypatch)) == ["s0_hello", "s1_hello"]


@pytest.mark.slow
def test_an_entry_whose_programs_the_system_has_gets_no_path(tmp_path: Path, tools: Path) -> None:
    config = written(
        tmp_path,
        {"command": "sh", "args": ["-c", "true"]},
        {"command": sys.executable, "args": ["-c", "pass"]},
        {"command": "only-here", "env": {"PATH": str(tools)}},
        {"url": "https://mcp.example/mcp"},
    )

    done = shell(tools, "gateway", "--config", config, "--install", "cursor", "--print", "--json")

    assert done.code == 0, done.err
    assert "env" not in done.json["mcpServers"]["toolweave"]
    assert "warning" not in done.err


@pytest.mark.slow
def test_a_program_of_another_version_than_that_of_the_system_is_meant(tmp_path: Path, tools: Path) -> None:
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")  # as the Python of a virtual environment is
    config = written(tmp_path, {"command": "sh"})

    done = shell(tools, "gateway", "--config", config, "--install", "cursor", "--print", "--json")

    assert done.json["mcpServers"]["toolweave"]["env"] == {"PATH": f"{tools}:{EDITOR_PATH}"}


@pytest.mark.slow
def test_a_program_that_is_not_there_is_named_when_it_is_installed(tmp_path: Path, tools: Path) -> None:
    config = written(tmp_path, {"command": "toolweave-test-no-such-command"})

    done = shell(tools, "gateway", "--config", config, "--install", "cursor", "--json")

    assert done.code == 0
    assert "'toolweave-test-no-such-command' was not found" in done.err
    assert done.json["warnings"] == [
        "the command 'toolweave-test-no-such-command' was not found: its server will not start until it is installed"
    ]


@pytest.mark.slow
def test_doctor_names_the_programs_that_an_editor_may_not_find(tmp_path: Path, tools: Path) -> None:
    program(tools, "only-here")
    file = file_of("cursor")
    file.parent.mkdir(parents=True)
    config = written(tmp_path, {"command": "only-here"})
    ours = {"command": sys.executable, "args": ["-P", "-m", "toolweave", "gateway", "run", "--config", str(config)]}
    plain: dict[str, Any] = {"command": "only-here"}
    entries = {"ours": ours, "plain": plain, "whole": {**plain, "env": {"PATH": f"{tools}:{EDITOR_PATH}"}}}
    file.write_text(json.dumps({"mcpServers": entries}))

    found = shell(tools, "doctor", "--config", file, "--json").json["servers"]
    elsewhere = shell(tools, "doctor", "--config", config, "--json").json["servers"]

    said = "'only-here' was found by the PATH of this shell, which the program of this file may not have"
    assert [said in " ".join(found[name]["problems"]) for name in entries] == [True, True, False]
    assert elsewhere["s0"]["problems"] == []
