"""The HTTP test server does what it says, seen by a raw client."""

from __future__ import annotations

import http.client
import json
import urllib.request

import pytest

from .fixtures import http_server, running
from .raw import post


def initialized(url: str) -> dict[str, str]:
    """Shake hands; return the headers of the session."""
    status, headers, _ = post(url, "initialize", protocolVersion="2025-11-25")
    assert status == 200
    return {"Mcp-Session-Id": headers["mcp-session-id"]}


def get_lines(url: str, count: int, headers: dict[str, str] | None = None) -> tuple[object, list[str]]:
    """Open an event stream; return it and its first data lines."""
    stream = urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=5)  # noqa: S310
    return stream, read_data(stream, count)


def read_data(stream: object, count: int) -> list[str]:
    """Return the next data lines of an event stream."""
    found: list[str] = []
    while len(found) < count:
        line: bytes = stream.readline()  # type: ignore[attr-defined]
        if line.startswith(b"data: "):
            found.append(line[6:].decode().strip())
    return found
