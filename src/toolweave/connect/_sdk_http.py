"""The `httpx2` client of the SDK's transports: every fault becomes an answer that names its cause.

An `httpx2` transport that never lets one broken POST reach its neighbours,
headers and credentials made again for every request, proxies from the environment.
Knows nothing of JSON-RPC beyond the shape of an error.
"""

from __future__ import annotations

import inspect
import secrets
import ssl
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from typing import Any

import anyio
import httpx2
import msgspec

from toolweave._json import decode_json
from toolweave.connect._http_errors import (
    HttpFault,
    HttpSettings,
    answer_fault,
    bad_encoding,
    is_rpc_error,
    no_answer,
    not_json,
    odd_content,
    public_url,
    refused_credentials,
    refused_redirect,
    too_large,
    unasked_encoding,
)
from toolweave.connect._wire.credentials import AuthChallenge, AuthHook, operation_of, resends_of
from toolweave.errors import ConnectError, ServerError
from toolweave.http import ACCEPTED, Inflater, NotInflated, proxy_for
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.json_types import as_object
from toolweave.protocol.jsonrpc import encode_error, is_json

_REFUSED = "toolweave.refused"
_NOT_SENT = (
    *(httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol),
)
_MAX_STREAMS = 20
_ERROR_BYTES = 1024 * 1024
_ERROR_SECONDS = 2.0
_GOODBYE_SECONDS = 1.0
_NO_ANSWER = (202, 204)
_PHASES = ("connect", "read", "write", "pool")


class HttpFaults:
    """Faults on their way through the SDK, which only carries JSON-RPC errors.

    Each goes in as an error with a one-time ticket and comes out as itself; no server can guess a ticket.
    """

    def __init__(self) -> None:
        self._faults: dict[str, HttpFault] = {}

    def response(self, request: httpx2.Request, fault: HttpFault) -> httpx2.Response:
        """Return the answer that carries a fault through the SDK."""
        ticket = secrets.token_hex(8)
        self._faults[ticket] = fault
        body = encode_error(None, INTERNAL_ERROR, fault.text, {"ticket": ticket})
        named = {"content-type": "application/json", "www-authenticate": fault.challenge, "dpop-nonce": fault.nonce}
        headers = {name: value for name, value in named.items() if value is not None}
        return httpx2.Response(max(fault.status or 503, 400), headers=headers, request=request, content=body)

    def take(self, data: Any) -> HttpFault | None:
        """Return the fault that an error's `data` refers to, or None when it is the server's own error."""
        named = as_object(data)
        ticket = named.get("ticket") if named is not None else None
        return self._faults.pop(ticket, None) if isinstance(ticket, str) else None


class _TooLarge(httpx2.ReadError):
    """The answer passes the bound."""


class _BadEncoding(httpx2.ReadError):
    """The answer is compressed so that it cannot be inflated, or must not."""

    def __init__(self, message: str, *, bomb: bool) -> None:
        super().__init__(message)
        self.bomb = bomb


