"""`normalize_config` and `merge_config`."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from toolweave.config import Auth, Secret, ServerConfig, Timeouts, merge_config, normalize_config, parse_server
from toolweave.errors import ConfigError

FULL: dict[str, Any] = {
    "serverName": "fs",
    "transport": "stdio",
    "connection": {"command": "npx", "args": ["-y", "fs"], "region": "eu"},
    "auth": {"type": "bearer", "token": "base"},
}


@pytest.mark.requirement("R6")
def test_the_shorthand_becomes_the_full_form() -> None:
    entry = {"command": "npx", "args": ["-y", "pkg"], "env": {"API_KEY": "${KEY}"}}

    assert normalize_config("filesystem", entry) == {
        "serverName": "filesystem",
        "transport": "stdio",
        "connection": {"command": "npx", "args": ["-y", "pkg"], "env": {"API_KEY": "${KEY}"}},
    }


@pytest.mark.requirement("R6")
def test_a_full_config_without_a_name_gets_one() -> None:
    without = {key: value for key, value in FULL.items() if key != "serverName"}

    assert normalize_config("given", without)["serverName"] == "given"
    assert normalize_config("given", FULL) == FULL
    assert normalize_config("", FULL) == FULL


@pytest.mark.requirement("R6")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x"},
        FULL,
        {"url": "http://h", "headers": {"A": "b"}, "timeout": 5, "disabled": True, "flavour": 1},
        {"name": "k", "transport": {"type": "http", "url": "http://h", "headers": {"A": "b"}}},
        {"type": "websocket", "url": "http://h"},
        {"httpUrl": "http://h"},
        {"type": "local", "command": ["npx", "pkg"], "environment": {"A": "1"}},
        {"serverUrl": "http://h", "enabled": False, "options": {"timeout": "a word", "other": 1}},
        ServerConfig(command="x", args=["y"], env={"A": "b"}, include=["t"], timeout=Timeouts(call=2)),
        ServerConfig(url="http://h", auth=Auth(token=Secret("t")), options={"a": 1}),
    ],
)
def test_normalizing_again_changes_nothing_and_keeps_the_meaning(entry: Any) -> None:
    before = copy.deepcopy(entry)

    full = normalize_config("n", entry)

    assert normalize_config("n", full) == full == normalize_config("other", full)
    assert set(full) >= {"serverName", "transport", "connection"}
    assert entry == before
    if full["transport"] != "sse" and not isinstance(entry, ServerConfig) and entry.get("type") != "websocket":
        assert parse_server(full["serverName"], full, env={}) == parse_server(full["serverName"], entry, env={})


@pytest.mark.requirement("R70")
@pytest.mark.parametrize(
    "name, entry, field, part",
    [
        ("", {"command": "x"}, "serverName", "'serverName' is missing"),
        ("a", {"serverName": 5, "connection": {"command": "x"}}, "serverName", "'serverName'"),
        ("a", {"serverName": "a", "transport": "stdio"}, "connection.command", "'connection' is missing"),
        ("a", {"transport": "sse", "connection": {}}, "connection.url", "'connection' is missing"),
        ("a", {"transport": "http", "connection": {"command": "x"}}, "connection.url", "is missing its 'url'"),
        ("a", {"transport": "pigeon"}, "connection", "'connection' is missing"),
        ("a", {}, "connection.command", "'connection' is missing"),
        ("a", {"transport": "stdio", "connection": 5}, "connection", "must be an object, not a number"),
        ("a", {"command": []}, "connection.command", "missing its 'command'"),
    ],
)
def test_a_missing_name_or_connection_is_a_named_error(name: str, entry: Any, field: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        normalize_config(name, entry)

    assert caught.value.field == field
    assert part in str(caught.value)


@pytest.mark.parametrize("entry", ["npx", None, ["x"]])
def test_only_an_object_can_be_normalized(entry: Any) -> None:
    with pytest.raises(ConfigError, match="must be an object"):
        normalize_config("a", entry)


@pytest.mark.requirement("R7")
def test_the_runtime_wins_key_by_key_in_the_connection_and_replaces_auth() -> None:
    runtime = {"connection": {"args": ["-y", "other"]}, "auth": {"type": "api_key", "token": "user"}}
    before = copy.deepcopy((FULL, runtime))

    merged = merge_config(FULL, runtime)

    assert merged == {
        "serverName": "fs",
        "transport": "stdio",
        "connection": {"command": "npx", "args": ["-y", "other"], "region": "eu"},
        "auth": {"type": "api_key", "token": "user"},
    }
    assert (FULL, runtime) == before


@pytest.mark.requirement("R7")
def test_without_a_runtime_the_base_comes_back() -> None:
    config = ServerConfig(command="x")

    assert merge_config(FULL) is FULL
    assert merge_config(FULL, None) is FULL
    assert merge_config(config, None) is config


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("runtime", [{}, {"connection": {}}, {"auth": None}])
def test_a_runtime_that_says_nothing_changes_nothing(runtime: dict[str, Any]) -> None:
    assert merge_config(FULL, runtime) == FULL


@pytest.mark.requirement("R7", "R27")
def test_other_settings_of_the_runtime_win_too() -> None:
    merged = merge_config({**FULL, "timeout": 5}, {"transport": "sse", "connection": {"url": "http://h"}, "timeout": 9})

    assert (merged["transport"], merged["timeout"], merged["connection"]["url"]) == ("sse", 9, "http://h")
    assert merged["auth"] == FULL["auth"]


@pytest.mark.requirement("R7")
def test_short_forms_merge_as_the_full_ones_do() -> None:
    merged = merge_config({"command": "x", "args": ["a"]}, {"args": ["b"], "auth": {"token": "t"}})
    nothing = merge_config({"timeout": 3}, {"timeout": 4})
    remote = merge_config({"url": "http://h"}, ServerConfig(url="http://other"))

    assert merged == {
        "transport": "stdio",
        "connection": {"command": "x", "args": ["b"]},
        "auth": {"token": "t"},
    }
    assert nothing == {"timeout": 4}
    assert remote["connection"] == {"url": "http://other"}


@pytest.mark.requirement("R7", "R27")
def test_a_server_config_merges_with_a_mapping_and_stays_one() -> None:
    base = ServerConfig(
        name="a",
        url="http://h",
        headers={"A": "1"},
        auth=Auth(token=Secret("base")),
        timeout=Timeouts(call=7),
        options={"x": 1, "y": 1},
        sensitive=[Secret("known")],
    )

    merged = merge_config(base, {"connection": {"url": "http://other", "y": 2}, "auth": {"token": "user"}})

    assert merged == base.replace(url="http://other", auth=Auth(token=Secret("user")), options={"x": 1, "y": 2})
    assert merged.sensitive == (Secret("known"),)
    assert base.url == "http://h"


@pytest.mark.requirement("R7")
def test_two_server_configs_merge_by_what_the_runtime_sets() -> None:
    base = ServerConfig(name="a", command="x", args=["1"], include=["t"])

    assert merge_config(base, ServerConfig(command="y")) == ServerConfig(
        name="a", command="y", args=["1"], include=["t"]
    )


def test_a_merge_that_makes_no_valid_config_is_an_error_about_the_base() -> None:
    base = ServerConfig(name="a", command="x")

    for runtime in ({"transport": "http"}, {"timeout": "soon"}):
        with pytest.raises(ConfigError) as caught:
            merge_config(base, runtime)
        assert caught.value.server == "a"
