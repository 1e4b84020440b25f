"""The callers that requests count for: principals, and addresses of requests without one.

A principal counts once, however many addresses it has. An IPv6 address counts by its /64, because one host has all of
them. Behind a proxy that is trusted, the address is the last one of `X-Forwarded-For` that is not such a proxy itself.
Independent of MCP.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from toolweave.errors import ConfigError
from toolweave.serve._auth.middleware import principal
from toolweave.serve._http.asgi import Scope

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAX_KNOWN = 4096
_HOST_PREFIX = 64
UNKNOWN = "unknown"
"""The address of all callers without one, as behind a Unix socket."""


class Callers:
    """Finds the caller of a request.

    Args:
        trusted_proxies: Addresses and networks whose `X-Forwarded-For` is believed, such as `10.0.0.0/8`.

    Raises:
        ConfigError: One of them is not an address or a network.
    """

    def __init__(self, trusted_proxies: Sequence[str] = ()) -> None:
        self._trusted = tuple(map(_network, trusted_proxies))
        self._known: dict[str, str] = {}

    def of(self, scope: Scope) -> str:
        """Return the caller of a request, after its authorization."""
        return principal(scope) or self.address_of(scope)

    def address_of(self, scope: Scope) -> str:
        """Return the address that a request comes from, in the form that counts."""
        peer = scope.get("client")
        if peer is None:
            return UNKNOWN
        host: str = peer[0]
        if self._trusted and self.is_proxy(host):
            return self._forwarded(scope, host)
        return self.counted(host)

    def is_proxy(self, host: str) -> bool:
        """Whether an address is that of a trusted proxy."""
        address = _address(host)
        if address is None:
            return False
        return any(address in network for network in self._trusted)

    def counted(self, host: str) -> str:
        """Return the form of an address that counts: the /64 of an IPv6 address, any other as it is."""
        # A cache of a pure function, emptied when it is full: clients with many addresses must not fill the memory.
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[host] = _counted(host)
        return known

    def _forwarded(self, scope: Scope, host: str) -> str:
        """Return the address that a trusted proxy reports: the last one that is not a trusted proxy.

        What stands before it was written by the client, and may be anything.
        """
        texts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        for text in reversed(",".join(texts).split(",")):
            named = _without_port(text.strip())
            # Anything else than an address was not written by the trusted proxy behind it, so what stands before it is
            # not believed either.
            if _address(named) is None:
                break
            host = named
            if not self.is_proxy(host):
                break
        return self.counted(host)


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as exc:
        raise ConfigError(f"trusted_proxies: {text!r} is not an address or a network: {exc}") from None


def _address(host: str) -> _Address | None:
    """Return an address, as IPv4 if it is one mapped into IPv6; None for a text that is not an address."""
    try:
        # Without the zone (`%eth0`), which is a name of this machine and not a part of the client.
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
    else:
        mapped = None
    return mapped or address


def _counted(host: str) -> str:
    address = _address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _HOST_PREFIX), strict=False))
    if address is None:
        return host
    return str(address)


def _without_port(text: str) -> str:
    """Return the address of an entry such as `192.0.2.1:4711` or `[2001:db8::1]:4711`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    # An IPv6 address without brackets has more colons and no port: nothing is taken off it.
    host, _, port = text.rpartition(":")
    if ":" not in host and host and port.isdigit():
        return host
    return text
