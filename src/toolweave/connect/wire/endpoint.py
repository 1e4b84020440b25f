"""One MCP endpoint: requests with their headers and credentials, redirects within the origin, faults as errors.

Knows nothing of what the messages say.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from toolweave.connect.fault import Fault, HttpSettings, http_error, own_headers
from toolweave.connect.wire.http1 import HttpClient, NoAnswer, Response
from toolweave.errors import ProtocolError, ServerError

__all__ = ["EVENTS", "INVALID_REQUEST", "JSON", "Endpoint"]

EVENTS = "text/event-stream"
JSON = "application/json"
INVALID_REQUEST = -32600
_MAX_REDIRECTS = 5
_KEEPING_THE_METHOD = (307, 308)
_FRAMING = ("connection", "content-length", "transfer-encoding")


class Endpoint:
    """Sends HTTP requests to one URL."""

    def __init__(self, settings: HttpSettings, *, server: str) -> None:
        self._settings = settings
        self._server = server
        self._client = HttpClient(settings.url, connect_seconds=settings.connect_seconds)

    async def send(
        self, method: str, headers: Mapping[str, str], body: bytes = b"", *, repeatable: bool = False
    ) -> Response:
        """Send one request, follow redirects within the origin, and return the answer's head.

        Raises:
            ConnectionLostError: There is no answer, or the credentials could not be made.
            ProtocolError: It redirects to where nothing is sent, or too often.
        """
        url = self._settings.url
        merged = await self._merged(headers, body)
        for _ in range(_MAX_REDIRECTS + 1):
            parts = urlsplit(url)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            try:
                response = await self._client.send(method, target, merged, body, repeatable=repeatable)
            except NoAnswer as exc:
                raise self.error(exc) from None
            location = response.headers.get("location")
            if location is None or not 300 <= response.status < 400:
                return response
            response.close()
            moved = urljoin(url, location)
            if response.status not in _KEEPING_THE_METHOD or _origin(moved) != _origin(url):
                raise self._refused(f"Redirect to {_public(moved)} not followed; use that URL")
            url = moved
        raise self._refused(f"it redirects more than {_MAX_REDIRECTS} times")

    def error(self, exc: NoAnswer) -> ServerError:
        """Return the error that a request without an answer is."""
        text = f"no answer from {_public(self._settings.url)}: {exc}"
        return http_error(Fault(status=None, text=text, sent=exc.sent), server=self._server)

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    async def _merged(self, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        merged = {"accept": f"{JSON}, {EVENTS}", "accept-encoding": "identity", "user-agent": "toolweave", **headers}
        if body:
            merged["content-type"] = JSON
        for name, value in (await own_headers(self._settings, server=self._server)).items():
            if name.lower() not in _FRAMING:
                merged[name.lower()] = value
        return merged

    def _refused(self, text: str) -> ProtocolError:
        return ProtocolError(text, server=self._server, code=INVALID_REQUEST)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _public(url: str) -> str:
    """Return a URL without what may be a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
