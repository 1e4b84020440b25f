"""An MCP server below a FastAPI application, which enters the lifespans of both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from toolweave import connect_mcp, create_mcp_server

NOTES = ["water the plants", "call the bank"]
server = create_mcp_server(name="notes", version="1.0.0")


@server.tool
def search(query: str) -> list[str]:
    """Find notes by their text."""
    return [note for note in NOTES if query in note]


mcp_app = server.asgi_app()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    print("the application starts")  # its own database, its hub
    async with mcp_app.lifespan(app):
        yield
    print("the application ends")


app = FastAPI(lifespan=lifespan)


@app.get("/notes")
async def notes() -> list[str]:
    return NOTES


app.mount("/tools", mcp_app)  # the endpoint is /tools/mcp


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    http = uvicorn.Server(uvicorn.Config(app, log_config=None))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(http.serve([listener]))
        async with connect_mcp(f"http://127.0.0.1:{listener.getsockname()[1]}/tools/mcp") as client:
            print((await client.call_tool("search", {"query": "bank"})).text)
        http.should_exit = True


asyncio.run(main())
