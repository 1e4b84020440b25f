"""How a revision is settled with servers of every era and habit, and what is learned from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, legacy_answer, listening
from tests.connect.scripted import modern_answer as modern_http
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
from toolweave import ConfigError, ConnectError, McpConnection, connect_mcp
from toolweave.config import Timeouts
from toolweave.connect import ConnectionState

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
    async with connected(http_server("--probe", probe, "--probe-status", status), timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == "2025-11-25"
        assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_server_silent_at_the_probe_is_asked_the_older_way_and_the_guess_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected(echo_command("--probe", "silent"), timeout=QUICK_PROBE, name="mute") as connection:
        assert outcome_of(connection, "discover") == ("skipped", "no answer within 0.2 s: initialize is tried too")
        assert outcome_of(connection, "initialize") == (
            "ok",
            "2025-11-25; the probe was not answered within 0.2 s",
        )
    assert "server 'mute': it answered initialize and not server/discover" in caplog.text


@pytest.mark.slow
async def test_a_modern_server_that_starts_slower_than_the_probe_is_still_found_out_to_be_modern() -> None:
    command = fault_command("slow_start", "--seconds", "0.5", "--version", MODERN)
    async with connected(command, timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == MODERN
        assert steps_of(connection)[-3:] == ["initialize", "discover", "list tools"]
        assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"


class Late:
    """A script that keeps quiet until `initialize` has come, then answers in an order of its choice."""

    def __init__(self, answers: dict[str, Json | None], order: list[str]) -> None:
        self.server = ChannelServer(self._take)
        self._answers = answers
        self._order = order
        self._waiting: dict[str, Json] = {}

    def _take(self, message: Json) -> Json | None:
        method = message["method"]
        if method not in self._answers:
            return modern_answer(message)
        self._waiting[method] = message
        for name in self._order if method == "initialize" else ():
            if (answer := self._answers[name]) is not None:
                self.server.send({"jsonrpc": "2.0", "id": self._waiting[name]["id"], **answer})
        return None


DISCOVERED: Json = {"result": {"supportedVersions": [MODERN], "capabilities": {}}}
INITIALIZED: Json = {"result": {"protocolVersion": "2025-11-25", "capabilities": {}}}


@pytest.mark.parametrize("order", [["server/discover", "initialize"], ["initialize", "server/discover"]], ids=str)
async def test_a_server_of_both_eras_that_starts_late_is_modern_in_whatever_order_it_answers(order: list[str]) -> None:
    late = Late({"server/discover": DISCOVERED, "initialize": INITIALIZED}, order)
    async with connected(late.server, timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == MODERN
    assert "notifications/initialized" not in late.server.methods()


@pytest.mark.parametrize("probe", [error(-32601, "Method not found"), error(-32000, "not yet"), DISCOVERED], ids=str)
async def test_the_late_answer_to_the_probe_decides_not_the_clock(probe: Json) -> None:
    order = ["server/discover", "initialize"]
    late = Late({"server/discover": probe, "initialize": INITIALIZED}, order)
    async with connected(late.server, timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == (MODERN if probe is DISCOVERED else "2025-11-25")


@pytest.mark.parametrize("first", ["dropped", "refused"])
async def test_a_server_that_does_not_know_initialize_is_asked_as_a_modern_one_again(first: str) -> None:
    seen: list[str] = []

    def answer(message: Json) -> Json | None:
        seen.append(message["method"])
        if message["method"] == "server/discover" and seen.count("server/discover") == 1:
            return None if first == "dropped" else error(-32603, "still starting")
        return modern_answer(message)

    async with connected(ChannelServer(answer), timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == MODERN
    assert seen[:3] == ["server/discover", "initialize", "server/discover"]


DIES_OF_THE_PROBE = """
import json, sys, time
time.sleep(float(sys.argv[1]))
answers = {
    "initialize": {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {}},
    "tools/list": {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "server/discover":
        if sys.argv[2] == "error":
            error = {"code": -1, "message": "?"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        sys.exit(1)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]}), flush=True)
