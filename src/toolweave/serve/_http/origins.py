"""The host names of an endpoint, and the web origins that may send it requests.

A page that an attacker shows in a victim's browser can reach a server on the victim's machine: by a name of the
attacker that suddenly resolves to 127.0.0.1 (DNS rebinding, which shows in `Host`), or from the origin of the page
(`Origin`). Pure decisions about header values.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from toolweave.errors import ConfigError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_REMEMBERED = 64


class Origins:
    """The names and origins of one endpoint.

    Args:
        bound: The bound address. For a loopback or wildcard one the loopback names are allowed, for any other
            that address itself.
        hosts: More names: `api.example` at any port, `api.example:8443` at that one; `*` for every name, where a proxy
            in front checks it.
        origins: Origins whose pages may send requests: `https://app.example`, exactly.
        cors: Origins whose pages may also read the answers.

    Raises:
        ConfigError: An origin is not `scheme://host[:port]`. `*` is refused: it would open the endpoint to every page.
    """

    def __init__(
        self, bound: str, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), cors: Iterable[str] = ()
    ) -> None:
        self.local: bool = _is_local(bound)
        names = set(map(_lower, hosts))
        self._every_host = "*" in names
        self._hosts = names | (_LOOPBACK if self.local else {_bracketed(bound.lower())})
        self._cors = frozenset(map(_origin, cors))
        self._origins = self._cors | set(map(_origin, origins))
        self._seen: set[bytes] = set()

    def serves(self, host: bytes | None) -> bool:
        """Whether a request with this `Host` header is addressed to the endpoint."""
        if host in self._seen:
            return True
        if not host:
            return False
        text = host.decode("latin-1").lower()
        if not self._every_host and self._hosts.isdisjoint((text, _without_port(text))):
            return False
        # Only accepted values are kept, and their number is bounded: a client chooses them.
        if len(self._seen) < _REMEMBERED:
            self._seen.add(host)
        return True

    def takes(self, origin: bytes, host: bytes) -> bool:
        """Whether a page of this `Origin` may send a request to this `Host`, which `serves` has let through."""
        text = origin.decode("latin-1").lower()
        if text in self._origins:
            return True
        scheme, _, authority = text.partition("://")
        if scheme not in ("http", "https"):
            return False
        # Pages of this machine, such as developer tools on another port. A program that can serve them runs here
        # anyway.
        if self.local and _without_port(authority) in _LOOPBACK:
            return True
        if self._every_host:  # then the Host header says nothing about whose page it is
            return False
        # The page comes from this server itself. `Host` can be believed for that, since `serves` has checked it.
        return authority == host.decode("latin-1").lower()

    def shares(self, origin: bytes) -> bool:
        """Whether a page of this `Origin` may read the answer."""
        return bool(self._cors) and origin.decode("latin-1").lower() in self._cors


def _is_local(bound: str) -> bool:
    if bound.lower() in ("localhost", ""):
        return True
    try:
        address = ipaddress.ip_address(bound.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _lower(name: str) -> str:
    name = name.strip().lower()
    return name.removesuffix(":*")


def _bracketed(address: str) -> str:
    if ":" in address and not address.startswith("["):
        return f"[{address}]"
    return address


def _without_port(authority: str) -> str:
    head, colon, port = authority.rpartition(":")
    if colon and port.isdecimal():
        return head
    return authority


def _origin(text: str) -> str:
    parts = urlsplit(text)
    is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    # Browsers send an origin without a path: one with a slash at its end would never be equal to it.
    if not is_web or text != f"{parts.scheme}://{parts.netloc}":
        raise ConfigError(f"{text!r} is not an origin; expected scheme://host or scheme://host:port, without a path")
    return text.lower()
