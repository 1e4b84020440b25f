"""A registry on the loopback: `/v0.1/servers` with search, pages and versions, and what else a test has it answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.install.published import ENTRIES

__all__ = ["Reply", "ServedRegistry", "serve_registry"]

PATH = "/v0.1/servers"


class Reply:
    """One answer.

    Args:
        status: Its status.
        body: Its bytes, or a value that becomes JSON.
        headers: More headers.
        waits: Whether it is sent only when the registry ends.
        endless: Whether its body does not end.
    """

    def __init__(
        self,
        status: int = 200,
        body: object = b"",
        headers: Mapping[str, str] | None = None,
        *,
        waits: bool = False,
        endless: bool = False,
    ) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.headers = dict(headers or {})
        self.waits = waits
        self.endless = endless


class ServedRegistry:
    """The registry while it runs.

    Attributes:
        url: Its base URL.
        entries: What it lists.
        replies: The answers to some paths, in place of its own.
        asked: The requests so far, paths with queries.
    """

    def __init__(self) -> None:
        self.url = ""
        self.entries = list(ENTRIES)
        self.replies: dict[str, Reply] = {}
        self.asked: list[str] = []
        self.ended = threading.Event()

    def reset(self) -> None:
        """Forget what a test changed."""
        self.entries = list(ENTRIES)
        self.replies = {}
        self.asked = []

    def answer(self, target: str) -> Reply:
        """Return the answer to a GET."""
        self.asked.append(target)
        parts = urlsplit(target)
        if parts.path in self.replies:
            return self.replies[parts.path]
        if parts.path == PATH:
            return self._listed({name: values[0] for name, values in parse_qs(parts.query).items()})
        words = parts.path.removeprefix(f"{PATH}/").split("/")
        if parts.path.startswith(f"{PATH}/") and len(words) == 3 and words[1] == "versions":
            return self._version(unquote(words[0]), unquote(words[2]))
        return Reply(404, {"error": "not found"})

    def _listed(self, query: dict[str, str]) -> Reply:
        listed = [one for one in self.entries if query.get("search", "") in json.dumps(one["server"])]
        listed = [one for one in listed if "deleted" not in json.dumps(one["_meta"])]
        at, limit = int(query.get("cursor", "0")), int(query.get("limit", "30"))
        page = listed[at : at + limit]
        metadata: dict[str, Any] = {"count": len(page)}
        if at + limit < len(listed):
            metadata["nextCursor"] = str(at + limit)
        return Reply(200, {"servers": page, "metadata": metadata})

    def _version(self, name: str, version: str) -> Reply:
        for one in self.entries:
            if one["server"]["name"] == name and version in ("latest", one["server"]["version"]):
                return Reply(200, one)
        return Reply(404, {"title": "Not Found", "status": 404, "detail": "Server not found"})


@contextmanager
def serve_registry() -> Generator[ServedRegistry]:
    """Run a registry on a free port."""
    registry = ServedRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            reply = registry.answer(self.path)
            if reply.waits:
                registry.ended.wait(60)
            self.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            if reply.endless:
                self.send_header("connection", "close")
                self.end_headers()
                while not registry.ended.is_set():
                    self.wfile.write(b" " * 65536)
            else:
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output clean."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Keep the output clean: a client may go in the middle of an answer."""

    with Server(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield registry
        finally:
            registry.ended.set()
            server.shutdown()
            thread.join(timeout=10)
