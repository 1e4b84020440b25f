"""The person of `player.py` as a `UserAgent` of ours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread

from toolweave.oauth import AuthorizationResponse, DevicePrompt, RedirectListener

__all__ = ["Visitor"]


class Visits(Protocol):
    """Who opens a page and says where it leads to."""

    visit: Callable[[str], str]


class Visitor:
    """A `UserAgent` that opens each page and reads its redirect."""

    def __init__(self, person: Visits, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        self._person = person

    @asynccontextmanager
    async def listener(
        self, *, server: str, seconds: float, port: int | None = None
    ) -> AsyncGenerator[RedirectListener, None]:
        """Yield itself."""
        yield self

    async def response(self, url: str, *, state: str) -> AuthorizationResponse:
        """Open the page."""
        location = await anyio.to_thread.run_sync(self._person.visit, url)
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        return AuthorizationResponse(
            code=query.get("code"),
            state=query.get("state"),
            issuer=query.get("iss"),
            error=query.get("error"),
            error_description=query.get("error_description"),
        )

    async def show_device_code(self, prompt: DevicePrompt, *, server: str) -> None:
        """Fail: nobody types a code."""
        raise NotImplementedError
