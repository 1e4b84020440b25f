"""What the tests of this folder connect through: callers of every revision, a gateway, upstreams of either era."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from tests.serve.serving import served_http
from toolweave import Callbacks, McpConnection, ToolResult, connect_mcp
from toolweave.gateway import Gateway, create_gateway
from toolweave.testing.servers import http_server, stdio_server_command

__all__ = [
    "CALLERS",
    "EACH_CALLER",
    "EACH_PAIR",
    "MODERN",
    "Json",
    "answer_of",
    "calling",
    "gateway_to",
    "through",
    "upstream",
]

Json = dict[str, Any]

MODERN = "2026-07-28"
CALLERS = ("2025-06-18", "2025-11-25", MODERN)
UPSTREAMS = [f"{carrier}-{era}" for carrier in ("stdio", "http") for era in ("legacy", "modern")]
EACH_CALLER = pytest.mark.parametrize("version", CALLERS)
EACH_PAIR = pytest.mark.parametrize(("version", "kind"), [(one, kind) for one in CALLERS for kind in UPSTREAMS])
"""Every revision of a caller before every kind of upstream."""


@contextmanager
def upstream(kind: str, *options: object) -> Generator[Any]:
    """Run the well-behaved server that asks its client, such as `stdio-legacy`; yield its entry in a config."""
    carrier, era = kind.split("-")
    if carrier == "stdio":
        command, *args = stdio_server_command("--era", era, "--asks", *options)
        yield {"command": command, "args": args, "tool_prefix": ""}
        return
    with http_server("--era", era, "--asks", *options) as url:
        yield {"type": "http", "url": url, "tool_prefix": ""}


def gateway_to(config: Any, **options: Any) -> Gateway:
    """Return a gateway before one upstream."""
    return create_gateway({"up": config}, **options)


@asynccontextmanager
async def calling(
    gateway: Gateway, version: str, *, callbacks: Callbacks, carrier: str = "inprocess", **settings: Any
) -> AsyncGenerator[McpConnection]:
    """Connect to a gateway as a caller of one revision, over HTTP or in process."""
    if carrier == "inprocess":
        target = {"server": gateway, "protocol": version, **settings}
        async with connect_mcp(target, callbacks=callbacks) as caller:
            yield caller
        return
    async with (
        served_http(gateway) as url,
        connect_mcp({"url": url, "protocol": version, **settings}, callbacks=callbacks) as caller,
    ):
        yield caller


@asynccontextmanager
async def through(
    kind: str, version: str, callbacks: Callbacks, *, carrier: str = "inprocess", **settings: Any
) -> AsyncGenerator[McpConnection]:
    """Connect a caller of one revision to a gateway before an upstream of one kind."""
    with upstream(kind) as config:
        async with calling(gateway_to(config), version, callbacks=callbacks, carrier=carrier, **settings) as caller:
            yield caller


def answer_of(result: ToolResult) -> Json:
    """Return what a tool of the asking server was answered: an object with `result` or `error`."""
    assert not result.is_error, result.text
    content: Any = result.raw.get("structuredContent")
    return content if content is not None else json.loads(result.text)
