"""The URL of a Redis: its public part, and the options of a connection.

Connects to nothing. User, password and options of a URL are never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, unquote_plus, urlencode, urlsplit

from toolweave._masking import mask_values
from toolweave.errors import StoreError

REDIS_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "unix": "unix",
    "redis+sentinel": "redis+sentinel",
    "rediss+sentinel": "rediss+sentinel",
    "valkey+sentinel": "redis+sentinel",
    "valkeys+sentinel": "rediss+sentinel",
}
"""The schemes of URLs, each with that of the package `redis`, or of docket where Sentinels are asked."""

_SENTINEL_PORT = 26379
_HINT = (
    "expected redis://[user:password@]host:port/database, rediss:// for TLS, unix:///path?db=0, "
    "or redis+sentinel://host:port,host:port/service/database; "
    "in a password write / as %2F, # as %23, ? as %3F and @ as %40"
)
_SENTINEL_LOGIN = ("sentinel_username", "sentinel_password")
_NOT_OPTIONS = ("db", "username", "password")
"""Parts of a URL with Sentinels that stand elsewhere in it, so that they are not options."""


@dataclass(frozen=True, slots=True)
class SentinelService:
    """The Sentinels of a URL and the primary that they are asked for.

    Attributes:
        hosts: Host and port of each Sentinel.
        name: The name of the primary at the Sentinels.
        login: User and password at the Sentinels, as arguments of the package `redis`.
    """

    hosts: tuple[tuple[str, int], ...]
    name: str
    login: dict[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class _ParsedUrl:
    """A URL in parts: the public one, its secrets, and the URL for the package `redis`."""

    public_url: str
    secrets: tuple[str, ...]
    url: str
    service: SentinelService | None = None


class RedisAddress:
    """The address of a Redis or Valkey; its repr and `public_url` hold no secret.

    Attributes:
        public_url: The URL without user, password and options.
        service: The Sentinels that are asked for the primary, or None.

    Raises:
        StoreError: The URL is invalid; the message shows nothing of it.
    """

    __slots__ = ("_secrets", "_url", "public_url", "service")

    def __init__(self, url: str) -> None:
        parsed = _parse(url)
        if parsed is None:
            raise StoreError(f"the address of a Redis is not understood: {_HINT}")
        self._url = parsed.url
        self._secrets = parsed.secrets
        self.public_url = parsed.public_url
        self.service = parsed.service

    def mask(self, text: str) -> str:
        """Return a text without the secrets of this address."""
        return mask_values(text, self._secrets)

    def options(self) -> dict[str, Any]:
        """Return the arguments of a connection of the package `redis`; with Sentinels, without host and port.

        Raises:
            StoreError: The package is not installed, or does not know an option.
        """
        try:
            from redis.asyncio.connection import parse_url  # only where it is used: the package is an extra

            options = dict(parse_url(self._url))
        except ImportError:
            problem = f"{self.public_url} needs the package redis: pip install 'toolweave[distributed]'"
        except ValueError:
            problem = f"{self.public_url}: an option of its address has a wrong value"
        else:
            if self.service is not None:
                options.pop("host", None)
            return options
        # Raised outside `except`, so that the original error, whose text may hold a secret of the URL, is not its
        # context.
        raise StoreError(problem)

    def __repr__(self) -> str:
        return f"<RedisAddress {self.public_url}>"


def split_name(url: str) -> tuple[str, str | None]:
    """Return a URL without the `name` in its query, and that name, which separates installations on one server."""
    without_query, _, query = url.partition("?")
    name = None
    options: list[str] = []
    for part in query.split("&"):
        if part.startswith("name="):
            # The first one counts, and none of them is passed on: the package refuses options that it does not have.
            name = name or unquote_plus(part.removeprefix("name="))
        elif part:
            options.append(part)
    without_name = without_query
    if options:
        without_name += f"?{'&'.join(options)}"
    return without_name, name or None


def _parse(url: str) -> _ParsedUrl | None:
    """Return the parts of a URL, or None if it is invalid."""
    given_scheme, separator, rest = url.partition("://")
    scheme = REDIS_SCHEMES.get(given_scheme.lower())
    if scheme is None or not separator:
        return None
    if scheme.endswith("+sentinel"):
        return _parse_with_sentinels(scheme, rest)
    return _parse_single(f"{scheme}://{rest}")


def _parse_single(url: str) -> _ParsedUrl | None:
    """Return the parts of the URL of one server, or None if it is invalid."""
    try:
        split = urlsplit(url)
        port = split.port or 6379
        query = parse_qs(split.query)
    except ValueError:  # The error is not shown: it quotes what seemed to be the port, perhaps half of a password.
        return None
    secrets = [split.password, _user(split.username), *query.get("password", ()), *query.get("ssl_password", ())]
    database = query.get("db", [""])[0]
    if split.scheme == "unix":
        public_url = f"unix://{unquote(split.path)}"
        if database:
            public_url += f"?db={database}"
    else:
        database = database or split.path.strip("/") or "0"
        public_url = f"{split.scheme}://{_printable_host(split.hostname or 'localhost', port)}/{database}"
    is_without_path = split.scheme == "unix" and not split.path
    is_odd_database = database != "" and not database.isdecimal()
    # The package would use database 0 for a name, and a fragment is often a password with an unescaped '#'.
    if split.fragment or is_without_path or is_odd_database:
        return None
    return _ParsedUrl(public_url, _secrets(secrets), url)


def _parse_with_sentinels(scheme: str, rest: str) -> _ParsedUrl | None:
    """Return the parts of `[user:password@]host:port,host:port/service/database?options`, or None if it is invalid.

    The grammar is that of docket, which gets the same URL. User and password are those of the primary.
    """
    try:
        # Several hosts are not a valid authority for urllib: they are cut out, and each is parsed alone.
        split = urlsplit(f"//placeholder{_after_hosts(rest)}")
        login, _, hosts = _hosts(rest).rpartition("@")
        sentinels = tuple(_sentinel(one.strip()) for one in hosts.split(",") if one.strip())
        options = parse_qsl(split.query, keep_blank_values=True)
        userinfo = urlsplit(f"//{login}@placeholder")
    except ValueError:
        return None
    segments = list(filter(None, split.path.split("/")))
    # Without a database it is 0, as in the URL of a single Redis.
    if len(segments) == 1:
        segments.append("0")
    is_misplaced = any(name in _NOT_OPTIONS for name, _ in options)
    if not sentinels or is_misplaced or split.fragment or len(segments) != 2:
        return None
    service, database = segments
    if not database.isdecimal():
        return None
    named = dict(options)
    credentials: dict[str, str] = {}
    for name in _SENTINEL_LOGIN:
        if named.get(name):
            credentials[name.removeprefix("sentinel_")] = named[name]
    secrets = [userinfo.password, _user(userinfo.username), *credentials.values(), named.get("ssl_password")]
    return _ParsedUrl(
        f"{scheme}://{','.join(_printable_host(*sentinel) for sentinel in sentinels)}/{service}/{database}",
        _secrets(secrets),
        _url_of_primary(scheme, login, database, options),
        SentinelService(sentinels, service, credentials),
    )


def _url_of_primary(scheme: str, login: str, database: str, options: Sequence[tuple[str, str]]) -> str:
    """Return the URL of the primary, whose host and port the Sentinels name."""
    host = f"{login}@placeholder" if login else "placeholder"
    url = f"{scheme.removesuffix('+sentinel')}://{host}/{database}"
    query = urlencode([(name, value) for name, value in options if name not in _SENTINEL_LOGIN])
    if query:
        return f"{url}?{query}"
    return url


def _hosts(rest: str) -> str:
    return rest[: len(rest) - len(_after_hosts(rest))]


def _after_hosts(rest: str) -> str:
    """Return path, query and fragment of a URL without its scheme."""
    ends = [at for at in map(rest.find, "/?#") if at >= 0]
    if ends:
        return rest[min(ends) :]
    return ""


def _sentinel(text: str) -> tuple[str, int]:
    """Return host and port of one Sentinel.

    Raises:
        ValueError: It has no host, or its port is not a number.
    """
    split = urlsplit(f"//{text}")
    if not split.hostname:
        raise ValueError(text)
    return unquote(split.hostname), split.port or _SENTINEL_PORT


def _user(name: str | None) -> str | None:
    """Return a user name, None for the default one, which is not secret."""
    # This user is in every Redis, so the name is not a secret. Masking it would hide an ordinary word in errors.
    if name == "default":
        return None
    return name


def _secrets(found: list[str | None]) -> tuple[str, ...]:
    forms: list[str] = []
    for secret in found:
        if secret:
            # In both forms: errors of the client show the decoded one, errors about the URL the other.
            forms += [secret, unquote(secret)]
    return tuple(forms)


def _printable_host(host: str, port: int) -> str:
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{unquote(host)}:{port}"
