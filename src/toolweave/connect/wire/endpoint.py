"""One MCP endpoint: requests with their headers and credentials, redirects within the origin, faults as errors.

Knows nothing of what the messages say.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from toolweave.connect.fault import (
    Fault,
    HttpSettings,
    http_error,
    no_answer,
    own_headers,
    refused_redirect,
    too_large,
)
from toolweave.connect.wire.head import Headers
from toolweave.connect.wire.http1 import HttpClient, NoAnswer, Response
from toolweave.errors import ServerError

__all__ = ["EVENTS", "JSON", "Endpoint"]

EVENTS = "text/event-stream"
JSON = "application/json"
_MAX_REDIRECTS = 5
_FRAMING = ("connection", "content-length", "transfer-encoding")
_COMMON = {"accept": f"{JSON}, {EVENTS}", "accept-encoding": "identity", "user-agent": "toolweave"}


class Endpoint:
    """Sends HTTP requests to one URL."""

    def __init__(self, settings: HttpSettings, *, server: str) -> None:
        self._settings = settings
        self._server = server
        self._client = HttpClient(settings.url, connect_seconds=settings.connect_seconds)
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
        head = headers.head if method == "POST" and isinstance(headers, Headers) else None
        merged: Mapping[str, str] | None = None
        url, target, status = self._settings.url, self._target, 0
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                if head is None:
                    merged = merged or await self._merged(headers, body)
                    head = self._client.head(method, target, merged)
                    self._keep(method, target, headers, head)
                response = await self._client.ask(
                    head, body if method == "POST" else None, repeatable=repeatable, lasting=lasting
                )
            except NoAnswer as exc:
                raise self.error(exc) from None
            if not 300 <= response.status < 400 or "location" not in response.headers:
                return response
            response.close()
            status = response.status
            url = self._moved(method, url, response)
            target, head = _target(url), None
        text = f"it redirects more than {_MAX_REDIRECTS} times"
        raise http_error(Fault(status=status, text=text), server=self._server)

    async def _merged(self, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        own = self._fixed
        if own is None:
            own = _sendable(await own_headers(self._settings, server=self._server))
        merged = {**_COMMON, **headers, **own}
        if body:
            merged.setdefault("content-type", JSON)
        return merged

    def _keep(self, method: str, target: str, headers: Mapping[str, str], head: bytes) -> None:
        """Remember the head of requests that are all alike: nothing in it is made anew for each."""
        if self._fixed is not None and target == self._target and method == "POST" and isinstance(headers, Headers):
            headers.head = head

    def error(self, exc: NoAnswer) -> ServerError:
        """Return the error that a request without an answer is."""
        if exc.limit is not None:
            return http_error(too_large(exc.limit), server=self._server)
        return http_error(no_answer(self._settings.url, str(exc), sent=exc.sent), server=self._server)

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
