"""The cookies of one connection, as far as balancers and gateways need them to recognise it (RFC 6265). Pure.

Values are secrets: they are sent back, and shown nowhere.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["Cookies"]

_MAX_COOKIES = 50
_MAX_BYTES = 4096
_PAIR = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*([\x20-\x3a\x3c-\x7e]*)")
_SECONDS = re.compile(r"-?\d{1,12}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Cookie:
    value: str
    path: str
    secure: bool
    ends: float


class Cookies:
    """The cookies that one origin has set, selected for each request."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], _Cookie] = {}

    def take(self, url: str, set_cookies: Iterable[str], *, now: float | None = None) -> None:
        """Keep the cookies of an answer to `url`; `now` is a Unix time.

        Cookies of another domain, with characters that cannot be sent back, or over 4 KiB are ignored.
        """
        now = time.time() if now is None else now
        for text in set_cookies:
            parsed = _parsed(text, url, now)
            if parsed is None:
                continue
            name, cookie = parsed
            key = (name, cookie.path)
            before = self._kept.pop(key, None)
            if cookie.ends > now:
                # one that is renewed keeps its place (RFC 6265, 5.3, 11.3), which does not matter to anybody
                self._kept[key] = cookie
            elif before is None:
                continue
            if len(self._kept) > _MAX_COOKIES:
                del self._kept[next(iter(self._kept))]

    def header(self, url: str, *, now: float | None = None) -> str:
        """Return the value of `cookie` for a request to `url`; empty for none."""
        now = time.time() if now is None else now
        for key in [key for key, cookie in self._kept.items() if cookie.ends <= now]:
            del self._kept[key]
        parts = urlsplit(url)
        path = parts.path or "/"
        fitting = [
            (name, cookie)
            for (name, _), cookie in self._kept.items()
            if (parts.scheme == "https" or not cookie.secure) and _within(path, cookie.path)
        ]
        fitting.sort(key=lambda pair: -len(pair[1].path))  # the more special ones first (RFC 6265, 5.4)
        return "; ".join(f"{name}={cookie.value}" for name, cookie in fitting)


def _parsed(text: str, url: str, now: float) -> tuple[str, _Cookie] | None:
    pair, *attributes = text.split(";")
    found = _PAIR.fullmatch(pair.strip())
    if found is None or len(pair) > _MAX_BYTES:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    named: dict[str, str] = {}
    for attribute in attributes:
        key, _, value = attribute.partition("=")
        named[key.strip().lower()] = value.strip()  # the last one counts
    domain = named.get("domain", "").lower().removeprefix(".")
    secure = "secure" in named
    if (domain and not _belongs(host, domain)) or (secure and parts.scheme != "https"):
        return None
    path = named.get("path", "")
    if not path.startswith("/"):
        path = parts.path.rpartition("/")[0] or "/"  # the folder of the URL (RFC 6265, 5.1.4)
    return found.group(1), _Cookie(value=found.group(2).strip(), path=path, secure=secure, ends=_end(named, now))


def _end(named: dict[str, str], now: float) -> float:
    """Return when a cookie ends: `Max-Age` counts more than `Expires`; never, for this connection, without both."""
    seconds = named.get("max-age", "")
    if _SECONDS.fullmatch(seconds):
        return now + int(seconds)
    if "expires" not in named:
        return float("inf")
    from email.utils import parsedate_to_datetime  # 20 ms, for an attribute that is rare here

    try:
        return parsedate_to_datetime(named["expires"].replace("-", " ")).timestamp()
    except (ValueError, OverflowError, OSError):
        return float("inf")


def _belongs(host: str, domain: str) -> bool:
    """Whether a server may set a cookie for a domain: its own, or one above it that is no top-level domain."""
    if host == domain:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." in domain and host.endswith(f".{domain}")
    return False


def _within(path: str, folder: str) -> bool:
    return path == folder or (path.startswith(folder) and (folder.endswith("/") or path[len(folder)] == "/"))
