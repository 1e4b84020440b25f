"""The server that the soak torments: stdio or HTTP, legacy or modern, every execution logged. Standard library only.

`python -S -E server.py --name N --log FILE [--era legacy|modern] [--http [--port P]]`. Over HTTP it prints its port
first and ends with its standard input. Signals: USR1 breaks the connection while the process lives on, USR2 adds or
removes a tool and says so, HUP floods standard error and, over stdio, writes a line that is no message.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

__all__: list[str] = []

Json = dict[str, Any]
Send = Callable[[Json], None]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
ID: Json = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
WORK: Json = {"type": "object", "properties": {**ID["properties"], "seconds": {"type": "number"}}, "required": ["id"]}
BIG: Json = {"type": "object", "properties": {**ID["properties"], "size": {"type": "integer"}}, "required": ["id"]}
OUTPUT: Json = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
TOOLS: dict[str, Json] = {
    "once": {"description": "Answer with the id.", "inputSchema": ID, "annotations": {"readOnlyHint": False}},
    "again": {"description": "The same, harmless to repeat.", "inputSchema": ID, "annotations": {"readOnlyHint": True}},
    "work": {"description": "Take `seconds`, with progress.", "inputSchema": WORK},
    "big": {"description": "Answer with the id and `size` bytes.", "inputSchema": BIG},
    "rows": {"description": "Structured content.", "inputSchema": ID, "outputSchema": OUTPUT},
    "fail": {"description": "Fail, and say the id.", "inputSchema": ID},
}
EXTRA: Json = {"description": "Comes and goes.", "inputSchema": ID}
STEPS = 4
CHANGED = "notifications/tools/list_changed"


class Server:
    """What all transports share. `listeners` are where notifications outside a request go."""

    def __init__(self, name: str, log: str, modern: bool) -> None:
        self.name = name
        self.modern = modern
        self.tools = dict(TOOLS)
        self.listeners: dict[object, Send] = {}
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.count()

    def toggle(self) -> None:
        """Add or remove a tool and say so."""
        if self.tools.pop("extra", None) is None:
            self.tools["extra"] = EXTRA
        self.count()
        for send in list(self.listeners.values()):
            send({"jsonrpc": "2.0", "method": CHANGED})

    def count(self) -> None:
        """Log how many tools there are."""
        os.write(self.log, f"tools {len(self.tools)}\n".encode())

    async def answer(self, message: Json, send: Send) -> Json | None:
        """Return the answer to a message, None for a notification."""
        ident = message.get("id")
        if ident is None or "method" not in message:
            return None
        try:
            result = await self.result(message["method"], message.get("params") or {}, ident, send)
        except LookupError as exc:
            return {"jsonrpc": "2.0", "id": ident, "error": {"code": -32601, "message": f"no {exc}"}}
        if self.modern:
            meta = {PREFIX + "serverInfo": {"name": self.name, "version": "1"}}
            result = {"resultType": "complete", **result, "_meta": meta}
        return {"jsonrpc": "2.0", "id": ident, "result": result}

    async def result(self, method: str, params: Json, ident: Any, send: Send) -> Json:
        """Return the result of a request."""
        capabilities: Json = {"tools": {"listChanged": True}}
        cached: Json = {"ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        if method == "initialize" and not self.modern:
            info = {"name": self.name, "version": "1"}
            return {"protocolVersion": LEGACY, "capabilities": capabilities, "serverInfo": info}
        if method == "server/discover" and self.modern:
            return {"supportedVersions": [MODERN], "capabilities": capabilities, **cached}
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [{"name": name, **tool} for name, tool in self.tools.items()], **cached}
        if method == "tools/call" and params["name"] in self.tools:
            return await self.run(params["name"], params["arguments"], params.get("_meta") or {}, send)
        if method == "subscriptions/listen" and self.modern:
            return await self.listen(ident, params, send)
        raise LookupError(method)

    async def listen(self, ident: Any, params: Json, send: Send) -> Json:
        """Hold a modern stream of changes open."""
        meta = {PREFIX + "subscriptionId": ident}
        wanted: Json = params.get("notifications") or {}

        def stamped(message: Json) -> None:
            send({**message, "params": {**message.get("params", {}), "_meta": meta}})

        acknowledged: Json = {"notifications": wanted}
        stamped({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": acknowledged})
        key = object()
        self.listeners[key] = stamped
        try:
            await asyncio.Event().wait()
        finally:
            del self.listeners[key]
        return {}

    async def run(self, name: str, arguments: Json, meta: Json, send: Send) -> Json:
        """Run a tool; the log holds its id before anything else happens."""
        ident = str(arguments["id"])
        os.write(self.log, f"{name} {ident} {os.getpid()}\n".encode())
        if name == "work":
            for step in range(STEPS):
                await asyncio.sleep(float(arguments["seconds"]) / STEPS)
                if "progressToken" in meta:
                    params = {"progressToken": meta["progressToken"], "progress": step + 1, "total": STEPS}
                    send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        text = f"{self.name} {ident}"
        if name == "big":
            text = text.ljust(int(arguments["size"]), ".")
        result: Json = {"content": [{"type": "text", "text": text}]}
        if name == "rows":
            result["structuredContent"] = {"id": ident, "server": self.name}
        if name == "fail":
            result["isError"] = True
        return result


async def serve_stdio(server: Server) -> None:
    """Answer on standard output what comes on standard input."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: dict[Any, asyncio.Task[None]] = {}

    def send(message: Json) -> None:
        write_all(1, json.dumps(message).encode() + b"\n")

    async def handle(message: Json) -> None:
        if (answer := await server.answer(message, send)) is not None:
            send(answer)

    loop.add_signal_handler(signal.SIGUSR1, os.close, 1)
    loop.add_signal_handler(signal.SIGHUP, noise, 1)
    if not server.modern:
        server.listeners[send] = send
    async for line in reader:
        message: Json = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            task = running.get(message["params"]["requestId"])
            if task is not None:
                task.cancel()
            continue
        key = message.get("id")
        running[key] = task = asyncio.create_task(handle(message))
        task.add_done_callback(lambda _task, key=key: running.pop(key, None))


