"""A client that sends anything: whole JSON texts to a server, over any carrier of conversations.

For what a conforming client cannot say. Judges nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from toolweave.serve import McpServer

__all__ = ["ENVELOPE", "LEGACY", "MODERN", "Json", "Piped", "Raw", "raw_client", "running_program", "speaking"]

Json = dict[str, Any]
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
ENVELOPE: Json = {
    PROTOCOL_VERSION: MODERN,
    CLIENT_CAPABILITIES: {"elicitation": {}, "sampling": {}, "roots": {}},
    CLIENT_INFO: {"name": "raw", "version": "0"},
}
_LINE_BYTES = 256 * 1024 * 1024


class Raw:
    """Speaks to a server in whole messages, in one era.

    Attributes:
        version: The revision; None sends neither handshake nor envelope.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]], receive: Callable[[], Awaitable[bytes]]) -> None:
        self.version: str | None = None
        self._send = send
        self._receive = receive
        self._ids = itertools.count(1)
        self._early: list[Any] = []

    async def send(self, message: Any) -> None:
        """Send a JSON value, or bytes as they are."""
        await self._send(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def receive(self) -> Any:
        """Return the next JSON value that the server sends."""
        return self._early.pop(0) if self._early else json.loads(await self._receive())

    def take_early(self) -> list[Any]:
        """Return what came before the answers that were waited for."""
        early = self._early
        self._early = []
        return early

    async def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, params: Json | None = None, *, id: Any = None) -> Json:
        """Return a request of this era; an id is found where none is given."""
        key = f"raw-{next(self._ids)}" if id is None else id
        params = dict(params or {})
        if self.version == MODERN:
            params["_meta"] = ENVELOPE | params.get("_meta", {})
        return {"jsonrpc": "2.0", "id": key, "method": method, "params": params}

    async def ask(self, message: Json) -> Json:
        """Send a message and return the answer to it; what else comes is kept for `receive`."""
        await self.send(message)
        seen: list[Any] = []
        try:
            while True:
                answer: Any = await self.receive()
                if isinstance(answer, dict) and "method" not in answer and answer["id"] == message["id"]:
                    return cast("Json", answer)
                seen.append(answer)
        finally:
            self._early[:0] = seen

    async def call(self, tool: str, **arguments: Any) -> Json:
        """Call a tool and return the whole answer."""
        return await self.ask(self.request("tools/call", {"name": tool, "arguments": arguments}))

    async def shake_hands(self, version: str, **capabilities: Any) -> Json:
        """Begin in a revision; return the answer to `initialize`, or nothing in the stateless era."""
        self.version = version
        if version == MODERN:
            return {}
        params = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "0"},
        }
        answer = await self.ask(self.request("initialize", params, id="hello"))
        await self.notify("notifications/initialized")
        return answer


@asynccontextmanager
async def raw_client(server: McpServer, version: str | None = None) -> AsyncGenerator[Raw, None]:
    """Speak to a server in this process; with a version the handshake is made."""
    with anyio.fail_after(60):
        async with server as channel:
            raw = Raw(channel.send, channel.receive)
            if version is not None:
                await raw.shake_hands(version)
            yield raw


class Piped(Raw):
    """Speaks to a server process over its pipes."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)
        super().__init__(self._write, self.line)

    async def hang_up(self) -> None:
        """End what the server reads."""
        await self._stdin.aclose()

    async def send_part(self, part: bytes) -> None:
        """Send bytes without a line end."""
        await self._stdin.send(part)

    async def line(self) -> bytes:
        """Return the next line as it is.

        Raises:
            anyio.IncompleteRead: The stream ended.
        """
        return await self._stdout.receive_until(b"\n", _LINE_BYTES)

    async def _write(self, message: bytes) -> None:
        await self._stdin.send(message + b"\n")


@asynccontextmanager
async def running_program(*arguments: str, stderr: int | None = None) -> AsyncGenerator[Piped, None]:
    """Run `tests/serve/program.py` for the block."""
    command = [sys.executable, "-m", "tests.serve.program", *arguments]
    with anyio.fail_after(90):
        async with await anyio.open_process(command, stderr=stderr, env={**os.environ}) as process:
            piped = Piped(process)
            try:
                yield piped
            finally:
                with anyio.move_on_after(5, shield=True):  # measured coverage is written by a process that may end
                    await piped.hang_up()
                    await process.wait()
                if process.returncode is None:
                    process.kill()


@asynccontextmanager
async def speaking(version: str, *arguments: str) -> AsyncGenerator[Piped, None]:
    """Run the program and begin in a revision."""
    async with running_program(*arguments) as piped:
        await piped.shake_hands(version)
        yield piped
