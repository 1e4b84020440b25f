"""Faults of the HTTP server: each takes one exchange over and misbehaves."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable

from http_wire import Exchange
from toolset import Json

__all__ = ["FAULTS"]

Fault = Callable[[Exchange, Json, argparse.Namespace], Awaitable[None]]
"""Takes the exchange, the message and the command line's options."""

FAULTS: dict[str, Fault] = {}
"""Mode -> fault."""


def fault(function: Fault) -> Fault:
    """Add a mode under the function's name."""
    FAULTS[getattr(function, "__name__", "")] = function
    return function


def answer_to(message: Json) -> bytes:
    """Return a harmless answer to any request."""
    result: Json = {"content": [{"type": "text", "text": "late"}], "isError": False}
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()


@fault
async def status_401(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """401 with a challenge."""
    await exchange.respond(401, b"who are you?", www_authenticate='Bearer realm="test", error="invalid_token"')


@fault
async def status_403(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """403 with a text."""
    await exchange.respond(403, b"not you", content_type="text/plain")


@fault
async def status_404(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """404 with a page."""
    await exchange.respond(404, b"<h1>Not Found</h1>", content_type="text/html")


@fault
async def status_405(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """405."""
    await exchange.respond(405, b"", allow="GET")


@fault
async def status_429(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """429 with Retry-After."""
    await exchange.respond(429, b"slow down", retry_after=str(options.retry_after))


@fault
async def status_500(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """500 with a text."""
    await exchange.respond(500, b"Internal Server Error: database is locked", content_type="text/plain")


@fault
async def status_503(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """503 with Retry-After."""
    await exchange.respond(503, b"back soon", retry_after=str(options.retry_after))


@fault
async def html_answer(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """200 with a web page."""
    await exchange.respond(200, b"<!doctype html><title>Log in</title>", content_type="text/html; charset=utf-8")


@fault
async def bad_json(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """200 with half a JSON object, complete as HTTP."""
    await exchange.respond(200, answer_to(message)[:-20], content_type="application/json")


@fault
async def empty_answer(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """200 without a body."""
    await exchange.respond(200, b"", content_type="application/json")


@fault
async def wrong_content_type(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """A right answer called text/plain."""
    await exchange.respond(200, answer_to(message), content_type="text/plain")


@fault
async def accepted_202(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """202 to a request, and nothing more."""
    await exchange.respond(202)


@fault
async def dropped_sse(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """An event stream that ends in an orderly way before the answer."""
    await exchange.start_stream()
    await exchange.chunk(b": keep-alive\r\n\r\n")
    await exchange.end_stream()


@fault
async def broken_sse(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """An event stream whose only event is no JSON."""
    await exchange.start_stream()
    await exchange.event("{not json")
    await exchange.end_stream()


@fault
async def reset_at_once(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """A TCP reset before any header."""
    await exchange.reset()


@fault
async def reset_mid_body(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """Headers, half of the body, then a TCP reset."""
    body = answer_to(message)
    exchange.head(200, {"content-type": "application/json", "content-length": str(len(body))})
    exchange.writer.write(body[: len(body) // 2])
    await exchange.writer.drain()
    await exchange.reset()


@fault
async def truncated_body(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """Headers, half of the body, then an orderly close."""
    body = answer_to(message)
    exchange.head(200, {"content-type": "application/json", "content-length": str(len(body))})
    exchange.writer.write(body[: len(body) // 2])
    await exchange.writer.drain()


@fault
async def hang_headers(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """Nothing at all until the client goes away."""
    await exchange.reader.gone.wait()


@fault
async def hang_body(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """Headers and half of the body, then nothing until the client goes away."""
    body = answer_to(message)
    exchange.head(200, {"content-type": "application/json", "content-length": str(len(body))})
    exchange.writer.write(body[: len(body) // 2])
    await exchange.writer.drain()
    await exchange.reader.gone.wait()


@fault
async def hang_sse(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """An event stream with comments only, until the client goes away."""
    await exchange.start_stream()
    await exchange.chunk(b": waiting\r\n\r\n")
    await exchange.reader.gone.wait()


@fault
async def redirect_other_host(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """307 to --target on another origin."""
    await exchange.respond(307, location=options.target)


@fault
async def redirect_same_origin(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """307 to /moved on this server, which answers properly."""
    if exchange.path == "/moved":
        raise LookupError
    await exchange.respond(307, location="/moved")


@fault
async def gone_session(exchange: Exchange, message: Json, options: argparse.Namespace) -> None:
    """Forget every session once --after calls were answered; the server sees to the 404."""
    raise LookupError
