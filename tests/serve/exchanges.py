"""HTTP by hand, for bytes that a conforming client does not send: one request for each socket."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream

__all__ = [
    "BOTH",
    "ENVELOPE",
    "Answer",
    "call",
    "call_body",
    "connected",
    "events",
    "exchange",
    "handshake",
    "head",
    "initialize_body",
    "modern_headers",
    "opened",
    "read_answer",
    "read_until",
]

ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
BOTH = "application/json, text/event-stream"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the body as JSON."""
        return json.loads(self.body)


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object) -> io.BytesIO:
        """Return a file of the bytes."""
        return io.BytesIO(self._data)


@asynccontextmanager
async def connected(url: str, address: str | None = None) -> AsyncGenerator[SocketStream]:
    """Open a connection to the host of a URL, from an address of this machine."""
    parts = urlsplit(url)
    async with await anyio.connect_tcp(str(parts.hostname), parts.port or 80, local_host=address) as stream:
        yield stream


def head(url: str, method: str = "POST", headers: Mapping[str, str] | None = None, *, path: str | None = None) -> bytes:
    """Return the head of a request; a header with the value `-` is left out."""
    parts = urlsplit(url)
    sent = {"Host": parts.netloc, "Connection": "close", **(headers or {})}
    lines = [f"{name}: {value}" for name, value in sent.items() if value != "-"]
    return "\r\n".join([f"{method} {path or parts.path or '/'} HTTP/1.1", *lines, "", ""]).encode("latin-1")


async def read_answer(stream: SocketStream, *, method: str = "POST") -> Answer:
    """Read until the server closes; raise `EOFError` when it said nothing at all."""
    data = b""
    try:
        async for chunk in stream:
            data += chunk
    except anyio.BrokenResourceError:
        pass  # a reset after the answer does not matter
    if not data:
        raise EOFError("the server closed without a word")
    response = HTTPResponse(cast("Any", _Bytes(data)), method=method)
    response.begin()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


async def exchange(
    url: str,
    method: str = "POST",
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    path: str | None = None,
    address: str | None = None,
) -> Answer:
    """Send one request, from an address of this machine, and return the answer."""
    sent = {"Content-Length": str(len(body)), **(headers or {})} if body or method == "POST" else headers
    with anyio.fail_after(30):
        async with connected(url, address) as stream:
            try:
                await stream.send(head(url, method, sent, path=path) + body)
            except anyio.BrokenResourceError:
                pass  # refused before the body was sent: the answer is there
            return await read_answer(stream, method=method)


def call_body(
    tool: str,
    arguments: Any = None,
    *,
    method: str = "tools/call",
    meta: Mapping[str, Any] | None = None,
    **params: Any,
) -> bytes:
    """Return the body of a modern request."""
    sent: dict[str, Any] = {"_meta": {**ENVELOPE, **(meta or {})}, **params}
    if method == "tools/call":
        sent |= {"name": tool, "arguments": {} if arguments is None else arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": sent}).encode()


def modern_headers(tool: str, method: str = "tools/call") -> dict[str, str]:
    """Return what a conforming modern client sends."""
    return {
        "Content-Type": "application/json",
        "Accept": BOTH,
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **({"Mcp-Name": tool} if method == "tools/call" else {}),
    }


async def call(
    url: str, tool: str, arguments: Any = None, *, headers: Mapping[str, str] | None = None, **params: Any
) -> Answer:
    """Call a tool as a modern client; headers are added to those it must send, `-` leaves one out."""
    body = call_body(tool, arguments, **params)
    return await exchange(url, headers={**modern_headers(tool), **(headers or {})}, body=body)


def initialize_body(version: str = "2025-11-25") -> bytes:
    """Return the request that begins a session."""
    client = {"name": "by-hand", "version": "0"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()


async def handshake(
    url: str, headers: Mapping[str, str] | None = None, *, address: str | None = None
) -> tuple[Answer, dict[str, str]]:
    """Begin a session; return the answer and the headers of further requests in it."""
    sent = {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}
    answer = await exchange(url, headers=sent, body=initialize_body(), address=address)
    session = {**sent, "MCP-Protocol-Version": "2025-11-25"}
    if "mcp-session-id" in answer.headers:
        session["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
    if answer.status == 200:
        initialized = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
        await exchange(url, headers=session, body=initialized, address=address)
    return answer, session


def events(body: bytes) -> list[dict[str, Any]]:
    """Return the messages of a response: those of a stream of events, or the one that is the whole body."""
    if body.startswith(b"{"):
        return [json.loads(body)]
    lines = body.decode().splitlines()
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:") and line[5:].strip()]


@asynccontextmanager
async def opened(url: str, method: str, headers: Mapping[str, str], body: bytes = b"") -> AsyncGenerator[SocketStream]:
    """Send a request and leave its answer to be read."""
    sent = {**headers, "Content-Length": str(len(body))} if body else dict(headers)
    async with connected(url) as stream:
        await stream.send(head(url, method, sent) + body)
        yield stream


async def read_until(stream: SocketStream, mark: bytes) -> bytes:
    """Read until something has come."""
    data = b""
    with anyio.fail_after(30):
        while mark not in data:
            data += await stream.receive()
    return data
