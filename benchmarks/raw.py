"""The baselines: hand-written asyncio clients with msgspec and no features.

They do: ids and futures, one encoded message and one decoded, typed result a call, the envelope and the mirrored
headers of the modern era, kept connections over HTTP. They do not: time out, cancel, validate, restart, check ids,
statuses or headers, bound sizes, nor negotiate beyond one handshake; over HTTP there are as many connections as
requests at once, and an answer is read by its `Content-Length`. So they are the practical limit of one Python process,
against which everything else is a ratio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

__all__ = ["RawHttp", "RawStdio", "Tool"]

LEGACY, MODERN = "2025-11-25", "2026-07-28"
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Text(msgspec.Struct):
    """A text block."""

    type: str
    text: str


class Result(msgspec.Struct, rename="camel"):
    """What a tool returned."""

    content: list[Text]
    structured_content: Any = None  # any JSON value
    is_error: bool = False


class Tool(msgspec.Struct, rename="camel"):
    """A listed tool."""

    name: str
    input_schema: dict[str, Any]
    description: str = ""
    output_schema: dict[str, Any] | None = None


class Page(msgspec.Struct, rename="camel"):
    """One page of tools."""

    tools: list[Tool]
    next_cursor: str | None = None


class Answer(msgspec.Struct):
    """An answer whose result is left as bytes, or a notification, which has no id."""

    id: int = -1
    result: msgspec.Raw = msgspec.Raw()


encode = msgspec.json.Encoder().encode
decode_answer = msgspec.json.Decoder(Answer).decode
decode_note = msgspec.json.Decoder().decode
decode_result = msgspec.json.Decoder(Result).decode
decode_page = msgspec.json.Decoder(Page).decode


class RawClient:
    """What both transports share; a transport sends one request and returns its result's bytes.

    Attributes:
        meta: The `_meta` of its requests, beside the envelope of the modern era.
        progress: Whether each request has a progress token of its own, as those of agents and editors have.
    """

    def __init__(self, *, modern: bool) -> None:
        self.modern = modern
        self.next_id = 0
        self.meta: dict[str, Any] = {}
        self.progress = False

    async def exchange(self, ident: int, method: str, params: dict[str, Any]) -> msgspec.Raw:
        """Send a request, return the result."""
        raise NotImplementedError

    def notify(self, method: str) -> None:
        """Send a notification."""
        raise NotImplementedError

    async def request(self, method: str, params: dict[str, Any]) -> msgspec.Raw:
        """Number and stamp a request."""
        self.next_id += 1
        meta = {**ENVELOPE, **self.meta} if self.modern else dict(self.meta)
        if self.progress:
            meta["progressToken"] = self.next_id
        if meta:
            params["_meta"] = meta
        return await self.exchange(self.next_id, method, params)

    async def handshake(self) -> None:
        """Begin in the way of the era."""
        if self.modern:
            await self.request("server/discover", {})
            return
        client = {"name": "raw", "version": "0"}
        await self.request("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client})
        self.notify("notifications/initialized")

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        """Call a tool."""
        return decode_result(await self.request("tools/call", {"name": name, "arguments": arguments}))

    async def list_tools(self) -> list[Tool]:
        """List the tools of all pages."""
        page = decode_page(await self.request("tools/list", {}))
        tools = page.tools
        while page.next_cursor is not None:
            page = decode_page(await self.request("tools/list", {"cursor": page.next_cursor}))
            tools += page.tools
        return tools


class RawStdio(RawClient, asyncio.SubprocessProtocol):
    """A client of one server process."""

    def __init__(self, *, modern: bool = False) -> None:
        super().__init__(modern=modern)
        self.pending: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self.pieces: list[bytes] = []
        self.ended = asyncio.Event()

    async def start(self, command: Sequence[str]) -> None:
        """Start the server and shake hands."""
        loop = asyncio.get_running_loop()
        # a session of its own, as every client here gives its servers: Linux shares the processor by session
        self.transport, _ = await loop.subprocess_exec(lambda: self, *command, stderr=None, start_new_session=True)
        pipe = self.transport.get_pipe_transport(0)
        self.stdin = cast("asyncio.WriteTransport", pipe)  # uvloop's is one by its methods only
        await self.handshake()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        """Take what the server wrote."""
        assert isinstance(data, bytes)
        if b"\n" not in data:
            self.pieces.append(data)
            return
        *lines, rest = b"".join([*self.pieces, data]).split(b"\n")
        self.pieces = [rest] if rest else []
        for line in lines:
            answer = decode_answer(line)
            if answer.id < 0:
                decode_note(line)
                continue
            future = self.pending.pop(answer.id)
            if not future.cancelled():
                future.set_result(answer.result)

    def process_exited(self) -> None:
        """Note the end."""
        self.ended.set()

    async def exchange(self, ident: int, method: str, params: dict[str, Any]) -> msgspec.Raw:
        """Write a line, wait for its answer."""
        future: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self.pending[ident] = future
        self.stdin.write(encode({"jsonrpc": "2.0", "id": ident, "method": method, "params": params}) + b"\n")
        return await future

    def notify(self, method: str) -> None:
        """Write a line."""
        self.stdin.write(encode({"jsonrpc": "2.0", "method": method}) + b"\n")

    async def close(self) -> None:
        """End the server by the end of its input."""
        self.stdin.close()
        await self.ended.wait()
        self.transport.close()


class RawSocket(asyncio.Protocol):
    """One kept HTTP/1.1 connection; one request at a time."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.missing = 0
        self.events = False
        self.chunked = False
        self.session = b""
        self.waiting: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take a part of a response."""
        if not self.pieces:
            head, _, data = data.partition(b"\r\n\r\n")
            head = head.lower()
            self.chunked = b"transfer-encoding: chunked" in head
            self.missing = 0 if self.chunked else int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            self.events = b"text/event-stream" in head
            self.session = head.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0] or self.session
        self.pieces.append(data)
        self.missing -= len(data)
        done = b"".join(self.pieces[-2:]).endswith(b"0\r\n\r\n") if self.chunked else self.missing <= 0
        if done and self.waiting is not None:
            body, self.pieces = b"".join(self.pieces), []
            if self.chunked:
                body = b"".join(unchunked(body)).replace(b"\r\n", b"\n")
                body = b"".join(line[6:] for line in body.split(b"\n") if line.startswith(b"data: {"))
            elif self.events:  # every event is read, as a client with listeners must
                *_, body = [event[6:] for event in body.split(b"\n\n") if event and decode_note(event[6:])]
            self.waiting.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits: servers close connections that were idle for some seconds."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(ConnectionResetError("the server closed the connection"))


def unchunked(body: bytes) -> Iterator[bytes]:
    """Yield the data of a chunked body."""
    while body:
        size, _, body = body.partition(b"\r\n")
        yield body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]


class RawHttp(RawClient):
    """A client of one URL on kept connections, as many as there are requests at once.

    Args:
        url: The URL.
        modern: Whether it speaks the modern era.
        token: A bearer token for each request, or nothing.
    """

    def __init__(self, url: str, *, modern: bool = False, token: str = "") -> None:
        super().__init__(modern=modern)
        parts = urlsplit(url)
        self.host, self.port = str(parts.hostname), int(parts.port or 80)
        self.common = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\n"
        ).encode()
        if token:
            self.common += f"Authorization: Bearer {token}\r\n".encode()
        self.session = b""
        self.idle: list[RawSocket] = []
        self.sockets: list[RawSocket] = []

    async def start(self) -> None:
        """Shake hands."""
        await self.handshake()

    async def connect(self) -> RawSocket:
        """Open one more connection."""
        _, socket = await asyncio.get_running_loop().create_connection(RawSocket, self.host, self.port)
        self.sockets.append(socket)
        return socket

    async def post(self, method: str, name: str, message: dict[str, Any]) -> bytes:
        """Send one message, return the response's body."""
        body = encode(message)
        extra = b""
        if self.modern:
            extra = f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n".encode()
            extra += f"Mcp-Name: {name}\r\n".encode() if name else b""
        request = self.common + self.session + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body
        while True:
            while self.idle and self.idle[-1].transport.is_closing():
                self.idle.pop()
            is_new = not self.idle
            socket = await self.connect() if is_new else self.idle.pop()
            socket.waiting = asyncio.get_running_loop().create_future()
            socket.transport.write(request)
            try:
                answer = await socket.waiting
            except ConnectionResetError:
                if is_new:
                    raise
            else:
                self.idle.append(socket)
                return answer

    async def exchange(self, ident: int, method: str, params: dict[str, Any]) -> msgspec.Raw:
        """Post a request."""
        message = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}
        return decode_answer(await self.post(method, params.get("name", ""), message)).result

    async def handshake(self) -> None:
        """Shake hands; the notification is a request of its own on HTTP."""
        await super().handshake()
        if not self.modern:
            given = self.sockets[0].session or b"bench"
            self.session = b"MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: " + given + b"\r\n"
            await self.post("notifications/initialized", "", {"jsonrpc": "2.0", "method": "notifications/initialized"})

    def notify(self, method: str) -> None:
        """Nothing here: `handshake` posts it."""

    async def close(self) -> None:
        """Close the connections."""
        for socket in self.sockets:
            socket.transport.close()
