"""A browser that signs in at the console of a gateway."""

from __future__ import annotations

from typing import Any

from tests.console.conftest import link
from tests.gateway.running import RunningGateway

__all__ = ["sign_in"]

MILLISECONDS = 60_000
"""How long a page waits for what it is to show."""


def sign_in(page: Any, running: RunningGateway, host: str = "127.0.0.1") -> None:
    """Open the console by a link and wait for its first page.

    Args:
        page: A page of the browser.
        running: The gateway.
        host: The name of the host that the browser opens the console at.
    """
    page.set_default_timeout(MILLISECONDS)
    page.goto(running.base.replace("127.0.0.1", host) + link(running))
    # the page that a link opens goes on by itself: whoever navigates before it has done so is interrupted
    page.get_by_role("heading", name="Servers", exact=True).wait_for()
