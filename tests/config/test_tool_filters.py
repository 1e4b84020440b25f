"""Tools that the owner of a config allows and denies, in every dialect: a denied one is not offered, nor called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from tests.config.three_tools import add, boom, look
from toolweave import Hub, connect_mcp
from toolweave.config import LoadedConfig, ServerConfig, load_config, parse_server
from toolweave.errors import ToolError
from toolweave.serve import create_mcp_server


class Words(NamedTuple):
    """The file of a program, its section for servers, and its words for filters.

    Attributes:
        denial_wins: Whether a tool that is allowed and denied is denied.
        empty: The tools that an empty list of allowed tools offers.
    """

    path: str
    section: str
    allow: str
    deny: str | None
    denial_wins: bool = True
    empty: Sequence[str] = ()


ALL = ("add", "boom", "look")
DIALECTS = {
    "ours": Words("mcp.json", "mcpServers", "include", "exclude", denial_wins=False, empty=ALL),
    "gemini": Words(".gemini/settings.json", "mcpServers", "includeTools", "excludeTools"),
    "codex": Words(".codex/config.toml", "mcp_servers", "enabled_tools", "disabled_tools"),
    "copilot": Words("mcp-config.json", "mcpServers", "tools", None),
    "roo": Words(".roo/mcp.json", "mcpServers", "allowedTools", "disabledTools"),
    "kiro": Words(".kiro/settings/mcp.json", "mcpServers", "enabledTools", "disabledTools"),
    "windsurf": Words(".codeium/windsurf/mcp_config.json", "mcpServers", "enabledTools", "disabledTools"),
    "crush": Words("crush.json", "mcp", "enabled_tools", "disabled_tools"),
    "opencode": Words("opencode.json", "mcp", "enabled-tools", "disabled-tools"),
    "amp": Words("settings.json", "amp.mcpServers", "includeTools", "excludeTools"),
    "goose": Words(".config/goose/config.json", "extensions", "available_tools", "excluded_tools", empty=ALL),
    "continue": Words(".continue/mcpServers/a.json", "mcpServers", "allowedTools", "excludedTools"),
    "zed": Words(".zed/settings.json", "context_servers", "enabled_tools", "disabled_tools"),
    "vscode": Words(".vscode/mcp.json", "servers", "tools", "disabledTools"),
}


def loaded(folder: Path, words: Words, settings: dict[str, Any]) -> LoadedConfig:
    """Write a file of a program with one server, and read it."""
    path = folder / words.path
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {"extensions": {"type": "stdio", "cmd": "x"}, "mcp": {"type": "stdio", "command": "x"}}
    entry = {**kind.get(words.section, {"command": "x"}), **settings}
    if path.suffix == ".toml":
        lines = [f"[{words.section}.a]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
        path.write_text("\n".join(lines))
    else:
        path.write_text(json.dumps({words.section: {"a": entry}}))
    return load_config(path)


def in_process(config: ServerConfig) -> ServerConfig:
    return config.replace(transport="inprocess", command="", server=create_mcp_server("a", tools=[add, boom, look]))


async def offered(config: ServerConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tools that a server offers with this config, and the problems of the connection."""
    with anyio.fail_after(30):
        async with connect_mcp(in_process(config), name="a") as connection:
            names = (await connection.list_tools()).names
            for name in {*ALL} - {*names}:
                with pytest.raises(ToolError, match="is not offered"):
                    await connection.call_tool(name, {"a": 1, "b": 2} if name == "add" else {})
            return names, connection.problems


every = pytest.mark.parametrize("words", DIALECTS.values(), ids=DIALECTS.keys())
denying = pytest.mark.parametrize("words", [one for one in DIALECTS.values() if one.deny], ids=lambda one: one.path)


@every
async def test_only_what_is_allowed_is_offered(tmp_path: Path, words: Words) -> None:
    read = loaded(tmp_path, words, {words.allow: ["add", "look"]})

    assert await offered(read.servers["a"]) == (("add", "look"), ())
    assert read.warnings == ()


@every
async def test_a_star_allows_all(tmp_path: Path, words: Words) -> None:
    assert await offered(loaded(tmp_path, words, {words.allow: ["*"]}).servers["a"]) == (ALL, ())


@every
async def test_an_empty_list_means_what_it_means_to_its_owner(tmp_path: Path, words: Words) -> None:
    assert await offered(loaded(tmp_path, words, {words.allow: []}).servers["a"]) == (tuple(words.empty), ())


