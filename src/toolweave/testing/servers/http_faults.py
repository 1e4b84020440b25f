"""Faults of an HTTP server, one exchange each: statuses, headers and bodies.

A fault takes an exchange over and misbehaves. `http_breaks` and `http_streams` have more of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate

from toolweave.testing.servers.http_wire import Exchange
from toolweave.testing.servers.toolset import Json

__all__ = ["EXCHANGE_FAULTS", "FaultContext", "begin", "fault"]


class FaultContext:
    """The context of a fault: the message, the command line's options, and the right answer."""

    def __init__(
        self, message: Json, options: argparse.Namespace, answer: Callable[[], tuple[bytes, dict[str, str]]]
    ) -> None:
        self.message = message
        self.options = options
        self.answer = answer
        """Handles the message and returns the body and the headers of the right response."""
        self.restart: Callable[[], Awaitable[None]]


Fault = Callable[[Exchange, FaultContext], Awaitable[None]]
"""Takes over the exchange; raises LookupError to leave it alone after all."""

EXCHANGE_FAULTS: dict[str, Fault] = {}
"""Mode -> fault."""

JSON = "application/json"


def fault(function: Fault) -> Fault:
    """Add a mode under the function's name."""
    EXCHANGE_FAULTS[getattr(function, "__name__", "")] = function
    return function


def begin(exchange: Exchange, step: FaultContext, **more: str) -> bytes:
    """Write the head of the right response and return its body."""
    body, headers = step.answer()
    exchange.head(200, {"content-type": JSON, "content-length": str(len(body)), **headers, **more})
    return body


@fault
async def status_400(exchange: Exchange, step: FaultContext) -> None:
    """400 with a text."""
    await exchange.respond(400, b"Bad Request: no session", content_type="text/plain")


@fault
async def status_401(exchange: Exchange, step: FaultContext) -> None:
    """401 with a challenge."""
    await exchange.respond(401, b"who are you?", www_authenticate='Bearer realm="test", error="invalid_token"')


@fault
async def status_403(exchange: Exchange, step: FaultContext) -> None:
    """403 with a text."""
    await exchange.respond(403, b"not you", content_type="text/plain")


@fault
async def status_404(exchange: Exchange, step: FaultContext) -> None:
    """404 with a page."""
    await exchange.respond(404, b"<h1>Not Found</h1>", content_type="text/html")


@fault
async def status_405(exchange: Exchange, step: FaultContext) -> None:
    """405."""
    await exchange.respond(405, b"", allow="GET")


@fault
async def status_406(exchange: Exchange, step: FaultContext) -> None:
    """406."""
    await exchange.respond(406, b"")


@fault
async def status_409(exchange: Exchange, step: FaultContext) -> None:
    """409 with a text."""
    await exchange.respond(409, b"already running", content_type="text/plain")


@fault
async def status_413(exchange: Exchange, step: FaultContext) -> None:
    """413, and the connection is closed."""
    await exchange.respond(413, b"too large", connection="close")
    exchange.finished = False


@fault
async def status_415(exchange: Exchange, step: FaultContext) -> None:
    """415."""
    await exchange.respond(415, b"")


@fault
async def status_429(exchange: Exchange, step: FaultContext) -> None:
    """429 with Retry-After in seconds."""
    await exchange.respond(429, b"slow down", retry_after=str(step.options.retry_after))


@fault
async def status_500(exchange: Exchange, step: FaultContext) -> None:
    """500 with a text."""
    await exchange.respond(500, b"Internal Server Error: database is locked", content_type="text/plain")


@fault
async def status_502(exchange: Exchange, step: FaultContext) -> None:
    """502 with a proxy's page."""
    await exchange.respond(502, b"<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")


@fault
async def status_503(exchange: Exchange, step: FaultContext) -> None:
    """503 with Retry-After in seconds."""
    await exchange.respond(503, b"back soon", retry_after=str(step.options.retry_after))


@fault
async def status_503_until_date(exchange: Exchange, step: FaultContext) -> None:
    """503 with Retry-After as a date, --retry-after seconds from now."""
    date = formatdate(time.time() + float(step.options.retry_after), usegmt=True)
    await exchange.respond(503, b"back soon", retry_after=date)


@fault
async def status_503_bare(exchange: Exchange, step: FaultContext) -> None:
    """503 without Retry-After."""
    await exchange.respond(503, b"")


@fault
async def status_504(exchange: Exchange, step: FaultContext) -> None:
    """504 with a proxy's page."""
    await exchange.respond(504, b"<html><h1>504 Gateway Time-out</h1></html>", content_type="text/html")


@fault
async def status_204(exchange: Exchange, step: FaultContext) -> None:
    """204 to a request, and nothing more."""
    exchange.head(204, {})
    exchange.finished = True
    await exchange.writer.drain()


@fault
async def accepted_202(exchange: Exchange, step: FaultContext) -> None:
    """202 to a request, and nothing more."""
    await exchange.respond(202)


