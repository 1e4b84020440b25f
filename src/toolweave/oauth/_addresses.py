"""The kind of an IP address; of one that contains another address, the kind of the inner one. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Literal

AddressKind = Literal["public", "private", "shared", "link_local", "loopback", "special"]
"""The network that an address leads to: the Internet, a private network (RFC 1918, 4193), a carrier's (RFC 6598), the
link, this machine, or, `special`, nowhere that anything should be fetched from."""

_PRIVATE = [IPv4Network(net) for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
_SHARED = IPv4Network("100.64.0.0/10")
_PRIVATE6 = [IPv6Network(net) for net in ("fc00::/7", "fec0::/10")]
# RFC 6052
_NAT64 = IPv6Network("64:ff9b::/96")
# RFC 8215: each network chooses the place of the IPv4 address in it, so the inner address is not known
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = IPv6Network("::/96")


def kind_of_address(text: str) -> AddressKind:
    """Return the kind of an address; a text that is not an address is `special`."""
    try:
        # The interface of a link-local address follows a percent sign.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return "special"
    if isinstance(address, IPv6Address):
        inner = _embedded(address)
        if inner is None:
            return _kind6(address)
        return _kind4(inner)
    return _kind4(address)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address are sent to: mapped, NAT64, 6to4, or compatible."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.is_loopback or address.is_unspecified:
        # both are in the compatible network, and contain no address
        return None
    if address in _NAT64 or address in _COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _kind6(address: IPv6Address) -> AddressKind:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link_local"
    if any(address in net for net in _PRIVATE6):
        return "private"
    if address.is_multicast or address.teredo is not None:
        return "special"
    if address.is_global and address not in _NAT64_LOCAL:
        return "public"
    return "special"


def _kind4(address: IPv4Address) -> AddressKind:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link_local"
    if address in _SHARED:
        return "shared"
    if any(address in net for net in _PRIVATE):
        return "private"
    if address.is_global and not address.is_multicast:
        return "public"
    return "special"
