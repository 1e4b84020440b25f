"""Both halves together: our client signs in through our server, and asks for more where a tool needs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.serve.company import Browser, Company, company, query_of
from toolweave import connect_mcp, create_mcp_server, tool
from toolweave.oauth import AuthorizationResponse, DevicePrompt, MemoryTokenStore, OAuth, RedirectListener

pytestmark = pytest.mark.slow


class Ada:
    """A `UserAgent`: a person who consents, and signs in at the company's provider."""

    def __init__(self, world: Company) -> None:
        self.world = world
        self.asked: list[dict[str, str]] = []

    @asynccontextmanager
    async def listener(
        self, *, server: str, seconds: float, port: int | None = None
    ) -> AsyncGenerator[RedirectListener, None]:
        """Yield a listener that goes the whole way by itself."""
        yield _Way(self)

    async def show_device_code(self, prompt: DevicePrompt, *, server: str) -> None:
        """Fail: nobody types a code."""
        raise NotImplementedError


class _Way:
    redirect_uri = "http://127.0.0.1:43118/callback"

    def __init__(self, person: Ada) -> None:
        self._person = person

    async def response(self, url: str, *, state: str) -> AuthorizationResponse:
        world = self._person.world
        browser = Browser()
        self._person.asked.append(query_of(url))
        sent = await world.consent(browser, await browser.send(url))
        back = await browser.send(world.provider.sign_in(sent.headers["location"]), site="cross-site")
        query = query_of(back.headers["location"])
        return AuthorizationResponse(code=query["code"], state=query["state"], issuer=query["iss"])


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_our_client_signs_in_and_asks_for_more_where_a_tool_needs_it(era: str) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    @tool(scopes=["notes:delete"])
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    server = create_mcp_server("notes", tools=[look, wipe])
    options: dict[str, Any] = {"required_scopes": ["notes"], "scopes_supported": ["notes", "notes:delete"]}
    async with company(server=server, **options) as world:
        person = Ada(world)
        auth = OAuth(store=MemoryTokenStore(), user_agent=person)
        async with connect_mcp({"url": world.url, "auth": auth, "protocol": era}) as notes:
            assert (await notes.call_tool("look")).text == "seen"
            assert [asked["scope"] for asked in person.asked] == ["notes"]
            assert (await notes.call_tool("wipe")).text == "wiped"
            assert (await notes.call_tool("wipe")).text == "wiped"

    assert [set(asked["scope"].split()) for asked in person.asked] == [{"notes"}, {"notes", "notes:delete"}]
    assert all(asked["resource"] == world.url for asked in person.asked)
