"""The proxy that the environment names for a URL. Pure but for the environment; opens nothing."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

__all__ = ["proxy_for"]

_PORTS = {"http": 80, "https": 443}


def proxy_for(url: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the proxy for a URL, or None: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, but for what `NO_PROXY` names.

    Lower-case names win. `NO_PROXY` holds hosts (their subdomains are meant too), `host:port`, addresses,
    networks such as `10.0.0.0/8`, or `*`, separated by commas.
    """
    variables = os.environ if environment is None else environment
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    if any(_matches(entry.strip().lower(), host, port) for entry in _variable(variables, "no_proxy").split(",")):
        return None
    own = (
        ""
        if parts.scheme == "http" and "REQUEST_METHOD" in variables
        else _variable(variables, f"{parts.scheme}_proxy")
    )
    proxy = own or _variable(variables, "all_proxy")  # in a CGI script HTTP_PROXY is a header of the request
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(variables: Mapping[str, str], name: str) -> str:
    return (variables.get(name) or variables.get(name.upper()) or "").strip()


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
    return host == entry or host.endswith(f".{entry}")


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None
