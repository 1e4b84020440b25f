"""Who calls a protected server: attacks with tokens and requests, over real HTTP, and what the server answers."""

from __future__ import annotations

import contextlib
import hmac
import http.client
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from experiments.attacks.playing import NONE, Peer
from tests.conformance.server_process import serving

__all__ = ["ROWS", "Answer", "Guest", "GuestAttack", "protected"]

SCRIPT = str(Path(__file__).parents[2] / "tests" / "reference" / "protected_servers.py")
KINDS = {"toolweave": "ours", "toolweave-gateway": "gateway", "sdk": "sdk", "fastmcp": "fastmcp"}
LET_IN, REFUSED = "let in", "refused"
_SECONDS = 30
_LONG = 30_000_000
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "guest", "version": "1"},
}


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    text: str


class Guest:
    """Who calls one server, with tokens of its issuer and of nobody.

    Attributes:
        peer: The library that serves.
        url: The endpoint.
    """

    def __init__(self, peer: Peer, url: str, issuer: Issuer) -> None:
        self.peer = peer
        self.url = url
        self._issuer = issuer

    def token(self, subject: str = "ada", **claims: Any) -> str:
        """Return a token that is good but for these claims."""
        return self._issuer.token(self.url, subject, **claims)

    def forged(self, algorithm: str) -> str:
        """Return a token that its issuer has not signed: with the public key as a secret, or not at all."""
        return self._issuer.forged(self.url, algorithm)

    def send(self, body: bytes | Mapping[str, Any], token: str, **headers: str) -> Answer:
        """Post a message."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**_HEADERS, "Authorization": f"Bearer {token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_SECONDS)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may answer before it has read all
                connection.request("POST", parts.path, data, sent)
            try:
                answer = connection.getresponse()
            except ConnectionResetError:
                return Answer(413, {}, "")  # closed without a word, while the body was sent
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, self._read(answer))
        finally:
            connection.close()

    @staticmethod
    def _read(answer: http.client.HTTPResponse) -> str:
        if "event-stream" not in (answer.getheader("content-type") or ""):
            return answer.read().decode("utf-8", "replace")
        lines: list[str] = []
        while line := answer.readline().decode():
            lines.append(line)
            if line.startswith("data: {"):
                break
        return "".join(lines)

    def hello(self, token: str, **headers: str) -> Answer:
        """Begin a session."""
        return self.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO}, token, **headers)

    def session(self, token: str) -> dict[str, str]:
        """Begin a session and return the headers of its requests."""
        begun = self.hello(token)
        if begun.status != 200:
            raise RuntimeError(f"{self.peer.name}: a good token is not let in: {begun}")
        named = {"mcp_session_id": begun.headers["mcp-session-id"], "mcp_protocol_version": "2025-11-25"}
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, token, **named)
        return named


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


class Issuer:
    """An authorization server of which nothing but its keys is needed."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self.url = ""
        self.keys = {"keys": [{**RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True), "kid": "1", "use": "sig"}]}

    def _claims(self, audience: str, subject: str) -> dict[str, Any]:
        now = int(time.time())
        named = {"iss": self.url, "aud": audience, "sub": subject, "client_id": f"client-of-{subject}"}
        return {**named, "iat": now, "exp": now + 600, "scope": "mcp:basic"}

    def token(self, audience: str, subject: str, **claims: Any) -> str:
        """Return a token."""
        claims = {**self._claims(audience, subject), **claims}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": "1"})

    def forged(self, audience: str, algorithm: str) -> str:
        """Return a token that is not signed with the key."""
        claims = self._claims(audience, "mallory")
        if algorithm == "none":
            return jwt.encode(claims, "", "none", headers={"kid": "1"})
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT", "kid": "1"}, claims)]
        signed = b".".join(_encoded(part) for part in parts)  # PyJWT itself makes none with a public key
        digest = hmac.new(public, signed, "sha256").digest()
        return b".".join([signed, _encoded(digest)]).decode()


