"""HTTP servers made up on the spot, in the test's own event loop. Asserts nothing."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.connect.targets import MODERN, Json, Script, error, eventually
from toolweave.testing.servers.http_wire import Exchange, WatchedReader, read_exchange

__all__ = [
    "DONE",
    "TOOLS",
    "Exchange",
    "Handler",
    "HttpScript",
    "Special",
    "answer_to",
    "answers_to",
    "legacy_answer",
    "listening",
    "modern_answer",
]

Handler = Callable[[Exchange], Awaitable[None]]
Special = Callable[[Exchange, Json], Awaitable[bool]]
"""Answers what the script does not; returns whether it did."""
Answering = Callable[[Exchange, Json], Awaitable[None]]
TOOLS: Json = {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}


def answers_to(method: str) -> Callable[[Answering], Special]:
    """Make a function answer every message of a method of MCP, or every request of `GET` or `DELETE`, and no other."""

    def decorate(answering: Answering) -> Special:
        async def special(exchange: Exchange, message: Json) -> bool:
            if method not in (exchange.method, message.get("method")):
                return False
            await answering(exchange, message)
            return True

        return special

    return decorate


def legacy_answer(message: Json) -> Json | None:
    """Answer as a server with the one tool `t`, after the handshake."""
    match message["method"]:
        case "tools/list":
            return TOOLS
        case "tools/call":
            return {"result": DONE}
        case method if method.startswith("notifications/"):
            return None
        case method:
            return error(-32601, f"no {method}")


def modern_answer(message: Json) -> Json | None:
    """Answer as the same server in the modern era."""
    if message["method"] == "server/discover":
        return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
    return legacy_answer(message)


def answer_to(message: Json, result: Json = DONE) -> str:
    """Return the text of the answer to a request."""
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _expect_failed_handshakes(loop: asyncio.AbstractEventLoop) -> None:
    """Ignore handshakes that clients end, which asyncio reports as errors in its debug mode."""
    handler = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: Json) -> None:
        if context.get("message") == "Error on transport creation for incoming connection":
            assert isinstance(context["exception"], OSError)
        elif handler is not None:
            handler(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


@asynccontextmanager
async def listening(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncGenerator[tuple[str, list[object]]]:
    """Serve for the block; yield the URL and the list of the connections that were made."""
    connections: list[object] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, WatchedReader)
        connections.append(writer)
        open_now.add(writer)
        try:
            while (exchange := await read_exchange(reader, writer)) is not None:
                await handler(exchange)
                if not exchange.finished:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the client is gone, or speaks no HTTP
        finally:
            writer.close()
            open_now.discard(writer)

    def ended() -> bool:
        for writer in open_now:
            writer.transport.abort()
        return not (open_now or getattr(server, "_active_count", 0) or getattr(server, "_clients", ()))

    open_now: set[asyncio.StreamWriter] = set()
    loop = asyncio.get_running_loop()
    if tls is not None:
        _expect_failed_handshakes(loop)
    server = await loop.create_server(
        lambda: asyncio.StreamReaderProtocol(WatchedReader(), connected), "127.0.0.1", 0, ssl=tls
    )
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http{'s' if tls is not None else ''}://127.0.0.1:{port}/mcp", connections
    finally:
        for taking in server.sockets:
            loop.remove_reader(taking)
        await asyncio.sleep(0)  # what was taken just now gets its transport, which a closed server would leave open
        server.close()
        # a TLS handshake that failed is no connection yet, but has a socket: not every `wait_closed` waits for those
        await eventually(ended)


class HttpScript:
    """A `Script` behind HTTP; what it does not answer itself, `special` does.

    Attributes:
        exchanges: Every request that came.
    """

    def __init__(self, script: Script, special: Special | None = None) -> None:
        self.exchanges: list[Exchange] = []
        self._script = script
        self._special = special

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        self.exchanges.append(exchange)
        message: Json = json.loads(exchange.body) if exchange.body else {}
        if self._special is not None and await self._special(exchange, message):
            return
        if exchange.method != "POST":
            await exchange.respond(405 if exchange.method == "GET" else 200)
            return
        answer = self._script(message)
        if answer is None or "id" not in message:
            await exchange.respond(202)
            return
        session = {"mcp_session_id": "s-1"} if message.get("method") == "initialize" else {}
        await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], **answer}, **session)

    def messages(self) -> list[Json]:
        """Return the messages that came, in order."""
        return [json.loads(exchange.body) for exchange in self.exchanges if exchange.body]

    def methods(self) -> list[str]:
        """Return the JSON-RPC methods that came, and the HTTP methods of requests without a message."""
        return [str(json.loads(one.body).get("method", "answer")) if one.body else one.method for one in self.exchanges]
