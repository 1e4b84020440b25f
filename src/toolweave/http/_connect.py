"""TCP connections to the first address of a host that answers ("Happy Eyeballs", RFC 8305).

Own code because uvloop's `create_connection` has no `happy_eyeballs_delay`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

import anyio

from toolweave._json_types import not_none

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
    addresses = addresses or await resolve(host, port)
    # Nothing to race, which is the case for every server on this machine: no task group.
    if len(addresses) == 1:
        return await _connected(*addresses[0])
    winner: list[socket.socket] = []
    failures: list[OSError] = []

    async def attempt(address: Address, over: anyio.Event) -> None:
        try:
            connection = await _connected(*address)
        except OSError as exc:
            # RFC 8305, 5: the next attempt starts at once when one fails; `over` ends the wait of the loop below.
            failures.append(exc)
            over.set()
            return
        if winner:
            # Another was first, in this very turn of the event loop.
            connection.close()
            return
        # Between the connect and this line no other task runs, so the first one to get here has won; cancelling the
        # group ends the attempts, each of which closes its own socket.
        winner.append(connection)
        attempts.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as attempts:
            for address in addresses:
                over = anyio.Event()
                attempts.start_soon(attempt, address, over)
                # Not a bound of the attempt, which continues beside the next one: only the stagger between them. The
                # block then waits for all that are still open.
                with anyio.move_on_after(ATTEMPT_SECONDS):
                    await over.wait()
    except BaseException:
        # Cancelled just after one had won: it has no other owner, so it would leak.
        for connection in winner:
            connection.close()
        raise
    if winner:
        return winner[0]
    texts = list(dict.fromkeys(map(str, failures)))
    raise failures[0] if len(texts) == 1 else OSError("; ".join(texts))


async def _connected(family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


async def resolve(host: str, port: int) -> list[Address]:
    """Return the addresses of a host, those of the first one's family and of the others in turn (RFC 8305, 4).

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
    addresses: list[Address] = [(family, address) for family, _, _, _, address in found]
    if not addresses:
        raise OSError("it has no address")
    # RFC 8305, 4: the resolver has sorted by preference (RFC 6724); a broken family costs one stagger, not one per
    # address.
    first = [one for one in addresses if one[0] == addresses[0][0]]
    other = [one for one in addresses if one[0] != addresses[0][0]]
    return not_none(chain.from_iterable(zip_longest(first, other)))
