"""A person without a browser: asks the authorization URL once and reads where it redirects to."""

from __future__ import annotations

import http.client
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread

from toolweave.oauth import AuthorizationResponse, DevicePrompt, RedirectListener

__all__ = ["HeadlessUserAgent"]

REDIRECT_URI = "http://127.0.0.1:43117/callback"


class HeadlessUserAgent:
    """A `UserAgent` for authorization servers that ask nobody and redirect at once."""

    @asynccontextmanager
    async def listener(
        self, *, server: str, seconds: float, port: int | None = None
    ) -> AsyncGenerator[RedirectListener, None]:
        """Yield a listener that follows the URL itself."""
        yield _Following()

    async def show_device_code(self, prompt: DevicePrompt, *, server: str) -> None:
        """Fail: nobody types a code."""
        raise NotImplementedError


class _Following:
    redirect_uri = REDIRECT_URI

    async def response(self, url: str, *, state: str) -> AuthorizationResponse:
        location = await anyio.to_thread.run_sync(location_of, url)
        assert location.startswith(REDIRECT_URI), location
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        return AuthorizationResponse(
            code=query.get("code"),
            state=query.get("state"),
            issuer=query.get("iss"),
            error=query.get("error"),
            error_description=query.get("error_description"),
        )


def location_of(url: str) -> str:
    """Return where a URL redirects to."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return connection.getresponse().getheader("location", "")
    finally:
        connection.close()
