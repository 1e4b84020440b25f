"""A server that is replaced by a version of the other era is reached again, and no call is carried out twice."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, answers_to, legacy_answer, listening, modern_answer
from tests.connect.targets import MODERN, ChannelServer, Json, connected, error, eventually, initialized, pid_of
from tests.servers.fixtures import relay_command
from toolweave import ConnectError, ConnectionLostError, Hub, ProtocolError, connect_mcp
from toolweave.connect import ConnectionState
from toolweave.testing.servers import http_server, stdio_server_command

LEGACY = "2025-11-25"
CHANGES = [("legacy", "modern"), ("modern", "legacy"), ("dual", "legacy"), ("dual", "modern"), ("legacy", "dual")]
EACH_CHANGE = pytest.mark.parametrize(("before", "after"), CHANGES)
Refusal = tuple[int, Json | bytes]
"""The status and the body by which a server refuses a request of the other era."""


def refusal(status: int, code: int, message: str) -> Refusal:
    return status, error(code, message)


REFUSALS_OF_MODERN: dict[str, Refusal] = {
    "no session": refusal(400, -32000, "Bad Request: No valid session ID provided"),
    "unknown session": refusal(404, -32001, "Session not found"),
    "unknown method": refusal(404, -32601, "Method not found"),
    "unknown method, status 200": refusal(200, -32601, "Method not found"),
    "unknown revision": refusal(400, -32600, "Bad Request: Unsupported protocol version"),
    "not begun, status 200": refusal(200, -32600, "Invalid request: initialize first"),
    "without JSON": (422, b"Unexpected message, expect initialize request"),
    "method not allowed": (405, b""),
}
REFUSALS_OF_LEGACY: dict[str, Refusal] = {
    "unsupported": (
        400,
        {"error": {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [MODERN]}}},
    ),
    "unsupported, status 200": (
        200,
        {"error": {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [MODERN]}}},
    ),
    "unknown method": refusal(404, -32601, "Method not found"),
    "header mismatch": refusal(400, -32020, "Mcp-Method is missing"),
    "invalid request": refusal(400, -32600, "the envelope is missing"),
    "envelope missing, status 200": refusal(200, -32602, "_meta must carry a protocol version"),
    "without JSON": (400, b"Bad Request"),
}


class Replaced(HttpScript):
    """A server whose eras can be changed between two requests.

    Attributes:
        era: `"legacy"`, `"modern"` or `"dual"`.
        calls: The eras in which calls were carried out.
        breaks: Whether the next call is carried out without a response.
        fault_of_calls: The refusal of calls of the other era, instead of that of all requests.
    """

    def __init__(self, era: str, *, of_modern: str = "no session", of_legacy: str = "unsupported") -> None:
        super().__init__(initialized(legacy_answer), self._special)
        self.era = era
        self.calls: list[str] = []
        self.breaks = False
        self.fault_of_calls: Refusal | None = None
        self._of_modern = REFUSALS_OF_MODERN[of_modern]
        self._of_legacy = REFUSALS_OF_LEGACY[of_legacy]

    async def _special(self, exchange: Exchange, message: Json) -> bool:
        modern = "mcp-method" in exchange.headers
        if exchange.method != "POST":
            return False
        if self.era == ("legacy" if modern else "modern"):
            how = self._of_modern if modern else self._of_legacy
            if message.get("method") == "tools/call" and self.fault_of_calls is not None:
                how = self.fault_of_calls
            await self._refuse(exchange, message, how)
            return True
        if message.get("method") == "tools/call":
            self.calls.append("modern" if modern else "legacy")
            if self.breaks:
                self.breaks = False
                exchange.writer.transport.abort()
                exchange.finished = False
                return True
        if modern:
            answer = modern_answer(message)
            assert answer is not None
            await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], **answer})
            return True
        return False

    async def _refuse(self, exchange: Exchange, message: Json, how: Refusal) -> None:
        status, body = how
        if isinstance(body, bytes):
            await exchange.respond(status, body)
        else:
            await exchange.respond_json(status, {"jsonrpc": "2.0", "id": message.get("id"), **body})


REFUSED_CHANGES = [
    *(("modern", "legacy", how) for how in REFUSALS_OF_MODERN),
    *(("legacy", "modern", how) for how in REFUSALS_OF_LEGACY),
]


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(("before", "after", "how"), REFUSED_CHANGES)
async def test_a_call_that_another_version_refuses_is_sent_again_in_its_era(before: str, after: str, how: str) -> None:
    server = Replaced(before, **{f"of_{before}": how})
    async with listening(server.handle) as (url, _), connected({"url": url}) as connection:
        assert (await connection.call_tool("t")).text == "done"
        server.era = after
        with anyio.fail_after(20):
            assert (await connection.call_tool("t")).text == "done"
            assert (await connection.call_tool("t")).text == "done"
        assert connection.protocol_version == {"legacy": LEGACY, "modern": MODERN}[after]
    assert server.calls == [before, after, after]


@EACH_CHANGE
async def test_calls_at_the_same_time_find_the_new_era_by_one_handshake(before: str, after: str) -> None:
    server = Replaced(before)
    async with listening(server.handle) as (url, _), connected({"url": url}) as connection:
        await connection.call_tool("t")
        server.era = after
        already = len(server.exchanges)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(connection.call_tool, "t")
    later = [json.loads(one.body)["method"] for one in server.exchanges[already:] if one.body]
    assert len(server.calls) == 11
    assert later.count("initialize") <= 2  # the era that was remembered, and the one of the server
    assert later.count("server/discover") <= 2


@pytest.mark.parametrize(("before", "after"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_call_whose_outcome_is_unknown_is_not_sent_again_in_the_new_era(before: str, after: str) -> None:
    server = Replaced(before)
    async with listening(server.handle) as (url, _), connected({"url": url}) as connection:
        await connection.call_tool("t")
        server.breaks = True
        with pytest.raises(ConnectionLostError) as lost:
            await connection.call_tool("t")
        assert lost.value.sent
        server.era = after
        assert (await connection.call_tool("t")).text == "done"
    assert server.calls == [before, before, after]


async def test_a_fault_with_status_500_leaves_the_outcome_open_and_the_next_call_finds_the_era() -> None:
    server = Replaced("modern")
    async with listening(server.handle) as (url, _), connected({"url": url}) as connection:
        await connection.call_tool("t")
        server.era = "legacy"
        server.fault_of_calls = (500, b"Internal Server Error")
        with pytest.raises(ConnectionLostError, match="500") as lost:
            await connection.call_tool("t")
        assert lost.value.sent
        assert (await connection.call_tool("t")).text == "done"
    assert server.calls == ["modern", "legacy"]


@pytest.mark.parametrize("protocol", [LEGACY, MODERN])
async def test_a_revision_that_the_config_names_is_never_exchanged_for_another(protocol: str) -> None:
    before, after = ("legacy", "modern") if protocol == LEGACY else ("modern", "legacy")
    server = Replaced(before)
    target = {"url": "", "protocol": protocol}
    async with listening(server.handle) as (url, _), connected({**target, "url": url}) as connection:
        await connection.call_tool("t")
        server.era = after
        with anyio.fail_after(20), pytest.raises(ConnectError):
            await connection.call_tool("t")
        assert connection.state is ConnectionState.FAILED  # not tried again and again behind its user's back
    assert server.calls == [before]


async def test_a_modern_server_that_refuses_requests_keeps_its_connection_and_is_asked_once() -> None:
    refused = 0

    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        nonlocal refused
        refused += 1
        await exchange.respond_json(400, {"jsonrpc": "2.0", "id": message["id"], **error(-32000, "not now")})

    server = HttpScript(modern_answer, special)
    async with listening(server.handle) as (url, _), connected({"url": url}) as connection:
        for _ in range(5):
            with pytest.raises(ProtocolError, match="not now"):
                await connection.call_tool("t")
        assert connection.restarts == 0
    assert refused == 5
    assert server.methods().count("server/discover") == 2  # the handshake, and one check


async def test_a_legacy_server_that_refuses_requests_keeps_its_session() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond_json(400, {"jsonrpc": "2.0", "id": message["id"], **error(-32602, "no such file")})

    server = HttpScript(initialized(legacy_answer), special)
    async with listening(server.handle) as (url, _), connected({"url": url}) as connection:
        for _ in range(3):
            with pytest.raises(ProtocolError, match="no such file"):
                await connection.call_tool("t")
    assert server.methods().count("initialize") == 1
    assert server.methods().count("ping") == 1


async def test_a_call_that_is_refused_while_the_stream_is_checked_needs_no_second_check() -> None:
    replaced = anyio.Event()
    refused = anyio.Event()
    pings = 0

    async def special(exchange: Exchange, message: Json) -> bool:
        nonlocal pings
        if exchange.method == "GET":
            if replaced.is_set():
                return False  # 405: the new version has no such stream
            await exchange.start_stream()
            await replaced.wait()
            await exchange.end_stream()
            return True
        if not replaced.is_set() or "mcp-method" in exchange.headers:
            return False
        if message["method"] == "ping":
            pings += 1
            await refused.wait()
        await exchange.respond_json(400, {"jsonrpc": "2.0", "id": message.get("id"), **error(-32022, "unsupported")})
        if message["method"] == "tools/call":
            refused.set()
        return True

    def answer(message: Json) -> Json | None:
        return modern_answer(message) if replaced.is_set() else initialized(legacy_answer)(message)

    server = HttpScript(answer, special)
    async with listening(server.handle) as (url, _), connected({"url": url}) as connection:
        await connection.call_tool("t")
        await eventually(lambda: "GET" in server.methods())
        replaced.set()
        await eventually(lambda: pings)
        with anyio.fail_after(20):
            assert (await connection.call_tool("t")).text == "done"
    assert pings == 1


async def test_a_hub_reaches_a_server_that_was_replaced_and_its_other_servers_notice_nothing() -> None:
    server, other = Replaced("modern"), Replaced("legacy")
    async with (
        listening(server.handle) as (url, _),
        listening(other.handle) as (other_url, _),
        Hub({"a": {"url": url}, "b": {"url": other_url}}) as hub,
    ):
        await hub.execute("a_t", {})
        server.era = "legacy"
        assert (await hub.execute("a_t", {})).text == "done"
        assert (await hub.execute("b_t", {})).text == "done"
    assert server.calls == ["modern", "legacy"]
    assert other.methods().count("initialize") == 1


def version_command(eras: Path) -> list[str]:
    """Return a command whose server is of the era that the file names when it starts."""
    program = (
        "import os, sys; era = open(sys.argv[1]).read(); command = sys.argv[2:]; "
        "os.execv(command[0], [*command, '--era', era])"
    )
    return [sys.executable, "-c", program, str(eras), *stdio_server_command()]


@pytest.mark.slow
@EACH_CHANGE
async def test_a_process_that_starts_again_as_another_version_is_spoken_to_in_its_era(
    before: str, after: str, tmp_path: Path
) -> None:
    eras = tmp_path / "era"
    eras.write_text(before)
    async with connected(version_command(eras)) as connection:
        assert (await connection.call_tool("echo", {"text": "a"})).text == "a"
        eras.write_text(after)
        os.kill(pid_of(connection), signal.SIGKILL)
        await eventually(lambda: connection.restarts == 1)
        with anyio.fail_after(20):
            assert (await connection.call_tool("echo", {"text": "b"})).text == "b"
        # a server of both eras is still spoken to in the era that it had
        assert (connection.protocol_version == MODERN) == (after == "modern")


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [change for change in CHANGES if change != ("legacy", "dual")])
async def test_a_server_that_is_replaced_behind_a_relay_over_a_pipe_is_reached_again(
    before: str, after: str, tmp_path: Path
) -> None:
    eras = tmp_path / "era"
    eras.write_text(before)
    async with connected(relay_command(eras)) as connection:
        assert (await connection.call_tool("echo", {"text": "a"})).text == "a"
        eras.write_text(after)
        with anyio.fail_after(20):
            assert (await connection.call_tool("echo", {"text": "b"})).text == "b"
            assert [spec.name for spec in await connection.list_tools()]
        assert connection.restarts == (0 if (before, after) == ("dual", "modern") else 1)


@pytest.mark.slow
@EACH_CHANGE
async def test_a_server_that_is_deployed_anew_in_another_era_is_reached_again(before: str, after: str) -> None:
    with http_server("--era", before) as url:
        port = url.split(":")[2].split("/")[0]
        connection = await connect_mcp(url)
        assert (await connection.call_tool("echo", {"text": "a"})).text == "a"
    try:
        with http_server("--era", after, "--port", port), anyio.fail_after(30):
            assert (await connection.call_tool("echo", {"text": "b"})).text == "b"
            assert [spec.name for spec in await connection.list_tools()]
    finally:
        await connection.close()


async def test_a_server_that_lets_a_check_of_its_era_wait_is_not_checked_again_for_minutes() -> None:
    refused: list[Json] = []

    def script(message: Json) -> Json | None:
        if message["method"] == "ping":
            return None
        if message["method"] == "tools/call" and refused:
            return refused[0]
        return legacy_answer(message)

    server = ChannelServer(initialized(script))
    async with connected(server) as connection:
        for _ in range(3):
            refused.clear()
            # An accepted request makes the next check due, except after a check that had no response.
            assert (await connection.call_tool("t")).text == "done"
            refused.append(error(-32600, "not now"))
            with pytest.raises(ProtocolError, match="not now"):
                await connection.call_tool("t")
    assert server.methods().count("ping") == 1


async def test_a_call_that_a_replaced_server_refuses_over_a_pipe_is_sent_again() -> None:
    replaced: list[bool] = []
    carried_out: list[Json] = []

    def script(message: Json) -> Json | None:
        is_modern = "io.modelcontextprotocol/protocolVersion" in message.get("params", {}).get("_meta", {})
        if is_modern != bool(replaced):
            return error(-32022, "unsupported")
        if message["method"] == "tools/call":
            carried_out.append(message)
        return modern_answer(message) if replaced else initialized(legacy_answer)(message)

    async with connected(ChannelServer(script)) as connection:
        await connection.call_tool("t")
        replaced.append(True)
        assert (await connection.call_tool("t")).text == "done"
        assert connection.protocol_version == MODERN
    assert len(carried_out) == 2
