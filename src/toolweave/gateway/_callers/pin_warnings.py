"""Differences from the pins on the connections beside those of the hub, for the status of a gateway.

The hub reports the differences on its own connections. Another connection to the same server may offer something else.
Each connection logs its findings.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from toolweave.connect import McpConnection
from toolweave.gateway._callers.hubs import CallerHubs
from toolweave.gateway._relay.connections import AskingConnections
from toolweave.gateway._relay.handshake_connections import HandshakeConnections


def pin_differences(
    connections: AskingConnections, handshakes: HandshakeConnections, callers: CallerHubs
) -> Iterable[str]:
    """Yield the differences as they are now.

    Args:
        connections: The connections that callers have of their own.
        handshakes: The connections in the handshake era to upstreams that speak both.
        callers: The hubs of callers, to which the servers belong that are called as them.
    """
    of_callers = (one for hub in callers.all() for one in hub.clients.values())
    return chain.from_iterable(map(_differences, (*connections, *handshakes, *of_callers)))


def without_known(known: Iterable[str], found: Iterable[Iterable[str]]) -> list[str]:
    """Return the texts that are not known yet, each once."""
    return [text for text in dict.fromkeys(chain.from_iterable(found)) if text not in set(known)]


def _differences(connection: McpConnection) -> list[str]:
    return [f"server {connection.name!r}: {text}" for text in connection.pin_problems]
