"""One MCP endpoint: requests with their headers and credentials, redirects within the origin, faults as errors.

Knows nothing of what the messages say.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from toolweave.connect.fault import (
    Fault,
    HttpSettings,
    bad_encoding,
    http_error,
    no_answer,
    own_headers,
    refused_redirect,
    too_large,
    unasked_encoding,
)
from toolweave.connect.wire.cookies import Cookies
from toolweave.connect.wire.head import Headers
from toolweave.connect.wire.http1 import HttpClient, NoAnswer, Response, Unreadable
from toolweave.connect.wire.inflate import ACCEPTED, Inflater
from toolweave.connect.wire.proxy import PROXY_AUTHENTICATION_REQUIRED, http_proxy_for, refused_by_proxy
from toolweave.errors import ConnectError, ServerError

__all__ = ["EVENTS", "JSON", "Endpoint"]

EVENTS = "text/event-stream"
JSON = "application/json"
_MAX_REDIRECTS = 5
_FRAMING = ("connection", "content-length", "transfer-encoding")
_COMMON = {"accept": f"{JSON}, {EVENTS}", "accept-encoding": ACCEPTED, "user-agent": "toolweave"}


class Endpoint:
    """Sends HTTP requests to one URL, with the cookies that its server has set on the way.

    Raises:
        ConnectError: The environment names a proxy for it that cannot be used.
    """

    def __init__(self, settings: HttpSettings, *, server: str) -> None:
        try:
            proxy = http_proxy_for(settings.url)
        except ValueError as exc:
            raise ConnectError(str(exc), server=server) from None
        self._proxy = None if proxy is None else str(proxy)
        self._secure = urlsplit(settings.url).scheme == "https"
        self._settings = settings
        self._server = server
        self._client = HttpClient(
            settings.url,
            connect_seconds=settings.connect_seconds,
            max_connections=settings.max_connections,
            proxy=proxy,
        )
        self._cookies: Cookies | None = None
        self._target = _target(settings.url)
        self._fixed = None if callable(settings.headers) else _sendable(settings.headers)

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        repeatable: bool = False,
        lasting: bool = False,
    ) -> Response:
        """Send one request, follow redirects within the origin, and return the answer's head.

        Raises:
            ConnectionLostError: There is no answer, or the credentials could not be made.
            ProtocolError: It redirects to where nothing is sent, or too often.
        """
        if self._cookies is None and type(headers) is Headers and headers.head is not None and method == "POST":
            try:
                response = await self._client.ask(headers.head, body, repeatable=repeatable, lasting=lasting)
            except NoAnswer as exc:
                raise self.error(exc) from None
            if response.head.is_json:  # a success that sets no cookie
                return response
        else:
            response = await self._first(method, headers, body, repeatable=repeatable, lasting=lasting)
        return await self._followed(response, method, headers, body, repeatable=repeatable, lasting=lasting)

    async def _first(self, method: str, headers: Mapping[str, str], body: bytes, **how: bool) -> Response:
        """Send a request to the configured URL, and keep its head for those that are alike."""
        merged = await self._merged(headers, body)
        url, target = self._settings.url, self._target
        try:
            head = self._client.head(method, target, self._with_cookies(merged, url))
            if self._fixed is not None and self._cookies is None and method == "POST" and isinstance(headers, Headers):
                headers.head = head  # nothing in it is made anew for each
            return await self._client.ask(head, body if method == "POST" else None, **how)
        except NoAnswer as exc:
            raise self.error(exc) from None

    async def _followed(
        self, response: Response, method: str, headers: Mapping[str, str], body: bytes, **how: bool
    ) -> Response:
        """Return the answer behind the redirects within the origin; keep the cookies on the way."""
        url = self._settings.url
        merged: Mapping[str, str] | None = None
        for left in range(_MAX_REDIRECTS, -1, -1):
            self._check_proxy(response)
            if response.head.cookies:
                self._cookies = self._cookies or Cookies()
                self._cookies.take(url, response.head.cookies)
            if not 300 <= response.status < 400 or "location" not in response.headers:
                return response
            response.close()
            url = self._moved(method, url, response)
            if not left:
                break
            merged = merged or await self._merged(headers, body)
            try:
                head = self._client.head(method, _target(url), self._with_cookies(merged, url))
                response = await self._client.ask(head, body if method == "POST" else None, **how)
            except NoAnswer as exc:
                raise self.error(exc) from None
        text = f"it redirects more than {_MAX_REDIRECTS} times"
        raise http_error(Fault(status=response.status, text=text), server=self._server)

    async def _merged(self, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        own = self._fixed
        if own is None:
            own = _sendable(await own_headers(self._settings, server=self._server))
        merged = {**_COMMON, **headers, **own}
        if body:
            merged.setdefault("content-type", JSON)
        return merged

    def _with_cookies(self, headers: Mapping[str, str], url: str) -> Mapping[str, str]:
        kept = self._cookies.header(url) if self._cookies is not None else ""
        if not kept:
            return headers
        own = headers.get("cookie")
        return {**headers, "cookie": f"{own}; {kept}" if own else kept}

    def error(self, exc: NoAnswer) -> ServerError:
        """Return the error that a request without an answer is."""
        if isinstance(exc, Unreadable):
            fault = too_large(exc.limit) if exc.limit is not None else bad_encoding(200, exc.detail, bomb=exc.bomb)
            return http_error(fault, server=self._server)
        fault = no_answer(self._settings.url, str(exc), sent=exc.sent, proxy=self._proxy)
        return http_error(fault, server=self._server)

    def check_encoding(self, response: Response) -> None:
        """Raise what a body is that was compressed in a way nobody asked for."""
        if response.encoding and not Inflater.reads(response.encoding):
            raise http_error(unasked_encoding(response.status, response.encoding), server=self._server)

    def _check_proxy(self, response: Response) -> None:
        """Raise what an answer is that the proxy gave in the place of the server: behind TLS it could not have."""
        if response.status == PROXY_AUTHENTICATION_REQUIRED and self._proxy is not None and not self._secure:
            response.close()
            why = refused_by_proxy(response.status, response.reason, self._settings.public_url)
            raise self.error(NoAnswer("ProxyError", why, sent=False))

    def heard(self) -> object:
        """Return what differs whenever bytes of the server have arrived."""
        return self._client.heard()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def _moved(self, method: str, url: str, response: Response) -> str:
        location = response.headers["location"]
        reason = refused_redirect(method, url, response.status, location)
        if reason is not None:
            raise http_error(Fault(status=response.status, text=reason), server=self._server)
        return urljoin(url, location)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in _FRAMING}
