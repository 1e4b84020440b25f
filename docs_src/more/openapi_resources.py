"""Serve the GET operations of an API as resources beside its tools."""

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolweave import connect_mcp, create_mcp_server
from toolweave.openapi import openapi_tools

PETS = {1: {"id": 1, "name": "Ada"}}
ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
ANSWER: dict[str, Any] = {"200": {"description": "ok", "content": {"application/json": {}}}}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets": {"get": {"operationId": "listPets", "responses": ANSWER}},
        "/pets/{id}": {"get": {"operationId": "getPet", "parameters": [ID], "responses": ANSWER}},
    },
}


async def list_pets(request: Request) -> JSONResponse:
    return JSONResponse(list(PETS.values()))


async def get_pet(request: Request) -> JSONResponse:
    pet = PETS.get(int(request.path_params["id"]))
    return JSONResponse(pet or {"detail": "no such pet"}, 200 if pet else 404)


async def get_document(request: Request) -> JSONResponse:
    return JSONResponse(DOCUMENT)


routes = [Route("/openapi.json", get_document), Route("/pets", list_pets), Route("/pets/{id:int}", get_pet)]
pets = openapi_tools(Starlette(routes=routes))
server = create_mcp_server("pets", tools=pets, resources=[pets.resources("pets://")])


async def main() -> None:
    async with connect_mcp(server) as client:
        print([one.uri for one in await client.list_resources()])
        print([one.uri_template for one in await client.list_resource_templates()])
        print((await client.read_resource("pets://pets/1"))[0].text)


asyncio.run(main())
