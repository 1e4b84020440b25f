"""Redirect URIs of clients: the rules for registration, and the comparison with those that are registered."""

# A code is sent to the redirect URI, so a URI is compared as the identical string. Only the port of a loopback address
# may differ, because a native application does not know it before it listens (RFC 8252, 7.3).

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

_MAX_URI = 2048
# without space, quote, <, >, \, ^, `, {, |, }
_PLAIN = re.compile(r"[\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")
_NOT_A_URI = "a redirect URI is a URI of at most 2,048 characters"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def redirect_problem(uri: object, schemes: Iterable[str]) -> str | None:
    """Return the reason why a redirect URI must not be registered, or None if it may be.

    Allowed are `https`, `http` on loopback, schemes with a dot in them (RFC 8252, 7.1), and the listed schemes.
    """
    if not isinstance(uri, str) or len(uri) > _MAX_URI:
        return _NOT_A_URI
    if not _PLAIN.fullmatch(uri):
        return _NOT_A_URI
    parts = _parts_of(uri)
    if parts is None:
        return "its host or port cannot be read"
    if "#" in uri:
        return "it has a fragment"
    # A user before the host lets a URI look as if it led elsewhere: `https://good.example@evil.example`.
    if "@" in parts.netloc:
        return "it has a user or a password"
    if "*" in parts.netloc:
        return "it has a wildcard"
    return _scheme_problem(uri, parts, schemes)


def _scheme_problem(uri: str, parts: SplitResult, schemes: Iterable[str]) -> str | None:
    scheme = uri.partition(":")[0]
    if scheme == "https":
        if parts.hostname:
            return None
        return "it has no host"
    if scheme == "http":
        if is_loopback_uri(uri):
            return None
        return "http is for loopback addresses only"
    is_listed = "." in scheme or scheme in schemes
    if not is_listed or not _SCHEME.fullmatch(scheme):
        return "its scheme is neither https nor one of an application, such as com.example.app"
    return None


def _parts_of(uri: str) -> SplitResult | None:
    """Return the parts of a URI; None if its host or its port cannot be read."""
    try:
        parts = urlsplit(uri)
        # each of them is checked when it is read
        _ = (parts.hostname, parts.port)
    except ValueError:
        return None
    return parts


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
    """Whether a redirect URI is one of the registered ones."""
    for uri in registered:
        # As identical strings (RFC 9700, 2.1): any normalization is a chance for a URI that leads elsewhere.
        if asked == uri:
            return True
        is_local = uri.startswith("http://") and is_loopback_uri(uri)
        if is_local and _without_port(asked) == _without_port(uri):
            return True
    return False


def _without_port(uri: str) -> tuple[str, str, str, str] | None:
    """Return the parts of a URI without its port; None if they cannot be read."""
    if "@" in uri or "#" in uri:
        return None
    if not _PLAIN.fullmatch(uri):
        return None
    parts = _parts_of(uri)
    if parts is None:
        return None
    return uri.partition(":")[0], parts.hostname or "", parts.path, parts.query
