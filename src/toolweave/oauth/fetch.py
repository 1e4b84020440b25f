"""Requests to URLs that a foreign server has named, guarded: addresses checked and pinned, everything bounded.

Knows nothing of OAuth.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit, urlunsplit

import anyio
import msgspec

from toolweave._json import decode_json
from toolweave._text import one_line
from toolweave._value import Value
from toolweave.config import is_loopback
from toolweave.http import (
    DEFAULT_PORTS,
    Address,
    BodyError,
    HttpClient,
    Response,
    TransportError,
    origin_of,
    proxy_for,
    resolve,
    target_of,
)
from toolweave.oauth._addresses import AddressKind, kind_of_address
from toolweave.protocol.uris import web_address_problem

__all__ = [
    "MAX_BYTES",
    "SECONDS",
    "FetchFailed",
    "FetchedAnswer",
    "GuardedFetch",
    "T",
    "checked_url",
    "quoted",
    "shown_url",
]

# An MCP server names the URL of its metadata, these name an authorization server, and its metadata name the token
# endpoint. Each could name a machine of our own network, so the addresses of every URL are checked, and the connection
# is made to the checked addresses: a second lookup could return others. A redirect goes through the same check. Kinds
# of address that the configured URLs have are allowed, so that a server in a private network can have its authorization
# server there.

MAX_BYTES = 256 * 1024
"""The maximum size of an answer, in bytes; metadata and tokens are some kilobytes."""
SECONDS = 15.0
"""The time for one fetch: lookup, TCP, TLS, redirects and the body together."""
_MAX_REDIRECTS = 3
_MAX_QUOTED = 200
_HEADERS = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "toolweave"}
_FORM = "application/x-www-form-urlencoded"
T = TypeVar("T")


class FetchFailed(Exception):
    """A URL is not fetched, or its answer is refused.

    Attributes:
        final: Whether another try is useless, because the URL, its address or the answer is at fault.
    """

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


class FetchedAnswer(Value, frozen=True):
    """A whole answer.

    Attributes:
        url: The URL that returned it, after redirects.
        status: The status.
        headers: The headers, with lower-case names.
        body: The body.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"headers", "body"})

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def decoded(self, kind: type[T]) -> T:
        """Return the body's JSON as a value of a type.

        Raises:
            FetchFailed: The body is not JSON, or not a value of the type.
        """
        try:
            return decode_json(self.body.removeprefix(BOM_UTF8), kind)  # a parser may ignore it (RFC 8259, 8.1)
        except RecursionError:
            why = "it is nested too deeply"
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            why = str(exc)[:200]
        raise FetchFailed(f"the answer of {shown_url(self.url)} is not accepted: {why}", final=True)


def shown_url(url: str) -> str:
    """Return a foreign URL as it may be shown: without its query, printable, not too long."""
    try:
        parts = urlsplit(url)
        # Without a user and a password, which a URL may also carry.
        text = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        text = "an invalid URL"
    return quoted(text)


def quoted(text: str) -> str:
    """Return a text of a foreign server as it is quoted in errors: one short line, hidden characters escaped."""
    return one_line(text, _MAX_QUOTED)


def checked_url(url: str, what: str) -> str:
    """Return a foreign URL that may be fetched or shown to a browser: https, or http on this machine.

    Raises:
        FetchFailed: The URL is not allowed; `what` names it.
    """
    shown = shown_url(url)
    problem = web_address_problem(url)
    if problem is not None:
        raise FetchFailed(f"{what} {shown!r} cannot be used: {problem}", final=True)
    parts = urlsplit(url)
    if parts.fragment:
        raise FetchFailed(f"{what} {shown!r} has a fragment, which no such URL has", final=True)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise FetchFailed(f"{what} {shown!r} is plain http, which is for this machine alone", final=True)
    return url


