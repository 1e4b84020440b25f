"""Servers whose TLS fails, at the command: the error names what is wrong with it, and what to do."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.command import toolweave
from tests.connect.proxying import certificate, serving_tls

pytestmark = pytest.mark.slow


class Page(BaseHTTPRequestHandler):
    """Answers no request of MCP."""

    def do_POST(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    """A server that does not report requests that fail."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def serving(tls: ssl.SSLContext | None) -> Generator[int]:
    """Serve for the block; yield the port."""
    with Quiet(("127.0.0.1", 0), Page) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(10)


def wanting_a_certificate(version: ssl.TLSVersion) -> Callable[[Path], ssl.SSLContext]:
    def made(folder: Path) -> ssl.SSLContext:
        file = certificate(folder)
        tls = serving_tls(file)
        tls.maximum_version = version
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(file)
        return tls

    return made


@dataclass(frozen=True)
class Failure:
    """A way in which TLS fails.

    Attributes:
        serve: Makes what the server serves with; None for a server without TLS.
        says: What the error names.
        step: What it says to do.
        trusted: Whether the client trusts the server's certificate.
        variables: The environment of the command, `{folder}` in it.
        scheme: That of the URL.
    """

    serve: Callable[[Path], ssl.SSLContext] | None
    says: str
    step: str
    trusted: bool = False
    variables: dict[str, str] = field(default_factory=dict[str, str])
    scheme: str = "https"


def self_signed(folder: Path) -> ssl.SSLContext:
    return serving_tls(certificate(folder))


FAILURES: dict[str, Failure] = {
    "a self-signed certificate": Failure(
        self_signed,
        "self-signed certificate",
        "to trust a certificate authority of your own, name its file in SSL_CERT_FILE",
    ),
    "an authority in another program's variable": Failure(
        self_signed,
        "self-signed certificate",
        "name its file in SSL_CERT_FILE; REQUESTS_CA_BUNDLE is not read",
        variables={"REQUESTS_CA_BUNDLE": "{folder}/certificate.pem"},
    ),
    "a file of authorities that is not there": Failure(
        self_signed,
        "self-signed certificate",
        "SSL_CERT_FILE names '{folder}/company.pem', which is not a file",
        variables={"SSL_CERT_FILE": "{folder}/company.pem"},
    ),
    "a file without the authority": Failure(
        self_signed,
        "self-signed certificate",
        "SSL_CERT_FILE names '{folder}/other.pem', which does not have the authority of this server: add it there",
        variables={"SSL_CERT_FILE": "{folder}/other.pem"},
    ),
    "a certificate that has expired": Failure(
        lambda folder: serving_tls(certificate(folder, days=-1)),
        "certificate has expired",
        "the server's certificate has expired: its operator has to renew it, or this machine's clock is wrong",
        trusted=True,
    ),
    "a certificate for another name": Failure(
        lambda folder: serving_tls(certificate(folder, name="tools.example")),
        "certificate is not valid for '127.0.0.1'",
        "the server's certificate is for another name than '127.0.0.1': use the name that it is for, in the URL",
        trusted=True,
    ),
    "a certificate of the client that is wanted": Failure(
        wanting_a_certificate(ssl.TLSVersion.TLSv1_3),
        "no answer from https://",
        "a certificate of this client, and none is sent",
        trusted=True,
    ),
    "the same before TLS 1.3": Failure(
        wanting_a_certificate(ssl.TLSVersion.TLSv1_2),
        "no answer from https://",
        "a certificate of this client, and none is sent",
        trusted=True,
    ),
    "a port without TLS": Failure(None, "wrong version number", "write http:// in place of https://"),
    "a port with TLS": Failure(
        self_signed, "no answer from http://", "write https:// in place of http://", scheme="http"
    ),
}


@pytest.mark.parametrize("command", ["tools", "doctor"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=list(FAILURES))
def test_what_is_wrong_with_tls_is_named_with_the_next_step(folder: Path, command: str, failure: Failure) -> None:
    other = folder / "other"
    other.mkdir()
    certificate(other).rename(folder / "other.pem")
    tls = None if failure.serve is None else failure.serve(folder)
    variables = {"SSL_CERT_FILE": ""}  # whatever this machine has
    variables |= {name: value.format(folder=folder) for name, value in failure.variables.items()}
    if failure.trusted:
        variables["SSL_CERT_FILE"] = str(folder / "certificate.pem")
    with serving(tls) as port:
        done = toolweave(command, "--url", f"{failure.scheme}://127.0.0.1:{port}/mcp", env=variables)

    text = " ".join((done.err if command == "tools" else done.out).split())
    assert done.code == 3
    assert failure.says in text
    assert failure.step.format(folder=folder) in text
    assert "Traceback" not in done.err


def test_a_server_of_a_company_is_reached_by_its_file_of_authorities(folder: Path) -> None:
    tls = self_signed(folder)
    with serving(tls) as port:
        done = toolweave(
            "tools", "--url", f"https://127.0.0.1:{port}/mcp", env={"SSL_CERT_FILE": str(folder / "certificate.pem")}
        )

    assert "HTTP 404" in done.err  # of the server, so TLS was right
    assert "certificate" not in done.err
