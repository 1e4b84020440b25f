"""Each owner's files by its own rules: units, variables, lists of what may start, entries that are no servers."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.config import ConfigEntry, LoadedConfig, Timeouts, load_config, reveal
from toolweave.config._dialect_rules import dialect_of
from toolweave.errors import ConfigError


def load(folder: Path, path: str, content: object, **env: str) -> LoadedConfig:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return load_config(file, env={"HOME": str(folder), **env})


def entry_of(loaded: LoadedConfig, name: str) -> ConfigEntry:
    return next(entry for entry in loaded.entries if entry.name == name)


def stdio(**more: Any) -> dict[str, Any]:
    return {"command": "x", **more}


# Gemini CLI


def test_a_dollar_is_a_variable_for_gemini_and_one_that_is_unset_is_told(tmp_path: Path) -> None:
    servers = {"a": stdio(env={"KEY": "$MY_API_TOKEN", "TWO": "${MY_API_TOKEN}/$OTHER"}, args=["$$MY_API_TOKEN"])}
    loaded = load(tmp_path, ".gemini/settings.json", {"mcpServers": servers}, MY_API_TOKEN="s3cret-value")

    config = loaded.servers["a"]
    assert config.env_values() == {"KEY": "s3cret-value", "TWO": "s3cret-value/$OTHER"}
    assert config.args == ("$$MY_API_TOKEN",)
    assert "'env' has $OTHER, but the environment variable OTHER is not set" in loaded.warnings[0]
    assert config.redact("it says s3cret-value") == "it says ***"


@pytest.mark.parametrize("path", ["mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", ".mcp.json"])
def test_a_dollar_is_no_variable_for_others(path: str, tmp_path: Path) -> None:
    loaded = load(tmp_path, path, {"mcpServers": {"a": stdio(args=["$MY_API_TOKEN"])}}, MY_API_TOKEN="x")

    assert loaded.servers["a"].args == ("$MY_API_TOKEN",)


@pytest.mark.parametrize(
    "lists, starting, why",
    [
        ({"mcp": {"allowed": ["a"]}}, ["a"], "'mcp.allowed' does not name it"),
        ({"mcp": {"excluded": ["b", "c"]}}, ["a"], "'mcp.excluded' names it"),
        ({"mcp": {"allowed": ["a", "b"], "excluded": ["b"]}}, ["a"], "'mcp.excluded' names it"),
        ({"mcp": {"allowed": []}}, [], "'mcp.allowed' does not name it"),
        ({"allowMCPServers": ["a"]}, ["a"], "'allowMCPServers' does not name it"),
        ({"excludeMCPServers": ["b", "c"]}, ["a"], "'excludeMCPServers' names it"),
    ],
)
def test_what_gemini_excludes_does_not_start(
    lists: dict[str, Any], starting: list[str], why: str, tmp_path: Path
) -> None:
    settings = {"mcpServers": {name: stdio() for name in "abc"}, **lists}
    loaded = load(tmp_path, ".gemini/settings.json", settings)

    assert list(loaded.servers) == starting
    assert {*loaded.servers, *loaded.disabled} == {"a", "b", "c"}
    assert (entry_of(loaded, "b").status, entry_of(loaded, "b").reason) == ("excluded", why)
    with pytest.raises(ConfigError, match="it does not start: "):
        loaded.select(["b"])


def test_what_was_switched_off_in_geminis_other_file_does_not_start(tmp_path: Path) -> None:
    home = tmp_path / ".gemini" / "mcp-server-enablement.json"
    home.parent.mkdir()
    home.write_text('{"b": {"enabled": false}, "a": {"enabled": true}}')
    loaded = load(tmp_path, ".gemini/settings.json", {"mcpServers": {"a": stdio(), "b": stdio()}})

    assert (list(loaded.servers), loaded.disabled) == (["a"], ("b",))
    home.write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        load(tmp_path, ".gemini/settings.json", {"mcpServers": {"b": stdio()}})


# units


@pytest.mark.parametrize(
    "path, section, entry, expected",
    [
        ("cline_mcp_settings.json", "mcpServers", stdio(timeout=1800), Timeouts(call=1800)),
        (".roo/mcp.json", "mcpServers", stdio(timeout=3600), Timeouts(call=3600)),
        ("crush.json", "mcp", stdio(type="stdio", timeout=120), Timeouts(connect=120, list=120)),
        (".crush.json", "mcp", {"type": "http", "url": "http://h", "timeout": 5}, Timeouts(connect=5, list=5)),
        ("other.json", "mcp", stdio(type="stdio", timeout=120), Timeouts(connect=120, list=120)),
        (
            "opencode.json",
            "mcp",
            {"type": "local", "command": ["x"], "timeout": 5000},
            Timeouts(connect=5, list=5),
        ),
        (
            "opencode.jsonc",
            "mcp",
            {"type": "local", "command": ["x"], "timeout": {"startup": 30000, "request": 60000}},
            Timeouts(connect=30, list=60, call=60, read=60),
        ),
        (
            "opencode.json",
            "mcp",
            {"type": "local", "command": ["x"], "timeout": {"request": 9000, "catalog": 1000, "execution": 2000}},
            Timeouts(list=1, call=2, read=9),
        ),
        (".gemini/settings.json", "mcpServers", stdio(timeout=600000), Timeouts(call=600)),
        ("goose/config.json", "extensions", {"type": "stdio", "cmd": "x", "timeout": 300}, Timeouts.of(300).updated()),
        (".continue/config.json", "mcpServers", stdio(connectionTimeout=20000), Timeouts(connect=20)),
    ],
)
def test_a_timeout_has_its_owners_unit(
    path: str, section: str, entry: dict[str, Any], expected: Timeouts, tmp_path: Path
) -> None:
    loaded = load(tmp_path, path, {section: {"s": entry}})

    assert (dict(loaded.errors), loaded.warnings) == ({}, ())
    assert loaded.servers["s"].timeout == expected


def test_the_second_outline_of_opencode(tmp_path: Path) -> None:
    entry = {"type": "local", "command": ["x", "-y"], "timeout": {"startup": 1500}, "cwd": "."}
    loaded = load(tmp_path, "opencode.jsonc", {"mcp": {"servers": {"on": entry, "off": {**entry, "disabled": True}}}})

    assert (loaded.servers["on"].command, loaded.servers["on"].timeout.connect) == ("x", 1.5)
    assert loaded.disabled == ("off",)


@pytest.mark.slow
@given(seconds=st.integers(1, 3600))
def test_clines_seconds_are_seconds_whatever_their_number(seconds: int) -> None:
    from toolweave.config._entries import read_entry
    from toolweave.config._expand import Scope

    read = read_entry("s", stdio(timeout=seconds), dialect="cline", scope=Scope(env={}))
    assert (read.config.timeout.call, read.notes) == (seconds, [])


# files as values


@pytest.mark.parametrize(
    "path, document",
    [
        ("windsurf/mcp_config.json", {"mcpServers": {"s": stdio(env={"F": "${file:key.txt}"})}}),
        ("opencode.json", {"mcp": {"s": {"type": "local", "command": ["x"], "environment": {"F": "{file:key.txt}"}}}}),
        (
            "opencode.json",
            {"mcp": {"s": {"type": "local", "command": ["x"], "environment": {"F": "{file:~/key.txt}"}}}},
        ),
    ],
)
def test_the_text_of_a_file_is_put_in_and_never_shown(path: str, document: object, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "windsurf"):
        folder.mkdir(exist_ok=True)
        (folder / "key.txt").write_text("the-key-itself\n")

    config = load(tmp_path, path, document).servers["s"]

    assert config.env_values() == {"F": "the-key-itself"}
    assert "the-key-itself" not in repr(config)
    assert config.redact("<the-key-itself>") == "<***>"


@pytest.mark.parametrize("name", ["absent", "/dev/zero", "folder", "big", "binary"])
def test_a_file_that_cannot_be_a_value_costs_its_server(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "big").write_bytes(b"x" * 1_000_001)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    servers = {"s": stdio(args=[f"${{file:{name}}}"]), "env": stdio(envFile=f"{name}"), "good": stdio()}

    loaded = load(tmp_path, "mcp.json", {"mcpServers": servers})

    assert (list(loaded.servers), sorted(loaded.errors)) == (["good"], ["env", "s"])
    assert name in loaded.errors["s"].message


# Claude Code


def test_what_claude_code_disables_in_a_project_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project = {"mcpServers": {"own": stdio()}, "disabledMcpServers": ["wide"]}
    state = {"mcpServers": {"wide": stdio(), "other": stdio()}, "projects": {str(tmp_path): project}}

    loaded = load(tmp_path, "claude.json", state)

    assert (sorted(loaded.servers), loaded.disabled) == (["other", "own"], ("wide",))
    assert "disabledMcpServers" in entry_of(loaded, "wide").reason


@pytest.mark.parametrize("path", [".claude/settings.json", ".claude/settings.local.json"])
def test_servers_of_a_project_that_claude_code_disables_do_not_start(path: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / path).parent.mkdir(parents=True)
    (project / path).write_text('{"disabledMcpjsonServers": ["b"]}')
    (tmp_path / ".claude.json").write_text(json.dumps({"projects": {str(project): {"disabledMcpjsonServers": ["c"]}}}))
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {name: stdio() for name in "abc"}}))

    loaded = load_config(project / ".mcp.json", env={"HOME": str(tmp_path)})

    assert (list(loaded.servers), loaded.disabled) == (["a"], ("b", "c"))


def test_a_command_for_headers_is_not_run_and_that_is_told(tmp_path: Path) -> None:
    loaded = load(tmp_path, "mcp.json", {"mcpServers": {"h": {"url": "http://h", "headersHelper": "touch x"}}})

    assert list(loaded.servers) == ["h"]
    assert "'headersHelper' is a command that is not run" in loaded.warnings[0]


# sign-in


@pytest.mark.parametrize(
    ("more", "settings"),
    [
        ({"oauth": {"clientId": "x", "clientSecret": "hidden-secret"}}, {"client_id": "x", "client_secret": "***"}),
        ({"oauth": {"clientId": "x", "callbackPort": 8123, "scopes": "a b"}}, {"redirect_port": 8123}),
        ({"oauth": {"redirectUri": "http://localhost:8124/cb", "enabled": True}}, {"redirect_port": 8124}),
        ({"oauth": {"authServerMetadataUrl": "https://a/m"}}, {"metadata_url": "https://a/m"}),
        ({"oauth": True}, {}),
        ({"oauth": {}}, {}),
        ({"scopes": ["a"]}, {"scopes": ["a"]}),
        ({"oauth_client_id": "x", "oauth_scopes": ["a"]}, {"client_id": "x", "scopes": ["a"]}),
        ({"authProviderType": "dynamic_discovery"}, {}),
        ({"auth": {"CLIENT_ID": "x", "CLIENT_SECRET": "hidden-secret", "scopes": ["read"]}}, {"client_id": "x"}),
        ({"auth": "oauth"}, {}),
        ({"auth": "oauth", "scopes": ["a"]}, {"scopes": ["a"]}),
        ({"auth": {"type": "oauth", "issuer": "https://as"}}, {"issuer": "https://as"}),
    ],
)
def test_the_sign_in_of_an_editor_is_ours(more: dict[str, Any], settings: dict[str, Any], tmp_path: Path) -> None:
    loaded = load(tmp_path, "mcp.json", {"mcpServers": {"s": {"url": "https://h/mcp", **more}}})

    shown = loaded.servers["s"].to_dict()["auth"]
    assert shown["type"] == "oauth"
    assert {name: shown[name] for name in settings} == settings
    assert loaded.warnings == ()
    assert "hidden-secret" not in repr(loaded.servers["s"])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"headers": {"Authorization": "Bearer t"}, "oauth": {"clientId": "x"}},
            "are ignored because 'auth' or 'headers'",
        ),
        ({"auth": {"type": "bearer", "token": "t"}, "scopes": ["a"]}, "are ignored because 'auth' or 'headers'"),
        ({"authProviderType": "google_credentials"}, "a sign-in by 'google_credentials' is not there"),
        ({"oauth": {"tokenUrl": "https://a/t"}}, "unknown key 'tokenUrl' of a sign-in"),
    ],
)
def test_what_is_left_out_of_a_sign_in_is_told(more: dict[str, Any], told: str, tmp_path: Path) -> None:
    loaded = load(tmp_path, "mcp.json", {"mcpServers": {"s": {"url": "https://h/mcp", **more}}})

    (warning,) = loaded.warnings
    assert told in warning


def test_a_sign_in_that_is_switched_off_is_nothing_to_tell(tmp_path: Path) -> None:
    loaded = load(tmp_path, "opencode.json", {"mcp": {"s": {"type": "remote", "url": "https://h", "oauth": False}}})

    assert loaded.warnings == ()


# Codex, Goose, Continue, Zed, VS Code


def test_codex_names_variables_as_objects_too(tmp_path: Path) -> None:
    text = '[mcp_servers.s]\ncommand = "x"\nenv_vars = ["A", {name = "B"}, {name = "C", source = "local"}, '
    loaded = load(
        tmp_path, ".codex/config.toml", text + '{name = "D", source = "remote"}]\n', A="1", B="2", C="3", D="4"
    )

    assert loaded.servers["s"].env_values() == {"A": "1", "B": "2", "C": "3"}
    assert "takes 'D' from 'remote'" in loaded.warnings[0]


def test_the_extensions_of_goose_are_servers_and_its_own_parts_are_not(tmp_path: Path) -> None:
    text = """
