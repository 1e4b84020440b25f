"""What `server_config` and `parse_command` take for a server, and how they name it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from toolweave.config import Auth, Secret, ServerConfig, Timeouts, parse_command, program_name, server_config
from toolweave.errors import ConfigError


@pytest.mark.requirement("R8", "R13")
def test_everything_that_means_a_server_becomes_a_config(tmp_path: Path) -> None:
    script = tmp_path / "my server.py"
    script.touch()

    class Unnamed:
        async def run(self) -> None: ...

    class InProcess(Unnamed):
        name = "inside"

    server = InProcess()

    assert server_config({"command": "x"}) == ServerConfig(name="x", command="x")
    assert server_config("https://api.example.com/mcp") == ServerConfig(
        name="api.example.com", url="https://api.example.com/mcp"
    )
    assert server_config("HTTP://h/").transport == "http"
    assert server_config("uvx mcp-server-time --tz 'Europe/Oslo'").args == ("mcp-server-time", "--tz", "Europe/Oslo")
    assert server_config(["npx", "-y", "pkg"]).args == ("-y", "pkg")
    assert server_config(str(script)) == ServerConfig(name="my server", command=sys.executable, args=[str(script)])
    assert server_config(script).args == (str(script),)
    assert server_config("server.js").command == "node"
    assert server_config(Path("/opt/bin/server")) == ServerConfig(name="server", command="/opt/bin/server")
    assert server_config(server).server is server
    assert server_config(server).name == "inside"
    assert server_config(Unnamed()).name == "inprocess"
    assert server_config({"transport": "sse", "connection": {"url": "http://h"}}).transport == "sse"


@pytest.mark.parametrize("name", ["x" * 300 + ".yaml", "x" * 300 + ".py", "a/" * 3000 + "x.json"])
def test_a_name_that_is_too_long_for_the_system_is_a_command_like_others(name: str) -> None:
    assert name in (server_config(name).command, *server_config(name).args)
    assert name in (server_config(Path(name)).command, *server_config(Path(name)).args)


def test_a_config_with_one_server_stands_for_that_server() -> None:
    config = server_config({"mcpServers": {"only": {"command": "x"}}})

    assert config == ServerConfig(name="only", command="x")
    assert server_config({"mcp": {"o": {"type": "local", "command": ["x"], "timeout": 5000}}}).timeout.list == 5


def test_one_entry_by_its_name_is_that_server() -> None:
    config = server_config({"only": {"command": "x"}})

    assert config == ServerConfig(name="only", command="x")


def test_a_key_whose_value_is_like_an_entry_does_not_hide_a_misspelt_one() -> None:
    with pytest.raises(ConfigError, match="'comand'"):
        server_config({"comand": "x", "env": {"command": "y"}})


@pytest.mark.parametrize("section", ["servers", None])
def test_a_config_with_several_servers_is_refused_with_the_way_out(section: str | None) -> None:
    entries: dict[str, Any] = {"a": {"command": "x"}, "b": {"command": "y"}}

    with pytest.raises(ConfigError, match=r"several servers \(a, b\).*connect_mcp_servers"):
        server_config({section: entries} if section else entries)


@pytest.mark.parametrize(
    "value, part",
    [
        ("", "empty"),
        ("   ", "empty"),
        ([], "empty"),
        ("uvx 'open", "cannot be split"),
        ("ws://h/mcp", "http://h/mcp"),
        (None, "not null"),
        (5, "not a number"),
        (b"x", "not bytes"),
        ({}, "neither 'command'"),
        ({"mcpServers": {}}, "neither 'command'"),
        ({"exec": "x"}, "neither 'command'"),
        (["x", 5], "args[0]"),
    ],
)
def test_what_means_no_server_is_a_config_error(value: Any, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server_config(value, name="srv")

    assert part in str(caught.value)
    assert caught.value.server == "srv"


def test_a_config_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")

    with pytest.raises(ConfigError, match="connect_mcp_servers the file"):
        server_config(str(path))


@pytest.mark.parametrize(
    "command, name",
    [
        ("uvx mcp-server-time", "mcp-server-time"),
        ("uvx --from git+https://h/x mcp-server-git@1.2", "mcp-server-git"),
        ("uvx --python 3.12 mcp-server-fetch==2025.1", "mcp-server-fetch"),
        ("uvx pkg[extra]", "pkg"),
        ("npx -y @scope/server-everything", "server-everything"),
        ("npx -y @scope/server-everything@latest", "server-everything"),
        ("npx --package=a -p b tool", "tool"),
        (r"C:\\node\\npx.cmd -y pkg", "pkg"),
        ("cmd /c npx -y pkg", "pkg"),
        ("pnpm dlx pkg", "pkg"),
        ("npm exec pkg", "pkg"),
        ("bun x pkg", "pkg"),
        ("pipx run --spec a b", "b"),
        ("uv tool run pkg", "pkg"),
        ("uv run --directory /srv server.py", "server"),
        ("uv run --with mcp python -m my.module", "module"),
        ("uv --directory /srv/weather run weather.py", "weather"),
        ("uv run --with mcp[cli] mcp run /srv/weather.py", "weather"),
        ("uv run -m weather.server --port 1", "weather"),
        ("uvx fastmcp run weather.py:app", "weather"),
        ("toolweave serve weather.py:server", "weather"),
        ("toolweave serve --config mcp.json", "toolweave"),
        ("npx -y tsx src/weather.ts", "weather"),
        ("npm --prefix /srv exec pkg", "pkg"),
        ("uv pip list", "uv"),
        ("python -m mcp_server_time --x", "mcp_server_time"),
        ("python3.12 /srv/tools/weather.py", "weather"),
        ("python -m toolweave.cli.demo.numbers", "numbers"),
        ("python -P -m weather.mcp.server", "weather"),
        ("python -m server", "server"),
        ("python weather.py -m other", "weather"),
        ("python -c pass", "python"),
        ("env A=B uvx mcp-server-time", "mcp-server-time"),
        ("env -u HOME A=B nice -n 10 python -m demo.numbers", "numbers"),
        ("/usr/bin/timeout -k 5 30 npx -y pkg", "pkg"),
        ("sudo -u ann /opt/bin/weather", "weather"),
        ("env A=B", "env"),
        ("env -S 'npx x'", "env"),
        ("node --require a dist/index.js", "index"),
        ("node /srv/weather/dist/index.js", "weather"),
        (r"node C:\\srv\\weather\\build\\index.js", "weather"),
        ("node /srv/weather/dist/main.js", "main"),
        ("node", "node"),
        ("deno run --allow-net main.ts", "main"),
        ("docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:v1", "github-mcp-server"),
        ("docker run", "docker"),
        ("docker run -i node server.js", "node"),
        ("/opt/bin/my-server.sh --stdio", "my-server"),
        ("npx -y", "npx"),
        ("bash -c 'npx pkg'", "bash"),
    ],
)
def test_a_server_is_named_after_what_its_command_runs(command: str, name: str) -> None:
    assert parse_command(command).name == name


@pytest.mark.parametrize("command", ["npx", "/usr/bin/npx", "C:\\node\\npx.cmd", "npx.EXE"])
def test_a_program_is_named_without_folder_and_suffix(command: str) -> None:
    assert program_name(command) == "npx"


def test_a_url_names_the_server_by_its_host() -> None:
    assert server_config("http://user:pw@localhost:8080/mcp").name == "localhost"
    assert server_config("http://h", name="mine").name == "mine"
    assert server_config(ServerConfig(name="own", url="http://h")).name == "own"


@pytest.mark.requirement("R25", "R26", "C27")
def test_what_is_given_beside_the_server_is_laid_over_its_config() -> None:
    base = {"url": "http://h", "headers": {"A": "1", "B": "1"}, "auth": {"token": "old"}}

    config = server_config(base, headers={"B": "2"}, auth="new", timeout=3, name="n")
    stdio = server_config({"command": "x", "env": {"A": "1", "B": "1"}}, env={"B": "2"})

    assert config.header_values() == {"A": "1", "B": "2"}
    assert config.auth == Auth(token=Secret("new"))
    assert (config.name, config.timeout) == ("n", Timeouts.of(3))
    assert stdio.env_values() == {"A": "1", "B": "2"}


def test_headers_given_as_a_callable_take_the_place_of_the_fixed_ones() -> None:
    assert server_config("http://h", headers=dict).headers is dict
    assert server_config({"url": "http://h", "headers": dict}, headers={"A": "1"}).header_values() == {"A": "1"}


@pytest.mark.parametrize("extra", [{"auth": {"type": "x"}}, {"timeout": -1}, {"headers": 5}, {"env": {"A": 1}}])
def test_what_is_given_beside_the_server_is_checked_in_its_name(extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="server 'srv'"):
        server_config("http://h", name="srv", **extra)


def test_variables_in_a_mapping_from_code_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "tok")

    assert server_config({"command": "x", "env": {"T": "${MY_TOKEN}"}}).env_values() == {"T": "tok"}


@pytest.mark.requirement("C7")
def test_connecting_to_an_sse_config_is_remarked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="toolweave"):
        server_config(ServerConfig(transport="sse", url="http://h"))

    assert "'sse' is deprecated" in caplog.text


@pytest.mark.requirement("C6")
@pytest.mark.parametrize("given", [None, "mine"])
def test_the_warning_of_the_old_transport_names_the_server(given: str | None, caplog: pytest.LogCaptureFixture) -> None:
    entry = {"type": "sse", "url": "http://old.example/sse"}
    for target in (entry, ServerConfig(transport="sse", url="http://old.example/sse")):
        caplog.clear()
        config = server_config(target, name=given)
        assert config.name == (given or "old.example")
        (message,) = caplog.messages
        assert message.startswith(f"server {config.name!r}: transport 'sse' is deprecated")
