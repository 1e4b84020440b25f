"""Authorization objects of `httpx` and `httpx2`, driven over our own requests and answers.

Such an object has a flow: a generator that yields requests and is sent their answers. The library is imported for its
`Request` and `Response` when the first is used; nothing is sent by it.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urljoin

import anyio.to_thread

from toolweave._json_types import without_members
from toolweave.config._auth import AuthFlow
from toolweave.connect._http_errors import HttpSettings, http_error, refused_credentials
from toolweave.errors import ServerError
from toolweave.http import Response, TransportError, origin_of

_LIBRARIES = ("httpx", "httpx2")
_FRAMING = ("connection", "content-encoding", "content-length", "transfer-encoding")
_KEEPING_THE_METHOD = (307, 308)
_PART = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*"?)+')
_SCHEME = re.compile(r"\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:\s+[^\s=]|\s*$)")

Transmit = Callable[[str, str, Mapping[str, str], bytes], Awaitable[Response]]
"""Sends one request: its method, URL, headers with lower-case names, and body."""


class HttpxAuth:
    """An authorization hook that drives the flow of an `httpx` authorization object.

    The flow sees every answer, may send the request as often as it likes, and further requests to any server.
    """

    def __init__(self, flow: AuthFlow, settings: HttpSettings, *, server: str) -> None:
        self._flow = flow
        self._settings = settings
        self._server = server

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, transmit: Transmit
    ) -> Response:
        """Send a request as the flow requires, and return the last answer.

        Raises:
            ConnectionLostError: The flow raised, or the server did not answer.
        """
        library = await _library_of(self._flow)
        request = library.Request(method, url, headers=dict(headers), content=body)
        begun = request.url
        steps = self._flow.async_auth_flow(request)
        # A flow is a generator: it yields requests and receives the answers. Each answer is closed before the next
        # request is sent, and the last one is returned open, so that a stream reaches its reader.
        response: Response | None = None
        try:
            wanted = await self._next(steps, None)
            while wanted is not None:
                named = without_members(wanted.headers, *_FRAMING)
                place = str(wanted.url)
                if wanted.url == begun:
                    place = url  # the library may write the same in another way
                    # Headers that the flow has added may be credentials, which a server may quote in its errors.
                    added = {name: value for name, value in named.items() if headers.get(name) != value}
                    added.pop("host", None)
                    self._settings.remember(added)
                response = await transmit(wanted.method, place, named, await wanted.aread())
                answer = self._converted(library, wanted, response)
                wanted = await self._next(steps, answer)
                if wanted is None:
                    if answer.is_stream_consumed:
                        result = response.with_body(answer.content)
                    else:
                        result = response
                    response = None
                    return result
                response.close()
        finally:
            if response is not None:
                response.close()
            await steps.aclose()
        raise http_error(refused_credentials(ValueError("its flow yields no request")), server=self._server)

    async def _next(self, steps: AsyncGenerator[Any, Any], answer: Any) -> Any:
        """Return the next request of a flow, or None at its end."""
        try:
            return await steps.asend(answer)
        except StopAsyncIteration:
            return None
        except (ServerError, TransportError):  # of an answer whose body the flow has read
            raise
        except Exception as exc:  # boundary: an error of the user's object fails the request that asked
            raise http_error(refused_credentials(exc), server=self._server) from exc

    def _converted(self, library: Any, request: Any, response: Response) -> Any:
        """Return an answer as one of the library; its body is read when the flow reads it, inflated."""
        head = response.head
        headers = [(name, value) for name, value in head.headers.items() if name not in (*_FRAMING, "www-authenticate")]
        headers += [("www-authenticate", one) for one in _challenges(head.headers.get("www-authenticate", ""))]
        headers += [("set-cookie", cookie) for cookie in head.cookies]
        answer = library.Response(
            head.status,
            headers=headers,
            content=self._pieces(response),
            request=request,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": head.reason.encode("latin-1", "replace")},
        )
        location = head.headers.get("location")
        if location is not None and head.status // 100 == 3:
            answer.next_request = _redirected(library, request, head.status, location)
        return answer

    async def _pieces(self, response: Response) -> AsyncGenerator[bytes, None]:
        yield await response.read(self._settings.max_bytes)


def _redirected(library: Any, request: Any, status: int, location: str) -> Any:
    """Return the request that a redirect asks for, or None; whether to follow it is left to the flow."""
    method = "GET"
    content = b""
    if request.method in ("GET", "HEAD") or status in _KEEPING_THE_METHOD:
        method = request.method
        content = request.content
    try:
        url = urljoin(str(request.url), location)
        headers: dict[str, str] = {}
        # Headers, which may hold credentials, are meant for one origin.
        if origin_of(url) == origin_of(str(request.url)):
            headers = without_members(request.headers, *_FRAMING)
        return library.Request(method, url, headers=headers, content=content)
    except (ValueError, library.InvalidURL):
        return None


async def _library_of(flow: AuthFlow) -> Any:
    """Return the library that an authorization object was written for, by its class."""
    roots = [base.__module__.partition(".")[0] for base in type(flow).__mro__]
    name = next((root for root in roots if root in _LIBRARIES), _LIBRARIES[-1])
    if name in sys.modules:
        return sys.modules[name]
    return await anyio.to_thread.run_sync(importlib.import_module, name)


def _challenges(value: str) -> list[str]:
    """Return the challenges of a `WWW-Authenticate` header, which also contain commas (RFC 9110, 11.6.1)."""
    # A part belongs to the challenge before it unless it begins with a scheme: `Basic realm="a", error="b", Bearer`.
    found: list[str] = []
    for part in _PART.findall(value):
        if found and not _SCHEME.match(part):
            found[-1] += f",{part}"
        else:
            found.append(part.strip())
    return found
