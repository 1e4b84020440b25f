"""Faults of event streams and of compressed bodies."""

from __future__ import annotations

import json
import zlib

from toolweave.testing.servers.http_faults import EXCHANGE_FAULTS, JSON, FaultContext, fault
from toolweave.testing.servers.http_wire import Exchange
from toolweave.testing.servers.toolset import text_result

__all__ = ["EXCHANGE_FAULTS"]

KEPT: dict[str, str] = {}
"""Event id -> the answer that a stream lost, for a client that resumes it."""


@fault
async def dropped_sse(exchange: Exchange, step: FaultContext) -> None:
    """An event stream that ends in an orderly way before the answer."""
    await exchange.start_stream()
    await exchange.chunk(b": keep-alive\r\n\r\n")
    await exchange.end_stream()


@fault
async def dropped_sse_with_id(exchange: Exchange, step: FaultContext) -> None:
    """The same after an event with an id; GET with that Last-Event-ID has the answer."""
    key = f"event-{len(KEPT) + 1}"
    KEPT[key] = step.answer()[0].decode()
    await exchange.start_stream()
    await exchange.chunk(f"id: {key}\r\nretry: 50\r\ndata:\r\n\r\n".encode())
    await exchange.end_stream()


async def resume(exchange: Exchange) -> bool:
    """Send a client that names an event the answer that it lost after that."""
    lost = KEPT.pop(exchange.headers.get("last-event-id", ""), None)
    if lost is None:
        return False
    await exchange.start_stream()
    await exchange.event(lost)
    await exchange.end_stream()
    return True


@fault
async def broken_sse(exchange: Exchange, step: FaultContext) -> None:
    """An event stream whose only event is not JSON."""
    await exchange.start_stream()
    await exchange.event("{not json")
    await exchange.end_stream()


@fault
async def noisy_sse(exchange: Exchange, step: FaultContext) -> None:
    """An event stream with broken events, odd fields and foreign events before the right answer."""
    await exchange.start_stream()
    await exchange.chunk(b"\xef\xbb\xbf: hello\r\nretry: soon\rid\ndata: {not json\n\nevent: ping\ndata: 1\n\n")
    await exchange.chunk(b"data: [1]\n\n\xff\xfe: odd\n\n\n\n")
    await exchange.event(step.answer()[0].decode())
    await exchange.end_stream()


@fault
async def split_sse(exchange: Exchange, step: FaultContext) -> None:
    """A right event, byte by byte, its JSON over several data lines."""
    await exchange.start_stream()
    text = json.dumps(json.loads(step.answer()[0]), indent=1, ensure_ascii=False)
    lines = "".join(f"data:{line}\r\n" for line in text.split("\n"))
    for byte in f"event: message\r\n{lines}\r\n".encode():
        await exchange.chunk(bytes([byte]))
    await exchange.end_stream()


@fault
async def unfinished_sse(exchange: Exchange, step: FaultContext) -> None:
    """The right event without the blank line that ends it, then an orderly end."""
    await exchange.start_stream()
    await exchange.chunk(b"data: " + step.answer()[0] + b"\n")
    await exchange.end_stream()


@fault
async def hang_sse(exchange: Exchange, step: FaultContext) -> None:
    """An event stream with one comment, then nothing until the client goes away."""
    await exchange.start_stream()
    await exchange.chunk(b": waiting\r\n\r\n")
    await exchange.reader.gone.wait()


@fault
async def endless_comments(exchange: Exchange, step: FaultContext) -> None:
    """An event stream with comments for ever, one in --seconds."""
    await exchange.start_stream()
    while not exchange.reader.gone.is_set():
        await exchange.chunk(b": still here\n\n")
        await exchange.pause(step.options.seconds)


@fault
async def giant_event(exchange: Exchange, step: FaultContext) -> None:
    """One event that never ends, 1 MB of data at a time."""
    await exchange.start_stream()
    while not exchange.reader.gone.is_set():
        await exchange.chunk(b"data: " + b"x" * 1_000_000 + b"\n")
        await exchange.pause(step.options.seconds)


@fault
async def foreign_answer(exchange: Exchange, step: FaultContext) -> None:
    """An event stream with an answer to another request, then an orderly end."""
    await exchange.start_stream()
    answer = json.loads(step.answer()[0])
    await exchange.event(json.dumps({**answer, "id": 987654, "result": text_result("not yours")}))
    await exchange.end_stream()


@fault
async def reset_sse(exchange: Exchange, step: FaultContext) -> None:
    """An event stream that breaks with a TCP reset in the middle of the answer."""
    await exchange.start_stream()
    body = step.answer()[0]
    await exchange.chunk(b"data: " + body[: len(body) // 2])
    await exchange.reset()


@fault
async def gzip_bomb(exchange: Exchange, step: FaultContext) -> None:
    """About 1 MB that inflates to --size bytes (default 1 GB)."""
    size = step.options.size or 1_000_000_000
    block = b" " * 1_000_000
    # 31 stands for the largest window with the header of gzip.
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(block) for _ in range(max(1, size // len(block)))]
    data = b"".join([*parts, packer.compress(step.answer()[0]), packer.flush()])
    await exchange.respond(200, data, content_type=JSON, content_encoding="gzip")


@fault
async def gzip_unasked(exchange: Exchange, step: FaultContext) -> None:
    """A right answer, compressed whether the client takes that or not."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = packer.compress(step.answer()[0]) + packer.flush()
    await exchange.respond(200, data, content_type=JSON, content_encoding="gzip")


@fault
async def gzip_broken(exchange: Exchange, step: FaultContext) -> None:
    """An answer that says it is compressed and is not."""
    await exchange.respond(200, step.answer()[0], content_type=JSON, content_encoding="gzip")


@fault
async def unknown_encoding(exchange: Exchange, step: FaultContext) -> None:
    """An answer in an unknown content encoding."""
    await exchange.respond(200, step.answer()[0], content_type=JSON, content_encoding="zip7")
