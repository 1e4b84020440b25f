"""One entry in every dialect, through `parse_server`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from toolweave.config import Auth, Dialect, Secret, ServerConfig, Source, Timeouts, load_config, parse_server
from toolweave.errors import ConfigError


def read(
    entry: dict[str, Any],
    *,
    env: dict[str, str] | None = None,
    dialect: Dialect = "generic",
    source: Source | None = None,
) -> ServerConfig:
    return parse_server("srv", entry, env=env or {}, dialect=dialect, source=source)


def refused(entry: dict[str, Any], *, source: Source | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(entry, source=source)
    return caught.value


def notes(entry: dict[str, Any]) -> list[str]:
    return list(load_config({"mcpServers": {"srv": entry}}, env={}).warnings)


@pytest.mark.requirement("R1")
def test_the_two_axle_shapes_are_read() -> None:
    stdio = read({"transport": "stdio", "command": "npx", "args": ["-y", "pkg"], "env": {"A": "b"}})
    http = read({"transport": "http", "url": "http://localhost:3000/mcp", "headers": {"X": "y"}})

    assert stdio == ServerConfig(name="srv", command="npx", args=["-y", "pkg"], env={"A": "b"})
    assert http == ServerConfig(name="srv", url="http://localhost:3000/mcp", headers={"X": "y"})


@pytest.mark.requirement("R2", "C27", "D3")
def test_the_cursor_shorthand_is_a_stdio_server_with_its_environment() -> None:
    config = read({"command": "npx", "args": ["-y", "server", "/path"], "env": {"API_KEY": "secret"}})

    assert (config.transport, config.args) == ("stdio", ("-y", "server", "/path"))
    assert config.env_values() == {"API_KEY": "secret"}


@pytest.mark.requirement("R3", "R25")
def test_the_full_shape_keeps_extra_connection_keys_and_auth() -> None:
    config = read(
        {
            "serverName": "filesystem",
            "transport": "sse",
            "connection": {"url": "http://h/sse", "keepAlive": True, "headers": {"A": "b"}},
            "auth": {"type": "api_key", "token": "user-token", "region": "eu"},
        }
    )

    assert (config.transport, config.url) == ("sse", "http://h/sse")
    assert config.options == {"keepAlive": True}
    assert config.header_values() == {"A": "b"}
    assert config.auth == Auth(type="api_key", token=Secret("user-token"), options={"region": "eu"})


@pytest.mark.requirement("R3", "C27")
def test_the_full_shape_of_a_stdio_server_keeps_its_environment() -> None:
    config = read({"serverName": "fs", "transport": "stdio", "connection": {"command": "x", "env": {"A": "1"}}})

    assert config.env_values() == {"A": "1"}
    assert parse_server("", {"serverName": "fs", "transport": "stdio", "connection": {"command": "x"}}).name == "fs"


@pytest.mark.requirement("R4")
def test_empty_fields_of_the_squidbot_model_count_as_absent() -> None:
    entry: dict[str, Any] = {
        "transport": "http",
        "command": "",
        "args": [],
        "env": None,
        "cwd": None,
        "url": "http://h/mcp",
    }

    assert read(entry) == ServerConfig(name="srv", url="http://h/mcp")


@pytest.mark.requirement("R5")
@pytest.mark.parametrize(
    "entry",
    [
        {"transport": {"type": "http", "url": "http://h/mcp"}, "headers": {"A": "1"}},
        {"transport": {"type": "http", "url": "http://h/mcp", "headers": {"A": "1"}}},
        {"transport": {"type": "http", "url": "http://h/mcp", "headers": {"A": "0"}}, "headers": {"A": "1"}},
    ],
)
def test_the_kitn_shape_takes_headers_beside_or_inside_the_transport(entry: dict[str, Any]) -> None:
    assert read({"name": "x", **entry}) == ServerConfig(name="srv", url="http://h/mcp", headers={"A": "1"})


@pytest.mark.requirement("R5")
def test_the_kitn_shape_knows_stdio_and_sse() -> None:
    assert read({"transport": {"type": "stdio", "command": "node", "args": ["s.js"]}}).command == "node"
    assert read({"transport": {"type": "sse", "url": "http://h/sse"}}).transport == "sse"


@pytest.mark.requirement("R8", "C6")
@pytest.mark.parametrize(
    "word, transport",
    [
        ("http", "http"),
        ("streamable-http", "http"),
        ("streamableHttp", "http"),
        ("streamable_http", "http"),
        ("streamable", "http"),
        ("http-stream", "http"),
        ("httpStream", "http"),
        ("remote", "http"),
        ("sse", "sse"),
    ],
)
def test_type_and_transport_are_synonyms(word: str, transport: str) -> None:
    assert read({"type": word, "url": "http://h"}).transport == transport
    assert read({"transport": word, "url": "http://h"}).transport == transport


@pytest.mark.requirement("R12", "C5")
def test_websocket_in_an_entry_is_http_with_a_deprecation() -> None:
    entry = {"serverName": "x", "transport": "websocket", "connection": {"url": "http://h/mcp"}}

    with pytest.warns(DeprecationWarning, match="old name of 'http'") as caught:
        config = read(entry)

    assert config.transport == "http"
    assert caught[0].filename == __file__
    assert "old name of 'http'" in notes(entry)[0]


@pytest.mark.requirement("R67")
def test_an_unknown_transport_in_an_entry_is_refused() -> None:
    assert "unknown transport 'smoke'" in str(refused({"transport": "smoke", "url": "http://h"}))


@pytest.mark.requirement("C7")
def test_sse_is_read_with_a_remark_that_it_is_deprecated(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="toolweave"):
        config = read({"type": "sse", "url": "http://h/sse"})

    assert config.transport == "sse"
    assert "'sse' is deprecated" in caplog.text


@pytest.mark.parametrize(
    "entry, transport, url",
    [
        ({"httpUrl": "http://h/mcp"}, "http", "http://h/mcp"),
        ({"httpUrl": "http://h/mcp", "url": "http://h/sse"}, "http", "http://h/mcp"),
        ({"url": "http://h/sse"}, "sse", "http://h/sse"),
        ({"url": "http://h/mcp", "type": "http"}, "http", "http://h/mcp"),
    ],
)
def test_gemini_means_sse_by_url_and_http_by_http_url(entry: dict[str, Any], transport: str, url: str) -> None:
    config = read({"trust": True, **entry}, dialect="gemini")

    assert (config.transport, config.url) == (transport, url)


def test_http_url_is_understood_in_any_file() -> None:
    assert read({"httpUrl": "http://h/mcp", "timeout": 5000}).timeout == Timeouts(call=5)


def test_windsurf_writes_server_url() -> None:
    assert read({"serverUrl": "http://h/mcp", "disabledTools": ["a"]}).exclude == ("a",)


def test_codex_takes_credentials_from_named_variables() -> None:
    config = read(
        {
            "url": "https://h/mcp",
            "bearer_token_env_var": "PAT",
            "http_headers": {"A": "1"},
            "env_http_headers": {"X-Team": "TEAM"},
            "startup_timeout_sec": 12,
            "tool_timeout_sec": "45",
            "enabled": True,
            "enabled_tools": ["a"],
            "disabled_tools": ["b"],
            "tools": {"a": {"approval_mode": "auto"}},
        },
        env={"PAT": "tok", "TEAM": "blue"},
    )

    assert config.auth == Auth(token=Secret("tok"))
    assert config.header_values() == {"A": "1", "X-Team": "blue"}
    assert (config.timeout.connect, config.timeout.call) == (12, 45)
    assert (config.include, config.exclude, config.disabled) == (("a",), ("b",), False)


def test_codex_passes_named_variables_to_the_process() -> None:
    config = read(
        {"command": "x", "env_vars": ["HERE", "GONE"], "env": {"A": "1"}, "startup_timeout_ms": 1500},
        env={"HERE": "yes"},
    )

    assert config.env_values() == {"HERE": "yes", "A": "1"}
    assert config.timeout.connect == 1.5


@pytest.mark.parametrize(
    "entry, field, variable",
    [
        ({"bearer_token_env_var": "NOPE"}, "bearer_token_env_var", "NOPE"),
        ({"env_http_headers": {"X": "NOPE"}}, "env_http_headers.X", "NOPE"),
        ({"headers": {"X": "${NOPE}"}}, "headers.X", "NOPE"),
    ],
)
def test_a_named_variable_that_is_unset_is_an_error(entry: dict[str, Any], field: str, variable: str) -> None:
    error = refused({"url": "http://h", **entry})

    assert error.field == field
    assert variable in str(error)


def test_opencode_writes_the_command_as_a_list() -> None:
    config = read(
        {
            "type": "local",
            "command": ["npx", "-y", "pkg"],
            "environment": {"KEY": "{env:MY_KEY}", "NONE": "{env:UNSET}", "N": 1},
            "enabled": True,
            "timeout": 9000,
        },
        dialect="opencode",
        env={"MY_KEY": "v"},
    )

    assert (config.command, config.args) == ("npx", ("-y", "pkg"))
    assert config.env_values() == {"KEY": "v", "NONE": "", "N": "1"}
    assert config.timeout == Timeouts(connect=9, list=9)


def test_a_command_list_and_args_are_put_together() -> None:
    assert read({"command": ["npx", "-y"], "args": ["pkg"]}).args == ("-y", "pkg")
    assert "needs 'command'" in str(refused({"command": [], "transport": "stdio"}))


def test_zed_nests_the_command() -> None:
    config = read({"source": "custom", "command": {"path": "uvx", "args": ["pkg"], "env": {"A": "1"}}})

    assert (config.command, config.args, config.env_values()) == ("uvx", ("pkg",), {"A": "1"})


def test_vs_code_names_a_file_of_variables(tmp_path: Path) -> None:
    (tmp_path / "my.env").write_text(
        '# a comment\n\nA=1\nexport B = two words # why\nC=\'# kept\'\nD="x\\n\\"y\\" \\q"\nE=\nOWN=file\n'
    )

    config = read({"command": "x", "envFile": str(tmp_path / "my.env"), "env": {"OWN": "entry"}})

    assert config.env_values() == {
        "A": "1",
        "B": "two words",
        "C": "# kept",
        "D": 'x\n"y" \\q',
        "E": "",
        "OWN": "entry",
    }


@pytest.mark.parametrize(
    "content, part",
    [
        (None, "cannot be read"),
        (b"A=1\nhunter2\n", "line 2"),
        (b"\xff\xff", "UTF-8"),
        (b"#" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_a_bad_file_of_variables_is_an_error_of_the_server(content: bytes | None, part: str, tmp_path: Path) -> None:
    path = tmp_path / ".env"
    if content is not None:
        path.write_bytes(content)

    error = refused({"command": "x", "envFile": str(path)})

    assert (error.server, error.field) == ("srv", "env_file")
    assert part in str(error)
    assert "hunter2" not in str(error)


def test_keys_are_read_in_any_case_style() -> None:
    config = read(
        {
            "command": "x",
            "toolPrefix": "p_",
            "max-concurrency": "4",
            "maxConnections": 9,
            "maxMessageBytes": 1000,
            "validateInput": "false",
            "validate_output": "error",
            "legacySse": "never",
            "onConflict": "skip",
            "restart": "never",
            "includeTools": "one",
            "excludeTools": ["two"],
            "workingDirectory": "/srv",
            "protocol": "2025-06-18",
        }
    )

    assert config == ServerConfig(
        name="srv",
        command="x",
        tool_prefix="p_",
        max_concurrency=4,
        max_connections=9,
        max_message_bytes=1000,
        validate_input=False,
        validate_output="error",
        legacy_sse="never",
        on_conflict="skip",
        restart="never",
        include=["one"],
        exclude=["two"],
        cwd="/srv",
        protocol="2025-06-18",
    )


def test_an_empty_tool_prefix_is_kept_apart_from_none() -> None:
    assert read({"command": "x", "tool_prefix": ""}).tool_prefix == ""
    assert read({"command": "x"}).tool_prefix is None


def test_a_star_or_an_empty_list_is_no_filter() -> None:
    assert read({"command": "x", "tools": ["*"]}).include == ()
    assert read({"command": "x", "include": []}).include == ()


def test_numbers_and_booleans_stand_for_their_text_where_text_is_wanted() -> None:
    config = read({"command": "x", "args": ["--port", 8080, 1.5], "env": {"P": 80, "D": True, "F": 0.5, "N": None}})

    assert config.args == ("--port", "8080", "1.5")
    assert config.env_values() == {"P": "80", "D": "true", "F": "0.5"}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"command": "x", "args": "-y pkg"}, "args", "a list of strings, not a string"),
    ({"command": "x", "args": ["a", {"b": 1}]}, "args[1]", "not an object"),
    ({"command": "x", "args": [True]}, "args[0]", "not true or false"),
    ({"command": "x", "env": ["A=1"]}, "env", "not a list"),
    ({"command": "x", "env": {"A": ["1"]}}, "env.A", "not a list"),
    ({"command": ["x", 5, []]}, "args[1]", "not a list"),
    ({"command": "x", "disabled": "maybe"}, "disabled", "true or false"),
    ({"command": "x", "disabled": 1}, "disabled", "true or false"),
    ({"command": "x", "options": []}, "options", "an object, not a list"),
    ({"command": "x", "timeout": "soon"}, "timeout", "must be a number"),
    ({"command": "x", "timeout": -1}, "timeout", "more than 0"),
    ({"command": "x", "timeout": {"call": "soon"}}, "timeout.call", "must be a number"),
    ({"command": "x", "startup_timeout_sec": "soon"}, "startup_timeout_sec", "must be a number"),
    ({"command": "x", "include": 4}, "include", "a list of strings"),
    ({"command": "x", "env_vars": "A"}, "env_vars", "a list of strings"),
    ({"url": "http://h", "env_http_headers": ["A"]}, "env_http_headers", "an object"),
    ({"url": "http://h", "bearer_token_env_var": 5}, "bearer_token_env_var", "a string"),
    ({"url": "http://h", "connection": "x"}, "connection", "an object, not a string"),
    ({"transport": 5, "url": "http://h"}, "transport", "a string"),
    ({"transport": {}}, "command", "neither"),
    ({"transport": "stdio"}, "command", "needs 'command'"),
    ({"transport": "http", "connection": {}}, "url", "needs 'url'"),
    ({"command": {"args": ["x"]}}, "command", "neither"),
]


@pytest.mark.requirement("R8")
@pytest.mark.parametrize("entry, field, part", WRONG)
def test_a_wrong_entry_names_server_and_field(entry: dict[str, Any], field: str, part: str) -> None:
    error = refused(entry, source=Source(path="m.json", line=3))

    assert (error.server, error.field, error.path, error.line) == ("srv", field, "m.json", 3)
    assert part in str(error)


def test_a_bare_timeout_is_seconds_unless_that_makes_no_sense() -> None:
    assert read({"command": "x", "timeout": 60}).timeout == Timeouts.of(60)
    assert read({"command": "x", "timeout": "2.5"}).timeout == Timeouts.of(2.5)
    assert read({"command": "x", "timeout": 60000}).timeout == Timeouts.of(60)
    assert "read as milliseconds" in notes({"command": "x", "timeout": 60000})[0]
    assert read({"command": "x", "timeout": Timeouts(call=3)}).timeout == Timeouts(call=3)
    assert read({"command": "x", "timeout": {"callTotal": 9, "connect": "4"}}).timeout == Timeouts(
        call_total=9, connect=4
    )


@pytest.mark.requirement("R8")
def test_an_unknown_key_is_kept_and_remarked_with_a_guess() -> None:
    entry = {"command": "x", "disabledd": True, "flavour": {"a": 1}}

    assert read(entry).options == {"disabledd": True, "flavour": {"a": 1}}
    assert notes(entry) == [
        "server 'srv': unknown key 'disabledd' (did you mean 'disabled'?); kept in 'options'",
        "server 'srv': unknown key 'flavour'; kept in 'options'",
    ]


def test_keys_of_editors_and_private_keys_are_passed_over_in_silence() -> None:
    entry: dict[str, Any] = {
        "command": "x",
        "alwaysAllow": ["a"],
        "autoApprove": [],
        "trust": True,
        "description": "d",
        "icon": "i",
        "gallery": True,
        "x-call": [],
        "_comment": "c",
        "//": "c",
        "cwd": None,
    }

    assert read(entry) == ServerConfig(name="srv", command="x")
    assert notes(entry) == []


def test_auth_on_a_stdio_server_is_kept_and_remarked() -> None:
    entry = {"command": "x", "auth": {"token": "t"}}

    assert read(entry).auth == Auth(token=Secret("t"))
    assert "no effect on a stdio server" in notes(entry)[0]


def test_objects_from_code_pass_through_an_entry() -> None:
    server = object()
    provider: Any = dict
    entry = {"url": "http://h", "headers": dict, "auth": Auth(type="custom", provider=provider)}

    assert read({"server": server}).server is server
    assert read(entry).headers is dict
    assert read(entry).auth == entry["auth"]


def test_a_secret_in_an_entry_stays_one() -> None:
    config = read({"command": "x", "env": {"A": Secret("v")}})

    assert config.env["A"] == Secret("v")


@pytest.mark.parametrize(
    "entry",
    [
        {"transport": {"type": "http", "url": "http://h/mcp"}},
        {"type": "http", "transport": {"type": "streamable-http", "url": "http://h/mcp"}},
        {"type": "http", "config": {"url": "http://h/mcp"}},
        {"connection": {"transport": "http", "url": "http://h/mcp"}},
        {"name": "x", "transport": {"url": "http://h/mcp", "headers": {}}},
        {"type": "http", "serverUrl": "http://h/mcp", "alwaysAllow": ["a"], "disabled": False},
    ],
)
def test_a_server_may_stand_in_an_object_of_its_entry(entry: dict[str, Any]) -> None:
    config = read(entry)

    assert (config.transport, config.url) == ("http", "http://h/mcp")