@fault
async def html_answer(exchange: Exchange, step: FaultContext) -> None:
    """200 with a web page."""
    await exchange.respond(200, b"<!doctype html><title>Log in</title>", content_type="text/html; charset=utf-8")


@fault
async def bad_json(exchange: Exchange, step: FaultContext) -> None:
    """200 with half a JSON object, complete as HTTP."""
    await exchange.respond(200, step.answer()[0][:-20], content_type=JSON)


@fault
async def empty_answer(exchange: Exchange, step: FaultContext) -> None:
    """200 without a body."""
    await exchange.respond(200, b"", content_type=JSON)


@fault
async def wrong_content_type(exchange: Exchange, step: FaultContext) -> None:
    """A right answer called text/plain."""
    await exchange.respond(200, step.answer()[0], content_type="text/plain")


@fault
async def no_content_type(exchange: Exchange, step: FaultContext) -> None:
    """A right answer without a content type."""
    await exchange.respond(200, step.answer()[0])


@fault
async def bom_body(exchange: Exchange, step: FaultContext) -> None:
    """A right answer that begins with a byte order mark."""
    await exchange.respond(200, b"\xef\xbb\xbf" + step.answer()[0], content_type=JSON)


@fault
async def invalid_utf8_body(exchange: Exchange, step: FaultContext) -> None:
    """An answer whose text has bytes that are no UTF-8."""
    await exchange.respond(200, step.answer()[0].replace(b'"text"', b'"te\xe9\xff"'), content_type=JSON)


@fault
async def huge_body(exchange: Exchange, step: FaultContext) -> None:
    """An answer with a text of --size bytes (default 50 MB)."""
    size = step.options.size or 50_000_000
    start = b'{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"'
    number = str(step.message.get("id", 0)).encode()
    await exchange.respond(200, start % number + b"x" * size + b'"}]}}', content_type=JSON)


@fault
async def truncated_body(exchange: Exchange, step: FaultContext) -> None:
    """Headers, half of the body, then an orderly close."""
    body = begin(exchange, step)
    exchange.writer.write(body[: len(body) // 2])
    await exchange.writer.drain()


@fault
async def truncated_chunk(exchange: Exchange, step: FaultContext) -> None:
    """Half of a chunked body, then an orderly close."""
    exchange.head(200, {"content-type": JSON, "transfer-encoding": "chunked"})
    body = step.answer()[0]
    exchange.writer.write(f"{len(body):x}\r\n".encode() + body[: len(body) // 2])
    await exchange.writer.drain()


@fault
async def bad_chunk_size(exchange: Exchange, step: FaultContext) -> None:
    """A chunked body whose first size is not a number."""
    exchange.head(200, {"content-type": JSON, "transfer-encoding": "chunked"})
    exchange.writer.write(b"zz\r\n" + step.answer()[0] + b"\r\n0\r\n\r\n")
    await exchange.writer.drain()


@fault
async def two_lengths(exchange: Exchange, step: FaultContext) -> None:
    """Two Content-Length headers that disagree."""
    body = step.answer()[0]
    exchange.head(200, {"content-type": JSON, "content-length": str(len(body)), "Content-Length": "5"})
    exchange.writer.write(body)
    await exchange.writer.drain()


@fault
async def extra_response(exchange: Exchange, step: FaultContext) -> None:
    """A right answer, and at once a second, unrequested response."""
    body = begin(exchange, step)
    extra = body.replace(b"first", b"extra")
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\ncontent-length: {len(extra)}\r\n\r\n".encode()
    exchange.writer.write(body + head + extra)
    exchange.finished = True
    await exchange.writer.drain()


@fault
async def no_http(exchange: Exchange, step: FaultContext) -> None:
    """A line of another protocol."""
    exchange.writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await exchange.writer.drain()


@fault
async def http_1_0(exchange: Exchange, step: FaultContext) -> None:
    """A right HTTP/1.0 response that ends with its connection."""
    exchange.writer.write(f"HTTP/1.0 200 OK\r\ncontent-type: {JSON}\r\n\r\n".encode() + step.answer()[0])
    await exchange.writer.drain()


@fault
async def interim_responses(exchange: Exchange, step: FaultContext) -> None:
    """Two 103 responses before the right one."""
    body, headers = step.answer()
    exchange.writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\n\r\n" * 2)
    exchange.head(200, {"content-type": JSON, "content-length": str(len(body)), **headers})
    exchange.writer.write(body)
    exchange.finished = True
    await exchange.writer.drain()


@fault
async def huge_header(exchange: Exchange, step: FaultContext) -> None:
    """A right answer with a header of 1 MB."""
    exchange.writer.write(begin(exchange, step, **{"x-filler": "x" * 1_000_000}))
    exchange.finished = True
    await exchange.writer.drain()


@fault
async def endless_headers(exchange: Exchange, step: FaultContext) -> None:
    """Headers that never end."""
    exchange.writer.write(b"HTTP/1.1 200 OK\r\n")
    while not exchange.reader.gone.is_set():
        exchange.writer.write(b"x-filler: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n" * 100)
        await exchange.writer.drain()
        await exchange.pause(0.01)
