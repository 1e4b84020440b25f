"""Protections that editors' files ask for: kept, or refused; what is not applied is named, protections first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolweave import Hub
from toolweave.config import Sandbox, load_config, merge_config, parse_server
from toolweave.errors import ConfigError
from toolweave.gateway import load_gateway_config

DOMAINS = {"network": {"allowedDomains": ["api.example.com"]}}


def read(**entry: Any) -> Any:
    return parse_server("a", {"command": "x", **entry})


def notes(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(load_config({"mcpServers": {"a": {"command": "x", **entry}}}).entries[0].notes)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, Sandbox(network=False)),
        ({"sandbox": {}}, Sandbox(network=False)),
        ({"sandbox": {"filesystem": {"allowWrite": ["out"]}}}, Sandbox(writable=["out"], network=False)),
        ({"sandbox": {"filesystem": {"denyWrite": ["/etc"]}}}, Sandbox(network=False)),
        ({"sandbox": {"network": {"allowedDomains": []}}}, Sandbox(network=False)),
        ({"sandbox": {"network": {"deniedDomains": ["x.example"]}}}, Sandbox(network=False)),
        ({"sandbox": {"network": {"allowedDomains": ["*"]}}}, Sandbox(network=True)),
        ({"sandbox": {"type": "bwrap", "network": True}}, Sandbox(network=True)),
    ],
)
def test_the_sandbox_of_an_editor_becomes_ours(settings: dict[str, Any], kept: Sandbox) -> None:
    assert read(sandboxEnabled=True, **settings).sandbox == kept


@pytest.mark.parametrize(
    ("sandbox", "field"),
    [
        (DOMAINS, "sandbox.network.allowedDomains"),
        ({"network": {"allowedDomains": ["*"], "deniedDomains": ["x"]}}, "sandbox.network.deniedDomains"),
        ({"filesystem": {"denyRead": ["~/.ssh"]}}, "sandbox.filesystem.denyRead"),
        ({"filesystem": {"allowWrite": ["."], "denyWrite": ["./.git"]}}, "sandbox.filesystem.denyWrite"),
        ({"filesystem": {"denyReads": ["~/.ssh"]}}, "sandbox.filesystem.denyReads"),
        ({"filesystem": {}, "processes": False}, "sandbox.processes"),
        ({"filesystem": []}, "sandbox.filesystem"),
        ({"writeable": ["."]}, "sandbox.writeable"),
    ],
)
def test_a_server_is_not_started_in_less_of_a_sandbox_than_its_owner_wants(sandbox: Any, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(sandboxEnabled=True, sandbox=sandbox)
    assert (caught.value.server, caught.value.field) == ("a", field)


def test_a_sandbox_without_its_type_is_ours() -> None:
    assert read(sandbox={"network": False}).sandbox == Sandbox(network=False)
    assert read(sandbox={"writable": ["out"]}).sandbox == Sandbox(writable=["out"])


def test_the_sandbox_beside_the_servers_of_a_file_is_that_of_those_which_are_to_run_in_one(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    servers = {
        "a": {"command": "x", "sandboxEnabled": True},
        "b": {"command": "x"},
        "c": {"command": "x", "sandboxEnabled": True, "sandbox": {"filesystem": {"allowWrite": ["c"]}}},
    }
    path.write_text(json.dumps({"servers": servers, "sandbox": {"filesystem": {"allowWrite": ["${workspaceFolder}"]}}}))

    found = {name: config.sandbox for name, config in load_config(path).servers.items()}

    assert found == {
        "a": Sandbox(writable=[str(tmp_path)], network=False),
        "b": None,
        "c": Sandbox(writable=["c"], network=False),
    }


@pytest.mark.parametrize(
    ("entry", "note"),
    [
        ({"sandbox": DOMAINS}, "'sandbox' is not applied: 'sandboxEnabled' is not true"),
        ({"default_tools_approval_mode": "auto"}, "'default_tools_approval_mode' is not applied"),
        ({"tools": {"wipe": {"approval_mode": "auto"}}}, "'tools.wipe.approval_mode' is not applied"),
        ({"trust": False}, "'trust' is not applied"),
        ({"required": True}, "'required' is not applied"),
        ({"dev": {"watch": "src"}}, "'dev' is not applied"),
    ],
)
def test_what_is_not_applied_is_named(entry: dict[str, Any], note: str, caplog: pytest.LogCaptureFixture) -> None:
    (found,) = notes(entry)

    assert found.startswith(note)
    assert [message for message in caplog.messages if note in message] == [f"server 'a': {found}"]


@pytest.mark.parametrize(
    "entry",
    [
        {"default_tools_approval_mode": "approve"},
        {"tools": {"look": {"approval_mode": "approve"}}},
        {"trust": True},
        {"sandboxEnabled": False},
        {"sandbox": False},
        {"required": False},
    ],
)
def test_what_asks_for_nothing_is_not_named(entry: dict[str, Any]) -> None:
    assert notes(entry) == ()
    assert read(**entry).sandbox is None


def test_protections_are_named_first() -> None:
    found = notes({"flavour": 1, "required": True, "disabledTools": ["x"], "default_tools_approval_mode": "auto"})

    assert [text.split("'")[1] for text in found] == ["default_tools_approval_mode", "required", "flavour"]


def test_a_sandbox_of_a_server_that_is_not_started_here_is_named() -> None:
    (found,) = load_config({"servers": {"a": {"url": "https://a.example", "sandboxEnabled": True}}}).entries[0].notes

    assert found == "'sandboxEnabled' is not applied: the server is not a process of this machine"


def test_a_tool_that_is_switched_off_is_not_offered_and_calls_one_after_the_other_stay_so() -> None:
    config = read(enabled_tools=["wipe"], tools={"wipe": {"enabled": False}}, supports_parallel_tool_calls=False)

    assert (config.include, config.exclude, config.max_concurrency) == ((), ("wipe", "*"), 1)
    assert read(tools={"wipe": {"enabled": False}}).exclude == ("wipe",)
    with pytest.raises(ConfigError, match=r"'tools.wipe' has no setting 'aproval_mode'; did you mean 'approval_mode'"):
        read(tools={"wipe": {"aproval_mode": "prompt"}})


async def test_what_is_not_applied_is_a_warning_of_a_hub(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "no-such-program", "trust": False}}}))

    async with Hub(path) as hub:
        assert any("server 'a': 'trust' is not applied" in text for text in hub.warnings)


@pytest.mark.parametrize(
    ("entry", "confirm"),
    [
        ({"default_tools_approval_mode": "prompt"}, {"*": "always"}),
        ({"default_tools_approval_mode": "writes"}, {"*": "writes"}),
        ({"default_tools_approval_mode": "approve"}, {}),
        ({"tools": {"wipe": {"approval_mode": "prompt"}}}, {"wipe": "always"}),
        (
            {"default_tools_approval_mode": "prompt", "tools": {"look": {"approval_mode": "approve"}}},
            {"*": "always", "look": "never"},
        ),
        ({"confirm": "destructive"}, {"*": "destructive"}),
        ({"confirm": {"wipe": "always"}, "default_tools_approval_mode": "approve"}, {"wipe": "always"}),
    ],
)
def test_the_approvals_of_an_editor_become_ours(entry: dict[str, Any], confirm: dict[str, str]) -> None:
    assert dict(read(**entry).confirm) == confirm
    assert read(**read(**entry).to_mapping()).confirm == confirm
    assert notes(entry) == ()


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"confirm": "allways"}, "confirm.*"),
        ({"confirm": {"wipe": True}}, "confirm.wipe"),
        ({"confirm": ["wipe"]}, "confirm"),
        ({"default_tools_approval_mode": "ask"}, "default_tools_approval_mode"),
        ({"tools": {"wipe": {"approval_mode": "ask"}}}, "tools.wipe.approval_mode"),
        ({"tools": {"wipe": "prompt"}}, "tools.wipe"),
    ],
)
def test_an_approval_that_is_wrong_keeps_the_server_from_starting(entry: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**entry)
    assert (caught.value.server, caught.value.field) == ("a", field)


def test_a_gateway_warns_of_approvals_that_it_asks_nobody_for() -> None:
    servers = {"a": {"command": "x", "confirm": "always"}, "b": {"command": "y", "confirm": "never"}}
    content = {"mcpServers": servers, "gateway": {}}

    (warning,) = load_gateway_config(content).warnings
    assert "server 'a': its 'confirm' asks no caller of a gateway; add the middleware 'approval'" in warning
    assert load_gateway_config({**content, "gateway": {"middleware": [{"name": "approval"}]}}).warnings == ()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"url": "https://a.example", "sandbox": "bwrap"}, "'sandbox' has no effect on a server that is not started"),
        ({"url": "https://a.example", "limits": {"open_files": 9}}, "'limits' has no effect on a server that is not"),
        ({"url": "https://a.example", "env": {"A": "b"}}, "'env' has no effect on a server that is not started here"),
        ({"command": "x", "headers": {"A": "b"}}, "'headers' has no effect on a stdio server"),
        ({"url": "https://a.example", "auth": {"token": "t", "scops": ["a"]}}, "unknown key 'scops' of 'auth'"),
        (
            {"url": "https://a.example", "auth": {"type": "oauth", "scops": ["a"]}},
            "unknown key 'scops' of a sign-in is ignored",
        ),
    ],
)
def test_settings_that_do_nothing_for_a_server_are_named(entry: dict[str, Any], says: str) -> None:
    (note,) = load_config({"mcpServers": {"a": entry}}).entries[0].notes

    assert note.startswith(says)


def test_what_is_not_applied_of_a_runtime_config_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    merge_config(read(), {"flavour": 1})

    assert caplog.messages == ["server 'a': unknown key 'flavour'; kept in 'options'"]
    with pytest.raises(ConfigError, match="server 'a': unknown key 'exlude'"):
        merge_config(read(), {"exlude": ["wipe"]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("permissions", {"deny": ["mcp__a__x"]}),
        ("denyTools", ["x"]),
        ("excludeTools", ["x"]),
        ("deniedMcpServers", [{"serverName": "a"}]),
    ],
)
def test_a_protection_beside_the_servers_that_is_not_applied_is_named(key: str, value: object) -> None:
    (warning,) = load_config({"mcpServers": {"a": {"command": "x"}}, key: value}).warnings

    assert warning.startswith(f"the key {key!r} beside the servers is not applied")


@pytest.mark.parametrize(
    "beside",
    [
        {"$schema": "x", "inputs": [], "name": "team"},
        {"permissions": {}},
        {"excludeMCPServers": ["b"]},
        {"sandbox": {"network": {}}},
    ],
)
def test_what_is_applied_or_restricts_nothing_is_not_named(beside: dict[str, object]) -> None:
    assert load_config({"mcpServers": {"a": {"command": "x"}}, **beside}).warnings == ()


@pytest.mark.parametrize("section", ["mcpServers", "servers", "mcp_servers"])
@pytest.mark.parametrize("key", ["defualts", "defaults", "inptus", "timeout"])
def test_an_unknown_key_beside_the_servers_is_named(section: str, key: str) -> None:
    config = load_config({section: {"a": {"command": "x"}}, key: {"timeout": 3}})

    assert config.warnings == (f"unknown key {key!r} beside the servers; not applied",)
    assert list(config.servers) == ["a"]


def test_many_unknown_keys_beside_the_servers_are_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"servers": {"a": {"command": "x"}}, **{f"key{number}": 1 for number in range(7)}}))
    (warning,) = load_config(path).warnings

    assert warning.startswith(f"{path}: unknown keys 'key0', 'key1', ")
    assert warning.endswith(", 2 more beside the servers; not applied")


@pytest.mark.parametrize(
    "beside",
    [{"mcp": {"servers": {}}}, {"context_servers": {}}, {"$comment": "x", "_note": "x", "x-team": "x", "//": "x"}],
)
def test_settings_of_editors_and_comments_beside_the_servers_are_not_named(beside: dict[str, object]) -> None:
    config = {"mcpServers": {"a": {"command": "x"}}, "theme": "dark", **beside}
    if "$comment" in beside:
        del config["theme"]

    assert load_config(config).warnings == ()


@pytest.mark.parametrize("name", [".claude.json", "claude_desktop_config.json", ".amazonq/mcp.json"])
def test_settings_in_a_file_of_an_editor_are_not_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}, "theme": "dark"}))

    assert load_config(path).warnings == ()
