"""A real HTTP server made from an OpenAPI document: it routes by the document's paths, and decodes by its styles.

Shares no line with the product. It records each request and says in its answer which operation it reached.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["MockApi", "MockResponse", "Received", "decoded", "serving"]


@dataclass
class Received:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    operation: str = ""
    path: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class MockResponse:
    """An answer: bytes as they are, anything else as JSON."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class MockApi:
    """A document as a server."""

    def __init__(self, document: Mapping[str, Any], prefix: str = "") -> None:
        self.document = document
        self.received: list[Received] = []
        self.answers: dict[str, MockResponse | Callable[[Received], MockResponse]] = {}
        self._routes = [
            (f"{method.upper()} {path}", method.upper(), re.compile(_pattern(prefix + path)))
            for path, item in document.get("paths", {}).items()
            for method in ("get", "head", "post", "put", "patch", "delete")
            if method in item
        ]

    @property
    def last(self) -> Received:
        return self.received[-1]

    def forms(self, operation: str) -> set[str]:
        """Return the operations whose paths differ from this one's by the names of expressions, or by being literal."""
        method, _, path = operation.partition(" ")
        shape = re.compile(re.sub(r"\\{[^{}]+\\}", "[^/]+", re.escape(path)))
        return {name for name, own, _ in self._routes if own == method and shape.fullmatch(name.partition(" ")[2])}

    def answer(self, request: Received) -> MockResponse:
        """Route a request; the more literal path wins, as the specification has it."""
        path = urlsplit(request.target).path
        found = [
            (pattern.pattern.count("("), name, match)
            for name, method, pattern in self._routes
            if method == request.method and (match := pattern.fullmatch(path))
        ]
        if not found and path not in self.answers:
            return MockResponse({"error": "no such route"}, 404)
        if found:
            _, request.operation, match = min(found, key=lambda one: one[0])
            request.path = {_unmangled(name): text for name, text in match.groupdict().items()}
        self.received.append(request)
        made = self.answers.get(request.operation) or self.answers.get(path)
        if callable(made):
            return made(request)
        return made or MockResponse({"operation": request.operation})


def _pattern(path: str) -> str:
    parts = re.split(r"\{([^{}]+)\}", path)
    return "".join(
        f"(?P<{_mangled(part)}>[^/]*)" if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )


def _mangled(name: str) -> str:
    return "p_" + name.encode().hex()


def _unmangled(name: str) -> str:
    return bytes.fromhex(name.removeprefix("p_")).decode()


@contextmanager
def serving(api: MockApi) -> Generator[str]:
    """Serve on the loopback; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            made = api.answer(Received(self.command, self.path, headers, self.rfile.read(length)))
            body = (
                made.body
                if isinstance(made.body, bytes)
                else b""
                if made.status == 204
                else json.dumps(made.body).encode()
            )
            self.send_response(made.status)
            sent = {"content-type": "application/json", "content-length": str(len(body)), **made.headers}
            for name, value in sent.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output clean."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Keep the output clean: a client may go in the middle of an answer."""

    with Server(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(timeout=10)


def decoded(text: str, *, name: str, style: str, explode: bool, kind: str) -> Any:
    """Decode the text of a path parameter by the table of the specification ("Style Examples"); values are texts."""
    prefix = {"simple": "", "label": ".", "matrix": ";"}[style]
    assert text.startswith(prefix)
    text = text.removeprefix(prefix)
    if style == "matrix" and not (kind == "object" and explode):
        items = [item.removeprefix(f"{name}").removeprefix("=") for item in text.split(";")]
        if kind == "array" and explode:
            return [unquote(item) for item in items]
        (text,) = items
    if kind == "text":
        return unquote(text)
    separator = {"simple": ",", "label": ".", "matrix": ";"}[style] if explode else ","
    items = text.split(separator)
    if kind == "array":
        return [unquote(item) for item in items]
    if explode:
        return {unquote(key): unquote(value) for key, _, value in (item.partition("=") for item in items)}
    words = cast("Iterator[str]", map(unquote, items))
    return dict(zip(words, words, strict=True))
