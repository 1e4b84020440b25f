"""`toolweave gateway init`: one file from options or answers, whole or not at all, and no secret in it."""

from __future__ import annotations

import hashlib
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Done, on_terminal
from toolweave.gateway import load_gateway_config

Cli = Callable[..., Done]
NOTES = f"notes={sys.executable} -m toolweave.cli.demo.notes"
NUMBERS = f"numbers={sys.executable} -m toolweave.cli.demo.numbers"


def test_it_writes_servers_keys_rules_a_limit_and_an_audit_log(cli: Cli, folder: Path) -> None:
    done = cli(
        *("gateway", "init", "team.json", "--add", NOTES, "--add", "github=https://mcp.example/github"),
        *("--key", "ada", "--key", "bob", "--rate", 60, "--audit", "audit.jsonl"),
        *("--read-only", "--allow", "ada=notes", "--deny", "*_delete_*"),
    )

    assert done.code == 0, done.err
    config = load_gateway_config(folder / "team.json")
    assert config.name == "team"
    assert list(config.servers.servers) == ["notes", "github"]
    assert not config.servers.errors
    assert config.servers.servers["notes"].command == sys.executable
    assert [one["name"] for one in config.middleware] == ["audit_log", "access_rules", "rate_limit"]
    assert config.middleware[0]["path"] == str(folder / "audit.jsonl")
    assert config.middleware[1]["rules"] == [
        {"effect": "deny", "names": ["*_delete_*"]},
        {"effect": "allow", "annotations": {"readOnlyHint": True}},
        {"effect": "allow", "clients": ["ada"], "servers": ["notes"]},
    ]
    assert stat.S_IMODE((folder / "team.json").stat().st_mode) == 0o600


def test_keys_are_printed_once_and_the_file_has_their_hashes(cli: Cli, folder: Path) -> None:
    done = cli("gateway", "init", "--add", NOTES, "--key", "ada", "--key", "bob")

    text = (folder / "gateway.json").read_text()
    keys = dict(line.split() for line in done.out.splitlines())
    assert set(keys) == {"ada", "bob"}
    for key in keys.values():
        assert len(key) == 64
        assert key not in text
        assert hashlib.sha256(key.encode()).hexdigest() in text
        assert key not in done.err


def test_json_has_the_keys_and_the_next_commands(cli: Cli) -> None:
    done = cli("gateway", "init", "team.json", "--add", NOTES, "--key", "ada", "--json")

    assert list(done.json["keys"]) == ["ada"]
    assert done.json["next"][0] == "toolweave gateway check team.json"


def test_the_file_has_comments_and_explains_its_parts(cli: Cli, folder: Path) -> None:
    cli("gateway", "init", "--add", NOTES, "--key", "ada", "--rate", 5)

    comments = [line for line in (folder / "gateway.json").read_text().splitlines() if line.strip().startswith("//")]
    assert len(comments) >= 6


