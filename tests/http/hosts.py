"""Hosts with several addresses, some of which refuse or swallow what is sent to them."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest


@asynccontextmanager
async def swallowing(port: int) -> AsyncGenerator[str]:
    """Yield an address on which packets to a port are swallowed: its backlog is full."""
    address = "127.0.0.9"
    with socket.socket() as listener:
        listener.bind((address, port))
        listener.listen(0)
        full = [socket.socket() for _ in range(4)]
        for one in full:
            one.setblocking(False)
            one.connect_ex((address, port))
        try:
            yield address
        finally:
            for one in full:
                one.close()


def named(monkeypatch: pytest.MonkeyPatch, name: str, *addresses: str) -> None:
    """Let a name stand for addresses, which are found at once and without a thread."""
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        if host in (name, name.encode()):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]
        return real(host, port, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
