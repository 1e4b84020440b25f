"""What the tests of this folder connect to: one server behind every transport, and servers made up on the spot.

Also the few bounded waits the tests share. Asserts nothing about connections.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
from anyio.streams.memory import MemoryObjectSendStream
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.servers.fixtures import echo_command, http_server
from toolweave import McpConnection, ServerConfig, ToolResult, connect_mcp
from toolweave.connect import Channel, memory_channels, register_transport
from toolweave.testing.servers.protocol import Peer, PeerSession
from toolweave.testing.servers.tasking import TaskingPeer

__all__ = [
    "ASKS",
    "EACH_ERA",
    "EACH_WAY",
    "KINDS",
    "MATRIX",
    "MODERN",
    "VERSIONS",
    "ChannelServer",
    "Json",
    "Script",
    "connected",
    "error",
    "eventually",
    "group_lives",
    "initialized",
    "pid_of",
    "serving",
    "state_of",
    "steps_of",
]

Json = dict[str, Any]
Script = Callable[[Json], "Json | None"]
"""Takes a message, returns the answer without id, or None for silence."""

MODERN = "2026-07-28"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN)
ASKS = "--asks"
"""The option with which the test servers ask their client for something."""
EACH_ERA = pytest.mark.parametrize("version", ["2025-11-25", MODERN])
EACH_WAY = pytest.mark.parametrize(("kind", "version"), [
    (kind, version) for kind in ("stdio", "http-sse") for version in ("2025-11-25", MODERN)
])  # fmt: skip
KINDS = (
    *("stdio", "http-json", "http-sse", "sse"),
    *("channel", "registered", "sdk-transport"),
)
MATRIX = [(kind, version) for kind in KINDS for version in VERSIONS if (kind, version) != ("sse", MODERN)]
"""Every transport with every revision it can carry; HTTP+SSE ended before the stateless revisions."""


@contextlib.contextmanager
def serving(kind: str, version: str, *options: object) -> Generator[Any, None, None]:
    """Run the well-behaved server behind a transport; yield what `connect_mcp` takes for it."""
    match kind:
        case "stdio":
            yield echo_command("--version", version, *options)
        case "http-json" | "http-sse":
            with http_server("--version", version, "--answers", kind.removeprefix("http-"), *options) as url:
                yield url
        case "sse":
            with http_server("--era", "sse", "--version", version, *options, path="/sse") as url:
                yield {"transport": "sse", "url": url}
        case "channel":
            yield ChannelServer.of(_peer(version, *options))
        case "registered":
            server = ChannelServer.of(_peer(version, *options))

            @asynccontextmanager
            async def factory(config: ServerConfig) -> AsyncGenerator[Channel, None]:
                async with server as channel:
                    yield channel

            register_transport("test-line", factory)
            yield {"transport": "test-line"}
        case _:
            command, *args = echo_command("--version", version, *options)
            yield stdio_client(StdioServerParameters(command=command, args=args))


def _peer(version: str, *options: object) -> Peer:
    made = TaskingPeer if "--asks" in options else Peer
    return made(era="modern" if version == MODERN else "legacy", version=version)


class ChannelServer:
    """A server in this process behind a `Channel`; it can be entered again after it hung up.

    Attributes:
        received: Every message that came, over all conversations.
        conversations: How many were begun.
    """

    def __init__(self, script: Script, *, blocks: Callable[[Json], bool] = lambda message: False) -> None:
        self.received: list[Json] = []
        self.conversations = 0
        self._script = script
        self._blocks = blocks
        self._stack = AsyncExitStack()
        self._outgoing: MemoryObjectSendStream[Json | bytes] | None = None
        self._hang_up: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, peer: Peer) -> ChannelServer:
        """Serve a test server's peer."""
        session = PeerSession()

        def script(message: Json) -> Json | None:
            return peer.handle(message, session, send)

        server = cls(script, blocks=peer.blocks)
        send = session.send = server.send
        return server

    def send(self, message: Json | bytes) -> None:
        """Send a message, or bytes as they are, from any thread."""
        if self._outgoing is not None:
            self._loop_soon(self._outgoing.send_nowait, message)

    def hang_up(self) -> None:
        """End the conversation."""
        self._hang_up()

    def methods(self) -> list[str]:
        """Return the methods that came, in order."""
        return [str(message["method"]) for message in self.received if "method" in message]

    async def __aenter__(self) -> Channel:
        import asyncio

        self.conversations += 1
        self._loop_soon = asyncio.get_running_loop().call_soon_threadsafe
        ours, theirs = memory_channels()
        self._hang_up = theirs.close
        self._stack = AsyncExitStack()
        self._stack.callback(ours.close)
        self._stack.callback(theirs.close)
        self._outgoing, queue = anyio.create_memory_object_stream[Json | bytes](1_000_000)
        self._stack.callback(self._outgoing.close)
        await self._stack.enter_async_context(queue)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)

        async def write() -> None:
            async for message in queue:
                with contextlib.suppress(OSError):
                    await theirs.send(message if isinstance(message, bytes) else json.dumps(message).encode())

        async def read() -> None:
            with contextlib.suppress(EOFError):
                while True:
                    message: Json = json.loads(await theirs.receive())
                    self.received.append(message)
                    if self._blocks(message):
                        work = functools.partial(anyio.to_thread.run_sync, abandon_on_cancel=True)
                        tasks.start_soon(work, self._take, message)
                    else:
                        self._take(message)

        tasks.start_soon(write)
        tasks.start_soon(read)
        return ours

    async def __aexit__(self, *_exc: object) -> None:
        self._outgoing = None
        await self._stack.aclose()

    def _take(self, message: Json) -> None:
        answer = self._script(message)
        if answer is not None and "id" in message:
            self.send({"jsonrpc": "2.0", "id": message["id"], **answer})


