"""The reference servers, ready to be connected: a working folder, entries for stdio, URLs for HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.real.raw_wire import Era, RawListing, list_tools
from tests.reference.materials import make_work
from tests.reference.servers import INSTALLED, everything_over_http, stdio_entries


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    wanted = Path(__file__).parent
    for source in (wanted / "package.json", *wanted.glob("*.txt")):
        name = "npm" if source.name == "package.json" else source.stem
        stamp = INSTALLED / name / ".installed"
        if not stamp.exists() or stamp.read_bytes() != source.read_bytes():
            pytest.fail(f"{INSTALLED / name} is missing or old; run scripts/reference-servers", pytrace=False)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, a picture, a sound, a database with one row and a git repository with one commit."""
    return make_work(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="session")
def entries(work: Path) -> dict[str, dict[str, Any]]:
    """The eight reference servers as `mcpServers` entries."""
    return stdio_entries(work)


@pytest.fixture(scope="session")
def raw_listing(entries: dict[str, dict[str, Any]], work: Path) -> Callable[[str, Era], RawListing]:
    """Lists a server's tools straight off the wire, once per server and era."""

    @cache
    def listing(name: str, era: Era) -> RawListing:
        return list_tools(entries[name], cwd=work, era=era, timeout=30)

    return listing


@pytest.fixture(scope="session", params=["stdio", "streamableHttp", "sse"])
def everything(
    request: pytest.FixtureRequest, entries: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """The everything server over each of its transports, as an `mcpServers` entry."""
    if request.param == "stdio":
        yield entries["everything"]
        return
    with everything_over_http(request.param, tmp_path_factory.mktemp("everything") / "log") as url:
        yield {"type": "sse" if request.param == "sse" else "http", "url": url}


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {
            "/robots.txt": ("text/plain", "User-agent: *\nDisallow: /private\n"),
            "/page.html": ("text/html", "<html><body><h1>Looms</h1><p>A loom <b>weaves</b> cloth.</p></body></html>"),
            "/private": ("text/plain", "not for robots"),
        }
        kind, text = pages.get(self.path, ("text/plain", "nothing here"))
        self.send_response(200 if self.path in pages else 404)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture(scope="session")
def website() -> Iterator[str]:
    """A site on the loopback with a robots.txt, one page for robots and one not; yields its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(timeout=10)