def write_all(fd: int, data: bytes) -> None:
    """Write everything; a reader that has gone ends the process."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        if fd == 1:
            os._exit(0)


def noise(fd: int | None) -> None:
    """Write what nobody needs."""
    write_all(2, b"a line that nobody reads\n" * 1_000)
    if fd is not None:
        write_all(fd, b"this is no message\n")


class Http:
    """Streamable HTTP in the era of the server; answers are events where something may come before them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.writers: set[asyncio.StreamWriter] = set()
        self.sessions: set[str] = set()

    def abort(self) -> None:
        """Break every connection."""
        for writer in list(self.writers):
            writer.transport.abort()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.exchange(head[0].split()[0], headers, body, reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def exchange(
        self, method: str, headers: Json, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request."""
        session = headers.get("mcp-session-id")
        if method == "GET" and not self.server.modern and session in self.sessions:
            await self.stream(reader, writer)
        elif method == "DELETE" and session in self.sessions:
            self.sessions.discard(session)
            respond(writer, "200 OK")
        elif method != "POST":
            respond(writer, "405 Method Not Allowed")
        else:
            await self.post(json.loads(body), session, reader, writer)

    async def post(
        self, message: Json, session: str | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one message."""
        begins = message.get("method") == "initialize"
        if not self.server.modern and not begins and session not in self.sessions:
            refused: Json = {"code": -32001, "message": "Session not found"}
            answer = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": refused}).encode()
            respond(writer, "400 Bad Request" if session is None else "404 Not Found", answer)
            return
        if "id" not in message:
            respond(writer, "202 Accepted")
            return
        extra = ""
        if begins and not self.server.modern:
            name = os.urandom(8).hex()
            self.sessions.add(name)
            extra = f"Mcp-Session-Id: {name}\r\n"
        params: Json = message.get("params") or {}
        if message["method"] == "subscriptions/listen" or params.get("name") == "work":
            await self.events(reader, writer, lambda send: self.server.answer(message, send))
            return
        answer = await self.server.answer(message, lambda _note: None)
        status = "400 Bad Request" if answer and "error" in answer else "200 OK"
        respond(writer, status, json.dumps(answer).encode(), extra)

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hold a legacy session's own stream open."""

        async def forever(send: Send) -> Json | None:
            self.server.listeners[send] = send
            try:
                await asyncio.Event().wait()
            finally:
                del self.server.listeners[send]
            return None

        await self.events(reader, writer, forever)

    async def events(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, work: Callable[[Send], Awaitable[Json | None]]
    ) -> None:
        """Send events until the work is done; a client that leaves cancels it."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

        def send(message: Json) -> None:
            data = b"data: " + json.dumps(message).encode() + b"\n\n"
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))

        doing = asyncio.ensure_future(work(send))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([doing, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise ConnectionResetError
            if (answer := doing.result()) is not None:
                send(answer)
            writer.write(b"0\r\n\r\n")
        finally:
            doing.cancel()
            leaving.cancel()
            await asyncio.wait([leaving])


def respond(writer: asyncio.StreamWriter, status: str, body: bytes = b"", extra: str = "") -> None:
    """Write one response."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def serve_http(server: Server, port: int) -> None:
    """Answer POSTs until standard input ends."""
    loop = asyncio.get_running_loop()
    http = Http(server)
    loop.add_signal_handler(signal.SIGUSR1, http.abort)
    loop.add_signal_handler(signal.SIGHUP, noise, None)
    listening = await asyncio.start_server(http.connection, "127.0.0.1", port, limit=2**24)
    print(listening.sockets[0].getsockname()[1], flush=True)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    os._exit(0)


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--era", choices=["legacy", "modern"], default="legacy")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    server = Server(options.name, options.log, options.era == "modern")

    async def serve() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, server.toggle)
        await (serve_http(server, options.port) if options.http else serve_stdio(server))

    asyncio.run(serve())


if __name__ == "__main__":
    main()
