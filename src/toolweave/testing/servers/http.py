"""An MCP server over HTTP, standard library only; prints its port as the first line.

`run.py http --era legacy|modern|dual|sse`: Streamable HTTP at any path, or the old HTTP+SSE
transport. A fault (--mode) can be limited to one method (--on) and to its first requests (--times).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from toolweave.testing.servers.echo import add_peer_arguments, peer_from
from toolweave.testing.servers.faults import add_fault_arguments
from toolweave.testing.servers.http_misbehaviour import HTTP_FAULTS, Misbehaviour, help_text
from toolweave.testing.servers.http_wire import Exchange, Listener
from toolweave.testing.servers.protocol import MODERN, PREFIX, Peer, PeerRequest, PeerSession, Refusal
from toolweave.testing.servers.toolset import Json, members

__all__ = ["main"]

NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
STATUS = {-32020: 400, -32021: 400, -32022: 400, -32602: 400, -32601: 404, -32700: 400, -32600: 400}
END = object()


class HttpServer:
    """A `Peer` behind HTTP."""

    def __init__(self, peer: Peer, options: argparse.Namespace) -> None:
        self.peer = peer
        self.options = options
        self.old: Any = options.era == "sse"
        self.sessions: dict[str, PeerSession] = {}
        self.streams: dict[PeerSession, asyncio.Queue[Any]] = {}
        self.counter: int = 0
        self.odd: Misbehaviour = Misbehaviour(peer, options, self.sessions, lambda: self.new_session()[1])

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        if not self.allowed(exchange):
            await exchange.respond(401, b"", www_authenticate='Bearer realm="test"')
        elif exchange.method == "POST":
            await self.post(exchange)
        elif await self.odd.took(exchange, {}):
            return
        elif exchange.method == "GET" and self.old:
            await self.old_stream(exchange)
        elif exchange.method == "GET" and self.options.era != "modern":
            await self.get(exchange)
        elif exchange.method == "DELETE" and not self.old and self.options.era != "modern":
            known = self.sessions.pop(exchange.headers.get("mcp-session-id", ""), None)
            await exchange.respond(404 if known is None else 200)
        else:
            await exchange.respond(405)

    def allowed(self, exchange: Exchange) -> bool:
        """Whether the request carries the wanted credentials."""
        token = self.options.require_bearer
        header = self.options.require_header
        if token is not None and exchange.headers.get("authorization") != f"Bearer {token}":
            return False
        if header is not None:
            name, _, value = header.partition(":")
            return exchange.headers.get(name.strip().lower()) == value.strip()
        return True

    async def post(self, exchange: Exchange) -> None:
        """Take one message."""
        if self.old and exchange.path != "/messages":
            await exchange.respond(405)
            return
        try:
            message: Json = json.loads(exchange.body)
        except ValueError:
            error: Json = {"code": -32700, "message": "Parse error"}
            await exchange.respond_json(400, {"jsonrpc": "2.0", "id": None, "error": error})
            return
        seen = {"path": exchange.path, "query": exchange.query, "headers": exchange.headers, "body": message}
        self.peer.http_requests.append(seen)
        if await self.odd.took(exchange, message):
            return
        if self.old:
            await self.old_post(exchange, message)
        elif exchange.headers.get("mcp-protocol-version") == MODERN and self.options.era != "legacy":
            await self.modern(exchange, message)
        else:
            await self.legacy(exchange, message)

    # -- the eras ---------------------------------------------------------------------------

    async def modern(self, exchange: Exchange, message: Json) -> None:
        """Answer a modern POST; closing the response cancels the request."""
        if "id" not in message:
            self.peer.methods.append(str(message.get("method")))
            await exchange.respond(202)
            return
        try:
            check_headers(exchange.headers, message)
        except Refusal as error:
            await exchange.respond_json(400, {"jsonrpc": "2.0", "id": message["id"], "error": error.to_json()})
            return
        await self.reply(exchange, message, PeerSession(), cancel_with_stream=True)

    async def legacy(self, exchange: Exchange, message: Json) -> None:
        """Answer a POST within a session."""
        method = message.get("method")
        known = exchange.headers.get("mcp-session-id")
        if method == "initialize":
            session, known = self.new_session()
            await self.reply(exchange, message, session, mcp_session_id=known)
            return
        if known is None and (self.options.era == "modern" or method == "server/discover"):
            await self.reply(exchange, message, PeerSession(), probe=True)
            return
        session = self.sessions.get(known or "")
        if session is None:
            error: Json = {"code": -32001, "message": "Session not found"}
            status = 400 if known is None else self.odd.missing_session()
            await exchange.respond_json(status, {"jsonrpc": "2.0", "id": message.get("id"), "error": error})
            return
        if "id" not in message or "method" not in message:
            self.peer.handle(message, session, lambda note: None)
            await exchange.respond(202)
            return
        await self.reply(exchange, message, session)
        self.odd.forget_sessions()

    def new_session(self) -> tuple[PeerSession, str]:
        """Open a session with its own stream."""
        self.counter += 1
        session = PeerSession()
        queue: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def send(note: Json) -> None:
            # Tools that block run in threads.
            loop.call_soon_threadsafe(queue.put_nowait, note)

        session.send = send
        self.streams[session] = queue
        self.sessions[f"session-{self.counter}"] = session
        return session, f"session-{self.counter}"

    async def get(self, exchange: Exchange) -> None:
        """Open a legacy session's stream."""
        session = self.sessions.get(exchange.headers.get("mcp-session-id", ""))
        if session is None or self.options.no_get_stream:
            await exchange.respond(405 if self.options.no_get_stream else 404)
            return
        await exchange.start_stream()
        await self.pump(exchange, self.streams[session])

    async def pump(self, exchange: Exchange, queue: asyncio.Queue[Any]) -> None:
        """Send a session's messages until the client goes away."""
        while (item := await next_item(queue, exchange)) is not END:
            await exchange.event(json.dumps(item))

    async def old_stream(self, exchange: Exchange) -> None:
        """Open an HTTP+SSE session: its first event names the endpoint."""
        session, name = self.new_session()
        await exchange.start_stream()
        await exchange.event(f"/messages?session_id={name}", event="endpoint")
        await self.pump(exchange, self.streams[session])
        self.sessions.pop(name, None)

    async def old_post(self, exchange: Exchange, message: Json) -> None:
        """Take a message of an HTTP+SSE session; its answer goes to the stream."""
        session = self.sessions.get(exchange.query.get("session_id", ""))
        if session is None or session.send is None:
            await exchange.respond(404)
            return
        await exchange.respond(202, b"Accepted")
        send = session.send

        def done(answer: Json | None) -> None:
            if answer is not None:
                send(answer)

        self.run(message, session, send, exchange, lambda request: None, done)

    # -- answers ----------------------------------------------------------------------------

    def run(
        self,
        message: Json,
        session: PeerSession,
        send: Callable[[Json], None],
        exchange: Exchange,
        started: Callable[[PeerRequest], None],
        done: Callable[[Json | None], None],
    ) -> None:
        """Handle a message, on a thread if it may block."""

        def work() -> None:
            done(self.peer.handle(message, session, send, exchange.headers, started))

        if self.peer.blocks(message):
            threading.Thread(target=work, daemon=True).start()
        else:
            work()

    async def reply(
        self,
        exchange: Exchange,
        message: Json,
        session: PeerSession,
        *,
        cancel_with_stream: bool = False,
        probe: bool = False,
        **headers: str,
    ) -> None:
        """Answer as JSON, or as an event stream once something is sent before the answer (see --answers)."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        requests: list[PeerRequest] = []

        def push(item: Any) -> None:  # a message, or None when there will be no answer
            if item is not None or requests[0] not in self.peer.listeners:
                loop.call_soon_threadsafe(queue.put_nowait, END if item is None else item)

        if self.options.answers == "sse":
            await exchange.start_stream(**headers)
        self.run(message, session, push, exchange, requests.append, push)
        while (item := await next_item(queue, exchange)) is not END:
            if "id" in item and "method" not in item:
                if not await self.odd.rewrote(exchange, message, item, headers):
                    await self.finish(exchange, item, probe, headers)
                return
            if self.options.answers != "json" or message.get("method") == "subscriptions/listen":
                if not exchange.streaming:
                    await exchange.start_stream(**headers)
                await exchange.event(json.dumps(item))
        await self.unanswered(exchange, requests[0], cancel_with_stream, headers)

    async def unanswered(
        self, exchange: Exchange, request: PeerRequest, cancel_with_stream: bool, headers: dict[str, str]
    ) -> None:
        """End an exchange that has no answer: its client left, or cancelled the request."""
        if exchange.reader.gone.is_set():
            if cancel_with_stream:
                self.peer.cancelled.append(request.id)
                self.peer.stop(request)
            return
        if not exchange.streaming:
            await exchange.start_stream(**headers)
        await exchange.end_stream()

    async def finish(self, exchange: Exchange, answer: Json, probe: bool, headers: dict[str, str]) -> None:
        """Send the last message of an exchange."""
        if exchange.streaming:
            await exchange.event(json.dumps(answer))
            await exchange.end_stream()
            return
        code = members(answer.get("error")).get("code")
        status = 200
        if probe and code is not None:
            status = self.options.probe_status
        elif exchange.headers.get("mcp-protocol-version") == MODERN:
            status = STATUS.get(code or 0, 200)
        await exchange.respond_json(status, answer, **headers)


def check_headers(headers: dict[str, str], message: Json) -> None:
    """Raise -32020 when a modern request's headers do not match its body."""
    params = members(message.get("params"))
    wanted = {
        "mcp-protocol-version": members(params.get("_meta")).get(PREFIX + "protocolVersion"),
        "mcp-method": message.get("method"),
    }
    if message.get("method") in NAMED:
        wanted["mcp-name"] = params.get(NAMED[str(message["method"])])
    for name, value in wanted.items():
        given = headers.get(name)
        if given is not None and given.startswith("=?base64?"):
            given = base64.b64decode(given[9:-2]).decode()
        if given != value:
            raise Refusal(-32020, f"Header {name} is {given!r}, the body says {value!r}")


