"""Checks of a request's headers before its body is read: Host, Origin, content type and size.

Applied on every bind, against DNS rebinding, CSRF and oversized requests. Also finds the endpoint's path and answers
the health path. Independent of MCP, of bodies and of callers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from toolweave.serve._http.asgi import App, Headers, Message, Receive, Scope, Send, path_of, respond
from toolweave.serve._http.deciding_headers import SINGLE, JudgedHeaders, KeptVerdicts, first_repeated, judged_values
from toolweave.serve._http.origins import Origins

_log = logging.getLogger("toolweave.serve._http.app")

_ASKED_HEADERS = (
    b"authorization, dpop, content-type, accept, last-event-id, mcp-protocol-version, mcp-session-id, mcp-method, "
    b"mcp-name"
)
_TOLD_HEADERS = b"mcp-session-id, mcp-protocol-version, www-authenticate, dpop-nonce"
_DAY = b"86400"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRoute:
    """Another app on the port of an endpoint.

    Attributes:
        app: The app.
        below: Whether it also serves all paths below its own.
        guarded: Whether its requests are checked like those of the endpoint.
        forms: Whether its POST requests may be forms.
    """

    app: App
    below: bool = True
    guarded: bool = True
    forms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The served paths, relative to the mount point.

    Attributes:
        endpoint: The path of MCP.
        health: The path of the health check, which answers `ok`; None for none.
        public: Apps by path that anyone may read, from any origin (authorization metadata).
        route_of: Returns the route of any other path, or None.
    """

    endpoint: str = "/mcp"
    health: str | None = "/healthz"
    public: Mapping[str, App]
    route_of: Callable[[str], AppRoute | None] = lambda _: None


