"""The operations of a FastAPI application as tools, in its process: an upload, a refusal, and all of it as a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, File, Form, HTTPException, UploadFile

from toolweave import connect_mcp, create_mcp_server
from toolweave.openapi import openapi_tools


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    app.state.papers = {}
    yield


app = FastAPI(title="Papers", lifespan=lifespan)


@app.post("/papers")
async def file_paper(title: Annotated[str, Form()], content: Annotated[UploadFile, File()]) -> dict[str, int]:
    """File a paper under its title."""
    app.state.papers[title] = await content.read()
    return {"bytes": len(app.state.papers[title])}


@app.get("/papers/{title}")
async def read_paper(title: str) -> dict[str, str]:
    """Return the text of a paper."""
    if title not in app.state.papers:
        raise HTTPException(404, f"there is no paper {title!r}")
    return {"text": app.state.papers[title].decode()}


async def main() -> None:
    async with openapi_tools(app) as papers:
        for tool in papers.tools:
            print(tool.name, sorted(tool.input_schema["properties"]))
        paper = {"title": "tea", "content": {"text": "Pour, then wait.", "filename": "tea.txt"}}
        print((await papers.execute("file_paper", paper)).structured_content)
        print((await papers.execute("read_paper", {"title": "tea"})).structured_content)
        print((await papers.execute("read_paper", {"title": "milk"})).text)

    server = create_mcp_server(name="papers", version="1.0.0", tools=[openapi_tools(app, exclude=["POST *"])])
    async with connect_mcp(server) as client:
        print((await client.list_tools()).names)


asyncio.run(main())
