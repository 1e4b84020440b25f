"""The proxy for a URL from environment variables. Opens nothing."""

from __future__ import annotations

import ipaddress
import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from toolweave.http._url import DEFAULT_PORTS, host_of, port_of

PROXY_AUTHENTICATION_REQUIRED = 407
"""The status with which a proxy, and never a server, asks for credentials (RFC 9110, 15.5.8)."""

_NOT_URL = "the proxy in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is not a URL such as http://user:password@host:3128"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpProxy:
    """An HTTP proxy; as a string it is its URL without credentials.

    Attributes:
        host: Its name or address, without brackets.
        port: Its port.
        secure: Whether it is reached over TLS.
        authorization: The value of `Proxy-Authorization`, or None; never shown.
    """

    host: str
    port: int
    secure: bool = False
    authorization: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"


def http_proxy_for(url: str, environment: Mapping[str, str] | None = None) -> HttpProxy | None:
    """Return the HTTP proxy that `proxy_for` names for a URL, or None.

    Raises:
        ValueError: It cannot be used; the message says why and what to do, without its credentials.
    """
    named = proxy_for(url, environment)
    if named is None:
        return None
    try:
        parts = urlsplit(named)
        host = parts.hostname
        port = parts.port
    except ValueError:  # which may quote a part of the password
        raise ValueError(_NOT_URL) from None
    # a password with a slash or a question mark that is not percent-encoded ends the host too early
    if not host or "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(_NOT_URL)
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(_unknown(parts.scheme, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"))
    return HttpProxy(
        host=host,
        port=port or DEFAULT_PORTS[parts.scheme],
        secure=parts.scheme == "https",
        authorization=_basic_authorization(parts),
    )


def _basic_authorization(parts: SplitResult) -> str | None:
    """Return the value of the header for the user and password in a URL (RFC 7617), or None without any."""
    user = unquote(parts.username or "")
    password = unquote(parts.password or "")
    pair = f"{user}:{password}"
    if pair == ":":
        return None
    return f"Basic {b64encode(pair.encode()).decode()}"


def refused_by_proxy(status: int, reason: str, place: str) -> str:
    """Return the reason why a proxy did not forward a request to `place`, and what to do if it wants credentials."""
    text = f"it refused to reach {place}: HTTP {status} {reason[:60]}".rstrip()
    if status != PROXY_AUTHENTICATION_REQUIRED:
        return text
    return f"{text}; give it its user and password in the variable that names it: http://user:password@host:port"


def came_through(url: str, proxy: HttpProxy) -> str:
    """Return the end of an error about an answer that a proxy, which reads plain HTTP, may have given itself."""
    return f" (the answer came through the proxy {proxy} of the environment{no_proxy_hint(url)})"


def no_proxy_hint(url: str) -> str:
    """Return how to reach a URL of this machine without a proxy; empty for another URL."""
    host = host_of(url)
    if not _is_loopback(host):
        return ""
    return f"; to reach {host} without it, add {host} to NO_PROXY"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unknown(scheme: str, named: str) -> str:
    text = f"the proxy {named} of the environment cannot be used: only http:// and https:// proxies are"
    if not scheme.startswith("socks"):
        return text
    return f"{text}; name one of those, or the server in NO_PROXY"


def proxy_for(url: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the URL of the proxy for a URL, or None.

    `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY` name it, except for the entries of `NO_PROXY`. Lower-case names win.
    `NO_PROXY` holds hosts (which include their subdomains), `host:port`, addresses, networks such as `10.0.0.0/8`, or
    `*`, separated by commas.
    """
    variables = os.environ if environment is None else environment
    scheme = urlsplit(url).scheme
    host = host_of(url)
    port = port_of(url)
    for entry in _variable(variables, "no_proxy").split(","):
        if _matches(entry.strip().lower(), host, port):
            return None
    proxy = ""
    # in a CGI script HTTP_PROXY is a header of the request
    if scheme != "http" or "REQUEST_METHOD" not in variables:
        proxy = _variable(variables, f"{scheme}_proxy")
    if not proxy:
        proxy = _variable(variables, "all_proxy")
    if not proxy:
        return None
    if "://" in proxy:
        return proxy
    return f"http://{proxy}"


def _variable(variables: Mapping[str, str], name: str) -> str:
    return (variables.get(name) or variables.get(name.upper(), "")).strip()


def _matches(entry: str, host: str, port: int) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    network = _network(entry)
    if network is not None:
        try:
            return ipaddress.ip_address(host) in network
        except ValueError:
            return False
    name, colon, named_port = entry.rpartition(":")
    if colon and named_port.isdigit():
        if int(named_port) != port:
            return False
        entry = name.strip("[]")
    entry = entry.removeprefix("*").lstrip(".")
    return f".{host}".endswith(f".{entry}")


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None
