"""What an owner denies in an editor's file, written with a slip: kept where it can only mean one thing, else named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolweave.config import LoadedConfig, load_config
from toolweave.errors import ConfigError

_SERVERS = {name: {"command": "x"} for name in ("github", "notes")}


def loaded(folder: Path, name: str, content: object) -> LoadedConfig:
    """Load a file with this name and content."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return load_config(path)


@pytest.mark.parametrize(
    "lists",
    [
        {"mcp": {"excluded": "github"}},
        {"mcp": {"excluded": ["GitHub "]}},
        {"mcp": {"allowed": "notes"}},
        {"mcp": {"allowed": ["Notes"]}},
        {"excludeMCPServers": "github"},
        {"allowMCPServers": "notes"},
    ],
    ids=str,
)
def test_a_server_that_gemini_excludes_by_one_name_or_in_another_case_does_not_start(
    tmp_path: Path, lists: dict[str, Any]
) -> None:
    found = loaded(tmp_path, ".gemini/settings.json", {"mcpServers": _SERVERS, **lists})

    assert (list(found.servers), found.disabled) == (["notes"], ("github",))


def test_a_server_that_gemini_switched_off_by_its_stored_name_does_not_start(tmp_path: Path) -> None:
    switches = Path.home() / ".gemini" / "mcp-server-enablement.json"
    switches.parent.mkdir(parents=True)
    switches.write_text('{"github": {"enabled": "false"}}', "utf-8")

    found = loaded(tmp_path, ".gemini/settings.json", {"mcpServers": {"GitHub": {"command": "x"}}})

    assert (list(found.servers), found.disabled) == ([], ("GitHub",))


@pytest.mark.parametrize(
    ("name", "lists", "said"),
    [
        (".gemini/settings.json", {"mcp": {"excluded": {"github": True}}}, "'mcp.excluded' must be a list of strings"),
        (".gemini/settings.json", {"mcp": {"allowed": [1]}}, r"'mcp.allowed\[0\]' must be a string"),
        (".gemini/settings.json", {"excludeMCPServers": 5}, "'excludeMCPServers' must be a list of strings"),
    ],
    ids=str,
)
def test_a_list_of_servers_of_another_type_is_an_error(
    tmp_path: Path, name: str, lists: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, name, {"mcpServers": _SERVERS, **lists})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"permissions": {"deny": {"mcp__github": True}}}, "'permissions.deny' must be a list of strings"),
        ({"permissions": {"deny": [["mcp__github"]]}}, r"'permissions.deny\[0\]' must be a string"),
        ({"permissions": ["mcp__github"]}, "'permissions' must be an object"),
        ({"disabledMcpjsonServers": {"github": True}}, "'disabledMcpjsonServers' must be a list of strings"),
    ],
    ids=str,
)
def test_a_denial_of_claude_code_of_another_type_starts_nothing(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings), "utf-8")

    with pytest.raises(ConfigError, match=rf"settings\.json: {said}"):
        loaded(tmp_path, ".mcp.json", {"mcpServers": _SERVERS})


def test_a_single_denial_of_claude_code_may_be_a_text(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    settings = {"permissions": {"deny": "mcp__github__delete"}, "disabledMcpjsonServers": "notes"}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings), "utf-8")

    found = loaded(tmp_path, ".mcp.json", {"mcpServers": _SERVERS})

    assert found.servers["github"].exclude == ("delete",)
    assert found.disabled == ("notes",)


@pytest.mark.parametrize("value", ["false", "no", False])
def test_a_tool_that_codex_switches_off_by_a_word_is_not_offered(tmp_path: Path, value: object) -> None:
    entry = f'[mcp_servers.github]\ncommand = "x"\n[mcp_servers.github.tools.delete]\nenabled = {json.dumps(value)}\n'
    found = loaded(tmp_path, ".codex/config.toml", entry)

    assert found.servers["github"].exclude == ("delete",)


