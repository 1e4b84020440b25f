"""`toolweave gateway check`: the servers as they start, and what each caller will see."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, toolweave

Cli = Callable[..., Done]
NOTES: Mapping[str, Any] = {"command": sys.executable, "args": ["-m", "toolweave.cli.demo.notes"]}
KEYS: Mapping[str, Any] = {
    "ada": {"key": "key-of-ada-0123456789", "claims": {"team": "platform"}},
    "bob": {"sha256": "0" * 64},
}
RULES: Mapping[str, Any] = {
    "name": "access_rules",
    "rules": [
        {"effect": "allow", "annotations": {"readOnlyHint": True}},
        {"effect": "allow", "claims": {"team": ["platform"]}},
    ],
}

pytestmark = pytest.mark.slow


def written(folder: Path, servers: Mapping[str, Any], **section: Any) -> Path:
    path = folder / "team.json"
    path.write_text(json.dumps({"mcpServers": servers, "gateway": section}))
    return path


def test_each_key_is_shown_with_the_tools_that_it_gets_and_those_that_are_refused(cli: Cli, folder: Path) -> None:
    path = written(
        folder,
        {"notes": NOTES},
        auth={"api_keys": KEYS},
        middleware=[RULES],
        virtual={"readers": {"servers": ["notes"], "include": ["read_*", "add_*"]}},
    )

    done = cli("gateway", "check", path, "--json")

    assert done.code == 0, done.err
    seen = {(one["caller"], one["path"]): (len(one["tools"]), one["refused"]) for one in done.json["callers"]}
    assert seen == {
        ("ada", "/mcp"): (4, []),
        ("bob", "/mcp"): (3, ["notes_add_note"]),
        ("ada", "/mcp/readers"): (2, []),
        ("bob", "/mcp/readers"): (1, ["notes_add_note"]),
    }


def test_a_check_writes_no_line_of_the_audit_log_and_warns_of_one_that_cannot_be_written(
    cli: Cli, folder: Path
) -> None:
    log = folder / "audit.jsonl"
    path = written(folder, {"notes": NOTES}, middleware=[{"name": "audit_log", "path": str(log)}])
    assert cli("gateway", "check", path).code == 0
    assert not log.exists()

    path = written(folder, {"notes": NOTES}, middleware=[{"name": "audit_log", "path": str(folder / "no" / "a")}])
    assert "of the audit log does not exist" in cli("gateway", "check", path).err


def test_a_server_that_does_not_start_is_exit_code_3_with_the_next_step(cli: Cli, folder: Path) -> None:
    path = written(folder, {"notes": NOTES, "gone": {"command": "no-such-program"}})

    done = cli("gateway", "check", path)

    assert done.code == 3
    assert "'no-such-program' was not found" in done.out
    assert f"next: toolweave doctor --config {path} --server gone" in done.err


def test_a_key_that_has_expired_is_exit_code_1(cli: Cli, folder: Path) -> None:
    keys = {"ada": {"key": "key-of-ada-0123456789", "expires_at": "2020-01-01"}}
    path = written(folder, {"notes": NOTES}, auth={"api_keys": keys})

    done = cli("gateway", "check", path)

    assert done.code == 1
    assert "its key has expired" in done.out


def test_scopes_decide_what_a_key_is_shown_to_get(cli: Cli, folder: Path) -> None:
    keys = {"ada": {"key": "key-of-ada-0123456789", "scopes": ["write"]}, "bob": "key-of-bob-0123456789"}
    auth = {"api_keys": keys, "scopes": {"tools": {"notes_add_*": ["write"]}}}
    path = written(folder, {"notes": NOTES}, auth=auth)

    done = cli("gateway", "check", path, "--json")

    assert {one["caller"]: one["refused"] for one in done.json["callers"]} == {"ada": [], "bob": ["notes_add_note"]}


def test_a_wrong_config_is_exit_code_2_and_starts_nothing(cli: Cli, folder: Path) -> None:
    path = written(folder, {"notes": NOTES}, rate_limit=5)

    done = cli("gateway", "check", path)

    assert done.code == 2
    assert "'rate_limit'" in done.err


def test_a_server_is_looked_for_in_the_path_that_is_given(folder: Path) -> None:
    program = folder / "bin" / "my-notes"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -m toolweave.cli.demo.notes\n")
    program.chmod(0o755)
    path = written(folder, {"notes": {"command": "my-notes"}})

    there = toolweave("gateway", "check", path, "--path", f"{program.parent}:/usr/bin:/bin")
    missing = toolweave("gateway", "check", path, "--path=/usr/bin:/bin", env={"PATH": f"{program.parent}:/usr/bin"})

    assert there.code == 0, there.err
    assert missing.code == 3
    assert "'my-notes' was not found" in missing.out


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="platform: only root may become another user")
def test_the_check_runs_as_the_user_that_is_given_or_says_that_it_cannot(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        path = written(Path(place), {"who": {"command": "/bin/sh", "args": ["-c", "id -un >&2; exit 1"]}})
        path.chmod(0o644)

        done = toolweave("gateway", "check", path, "--user", "nobody", cwd=Path(place))

    runs = done.code == 3 and "nobody" in done.out
    cannot = done.code == 2 and "this user cannot run" in done.err
    assert runs or cannot, done


def test_a_user_that_does_not_exist_is_refused(cli: Cli, folder: Path) -> None:
    path = written(folder, {"notes": NOTES})

    assert "user 'no-such-user' does not exist" in cli("gateway", "check", path, "--user", "no-such-user").err
