"""The connections of an HTTP server: which one is closed when there are too many, and when an idle one is.

All of it runs in the event loop, called by the connections themselves as they are made, become idle and are lost, so
every number here is that of the connections that exist. Knows nothing of HTTP beyond what `CountedConnection` says.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from toolweave.serve._http.callers import UNKNOWN
from toolweave.serve._http.shares import HttpShares, Shares

_SPARE = 100  # connections beyond the maximum whose requests are read, to be refused with a status
_PROXIES = "proxies"


class CountedConnection(Protocol):
    """A connection that counts for an address.

    Attributes:
        is_excess: Whether it came beyond the maximum, and none could be closed for it.
    """

    is_excess: bool

    @property
    def host(self) -> str | None:
        """The address of the client; None if the system does not report it."""
        ...

    @property
    def still_sends(self) -> bool:
        """Whether a request has begun and is not complete yet."""
        ...

    def give_way(self) -> None:
        """Close the connection for one of another address."""
        ...

    def close_idle(self) -> None:
        """Close the connection: it was idle for too long."""
        ...


class IdleConnections:
    """The idle connections of a server, longest idle first, and one timer that closes them in time.

    Args:
        seconds: How long each may be idle.

    Attributes:
        since: When each became idle, on the event loop's clock; infinite for one without a request.
    """

    def __init__(self, seconds: float) -> None:
        self.since: dict[CountedConnection, float] = {}
        self._seconds = seconds
        self._is_timed = False

    def add(self, connection: CountedConnection, loop: asyncio.AbstractEventLoop) -> None:
        """Count a connection as idle from now on."""
        self.since[connection] = loop.time()
        # One timer for all of them: a timer for each response costs more than the check of a few connections.
        if not self._is_timed:
            self._is_timed = True
            loop.call_later(self._seconds, self._close_late, loop)

    def _close_late(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        first = math.inf
        for connection, since in list(self.since.items()):
            if now - since >= self._seconds:
                connection.close_idle()
            else:
                first = min(first, since)
        self._is_timed = first != math.inf
        if self._is_timed:  # slightly later than the first one needs, for those that follow it
            loop.call_at(first + self._seconds * 1.02, self._close_late, loop)


class OpenConnections:
    """The open connections by address, so that no address takes all of them.

    Those of trusted proxies count for no address: each carries the requests of many callers.

    Args:
        shares: The shares of the app.
        idle: The idle connections.
        maximum: Maximum number of connections; None for no bound.
    """

    def __init__(self, shares: HttpShares, idle: IdleConnections, maximum: int | None) -> None:
        self._callers = shares.callers
        self._figures = shares.figures["connections"]
        self._shares = Shares(self._figures)
        self._idle = idle
        self._maximum = maximum
        self._by_address: dict[str, dict[CountedConnection, None]] = {}
        self._address: dict[CountedConnection, str] = {}

    def add(self, connection: CountedConnection) -> None:
        """Count a new connection; beyond the maximum, close another one if any may be closed."""
        address = self._address_of(connection)
        self._address[connection] = address
        self._by_address.setdefault(address, {})[connection] = None
        self._shares.add(address)
        if self._maximum is None or self._figures.held <= self._maximum:
            return
        found = self._to_close(address)
        if found is not None:
            self._figures.evicted += 1
        elif self._figures.held <= self._maximum + _SPARE:
            connection.is_excess = True
            return
        else:
            found = connection
            self._figures.refused += 1
        # Forgotten now and not when the socket is closed: the numbers have to be right for the next connection.
        self.remove(found)
        found.give_way()

    def remove(self, connection: CountedConnection) -> None:
        """Forget a connection that is closed, or is about to be; does nothing the second time."""
        address = self._address.pop(connection, None)
        if address is None:
            return
        self._shares.remove(address)
        there = self._by_address[address]
        del there[connection]
        if not there:
            del self._by_address[address]

    def refuses(self, connection: CountedConnection) -> bool:
        """Whether the request of a connection beyond the maximum is refused; counts a refused one."""
        connection.is_excess = self._maximum is not None and self._figures.held > self._maximum
        if connection.is_excess:
            self._figures.refused += 1
        return connection.is_excess

    def _address_of(self, connection: CountedConnection) -> str:
        host = connection.host or UNKNOWN
        if self._callers.is_proxy(host):
            return _PROXIES
        return self._callers.counted(host)

    def _to_close(self, newcomer: str) -> CountedConnection | None:
        """Return the connection to close for one more of an address, or None.

        It is one of the address that has the most: an idle one, else one that still sends its request, if the newcomer
        has less. An address that has more than any other closes only its own idle ones.
        """
        held = self._shares.of(newcomer)
        is_largest = newcomer != _PROXIES
        for address, number in self._shares.largest_first():
            # A proxy carries many callers, so its connections are never closed for holding the most.
            if address in (newcomer, _PROXIES):
                continue
            if number < held:
                break
            is_largest = False
            found = self._idle_longest(address)
            if found is None and number > held:
                found = self._still_sending(address)
            if found is not None:
                return found
        return self._idle_longest(newcomer if is_largest else None)

    def _idle_longest(self, address: str | None) -> CountedConnection | None:
        """Return the connection of an address, or of any, that has been idle for longest."""
        for connection in self._idle.since:
            if address is None or self._address.get(connection) == address:
                return connection
        return None

    def _still_sending(self, address: str) -> CountedConnection | None:
        return next((one for one in self._by_address[address] if one.still_sends), None)
