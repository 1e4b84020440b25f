"""The URL of a Redis: its public part, and the options of a connection.

Connects to nothing. User, password and options of a URL are never shown.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, unquote_plus, urlsplit

from toolweave.errors import StoreError

REDIS_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
"""The schemes of URLs, each with that of the package `redis`."""

_HINT = (
    "expected redis://[user:password@]host:port/database, rediss:// for TLS, or unix:///path?db=0; "
    "in a password write / as %2F, # as %23, ? as %3F and @ as %40"
)


class RedisAddress:
    """The address of a Redis or Valkey; its repr and `place` hold no secret.

    Raises:
        StoreError: The URL is invalid; the message shows nothing of it.
    """

    __slots__ = ("_secrets", "_url", "place")

    def __init__(self, url: str) -> None:
        scheme, separator, rest = url.partition("://")
        known = REDIS_SCHEMES.get(scheme.lower())
        if known is None or not separator:
            raise StoreError(f"the address of a Redis is not understood: {_HINT}")
        self._url = f"{known}://{rest}"
        place, self._secrets = _parts(self._url)
        if place is None:
            raise StoreError(f"the address of a Redis is not understood: {_HINT}")
        self.place: str = place

    def scrubbed(self, text: str) -> str:
        """Return a text without the secrets of this address."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def options(self) -> dict[str, Any]:
        """Return the arguments of a connection of the package `redis`.

        Raises:
            StoreError: The package is not installed, or does not know an option.
        """
        try:
            from redis.asyncio.connection import parse_url  # only where it is used: the package is an extra
        except ImportError:
            known = None
        else:
            known = parse_url
        if known is None:
            raise StoreError(f"{self.place} needs the package redis: pip install 'toolweave[distributed]'")
        try:
            return dict(known(self._url))
        except ValueError:
            problem = StoreError(f"{self.place}: an option of its address has a wrong value")
        raise problem

    def __repr__(self) -> str:
        return f"<Address {self.place}>"


def split_name(url: str) -> tuple[str, str | None]:
    """Return a URL without the `name` in its query, and that name, which separates installations on one server."""
    place, _, query = url.partition("?")
    parts = [part for part in query.split("&") if part]
    rest = "&".join(part for part in parts if not part.startswith("name="))
    name = next((unquote_plus(part.removeprefix("name=")) for part in parts if part.startswith("name=")), None)
    return f"{place}?{rest}" if rest else place, name or None


def _parts(url: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the public part of a URL, None when it is invalid, and its secrets."""
    try:
        split = urlsplit(url)
        port = split.port or 6379
        query = parse_qs(split.query)
    except ValueError:  # its text holds what was taken for the port: it may be half of a password
        return None, ()
    found = [
        split.password,
        split.username if split.username != "default" else None,
        *query.get("password", ()),
        *query.get("ssl_password", ()),
    ]
    secrets = [form for one in found if one for form in (one, unquote(one))]
    database = (query.get("db") or [""])[0]
    if split.scheme == "unix":
        place = f"unix://{unquote(split.path)}" + (f"?db={database}" if database else "")
    else:
        database = database or split.path.strip("/") or "0"
        host = split.hostname or "localhost"
        place = f"{split.scheme}://{f'[{host}]' if ':' in host else unquote(host)}:{port}/{database}"
    right = not split.fragment and (database.isdecimal() or not database) and (split.scheme != "unix" or split.path)
    return (place if right else None), tuple(secrets)