@denying
async def test_what_is_denied_is_not_offered(tmp_path: Path, words: Words) -> None:
    read = loaded(tmp_path, words, {str(words.deny): ["boom"]})

    assert await offered(read.servers["a"]) == (("add", "look"), ())


@denying
async def test_denying_a_star_denies_all(tmp_path: Path, words: Words) -> None:
    assert await offered(loaded(tmp_path, words, {str(words.deny): ["*"]}).servers["a"]) == ((), ())


@denying
async def test_what_is_allowed_and_denied_is_denied_or_its_owner_is_told(tmp_path: Path, words: Words) -> None:
    read = loaded(tmp_path, words, {words.allow: ["add", "boom"], str(words.deny): ["boom"]})

    if words.denial_wins:
        assert (await offered(read.servers["a"]))[0] == ("add",)
        assert read.warnings == ()
    else:
        assert (await offered(read.servers["a"]))[0] == ("add", "boom")
        assert "'exclude' is ignored for 'boom': 'include' names it and wins" in read.warnings[0]


@pytest.mark.parametrize("words", [one for one in DIALECTS.values() if one.deny and one.denial_wins])
async def test_a_tool_that_is_all_of_both_lists_leaves_none(tmp_path: Path, words: Words) -> None:
    read = loaded(tmp_path, words, {words.allow: ["boom"], str(words.deny): ["a:boom"]})

    assert await offered(read.servers["a"]) == ((), ())


@pytest.mark.parametrize(
    ("word", "words"),
    [(word, one) for one in DIALECTS.values() for word in ("allow", "deny") if getattr(one, word)],
    ids=lambda one: one if isinstance(one, str) else one.path,
)
async def test_a_misspelt_name_is_reported_everywhere(
    tmp_path: Path, words: Words, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    read = loaded(tmp_path, words, {getattr(words, word): ["boooom", "add"]})
    says = "no tool 'boooom'; did you mean 'boom'?"

    _, (problem,) = await offered(read.servers["a"])
    assert problem.endswith(says)
    caplog.clear()
    async with Hub({"a": in_process(read.servers["a"])}) as hub:
        assert [text for text in hub.warnings if says in text] == [f"server 'a': {problem}"]
    assert len([one for one in caplog.messages if says in one]) == 1


@pytest.mark.parametrize(
    "key", ["deniedTools", "blocked_tools", "exclud", "sandboxed", "toolPermissions", "require_approval"]
)
@every
def test_an_unknown_protection_keeps_the_server_from_starting(tmp_path: Path, words: Words, key: str) -> None:
    read = loaded(tmp_path, words, {key: ["boom"]})

    assert not read.servers
    assert f"unknown key {key!r}" in str(read.errors["a"])
    assert "a server is not started without one" in str(read.errors["a"])


@every
def test_an_unknown_key_that_protects_nothing_is_named(tmp_path: Path, words: Words) -> None:
    read = loaded(tmp_path, words, {"flavour": "x"})

    assert list(read.servers) == ["a"]
    assert [text for text in read.warnings if "unknown key 'flavour'" in text] == list(read.warnings)


@pytest.mark.parametrize("value", [False, [], {}, ""])
def test_a_protection_that_is_switched_off_keeps_nothing_from_starting(value: Any) -> None:
    assert parse_server("a", {"command": "x", "deniedTools": value}).command == "x"


def test_the_other_servers_of_a_file_start_without_the_one_with_an_unknown_protection() -> None:
    read = load_config({"mcpServers": {"a": {"command": "x", "denied": ["b"]}, "b": {"command": "y"}}})

    assert (list(read.servers), list(read.errors)) == (["b"], ["a"])


def test_a_server_that_is_switched_off_is_not_judged() -> None:
    read = load_config({"mcpServers": {"a": {"command": "x", "denied": ["b"], "disabled": True}}})

    assert (list(read.disabled), dict(read.errors)) == (["a"], {})


def test_several_lists_of_one_entry_allow_what_all_of_them_allow() -> None:
    config = parse_server("a", {"command": "x", "tools": ["*"], "includeTools": ["add", "boom"], "include": ["add"]})

    assert (config.include, config.exclude) == (("add",), ())
    assert parse_server("a", {"command": "x", "disabledTools": ["b"], "exclude": ["c"]}).exclude == ("c", "b")


async def test_a_config_in_python_denies_all_tools_by_a_star() -> None:
    assert await offered(ServerConfig(name="a", command="x", exclude=["*"])) == ((), ())
    assert await offered(ServerConfig(name="a", command="x", include=["*"])) == (ALL, ())
