"""`ServerConfig` and its parts: what they accept, refuse and show."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from toolweave.config import (
    Auth,
    McpConnectionConfig,
    McpFullConfig,
    McpHttpConfig,
    McpStdioConfig,
    Secret,
    ServerConfig,
    Source,
    Timeouts,
    known_transports,
    load_config,
    register_transport_name,
    reveal,
    server_config,
)
from toolweave.config._server_settings import ServerSettings
from toolweave.errors import ConfigError
from toolweave.oauth import StoredSignIn


def refused(**fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(name="srv", **fields)
    return caught.value


@pytest.mark.requirement("R1")
def test_a_command_makes_a_stdio_server() -> None:
    config = ServerConfig(command="node", args=["server.js"], env={"A": "1"}, cwd="/srv")

    assert config.transport == "stdio"
    assert (config.command, config.args, config.cwd) == ("node", ("server.js",), "/srv")
    assert config.env_values() == {"A": "1"}


@pytest.mark.requirement("R1")
def test_a_url_makes_an_http_server() -> None:
    config = ServerConfig(url=" https://example.com/mcp ", headers={"X-Team": "blue"})

    assert (config.transport, config.url) == ("http", "https://example.com/mcp")
    assert config.header_values() == {"X-Team": "blue"}


def test_a_server_object_makes_an_in_process_server() -> None:
    server = object()

    config = ServerConfig(server=server)

    assert config.transport == "inprocess"
    assert config.server is server
    assert config.endpoint == "in-process object"


def test_paths_may_be_given_as_path_objects() -> None:
    given: Any = {"command": Path("/bin/x"), "args": [Path("a")], "cwd": Path("/srv")}

    config = ServerConfig(**given)

    assert (config.command, config.args, config.cwd) == ("/bin/x", ("a",), "/srv")


@pytest.mark.requirement("R8")
@pytest.mark.parametrize(
    "fields, field, part",
    [
        ({}, "command", "neither 'command'"),
        ({"transport": "stdio"}, "command", "needs 'command'"),
        ({"transport": "stdio", "command": "  "}, "command", "needs 'command'"),
        ({"transport": "http"}, "url", "needs 'url'"),
        ({"transport": "sse"}, "url", "needs 'url'"),
        ({"transport": "inprocess"}, "server", "needs 'server'"),
        ({"command": "x", "url": "http://h"}, "transport", "both 'command' and 'url'"),
        ({"command": 5}, "command", "must be a string, not a number"),
        ({"command": "a\0b"}, "command", "NUL"),
        ({"command": "a\ud800"}, "command", "surrogate"),
        ({"command": "x", "args": "y"}, "args", "a list of strings, not a string"),
        ({"command": "x", "args": ["y", 1]}, "args[1]", "must be a string"),
        ({"command": "x", "args": ["a\0"]}, "args[0]", "NUL"),
        ({"command": "x", "env": ["A=1"]}, "env", "an object of strings, not a list"),
        ({"command": "x", "env": {"A": 1}}, "env.A", "must be a string"),
        ({"command": "x", "env": {"A=B": "1"}}, "env", "no environment variable"),
        ({"command": "x", "env": {"": "1"}}, "env", "no environment variable"),
        ({"command": "x", "cwd": 3}, "cwd", "must be a string"),
        ({"command": "x", "name": "a\nb"}, "name", "line break"),
        ({"command": "x", "disabled": "yes"}, "disabled", "true or false"),
        ({"command": "x", "include": "a"}, "include", "list of strings"),
        ({"command": "x", "tool_prefix": 1}, "tool_prefix", "must be a string"),
        ({"command": "x", "restart": "sometimes"}, "restart", "known: on_failure, always, never"),
        ({"command": "x", "restart": None}, "restart", "is null; known"),
        ({"command": "x", "legacy_sse": True}, "legacy_sse", "is true or false; known"),
        ({"command": "x", "protocol": "latest"}, "protocol", "'auto', 'legacy' or a revision"),
        ({"command": "x", "validate_output": "no"}, "validate_output", "warn, error, off"),
        ({"command": "x", "on_conflict": "merge"}, "on_conflict", "rename, skip, error"),
        ({"command": "x", "max_concurrency": 0}, "max_concurrency", "at least 1"),
        ({"url": "http://x/", "max_connections": 0}, "max_connections", "at least 1"),
        ({"command": "x", "max_concurrency": True}, "max_concurrency", "whole number"),
        ({"command": "x", "max_message_bytes": 0}, "max_message_bytes", "at least 1"),
        ({"command": "x", "max_concurrency": 1.5}, "max_concurrency", "whole number"),
        ({"command": "x", "options": []}, "options", "an object, not a list"),
        ({"command": "x", "timeout": "fast"}, "timeout", "number of seconds"),
        ({"command": "x", "timeout": {"cal": 3}}, "timeout", "no bound 'cal'"),
        ({"command": "x", "timeout": {"call": None}}, "timeout.call", "not null"),
        ({"url": "ftp://h"}, "url", "http:// or https://"),
        ({"url": "http://"}, "url", "name a host"),
        ({"url": "example.com/mcp"}, "url", "http:// or https://"),
        ({"url": "http://[::1"}, "url", "not a URL"),
        ({"url": "http://h:port/"}, "url", "not a URL"),
        ({"url": "http://h/a b"}, "url", "space"),
        ({"url": "http://h", "headers": ["a"]}, "headers", "an object of strings"),
        ({"url": "http://h", "headers": {"a b": "x"}}, "headers", "no HTTP header"),
        ({"url": "http://h", "headers": {"A": "x\r\nB: y"}}, "headers.A", "line break"),
        ({"url": "http://h", "headers": {"A": 1}}, "headers.A", "must be a string"),
        ({"url": "http://h", "auth": 5}, "auth", "an object with 'type'"),
    ],
)
def test_a_wrong_field_is_named_with_its_server(fields: dict[str, Any], field: str, part: str) -> None:
    name = fields.pop("name", "srv")
    with pytest.raises(ConfigError) as caught:
        ServerConfig(name=name, **fields)
    error = caught.value

    assert isinstance(error, ValueError)
    assert (error.field, error.server) == (field, name)
    assert part in str(error)
    assert repr(error.server) in str(error)


def test_an_error_carries_the_place_of_the_entry() -> None:
    error = refused(transport="http", source=Source(path="mcp.json", line=7))

    assert (error.path, error.line) == ("mcp.json", 7)
    assert str(error).startswith("mcp.json:7: server 'srv': ")
    assert str(Source(path="mcp.json")) == "mcp.json"
    assert str(Source(path="mcp.json", line=2)) == "mcp.json:2"


@pytest.mark.requirement("R67")
def test_an_unknown_transport_is_refused_with_the_known_ones() -> None:
    error = refused(transport="carrier-pigeon", url="http://h")

    assert error.field == "transport"
    assert "unknown transport 'carrier-pigeon'; known: " in str(error)
    assert all(name in str(error) for name in ("http", "inprocess", "sse", "stdio"))


@pytest.mark.requirement("R13")
def test_a_registered_transport_needs_neither_command_nor_url() -> None:
    register_transport_name("Dove-Cote")

    config = ServerConfig(transport="Dove-Cote", url="coop://roof", options={"altitude": 3})

    assert (config.transport, config.url, config.options["altitude"]) == ("Dove-Cote", "coop://roof", 3)
    assert "Dove-Cote" in known_transports()
    assert config.endpoint == "coop://roof"
    assert ServerConfig(transport="Dove-Cote").endpoint == "Dove-Cote"


@pytest.mark.parametrize("name", ["", "  ", 4])
def test_a_transport_cannot_be_registered_without_a_name(name: Any) -> None:
    with pytest.raises(ConfigError):
        register_transport_name(name)


@pytest.mark.requirement("C6")
@pytest.mark.parametrize("word", ["http", "HTTP", "streamable-http", "streamableHttp", "streamable_http"])
def test_every_word_for_streamable_http_means_http(word: str) -> None:
    assert ServerConfig(transport=word, url="http://h/mcp").transport == "http"


def test_sse_stays_sse_and_http_may_fall_back_to_it_by_default() -> None:
    assert ServerConfig(transport="sse", url="http://h/sse").transport == "sse"
    assert ServerConfig(url="http://h/mcp").legacy_sse == "auto"
    assert ServerConfig(url="http://h/mcp", legacy_sse="never").legacy_sse == "never"


@pytest.mark.requirement("C5", "R12")
def test_websocket_is_http_with_a_deprecation_that_points_at_the_caller() -> None:
    with pytest.warns(DeprecationWarning, match="'websocket' is an old name of 'http'") as caught:
        config = ServerConfig(transport="websocket", url="http://h/mcp")

    assert config.transport == "http"
    assert caught[0].filename == __file__


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("url, hint", [("ws://h/mcp", "'http://h/mcp'"), ("wss://u:pw@h/mcp", "'https://***@h/mcp'")])
def test_a_websocket_url_is_refused_with_the_http_url_to_try(url: str, hint: str) -> None:
    error = refused(url=url)

    assert hint in str(error)
    assert "pw" not in str(error)


def test_two_configs_are_equal_when_their_settings_are_wherever_they_were_read() -> None:
    one = ServerConfig(name="a", command="x", args=["y"], env={"A": "1"}, source=Source(path="p", line=1))
    two = ServerConfig(name="a", command="x", args=("y",), env={"A": Secret("1")}, sensitive=[Secret("z")])

    assert one == two
    assert hash(one) == hash(two)
    assert one != two.replace(args=["z"])


def test_a_config_survives_pickling_and_copying() -> None:
    config = ServerConfig(
        name="a",
        url="http://h",
        headers=dict,
        auth=Auth(type="custom", headers={"X": Secret("y")}, options={"scope": "all"}),
        timeout=Timeouts(call=3),
        options={"a": {"b": [1]}},
        source=Source(path="p"),
    )

    assert pickle.loads(pickle.dumps(config)) == config == copy.deepcopy(config)
    assert hash(config.auth) == hash(copy.copy(config.auth))


def test_a_config_cannot_be_changed_in_place() -> None:
    config = ServerConfig(command="x", env={"A": "1"}, args=["y"])
    env: Any = config.env

    with pytest.raises(AttributeError):
        config.command = "z"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        env["B"] = "2"


def test_replacing_a_field_checks_the_whole_again() -> None:
    config = ServerConfig(name="srv", command="x")

    assert config.replace(command="y").command == "y"
    with pytest.raises(ConfigError, match="server 'srv'"):
        config.replace(command="")


def test_no_secret_shows_in_any_text_about_a_config() -> None:
    config = ServerConfig(
        name="a",
        command="npx",
        args=[
            "--token",
            "tok-1",
            "--api-key=key-1",
            "-H",
            "Authorization: Bearer hdr-1",
            "API_KEY=env-1",
            "exp-1",
            "http://u:pw-2@h",
            "--to=http://u:pw-3@h",
        ],
        env={"PLAIN": "plain-1", "GITHUB_TOKEN": "gh-1"},
        options={"apiKey": "opt-1", "deep": {"password": "opt-2", "n": 1}},
        sensitive=[Secret("exp-1")],
    )
    remote = ServerConfig(
        url="https://user:pw-1@h/mcp?api_key=q-1&mode=fast",
        headers={"X-Any": "xh-1"},
        auth=Auth(type="api_key", token=Secret("at-1")),
    )
    custom = ServerConfig(url="http://h", auth=Auth(type="custom", headers={"X": Secret("ch-1")}))

    texts = [f"{c!r} {c} {c.endpoint} {json.dumps(c.to_dict())} {c.auth!r}" for c in (config, remote, custom)]

    for value in ("tok-1", "key-1", "hdr-1", "env-1", "exp-1", "plain-1", "gh-1", "opt-1", "opt-2", "pw-2", "pw-3"):
        assert value not in texts[0]
    for value in ("pw-1", "q-1", "xh-1", "at-1"):
        assert value not in texts[1]
    assert "ch-1" not in texts[2]
    assert "mode=fast" in texts[1]
    assert "--token *** --api-key=*** -H 'Authorization: ***' API_KEY=*** ***" in config.endpoint


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["app:pw-1@db.local"], "***@db.local"),
        (["DATABASE=app:pw-1@db.local"], "DATABASE=***@db.local"),
        (["ghp_pw1abcdefghijklmnopqrstuvwxyz"], "***"),
        (["github_pat_pw1_abc"], "***"),
        (["sk-proj-pw1-0000"], "***"),
        (["xoxb-pw1-2"], "***"),
        (["AKIAIOSFODNN7EXAMPLE"], "***"),
        (["glpat-pw1"], "***"),
        (["eyJhbGciOiJub25lIn0.eyJzdWIiOiJwdzEifQ.c2ln"], "***"),
        (["--with=ghp_pw1abcdefghijklmnopqrstuvwxyz,b"], "--with=***,b"),
        (["-u", "root", "-p", "pw-1"], "-u root -p ***"),
    ],
)
def test_a_secret_without_a_telling_name_is_masked_where_its_form_tells(args: list[str], shown: str) -> None:
    config = ServerConfig(command="run", args=args)

    assert config.endpoint == f"run {shown}"
    text = f"{config!r} {config} {json.dumps(config.to_dict())}"
    assert not any(part in text for part in ("pw-1", "pw1", "IOSFODNN7", "eyJ"))


@pytest.mark.parametrize(
    "args",
    [
        "-p 8080",
        "-p 8080:80",
        "-p 127.0.0.1:8080:80/tcp",
        "-p ./folder",
        "-p @scope/package command",
        "-y -p package command",
        "-p",
        "-p -x",
        "@scope/package@1.0.0",
        "npm:package@1.0.0",
        "registry.local:5000/image@sha256:abc",
        "node:20@sha256:abc",
        "--from git+https://github.com/owner/repo@main tool",
        "-v /a:/b",
        "sk-learn-server",
        "task-1-of-2",
        "mail user@example.com",
    ],
)
def test_an_argument_that_only_looks_like_a_secret_is_shown(args: str) -> None:
    assert ServerConfig(command="run", args=args.split()).endpoint == f"run {args}"


def test_user_info_of_a_url_becomes_a_basic_authorization_header() -> None:
    config = ServerConfig(url="https://us%65r:p%40ss@h:8443/mcp?a=b")

    assert config.url == "https://h:8443/mcp?a=b"
    assert config.header_values() == {"Authorization": "Basic dXNlcjpwQHNz"}
    assert config.replace(name="again") == config.replace(name="again")


@pytest.mark.parametrize("headers", [{"authorization": "Bearer x"}, dict])
def test_user_info_beside_an_authorization_header_is_refused(headers: Any) -> None:
    error = refused(url="https://u:hidden@h/", headers=headers)

    assert error.field == "url"
    assert "hidden" not in str(error)


def test_foreign_text_is_redacted_of_credentials_but_not_of_coincidences() -> None:
    config = ServerConfig(
        url="http://h",
        headers={"Authorization": "Bearer abcdef"},
        env={"MY_TOKEN": "tokval", "MODE": "production", "PIN_KEY": "12"},
        auth=Auth(token=Secret("bear-tok")),
        sensitive=[Secret("expanded")],
    )

    shown = config.redact("abcdef tokval production 12 bear-tok expanded")

    assert shown == "*** *** production 12 *** ***"
    assert ServerConfig(url="http://h", headers=dict).redact("abcd") == "abcd"


def test_headers_may_be_a_callable() -> None:
    config = ServerConfig(url="http://h", headers=lambda: {"A": "b"})

    assert callable(config.headers)
    assert config.header_values() == {}
    assert config.to_dict()["headers"] == "<function>"


def test_the_dict_of_a_config_holds_what_differs_from_the_defaults() -> None:
    config = ServerConfig(
        name="a", command="x", args=["--key", "v"], env={"A": "1"}, timeout=Timeouts(call=5), include=["t"]
    )

    assert config.to_dict() == {
        "name": "a",
        "transport": "stdio",
        "command": "x",
        "args": ["--key", "***"],
        "env": {"A": "***"},
        "timeout": {"call": 5.0},
        "include": ["t"],
    }
    assert config.to_dict(reveal=True)["env"] == {"A": "1"}
    assert config.to_dict(reveal=True)["args"] == ["--key", "v"]


@pytest.mark.parametrize(
    "command, args, seconds",
    [
        ("npx", ["-y", "pkg"], 120),
        ("/usr/bin/npx", [], 120),
        (r"C:\node\npx.cmd", [], 120),
        ("uvx", ["pkg"], 120),
        ("bunx", ["pkg"], 120),
        ("pnpm", ["dlx", "pkg"], 120),
        ("pnpm", ["start"], 30),
        ("yarn", ["dlx", "pkg"], 120),
        ("pipx", ["run", "pkg"], 120),
        ("uv", ["run", "server.py"], 120),
        ("uv", ["--quiet", "tool", "run", "pkg"], 120),
        ("uv", ["pip", "list"], 30),
        ("docker", ["run", "--rm", "image"], 120),
        ("cmd", ["/c", "npx", "-y", "pkg"], 120),
        ("sh", ["-c", "npx -y pkg"], 120),
        ("env", ["A=B", "npx", "-y", "pkg"], 120),
        ("timeout", ["30", "uvx", "pkg"], 120),
        ("uv", ["--directory", "/srv", "run", "server.py"], 120),
        ("env", ["A=B", "python", "server.py"], 30),
        ("sh", ["-c", "./server"], 30),
        ("sh", ["-c", ""], 30),
        ("python", ["server.py"], 30),
    ],
)
def test_a_command_that_may_install_gets_longer_to_connect(command: str, args: list[str], seconds: float) -> None:
    assert ServerConfig(command=command, args=args).connect_silence == seconds


def test_the_time_to_connect_can_be_set_and_is_short_for_http() -> None:
    for exact in (ServerConfig(command="npx", timeout=Timeouts(connect=7)), ServerConfig(url="http://h", timeout=7)):  # pyright: ignore[reportArgumentType]
        assert (exact.connect_silence, exact.connect_timeout) == (7, 7)
    assert ServerConfig(url="http://h").connect_silence == 30
    assert {ServerConfig(command=command).connect_timeout for command in ("npx", "python")} == {150}


def test_a_number_bounds_every_wait_but_the_closing() -> None:
    bounds = Timeouts.of(3)

    assert (bounds.connect, bounds.probe, bounds.list, bounds.call, bounds.read, bounds.close) == (3, 1, 3, 3, 3, 5)
    assert Timeouts.of(60).probe is None
    assert Timeouts.of(None) == Timeouts() == Timeouts.of({})
    assert Timeouts.of(bounds) is bounds
    assert Timeouts.of({"call": 3, "call_total": 9}) == Timeouts(call=3, call_total=9)
    assert bounds.updated(connect=None).connect is None


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "5", 10**400, [1]])
def test_a_bound_is_a_positive_finite_number(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Timeouts.of(value)

    assert caught.value.field == "timeout"


@pytest.mark.requirement("R25")
def test_bearer_and_api_key_have_their_usual_headers() -> None:
    assert Auth(token=Secret("t")).header == "Authorization"
    assert Auth(type="api_key", token=Secret("t")).header == "X-API-Key"
    assert Auth(type="api_key", token=Secret("t"), header="X-Mine").header == "X-Mine"


@pytest.mark.requirement("R25")
@pytest.mark.parametrize(
    "value, expected",
    [
        ("tok", Auth(token=Secret("tok"))),
        (Secret("tok"), Auth(token=Secret("tok"))),
        ({"token": "tok"}, Auth(token=Secret("tok"))),
        ({"type": "apiKey", "key": "k"}, Auth(type="api_key", token=Secret("k"))),
        ({"type": "api-key", "apiKey": "k"}, Auth(type="api_key", token=Secret("k"))),
        ({"type": "api_key", "token": "k", "headerName": "X-K"}, Auth(type="api_key", token=Secret("k"), header="X-K")),
        ({"type": "custom", "headers": {"A": "b"}}, Auth(type="custom", headers={"A": Secret("b")})),
        ({"token": "t", "scope": "all"}, Auth(token=Secret("t"), options={"scope": "all"})),
        ({"token": "t", "header": None}, Auth(token=Secret("t"))),
        (None, None),
    ],
)
def test_auth_is_read_from_what_users_write(value: Any, expected: Auth | None) -> None:
    assert Auth.of(value) == expected


@pytest.mark.requirement("R25")
def test_a_callable_or_a_foreign_object_is_a_provider() -> None:
    def tokens() -> str:
        return "t"

    class Foreign:
        pass

    foreign = Foreign()
    assert Auth.of(tokens) == Auth(type="custom", provider=tokens)
    made = Auth.of(foreign)
    assert made is not None
    assert made.provider is foreign
    assert Auth.of(made) is made
    assert "provider=Foreign" in repr(made)
    assert Auth(token=None, provider=tokens).type == "bearer"
    assert ServerConfig(url="http://h", auth=made).to_dict()["auth"] == {"type": "custom", "provider": "<Foreign>"}


@pytest.mark.parametrize(
    "value, field, part",
    [
        ({"type": "oauth", "token": "t"}, "auth", "a token beside it"),
        ({"type": "oauth", "grant": "magic"}, "oauth.grant", "known: authorization_code"),
        ({"type": "magic"}, "auth.type", "known: bearer, api_key, custom, oauth"),
        ({"type": 4}, "auth.type", "must be a string"),
        ({"type": "bearer"}, "auth.token", "needs 'token'"),
        ({"type": "api_key", "token": ""}, "auth.token", "needs 'token'"),
        ({"type": "custom"}, "auth.headers", "needs 'headers'"),
        ({"type": "custom", "headers": {"A": "b\nc"}}, "auth.headers.A", "line break"),
        ({"token": "sec\nret"}, "auth.token", "line break"),
        ({"token": 5}, "auth.token", "must be a string"),
        ({"token": "t", "header": "a b"}, "auth.header", "no HTTP header"),
        ([], "auth", "not a list"),
    ],
)
def test_wrong_auth_is_refused_without_showing_the_credential(value: Any, field: str, part: str) -> None:
    error = refused(url="http://h", auth=value)

    assert error.field == field
    assert part in str(error)
    assert "ret" not in str(error)


def test_a_secret_never_shows_unless_asked() -> None:
    secret = Secret("hunter2")

    assert f"{secret} {secret!r} {secret:}" == "*** Secret('***') ***"
    assert secret.reveal() == reveal(secret) == reveal("hunter2") == "hunter2"
    assert secret == Secret(secret) != Secret("other")
    assert secret != "hunter2"
    assert hash(secret) == hash(Secret("hunter2"))
    assert pickle.loads(pickle.dumps(secret)) == copy.copy(secret) == secret
    assert secret
    assert not Secret("")
    with pytest.raises(TypeError):
        json.dumps({"a": secret})
    with pytest.raises(TypeError):
        msgspec.json.encode({"a": secret})
    with pytest.raises(TypeError, match="not int"):
        Secret(5)  # pyright: ignore[reportArgumentType]


def test_making_a_config_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ServerConfig(transport="sse", url="http://h")


@pytest.mark.requirement("R4")
def test_a_field_of_a_pydantic_model_takes_what_stands_in_a_config_file() -> None:
    class ToolsConfig(pydantic.BaseModel):
        mcp_servers: dict[str, ServerConfig] = {}
        main: ServerConfig | None = None

    entry = {"command": "npx", "args": ["server"], "env": {"API_TOKEN": "secret-of-mine"}}
    made = ToolsConfig.model_validate({"mcp_servers": {"fs": entry, "web": {"url": "https://h.example/mcp"}}})
    assert made.mcp_servers["fs"] == server_config(entry)
    assert made.mcp_servers["web"].transport == "http"
    assert ToolsConfig(main=made.mcp_servers["fs"]).main is made.mcp_servers["fs"]
    assert ToolsConfig.model_validate({"main": "https://h.example/mcp"}).main == made.mcp_servers["web"]
    loaded = load_config(made.mcp_servers)
    assert {name: one.name for name, one in loaded.servers.items()} == {"fs": "fs", "web": "web"}
    assert "secret-of-mine" not in made.model_dump_json() + repr(made)
    assert ToolsConfig.model_json_schema()["properties"]["mcp_servers"]["type"] == "object"
    for wrong in ({"transport": "pigeon", "url": "https://h"}, {}, 5):
        with pytest.raises(pydantic.ValidationError):
            ToolsConfig.model_validate({"mcp_servers": {"x": wrong}})


@pytest.mark.requirement("R4")
@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        (McpStdioConfig, {"command": "npx"}),
        (McpHttpConfig, {"url": "https://h.example/mcp", "headers": {"a": "b"}}),
        (McpConnectionConfig, {"command": "npx"}),
        (McpFullConfig, {"transport": "stdio", "connection": {"command": "npx"}}),
    ],
)
def test_the_typed_entries_are_fields_of_pydantic_models(kind: Any, entry: dict[str, Any]) -> None:
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(dict[str, kind])  # pyright: ignore[reportInvalidTypeForm]
    assert adapter.validate_python({"a": entry}) == {"a": entry}
    with pytest.raises(pydantic.ValidationError):
        adapter.validate_python({"a": {"command": 5, "url": 5, "transport": "pigeon"}})


class Kept:
    """A provider of credentials that a sign-in stored before, or of any."""

    def __init__(self, *, only_stored: bool) -> None:
        self.only_stored = only_stored

    def __call__(self) -> str:
        return "token"


@pytest.mark.parametrize(
    "provider, warns", [(Kept(only_stored=True), False), (Kept(only_stored=False), True), (lambda: "token", True)]
)
def test_a_provider_of_stored_credentials_alone_causes_no_warning_about_plain_http(
    provider: object, warns: bool
) -> None:
    config = ServerConfig(name="a", url="http://host.example/mcp", auth=Auth(type="custom", provider=provider))

    assert ("plain http" in config.caution) is warns


def test_the_provider_of_the_command_is_one_of_stored_credentials_alone() -> None:
    url = "http://host.example/mcp"

    assert ServerConfig(name="a", url=url, auth=Auth.of(StoredSignIn(url))).caution == ""


def test_the_types_of_the_constructor_name_every_setting() -> None:
    assert set(ServerSettings.__annotations__) == set(ServerConfig.__struct_fields__)
