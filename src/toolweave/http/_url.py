"""The parts of a URL that a request is sent by: its origin, and the target of its request line."""

from __future__ import annotations

from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
"""The ports of the schemes that are spoken."""


def origin_of(url: str) -> str:
    """Return the origin of a URL: scheme, host, port, in one form (RFC 6454).

    Raises:
        ValueError: It is no URL.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{parts.port or DEFAULT_PORTS.get(parts.scheme, 0)}"


def target_of(url: str) -> str:
    """Return the path of a URL with its query, as a request line names it (RFC 9112, 3.2.1)."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
