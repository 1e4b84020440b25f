"""How a revision is settled with servers of every era and habit, and what is learned from it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.connect.targets import (
    MODERN,
    ChannelServer,
    Json,
    connected,
    error,
    eventually,
    initialized,
    steps_of,
)
from tests.servers.fixtures import echo_command, fault_command, http_server
from toolweave import ConfigError, ConnectError, ConnectionState, McpConnection, Timeouts, connect_mcp

pytestmark = pytest.mark.anyio
QUICK_PROBE = Timeouts(connect=15, probe=0.2, close=1)


def outcome_of(connection: McpConnection, step: str) -> tuple[str, str]:
    found = next(entry for entry in connection.report.steps if entry.name == step)
    return found.outcome, found.detail


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("probe", ["exit", "silent", "error-32601", "error-32602", "ok"])
async def test_a_legacy_server_is_reached_whatever_it_does_at_the_probe(probe: str) -> None:
    async with connected(echo_command("--probe", probe), timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == "2025-11-25"
        assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"
        assert connection.restarts == 0


@pytest.mark.parametrize("status", [200, 400, 404, 405, 500])
@pytest.mark.parametrize("probe", ["error-32601", "error-32602", "ok"])
async def test_a_legacy_http_server_is_reached_whatever_it_does_at_the_probe(probe: str, status: int) -> None:
    with http_server("--probe", probe, "--probe-status", status) as url:
        async with connected(url, timeout=QUICK_PROBE) as connection:
            assert connection.protocol_version == "2025-11-25"
            assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"


async def test_a_server_that_dies_of_the_probe_is_started_again_and_never_probed_again() -> None:
    async with connected(fault_command("dies_at_probe")) as connection:
        assert steps_of(connection).count("start the process") == 2
        crashed = await (await connection.list_tools())["crash"].execute()
        assert crashed.is_error
        await eventually(lambda: connection.restarts == 1 and connection.state is ConnectionState.READY)
        assert steps_of(connection).count("start the process") == 1
        assert "discover" not in steps_of(connection)


async def test_a_modern_server_is_found_again_as_a_modern_one_after_a_restart() -> None:
    async with connected(echo_command("--version", MODERN)) as connection:
        await (await connection.list_tools())["crash"].execute()
        await eventually(lambda: connection.restarts == 1 and connection.state is ConnectionState.READY)
        assert connection.protocol_version == MODERN
        assert "initialize" not in steps_of(connection)


async def test_a_server_silent_at_the_probe_is_taken_for_a_legacy_one_within_the_probe_bound() -> None:
    async with connected(echo_command("--probe", "silent"), timeout=QUICK_PROBE) as connection:
        assert outcome_of(connection, "discover") == ("skipped", "no answer within 0.2 s: taken as a legacy server")


async def test_a_modern_server_that_starts_slower_than_the_probe_is_still_found_out_to_be_modern() -> None:
    command = fault_command("slow_start", "--seconds", "0.5", "--version", MODERN)
    async with connected(command, timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == MODERN
        assert steps_of(connection)[-4:] == ["discover", "initialize", "discover", "list tools"]


@pytest.mark.requirement("C7")
async def test_a_server_of_both_eras_is_spoken_to_in_the_modern_one() -> None:
    async with connected(echo_command("--era", "dual")) as connection:
        assert connection.protocol_version == MODERN


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN])
async def test_a_pinned_revision_is_what_a_server_of_both_eras_speaks(version: str) -> None:
    command, *args = echo_command("--era", "dual", "--version", version)
    target = {"command": command, "args": args, "protocol": version}
    async with connected(target) as connection:
        assert connection.protocol_version == version
        assert ("discover" in steps_of(connection)) == (version == MODERN)


async def test_the_protocol_setting_legacy_spares_the_probe() -> None:
    command, *args = echo_command("--era", "dual")
    async with connected({"command": command, "args": args, "protocol": "legacy"}) as connection:
        assert connection.protocol_version == "2025-11-25"
        assert "discover" not in steps_of(connection)


@pytest.mark.parametrize(
    ("options", "protocol", "words"),
    [
        (["--era", "legacy"], MODERN, "does not speak protocol revision 2026-07-28; use protocol='auto'"),
        (["--era", "modern"], "legacy", "Unsupported protocol version"),
    ],
)
async def test_a_pinned_revision_that_the_server_does_not_speak_is_an_error(
    options: list[str], protocol: str, words: str
) -> None:
    command, *args = echo_command(*options)
    with pytest.raises(ConnectError, match=words):
        await connect_mcp({"command": command, "args": args, "protocol": protocol}, name="pinned")


async def test_a_pinned_revision_that_never_was_is_refused_with_the_known_ones_named() -> None:
    command, *args = echo_command()
    with pytest.raises((ConnectError, ConfigError), match=r"2031-01-01.*2025-11-25"):
        await connect_mcp({"command": command, "args": args, "protocol": "2031-01-01"})


@pytest.mark.parametrize("answered", ["2025-11-05", "1.0", None, 7, ["2025-11-25"]])
async def test_a_revision_that_never_was_ends_the_handshake_with_the_known_ones_named(answered: Any) -> None:
    server = ChannelServer(initialized(lambda message: None, version=answered))
    with pytest.raises(ConnectError) as failure:
        await connect_mcp(server, name="bogus")
    assert "server 'bogus'" in str(failure.value)
    assert repr(answered) in str(failure.value)
    assert "2025-11-25" in str(failure.value)


def modern_answer(message: Json) -> Json | None:
    match message["method"]:
        case "server/discover":
            return {"result": {"supportedVersions": [MODERN], "capabilities": {}, "serverInfo": {"name": "odd"}}}
        case "tools/list":
            return {"result": {"tools": []}}
        case _:
            return error(-32601, "Method not found")


async def test_a_server_that_names_the_revision_in_its_refusal_is_asked_once_more() -> None:
    refusals = [error(-32022, "Unsupported protocol version", {"supported": [MODERN], "requested": "?"})]

    def answer(message: Json) -> Json | None:
        if message["method"] == "server/discover" and refusals:
            return refusals.pop()
        return modern_answer(message)

    server = ChannelServer(answer)
    async with connected(server) as connection:
        assert connection.protocol_version == MODERN
        assert connection.server_info == {"name": "odd"}
    assert server.methods()[:2] == ["server/discover"] * 2


@pytest.mark.parametrize(
    "discovered",
    [
        {},
        {"supportedVersions": []},
        {"supportedVersions": "2026-07-28"},
        {"supportedVersions": ["2031-01-01"], "capabilities": {}},
        {"supportedVersions": [MODERN], "capabilities": "all"},
    ],
)
async def test_a_discovery_that_names_no_common_revision_falls_back_to_initialize(discovered: Json) -> None:
    legacy = initialized(lambda message: {"result": {"tools": []}})

    def answer(message: Json) -> Json | None:
        return {"result": discovered} if message["method"] == "server/discover" else legacy(message)

    async with connected(ChannelServer(answer)) as connection:
        assert connection.protocol_version == "2025-11-25"


async def test_a_server_that_refuses_every_revision_is_an_error_not_a_loop() -> None:
    refusal = error(-32022, "Unsupported protocol version", {"supported": [MODERN]})
    server = ChannelServer(lambda message: refusal)
    with pytest.raises(ConnectError, match="Unsupported protocol version"):
        await connect_mcp(server, name="stubborn")
    assert len(server.received) <= 6


async def test_odd_members_of_a_handshake_are_passed_over() -> None:
    def answer(message: Json) -> Json | None:
        if message["method"] == "initialize":
            odd: Json = {"capabilities": [], "serverInfo": "me", "instructions": 5}
            return {"result": {"protocolVersion": "2025-06-18", **odd}}
        return initialized(lambda message: {"result": {"tools": []}})(message)

    async with connected(ChannelServer(answer)) as connection:
        assert (connection.server_info, connection.capabilities, connection.instructions) == ({}, {}, None)


async def test_before_the_handshake_nothing_is_known_of_the_server() -> None:
    connection = await connect_mcp(echo_command(), lazy=True)
    assert connection.state is ConnectionState.IDLE
    assert connection.protocol_version is None
    assert (connection.server_info, connection.capabilities, connection.instructions) == ({}, {}, None)
    assert connection.stderr_tail == ""
    await connection.close()
