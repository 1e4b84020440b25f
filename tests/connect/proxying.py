"""An HTTP proxy and a certificate, made up on the spot. Asserts nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["certificate", "proxying"]


def certificate(folder: Path) -> Path:
    """Write a certificate for 127.0.0.1 and localhost with its key; return the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return file


@asynccontextmanager
async def proxying(*, refuse: bool = False) -> AsyncGenerator[tuple[str, list[str]]]:
    """Run a proxy for the block; yield its URL and the list of the request lines that came."""
    lines: list[str] = []
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await _serve(reader, writer, lines, refuse=refuse)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side is gone, or the test is over
        finally:
            writer.close()
            running.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", lines
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        if running:
            await asyncio.wait(running)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lines: list[str], *, refuse: bool) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    line = head.partition(b"\r\n")[0].decode()
    lines.append(line)
    if refuse:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        return
    method, target, version = line.split(" ")
    place = urlsplit(f"//{target}" if method == "CONNECT" else target)
    there, out = await asyncio.open_connection(place.hostname, place.port)
    try:
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            out.write(f"{method} {place.path} {version}\r\nconnection: close\r\n".encode() + head.partition(b"\r\n")[2])
        ways = [asyncio.ensure_future(_pump(reader, out)), asyncio.ensure_future(_pump(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
    finally:
        out.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
