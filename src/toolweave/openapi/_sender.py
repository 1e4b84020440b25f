"""Requests to an API over HTTP: bounded, to checked addresses, through redirects, credentials only to one origin.

Knows no operations. An answer is read by the caller, piece by piece.
"""

# There is one client, with its connections, for each origin. If the config does not name an origin, its addresses are
# checked before its client is made, and the client connects to these addresses only: it does not matter if the name
# resolves to another address later. Every hop of a redirect is a new request through the same checks, so a redirect
# cannot lead where a URL could not.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import urljoin, urlsplit

from toolweave.errors import ErrorKind, ToolError
from toolweave.http import (
    ACCEPTED,
    PROXY_AUTHENTICATION_REQUIRED,
    Address,
    BodyError,
    HttpClient,
    TransportError,
    came_through,
    http_proxy_for,
    origin_of,
    refused_by_proxy,
    target_of,
)
from toolweave.oauth.fetch import FetchFailed, GuardedFetch, shown_url

_MAX_REDIRECTS = 5
_KEEPS_METHOD = (307, 308)
_SAFE = ("GET", "HEAD")
_REPEATABLE = frozenset(("GET", "HEAD", "QUERY", "PUT", "DELETE"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request.

    Attributes:
        headers: Headers that any server may see, with lower-case names.
        private: Headers for the origin of the API only: credentials, cookies, and headers of the user.
        private_query: Credentials in the query, for the same origin only; encoded.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""
    private: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    private_query: str = field(default="", repr=False)

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice has the effect of sending it once (RFC 9110, 9.2.2)."""
        return self.method in _REPEATABLE


class ApiAnswer(Protocol):
    """An answer whose head has arrived."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def reason(self) -> str:
        """The reason phrase."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, with lower-case names."""
        ...

    @property
    def encoding(self) -> str:
        """The content encoding of the bytes that `piece` returns, or ""."""
        ...

    async def piece(self) -> bytes:
        """Return the next piece of the body, or nothing at its end.

        Raises:
            TransportError: It breaks off.
        """
        ...

    def close(self) -> None:
        """Release the answer."""
        ...


class ApiSender(Protocol):
    """The way to an API: over HTTP, or into an application in this process."""

    async def send(self, request: ApiRequest) -> tuple[ApiAnswer, str]:
        """Return the answer to a request, and the URL that gave it.

        Raises:
            ToolError: No answer arrived, or a redirect is not followed.
        """
        ...

    def came_through(self, url: str) -> str:
        """Return the end of an error about a response from a URL, if a proxy may have sent the response itself."""
        ...


class HttpSender:
    """Sends requests over HTTP.

    Args:
        base_url: A URL of the API's own origin, to which credentials are sent.
        trusted: URLs in the config. Their addresses are not checked, and other origins may have addresses of the same
            kind.
        connect_seconds: For TCP, a proxy's tunnel and TLS together.
    """

    def __init__(self, base_url: str, *, trusted: tuple[str, ...], connect_seconds: float) -> None:
        self._base_url = shown_url(base_url)
        self._own = origin_of(base_url)
        self._trusted = frozenset(map(origin_of, trusted))
        self._guard = GuardedFetch(trusted)
        self._seconds = connect_seconds
        self._clients: dict[str, HttpClient] = {}

    async def send(self, request: ApiRequest) -> tuple[ApiAnswer, str]:
        """Return the answer to a request, through redirects, and the URL that gave it; see `ApiSender.send`.

        A redirect to another origin is followed only for a method that changes nothing, without credentials. A request
        with a body stays at its origin.
        """
        return await redirected(self._once, request)

    async def _once(self, request: ApiRequest) -> ApiAnswer:
        url = request.url
        headers = {**request.headers, "accept-encoding": ACCEPTED, "user-agent": "toolweave"}
        if origin_of(url) == self._own:
            headers |= request.private
            url = with_query(url, request.private_query)
        client = await self._client(url)
        try:
            answer = await client.send(
                request.method, target_of(url), headers, request.body, repeatable=request.repeatable
            )
        except TransportError as exc:
            raise unanswered(exc, request) from None
        if answer.status == PROXY_AUTHENTICATION_REQUIRED and client.forwarded:
            answer.close()
            why = refused_by_proxy(answer.status, answer.reason, shown_url(url))
            raise ToolError(why, kind=ErrorKind.NOT_SENT)
        return answer

    async def _client(self, url: str) -> HttpClient:
        origin = origin_of(url)
        client = self._clients.get(origin)
        if client is not None:
            return client
        addresses: Sequence[Address] = ()
        try:
            if origin not in self._trusted:
                addresses = await self._guard.judged(url, "the API at")
            proxy = http_proxy_for(url)
        except FetchFailed as exc:
            hint = ""
            if origin == self._own:
                hint = f". If you trust the document, set base_url (--base-url) to {self._base_url}"
            raise ToolError(f"{exc}{hint}", kind=ErrorKind.NOT_SENT) from None
        except ValueError as exc:
            raise ToolError(str(exc), kind=ErrorKind.NOT_SENT) from None
        made = HttpClient(url, connect_seconds=self._seconds, proxy=proxy, addresses=addresses)
        # another call may have made one while this one waited for the addresses
        return self._clients.setdefault(origin, made)

    def came_through(self, url: str) -> str:
        """Return the end of an error about a response from a URL; empty without a proxy that reads the request."""
        client = self._clients.get(origin_of(url))
        if client is not None and client.proxy is not None and client.forwarded:
            return came_through(url, client.proxy)
        return ""

    def close(self) -> None:
        """Close every connection."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()


async def redirected(send: Callable[[ApiRequest], Awaitable[ApiAnswer]], request: ApiRequest) -> tuple[ApiAnswer, str]:
    """Return the answer to a request behind its redirects, and the URL that gave it.

    Raises:
        ToolError: A redirect is not followed.
    """
    for _ in range(_MAX_REDIRECTS + 1):
        answer = await send(request)
        location = answer.headers.get("location")
        is_redirect = 300 <= answer.status < 400 and answer.status != 304
        if location is None or not is_redirect:
            return answer, request.url
        answer.close()
        request = _moved(request, answer.status, location)
    raise ToolError(f"{shown_url(request.url)} redirects more than {_MAX_REDIRECTS} times")


def unanswered(exc: TransportError, request: ApiRequest) -> ToolError:
    """Return the error for a request without an answer."""
    where = f"{request.method} {shown_url(request.url)}"
    if isinstance(exc, BodyError):
        if exc.limit is not None or exc.bomb:
            kind = ErrorKind.TOO_LARGE
        else:
            kind = ErrorKind.EXECUTION_FAILED
        return ToolError(f"the answer to {where} is not accepted: {exc.detail}", kind=kind)
    if not exc.sent:
        return ToolError(f"{where} was not sent: {exc}", kind=ErrorKind.NOT_SENT, retryable=True)
    return ToolError(f"{where} got no answer: {exc}", kind=ErrorKind.OUTCOME_UNKNOWN, retryable=request.repeatable)


def _moved(request: ApiRequest, status: int, location: str) -> ApiRequest:
    """Return the request to where a redirect leads.

    Raises:
        ToolError: It is not sent there.
    """
    if status == 303 and request.method != "HEAD":
        method = "GET"
    else:
        method = request.method
    try:
        url = urljoin(request.url, location).partition("#")[0]
        stays = origin_of(url) == origin_of(request.url)
        is_http = urlsplit(url).scheme in ("http", "https")
    except ValueError:
        stays = False
        is_http = False
        url = ""
    # At 301 and 302, clients may turn a POST into a GET (RFC 9110, 15.4.2), which would be another operation.
    follows = method in _SAFE
    if stays and status in _KEEPS_METHOD:
        follows = True
    if not is_http or not follows:
        raise ToolError(
            f"{request.method} {shown_url(request.url)} redirects (HTTP {status}) to {shown_url(url)}, "
            "where it is not sent"
        )
    changed = replace(request, url=url, method=method)
    if method != request.method:
        changed = replace(changed, body=b"")
    if stays:
        return changed
    # Headers may be arguments of a call, so another origin gets none of them. The credentials are lost for all further
    # hops: a redirect back to the API is under the control of the other origin.
    return replace(changed, headers={"accept": "*/*"}, private={}, private_query="")


def with_query(url: str, query: str) -> str:
    """Return a URL with a further encoded query, which may be empty."""
    if not query:
        return url
    joint = "&" if "?" in url else "?"
    return f"{url}{joint}{query}"
