"""`toolweave explain`: where a tool comes from, why it is not offered, what was changed, and what models get of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.cli.command import Done
from toolweave.providers import SchemaProfile

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]

SERVER = """
from toolweave import create_mcp_server

server = create_mcp_server(name="notes")

@server.tool(annotations={"readOnlyHint": True})
def search_notes(query: str, owner: str, limit: int = 10) -> str:
    "Search the notes of an owner."
    return f"{query} of {owner}, {limit}"

@server.tool
def remove_note(number: int) -> str:
    "Remove a note."
    return f"removed {number}"

@server.tool
def list_notes() -> str:
    "List."
    return "none"

@server.tool(meta={"ui": {"resourceUri": "ui://board", "visibility": ["app"]}})
def strike_out() -> str:
    "Strike out."
    return "struck"

@server.tool
def clear_notes() -> str:
    "Clear."
    return "none"

server.run_stdio()
"""
RULES: list[dict[str, Any]] = [
    {
        "tools": "search_*",
        "name": "find",
        "arguments": {"query": {"name": "words"}, "owner": {"env": "NOTES_OWNER"}, "limit": {"default": 3}},
    },
    {"tools": "remove_*", "hide": True},
]
VIEWS = {
    "readers": {"shape": [{"tools": "*find", "name": "hunt", "description": "Hunt."}]},
    "writers": {"exclude": ["*find"]},
    "others": {"servers": ["elsewhere"]},
    "hidden": {"shape": [{"annotations": {"readOnlyHint": True}, "hide": True}]},
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    (folder / "notes.py").write_text(SERVER)
    lock: dict[str, Any] = {"version": 1, "servers": {}}
    (folder / "toolweave.lock").write_text(json.dumps(lock))
    entry = {"command": sys.executable, "args": [str(folder / "notes.py")], "exclude": ["list_notes"], "shape": RULES}
    pinned = {
        "command": sys.executable,
        "args": [str(folder / "notes.py")],
        "include": ["clear_notes"],
        "pins": "block",
    }
    servers = {"notes": entry, "pinned": pinned, "off": {"command": "x", "disabled": True}}
    path = folder / "gateway.json"
    path.write_text(json.dumps({"mcpServers": servers, "gateway": {"virtual": VIEWS}}))
    return path


def test_json_has_the_way_of_a_tool_from_its_server_to_each_models_api(cli: Cli, config: Path) -> None:
    done = cli("explain", "find", "--config", config, "--server", "notes", "--json")

    assert (done.code, done.json["asked"]) == (0, "find")
    (one,) = done.json["tools"]
    assert (one["server"], one["tool"], one["name"], one["offered"]) == ("notes", "search_notes", "notes_find", True)
    assert one["source"] == f"{config}:1"
    assert [rule["rule"] for rule in one["rules"]] == ["shape[0]"]
    assert one["rules"][0]["changes"] == [
        "named 'find' instead of 'search_notes'",
        "argument 'query': named 'words'",
        "argument 'owner': always the environment variable NOTES_OWNER",
        "argument 'limit': optional, 3 by default",
    ]
    assert sorted(one["definition"]["inputSchema"]["properties"]) == ["limit", "words"]
    assert sorted(one["original"]["inputSchema"]["properties"]) == ["limit", "owner", "query"]
    assert list(one["providers"]) == list(get_args(SchemaProfile))
    bedrock = one["providers"]["bedrock"]
    assert (bedrock["name"], bedrock["losses"]) == ("notes_find", ["the arguments: additionalProperties is left out"])
    assert not [api for api, seen in one["providers"].items() if "owner" in seen["parameters"]["properties"]]
    assert one["views"] == {
        "readers": {
            "name": "hunt",
            "offered": True,
            "reason": None,
            "rules": [
                {
                    "rule": "gateway.virtual.readers.shape[0]",
                    "changes": ["named 'hunt' instead of 'notes_find'", "description 'Hunt.'"],
                }
            ],
        },
        "writers": {"name": None, "offered": False, "reason": "'exclude' names it", "rules": []},
        "others": {"name": None, "offered": False, "reason": "its server is not among 'servers'", "rules": []},
        "hidden": {
            "name": None,
            "offered": False,
            "reason": "rule gateway.virtual.hidden.shape[0] (readOnlyHint true) hides it",
            "rules": [],
        },
    }


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("notes_remove_note", "rule shape[1] ('remove_*') hides it"),
        ("notes:list_notes", "'exclude' names it"),
        ("pinned_search_notes", "'include' does not name it"),
        ("pinned/clear_notes", "tool 'clear_notes' of server 'pinned' is withheld"),
    ],
)
def test_a_tool_that_is_not_offered_has_the_reason(cli: Cli, config: Path, name: str, reason: str) -> None:
    server = "pinned" if name.startswith("pinned") else "notes"

    (one,) = cli("explain", name, "--config", config, "-s", server, "--json").json["tools"]

    assert (one["offered"], one["name"], one["definition"], one["providers"]) == (False, None, None, {})
    assert one["reason"].startswith(reason)


def test_people_read_the_rules_and_what_one_api_gets(cli: Cli, config: Path) -> None:
    done = cli("explain", "search_notes", "--config", config, "-s", "notes", "--provider", "bedrock")

    assert done.code == 0
    for text in ("notes_find", "offered", "shape[0]", "named 'words'", "/mcp/readers", "hunt", "1 change, 1 loss"):
        assert text in done.out, text
    assert "lost: the arguments: additionalProperties is left out" in done.out
    assert '"words"' in done.out


def test_a_tool_for_its_page_alone_is_seen_by_no_model(cli: Cli, config: Path) -> None:
    (one,) = cli("explain", "strike_out", "--config", config, "-s", "notes", "--json").json["tools"]

    assert one["offered"]
    assert {seen["refused"] for seen in one["providers"].values()} == {
        "only its page may call it (MCP Apps), no model sees it"
    }
    assert set(one["providers"]) == set(get_args(SchemaProfile))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("notes_fnd", "-s", "notes"), "no tool 'notes_fnd'; did you mean 'notes_find'"),
        (("remove_not", "-s", "notes"), "did you mean 'remove_note'"),
        (("off_x",), "tool 'off_x': server 'off' is not started: "),
        (("find", "-p", "bedrok"), "unknown profile 'bedrok'"),
    ],
)
def test_what_there_is_not_is_wrong_usage_with_the_nearest_name(
    cli: Cli, config: Path, words: tuple[str, ...], said: str
) -> None:
    done = cli("explain", *words, "--config", config)

    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_call_by_the_name_that_a_rule_gave_needs_no_prefix(
    cli: Cli, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_OWNER", "ada")

    done = cli("call", "find", "words=x", "--config", config, "-s", "notes")

    assert (done.code, done.out.strip()) == (0, "x of ada, 3")