def test_a_switch_of_codex_that_is_not_one_is_an_error(tmp_path: Path) -> None:
    entry = '[mcp_servers.github]\ncommand = "x"\n[mcp_servers.github.tools.delete]\nenabled = "never"\n'
    found = loaded(tmp_path, ".codex/config.toml", entry)

    assert "'tools.delete.enabled' must be true or false" in str(found.errors["github"])


_OPENCODE = {"mcp": {"github": {"type": "local", "command": ["x"]}}}


@pytest.mark.parametrize(
    "rules",
    [
        {"tools": {"github_delete": "false"}},
        {"permission": {"github_delete": "Deny"}},
        {"permission": {"github_delete": {"*": "deny"}}},
    ],
    ids=str,
)
def test_a_tool_that_opencode_denies_in_another_form_is_not_offered(tmp_path: Path, rules: dict[str, Any]) -> None:
    found = loaded(tmp_path, "opencode.json", {**_OPENCODE, **rules})

    assert found.servers["github"].exclude == ("delete",)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"permission": {"github_delete": "never"}}, "'permission.github_delete' is 'never'; known: allow, ask, deny"),
        ({"tools": {"github_delete": "never"}}, "'tools.github_delete' must be true or false"),
    ],
    ids=str,
)
def test_a_rule_of_opencode_that_means_nothing_starts_nothing(tmp_path: Path, rules: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, "opencode.json", {**_OPENCODE, **rules})


@pytest.mark.parametrize(
    ("name", "content", "key"),
    [
        (".gemini/settings.json", {"mcpServers": _SERVERS, "mcp": {"Excluded": ["github"]}}, "mcp.Excluded"),
        (".gemini/settings.json", {"mcpServers": _SERVERS, "mcp": {"exclude": ["github"]}}, "mcp.exclude"),
        (".gemini/settings.json", {"mcpServers": _SERVERS, "excludedMCPServers": ["github"]}, "excludedMCPServers"),
        ("opencode.json", {**_OPENCODE, "permissions": {"github_delete": "deny"}}, "permissions"),
    ],
    ids=str,
)
def test_a_misspelt_list_of_denials_is_named_in_a_warning(
    tmp_path: Path, name: str, content: dict[str, Any], key: str
) -> None:
    found = loaded(tmp_path, name, content)

    assert any(f"the key {key!r} beside the servers is not applied" in line for line in found.warnings)


def test_other_settings_of_gemini_and_opencode_are_no_denials(tmp_path: Path) -> None:
    gemini: dict[str, Any] = {
        "mcpServers": _SERVERS,
        "mcp": {"serverCommand": "x", "allowed": ["notes"]},
        "excludeTools": ["a"],
    }
    opencode: dict[str, Any] = {
        **_OPENCODE,
        "theme": "x",
        "provider": {},
        "agent": {"a": {}},
        "tools": {},
        "permission": {"bash": "ask"},
    }

    assert loaded(tmp_path, ".gemini/settings.json", gemini).warnings == ()
    assert loaded(tmp_path, "opencode.json", opencode).warnings == ()


def test_a_key_that_an_entry_has_twice_is_named_with_its_lines(tmp_path: Path) -> None:
    text = '{"mcpServers": {"github": {\n"command": "x",\n"disabled": true,\n"disabled": false\n}}}'
    found = loaded(tmp_path, "mcp.json", text)

    (warning,) = found.warnings
    assert "server 'github': the key 'disabled' is written twice, in lines 3, 4; the last one counts" in warning


def test_a_section_that_is_written_twice_is_named_with_its_lines(tmp_path: Path) -> None:
    text = '{"mcpServers": {"github": {"command": "x"}},\n"mcpServers": {"notes": {"command": "x"}}}'
    found = loaded(tmp_path, "mcp.json", text)

    (warning,) = found.warnings
    assert "the section 'mcpServers' is written twice, in lines 1, 2; only the servers of the last one" in warning
    assert list(found.servers) == ["notes"]
