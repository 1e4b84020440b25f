"""URIs: their normal form (RFC 3986, 6.2.2 and 6.2.3), and the rule for addresses that people are sent to. Pure.

In their normal form two spellings of one resource are equal.

Clients do not send a URI as they received it: pydantic's `AnyUrl` in the official SDK and every WHATWG `URL` encode
spaces and other characters, write the scheme in lower case, and give `http://host` the path `/`. The normal form is for
comparison only: a list shows a URI as its server wrote it. Dot segments stay, as rules and folders refuse them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from toolweave._json_types import JsonObject, object_entries, text_or_empty
from toolweave._text import visible

__all__ = ["has_parts_in_order", "normal_literal", "normal_uri", "safe_icons", "web_address_problem"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_TRIPLET = re.compile(r"%([0-9A-Fa-f]{2})")
_AUTHORITY = re.compile(r"//([^/?#]*)")
_PORT = re.compile(r"[0-9]*")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RESERVED = ":/?#[]@!$&'()*+,;="
_DEFAULT_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}
"""The schemes whose hosts are names of the network, with their default ports (WHATWG URL, special schemes)."""
_NOT_IN_ADDRESSES = re.compile(r"[\x00-\x20\x7f-\x9f\\<>\"`{}|^]")
_MAX_ADDRESS_CHARACTERS = 4096
_ICON_SCHEMES = ("https:", "http:", "data:")
"""The schemes of icons that a client may load (specification, basic, Icons)."""
_MAX_KEPT_CHARACTERS = 1024
"""Characters of a URI whose normal form is kept: the cache must not fill the memory."""


def normal_uri(uri: str) -> str:
    """Return the normal form of a URI; a text that is not a URI also has one."""
    if len(uri) <= _MAX_KEPT_CHARACTERS:
        return _kept(uri)
    return _normal(uri)


def normal_literal(text: str, *, first: bool) -> str:
    """Return the normal form of the text between two variables of a URI template.

    Args:
        text: The text.
        first: It is the beginning of the URI. Its host is complete if a slash follows.
    """
    if not first:
        return _encoded(text)
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else ""
    authority = _AUTHORITY.match(rest)
    if authority is not None and authority.end() < len(rest):
        return normal_uri(text)
    if scheme is None:
        return _encoded(text)
    return scheme[0].lower() + _encoded(rest)


def _normal(uri: str) -> str:
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return _encoded(uri)
    name = scheme[0][:-1].lower()
    rest = uri[scheme.end() :]
    authority = _AUTHORITY.match(rest)
    if authority is None:
        return f"{name}:{_encoded(rest)}"
    path = _encoded(rest[authority.end() :])
    if name == "file":
        if authority[1].lower() == "localhost":
            host = ""
        else:
            host = _encoded(authority[1])
        return f"{name}://{host}{path}"
    if name not in _DEFAULT_PORTS:
        return f"{name}://{_encoded(authority[1])}{path}"
    if not path.startswith("/"):
        path = "/" + path
    return f"{name}://{_normal_authority(authority[1], _DEFAULT_PORTS[name])}{path}"


_kept = lru_cache(maxsize=4096)(_normal)


def _normal_authority(authority: str, default_port: str) -> str:
    user, at, address = authority.rpartition("@")
    host, colon, port = address.rpartition(":")
    if not _PORT.fullmatch(port) or not colon:
        # Without a port, the colons are those of an IPv6 address.
        host = address
        port = ""
    if port in ("", default_port):
        shown_port = ""
    else:
        shown_port = f":{port}"
    return f"{_encoded(user)}{at}{_normal_host(host)}{shown_port}"


def _normal_host(host: str) -> str:
    name = unquote(host).lower()
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        # An empty label, or one that is too long.
        return _encoded(name)


def _encoded(text: str) -> str:
    """Return a text with each character encoded that a URI cannot contain, and none encoded that never needs it."""
    if "%" in text:
        plain = _TRIPLET.sub(_normal_triplet, text)
    else:
        plain = text
    return quote(plain, safe=_RESERVED + "%", errors="surrogatepass")


def _normal_triplet(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    if character in _UNRESERVED:
        return character
    return found[0].upper()


def web_address_problem(address: str) -> str | None:
    """Return the reason why an address is not one that a person can be sent to, or None.

    An address of the web has a host, and nothing that shows another host than the browser will visit.
    """
    try:
        parts = urlsplit(address)
        host = parts.hostname
        # Raises for a port that is not one.
        _ = parts.port
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("http", "https") or not host:
        return "it is not an http or https URL with a host"
    if len(address) > _MAX_ADDRESS_CHARACTERS:
        return f"it has more than {_MAX_ADDRESS_CHARACTERS:,} characters"
    if _NOT_IN_ADDRESSES.search(address) or visible(address, keep="") != address:
        return "it has characters that a URL cannot contain"
    if "@" in parts.netloc:
        return "it has user info before its host"
    return None


def has_parts_in_order(text: str, parts: Sequence[str]) -> bool:
    """Return whether a text is the fixed parts of a URI template, with anything between them. Linear in both.

    Args:
        text: The URI.
        parts: The parts around the variables, one or more; a single one is the whole text.
    """
    first, *others = parts
    if not others:
        return text == first
    *middle, last = others
    if len(text) < len(first) + len(last):
        return False
    if not text.startswith(first) or not text.endswith(last):
        return False
    # The leftmost place of each part leaves the most text for the next ones, so no other place has to be tried.
    place = len(first)
    end = len(text) - len(last)
    for part in middle:
        found = text.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def safe_icons(icons: object) -> tuple[JsonObject, ...]:
    """Return the icon objects of a definition without those that a client must not load.

    The address of an icon is https, http or data; a client rejects every other (specification, basic, Icons).
    """
    return tuple(icon for icon in object_entries(icons) if _is_loadable(icon.get("src")))


def _is_loadable(src: object) -> bool:
    return text_or_empty(src).strip().lower().startswith(_ICON_SCHEMES)
