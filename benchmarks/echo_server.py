"""The leanest server that every client here can talk to: answers are bytes made beforehand. Standard library only.

`python -S -E echo_server.py [--era legacy|modern] [--tools N] [--page P] [--http] [--events] [--hang]`; with `--http`
it prints its port as the first line, with `--events` calls are answered by a stream of one event.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import cache
from typing import Any

__all__: list[str] = []

LEGACY, MODERN = "2025-11-25", "2026-07-28"
INFO = {"name": "bench", "version": "1"}
CAPABILITIES: dict[str, Any] = {"tools": {}}
OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
EVENTS_HEAD = OK_HEAD.replace(b"application/json", b"text/event-stream")
EVENT = b"data: %b\n\n"
SESSION = b"Mcp-Session-Id: bench\r\n"
MAX_SEEN = 1_000
NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"a line of a log"}}'
ROW: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "score": {"type": "number"}},
    "required": ["id", "name"],
}
OUTPUT = {"type": "object", "properties": {"rows": {"type": "array", "items": ROW}}, "required": ["rows"]}
INPUT = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0}}, "required": ["size"]}


class Answers:
    """Bytes of results by method and parameters."""

    def __init__(self, era: str, tools: int, page: int, *, events: bool = False) -> None:
        self.modern = era == "modern"
        self.events = events
        self.page = page
        listed: list[dict[str, Any]] = [
            {"name": "payload", "description": "Return `size` bytes", "inputSchema": INPUT},
            {"name": "rows", "description": "Return rows", "inputSchema": {"type": "object"}, "outputSchema": OUTPUT},
            {"name": "storm", "description": "Send `size` notifications, then answer", "inputSchema": INPUT},
        ]
        self.editions = [
            [(listed + many)[start : start + page] for start in range(0, len(listed) + tools, page)]
            for many in ([filler(number, edition) for number in range(tools)] for edition in "ab")
        ]
        """The pages of the list; it changes with every reading, so that nobody can use again what it has."""
        self.edition = 0
        self.encoded: dict[Any, bytes] = {}
        self.seen: dict[tuple[bytes, bytes], bytes] = {}

    def quick(self, text: bytes) -> bytes | None:
        """Return the answer to a request that differs only in its id from one seen before: no JSON is read."""
        before, _, after = text.partition(b'"id":')
        end = next((place for place in (after.find(b","), after.find(b"}")) if place > 0), 0)
        known = self.seen.get((before, after[end:].strip()))
        return None if known is None else b'{"jsonrpc":"2.0","id":' + after[:end] + known

    def learn(self, text: bytes, answer: bytes) -> None:
        """Remember the answer to a call for `quick`."""
        before, _, after = text.partition(b'"id":')
        end = next((place for place in (after.find(b","), after.find(b"}")) if place > 0), 0)
        start = b'{"jsonrpc":"2.0","id":' + after[:end]
        if answer.startswith(start + b",") and len(self.seen) < MAX_SEEN:
            self.seen[before, after[end:].strip()] = answer[len(start) :]

    def result(self, value: dict[str, Any], **cacheable: Any) -> bytes:
        """Encode a result for the era."""
        if self.modern:
            stamp = {"io.modelcontextprotocol/serverInfo": INFO}
            value = {"resultType": "complete", **value, **cacheable, "_meta": stamp}
        return json.dumps(value, separators=(",", ":")).encode()

    def error(self, code: int) -> bytes:
        """Encode the error member of an answer."""
        return json.dumps({"code": code, "message": "no"}).encode()

    def answer(self, message: dict[str, Any]) -> bytes | None:
        """Return the answer's bytes, None for a notification."""
        if "id" not in message:
            return None
        ident = json.dumps(message["id"]).encode()
        params: dict[str, Any] = message.get("params") or {}
        arguments: dict[str, Any] = params.get("arguments") or {}
        if message["method"] == "tools/list" and "cursor" not in params:
            self.edition = 1 - self.edition
        key = (message["method"], params.get("cursor"), params.get("name"), arguments.get("size"), self.edition)
        body = self.encoded.get(key)
        if body is None:
            body = self.encoded[key] = self.make(message["method"], params)
        return b'{"jsonrpc":"2.0","id":' + ident + b"," + body + b"}"

    def notes(self, message: dict[str, Any]) -> int:
        """Return how many notifications go before the answer."""
        params: dict[str, Any] = message.get("params") or {}
        return int(params["arguments"]["size"]) if params.get("name") == "storm" else 0

    def make(self, method: str, params: dict[str, Any]) -> bytes:
        """Return `"result":...` or `"error":...`."""
        cacheable: dict[str, Any] = {"ttlMs": 0, "cacheScope": "private"}
        if method == "initialize" and not self.modern:
            handshake: dict[str, Any] = {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": INFO}
            return b'"result":' + self.result(handshake)
        if method == "server/discover" and self.modern:
            return b'"result":' + self.result(
                {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}, **cacheable
            )
        if method == "tools/list":
            number = int(params.get("cursor") or 0)
            pages = self.editions[self.edition]
            more = {"nextCursor": str(number + 1)} if number + 1 < len(pages) else {}
            return b'"result":' + self.result({"tools": pages[number], **more}, **cacheable)
        if method == "tools/call" and params["name"] == "payload":
            return b'"result":' + self.result(
                {"content": [{"type": "text", "text": "x" * params["arguments"]["size"]}]}
            )
        if method == "tools/call" and params["name"] == "rows":
            rows = {"rows": [{"id": number, "name": f"row {number}", "score": number / 2} for number in range(20)]}
            text = [{"type": "text", "text": json.dumps(rows)}]
            return b'"result":' + self.result({"content": text, "structuredContent": rows})
        if method == "tools/call" and params["name"] == "storm":
            return b'"result":' + self.result({"content": [{"type": "text", "text": "calm again"}]})
        return b'"error":' + self.error(-32601)


@cache
def filler_schema() -> dict[str, Any]:
    """Return an input schema of about 1.4 kB."""
    kinds = ({"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "array", "items": {"type": "string"}})
    properties = {
        f"argument_{number:02}": {**kinds[number % 3], "description": f"What argument number {number} is good for."}
        for number in range(13)
    }
    return {"type": "object", "properties": properties, "required": ["argument_00"], "additionalProperties": False}


def filler(number: int, edition: str) -> dict[str, Any]:
    """Return one of many tools, 1.7 kB as JSON."""
    description = f"Tool number {number}, edition {edition}. ".ljust(330, "d")
    return {"name": f"tool_{number:05}", "description": description, "inputSchema": filler_schema()}


def write_all(data: bytes) -> None:
    """Write to standard output."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except BrokenPipeError:
        os._exit(0)


def serve_stdio(answers: Answers) -> None:
    """Answer line by line; what came in one piece is answered in one piece."""
    rest = b""
    while piece := os.read(0, 1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        out = [answer_line(answers, line) for line in lines if line]
        if out:
            write_all(b"".join(out))


def answer_line(answers: Answers, line: bytes) -> bytes:
    """Return the lines that answer a line."""
    quick = answers.quick(line)
    if quick is not None:
        return quick + b"\n"
    message = json.loads(line)
    answer = answers.answer(message)
    if answer is None:
        return b""
    notes = answers.notes(message)
    if message["method"] == "tools/call" and not notes:
        answers.learn(line, answer)
    return (NOTE + b"\n") * notes + answer + b"\n"


def http_response(answers: Answers, head: bytes, body: bytes) -> bytes:
    """Return the response to one request."""
    if not head.startswith(b"post"):
        status = b"405 Method Not Allowed" if head.startswith(b"get") else b"200 OK"
        return b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n"
    quick = answers.quick(body)
    if quick is not None:
        if answers.events:
            quick = EVENT % quick
            return EVENTS_HEAD % len(quick) + quick
        return OK_HEAD % len(quick) + quick
    message = json.loads(body)
    answer = answers.answer(message)
    if answer is None:
        return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    notes = answers.notes(message)
    if message["method"] == "tools/call" and not notes:
        answers.learn(body, answer)
    refused = message["method"] == "server/discover" and not answers.modern
    status = b"400 Bad Request" if refused else b"200 OK"
    session = SESSION if message["method"] == "initialize" else b""
    is_stream = bool(notes) or (answers.events and message["method"] == "tools/call")
    kind = b"text/event-stream" if is_stream else b"application/json"
    if is_stream:
        answer = EVENT % NOTE * notes + EVENT % answer
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n"
    return head % (status, kind, session, len(answer)) + answer


def serve_http(answers: Answers) -> None:
    """Answer POSTs with JSON on kept connections."""
    import asyncio

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport
            self.buffer = b""

        def data_received(self, data: bytes) -> None:
            self.buffer += data
            while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
                head = self.buffer[:end].lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                if len(self.buffer) < end + 4 + length:
                    return
                body, self.buffer = self.buffer[end + 4 : end + 4 + length], self.buffer[end + 4 + length :]
                self.transport.write(http_response(answers, head, body))

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(serve())


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=["legacy", "modern"], default="legacy")
    parser.add_argument("--tools", type=int, default=0)
    parser.add_argument("--page", type=int, default=100)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--events", action="store_true", help="answer calls over HTTP by a stream")
    parser.add_argument("--hang", action="store_true", help="read everything, answer nothing")
    options = parser.parse_args()
    if options.hang:
        sys.stdin.buffer.read()
        return
    answers = Answers(options.era, options.tools, options.page, events=options.events)
    if options.http:
        serve_http(answers)
    else:
        serve_stdio(answers)


if __name__ == "__main__":
    main()
