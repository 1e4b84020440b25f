"""A FastAPI application and an MCP server of its operations on one port, below an application around both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from toolweave import connect_mcp, create_mcp_server
from toolweave.openapi import openapi_tools


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    print("the API starts")
    app.state.stock = {"tea": 3}
    yield
    print("the API ends")


api = FastAPI(title="Stock", lifespan=lifespan)


@api.get("/stock/{item}")
async def in_stock(item: str) -> dict[str, int]:
    """Say how many there are."""
    return {"count": api.state.stock.get(item, 0)}


server = create_mcp_server(name="stock", version="1.0.0", tools=[openapi_tools(api)])
mcp_app = server.asgi_app()

# the server opens the toolset, and the toolset runs the lifespan of the API: once, for both
app = Starlette(routes=[Mount("/tools", app=mcp_app), Mount("/", app=api)], lifespan=mcp_app.lifespan)


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    http = uvicorn.Server(uvicorn.Config(app, log_config=None))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(http.serve([listener]))
        async with connect_mcp(f"http://127.0.0.1:{listener.getsockname()[1]}/tools/mcp") as client:
            print((await client.call_tool("in_stock", {"item": "tea"})).structured_content)
        http.should_exit = True


asyncio.run(main())