class _Inflated(httpx2.AsyncByteStream):
    """A decompressed stream; httpx2 itself would inflate a bomb whole."""

    def __init__(self, inner: httpx2.AsyncByteStream, encoding: str) -> None:
        self._inner = inner
        self._inflater = Inflater(encoding)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._inflater.feed(chunk)
                while piece := self._inflater.take():
                    yield piece
            self._inflater.finish()
        except NotInflated as exc:
            raise _BadEncoding(str(exc), bomb=exc.too_large) from None

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Isolating(httpx2.AsyncBaseTransport):
    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        faults: HttpFaults,
        settings: HttpSettings,
        *,
        proxy: str | None,
        answers: bool,
    ) -> None:
        self._inner = inner
        self._faults = faults
        self._settings = settings
        self._proxy = proxy
        self._answers = answers
        self._public_url, self._url = httpx2.URL(settings.public_url), httpx2.URL(settings.url)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        refused: HttpFault | None = request.extensions.get(_REFUSED)
        if refused is not None:
            return self._faults.response(request, refused)
        sent = self._addressed(request)
        if request.method == "POST":
            return await self._post(request, sent)
        if request.method == "DELETE":  # a last courtesy, which must not hold up the end
            sent.extensions = {**sent.extensions, "timeout": dict.fromkeys(_PHASES, _GOODBYE_SECONDS)}
        response = _inflated(await self._inner.handle_async_request(sent))
        fault = self._outright(sent, response)
        return response if fault is None else await self._instead(request, response, fault)

    def _addressed(self, request: httpx2.Request) -> httpx2.Request:
        if request.url != self._public_url:
            return request
        # the client logs the request it made, so that one keeps its URL
        return httpx2.Request(
            request.method, self._url, headers=request.headers, stream=request.stream, extensions=request.extensions
        )

    async def _post(self, request: httpx2.Request, sent: httpx2.Request) -> httpx2.Response:
        try:
            response = _inflated(await self._inner.handle_async_request(sent))
            fault = self._outright(sent, response)
            if fault is None and (
                response.is_error or (response.status_code >= 300 and not response.has_redirect_location)
            ):
                return await self._failed(request, response)
            if fault is None and _is_json(response):
                return await self._whole(request, response)
            if fault is None and self._answers and response.is_success and not _is_stream(response):
                fault = await self._odd(request, response)
        except _TooLarge:
            return self._faults.response(request, too_large(self._settings.max_bytes))
        except _BadEncoding as exc:
            return self._faults.response(request, bad_encoding(200, str(exc), bomb=exc.bomb))
        except httpx2.TransportError as exc:
            return self._faults.response(request, transport_fault(sent, exc, self._proxy))
        return response if fault is None else await self._instead(request, response, fault)

    def _outright(self, sent: httpx2.Request, response: httpx2.Response) -> HttpFault | None:
        """Return the fault of an answer that does not depend on its body."""
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding != "identity" and response.status_code < 400:
            return unasked_encoding(response.status_code, encoding)
        location = response.headers.get("location")
        if location is None or not 300 <= response.status_code < 400:
            return None
        reason = refused_redirect(sent.method, str(sent.url), response.status_code, location)
        return HttpFault(status=response.status_code, text=reason) if reason is not None else None

    async def _instead(self, request: httpx2.Request, response: httpx2.Response, fault: HttpFault) -> httpx2.Response:
        await response.aclose()
        return self._faults.response(request, fault)

    async def _failed(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return an answer with an HTTP error status: the server's own JSON-RPC error if it has one, else ours."""
        body = await self._beginning(response)
        fault = status_fault(self._settings, request, response, body)
        if fault.session_gone or response.status_code in (401, 403) or not is_rpc_error(body):
            return self._faults.response(request, fault)
        return httpx2.Response(response.status_code, headers=_plain(response), request=request, content=body)

    async def _whole(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Read a whole body, so that a break in it is a fault of this request alone."""
        body = (await self._read(response)).removeprefix(BOM_UTF8)
        if not is_json(body):
            return self._faults.response(request, not_json(self._settings, response.status_code, body))
        return httpx2.Response(response.status_code, headers=_plain(response), request=request, content=body)

    async def _odd(self, request: httpx2.Request, response: httpx2.Response) -> HttpFault | None:
        """Return the fault of a success that is neither JSON nor a stream; None for a notification."""
        if not _expects_answer(request):
            return None
        if response.status_code in _NO_ANSWER:
            phrase = f"{response.status_code} {response.reason_phrase}".strip()
            text = f"the answer did not come: server answered a request with {phrase}"
            return HttpFault(status=None, text=text)
        kind, body = response.headers.get("content-type", ""), await self._beginning(response)
        return odd_content(self._settings, response.status_code, response.reason_phrase, kind, body)

    async def _read(self, response: httpx2.Response) -> bytes:
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > self._settings.max_bytes:
                    raise _TooLarge("the answer is larger than the bound")
                chunks.append(chunk)
        finally:
            await response.aclose()
        return b"".join(chunks)

    async def _beginning(self, response: httpx2.Response) -> bytes:
        """Return the part of an error's body that arrives in time; nothing of a compressed one."""
        if "content-encoding" in response.headers:
            await response.aclose()
            return b""
        body = b""
        try:
            with anyio.move_on_after(_ERROR_SECONDS):
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > _ERROR_BYTES:
                        break
        except httpx2.TransportError:
            pass
        finally:
            await response.aclose()
        return body[:_ERROR_BYTES]

    async def aclose(self) -> None:
        await self._inner.aclose()


class _FreshHeaders(httpx2.Auth):
    """An authorization flow that evaluates the configured headers for every request."""

    requires_request_body = True

    def __init__(self, settings: HttpSettings) -> None:
        self._source = settings.headers
        self._flow = settings.flow if settings.hook is None else _HookFlow(settings, settings.hook)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        steps = self._steps(request)
        response: httpx2.Response | None = None
        while True:
            try:
                request = await (anext(steps) if response is None else steps.asend(response))
            except StopAsyncIteration:
                return
            except Exception as exc:  # boundary: an error of the user's provider fails the request that asked
                request.extensions[_REFUSED] = refused_credentials(exc)
                yield request
                return
            response = yield request

    async def _steps(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        made = self._source() if callable(self._source) else self._source
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


class _HookFlow:
    """A hook as an authorization flow."""

    def __init__(self, settings: HttpSettings, hook: AuthHook) -> None:
        self._settings = settings
        self._hook = hook

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        settings = self._settings
        url = settings.url if str(request.url) == settings.public_url else str(request.url)
        made = await self._asked(request, self._hook.headers(request.method, url))
        for attempt in range(resends_of(self._hook) + 1):
            settings.remember(made)
            request.headers.update(made)
            response = yield request
            if response.status_code not in (401, 403) or attempt == resends_of(self._hook):
                answered = getattr(self._hook, "answered", None)
                if answered is not None:
                    answered(url, response.headers)
                return
            challenge = AuthChallenge(
                method=request.method,
                url=url,
                status=response.status_code,
                headers=dict(response.headers),
                sent=made,
                operation=operation_of(request.content),
                attempt=attempt,
            )
            made = await self._asked(request, self._hook.challenged(challenge))
            if not made and _REFUSED not in request.extensions:
                return

    async def _asked(self, request: httpx2.Request, making: Awaitable[Mapping[str, str] | None]) -> Mapping[str, str]:
        """Return the headers of the hook; an exception of its own fails the request."""
        try:
            return await making or {}
        except ServerError as exc:
            status = exc.status if isinstance(exc, ConnectError) else None
            fault = HttpFault(status=status, text=exc.message, sent=False, error=exc)
            request.extensions = {**request.extensions, _REFUSED: fault}
            return {}


def http_client(settings: HttpSettings, faults: HttpFaults, *, answers: bool = True) -> httpx2.AsyncClient:
    """Make the HTTP client of one connection; the caller enters and leaves it.

    `answers` says whether a request is answered where it was posted: not so in the older HTTP+SSE transport.
    """
    proxy = proxy_for(settings.url)
    most = settings.max_connections + _MAX_STREAMS
    limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most)
    try:
        inner = httpx2.AsyncHTTPTransport(verify=_trust(settings, proxy), proxy=proxy, limits=limits)
    except (ImportError, ValueError) as exc:
        raise OSError(f"the proxy {public_url(proxy or '')} of the environment cannot be used: {exc}") from None
    return httpx2.AsyncClient(
        transport=_Isolating(inner, faults, settings, proxy=proxy, answers=answers),
        headers={"accept-encoding": ACCEPTED},
        auth=_FreshHeaders(settings),
        timeout=httpx2.Timeout(None, connect=settings.connect_seconds),
    )


def _trust(settings: HttpSettings, proxy: str | None) -> ssl.SSLContext | bool:
    """Return the SSL context, without authorities for plain HTTP: loading the CA bundle costs 3.5 MB.

    An authorization flow also talks to other servers than the configured one.
    """
    plain = settings.url.startswith("http:") and settings.flow is None and proxy is None
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True


def transport_fault(request: httpx2.Request, exc: httpx2.TransportError, proxy: str | None = None) -> HttpFault:
    """Return the fault of a request without an answer."""
    why = f"{type(exc).__name__}{f': {exc}' if str(exc) else ''}"
    return no_answer(str(request.url), why, sent=not isinstance(exc, _NOT_SENT), proxy=proxy and public_url(proxy))


def status_fault(settings: HttpSettings, request: httpx2.Request, response: httpx2.Response, body: bytes) -> HttpFault:
    """Return the fault of an answer with an HTTP error status."""
    in_session = "mcp-session-id" in request.headers
    return answer_fault(
        settings, response.status_code, response.reason_phrase, response.headers, body, in_session=in_session
    )


def _inflated(response: httpx2.Response) -> httpx2.Response:
    """Return an answer with a body in plain bytes, where its encoding can be read."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if not Inflater.reads(encoding) or not isinstance(response.stream, httpx2.AsyncByteStream):
        return response
    stream = _Inflated(response.stream, encoding)
    return httpx2.Response(
        response.status_code, headers=_plain(response), stream=stream, extensions=response.extensions
    )


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


def _is_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("text/event-stream")


def _expects_answer(request: httpx2.Request) -> bool:
    try:
        message = as_object(decode_json(request.content))
    except (msgspec.DecodeError, RecursionError, httpx2.RequestNotRead):
        return False
    return message is not None and "id" in message and "method" in message


def _plain(response: httpx2.Response) -> list[tuple[str, str]]:
    dropped = ("content-encoding", "content-length", "transfer-encoding")
    return [(name, value) for name, value in response.headers.multi_items() if name.lower() not in dropped]
