"""One MCP endpoint: requests with their headers and credentials, redirects within the origin, faults as errors.

Knows nothing of the messages but the shape of an error.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import msgspec

from toolweave.config._auth import AuthFlow
from toolweave.connect._http_errors import (
    HttpFault,
    HttpSettings,
    answer_fault,
    bad_encoding,
    http_error,
    is_lost_session,
    is_rpc_error,
    no_answer,
    odd_content,
    own_headers,
    public_url,
    refused_credentials,
    refused_redirect,
    too_large,
    unasked_encoding,
)
from toolweave.connect._wire.credentials import AuthChallenge, AuthHook, operation_of, resends_of
from toolweave.connect._wire.responses import invalid, result_of
from toolweave.errors import ConnectError, ProtocolError, ServerError
from toolweave.http import (
    ACCEPTED,
    PROXY_AUTHENTICATION_REQUIRED,
    BodyError,
    HttpClient,
    Inflater,
    Response,
    SharedHeaders,
    Socket,
    TransportError,
    came_through,
    http_proxy_for,
    origin_of,
    refused_by_proxy,
    target_of,
)
from toolweave.protocol.lenient_messages import decode_lenient

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

    def store(self, url: str, set_cookies: Iterable[str], *, now: float | None = None) -> None:
        """Keep the cookies of an answer to `url`; `now` is a Unix time.

        Cookies of another domain, with characters that cannot be sent back, or over 4 KiB are ignored.
        """
        if now is None:
            now = time.time()
        for text in set_cookies:
            parsed = _parsed(text, url, now)
            if parsed is None:
                continue
            name, cookie = parsed
            key = (name, cookie.path)
            before = self._kept.pop(key, None)
            if cookie.ends > now:
                # a renewed one keeps its position (RFC 6265, 5.3, 11.3), which does not matter to the server
                self._kept[key] = cookie
            elif before is None:
                continue
            # The dict is in the order of setting, so the first one is the oldest: a server cannot fill the memory.
            if len(self._kept) > _MAX_COOKIES:
                del self._kept[next(iter(self._kept))]

    def header(self, url: str, *, now: float | None = None) -> str:
        """Return the value of `cookie` for a request to `url`; empty for none."""
        if now is None:
            now = time.time()
        for key in [key for key, cookie in self._kept.items() if cookie.ends <= now]:
            del self._kept[key]
        parts = urlsplit(url)
        path = parts.path or "/"
        fitting: list[tuple[str, _Cookie]] = []
        for (name, _), cookie in self._kept.items():
            is_allowed = parts.scheme == "https" or not cookie.secure
            if is_allowed and _within(path, cookie.path):
                fitting.append((name, cookie))
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
    if domain and not _belongs(host, domain):
        return None
    secure = "secure" in named
    if secure and parts.scheme != "https":
        return None
    path = named.get("path", "")
    if not _may_have_prefix(found.group(1).lower(), domain=domain, path=path, secure=secure):
        return None
    if not path.startswith("/"):
        path = parts.path.rpartition("/")[0] or "/"  # the folder of the URL (RFC 6265, 5.1.4)
    return found.group(1), _Cookie(value=found.group(2).strip(), path=path, secure=secure, ends=_end(named, now))


def _may_have_prefix(name: str, *, domain: str, path: str, secure: bool) -> bool:
    """Return whether a cookie keeps the promise that the prefix of its name makes (RFC 6265bis, 4.1.3)."""
    if name.startswith("__host-"):
        return secure and not domain and path == "/"
    return secure or not name.startswith("__secure-")


def _end(named: dict[str, str], now: float) -> float:
    """Return when a cookie ends: `Max-Age` counts more than `Expires`; never, for this connection, without both."""
    seconds = named.get("max-age", "")
    if _SECONDS.fullmatch(seconds):
        return now + int(seconds)
    if "expires" not in named:
        return float("inf")
    from email.utils import parsedate_to_datetime  # 20 ms, for an attribute that is rare

    try:
        return parsedate_to_datetime(named["expires"].replace("-", " ")).timestamp()
    except (ValueError, OverflowError, OSError):
        return float("inf")


def _belongs(host: str, domain: str) -> bool:
    """Return whether a server may set a cookie for a domain: its own, or one above it below the top level."""
    if host == domain:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." in domain and host.endswith(f".{domain}")
    return False


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.removesuffix('/')}/")


class _Request(msgspec.Struct, gc=False):
    """One request to the endpoint, however often it is sent."""

    method: str
    headers: Mapping[str, str]
    body: bytes | None
    repeatable: bool
    lasting: bool


EVENTS = "text/event-stream"
JSON = "application/json"
_MAX_REDIRECTS = 5
_ERROR_BYTES = 1024 * 1024
_ERROR_SECONDS = 2.0
_MAX_ODD_BYTES = 4_000_000
"""Bytes of an answer under another content type that are searched for the answer to a request."""
_FRAMING = ("connection", "content-length", "transfer-encoding")
_COMMON = {"accept": f"{JSON}, {EVENTS}", "accept-encoding": ACCEPTED, "user-agent": "toolweave"}
_NONE: Mapping[str, str] = {}
_REFUSED = (401, 403)


class HttpEndpoint:
    """The HTTP client of one URL, with the cookies that its server sets.

    Attributes:
        clients: The connections, by origin: to that of the URL, and to those that an authorization flow asks.
        cookies: Those of the URL's origin, once it has set any.
        in_session: Whether every request to it belongs to a session, whatever its headers are.

    Raises:
        ConnectError: The environment names a proxy for it that cannot be used.
    """

    def __init__(self, settings: HttpSettings, *, server: str, shared: HttpEndpoint | None = None) -> None:
        self._settings = settings
        self._server = server
        self.clients: dict[object, HttpClient] = {}
        self.cookies: Cookies | None = None
        if shared is not None:
            self.clients = shared.clients
            self.cookies = shared.cookies
        self.in_session = False
        self._client = self._client_of(settings.url)
        self._answered: Callable[[str, Mapping[str, str]], None] | None = getattr(settings.hook, "answered", None)
        if callable(settings.headers):
            self._fixed = None
        else:
            self._fixed = _sendable(settings.headers)

    def _opened(self, url: str) -> HttpClient:
        try:
            proxy = http_proxy_for(url)
        except ValueError as exc:
            raise ConnectError(str(exc), server=self._server) from None
        settings = self._settings
        return HttpClient(
            url, connect_seconds=settings.connect_seconds, max_connections=settings.max_connections, proxy=proxy
        )

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        repeatable: bool = False,
        lasting: bool = False,
        begun: Socket | None = None,
    ) -> Response:
        """Send one request, follow redirects within the origin, and return the answer's head.

        `begun` is the connection on which `begin` sent it already.

        Raises:
            ConnectionLostError: The server does not answer, or the credentials could not be made.
            ProtocolError: It redirects too often, or to a URL to which nothing is sent.
        """
        request = _Request(method, headers, body if method == "POST" else None, repeatable, lasting)
        settings = self._settings
        url = settings.url
        status = 0
        hook = settings.hook
        try:
            # Headers and credentials are made anew for each redirect, since a proof of possession names the URL.
            for _ in range(1 + _MAX_REDIRECTS):
                own = self._fixed
                if own is None:
                    own = _sendable(await own_headers(settings, server=self._server))
                if settings.flow is not None:
                    response = await self._by_flow(settings.flow, request, url, own)
                else:
                    if hook is None:
                        credentials = _NONE
                    else:
                        credentials = await self._made(hook.headers(method, url))
                    head = self._head(request, url, own, credentials)
                    response = await self._client.ask(
                        head, request.body, repeatable=repeatable, lasting=lasting, begun=begun
                    )
                    begun = None  # a redirect is another request
                    self._process_head(self._client, url, response)
                    if hook is not None:
                        response = await self._accepted(hook, response, request, url, own, credentials)
                status = response.head.status
                if not 300 <= status < 400 or "location" not in response.head.headers:
                    return response
                response.close()
                url = self._moved(method, url, response)
        except TransportError as exc:
            raise self.error(exc, url=url) from None
        text = f"it redirects more than {_MAX_REDIRECTS} times"
        raise http_error(HttpFault(status=status, text=text), server=self._server)

    def begin(self, headers: Mapping[str, str], body: bytes, on_news: Callable[[], None]) -> Socket | None:
        """Send one POST at once, on an idle connection; None, with nothing sent, where it would have to wait.

        So it is where no connection is idle, and where headers or credentials are made for each request. What follows
        is that of `HttpClient.begin`; `send` continues it.
        """
        settings = self._settings
        if self._fixed is None or settings.hook is not None or settings.flow is not None:
            return None
        try:
            head = self._head(_Request("POST", headers, body, False, False), settings.url, self._fixed, _NONE)
        except ServerError:  # which `send` raises
            return None
        return self._client.begin(head, body, on_news)

    def release(self, socket: Socket) -> None:
        """Take a connection back whose exchange was begun by `begin` and is complete."""
        self._client.release(socket)

    def abandon(self, socket: Socket) -> None:
        """End an exchange that was begun by `begin` and is not wanted any more."""
        self._client.abandon(socket)

    async def _by_flow(self, flow: AuthFlow, request: _Request, url: str, own: Mapping[str, str]) -> Response:
        """Send a request as the authorization object of a library requires."""
        from toolweave.connect._wire.httpx_auth import HttpxAuth  # only if it is used

        async def transmit(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
            client = self._client_of(url)
            # the cookies of the endpoint's origin go to that alone
            if self.cookies is None or client is not self._client:
                cookie = ""
            else:
                cookie = self.cookies.header(url)
            head = self._encoded(client, method, url, _with_cookie(headers, cookie))
            content = body if method == "POST" else None
            try:
                response = await client.ask(head, content, repeatable=request.repeatable, lasting=request.lasting)
                self._process_head(client, url, response)
            except TransportError as exc:
                raise self.error(exc, client, url) from None
            response, is_lost = await self._session_checked(response, headers)
            if is_lost:
                raise _LostSession(response)
            return response

        auth = HttpxAuth(flow, self._settings, server=self._server)
        try:
            return await auth.send(request.method, url, _merged(request, own, _NONE), request.body or b"", transmit)
        except _LostSession as exc:
            return exc.response

    async def _accepted(
        self,
        hook: AuthHook,
        response: Response,
        request: _Request,
        url: str,
        own: Mapping[str, str],
        sent: Mapping[str, str],
    ) -> Response:
        """Send a request again as long as it is refused and the hook has other headers for it; bounded."""
        # Each round closes the refusal before the next request, and stops when the hook has no other headers. The
        # bound is the hook's own, since only the hook knows how many steps its sign-in can take.
        for attempt in range(resends_of(hook)):
            if response.status not in _REFUSED:
                break
            response, is_lost = await self._session_checked(response, request.headers)
            if is_lost:
                break
            challenge = AuthChallenge(
                method=request.method,
                url=url,
                status=response.status,
                headers=response.headers,
                sent=sent,
                operation=operation_of(request.body or b""),
                attempt=attempt,
            )
            try:
                others = await self._made(hook.challenged(challenge))
            except BaseException:
                response.close()
                raise
            if not others:
                break
            response.close()
            sent = others
            head = self._head(request, url, own, others)
            response = await self._client.ask(
                head, request.body, repeatable=request.repeatable, lasting=request.lasting
            )
            self._process_head(self._client, url, response)
        if self._answered is not None:
            self._answered(url, response.head.headers)
        return response

    async def _session_checked(self, response: Response, headers: Mapping[str, str]) -> tuple[Response, bool]:
        """Return an answer, and whether it refuses a session in place of the credentials.

        After a restart, some servers answer 401 to a session that they do not know. Signing in would be in vain there:
        if credentials are missing, `initialize` of the next session is also refused.
        """
        if response.status not in _REFUSED or "www-authenticate" in response.headers:
            return response, False
        if not self.in_session and "mcp-session-id" not in headers:
            return response, False
        body = await self._beginning(response, _ERROR_BYTES)
        response.close()
        return response.with_body(body), is_lost_session(response.status, response.headers, body)

    async def _made(self, making: Awaitable[Mapping[str, str] | None]) -> Mapping[str, str]:
        try:
            given = await making
            if not given:
                return _NONE
            made = _sendable(given)
        except ServerError:  # in the hook's own words
            raise
        except Exception as exc:  # boundary: an error of the user's hook fails the request that asked
            raise http_error(refused_credentials(exc), server=self._server) from exc
        self._settings.remember(made)
        return made

    def _head(self, request: _Request, url: str, own: Mapping[str, str], credentials: Mapping[str, str]) -> bytes:
        """Return the head of a request, which is encoded once for requests whose headers are equal.

        Why the kept one is right: it depends on the shared headers, which never change, and on the parts that are
        compared.
        """
        if self.cookies is None:
            cookie = ""
        else:
            cookie = self.cookies.header(url)
        made_from = (request.method, url, own, credentials, cookie)
        shared = request.headers
        if type(shared) is SharedHeaders and shared.made_from == made_from:
            return shared.head
        headers = _with_cookie(_merged(request, own, credentials), cookie)
        head = self._encoded(self._client, request.method, url, headers)
        if type(shared) is SharedHeaders:
            shared.head = head
            shared.made_from = made_from
        return head

    def _encoded(self, client: HttpClient, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        try:
            return client.head(method, target_of(url), headers)
        except TransportError as exc:
            raise self.error(exc, client, url) from None

    def _client_of(self, url: str) -> HttpClient:
        """Return the client of a URL: an authorization flow also sends requests to other servers."""
        origin = origin_of(url)
        client = self.clients.get(origin)
        if client is None:
            client = self.clients[origin] = self._opened(url)
        return client

    def _process_head(self, client: HttpClient, url: str, response: Response) -> None:
        """Keep the cookies of an answer.

        Raises:
            TransportError: The proxy gave it instead of the server.
        """
        head = response.head
        if head.status == PROXY_AUTHENTICATION_REQUIRED and client.forwarded:
            response.close()
            why = refused_by_proxy(head.status, head.reason, url.partition("?")[0])
            raise TransportError("ProxyError", why, sent=False)
        if head.cookies and client is self._client:
            if self.cookies is None:
                self.cookies = Cookies()
            self.cookies.store(url, head.cookies)

    def error(self, exc: TransportError, client: HttpClient | None = None, url: str | None = None) -> ServerError:
        """Return the error for a request without an answer; it went to the endpoint unless it says otherwise."""
        if isinstance(exc, BodyError):
            if exc.limit is not None:
                fault = too_large(exc.limit)
            else:
                fault = bad_encoding(200, exc.detail, bomb=exc.bomb)
            return http_error(fault, server=self._server)
        if client is None:
            client = self._client
        proxy = None if client.proxy is None else str(client.proxy)
        sent = exc.sent and client is self._client  # an authorization server is asked before the message is sent
        fault = no_answer(url or self._settings.url, str(exc), sent=sent, proxy=proxy)
        return http_error(fault, server=self._server)

    def check_encoding(self, response: Response) -> None:
        """Raise the error for a content encoding that was not accepted."""
        if response.encoding and not Inflater.reads(response.encoding):
            raise http_error(unasked_encoding(response.status, response.encoding), server=self._server)

    async def odd_body(self, response: Response) -> bytes:
        """Return the body of an answer that is not labelled as JSON, as far as it arrives within a few seconds."""
        return await self._beginning(response, min(_MAX_ODD_BYTES, self._settings.max_bytes))

    def odd_answer(self, response: Response, body: bytes) -> ServerError:
        """Return the error for an answer that is neither JSON nor an event stream."""
        kind = response.headers.get("content-type", "")
        fault = odd_content(
            self._settings, response.status, response.reason, kind, body[:_ERROR_BYTES], through=self._way()
        )
        return http_error(fault, server=self._server)

    async def _beginning(self, response: Response, limit: int) -> bytes:
        if response.encoding and not Inflater.reads(response.encoding):
            return b""
        return await response.beginning(limit, _ERROR_SECONDS)

    async def refusal(self, response: Response, *, in_session: bool) -> ServerError:
        """Return the error of a response with an HTTP error status, or without an answer.

        It is a `ConnectionLostError` if the server has forgotten the session.
        """
        body = await self._beginning(response, _ERROR_BYTES)
        status = response.status
        reason = response.reason
        headers = response.headers
        if status < 300:
            return self.odd_answer(response, body)
        fault = answer_fault(self._settings, status, reason, headers, body, in_session=in_session, through=self._way())
        # With a 5xx status an error of JSON-RPC is the answer of a handler, which may well speak of another session.
        names_session = fault.session_gone and status < 500
        if status in _REFUSED or names_session or not is_rpc_error(body):
            return http_error(fault, server=self._server)
        return _rpc_error(body, self._server)

    def _way(self) -> str:
        """Return the end of an error about an answer that a proxy may have given; empty without such a proxy."""
        client = self._client
        if client.proxy is not None and client.forwarded:
            return came_through(self._settings.url, client.proxy)
        return ""

    def at(self, url: str) -> HttpEndpoint:
        """Return an endpoint at another URL of the origin, which shares connections and cookies with this one."""
        if self.cookies is None:
            self.cookies = Cookies()
        return HttpEndpoint(self._settings.replace(url=url), server=self._server, shared=self)

    @property
    def url(self) -> str:
        """The URL without the parts that may hold secrets."""
        return public_url(self._settings.url)

    def received_mark(self) -> object:
        """Return a value that changes whenever bytes of the server arrive, and always while a person signs in."""
        if getattr(self._settings.hook, "signing_in", False):
            return object()
        return self._client.received_mark()

    def close(self) -> None:
        """Close every connection."""
        for client in self.clients.values():
            client.close()

    def _moved(self, method: str, url: str, response: Response) -> str:
        location = response.headers["location"]
        reason = refused_redirect(method, url, response.status, location)
        if reason is not None:
            raise http_error(HttpFault(status=response.status, text=reason), server=self._server)
        return urljoin(url, location)


def _merged(request: _Request, own: Mapping[str, str], credentials: Mapping[str, str]) -> Mapping[str, str]:
    merged = {**_COMMON, **request.headers, **own, **credentials}
    if request.body:
        merged.setdefault("content-type", JSON)
    return merged


def _with_cookie(headers: Mapping[str, str], cookie: str) -> Mapping[str, str]:
    if not cookie:
        return headers
    own = headers.get("cookie")
    if own:
        cookie = f"{own}; {cookie}"
    return {**headers, "cookie": cookie}


class _LostSession(Exception):
    """Takes an answer past an authorization flow, to which its status would read like a refusal of credentials."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in _FRAMING}


def _rpc_error(body: bytes, server: str) -> ServerError:
    try:
        [message] = decode_lenient(body)
        result_of(message, server)
    except ProtocolError as exc:
        return exc
    except (ValueError, RecursionError) as exc:
        return invalid(server, str(exc))
    return invalid(server, "an HTTP error with a result")
