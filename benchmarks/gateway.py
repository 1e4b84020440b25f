"""A config of three stdio servers, served as one over HTTP: what a call through it costs, beside a bare pass-through.

The upstreams are the lean echo server and the clients the raw one, for all. The bare pass-through is an ASGI app that
reads the envelope of a request, renumbers it and hands the bytes of the result on: no sessions, no checks, no errors.
Each contender is a process of its own (`python -m benchmarks.gateway CONTENDER PORT CONFIG`).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.clients import CLIENTS
from benchmarks.crew import ROOT, server_command
from benchmarks.measure import Figure, Sample, compare
from benchmarks.peers import available, python_of
from benchmarks.raw import RawHttp, RawStdio
from benchmarks.raw_server import Message, answer_post
from benchmarks.serving import Served
from benchmarks.settings import Settings

__all__ = ["gateway"]

UPSTREAMS = ("a", "b", "c")
CALLERS = (1, 16, 64)
START_SECONDS = 60.0


class Through(Served):
    """One gateway, and a client that calls its upstreams in turn."""

    def __init__(self, client: RawHttp, pid: int) -> None:
        super().__init__(client, pid)
        self.called = 0

    async def exchange(self) -> None:
        """Call the tool of the next upstream."""
        self.called += 1
        name = f"{UPSTREAMS[self.called % len(UPSTREAMS)]}_payload"
        result = await self.client.call_tool(name, {"size": 100})
        if result.content[0].text != "x" * 100:
            raise ValueError("a wrong answer")


class PassThrough:
    """The baseline: an ASGI app over raw clients of the upstreams."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        self.commands = commands
        self.upstreams: dict[str, RawStdio] = {}
        self.decode = msgspec.json.Decoder(Message).decode

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Start with the lifespan; answer POSTs, wherever they go."""
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        await answer_post(self.answer, receive, send)

    async def live(self, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
        """Start the upstreams, and end them."""
        await receive()
        for name, command in self.commands.items():
            self.upstreams[name] = RawStdio(modern=True)
            await self.upstreams[name].start(command)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for upstream in self.upstreams.values():
            await upstream.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def answer(self, body: bytes) -> bytes:
        """Hand a call on; anything else is answered with what a client needs to begin."""
        message = self.decode(body)
        ident = msgspec.json.encode(message.id)
        if message.method != "tools/call" or message.params is None:
            found = b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
            return b'{"jsonrpc":"2.0","id":' + ident + b',"result":' + found + b'"ttlMs":0,"cacheScope":"private"}}'
        upstream, _, name = message.params.name.partition("_")
        arguments: Any = message.params.arguments
        result = await self.upstreams[upstream].request("tools/call", {"name": name, "arguments": arguments})
        return b'{"jsonrpc":"2.0","id":' + ident + b',"result":' + bytes(result) + b"}"


def raw(port: int, config: Path) -> None:
    """Serve the baseline."""
    entries = json.loads(config.read_text())["mcpServers"]
    app = PassThrough({name: [entry["command"], *entry["args"]] for name, entry in entries.items()})
    uvicorn: Any = importlib.import_module("uvicorn")
    options = {"http": "httptools", "loop": "uvloop", "log_level": "error", "access_log": False}
    uvicorn.run(app, host="127.0.0.1", port=port, **options)


def toolweave(port: int, config: Path) -> None:
    """Serve the config as the command does, with its default settings."""
    os.execv(
        sys.executable,
        [sys.executable, "-m", "toolweave", "serve", "--config", str(config), "--http", f"127.0.0.1:{port}"],
    )


def fastmcp(port: int, config: Path) -> None:
    """Serve the config with FastMCP's proxy."""
    server: Any = importlib.import_module("fastmcp.server")
    proxy = server.create_proxy(json.loads(config.read_text()), name="bench")
    proxy.run("http", host="127.0.0.1", port=port, show_banner=False, log_level="error")


CONTENDERS: dict[str, Callable[[int, Path], None]] = {"raw": raw, "toolweave": toolweave, "fastmcp": fastmcp}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@asynccontextmanager
async def started(name: str, config: Path) -> AsyncGenerator[Through, None]:
    """Start a gateway, wait until all upstreams answer through it, and end it."""
    python, port = python_of(CLIENTS["fastmcp"]) if name == "fastmcp" else sys.executable, free_port()
    command = [python, "-m", "benchmarks.gateway", name, str(port), str(config)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    client = RawHttp(f"http://127.0.0.1:{port}/mcp", modern=True)
    through = Through(client, process.pid)
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    await client.start()
                    for upstream in UPSTREAMS:
                        await client.call_tool(f"{upstream}_payload", {"size": 1})
                    break
                except (OSError, msgspec.MsgspecError):  # no port yet, or no upstream
                    await asyncio.sleep(0.1)
        yield through
        await client.close()
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def measure(names: list[str], rounds: int, cases: dict[int, str]) -> dict[str, dict[str, list[Sample]]]:
    """Let the gateways work in turn; one that does not start is left out."""
    samples: dict[str, dict[str, list[Sample]]] = {case: {} for case in cases.values()}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        command, *arguments = server_command("--era", "modern")
        entries = {name: {"command": command, "args": arguments} for name in UPSTREAMS}
        config.write_text(json.dumps({"mcpServers": entries}))
        async with AsyncExitStack() as stack:
            running: dict[str, Through] = {}
            for name in names:
                try:
                    running[name] = await stack.enter_async_context(started(name, config))
                except TimeoutError:
                    sys.stderr.write(f"{name} serves no config here, its rows are left out\n")
            for callers, case in cases.items():
                for _ in range(rounds):
                    for name, one in running.items():
                        samples[case].setdefault(name, []).append(await one.turn(callers))
    return samples


def gateway(settings: Settings) -> list[Figure]:
    """Measure every contender that is installed."""
    names = ["raw", "toolweave", *(["fastmcp"] if available(CLIENTS["fastmcp"]) else [])]
    if settings.clients:
        names = [name for name in names if name in ("raw", *settings.clients)]
    cases = {callers: f"config served, 100 B, {callers} caller{'s' if callers > 1 else ''}" for callers in CALLERS}
    cases = {callers: case for callers, case in cases.items() if settings.wants(case)}
    if not cases:
        return []
    samples = asyncio.run(measure(names, min(settings.rounds, 7), cases))
    return [figure for case, rows in samples.items() for figure in compare("gateway", case, rows)]


if __name__ == "__main__":
    CONTENDERS[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))
