"""The parts of a URL that a request is sent by: its origin, and the target of its request line."""

from __future__ import annotations

from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
"""The default ports of the supported schemes."""


def host_of(url: str) -> str:
    """Return the host of a URL in lower case, without the brackets of an IPv6 address; empty without a host.

    Raises:
        ValueError: The text is not a URL.
    """
    return urlsplit(url).hostname or ""


def port_of(url: str) -> int:
    """Return the port of a URL, or the default port of its scheme; 0 for a scheme without one.

    Raises:
        ValueError: The text is not a URL.
    """
    parts = urlsplit(url)
    return parts.port or DEFAULT_PORTS.get(parts.scheme, 0)


def origin_of(url: str) -> str:
    """Return the origin of a URL: scheme, host, port, in one form (RFC 6454).

    Raises:
        ValueError: The text is not a URL.
    """
    host = host_of(url)
    if ":" in host:
        host = f"[{host}]"
    return f"{urlsplit(url).scheme}://{host}:{port_of(url)}"


def target_of(url: str) -> str:
    """Return the path of a URL with its query, as a request line names it (RFC 9112, 3.2.1)."""
    parts = urlsplit(url)
    path = parts.path or "/"
    if not parts.query:
        return path
    return f"{path}?{parts.query}"
