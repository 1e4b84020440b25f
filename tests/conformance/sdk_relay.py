"""A pytest plugin that puts a gateway between the client and the server of the official SDK's own interaction tests.

Loaded into a run of those tests, as they come in the SDK's source distribution: their Streamable HTTP connection is
replaced by one over real sockets through a gateway with default settings, and other connections are left out. What the
tests use without listing it, the server is made to list: a gateway finds tools, prompts and templates by their lists.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
import pytest
import uvicorn
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from toolweave.gateway import create_gateway

__all__: list[str] = []

UPSTREAMS = "io.toolweave/upstreams"
MADE_UP = re.compile("nope|nonexistent|missing|unknown")
"""Names that a test expects to be unknown."""
Models = types.ListToolsResult | types.ListPromptsResult | types.ListResourcesResult | types.ListResourceTemplatesResult
LISTS: Mapping[str, tuple[str, type[Models], str, str]] = {
    "tools/list": ("tools", types.ListToolsResult, "list_tools(", r'call_tool\(\s*"([^"]+)"'),
    "prompts/list": (
        "prompts",
        types.ListPromptsResult,
        "list_prompts(",
        r'(?:get_prompt\(\s*|PromptReference\([^)]*name=)"([^"]+)"',
    ),
    "resources/list": (
        "resources",
        types.ListResourcesResult,
        "list_resources(",
        r'(?:read|subscribe)_resource\(\s*"([^"]+)"',
    ),
    "resources/templates/list": (
        "resourceTemplates",
        types.ListResourceTemplatesResult,
        "list_resource_templates(",
        r'ResourceTemplateReference\([^)]*uri="([^"]+)"',
    ),
}
_running: list[pytest.Item] = []


def pytest_configure(config: pytest.Config) -> None:
    """Stand in for the snapshot library of the SDK's tests: equality is what they assert with it."""
    stand_in = ModuleType("inline_snapshot")
    vars(stand_in)["snapshot"] = _as_it_is
    sys.modules.setdefault("inline_snapshot", stand_in)


def _as_it_is(value: Any = None) -> Any:
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests over Streamable HTTP, and connect them through a gateway."""
    items[:] = [item for item in items if re.search(r"\[(asyncio-)?streamable-http-20[\d-]+(-asyncio)?\]", item.nodeid)]
    conftest: Any = importlib.import_module("tests.interaction.conftest")  # of the SDK's distribution
    factories = cast("dict[str, Any]", vars(conftest)["_FACTORIES"])
    factories["streamable-http"] = through_gateway


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note which test runs: its source says what it uses."""
    _running[:] = [item]
    return (yield)


@asynccontextmanager
async def through_gateway(
    server: Any, *, spec_version: str = LATEST_HANDSHAKE_VERSION, **options: Any
) -> AsyncGenerator[Client]:
    """Yield the SDK's client, connected to its server through a gateway."""
    if isinstance(server, Server):
        list_what_is_used(cast("Server[Any]", server))
    mode = spec_version if spec_version in MODERN_PROTOCOL_VERSIONS else "legacy"
    async with listening(server.streamable_http_app()) as url:
        gateway = create_gateway({"up": {"type": "http", "url": f"{url}/mcp", "tool_prefix": ""}})
        async with listening(gateway.asgi_app()) as front, httpx2.AsyncClient(timeout=30) as http:
            transport = streamable_http_client(f"{front}/mcp", http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                yield client


@asynccontextmanager
async def listening(app: Any) -> AsyncGenerator[str]:
    """Serve an ASGI app on a free port; yield its origin."""
    config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(20):
            while not server.started:
                await anyio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = server.force_exit = True


def list_what_is_used(server: Server[Any]) -> None:
    """Add to the lists of a server what the running test uses of it and does not list itself."""
    source = inspect.getsource(getattr(_running[0], "function"))  # noqa: B009  # of functions alone
    added: dict[str, list[str]] = {}
    for method, (_, model, listed, pattern) in LISTS.items():
        found = [name for name in dict.fromkeys(re.findall(pattern, source)) if not MADE_UP.search(name)]
        if not found or listed in source:
            continue
        added[method] = found
        if server.get_request_handler(method) is None:
            server.add_request_handler(method, types.PaginatedRequestParams, _empty(model, LISTS[method][0]))

    async def complete(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
        result = await call_next(ctx)
        if ctx.method not in added:
            return result
        key = LISTS[ctx.method][0]
        members: dict[str, Any]
        if isinstance(result, dict):
            members = cast("dict[str, Any]", result)
        else:
            members = result.model_dump(by_alias=True, exclude_none=True, mode="json")
        entries: list[dict[str, Any]] = members.setdefault(key, [])
        known = {value for entry in entries for value in entry.values() if isinstance(value, str)}
        entries.extend(_entry(key, name) for name in added[ctx.method] if name not in known)
        return members

    server.middleware.append(complete)


def _empty(model: type[Models], key: str) -> Callable[[Any, Any], Any]:
    async def handler(ctx: Any, params: Any) -> Models:
        return model.model_validate({key: [], "ttlMs": 0, "cacheScope": "private"})

    return handler


def _entry(key: str, name: str) -> dict[str, Any]:
    if key == "tools":
        return {"name": name, "inputSchema": {"type": "object"}}
    if key == "prompts":
        return {"name": name}
    return {"name": name, "uri" if key == "resources" else "uriTemplate": name}


_send = JSONRPCDispatcher.send_raw_request


async def _without_statuses(self: Any, *args: Any, **options: Any) -> Any:
    """Return a result without what a gateway adds to lists: the state of its upstreams."""
    result = await _send(self, *args, **options)
    meta: dict[str, Any] = result.get("_meta") or {}
    if UPSTREAMS in meta:
        rest = {name: value for name, value in meta.items() if name != UPSTREAMS}
        result = {name: value for name, value in result.items() if name != "_meta"}
        if rest:
            result["_meta"] = rest
    return result


JSONRPCDispatcher.send_raw_request = _without_statuses
