"""One bad server among good ones: what the caller is told, and that nobody else pays for it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import anyio
import pytest

from tests.hub.fleet import BOUND, absent, echo, fault, opened, waiting
from tests.servers.fixtures import http_server
from toolweave import AuthRequiredError, ConfigError, ConnectError, ErrorKind, ServerConfig, connect_mcp_servers
from toolweave.config import LoadedConfig
from toolweave.connect import ConnectionState
from toolweave.errors import DuplicateToolError


@pytest.mark.requirement("R64", "C3", "R69")
async def test_failures_are_skipped_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    servers = {"absent": absent(), "good": echo(), "dead": fault("exits_at_once"), "also": echo()}
    with caplog.at_level(logging.WARNING, logger="toolweave.hub"):
        async with opened(servers) as hub:
            assert list(hub.clients) == ["good", "also"]
            assert set(hub.errors) == {"absent", "dead"}
            assert hub.states() == {
                "good": ConnectionState.READY,
                "also": ConnectionState.READY,
                "absent": ConnectionState.FAILED,
                "dead": ConnectionState.FAILED,
            }
            assert (await hub.execute("also_echo", {"text": "fine"})).text == "fine"
    dead = hub.errors["dead"]
    assert isinstance(dead, ConnectError)
    assert dead.exit_code == 3
    assert "no API key" in dead.stderr
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sorted(warned) == sorted(str(error) for error in hub.errors.values())


@pytest.mark.requirement("R64", "C3", "D21", "D14")
async def test_raising_names_every_failure_and_leaves_no_process(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    servers = {"up": waiting(gate, "up", 1), "absent": absent(), "dead": fault("exits_at_once")}
    with anyio.fail_after(BOUND), pytest.raises(ExceptionGroup) as caught:
        await connect_mcp_servers({"mcpServers": servers}, on_error="raise")
    assert (gate / "up").exists()  # it ran; that it is gone is for the leftover check to say
    assert sorted(error.server for error in caught.value.exceptions if isinstance(error, ConnectError)) == [
        "absent",
        "dead",
    ]
    assert "some MCP servers could not be used" in str(caught.value)


async def test_raising_says_nothing_when_all_is_well() -> None:
    async with opened({"a": echo(), "b": echo()}, on_error="raise") as hub:
        assert set(hub.clients) == {"a", "b"}


@pytest.mark.requirement("R8", "R67", "C3", "R70")
async def test_a_wrong_entry_of_a_file_disables_that_server_only(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    servers = {"good": echo(), "odd": {"transport": "carrier-pigeon", "url": "http://x"}, "empty": {"cwd": "/"}}
    file.write_text(json.dumps({"mcpServers": servers}, indent=2))
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers(file) as hub:
            assert list(hub.clients) == ["good"]
            assert hub.states()["odd"] is ConnectionState.FAILED
            called = await hub.execute("odd_echo", {"text": "?"})
    odd, empty = hub.errors["odd"], hub.errors["empty"]
    assert isinstance(odd, ConfigError)
    assert (odd.server, odd.field, odd.path) == ("odd", "transport", str(file))
    assert isinstance(empty, ConfigError)
    assert empty.server == "empty"
    assert "carrier-pigeon" in called.text
    assert called.is_error


@pytest.mark.requirement("C3")
async def test_a_wrong_entry_raises_when_failures_are_to_be_raised() -> None:
    with anyio.fail_after(BOUND), pytest.raises(ExceptionGroup) as caught:
        await connect_mcp_servers({"mcpServers": {"good": echo(), "empty": {"cwd": "/"}}}, on_error="raise")
    assert [type(error) for error in caught.value.exceptions] == [ConfigError]


async def test_a_file_that_cannot_be_read_raises_whatever_the_policy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-file"):
        await connect_mcp_servers(tmp_path / "no-such-file.json")


async def test_odd_words_in_a_config_are_kept_as_warnings() -> None:
    async with opened({"a": echo(comand="x")}) as hub:
        assert len(hub.warnings) == 1
        assert "'comand'" in hub.warnings[0]


async def test_only_the_named_servers_start(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    servers = {"a": echo(), "b": waiting(gate, "b", 1), "wrong": {"cwd": "/"}}
    async with opened(servers, names=["a"]) as hub:
        assert list(hub.clients) == ["a"]
        assert not hub.errors
    async with opened(servers, names="a") as hub:
        assert list(hub.clients) == ["a"]
    async with opened(servers, names=["wrong", "a", "a"]) as hub:
        assert list(hub.clients) == ["a"]
        assert list(hub.errors) == ["wrong"]
    assert not (gate / "b").exists()


@pytest.mark.parametrize(("name", "said"), [("nobody", "no such server; it has: a"), ("off", "switched off")])
async def test_a_name_that_cannot_start_is_refused(name: str, said: str) -> None:
    servers = {"a": echo(), "off": echo(disabled=True)}
    with pytest.raises(ConfigError, match=said) as caught:
        await connect_mcp_servers({"mcpServers": servers}, names=["a", name])
    assert caught.value.server == name


async def test_a_disabled_server_is_neither_started_nor_an_error() -> None:
    async with opened({"off": echo(disabled=True), "on": echo()}) as hub:
        assert set(hub.states()) == {"on"}
        assert not hub.errors
    loaded = LoadedConfig(servers={"off": ServerConfig(name="off", command="x", disabled=True)})
    async with connect_mcp_servers(loaded) as hub:
        assert not hub.states()


@pytest.mark.requirement("R69", "R24")
async def test_a_server_that_wants_credentials_is_told_apart() -> None:
    with http_server("--require-bearer", "s3cret-token") as url:
        async with opened({"locked": {"url": url}, "good": echo()}) as hub:
            assert isinstance(hub.errors["locked"], AuthRequiredError)
            assert hub.states()["locked"] is ConnectionState.AUTH_REQUIRED
            refused = await hub.execute("locked_echo", {"text": "?"})
    assert refused.require_error().kind is ErrorKind.AUTH_REQUIRED
    assert "server 'locked'" in refused.text
    assert "s3cret" not in refused.text


async def test_a_server_that_cannot_list_stays_and_is_an_error_until_it_can() -> None:
    async with opened({"good": echo(), "mute": fault("list_error")}) as hub:
        assert hub.states() == {"good": ConnectionState.READY, "mute": ConnectionState.DEGRADED}
        assert "server 'mute'" in str(hub.errors["mute"])
        assert {spec.server for spec in hub.snapshot()} == {"good"}
        assert (await hub.execute("mute_echo", {"text": "?"})).is_error
        assert (await hub.clients["mute"].call_tool("echo", {"text": "by hand"})).text == "by hand"


@pytest.mark.requirement("C20", "D15")
async def test_a_conflict_that_is_an_error_takes_that_servers_tools_out_and_hangs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = {"first": echo(tool_prefix=""), "second": echo(tool_prefix="", on_conflict="error")}
    async with opened(servers) as hub:
        error = hub.errors["second"]
        assert isinstance(error, DuplicateToolError)
        assert "server 'second'" in str(error)
        assert {spec.server for spec in hub.snapshot()} == {"first"}
        assert hub.states() == {"first": ConnectionState.READY, "second": ConnectionState.READY}
        await hub.refresh()
        assert "second" in hub.errors
        await hub.disconnect("first")
        assert isinstance(hub.errors["second"], DuplicateToolError)  # a name that was given never changes hands
        assert len(hub.snapshot()) == 0
    assert len([record for record in caplog.records if "all its tools are left out" in record.getMessage()]) == 1
    with anyio.fail_after(BOUND), pytest.raises(ExceptionGroup) as caught:
        await connect_mcp_servers({"mcpServers": servers}, on_error="raise")
    assert [type(error) for error in caught.value.exceptions] == [DuplicateToolError]
