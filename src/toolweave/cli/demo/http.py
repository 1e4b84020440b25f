"""Serves a modern demo server over Streamable HTTP on the loopback. Knows no method of MCP."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from toolweave.cli.demo.peer import METHOD_NOT_FOUND, DemoServer, Json, member

__all__ = ["serving_http"]

LOOPBACK = ("127.0.0.1", "localhost")


@contextmanager
def serving_http(server: DemoServer) -> Generator[str]:
    """Serve in a thread while the block runs; yields the URL, on a free port of 127.0.0.1."""

    class Handler(_Handler):
        demo = server

    with _Listener(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}/mcp"
        finally:
            listener.shutdown()
            thread.join(5)


class _Listener(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a caller that went away; a fault of our own is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # pyright: ignore[reportArgumentType]  # passed on as it came


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    demo: DemoServer

    def do_POST(self) -> None:
        message = self._message()
        if message is None:
            return
        if "id" not in message:
            self._send(HTTPStatus.ACCEPTED, b"", "application/json")
            return
        if "progressToken" in member(member(message, "params"), "_meta"):
            self._stream(message)
            return
        answer = self.demo.answer(message, lambda _: None) or {}
        unknown = answer.get("error", {}).get("code") == METHOD_NOT_FOUND
        status = HTTPStatus.NOT_FOUND if unknown else HTTPStatus.OK
        self._send(status, json.dumps(answer).encode(), "application/json")

    def do_GET(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"", "text/plain")

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Say nothing: standard error belongs to the command that serves."""

    def _message(self) -> Json | None:
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in LOOPBACK or self.headers.get("Origin") is not None:
            self._send(HTTPStatus.FORBIDDEN, b"", "text/plain")  # a web page must not reach a local server
            return None
        try:
            message = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self._send(HTTPStatus.BAD_REQUEST, b"", "text/plain")
            return None
        return message  # pyright: ignore[reportUnknownVariableType]  # any JSON object

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, message: Json) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def event(value: Json) -> None:
            body = f"event: message\ndata: {json.dumps(value)}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            self.wfile.flush()

        try:
            event(self.demo.answer(message, event) or {})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the caller went away: that is how HTTP cancels