def test_a_program_that_only_the_shell_finds_is_written_with_its_full_path(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = folder / "bin" / "my-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    done = cli("gateway", "init", "--add", "mine=my-server --flag")

    assert done.code == 0, done.err
    entry = load_gateway_config(folder / "gateway.json").servers.servers["mine"]
    assert (entry.command, entry.args) == (str(program), ("--flag",))
    assert entry.env_values()["PATH"].startswith(str(program.parent))


def test_a_sign_in_takes_the_place_of_keys(cli: Cli, folder: Path) -> None:
    done = cli(
        *("gateway", "init", "--add", NOTES, "--issuer", "https://login.example"),
        *("--audience", "https://tools.example/mcp"),
    )

    assert done.code == 0, done.err
    assert load_gateway_config(folder / "gateway.json").auth is not None
    assert cli("gateway", "init", "other.json", "--add", NOTES, "--issuer", "https://login.example").code == 2


def test_an_existing_file_is_replaced_only_by_force(cli: Cli, folder: Path) -> None:
    (folder / "gateway.json").write_text("mine")

    refused = cli("gateway", "init", "--add", NOTES)

    assert refused.code == 2
    assert "--force replaces it" in refused.err
    assert (folder / "gateway.json").read_text() == "mine"
    assert cli("gateway", "init", "--add", NOTES, "--force").code == 0
    assert [one.name for one in folder.iterdir()] == ["gateway.json"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--add", "notes"], "is not a server"),
        (["--add", "notes='open"], "--add notes"),
        (["--add", "a b=server"], "is not a name"),
        (["--add", NOTES, "--key", "a b"], "is not a name"),
        (["--add", NOTES, "--allow", "ada=notes", "--key", "ada"], "--read-only"),
        (["--add", NOTES, "--read-only", "--allow", "eve=notes", "--key", "ada"], "is not PERSON=SERVER"),
        (["--add", "notes=server --token sk-0123456789abcdef0123456789"], "a secret is among its words"),
        (["--add", "notes=http://"], "url"),
    ],
)
def test_a_wrong_option_is_refused_and_no_file_is_written(
    cli: Cli, folder: Path, words: list[str], reason: str
) -> None:
    done = cli("gateway", "init", *words)

    assert done.code == 2
    assert reason in done.err
    assert list(folder.iterdir()) == []


def test_a_secret_in_a_refused_word_is_not_repeated(cli: Cli) -> None:
    done = cli("gateway", "init", "--add", "notes=server --token sk-0123456789abcdef0123456789")

    assert "sk-0123456789abcdef0123456789" not in done.err


def test_without_a_terminal_the_error_names_the_missing_option(cli: Cli) -> None:
    done = cli("gateway", "init")

    assert done.code == 2
    assert "no server is named" in done.err
    assert "NAME=COMMAND" in done.err


def test_a_file_of_another_kind_is_refused(cli: Cli) -> None:
    assert "ends in .json" in cli("gateway", "init", "team.yaml", "--add", NOTES).err


@pytest.mark.skipif("sys.platform != 'linux'", reason="platform: the editors keep their files elsewhere")
def test_each_gateway_has_a_name_of_its_own_in_an_editor(cli: Cli, home: Path, folder: Path) -> None:
    for name in ("team", "other"):
        done = cli("gateway", "init", f"{name}.json", "--add", NOTES, "--editor", "claude-code")
        assert done.code == 0, done.err

    entries = json.loads((home / ".claude.json").read_text())["mcpServers"]
    assert list(entries) == ["team", "other"]
    assert entries["team"]["args"][-1] == str(folder / "team.json")
    assert Path(entries["team"]["command"]).is_absolute()


@pytest.mark.slow
def test_on_a_terminal_it_asks_and_asks_again_for_a_wrong_answer(folder: Path) -> None:
    with on_terminal("gateway", "init", "team.json", cwd=folder) as terminal:
        for question, answer in (
            ("Server 1: ", "notes"),
            ("Server 1: $", NOTES),
            ("Server 2 .*: $", NUMBERS),
            ("Server 3 .*: $", ""),
            ("People .*: $", "ada bob"),
            (r"\[Y/n\]: $", "maybe"),
            (r"answer y or n\s+May everyone .*\[Y/n\]: $", "n"),
            ("Calls a minute .*: $", "60"),
            ("audit log .*: $", "audit.jsonl"),
            ("Editors .*: $", ""),
        ):
            terminal.wait_for(question)
            terminal.type(f"{answer}\n")
        assert terminal.end() == 0

    config = load_gateway_config(folder / "team.json")
    assert list(config.servers.servers) == ["notes", "numbers"]
    assert config.auth is not None
    assert [key.name for key in config.auth.api_keys] == ["ada", "bob"]
    assert [one["name"] for one in config.middleware] == ["audit_log", "access_rules", "rate_limit"]


@pytest.mark.slow
def test_when_the_answers_end_no_file_is_written(folder: Path) -> None:
    with on_terminal("gateway", "init", cwd=folder) as terminal:
        terminal.wait_for("Server 1: $")
        terminal.type("\x04")
        assert terminal.end() == 1

    assert list(folder.iterdir()) == []
