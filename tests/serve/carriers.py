"""What the tests of this folder connect through: one server object on every carrier, in every era."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.serve.serving import served_http
from toolweave import Callbacks, McpConnection, connect_mcp
from toolweave.serve import McpServer

__all__ = ["CARRIERS", "EACH_CARRIER", "EACH_ERA", "ERAS", "connected"]

ERAS = ("2025-11-25", "2026-07-28")
CARRIERS = ("inprocess", "http")
_SILENT = Callbacks()
EACH_ERA = pytest.mark.parametrize("era", ERAS)
EACH_CARRIER = pytest.mark.parametrize(("carrier", "era"), [(one, era) for one in CARRIERS for era in ERAS])


@asynccontextmanager
async def connected(
    server: McpServer,
    carrier: str = "inprocess",
    era: str = ERAS[-1],
    *,
    callbacks: Callbacks = _SILENT,
    **settings: Any,
) -> AsyncGenerator[McpConnection, None]:
    """Connect to a server through a carrier, speaking one revision."""
    if carrier == "inprocess":
        async with connect_mcp({"server": server, "protocol": era, **settings}, callbacks=callbacks) as connection:
            yield connection
        return
    async with (
        served_http(server) as url,
        connect_mcp({"url": url, "protocol": era, **settings}, callbacks=callbacks) as connection,
    ):
        yield connection