async def next_item(queue: asyncio.Queue[Any], exchange: Exchange) -> Any:
    """Return the next item of a queue, or END when the client disconnects first."""
    async with asyncio.TaskGroup() as tasks:
        item = tasks.create_task(queue.get())
        gone = tasks.create_task(exchange.reader.gone.wait())
        await asyncio.wait([item, gone], return_when=asyncio.FIRST_COMPLETED)
        item.cancel()
        gone.cancel()
    if item.cancelled():
        return END
    return item.result()


def end_with_stdin() -> None:
    """End the process when standard input ends."""
    sys.stdin.buffer.read()
    # `sys.exit` would only end this thread.
    os._exit(0)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nmodes:\n{help_text()}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_peer_arguments(parser, "sse")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tied", action="store_true", help="exit when standard input ends")
    parser.add_argument("--answers", choices=["auto", "json", "sse"], default="auto")
    parser.add_argument("--no-get-stream", action="store_true", help="answer GET with 405 in a legacy session")
    parser.add_argument("--probe-status", type=int, default=400, help="HTTP status of a refused server/discover")
    parser.add_argument("--require-bearer", metavar="TOKEN", help="401 without it")
    parser.add_argument("--require-header", metavar="NAME:VALUE", help="401 without it")
    parser.add_argument("--mode", choices=sorted(HTTP_FAULTS), metavar="MODE")
    add_fault_arguments(parser)
    parser.add_argument("--on", metavar="METHOD", help="the fault takes this JSON-RPC or HTTP method only")
    parser.add_argument("--after", type=int, default=1, metavar="N", help="calls before gone_session forgets")
    parser.add_argument("--retry-after", default="0", metavar="SECONDS")
    parser.add_argument("--target", default="http://127.0.0.2:9/mcp", help="for redirect_other_host")
    options = parser.parse_args()
    options.era = options.era or ("modern" if options.version == MODERN else "legacy")
    return options


async def serve_until_killed() -> None:
    """Serve, print the port, and continue until killed."""
    options = arguments()
    peer = peer_from(options)
    if options.era == "sse":
        peer.era = "legacy"
        peer.version = options.version or "2024-11-05"
        peer.probe = options.probe or "error-32601"
    server = HttpServer(peer, options)
    listener = Listener(server.handle, options.host, options.port)
    server.odd.restart = listener.restart
    listener.on_restart = server.sessions.clear
    await listener.start()
    sys.stdout.write(f"{listener.port}\n")
    sys.stdout.flush()
    if options.tied:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    await asyncio.get_running_loop().create_future()


def main() -> None:
    """Serve until killed."""
    asyncio.run(serve_until_killed())