"""


def dying(seconds: float, how: str = "silently") -> list[str]:
    """Return the command of a legacy server that takes its time to start, and ends on the probe."""
    return [sys.executable, "-S", "-E", "-c", DIES_OF_THE_PROBE, str(seconds), how]


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "probe"), [(0, 10), (0.6, 0.1)], ids=["at once", "after the probe's bound"])
@pytest.mark.parametrize("how", ["silently", "error"])
async def test_a_server_that_dies_of_the_probe_whenever_it_reads_it_is_dialled_again(
    seconds: float, probe: float, how: str
) -> None:
    bounds = Timeouts(connect=15, probe=probe, close=1)
    async with connected(dying(seconds, how), timeout=bounds) as connection:
        assert connection.protocol_version == "2024-11-05"
        assert (await connection.list_tools()).names == ("a",)


KILLED_AT_THE_PROBE = """
import os, signal, sys
path, start, *command = sys.argv[1:]
open(path, "a").write("x")
if os.path.getsize(path) == int(start):
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
os.execv(command[0], command)
"""


@pytest.mark.parametrize("start", [1, 2], ids=["first start", "restart"])
async def test_a_modern_server_that_is_killed_while_it_starts_is_found_again_as_a_modern_one(
    start: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-S", "-E", "-c", KILLED_AT_THE_PROBE, str(tmp_path / "starts"), str(start)]
    command += echo_command("--era", "modern")
    async with connected(command) as connection:
        if start == 2:
            await (await connection.list_tools())["crash"].execute()
            await eventually(lambda: connection.restarts == 1 and connection.state is ConnectionState.READY)
        assert connection.protocol_version == MODERN
        assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"


@pytest.mark.slow
async def test_a_server_that_is_started_again_gets_as_long_as_it_took_to_die_of_the_probe() -> None:
    bounds = Timeouts(connect=3, probe=0.1, close=1)
    async with connected(dying(1.8), timeout=bounds) as connection:  # twice that is more than the bound
        assert connection.protocol_version == "2024-11-05"


@pytest.mark.parametrize("order", ["probe first", "initialize first"])
async def test_an_http_server_of_both_eras_that_answers_late_is_modern(order: str) -> None:
    asked, answered = anyio.Event(), anyio.Event()

    def both(message: Json) -> Json | None:
        return INITIALIZED if message["method"] == "initialize" else modern_http(message)

    async def special(exchange: Exchange, message: Json) -> bool:
        method = message.get("method")
        if method == "server/discover":
            await asked.wait()
            if order == "initialize first":
                await answered.wait()
        if method == "initialize":
            asked.set()
            if order == "probe first":
                await exchange.reader.gone.wait()
                return True
            await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], **INITIALIZED}, mcp_session_id="s")
            answered.set()
            return True
        return False

    script = HttpScript(both, special)
    async with listening(script.handle) as (url, _), connected(url, timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == MODERN
        assert (await connection.call_tool("t")).text == "done"
        if order == "initialize first":  # and the session that nobody needs is ended
            await eventually(lambda: "DELETE" in script.methods())
        calls = [one for one in script.exchanges if b"tools/call" in one.body]
        assert "mcp-session-id" not in calls[0].headers


async def test_an_http_server_that_loses_the_probe_late_is_asked_the_older_way_alone() -> None:
    asked = anyio.Event()

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "server/discover":
            await asked.wait()
            exchange.writer.close()
            return True
        if message.get("method") == "initialize" and not asked.is_set():
            asked.set()
            exchange.writer.close()
            return True
        return False

    def answer(message: Json) -> Json | None:
        return INITIALIZED if message["method"] == "initialize" else legacy_answer(message)

    script = HttpScript(answer, special)
    async with listening(script.handle) as (url, _), connected(url, timeout=QUICK_PROBE) as connection:
        assert connection.protocol_version == "2025-11-25"
        assert (await connection.call_tool("t")).text == "done"


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


@pytest.mark.parametrize("answered", ["2025-11-05", "1.0", "", 7, ["2025-11-25"]])
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
