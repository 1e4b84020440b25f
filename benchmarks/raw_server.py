"""The baselines of serving: one tool by hand on asyncio and on ASGI, with msgspec and no features.

No negotiation worth the name, no validation, no cancellation: the practical limit of one Python process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import msgspec

__all__ = ["MANY", "Message", "answer_post", "app", "serve_stdio"]


class Arguments(msgspec.Struct):
    """What the tool takes."""

    size: int


class Params(msgspec.Struct):
    """What a call has."""

    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class Message(msgspec.Struct):
    """A request, or a notification, which has no id."""

    method: str
    id: int | str | None = None
    params: Params | None = None


decode = msgspec.json.Decoder(Message).decode
decode_arguments = msgspec.json.Decoder(Arguments).decode
encode = msgspec.json.Encoder().encode
MANY = 1_000
"""Tools that are listed: on one page, as all servers that are compared have them by default."""
AGREED: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}
FOUND: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}


@cache
def listed() -> bytes:
    """Return the list of `MANY` tools as an encoded page."""
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    tools = [
        {"name": f"payload_{number}", "description": "Return bytes", "inputSchema": schema} for number in range(MANY)
    ]
    return encode({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools})


async def payload(size: int) -> str:
    """Return `size` bytes."""
    return "x" * size


async def answer(body: bytes) -> bytes | None:
    """Return the answer to a message, None to a notification."""
    message = decode(body)
    if message.id is None:
        return None
    if message.method == "tools/call" and message.params is not None:
        text = await payload(decode_arguments(message.params.arguments).size)
        result: Any = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    elif message.method == "tools/list":
        return b'{"jsonrpc":"2.0","id":' + encode(message.id) + b',"result":' + listed() + b"}"
    else:
        agreed: dict[str, Any] = AGREED if message.method == "initialize" else FOUND
        result = agreed
    return encode({"jsonrpc": "2.0", "id": message.id, "result": result})


async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """Answer POSTs, wherever they go."""
    if scope["type"] != "http":
        return
    await answer_post(answer, receive, send)


async def answer_post(
    answer: Callable[[bytes], Awaitable[bytes | None]],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[Any], Awaitable[None]],
) -> None:
    """Read the body of a POST and send what `answer` makes of it; nothing is 202."""
    pieces: list[bytes] = []
    more = True
    while more:
        event = await receive()
        pieces.append(event.get("body", b""))
        more = event.get("more_body", False)
    body = await answer(b"".join(pieces)) or b""
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200 if body else 202, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def serve_stdio() -> None:
    """Answer lines on standard input."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out, _ = await loop.connect_write_pipe(asyncio.Protocol, sys.stdout)
    while line := await reader.readline():
        if (text := await answer(line)) is not None:
            out.write(text + b"\n")
