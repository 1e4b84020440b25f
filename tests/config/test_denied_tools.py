"""Tools that the settings of Claude Code and opencode deny beside the entries of servers are never offered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.config.three_tools import add, boom, look
from toolweave import connect_mcp
from toolweave.config import LoadedConfig, ServerConfig, default_config, load_config
from toolweave.errors import ConfigError, ToolError
from toolweave.serve import create_mcp_server

ALL = ("add", "boom", "look")


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


async def offered(config: ServerConfig) -> tuple[str, ...]:
    """Return the tools that a server offers with this config; the others cannot be called."""
    server = create_mcp_server("a", tools=[add, boom, look])
    with anyio.fail_after(30):
        async with connect_mcp(config.replace(transport="inprocess", command="", server=server)) as connection:
            names = (await connection.list_tools()).names
            for name in {*ALL} - {*names}:
                with pytest.raises(ToolError, match="is not offered"):
                    await connection.call_tool(name, {"a": 1, "b": 2} if name == "add" else {})
            return names


CLAUDE: dict[str, tuple[list[Any], tuple[str, ...]]] = {
    "a tool": (["mcp__my_server__boom"], ("add", "look")),
    "some arguments of a tool": (["mcp__my_server__boom(force:*)"], ("add", "look")),
    "a server": (["mcp__my_server"], ()),
    "a server with a star": (["mcp__my_server__*"], ()),
    "all servers": (["mcp__*"], ()),
    "other servers and tools": (["Bash(rm:*)", "mcp__other__boom", "mcp__my_server2", "WebFetch", 7], ALL),
}


@pytest.mark.parametrize("settings", ["home", "project", "local"])
@pytest.mark.parametrize("file", [".mcp.json", ".claude.json"])
@pytest.mark.parametrize(("deny", "left"), CLAUDE.values(), ids=CLAUDE)
async def test_what_claude_code_denies_is_not_offered(
    tmp_path: Path, settings: str, file: str, deny: list[Any], left: tuple[str, ...]
) -> None:
    places = {
        "home": Path.home() / ".claude" / "settings.json",
        "project": tmp_path / ".claude" / "settings.json",
        "local": tmp_path / ".claude" / "settings.local.json",
    }
    write(places[settings], {"permissions": {"allow": ["mcp__my_server__boom"], "deny": deny}})
    config = write(tmp_path / file, {"mcpServers": {"my server": {"command": "x"}}})

    (read,) = load_config(config).servers.values()

    assert await offered(read) == left


async def test_servers_that_are_found_in_claudes_files_obey_its_settings(tmp_path: Path) -> None:
    write(Path.home() / ".claude" / "settings.json", {"permissions": {"deny": ["mcp__a__boom"]}})
    write(Path.home() / ".claude.json", {"mcpServers": {"a": {"command": "x", "include": ["boom", "look"]}}})

    assert await offered(default_config(tmp_path).servers["a"]) == ("look",)


async def test_a_program_that_is_not_claude_code_does_not_obey_its_settings(tmp_path: Path) -> None:
    write(Path.home() / ".claude" / "settings.json", {"permissions": {"deny": ["mcp__a__boom"]}})
    config = write(tmp_path / "mcp.json", {"mcpServers": {"a": {"command": "x"}}})

    assert await offered(load_config(config).servers["a"]) == ALL


def test_settings_that_cannot_be_read_start_nothing(tmp_path: Path) -> None:
    write(tmp_path / ".claude" / "settings.json", '{"permissions": {"deny": [')
    config = write(tmp_path / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})

    with pytest.raises(ConfigError, match=r"settings\.json"):
        load_config(config)


def test_settings_that_are_out_of_reach_start_nothing(tmp_path: Path) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.symlink_to(settings)
    config = write(tmp_path / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})

    with pytest.raises(ConfigError, match=r"settings\.json.*cannot be read"):
        load_config(config)


OPENCODE: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "a tool": ({"tools": {"a_boom": False}}, ("add", "look")),
    "a server": ({"tools": {"a_*": False}}, ()),
    "servers with one beginning": ({"tools": {"a*": False}}, ()),
    "everything": ({"tools": {"*": False}}, ()),
    "everything but one": ({"tools": {"a_look": True, "*": False}}, ("look",)),
    "a tool of many": ({"tools": {"a_boom": False, "*": True}}, ("add", "look")),
    "other tools": ({"tools": {"bash": False, "b_boom": False, "ab_*": False}}, ALL),
    "a permission": ({"permission": {"a_boom": "deny", "a_add": "ask", "edit": "deny"}}, ("add", "look")),
    "one permission for all": ({"permission": "deny"}, ()),
    "permissions by argument": ({"permission": {"bash": {"rm *": "deny"}}}, ALL),
}


def opencode(servers: Mapping[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    return {"mcp": servers or {"a": {"type": "local", "command": ["x"]}}, **rest}


@pytest.mark.parametrize("settings", ["its own file", "the user's file", "the project's file", "code"])
@pytest.mark.parametrize(("rules", "left"), OPENCODE.values(), ids=OPENCODE)
async def test_what_opencode_denies_is_not_offered(
    tmp_path: Path, settings: str, rules: Mapping[str, Any], left: tuple[str, ...]
) -> None:
    def read() -> LoadedConfig:
        if settings == "code":
            return load_config({**opencode(), **rules})
        if settings == "its own file":
            return load_config(write(tmp_path / "opencode.json", {**opencode(), **rules}))
        user = Path.home() / ".config" / "opencode" / "opencode.jsonc"
        other = user if settings == "the user's file" else tmp_path / ".opencode" / "opencode.json"
        write(other, rules)
        return load_config(write(tmp_path / "opencode.json", opencode()))

    assert await offered(read().servers["a"]) == left


OPENCODE_ASKS: dict[str, tuple[Any, Mapping[str, str]]] = {
    "a tool": ({"a_boom": "ask"}, {"boom": "always"}),
    "in another case": ({"a_boom": "Ask"}, {"boom": "always"}),
    "a server": ({"a_*": "ask", "a_look": "allow"}, {"*": "always", "look": "never"}),
    "everything": ("ask", {"*": "always"}),
    "a part of the tools": ({"a_b*": "ask"}, {"*": "always"}),
    "what a later rule allows": ({"a_*": "ask", "a_**": "allow"}, {}),
    "other tools": ({"bash": "ask", "b_boom": "ask"}, {}),
    "arguments": ({"a_boom": {"rm": "deny", "*": "ask"}}, {"boom": "always"}),
}


@pytest.mark.parametrize(("permission", "confirm"), OPENCODE_ASKS.values(), ids=OPENCODE_ASKS)
def test_what_opencode_asks_a_person_about_needs_an_approval(
    tmp_path: Path, permission: Any, confirm: Mapping[str, str]
) -> None:
    path = write(tmp_path / "opencode.json", opencode(permission=permission))

    assert load_config(path).servers["a"].confirm == confirm


async def test_a_question_about_a_part_of_the_tools_takes_back_no_denial(tmp_path: Path) -> None:
    permission = {"a_boom": "deny", "a_*oom*": "ask"}
    read = load_config(write(tmp_path / "opencode.json", opencode(permission=permission))).servers["a"]

    assert await offered(read) == ("add", "look")
    assert read.confirm == {"*": "always"}


@pytest.mark.parametrize(
    ("ask", "confirm"),
    [
        (["mcp__a__boom", "mcp__a__add(1)"], {"boom": "always", "add": "always"}),
        (["mcp__a"], {"*": "always", "look": "never"}),
        ("mcp__a__*", {"*": "always", "look": "never"}),
        (["Bash(rm:*)", "mcp__b__boom"], {}),
    ],
)
async def test_what_claude_code_asks_a_person_about_needs_an_approval(
    tmp_path: Path, ask: Any, confirm: Mapping[str, str]
) -> None:
    write(tmp_path / ".claude" / "settings.local.json", {"permissions": {"ask": ask}})
    write(Path.home() / ".claude" / "settings.json", {"permissions": {"deny": ["mcp__a__look"]}})
    read = load_config(write(tmp_path / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})).servers["a"]

    assert dict(read.confirm) == confirm
    assert await offered(read) == ("add", "boom")


def test_the_approvals_of_an_entry_win_over_those_of_the_settings(tmp_path: Path) -> None:
    write(tmp_path / ".claude" / "settings.json", {"permissions": {"ask": ["mcp__a__boom", "mcp__a__add"]}})
    entry = {"command": "x", "confirm": {"boom": "never"}}
    read = load_config(write(tmp_path / ".mcp.json", {"mcpServers": {"a": entry}})).servers["a"]

    assert read.confirm == {"boom": "never", "add": "always"}


@pytest.mark.parametrize("pattern", ["a_b*", "*_boom", "a_?oom"])
def test_a_denial_that_cannot_be_kept_stops_its_server_alone(tmp_path: Path, pattern: str) -> None:
    servers = {name: {"type": "local", "command": ["x"]} for name in ("a", "z")}
    path = write(tmp_path / "opencode.json", opencode(servers, tools={pattern: False}))

    loaded = load_config(path)

    assert "a" in loaded.errors
    assert f"denies the tools {pattern!r}, which cannot be kept" in str(loaded.errors["a"])
    assert str(path) in str(loaded.errors["a"])
    assert ("z" in loaded.servers) is not pattern.startswith("*")


async def test_a_denial_wins_over_the_filters_of_the_entry(tmp_path: Path) -> None:
    entry = {"type": "local", "command": ["x"], "include": ["boom"]}
    path = write(tmp_path / "opencode.json", opencode({"a": entry}, tools={"a_boom": False}))

    assert await offered(load_config(path).servers["a"]) == ()


def test_rules_that_are_not_an_object_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'tools' must be an object"):
        load_config(write(tmp_path / "opencode.json", opencode(tools=["a_boom"])))
