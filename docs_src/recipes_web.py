"""A web application that keeps its servers connected; the same with FastAPI."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from toolweave import connect_mcp_servers

servers = {"numbers": {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}}


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[dict[str, Any]]:
    async with connect_mcp_servers(servers) as hub:
        yield {"hub": hub}


async def add(request: Request) -> JSONResponse:
    values = [float(value) for value in request.query_params.getlist("value")]
    result = await request.state.hub.execute("numbers_add", {"values": values})
    return JSONResponse(result.structured_content, 502 if result.is_error else 200)


app = Starlette(routes=[Route("/add", add)], lifespan=lifespan)

with TestClient(app) as client:
    print(client.get("/add?value=1&value=41").json())