@contextlib.contextmanager
def protected(peer: Peer, folder: Path) -> Generator[Guest]:
    """Serve with a library that has servers; yield who calls."""
    issuer = Issuer()

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(issuer.keys).encode()
            self.send_response(200 if self.path == "/jwks" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Keys) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with serving(folder / "log", command=(peer.python, SCRIPT, KINDS[peer.name], issuer.url)) as url:
                yield Guest(peer, url, issuer)
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAttack:
    """One row.

    Attributes:
        attack: The attack, in words.
        ours: The outcome with Toolweave.
        play: Plays it and returns the cell.
        by_token: Whether it is about tokens, which the SDK leaves to a verifier of its user.
    """

    attack: str
    ours: str
    play: Callable[[Guest], str]
    by_token: bool = False

    def cell(self, guest: Guest) -> str:
        """Return the cell of a library that has servers."""
        return NONE if self.by_token and guest.peer.name == "sdk" else self.play(guest)


def judged(answer: Answer) -> str:
    """Return whether a request was let in."""
    return LET_IN if answer.status == 200 else REFUSED


def another_session(guest: Guest) -> str:
    """Use a session that somebody else has begun."""
    session = guest.session(guest.token("ada"))
    listed = guest.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, guest.token("bob"), **session)
    return judged(listed)


def long_body(guest: Guest) -> str:
    """Send a long body."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {**_HELLO, "pad": "x" * _LONG}}
    answer = guest.send(message, guest.token())
    return REFUSED if answer.status == 413 else f"{_LONG // 1_000_000} MB are read"


def crash(guest: Guest) -> str:
    """Make a tool fail, and read why."""
    token = guest.token()
    session = guest.session(token)
    asked: dict[str, Any] = {"name": "crash", "arguments": {}}
    answer = guest.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked}, token, **session)
    if "rror" not in answer.text:
        raise RuntimeError(f"{guest.peer.name}: it did not fail: {answer}")
    return "sent to the caller" if "/srv/secrets" in answer.text else "masked"


def fits(guest: Guest) -> str:
    """Return the port of the server's Host header."""
    return f"evil.example:{urlsplit(guest.url).port}"


ROWS = (
    GuestAttack(
        attack="a token for another audience",
        ours="401",
        play=lambda guest: judged(guest.hello(guest.token(aud="https://sibling.example/mcp"))),
        by_token=True,
    ),
    GuestAttack(
        attack="a token without a signature (`none`)",
        ours="401",
        play=lambda guest: judged(guest.hello(guest.forged("none"))),
        by_token=True,
    ),
    GuestAttack(
        attack="a token signed with the public key as a secret (HS256)",
        ours="401",
        play=lambda guest: judged(guest.hello(guest.forged("HS256"))),
        by_token=True,
    ),
    GuestAttack(
        attack="an ID token in the place of an access token",
        ours="401",
        play=lambda guest: judged(guest.hello(guest.token(nonce="n", at_hash="h"))),
        by_token=True,
    ),
    GuestAttack(
        attack="a stolen token that is bound to a key, sent as `Bearer`",
        ours="401",
        play=lambda guest: judged(guest.hello(guest.token(cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}))),
        by_token=True,
    ),
    GuestAttack(
        attack="a web page whose name suddenly means this machine (DNS rebinding)",
        ours="421",
        play=lambda guest: judged(guest.hello(guest.token(), host=fits(guest))),
    ),
    GuestAttack(
        attack="a request of a web page elsewhere (`Origin`)",
        ours="403",
        play=lambda guest: judged(guest.hello(guest.token(), origin="https://evil.example")),
    ),
    GuestAttack(attack="a session that another user started", ours="404", play=another_session),
    GuestAttack(attack="a body of 30 MB", ours="413, and never held", play=long_body),
    GuestAttack(attack="a tool that fails, to read of its inside", ours="masked", play=crash),
)
