"""Variables in entries, through `parse_server` and `load_config`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from toolweave.config import Secret, ServerConfig, load_config, parse_server
from toolweave.errors import ConfigError

ENV = {"HOME": "/home/me", "USER": "ann", "API_KEY": "sk-12345", "EMPTY": "", "TRICK": "${USER}", "PORT": "8080"}


def argument(text: str, **env: str) -> str:
    return parse_server("srv", {"command": "x", "args": [text]}, env={**ENV, **env}).args[0]


@pytest.mark.requirement("R8")
@pytest.mark.parametrize(
    "text, expanded",
    [
        ("${USER}", "ann"),
        ("a-${USER}-${env:USER}-b", "a-ann-ann-b"),
        ("${NOPE:-fall back}", "fall back"),
        ("${env:NOPE:-x}", "x"),
        ("${EMPTY}", ""),
        ("${EMPTY:-full}", "full"),
        ("${USER:-other}", "ann"),
        ("${NOPE:-}", ""),
        ("${NOPE:-${ALSO_NOPE:-${USER}}}", "ann"),
        ("${NOPE:-a:-b}", "a:-b"),
        ("${TRICK}", "${USER}"),
        ("~", "/home/me"),
        ("~/data", "/home/me/data"),
        ("~/${USER}", "/home/me/ann"),
        ("${NOPE:-~/x}", "/home/me/x"),
        ("~other/x", "~other/x"),
        ("a~/b", "a~/b"),
        ("${userHome}/x", "/home/me/x"),
        ("${/}${pathSeparator}", os.sep * 2),
        ("$USER $$ ${} ${1} ${x%%y} ${a.b} ${LIST[@]}", "$USER $$ ${} ${1} ${x%%y} ${a.b} ${LIST[@]}"),
        ("open ${USER", "open ${USER"),
        ("${unclosed:-${USER}", "${unclosed:-${USER}"),
        ("a } b ${USER}", "a } b ann"),
    ],
)
def test_variables_are_expanded_once(text: str, expanded: str) -> None:
    assert argument(text) == expanded


def test_variables_are_expanded_in_every_field_and_not_in_keys() -> None:
    config = parse_server(
        "srv",
        {
            "command": "~/bin/${USER}",
            "args": ["${PORT}"],
            "env": {"${USER}": "${USER}"},
            "cwd": "${workspaceFolder}",
            "timeout": "${PORT:-5}",
            "disabled": "${OFF:-false}",
            "include": ["${USER}_tool"],
            "toolPrefix": "${USER}_",
            "x-ignored": "${NOPE}",
            "unknown": [{"deep": "${USER}"}],
        },
        env=ENV,
    )
    remote = parse_server(
        "r",
        {
            "url": "http://h:${PORT}/",
            "headers": {"A": "${USER}"},
            "auth": {"type": "custom", "headers": {"B": "${USER}"}},
        },
        env=ENV,
    )

    assert (config.command, config.args, config.cwd) == ("/home/me/bin/ann", ("8080",), str(Path.cwd()))
    assert config.env_values() == {"${USER}": "ann"}
    assert (config.timeout.call, config.disabled, config.include) == (8.08, False, ("ann_tool",))
    assert config.tool_prefix == "ann_"
    assert config.options == {"unknown": [{"deep": "ann"}]}
    assert (remote.url, remote.header_values()) == ("http://h:8080/", {"A": "ann"})
    assert remote.auth is not None
    assert remote.auth.headers == {"B": Secret("ann")}


def test_the_home_directory_is_found_without_a_home_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")  # as pathlib does for an account without one

    assert parse_server("s", {"command": "~/x"}, env={}).command == f"{Path('~').expanduser()}/x"
    monkeypatch.setattr(Path, "home", no_home)
    assert parse_server("s", {"command": "~/x"}, env={}).command == "~/x"
    assert parse_server("s", {"command": "~/x"}, env={"USERPROFILE": "C:/Users/me"}).command == "C:/Users/me/x"


@pytest.mark.parametrize(
    "field, value",
    [
        ("args[0]", {"args": ["${NOPE}"]}),
        ("env.A", {"env": {"A": "x ${env:NOPE}"}}),
        ("cwd", {"cwd": "${NOPE}"}),
        ("args[1]", {"args": ["a", "${X:-${NOPE}}"]}),
    ],
)
def test_an_unset_variable_names_server_field_and_variable(field: str, value: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_server("srv", {"command": "x", **value}, env=ENV)

    assert (caught.value.server, caught.value.field) == ("srv", field)
    assert "environment variable NOPE is not set" in str(caught.value)
    assert "${NOPE:-default}" in str(caught.value)


@pytest.mark.parametrize("text", ["${command:pick}", "${config:a.b}"])
def test_what_only_an_editor_can_resolve_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="only an editor can resolve"):
        argument(text)


def test_defaults_cannot_nest_without_end() -> None:
    with pytest.raises(ConfigError, match="nests defaults"):
        argument("${N:-" * 30 + "}" * 30)


def test_a_secret_that_came_from_a_variable_is_masked_wherever_it_went() -> None:
    config = parse_server("srv", {"command": "x", "args": ["--plain", "${API_KEY}", "${USER}"]}, env=ENV)

    assert config.args == ("--plain", "sk-12345", "ann")
    assert "sk-12345" not in f"{config!r} {config.endpoint} {config.to_dict()}"
    assert "ann" in repr(config)
    assert config.redact("failed: sk-12345") == "failed: ***"


def test_a_secret_from_a_variable_stays_out_of_errors() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_server("srv", {"url": "ftp://h/${API_KEY}"}, env=ENV)

    assert "sk-12345" not in str(caught.value)


def vscode(
    entry: dict[str, Any],
    *definitions: dict[str, Any],
    env: dict[str, str] | None = None,
    inputs: dict[str, Any] | None = None,
) -> ServerConfig | ConfigError:
    document = {"inputs": list(definitions), "servers": {"srv": {"command": "x", **entry}}}
    loaded = load_config(document, env=env or {}, inputs=inputs)
    return loaded.servers.get("srv") or loaded.errors["srv"]


@pytest.mark.parametrize(
    "definition, options, value",
    [
        ({}, {"inputs": {"gh-token": "given"}}, "given"),
        ({}, {"inputs": {"gh-token": Secret("given")}}, "given"),
        ({}, {"inputs": {"gh-token": 5}}, "5"),
        ({}, {"env": {"gh_token": "from env"}}, "from env"),
        ({}, {"env": {"GH_TOKEN": "from env"}}, "from env"),
        ({"default": "fallback"}, {}, "fallback"),
        ({"default": "fallback"}, {"inputs": {"gh-token": "given"}, "env": {"GH_TOKEN": "e"}}, "given"),
    ],
)
def test_an_input_is_given_by_the_caller_a_variable_or_its_default(
    definition: dict[str, Any], options: dict[str, Any], value: str
) -> None:
    found = vscode({"args": ["${input:gh-token}"]}, {"id": "gh-token", **definition}, **options)

    assert isinstance(found, ServerConfig)
    assert found.args == (value,)
    assert value not in repr(found)


def test_a_password_input_is_masked_whatever_its_name() -> None:
    found = vscode({"args": ["${input:who}"]}, {"id": "who", "password": True}, inputs={"who": "s3cr3t"})

    assert isinstance(found, ServerConfig)
    assert "s3cr3t" not in repr(found)


def test_an_input_without_value_is_an_error_that_says_how_to_give_one() -> None:
    found = vscode({"env": {"T": "${input:gh-token}"}}, {"id": "gh-token", "description": "GitHub PAT"})

    assert isinstance(found, ConfigError)
    assert (found.server, found.field) == ("srv", "env.T")
    assert "the input 'gh-token' (GitHub PAT)" in str(found)
    assert "environment variable GH_TOKEN" in str(found)


@pytest.mark.parametrize("inputs", ["nonsense", [5, {"no": "id"}], None])
def test_odd_definitions_of_inputs_are_passed_over(inputs: Any) -> None:
    loaded = load_config({"inputs": inputs, "servers": {"srv": {"command": "x"}}}, env={})

    assert list(loaded.servers) == ["srv"]


@pytest.mark.parametrize(
    "place, folder", [("mcp.json", "proj"), (".vscode/mcp.json", "proj"), (".cursor/mcp.json", "proj")]
)
def test_the_workspace_is_the_directory_of_the_project(place: str, folder: str, tmp_path: Path) -> None:
    path = tmp_path / folder / place
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"servers": {"s": {"command": "x", "args":'
        ' ["${workspaceFolder}", "${workspaceRoot}", "${workspaceFolderBasename}"]}}}'
    )

    config = load_config(path).servers["s"]

    assert config.args == (str(tmp_path / folder), str(tmp_path / folder), folder)


def test_the_workspace_of_a_users_own_file_is_the_current_directory(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("~").expanduser() / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {"s": {"command": "x", "cwd": "${workspaceFolder}"}}}')
    monkeypatch.chdir(tmp_path)

    assert load_config(path).servers["s"].cwd == str(tmp_path)