extensions:
  fetcher: {enabled: true, type: stdio, cmd: uvx, args: [mcp-server-fetch], envs: {K: v}, env_keys: [TOKEN]}
  remote: {type: streamable_http, uri: "https://go.example/mcp", headers: {A: "Bearer $TOKEN"}, available_tools: [one]}
  nested: {enabled: true, config: {type: stdio, cmd: npx, args: ["-y", "@my/tool"], timeout: 120}}
  developer: {enabled: true, type: builtin, name: developer, display_name: Developer, timeout: 300}
  idle: {enabled: false, type: stdio, cmd: x}
"""
    loaded = load(tmp_path, "goose/config.yaml", text, TOKEN="t0ken")

    assert {name: config.endpoint for name, config in loaded.servers.items()} == {
        "fetcher": "uvx mcp-server-fetch",
        "remote": "https://go.example/mcp",
        "nested": "npx -y @my/tool",
    }
    assert loaded.servers["fetcher"].env_values() == {"K": "v", "TOKEN": "t0ken"}
    assert loaded.servers["remote"].header_values() == {"A": "Bearer t0ken"}
    assert loaded.servers["remote"].include == ("one",)
    assert loaded.servers["nested"].timeout.call == 120
    assert (loaded.disabled, loaded.warnings) == (("developer", "idle"), ())
    assert entry_of(loaded, "developer").status == "skipped"
    assert load_config(tmp_path / "goose/config.yaml", env={"TOKEN": "x"}).files[0].dialect == "goose"


def test_what_continue_keeps_elsewhere_is_found(tmp_path: Path) -> None:
    text = """
