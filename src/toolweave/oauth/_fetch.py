"""Requests to URLs that a foreign server has named, guarded: addresses judged and pinned, everything bounded.

An MCP server says where its metadata are, these where an authorization server is, and that where tokens are: each could
name a machine of our own network. Knows nothing of OAuth.
"""

from __future__ import annotations

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
    HttpClient,
    NoAnswer,
    Response,
    Unreadable,
    origin_of,
    resolve,
    target_of,
)
from toolweave.oauth._addresses import AddressKind, kind_of_address
from toolweave.protocol.uris import web_address_problem

MAX_BYTES = 256 * 1024
"""The largest answer that is read; metadata and tokens are some kilobytes."""
SECONDS = 15.0
"""The time for one fetch: lookup, TCP, TLS, redirects and the body together."""
_MAX_REDIRECTS = 3
_MAX_QUOTED = 200
_HEADERS = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "toolweave"}
_FORM = "application/x-www-form-urlencoded"
T = TypeVar("T")


class NotFetched(Exception):
    """A URL is not fetched, or its answer is refused.

    Attributes:
        final: Whether another try is useless: the URL itself, its address, or the answer is at fault.
    """

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


class FetchedAnswer(Value, frozen=True):
    """A whole answer.

    Attributes:
        url: The URL it came from, after redirects.
        status: Its status.
        headers: Its headers, with lower-case names.
        body: Its body.
    """

    quiet: ClassVar[frozenset[str]] = frozenset({"headers", "body"})

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def decoded(self, kind: type[T]) -> T:
        """Return the body's JSON as a value of a type.

        Raises:
            NotFetched: It is none.
        """
        try:
            return decode_json(self.body, kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:  # too deep is a RecursionError
            if isinstance(exc, RecursionError):
                why = "it is nested too deeply"
            else:
                why = str(exc)[:200]
            raise NotFetched(f"the answer of {shown_url(self.url)} is not taken: {why}", final=True) from None


def shown_url(url: str) -> str:
    """Return a foreign URL as it may be shown: without its query, printable, not too long."""
    try:
        parts = urlsplit(url)
        text = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        text = "what is no URL"
    return quoted(text)


def quoted(text: str) -> str:
    """Return a text of a foreign server as it is quoted in errors: one short line, hidden characters escaped."""
    return one_line(text, _MAX_QUOTED)


def checked_url(url: str, what: str) -> str:
    """Return a foreign URL that may be fetched or shown to a browser: https, or http on this machine.

    Raises:
        NotFetched: It may not; `what` names it.
    """
    shown = shown_url(url)
    problem = web_address_problem(url)
    if problem is not None:
        raise NotFetched(f"{what} {shown!r} cannot be used: {problem}", final=True)
    parts = urlsplit(url)
    if parts.fragment:
        raise NotFetched(f"{what} {shown!r} has a fragment, which no such URL has", final=True)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise NotFetched(f"{what} {shown!r} is plain http, which is for this machine alone", final=True)
    return url


class GuardedFetch:
    """Fetches for one MCP server: from public addresses, and from the kinds of address that `trusted` URLs have.

    Args:
        trusted: The URLs that a person has configured: the server's own, and an issuer's.
        seconds: The time for one fetch, with its redirects and its body.
        max_bytes: The largest answer that is read.
        elsewhere: Whether a GET without credentials follows redirects to other origins, whose addresses are judged too.
    """

    def __init__(
        self,
        trusted: Iterable[str],
        *,
        seconds: float = SECONDS,
        max_bytes: int = MAX_BYTES,
        elsewhere: bool = False,
    ) -> None:
        self._trusted = tuple(dict.fromkeys(url for url in trusted if url))
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._elsewhere = elsewhere
        self._kinds: set[AddressKind] | None = None

    async def get(self, url: str, what: str, *, headers: Mapping[str, str] | None = None) -> FetchedAnswer:
        """Get a URL, through redirects within its origin unless configured otherwise; `what` names it in errors.

        Raises:
            NotFetched: Its address, the way to it or its answer is not accepted, or there is none.
        """
        return await self._bounded("GET", url, what, {**_HEADERS, **(headers or {})}, b"")

    async def post(
        self, url: str, what: str, body: Mapping[str, str] | bytes, *, headers: Mapping[str, str] | None = None
    ) -> FetchedAnswer:
        """Post a form, or bytes of JSON, and follow no redirect.

        Raises:
            NotFetched: As `get`.
        """
        kind = "application/json" if isinstance(body, bytes) else _FORM
        if isinstance(body, bytes):
            sent = body
        else:
            sent = urlencode(body).encode()
        return await self._bounded("POST", url, what, {**_HEADERS, "content-type": kind, **(headers or {})}, sent)

    async def judged(self, url: str, what: str) -> list[Address]:
        """Return the addresses of a URL's host, which were all accepted.

        Raises:
            NotFetched: It is no URL to be fetched, has no address, or one that is not accepted.
        """
        parts = urlsplit(checked_url(url, what))
        allowed = await self._allowed()
        addresses = await _resolved(parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme], what)
        kinds = {kind_of_address(address[0]) for _, address in addresses}
        refused = sorted(kinds - allowed)
        if refused or not addresses:
            if refused:
                reason = f"a {refused[0].replace('_', '-')} address"
            else:
                reason = "no address"
            raise NotFetched(
                f"{what} {shown_url(url)} has {reason}, where the server itself is not: it is not asked", final=True
            )
        return addresses

    async def _allowed(self) -> set[AddressKind]:
        """Return the kinds of address that are accepted, found out once."""
        if self._kinds is None:
            kinds: set[AddressKind] = {"public"}
            for url in self._trusted:
                parts = urlsplit(url)
                try:
                    found = await _resolved(parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme], "it")
                except (NotFetched, KeyError):
                    continue
                kinds |= {kind_of_address(address[0]) for _, address in found}
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
                    if not 300 <= answer.status < 400 or location is None:
                        return answer
                    url = _moved(method, url, location, what, elsewhere=self._elsewhere)
        except TimeoutError:
            raise NotFetched(f"{what} {shown_url(url)} did not come within {self._seconds:g} s", final=False) from None
        raise NotFetched(f"{what} {shown_url(url)} redirects more than {_MAX_REDIRECTS} times", final=True)

    async def _once(self, method: str, url: str, what: str, headers: Mapping[str, str], body: bytes) -> FetchedAnswer:
        addresses = await self.judged(url, what)
        client = HttpClient(url, connect_seconds=self._seconds, max_connections=1, addresses=addresses)
        try:
            response = await client.send(method, target_of(url), headers, body)
            with response:
                if 300 <= response.status < 400:
                    data = b""
                else:
                    data = await _whole(response, what, url, self._max_bytes)
            return FetchedAnswer(url=url, status=response.status, headers=response.headers, body=data)
        except Unreadable as exc:
            raise NotFetched(f"{what} {shown_url(url)} is not taken: {exc.detail}", final=True) from None
        except NoAnswer as exc:
            raise NotFetched(f"{what} {shown_url(url)} did not come: {exc}", final=False) from None
        finally:
            client.close()


async def _whole(response: Response, what: str, url: str, max_bytes: int) -> bytes:
    """Return an uncompressed body; a compressed one was not requested, and may be a bomb."""
    if response.encoding:
        raise NotFetched(f"{what} {shown_url(url)} is compressed, which was not asked for", final=True)
    return await response.read(max_bytes)


async def _resolved(host: str, port: int, what: str) -> list[Address]:
    try:
        return await resolve(host, port)
    except (OSError, UnicodeError) as exc:
        raise NotFetched(f"{what}: {host[:200]!r} was not found: {exc}", final=False) from None


def _moved(method: str, url: str, location: str, what: str, *, elsewhere: bool) -> str:
    """Return the redirect target; cross-origin only when allowed, and a POST is not sent again."""
    try:
        moved = urljoin(url, location)
        stays = method == "GET" and (elsewhere or origin_of(moved) == origin_of(url))
    except ValueError:
        stays = False
        moved = ""
    if not stays:
        raise NotFetched(f"{what} {shown_url(url)} redirects to {shown_url(moved)}, where it is not asked", final=True)
    return moved