def error(code: int, message: str, data: Any = None) -> Json:
    """Return a JSON-RPC error for a `Script` to answer."""
    return {"error": {"code": code, "message": message} | ({} if data is None else {"data": data})}


def initialized(
    script: Script, *, version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None
) -> Script:
    """Return a script that shakes hands as a legacy server and leaves the rest to `script`."""

    def answer(message: Json) -> Json | None:
        offered: Json = {"tools": {}} if capabilities is None else dict(capabilities)
        match message.get("method"):
            case "initialize":
                result: Json = {"protocolVersion": version, "capabilities": offered}
                return {"result": {**result, "serverInfo": {"name": "scripted", "version": "1"}}}
            case "server/discover":
                return error(-32601, "Method not found")
            case _:
                return script(message) if "method" in message else None

    return answer


@asynccontextmanager
async def connected(target: Any, seconds: float = 20, **options: Any) -> AsyncGenerator[McpConnection, None]:
    """Connect for the block, all of it within a bound.

    Args:
        target: A server, or what runs one for the block and yields it: `serving(kind, version)`.
        seconds: The bound, also of the start of the server.
        options: Options of `connect_mcp`.
    """
    with anyio.fail_after(seconds), contextlib.ExitStack() as stack:
        if isinstance(target, contextlib.AbstractContextManager):
            target = stack.enter_context(cast("contextlib.AbstractContextManager[Any]", target))
        async with connect_mcp(target, **options) as connection:
            yield connection


async def eventually(condition: Callable[[], object | Awaitable[object]], seconds: float = 10) -> None:
    """Wait until a condition holds that no event tells of; fail after `seconds`."""
    with anyio.fail_after(seconds):
        while True:
            outcome = condition()
            if await cast("Awaitable[object]", outcome) if isinstance(outcome, Awaitable) else outcome:
                return
            await anyio.sleep(0.01)


async def state_of(connection: McpConnection) -> Json:
    """Return what the server saw, told by its own tool `state`."""
    result: ToolResult = await connection.call_tool("state")
    return json.loads(result.text)


def steps_of(connection: McpConnection) -> list[str]:
    """Return the names of the steps of the last attempt to connect."""
    return [step.name for step in connection.report.steps]


def pid_of(connection: McpConnection) -> int:
    """Return the process id of the server."""
    detail = next(step.detail for step in connection.report.steps if step.name == "start the process")
    return int(detail.removeprefix("pid "))


def group_lives(group: int) -> bool:
    """Return whether any process of the group is left; one that only waits to be reaped is not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    if not Path("/proc/self/stat").exists():
        return True
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group, *_ = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(its_group) == group and state not in "ZX":
                return True
    return False
