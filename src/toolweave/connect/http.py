"""HTTP as MCP connections need it: every fault becomes an answer that says its cause.

An `httpx2` transport that never lets one broken POST reach its neighbours (PROTOCOL 3, "HTTP failure
isolation"), headers and credentials made anew for every request, proxies from the environment.
Knows nothing of JSON-RPC beyond the shape of an error.
"""

from __future__ import annotations

import inspect
import json
import secrets
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from toolweave.connect.channel import MAX_MESSAGE_BYTES
from toolweave.connect.shapes import as_object
from toolweave.errors import AuthRequiredError, ConnectionLostError, ProtocolError, ServerError

__all__ = ["Fault", "HttpFaults", "HttpSettings", "http_client", "http_error", "status_fault", "transport_fault"]

_EXCERPT = 300
_INTERNAL_ERROR = -32603
_REFUSED = "toolweave.refused"
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)

HeaderSource = Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Gives the headers of one request; evaluated for every request (requirement R27)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How one server is reached over HTTP.

    Attributes:
        connect_seconds: Bound of TCP and TLS; the other waits are bounded by the caller.
        max_bytes: The largest answer that is taken.
        flow: An `httpx` authorization object, or None.
    """

    url: str
    headers: HeaderSource
    flow: Any = None  # of this or another generation of httpx
    connect_seconds: float = 30.0
    max_bytes: int = MAX_MESSAGE_BYTES

    @property
    def public_url(self) -> str:
        """The URL without its query, which may hold a secret: libraries below log the URL they are given."""
        return self.url.partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What went wrong with one HTTP request.

    Attributes:
        status: The HTTP status, or None when there was no answer.
        text: One sentence with the cause.
        sent: False when the request provably never reached the server.
        session_gone: The server has forgotten the session (404 on a request with a session id).
        retry_after: The `Retry-After` header.
        challenge: The `WWW-Authenticate` header.
    """

    status: int | None
    text: str
    sent: bool = True
    session_gone: bool = False
    retry_after: str | None = None
    challenge: str | None = None

    def data(self) -> dict[str, Any]:
        """Return the facts as a JSON object, for `ProtocolError.data`."""
        facts = {"http_status": self.status, "retry_after": self.retry_after}
        return {key: value for key, value in facts.items() if value is not None}


class HttpFaults:
    """Faults on their way through the SDK, which only carries JSON-RPC errors.

    Each goes in as an error with a one-time ticket and comes out as itself; no server can guess a ticket.
    """

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}

    def response(self, request: httpx2.Request, fault: Fault) -> httpx2.Response:
        """Return the answer that carries a fault through the SDK."""
        ticket = secrets.token_hex(8)
        self._faults[ticket] = fault
        error = {"code": -32603, "message": fault.text, "data": {"ticket": ticket}}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
        headers = {"www-authenticate": fault.challenge} if fault.challenge is not None else {}
        return httpx2.Response(max(fault.status or 503, 400), headers=headers, request=request, json=body)

    def take(self, data: Any) -> Fault | None:
        """Return the fault that an error's `data` stands for, or None when it is the server's own error."""
        named = as_object(data)
        ticket = named.get("ticket") if named is not None else None
        return self._faults.pop(ticket, None) if isinstance(ticket, str) else None


