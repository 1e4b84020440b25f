"""TCP connections to the first address of a host that answers ("Happy Eyeballs", RFC 8305).

The race is that of `aiohappyeyeballs`: `create_connection` of uvloop has no `happy_eyeballs_delay`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import anyio.lowlevel

ATTEMPT_SECONDS = 0.25
"""The wait before the next address is tried as well (RFC 8305, 5)."""

# Any: what a family's addresses hold.
Address = tuple[socket.AddressFamily, tuple[Any, ...]]
"""The address of a socket with its family: as `(AF_INET, ("192.0.2.1", 443))`."""


async def connect_tcp(host: str, port: int, addresses: Sequence[Address] = ()) -> socket.socket:
    """Return a connected socket; given addresses are taken instead of those that the host's name has.

    The addresses of the host are tried in the resolver's order, families in turn, each `ATTEMPT_SECONDS` after the
    one before it, or at once when that one fails. The first that connects is kept, the others are closed.

    Raises:
        OSError: The name has no address, or none of them connects; the text of one failure, or of all.
    """
    # imported at the first connection: not every process makes one
    from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]

    addresses = addresses or await resolve(host, port)
    infos = [(family, socket.SOCK_STREAM, 0, "", address) for family, address in addresses]
    cancellations = _cancellations()
    try:
        connection = await start_connection(infos, happy_eyeballs_delay=ATTEMPT_SECONDS)
    except RuntimeError as exc:
        # uvloop may report a failed connect like this
        raise OSError(str(exc)) from exc
    if _cancellations() > cancellations:
        # While the library waits for the attempts that lost, it swallows a cancellation.
        connection.close()
        await anyio.lowlevel.checkpoint_if_cancelled()
        raise asyncio.CancelledError
    return connection


def _cancellations() -> int:
    """Return how often the current task was cancelled."""
    task = asyncio.current_task()
    if task is None:
        return 0
    return task.cancelling()


async def resolve(host: str, port: int) -> list[Address]:
    """Return the addresses of a host, in the resolver's order (RFC 6724).

    Raises:
        OSError: The name has no address.
        UnicodeError: The text is not a host name.
    """
    try:
        # With AI_NUMERICHOST the call reads no file and asks no server, so it may run on the loop; a thread would cost
        # more than the connect.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        # It is not an address: a name needs a thread.
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not found:
        raise OSError("it has no address")
    return [(family, address) for family, _, _, _, address in found]
