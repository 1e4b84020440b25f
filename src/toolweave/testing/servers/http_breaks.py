"""Faults of connections: those that break, hang, drip, are moved elsewhere, or come from a server that restarts."""

from __future__ import annotations

from toolweave.testing.servers.http_faults import FaultContext, begin, fault
from toolweave.testing.servers.http_wire import Exchange

__all__: list[str] = []


@fault
async def reset_at_once(exchange: Exchange, step: FaultContext) -> None:
    """A TCP reset before any header."""
    await exchange.reset()


@fault
async def reset_mid_headers(exchange: Exchange, step: FaultContext) -> None:
    """Half of the headers, then a TCP reset."""
    exchange.writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
    await exchange.writer.drain()
    await exchange.reset()


@fault
async def reset_mid_body(exchange: Exchange, step: FaultContext) -> None:
    """Headers, half of the body, then a TCP reset."""
    body = begin(exchange, step)
    exchange.writer.write(body[: len(body) // 2])
    await exchange.writer.drain()
    await exchange.reset()


@fault
async def close_at_once(exchange: Exchange, step: FaultContext) -> None:
    """An orderly close before any header."""


@fault
async def closed_silently(exchange: Exchange, step: FaultContext) -> None:
    """A right answer, then the kept connection is closed without a word."""
    exchange.writer.write(begin(exchange, step))
    await exchange.writer.drain()


@fault
async def connection_close(exchange: Exchange, step: FaultContext) -> None:
    """A right answer with `Connection: close`."""
    exchange.writer.write(begin(exchange, step, connection="close"))
    await exchange.writer.drain()


@fault
async def hang_headers(exchange: Exchange, step: FaultContext) -> None:
    """Nothing at all until the client goes away."""
    await exchange.reader.gone.wait()


@fault
async def hang_body(exchange: Exchange, step: FaultContext) -> None:
    """Headers and half of the body, then nothing until the client goes away."""
    body = begin(exchange, step)
    exchange.writer.write(body[: len(body) // 2])
    await exchange.writer.drain()
    await exchange.reader.gone.wait()


@fault
async def drip_headers(exchange: Exchange, step: FaultContext) -> None:
    """The head of the response byte by byte, one in --seconds."""
    await exchange.drip(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", step.options.seconds)


@fault
async def drip_body(exchange: Exchange, step: FaultContext) -> None:
    """The body byte by byte, one in --seconds."""
    await exchange.drip(begin(exchange, step), step.options.seconds)


@fault
async def redirect_other_host(exchange: Exchange, step: FaultContext) -> None:
    """307 to --target on another origin."""
    await exchange.respond(307, location=step.options.target)


@fault
async def redirect_same_origin(exchange: Exchange, step: FaultContext) -> None:
    """307 to /moved on this server, which answers properly."""
    if exchange.path == "/moved":
        raise LookupError
    await exchange.respond(307, location="/moved")


@fault
async def redirect_loop(exchange: Exchange, step: FaultContext) -> None:
    """307 to itself, always."""
    await exchange.respond(307, location=exchange.path)


@fault
async def redirect_nowhere(exchange: Exchange, step: FaultContext) -> None:
    """302 without a Location."""
    await exchange.respond(302)


@fault
async def gone_session(exchange: Exchange, step: FaultContext) -> None:
    """Forget every session once --after calls were answered; the server sees to the 404."""
    raise LookupError


@fault
async def gone_session_400(exchange: Exchange, step: FaultContext) -> None:
    """The same, but a forgotten session is answered with 400, as some servers do."""
    raise LookupError


@fault
async def restarts(exchange: Exchange, step: FaultContext) -> None:
    """Answer, then break every connection, forget every session, and listen again on the same port."""
    exchange.writer.write(begin(exchange, step))
    await exchange.writer.drain()
    await step.restart()


@fault
async def restarts_mid_call(exchange: Exchange, step: FaultContext) -> None:
    """The same before the answer."""
    await step.restart()
