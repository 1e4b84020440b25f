"""An OpenAPI document and an application of this process as toolsets."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolweave.openapi import openapi_tools

PETS: dict[int, dict[str, Any]] = {1: {"id": 1, "name": "Ada"}}


async def get_pet(request: Request) -> JSONResponse:
    pet = PETS.get(int(request.path_params["id"]))
    return JSONResponse(pet or {"detail": "no such pet"}, 200 if pet else 404)


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{id}": {
            "get": {
                "operationId": "getPet",
                "summary": "Return a pet.",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "responses": {"200": {"description": "The pet", "content": {"application/json": {}}}},
            }
        }
    },
}


async def get_document(request: Request) -> JSONResponse:
    return JSONResponse(DOCUMENT)


app = Starlette(routes=[Route("/openapi.json", get_document), Route("/pets/{id:int}", get_pet)])


async def main() -> None:
    async with openapi_tools(app) as pets:  # or a URL, a path, a document; a FastAPI app as it is
        for tool in pets.tools:
            print(tool.name, dict(tool.input_schema["properties"]), tool.annotations)
        print((await pets.execute("getPet", {"id": 1})).structured_content)
        missing = await pets.execute("getPet", {"id": 2})
        print(missing.is_error, missing.text)


asyncio.run(main())
