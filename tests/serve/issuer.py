"""An issuer on its own port that answers as a test sets, and counts its requests. Asserts nothing."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

__all__ = ["AUDIENCE", "KEY", "STRANGER", "Issuer", "Page", "as_jwk", "running_issuer"]

AUDIENCE = "https://api.example/mcp"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer; `body` is JSON unless it is bytes."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])


Answer = Callable[[dict[str, str], dict[str, str]], Page]
"""Returns the answer to a form and headers."""


class Issuer:
    """An issuer; `pages` are its answers by path.

    Attributes:
        url: Its origin, and its identifier.
        asked: The paths that were asked for, in order.
        pages: Answers by path; 404 for every other.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.pages: dict[str, Page | Answer] = {}

    def publish(self, keys: list[Any] | None = None, *, path: str = "", **metadata: Any) -> None:
        """Publish metadata of RFC 8414 and keys."""
        well_known = f"/.well-known/oauth-authorization-server{path}"
        document = {"issuer": self.url + path, "jwks_uri": f"{self.url}/keys", **metadata}
        self.pages[well_known] = Page(document)
        self.pages["/keys"] = Page({"keys": [as_jwk(KEY, "k1")] if keys is None else keys})

    def token(
        self, key: Any = KEY, algorithm: str = "RS256", *, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """Return a token; a claim or a key id that is None is left out."""
        said = {
            "iss": self.url,
            "aud": AUDIENCE,
            "exp": int(time.time()) + 600,
            "sub": "u-1",
            "client_id": "app",
            "scope": "call",
            **claims,
        }
        kept = {name: value for name, value in said.items() if value is not None}
        headers = {"kid": "k1", **(header or {})}
        if headers["kid"] is None:
            del headers["kid"]
        return jwt.encode(kept, key, algorithm=algorithm, headers=headers)


def as_jwk(key: Any, key_id: str) -> dict[str, Any]:
    """Return the public half of an RSA key as it is published."""
    return {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig"}


@contextmanager
def running_issuer() -> Generator[Issuer]:
    """Run an issuer for the block."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({})

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            self.answer({name: values[0] for name, values in parse_qs(text).items()})

        def answer(self, form: dict[str, str]) -> None:
            path = urlsplit(self.path).path
            issuer.asked.append(path)
            page = issuer.pages.get(path, Page(status=404))
            if not isinstance(page, Page):
                page = page(form, {name.lower(): value for name, value in self.headers.items()})
            body = page.body if isinstance(page.body, bytes) else json.dumps(page.body).encode()
            try:
                self.send_response(page.status)
                for name, value in page.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # the client did not read all of it

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    issuer = Issuer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
