"""A FastAPI application whose routes call tools of MCP servers; its lifespan owns the connections."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.testclient import TestClient

from toolweave import CallContext, Hub, ToolCall, connect_mcp_servers

SERVERS = {"numbers": {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, Any]]:
    async with connect_mcp_servers(SERVERS) as hub:
        yield {"hub": hub}


def hub_of(request: Request) -> Hub:
    return request.state.hub


HubOfApp = Annotated[Hub, Depends(hub_of)]
app = FastAPI(lifespan=lifespan)


@app.get("/quotient")
async def quotient(hub: HubOfApp, value: Annotated[float, Query()], by: Annotated[float, Query()]) -> dict[str, Any]:
    call = ToolCall(name="numbers_divide", arguments={"value": value, "by": by})
    result = await hub.call(call, CallContext(timeout=10))
    if result.is_error:
        raise HTTPException(502, result.text)
    return result.structured_content


@app.get("/ready")
async def ready(hub: HubOfApp) -> dict[str, str]:
    return {name: state.value for name, state in hub.states().items()}


with TestClient(app) as client:
    for path in ("/ready", "/quotient?value=42&by=6", "/quotient?value=42&by=0"):
        answer = client.get(path)
        print(answer.status_code, answer.json())
