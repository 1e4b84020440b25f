"""An HTTP proxy and a certificate, made up on the spot. Asserts nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["ProxyRecord", "ProxyRequest", "certificate", "proxying", "serving_tls"]

REFUSAL = b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n"


def certificate(folder: Path, *, name: str = "", days: int = 1) -> Path:
    """Write a certificate for 127.0.0.1 and localhost with its key; return the file.

    Args:
        folder: Where the file is written.
        name: The only host that it is for, instead of those.
        days: For how many days from now it is valid; a negative number for one that has expired.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    hosts: list[x509.GeneralName] = [x509.DNSName(name)]
    if not name:
        hosts = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=10))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return file


def serving_tls(file: Path) -> ssl.SSLContext:
    """Return what serves with a certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    return tls


@dataclass(frozen=True)
class ProxyRequest:
    """The head of one request to a proxy; `headers` have lower-case names."""

    line: str
    headers: dict[str, str]


@dataclass
class ProxyRecord:
    """What a proxy sees of those who go through it.

    Attributes:
        url: The proxy's own URL.
        asked: The heads of the requests that came to it.
        carried: The bytes that went through its tunnels, both ways.
        connections: How many were made to it.
    """

    url: str = ""
    asked: list[ProxyRequest] = field(default_factory=list[ProxyRequest])
    carried: bytearray = field(default_factory=bytearray)
    connections: int = 0

    @property
    def lines(self) -> list[str]:
        """The request lines that came."""
        return [asked.line for asked in self.asked]

    def with_user(self, user: str, password: str) -> str:
        """Return the URL with credentials in it."""
        return self.url.replace("://", f"://{quote(user, safe='')}:{quote(password, safe='')}@")

    async def read(self, reader: asyncio.StreamReader) -> ProxyRequest:
        """Read the head of a request."""
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        parts = [one.partition(":") for one in fields]
        asked = ProxyRequest(line, {name.lower(): value.strip() for name, _, value in parts})
        self.asked.append(asked)
        return asked


@asynccontextmanager
async def proxying(
    *, answer: bytes = b"", password: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[ProxyRecord]:
    """Run a proxy for the block; yield what it sees.

    It gives each request `answer`, if there is one; it asks for the user `me` and a `password`, if there is one.
    """
    seen = ProxyRecord()
    wanted = None if password is None else f"Basic {b64encode(f'me:{password}'.encode()).decode()}"
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        seen.connections += 1
        try:
            asked = await seen.read(reader)
            if answer or (wanted is not None and asked.headers.get("proxy-authorization") != wanted):
                writer.write(answer or REFUSAL)
                await writer.drain()
                return
            await _serve(asked, reader, writer, seen)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side is gone, or the test is over
        finally:
            writer.close()
            running.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    seen.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield seen
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        if running:
            await asyncio.wait(running)


async def _serve(
    asked: ProxyRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: ProxyRecord
) -> None:
    method, target, _ = asked.line.split(" ")
    place = urlsplit(f"//{target}" if method == "CONNECT" else target)
    there, out = await asyncio.open_connection(place.hostname, place.port)
    try:
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ways = [_pump(reader, out, seen.carried), _pump(there, writer, seen.carried)]
        else:
            ways = [_forward(asked, reader, out, seen), _pump(there, writer)]
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        out.close()


async def _forward(
    asked: ProxyRequest, reader: asyncio.StreamReader, out: asyncio.StreamWriter, seen: ProxyRecord
) -> None:
    """Pass on request after request, each without what is meant for the proxy."""
    while True:
        method, target, version = asked.line.split(" ")
        url = urlsplit(target)
        lines = [f"{method} {url.path}{f'?{url.query}' if url.query else ''} {version}"]
        lines += [f"{name}: {value}" for name, value in asked.headers.items() if name != "proxy-authorization"]
        out.write("\r\n".join([*lines, "", ""]).encode())
        out.write(await reader.readexactly(int(asked.headers.get("content-length", "0"))))
        asked = await seen.read(reader)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, copy: bytearray | None = None) -> None:
    while data := await source.read(65536):
        if copy is not None:
            copy += data
        sink.write(data)
        await sink.drain()