class Guard:
    """Refuses requests whose headers fail the checks; the rest goes to `app`.

    Args:
        app: The endpoint.
        paths: The served paths.
        origins: The allowed hosts and origins.
        body_bytes: Maximum declared length of a body; a longer one is refused before it is sent.
        header_bytes: Maximum size of all header values together.
        header_count: Maximum number of headers.
    """

    def __init__(
        self, app: App, paths: Paths, origins: Origins, *, body_bytes: int, header_bytes: int, header_count: int
    ) -> None:
        self._app = app
        self._paths = paths
        self._origins = origins
        self._body_bytes = body_bytes
        self._header_bytes = header_bytes
        self._header_count = header_count
        self._verdicts = KeptVerdicts(partial(self.verdict, "POST"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        path = path_of(scope)
        app = self._app
        forms = False
        if path != self._paths.endpoint:
            if path == self._paths.health:
                await _health(scope, send)
                return
            # `/mcp/` is the endpoint, too: not every client follows a redirect with its POST.
            if path.rstrip("/") != self._paths.endpoint.rstrip("/"):
                route = self._paths.route_of(path)
                if route is None:
                    await self._elsewhere(path, scope, receive, send)
                    return
                if not route.guarded:
                    await route.app(scope, receive, send)
                    return
                app = route.app
                forms = route.forms
        # The order is part of the protection: sizes first, as the other checks read values; then repeated headers, of
        # which the dict has only the last; then Host and Origin, before anything of the request has an effect.
        raw = scope["headers"]
        headers = dict(raw)
        refused = self._refusal(scope["method"], headers, raw if len(raw) != len(headers) else None, forms=forms)
        origin = headers.get(b"origin")
        # A refusal is shared too, so that a page can show its reason; but not under a name that is not served here.
        serves_host = refused is None or refused[0] != 421
        if serves_host and origin is not None and self._origins.shares(origin):
            send = _shared(send, origin)
        if refused is not None:
            await self._refuse(refused, headers, send)
        elif scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await self._preflight(headers, send)
        else:
            await app(scope, receive, send)

    def takes_size(self, headers: Headers, length: bytes) -> bool:
        """Return whether the headers are few and small enough, and the body too, by its declared length."""
        return self._takes_headers(headers) and self._takes_body(length)

    def _takes_headers(self, headers: Headers) -> bool:
        return len(headers) <= self._header_count and sum(map(len, headers.values())) <= self._header_bytes

    def _takes_body(self, length: bytes) -> bool:
        if not length.isdigit() or len(length) > 18:  # `int` raises an error for thousands of digits
            return False
        return int(length) <= self._body_bytes

    def _refusal(
        self, method: str, headers: Headers, repeated: list[tuple[bytes, bytes]] | None, *, forms: bool = False
    ) -> tuple[int, str] | None:
        """Return the status and the reason why a request is refused, or None."""
        if not self._takes_headers(headers):
            return 431, "Too many or too large headers"
        if repeated is not None:
            reason = self._repeated_header(repeated)
            if reason is not None:
                return reason
        refused = self._judged(method, headers, forms=forms)
        if refused is not None:
            return refused
        if method == "POST" and not self._takes_body(headers.get(b"content-length", b"0")):
            return 413, "Request body too large"
        return None

    def _judged(self, method: str, headers: Headers, *, forms: bool) -> tuple[int, str] | None:
        """Return the verdict on headers; those on JSON that is posted, as nearly all requests are, are kept."""
        if forms:
            return self.verdict(method, JudgedHeaders(headers), forms=True)
        if method != "POST":
            return self.verdict(method, JudgedHeaders(headers))
        return self._verdicts[judged_values(headers)]

    def verdict(self, method: str, headers: JudgedHeaders, *, forms: bool = False) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal by the values of headers, or None.

        It depends on nothing else, so a caller may keep it for requests with the same values.
        """
        host = headers.get(b"host")
        if not self._origins.serves(host):
            return 421, "This host name is not served here; the server's allowed_hosts say which are"
        origin = headers.get(b"origin")
        if origin is not None and not self._origins.takes(origin, host or b""):
            return 403, "This origin is not allowed; the server's allowed_origins say which are"
        if method != "POST":
            return None
        # A page of another origin can post texts and forms without asking first, but not JSON.
        if not _is_accepted(headers.get(b"content-type", b""), forms=forms):
            return 415, "Content-Type must be application/json"
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return 415, "Content-Encoding is not supported"
        return None

    def _repeated_header(self, raw: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        if len(raw) > self._header_count or sum(len(value) for _, value in raw) > self._header_bytes:
            return 431, "Too many or too large headers"
        twice = first_repeated(raw, SINGLE)
        if twice is None:
            return None
        return (400, f"The header {twice.decode()} appears more than once")

    async def _refuse(self, refused: tuple[int, str], headers: Headers, send: Send) -> None:
        status, reason = refused
        host = headers.get(b"host", b"").rpartition(b"@")[2]  # a password may stand before it, as in a URL
        _log.warning("refused a request with %d: %s (Host %r)", status, reason, host[:100])
        if status in (413, 431):
            close = [(b"connection", b"close")]
        else:
            close = []
        await respond(send, status, reason, close)

    async def _preflight(self, headers: Headers, send: Send) -> None:
        """Answer a CORS preflight: with the allowed methods and headers, or without CORS headers."""
        # A preflight has no token, so it cannot be left to the authorization.
        if not self._origins.shares(headers.get(b"origin", b"")):
            await respond(send, 403, "CORS is not enabled for this origin")
            return
        allowed = [
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", _ASKED_HEADERS + _parameters(headers)),
            (b"access-control-max-age", _DAY),
        ]
        await respond(send, 204, headers=allowed)

    async def _elsewhere(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the other paths, which are public but need an allowed Host."""
        app = self._paths.public.get(path)
        if app is None:
            await respond(send, 404, "Not Found")
        # Also for public documents: the URLs in them would be believed under a name that an attacker chose.
        elif not self._origins.serves(dict(scope["headers"]).get(b"host")):
            await respond(send, 421, "This host name is not served here")
        else:
            await app(scope, receive, send)


async def _health(scope: Scope, send: Send) -> None:
    if scope["method"] in ("GET", "HEAD"):
        await respond(send, 200, "ok", [(b"cache-control", b"no-store")])
    else:
        await respond(send, 405, "Method Not Allowed", [(b"allow", b"GET, HEAD")])


def _is_accepted(kind: bytes, *, forms: bool) -> bool:
    if kind == b"application/json" or _is_json(kind):
        return True
    return forms and _is_form(kind)


def _is_json(kind: bytes) -> bool:
    media, _, parameters = kind.lower().partition(b";")
    # JSON is UTF-8 (RFC 8259, 8.1). Another charset would be decoded wrongly, and quietly.
    if b"charset" in parameters:
        charset = parameters.strip().partition(b"=")[2].strip(b'"')
    else:
        charset = b"utf-8"
    return media.strip() == b"application/json" and charset in (b"utf-8", b"utf8")


def _is_form(kind: bytes) -> bool:
    return kind.lower().partition(b";")[0].strip() == b"application/x-www-form-urlencoded"


def _parameters(headers: Headers) -> bytes:
    """Return the headers of mirrored arguments that a preflight asks for; their names are the server's own choice."""
    asked = headers.get(b"access-control-request-headers", b"").lower().split(b",")
    # Only the prefix of the protocol is answered: echoing every requested header would allow all of them.
    names = [name.strip() for name in asked if name.strip().startswith(b"mcp-param-")]
    return b"".join(b", " + name for name in names if name.replace(b"-", b"").isalnum())


def _shared(send: Send, origin: bytes) -> Send:
    """Add the CORS headers that let a page of this origin read the response."""
    shared = [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _TOLD_HEADERS),
        (b"vary", b"Origin"),
    ]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *shared]}
        await send(message)

    return sending