class GuardedFetch:
    """Fetches for one MCP server: from public addresses, and from the kinds of address that `trusted` URLs have.

    Args:
        trusted: The URLs in the config: of the server, and of an issuer.
        seconds: Seconds for one fetch, with its redirects and its body.
        max_bytes: The maximum size of an answer.
        elsewhere: Whether a GET without credentials follows redirects to other origins. Their addresses are checked.
    """

    def __init__(
        self,
        trusted: Iterable[str],
        *,
        seconds: float = SECONDS,
        max_bytes: int = MAX_BYTES,
        elsewhere: bool = False,
    ) -> None:
        self._trusted = tuple(dict.fromkeys(filter(None, trusted)))
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._elsewhere = elsewhere
        self._kinds: set[AddressKind] | None = None

    async def get(self, url: str, what: str, *, headers: Mapping[str, str] | None = None) -> FetchedAnswer:
        """Get a URL, through redirects within its origin unless configured otherwise; `what` names it in errors.

        Raises:
            FetchFailed: Its address, a redirect or its answer is not accepted, or no answer arrived.
        """
        return await self._bounded("GET", url, what, _HEADERS | dict(headers or {}), b"")

    async def post(
        self, url: str, what: str, body: Mapping[str, str] | bytes, *, headers: Mapping[str, str] | None = None
    ) -> FetchedAnswer:
        """Post a form, or bytes of JSON, and follow no redirect.

        Raises:
            FetchFailed: As `get`.
        """
        sent_headers = {**_HEADERS, "content-type": "application/json"}
        if not isinstance(body, bytes):
            body = urlencode(body).encode()
            sent_headers["content-type"] = _FORM
        return await self._bounded("POST", url, what, sent_headers | dict(headers or {}), body)

    async def judged(self, url: str, what: str) -> list[Address]:
        """Return the addresses of a URL's host, which were all accepted.

        Raises:
            FetchFailed: The URL is not allowed, or it has no address or one that is not accepted.
        """
        checked_url(url, what)
        allowed = await self._allowed()
        addresses = await _resolved(url, what)
        refused = sorted(_kinds_of(addresses) - allowed)
        if refused:
            reason = f"a {refused[0].replace('_', '-')} address"
        elif not addresses:
            reason = "no address"
        else:
            return addresses
        raise FetchFailed(
            f"{what} {shown_url(url)} has {reason}, and no server with such an address named it: nothing was sent",
            final=True,
        )

    async def _allowed(self) -> set[AddressKind]:
        """Return the kinds of address that are accepted, after one lookup of the trusted URLs."""
        if self._kinds is None:
            kinds: set[AddressKind] = {"public"}
            for url in self._trusted:
                try:
                    kinds |= _kinds_of(await _resolved(url, "it"))
                except (FetchFailed, KeyError):
                    # a URL of another scheme, or one that has no address now, allows nothing
                    continue
            self._kinds = kinds - {"special"}
        return self._kinds

    async def _bounded(
        self, method: str, url: str, what: str, headers: Mapping[str, str], body: bytes
    ) -> FetchedAnswer:
        try:
            with anyio.fail_after(self._seconds):
                for _ in range(_MAX_REDIRECTS + 1):
                    answer = await self._once(method, url, what, headers, body)
                    location = answer.headers.get("location")
                    if location is None or not 300 <= answer.status < 400:
                        return answer
                    url = _moved(method, url, location, what, elsewhere=self._elsewhere)
        except TimeoutError:
            raise FetchFailed(
                f"{what} {shown_url(url)} was not received within {self._seconds:g} s{_beside_proxy(url)}", final=False
            ) from None
        raise FetchFailed(f"{what} {shown_url(url)} redirects more than {_MAX_REDIRECTS} times", final=True)

    async def _once(self, method: str, url: str, what: str, headers: Mapping[str, str], body: bytes) -> FetchedAnswer:
        addresses = await self.judged(url, what)
        client = HttpClient(url, connect_seconds=self._seconds, max_connections=1, addresses=addresses)
        try:
            response = await client.send(method, target_of(url), headers, body)
            with response:
                data = b""
                if not 300 <= response.status < 400:
                    data = await _whole(response, what, url, self._max_bytes)
            return FetchedAnswer(url=url, status=response.status, headers=response.headers, body=data)
        except BodyError as exc:
            raise FetchFailed(f"{what} {shown_url(url)} is not accepted: {exc.detail}", final=True) from None
        except TransportError as exc:
            raise FetchFailed(
                f"{what} {shown_url(url)} was not received: {exc}{_beside_proxy(url)}", final=False
            ) from None
        finally:
            client.close()


async def _whole(response: Response, what: str, url: str, max_bytes: int) -> bytes:
    """Return an uncompressed body; a compressed one was not requested, and may be a bomb."""
    if response.encoding:
        raise FetchFailed(f"{what} {shown_url(url)} is compressed, which was not requested", final=True)
    return await response.read(max_bytes)


async def _resolved(url: str, what: str) -> list[Address]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    try:
        return await resolve(host, port)
    except (OSError, UnicodeError) as exc:
        raise FetchFailed(
            f"{what} was not received: the host {host[:200]!r} was not found: {exc}{_beside_proxy(url)}", final=False
        ) from None


def _beside_proxy(url: str) -> str:
    """Return the end of an error in a network with a proxy; empty without one.

    A proxy would look the host up itself, so that the connection could be made to an address that was not checked.
    """
    if proxy_for(url) is None:
        return ""
    return " (the proxy of the environment is not used here, because the address of the host is checked first)"


def _kinds_of(addresses: Iterable[Address]) -> set[AddressKind]:
    return {kind_of_address(address[0]) for _, address in addresses}


def _moved(method: str, url: str, location: str, what: str, *, elsewhere: bool) -> str:
    """Return the redirect target; cross-origin only when allowed, and a POST is not sent again."""
    try:
        moved = urljoin(url, location)
        is_allowed = elsewhere or origin_of(moved) == origin_of(url)
    except ValueError:
        is_allowed = False
        moved = ""
    if not is_allowed or method != "GET":
        raise FetchFailed(f"{what} {shown_url(url)} redirects to {shown_url(moved)}, where it is not asked", final=True)
    return moved
