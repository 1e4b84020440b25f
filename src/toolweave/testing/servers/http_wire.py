"""HTTP/1.1 on asyncio streams, just enough for the test servers; knows nothing of MCP."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

from toolweave.testing.servers.toolset import Json

__all__ = ["Exchange", "Listener", "WatchedReader", "read_exchange"]

REASONS = {200: "OK", 202: "Accepted", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized"}


class WatchedReader(asyncio.StreamReader):
    """A reader that sets `gone` when the client goes away, also while it is not being read."""

    def __init__(self) -> None:
        super().__init__(limit=2**20)
        self.gone: asyncio.Event = asyncio.Event()

    def feed_eof(self) -> None:
        """Note the end of the stream."""
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        """Note a broken connection."""
        super().set_exception(exc)
        self.gone.set()


class Exchange:
    """One request and the means to answer it."""

    def __init__(
        self, method: str, target: str, headers: dict[str, str], reader: WatchedReader, writer: asyncio.StreamWriter
    ) -> None:
        self.method = method
        self.path: str = urlsplit(target).path
        self.query: dict[str, str] = {key: values[0] for key, values in parse_qs(urlsplit(target).query).items()}
        self.headers = headers
        self.body = b""
        self.reader = reader
        self.writer = writer
        self.streaming: bool = False
        self.finished: bool = False

    async def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a whole response; `_` in a header's name becomes `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["content-length"] = str(len(body))
        self.head(status, named)
        self.writer.write(body)
        self.finished = True
        await self.writer.drain()

    async def respond_json(self, status: int, value: Json, **headers: str) -> None:
        """Send a whole JSON response."""
        await self.respond(status, json.dumps(value).encode(), content_type="application/json", **headers)

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Write the status line and the headers."""
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", *(f"{k}: {v}" for k, v in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def start_stream(self, **headers: str) -> None:
        """Begin a chunked event stream."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **named})
        self.streaming = True
        await self.writer.drain()

    async def event(self, data: str, event: str = "message") -> None:
        """Send one event."""
        await self.chunk(f"event: {event}\r\ndata: {data}\r\n\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        """Send one chunk as it is."""
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()

    async def end_stream(self) -> None:
        """End the event stream in an orderly way."""
        self.writer.write(b"0\r\n\r\n")
        self.finished = True
        await self.writer.drain()

    async def reset(self) -> None:
        """Break the connection with a TCP reset."""
        linger_for_reset(self.writer)
        self.writer.transport.abort()

    async def pause(self, seconds: float) -> None:
        """Wait, but not for a client that is gone."""
        try:
            await asyncio.wait_for(self.reader.gone.wait(), seconds)
        except TimeoutError:
            pass

    async def drip(self, data: bytes, seconds: float) -> None:
        """Write byte by byte, each after a pause, while the client is there."""
        for byte in data:
            if self.reader.gone.is_set():
                break
            self.writer.write(bytes([byte]))
            await self.writer.drain()
            await self.pause(seconds)


async def read_exchange(reader: WatchedReader, writer: asyncio.StreamWriter) -> Exchange | None:
    """Read one request; None when the client closed the connection."""
    line = await reader.readline()
    if not line.strip():
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    exchange = Exchange(method, target, headers, reader, writer)
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(await reader.readline(), 16):
            exchange.body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        exchange.body = await reader.readexactly(int(headers.get("content-length", "0")))
    return exchange


class Listener:
    """Listens; a connection is kept while the handler finishes its exchanges."""

    def __init__(self, handler: Callable[[Exchange], Awaitable[None]], host: str, port: int) -> None:
        self.handler = handler
        self.host = host
        self.port: int = port
        self.on_restart: Callable[[], None] = lambda: None
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server

    async def start(self) -> None:
        """Listen on the port, or on any free one if it is 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(WatchedReader(), self._connected), self.host, self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def restart(self) -> None:
        """Break every connection as a process that dies does, then listen on the same port again."""
        self._server.close()
        for writer in self._open:
            linger_for_reset(writer)
            writer.transport.abort()
        self.on_restart()
        await self.start()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, WatchedReader)
        self._open.add(writer)
        try:
            while (exchange := await read_exchange(reader, writer)) is not None:
                await self.handler(exchange)
                if not exchange.finished:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()


def linger_for_reset(writer: asyncio.StreamWriter) -> None:
    """Let the next close of the connection be a TCP reset."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
