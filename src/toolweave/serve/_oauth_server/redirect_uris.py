"""Redirect URIs of clients: which ones may be registered, and which registered one a request means.

A code goes wherever a redirect URI points, so it is compared as the identical string, but for the port of a loopback
address, which a native application learns only when it listens (RFC 8252, 7.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

_LONGEST = 2048
_PLAIN = re.compile(r"[\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")  # no space, quote, <, >, \, ^, `, {, |, }
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def redirect_problem(uri: object, schemes: Iterable[str]) -> str | None:
    """Return why a redirect URI is not registered, or None where it may be.

    `https` may be, `http` on loopback, schemes with a dot in them (RFC 8252, 7.1), and those that are listed.
    """
    if not isinstance(uri, str) or not 0 < len(uri) <= _LONGEST or not _PLAIN.fullmatch(uri):
        return "a redirect URI is a URI of at most 2,048 characters"
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "its host or port cannot be read"
    if "#" in uri:
        return "it has a fragment"
    if "@" in parts.netloc:
        return "it has a user or a password"
    if "*" in parts.netloc:
        return "it has a wildcard"
    scheme = uri.partition(":")[0]
    if scheme == "https":
        return None if host else "it has no host"
    if scheme == "http":
        return None if is_loopback_uri(uri) else "http is for loopback addresses only"
    if not _SCHEME.fullmatch(scheme) or not ("." in scheme or scheme in schemes):
        return "its scheme is neither https nor one of an application, such as com.example.app"
    return None


def is_loopback_uri(uri: str) -> bool:
    """Whether a URI leads to an application on the user's own machine."""
    host = urlsplit(uri).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def registered_uri(asked: str, registered: Iterable[str]) -> bool:
    """Whether a redirect URI that was asked for is one of those that are registered."""
    for uri in registered:
        if asked == uri:
            return True
        if uri.startswith("http://") and is_loopback_uri(uri) and _without_port(asked) == _without_port(uri):
            return True
    return False


def _without_port(uri: str) -> tuple[str, str, str, str] | None:
    """Return the parts of a URI but for its port; None where they cannot be read."""
    if not _PLAIN.fullmatch(uri) or "@" in uri or "#" in uri:
        return None
    try:
        parts = urlsplit(uri)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return None
    return uri.partition(":")[0], host or "", parts.path, parts.query
