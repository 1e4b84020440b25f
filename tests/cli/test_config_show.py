"""`toolweave config show`: what was read, what each server would do, what was ignored and why. Nothing is started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, toolweave, trust, write_config

Cli = Callable[..., Done]


def put(folder: Path, path: str, content: object) -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), "utf-8")
    return file


@pytest.fixture
def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two files of a project, of two owners."""
    monkeypatch.setenv("API_TOKEN", "the-token-itself")
    entry = {"command": "sh", "args": ["-c", "touch started", "--token", "${API_TOKEN}"], "cwd": "sub"}
    settings = {
        "mcp": {"excluded": ["out"]},
        "mcpServers": {
            "one": {"command": "x"},
            "out": {"command": "x"},
            "off": {"command": "x", "disabled": True},
            "wrong": {"command": 5},
            "remote": {
                "httpUrl": "https://user:hunter2@h.example/mcp?api_key=hunter2",
                "headers": {"X-Key": "$API_TOKEN"},
                "oauth": {"clientId": "x"},
                "timeout": 5000,
            },
        },
    }
    return [put(folder, "mcp.json", {"mcpServers": {"one": entry}}), put(folder, ".gemini/settings.json", settings)]


def test_everything_that_was_read_is_told_and_nothing_is_started(cli: Cli, folder: Path, files: list[Path]) -> None:
    done = cli("config", "show", "--json")

    assert done.code == 0
    assert [(file["path"], file["dialect"], file["trusted"]) for file in done.json["files"]] == [
        (str(files[0]), "generic", False),
        (str(files[1]), "gemini", False),
    ]
    rows: dict[tuple[str, str], dict[str, Any]] = {(Path(r["file"]).name, r["name"]): r for r in done.json["servers"]}
    assert {key[1]: row["status"] for key, row in rows.items() if key[0] == "settings.json"} == {
        "one": "shadowed",
        "out": "excluded",
        "off": "disabled",
        "wrong": "wrong",
        "remote": "ready",
    }
    assert rows["settings.json", "out"]["reason"] == "'mcp.excluded' names it"
    remote = rows["settings.json", "remote"]
    assert (remote["server"]["transport"], remote["server"]["timeout"]) == ("http", {"call": 5.0})
    assert remote["server"]["headers"] == ["Authorization", "X-Key"]
    assert "the settings of a sign-in are ignored" in remote["ignored"][0]
    assert rows["mcp.json", "one"]["line"] == 1
    assert not (folder / "started").exists()
    assert "hunter2" not in done.out + done.err
    assert "the-token-itself" not in done.out + done.err


def test_the_view_for_people_says_the_same(cli: Cli, files: list[Path]) -> None:
    trust(files[0])
    shown = cli("config", "show").out

    for expected in (
        f"{files[0]}  project, read as generic  trusted",
        "read as gemini  not trusted: asked about before its servers start",
        "✓ one (line 1)  stdio: sh -c 'touch started' --token ***",
        "    cwd: sub",
        "– out (line 1)  excluded: 'mcp.excluded' names it",
        "✗ wrong (line 1)  wrong: 'command' must be a string, not a number",
        "    timeout: call 5 s",
        "ignored or read in its own way: the settings of a sign-in are ignored",
    ):
        assert expected in shown


def test_a_file_that_does_not_count_is_told_too(cli: Cli, folder: Path, home: Path) -> None:
    put(folder, "mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    user = put(home, ".cursor/mcp.json", {"mcpServers": {"two": {"command": "x"}}})

    files = {file["path"]: file for file in cli("config", "show", "--json").json["files"]}

    assert (files[str(user)]["used"], files[str(user)]["kind"]) == (False, "cursor")
    assert "not used: others come first" in cli("config", "show").out


def test_one_file_or_one_server_can_be_named(cli: Cli, files: list[Path]) -> None:
    named = cli("config", "show", "--json", "--config", files[1], "--server", "remote").json

    assert [file["kind"] for file in named["files"]] == ["named"]
    assert [row["name"] for row in named["servers"]] == ["remote"]
    assert cli("config", "show", "--server", "nobody").code == 2


def test_without_any_file_it_says_so(cli: Cli, folder: Path) -> None:
    done = cli("config", "show", "--json")

    assert done.code == 2
    assert done.json["error"]["message"] == "no config was found"


def test_a_broken_file_is_an_error_that_names_it(cli: Cli, folder: Path) -> None:
    (folder / "mcp.json").write_text("{")

    done = cli("config", "show", "--json")

    assert (done.code, done.json["error"]["exit_code"]) == (2, 2)
    assert str(folder / "mcp.json") in done.json["error"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["config", "show"], ["doctor"], ["tools"]], ids=" ".join)
def test_commands_name_a_protection_that_is_not_applied(folder: Path, command: list[str]) -> None:
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "no-such-program", "trust": False}}}))

    done = toolweave(*command, "--config", "mcp.json")

    assert "'trust' is not applied" in " ".join((done.out + done.err).split())


@pytest.mark.slow
@pytest.mark.parametrize("command", [["doctor"], ["tools"], ["tools", "--json"], ["explain", "a_add"]], ids=" ".join)
def test_commands_name_a_filter_that_filters_nothing(folder: Path, command: list[str]) -> None:
    entry = {"command": sys.executable, "args": ["-m", "toolweave.cli.demo.numbers"], "exclude": ["dvide"]}
    config = write_config(folder, {"a": entry})

    done = toolweave(*command, "--config", config)

    assert done.code == 0
    assert "no tool 'dvide'; did you mean 'divide' or" in " ".join((done.out + done.err).split())


@pytest.mark.slow
def test_protections_of_an_editor_that_are_kept_are_shown(folder: Path) -> None:
    entry = {"command": "x", "sandboxEnabled": True, "default_tools_approval_mode": "prompt"}
    put(folder, "mcp.json", {"mcpServers": {"a": entry}})

    done = toolweave("config", "show", "--config", "mcp.json")

    assert "calls that need approval: * always" in done.out
    assert "sandbox: bwrap" in done.out
    assert "ignored" not in done.out
