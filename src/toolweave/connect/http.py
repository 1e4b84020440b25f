"""HTTP as MCP connections need it: every fault becomes an answer that says its cause.

An `httpx2` transport that never lets one broken POST reach its neighbours (PROTOCOL 3, "HTTP failure
isolation"), headers and credentials made anew for every request, proxies from the environment.
Knows nothing of JSON-RPC beyond the shape of an error.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import msgspec

from toolweave.connect.fault import (
    Fault,
    HeaderSource,
    HttpSettings,
    answer_fault,
    excerpt,
    is_rpc_error,
    proxy_for,
    refused_credentials,
)
from toolweave.connect.shapes import as_object

__all__ = ["HttpFaults", "http_client", "status_fault", "transport_fault"]

_REFUSED = "toolweave.refused"
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


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
        if response.status_code >= 400 and (response.status_code in (401, 403) or not is_rpc_error(body)):
            return self._faults.response(request, status_fault(request, response, body))
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            return self._faults.response(request, status_fault(request, response, body))
        if response.status_code < 400 and not _is_well_formed(body):
            fault = Fault(status=response.status_code, text=f"its answer is not valid JSON: {excerpt(body)}")
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
                request.extensions[_REFUSED] = refused_credentials(exc)
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
    inner = httpx2.AsyncHTTPTransport(proxy=proxy_for(settings.url))
    return httpx2.AsyncClient(
        transport=_Isolating(inner, faults, settings),
        auth=_FreshHeaders(settings.headers, settings.flow),
        timeout=httpx2.Timeout(None, connect=settings.connect_seconds, pool=settings.connect_seconds),
    )


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
    in_session = "mcp-session-id" in request.headers
    return answer_fault(response.status_code, response.reason_phrase, response.headers, body, in_session=in_session)


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
