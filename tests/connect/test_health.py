"""A server that leaves calls without an answer: when it is taken for dead, and what is said meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, error, eventually, initialized, pid_of
from toolweave import ConnectionLostError, RequestTimeoutError
from toolweave.connect import ConnectionState, Silent

pytestmark = pytest.mark.slow

SERVER = """
import json, os, pathlib, sys, time

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("stop", "mute", "slow", "echo")]
ANSWERS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}},
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"},
    "tools/list": {"tools": TOOLS, "resultType": "complete"},
    "ping": {},
}
era, once = sys.argv[1], pathlib.Path(sys.argv[2])
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    with once.open("a") as log:
        log.write(method + chr(10))
    answer = {"result": ANSWERS.get(method, {})}
    if method == {"legacy": "server/discover", "modern": "initialize"}[era]:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "stop":
            if len(sys.argv) > 3:
                os.close(1)
            time.sleep(1000)
        if name == "mute":
            continue
        if name == "slow":
            time.sleep(1.5)
        answer = {"result": {"content": [{"type": "text", "text": name}], "resultType": "complete"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | answer), flush=True)
"""


def entry(log: Path, era: str = "legacy", *options: str, **more: Any) -> Json:
    """Return the entry of the server, which logs the methods it gets; a ping has 0.3 s to be answered."""
    bounds = {"read": 0.3, "close": 0.5}
    return {"command": sys.executable, "args": ["-c", SERVER, era, str(log), *options], "timeout": bounds, **more}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_answers_neither_a_call_nor_a_ping_is_started_again(era: str, tmp_path: Path) -> None:
    async with connected(entry(tmp_path / "log", era), 60) as connection:
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("stop", timeout=0.1)
        await eventually(lambda: connection.restarts == 1 and connection.state is ConnectionState.READY, 30)
        assert (await connection.call_tool("echo")).text == "echo"


async def test_a_server_that_answers_the_ping_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connected(entry(log)) as connection:
        for _ in range(2):
            with pytest.raises(RequestTimeoutError):
                await connection.call_tool("mute", timeout=0.1)
            await eventually(lambda: "ping" in log.read_text())
        assert (await connection.call_tool("echo")).text == "echo"
        assert connection.restarts == 0


async def test_a_silent_server_is_left_alone_while_it_may_be_at_work_on_another_call(tmp_path: Path) -> None:
    texts: list[str] = []
    async with connected(entry(tmp_path / "log")) as connection, anyio.create_task_group() as tasks:

        async def slow() -> None:
            texts.append((await connection.call_tool("slow", timeout=20)).text)

        tasks.start_soon(slow)
        await eventually(lambda: "tools/call" in (tmp_path / "log").read_text())
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("echo", timeout=0.1)
    assert texts == ["slow"]
    assert connection.restarts == 0


async def test_with_restart_never_no_ping_is_sent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connected(entry(log, restart="never")) as connection:
        for _ in range(2):
            with pytest.raises(RequestTimeoutError):
                await connection.call_tool("mute", timeout=0.4)
        assert connection.state is ConnectionState.READY
    assert "ping" not in log.read_text()


@pytest.mark.parametrize("anyio_backend", ["asyncio", ("asyncio", {"use_uvloop": True})], ids=["asyncio", "uvloop"])
async def test_a_server_that_closes_its_output_and_lives_is_started_again_at_once(
    anyio_backend: object, tmp_path: Path
) -> None:
    async with connected(entry(tmp_path / "log", "legacy", "close")) as connection:
        with anyio.fail_after(60), pytest.raises(ConnectionLostError, match="closed its standard output"):
            await connection.call_tool("stop", timeout=600)
        await eventually(lambda: connection.restarts == 1 and connection.state is ConnectionState.READY, 30)
        assert (await connection.call_tool("echo")).text == "echo"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="platform: descriptors are seen in /proc")
@pytest.mark.parametrize("anyio_backend", ["asyncio", ("asyncio", {"use_uvloop": True})], ids=["asyncio", "uvloop"])
async def test_a_server_has_no_descriptors_but_its_three_pipes(anyio_backend: object, tmp_path: Path) -> None:
    async with connected(entry(tmp_path / "log")) as connection:
        assert {name.name for name in Path(f"/proc/{pid_of(connection)}/fd").iterdir()} == {"0", "1", "2"}


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_silence_is_reported_while_somebody_waits(version: str) -> None:
    def answer(message: Json) -> Json | None:
        match message["method"]:
            case "tools/list":
                return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
            case "server/discover" if version == MODERN:
                return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
            case "tools/call":
                return None
            case _:
                return error(-32601, "unknown")

    server = ChannelServer(answer if version == MODERN else initialized(answer))
    came: list[Silent] = []
    heard = anyio.Event()
    async with connected(server, name="mute") as connection, anyio.create_task_group() as tasks:
        assert connection.silent_for == 0.0

        def on_silence(event: Silent) -> None:
            came.append(event)
            heard.set()

        connection.on("silence", on_silence)
        tasks.start_soon(connection.call_tool, "t")
        await eventually(lambda: connection.silent_for > 0)
        await heard.wait()
        assert connection.silent_for >= 5
        tasks.cancel_scope.cancel()
    assert (came[0].server, came[0].waiting) == ("mute", 1)
    assert came[0].seconds >= 5