mcpServers:
  - name: Remote
    type: streamable-http
    url: https://c.example/mcp
    apiKey: ${{ secrets.KEY }}
    requestOptions: {headers: {X-Org: "org ${{ secrets.ORG }}"}, verifySsl: false}
  - uses: owner/memory-mcp
"""
    loaded = load(tmp_path, ".continue/config.yaml", text, KEY="k3y-value", ORG="org-value")

    config = loaded.servers["Remote"]
    assert config.auth is not None
    assert reveal(config.auth.token or "") == "k3y-value"
    assert config.header_values() == {"X-Org": "org org-value"}
    assert config.redact("k3y-value org-value") == "*** ***"
    assert "requestOptions.verifySsl" in loaded.warnings[0]
    assert len(loaded.disabled) == 1
    assert "the block 'owner/memory-mcp' of Continue's hub" in loaded.entries[1].reason


def test_a_server_that_an_extension_of_zed_starts_is_none_of_ours(tmp_path: Path) -> None:
    servers = {"ext": {"source": "extension", "enabled": True, "settings": {"token": "T"}}, "own": stdio()}
    loaded = load(tmp_path, "zed/settings.json", {"context_servers": servers})

    assert (list(loaded.servers), loaded.disabled, dict(loaded.errors)) == (["own"], ("ext",), {})
    assert "extension of Zed" in entry_of(loaded, "ext").reason


@pytest.mark.parametrize("url, what", [("unix:///run/x.sock", "a socket"), ("pipe:///pipe/x", "a named pipe")])
def test_a_socket_of_vs_code_is_refused_with_the_reason(url: str, what: str, tmp_path: Path) -> None:
    loaded = load(tmp_path, ".vscode/mcp.json", {"servers": {"u": {"type": "http", "url": url}}})

    assert f"'url' is {what} of this machine; MCP needs http:// or https://" in loaded.errors["u"].message


def test_crush_has_shell_commands_in_values_which_are_not_run(tmp_path: Path) -> None:
    servers = {"a": stdio(type="stdio", env={"T": "$TOKEN"}), "b": stdio(type="stdio", args=["$(touch x)"])}
    loaded = load(tmp_path, "crush.json", {"mcp": {**servers, "c": stdio(type="stdio", args=["$UNSET"])}}, TOKEN="t")

    assert loaded.servers["a"].env_values() == {"T": "t"}
    assert loaded.servers["b"].args == ("$(touch x)",)
    assert "shell command" in loaded.warnings[0]
    assert "UNSET is not set" in loaded.errors["c"].message


# in general


@pytest.mark.slow
@given(
    path=st.sampled_from(
        [
            "mcp.json",
            ".gemini/settings.json",
            "opencode.json",
            "crush.json",
            "goose/c.yaml",
            ".continue/c.yaml",
            "zed/s.json",
        ]
    ),
    name=st.text(string.ascii_letters, min_size=1),
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-5, 10**7) | st.text(st.characters(codec="utf-8"), max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "cmd", "uri", "timeout", "config", "uses", "source", "env_vars", "oauth", "startup"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=6,
    ),
    key=st.sampled_from(["timeout", "env_vars", "oauth", "auth", "requestOptions", "config", "source", "uses", "envs"]),
)
def test_every_entry_ends_in_one_place_whatever_its_owners_keys_hold(
    path: str, name: str, value: Any, key: str
) -> None:
    from toolweave.config._documents import ConfigDocument
    from toolweave.config._expand import Scope
    from toolweave.config.load import load_document

    document = ConfigDocument(value={"mcpServers": {name: {"command": "x", key: value}}}, path="")
    loaded = load_document(document, Scope(env={}), dialect=dialect_of(Path(path)))

    assert [*loaded.servers, *loaded.errors, *loaded.disabled] == [name]
    assert len(loaded.entries) == 1


def test_a_file_keeps_its_digest_until_what_it_says_about_servers_changes(tmp_path: Path) -> None:
    one = load(tmp_path, "a.json", '{"mcpServers": {"s": {"command": "x"}}}').files[0].digest
    spaced = load(tmp_path, "a.json", '{ "theme": 1,\n "mcpServers": {"s": {"command": "x"}}}').files[0].digest
    other = load(tmp_path, "a.json", '{"mcpServers": {"s": {"command": "y"}}}').files[0].digest
    inputs = load(tmp_path, "a.json", '{"servers": {"s": {"command": "x"}}, "inputs": [{"id": "i"}]}').files[0].digest

    assert one == spaced
    assert len({one, other, inputs}) == 3
