"""A small HTTP/1.1 server on a real socket that answers as a test tells it to, and misbehaves on request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Answer", "Handler", "Received", "Server", "error_answer", "json_answer", "serve", "stream_answer"]

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 429: "Too Many Requests", 500: "Server Error"}


@dataclass(frozen=True)
class Received:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What goes back: pieces of a body, each sent at once, events and seconds waited for between them, and the end."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    pieces: Sequence[bytes | asyncio.Event | float] = ()
    then: Literal["end", "drop", "hang", "ping"] = "end"
    ping: bytes = b": on\n\n"


Handler = Callable[[Received], Awaitable[Answer]]


@dataclass
class Server:
    """A running server.

    Attributes:
        requests: What it was asked, in order.
        left: Set when a client went away from an answer that hangs.
    """

    url: str
    port: int
    requests: list[Received]
    left: asyncio.Event
    connections: int = 0


def json_answer(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a whole answer in JSON."""
    return Answer(status, {"content-type": "application/json", **(headers or {})}, [json.dumps(body).encode()])


def error_answer(status: int, body: Any, **headers: str) -> Answer:
    """Return a refusal; `retry_after="1"` becomes the header."""
    return json_answer(body, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def stream_answer(events: Sequence[Any], then: Literal["end", "drop", "hang", "ping"] = "end") -> Answer:
    """Return an event stream: JSON values, or bytes that are sent as they are."""
    pieces = [one if isinstance(one, bytes) else b"data: " + json.dumps(one).encode() + b"\n\n" for one in events]
    return Answer(200, {"content-type": "text/event-stream"}, pieces, then)


@asynccontextmanager
async def serve(handler: Handler, port: int = 0) -> AsyncGenerator[Server]:
    """Run a server on the loopback, on a free port unless one is given."""
    server = Server("", 0, [], asyncio.Event())
    open_writers: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        open_writers.add(writer)
        try:
            while (request := await _read(reader)) is not None:
                server.requests.append(request)
                if not await _write(reader, writer, await handler(request), server.left):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # a client may leave at any time
        finally:
            open_writers.discard(writer)
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", port)
    server.port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{server.port}/v1"
    try:
        yield server
    finally:
        listener.close()
        for writer in tuple(open_writers):
            writer.transport.abort()
        await listener.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body)


async def _write(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer, left: asyncio.Event
) -> bool:
    headers = {"transfer-encoding": "chunked", **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Other')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    for piece in answer.pieces:
        if isinstance(piece, asyncio.Event):
            await piece.wait()
        elif isinstance(piece, (int, float)):
            await asyncio.sleep(piece)
        elif piece:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
    if answer.then == "drop":
        writer.close()
        return False
    while answer.then == "ping":  # until the client goes away
        writer.write(b"%x\r\n%b\r\n" % (len(answer.ping), answer.ping))
        await writer.drain()
        await asyncio.sleep(0.02)
    if answer.then == "hang":
        await reader.read(1)  # until the client goes away
        left.set()
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