class _Isolating(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport, faults: HttpFaults, settings: HttpSettings) -> None:
        self._inner = inner
        self._faults = faults
        self._max_bytes = settings.max_bytes
        self._public_url, self._url = httpx2.URL(settings.public_url), httpx2.URL(settings.url)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        refused: Fault | None = request.extensions.get(_REFUSED)
        if refused is not None:
            return self._faults.response(request, refused)
        if request.url == self._public_url:
            # the client logs the request it made, so that one keeps its URL
            request = httpx2.Request(
                request.method,
                self._url,
                headers=request.headers,
                stream=request.stream,
                extensions=request.extensions,
            )
        if request.method != "POST":
            return await self._inner.handle_async_request(request)
        try:
            response = await self._inner.handle_async_request(request)
            if response.status_code < 400 and not _is_json(response):
                return response
            body = await self._read(response)
        except httpx2.TransportError as exc:
            return self._faults.response(request, transport_fault(request, exc))
        if response.status_code >= 400 and (response.status_code in (401, 403) or not _is_rpc_error(body)):
            return self._faults.response(request, status_fault(request, response, body))
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            return self._faults.response(request, status_fault(request, response, body))
        if response.status_code < 400 and not _is_well_formed(body):
            fault = Fault(status=response.status_code, text=f"its answer is not valid JSON: {_excerpt(body)}")
            return self._faults.response(request, fault)
        return httpx2.Response(response.status_code, headers=_plain(response), request=request, content=body)

    async def _read(self, response: httpx2.Response) -> bytes:
        """Read a whole body here, so that a break in it is a fault of this request alone."""
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in response.aiter_bytes():
                size += len(chunk)
                if size > self._max_bytes:
                    raise httpx2.ReadError(f"the answer is larger than {self._max_bytes} bytes")
                chunks.append(chunk)
        finally:
            await response.aclose()
        return b"".join(chunks)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _FreshHeaders(httpx2.Auth):
    """Asks for the configured headers anew for every request (requirements R25, R27)."""

    requires_request_body = True

    def __init__(self, source: HeaderSource, flow: Any) -> None:
        self._source = source
        self._flow = flow

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        steps = self._steps(request)
        response: httpx2.Response | None = None
        while True:
            try:
                request = await (anext(steps) if response is None else steps.asend(response))
            except StopAsyncIteration:
                return
            except Exception as exc:  # boundary: what a user's provider raises fails the request that asked
                text = f"its credentials could not be made: {type(exc).__name__}: {exc}"
                request.extensions[_REFUSED] = Fault(status=None, text=text, sent=False)
                yield request
                return
            response = yield request

    async def _steps(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        made = self._source()
        headers = await made if inspect.isawaitable(made) else made
        for name, value in headers.items():
            request.headers[name] = value
        if self._flow is None:
            yield request
            return
        steps = self._flow.async_auth_flow(request)
        try:
            request = await anext(steps)
            while True:
                request = await steps.asend((yield request))
        except StopAsyncIteration:
            pass  # the last answer is the one that counts
        finally:
            await steps.aclose()


def http_client(settings: HttpSettings, faults: HttpFaults) -> httpx2.AsyncClient:
    """Make the HTTP client of one connection; the caller enters and leaves it."""
    inner = httpx2.AsyncHTTPTransport(proxy=_proxy_for(settings.url))
    return httpx2.AsyncClient(
        transport=_Isolating(inner, faults, settings),
        auth=_FreshHeaders(settings.headers, settings.flow),
        timeout=httpx2.Timeout(None, connect=settings.connect_seconds, pool=settings.connect_seconds),
    )


def http_error(fault: Fault, *, server: str) -> ServerError:
    """Return the error that one HTTP fault is."""
    if fault.status in (401, 403):
        return AuthRequiredError(
            f"{fault.text}; set 'auth' or 'headers' for it, or correct them",
            server=server,
            status=fault.status,
            challenge=fault.challenge,
        )
    if fault.session_gone:
        return ConnectionLostError(f"its session has ended: {fault.text}", server=server, sent=False)
    if fault.status is None:
        return ConnectionLostError(fault.text, server=server, sent=fault.sent)
    return ProtocolError(fault.text, server=server, code=_INTERNAL_ERROR, data=fault.data())


def _proxy_for(url: str) -> str | None:
    parts = httpx2.URL(url)
    if urllib.request.proxy_bypass(parts.host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def transport_fault(request: httpx2.Request, exc: httpx2.TransportError) -> Fault:
    """Return what a request without an answer is."""
    where = request.url.copy_with(query=None, userinfo=b"")
    return Fault(
        status=None,
        text=f"no answer from {where}: {type(exc).__name__}{f': {exc}' if str(exc) else ''}",
        sent=not isinstance(exc, _NOT_SENT),
    )


def status_fault(request: httpx2.Request, response: httpx2.Response, body: bytes) -> Fault:
    """Return what an answer with an HTTP error status is."""
    excerpt = _excerpt(body)
    phrase = f"{response.status_code} {response.reason_phrase}".strip()
    return Fault(
        status=response.status_code,
        text=f"HTTP {phrase}{f': {excerpt}' if excerpt else ''}",
        session_gone=response.status_code == 404 and "mcp-session-id" in request.headers,
        retry_after=response.headers.get("retry-after"),
        challenge=response.headers.get("www-authenticate"),
    )


def _excerpt(body: bytes) -> str:
    text = body[: _EXCERPT * 4].decode("utf-8", "replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_EXCERPT]


def _is_well_formed(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


def _plain(response: httpx2.Response) -> list[tuple[str, str]]:
    dropped = ("content-encoding", "content-length", "transfer-encoding")
    return [(name, value) for name, value in response.headers.multi_items() if name.lower() not in dropped]


def _is_rpc_error(body: bytes) -> bool:
    try:
        value = as_object(json.loads(body))
    except ValueError:
        return False
    return value is not None and as_object(value.get("error")) is not None
