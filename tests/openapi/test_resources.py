"""GET operations of an API as resources of a server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.openapi.documents import document, operation
from tests.openapi.mock_api import MockApi, MockResponse
from toolweave import McpConnection, connect_mcp, create_mcp_server
from toolweave.errors import ProtocolError
from toolweave.openapi import openapi_tools

Serve = Callable[[dict[str, Any]], tuple[MockApi, str]]
PNG = b"\x89PNG\r\n\x1a\n"


def parameter(name: str, place: str = "path", kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": kind}, **more}


API = document(
    {
        "/pets": {"get": operation(summary="List pets.", parameters=[parameter("limit", "query", "integer")])},
        "/pets/{id}": {
            "get": operation(operationId="getPet", parameters=[parameter("id", kind="integer")]),
            "delete": operation(operationId="deletePet", parameters=[parameter("id", kind="integer")]),
        },
        "/pets/mine": {"get": operation(operationId="mine")},
        "/files/{folder-name}/{file}.png": {
            "get": operation(operationId="file", parameters=[parameter("folder-name"), parameter("file")])
        },
        "/search": {"get": operation(parameters=[parameter("q", "query", required=True)])},
        "/matrix/{id}": {"get": operation(parameters=[parameter("id", style="matrix")])},
        "/made": {"post": operation(operationId="make")},
    }
)


@asynccontextmanager
async def served(api: Serve) -> AsyncGenerator[tuple[MockApi, McpConnection]]:
    """Connect to a server with the resources of the API."""
    mock, url = api(API)
    pets = openapi_tools(mock.document, base_url=url, auth={"type": "bearer", "token": "t0ken"})
    server = create_mcp_server("pets", tools=pets, resources=[pets.resources("pets://")])
    with anyio.fail_after(60):
        async with connect_mcp({"server": server}) as client:
            yield mock, client


async def test_what_needs_only_its_path_is_a_resource_or_a_template(api: Serve) -> None:
    async with served(api) as (_, client):
        resources = {one.uri: one for one in await client.list_resources()}
        templates = {one.uri_template: one.name for one in await client.list_resource_templates()}
    assert set(resources) == {"pets://pets", "pets://pets/mine"}
    assert "List pets." in resources["pets://pets"].description
    assert templates == {"pets://pets/{id}": "getPet", "pets://files/{folder_name}/{file}.png": "file"}


async def test_reading_one_calls_the_operation_with_its_credentials(api: Serve) -> None:
    async with served(api) as (mock, client):
        mock.answers["GET /pets/{id}"] = MockResponse({"id": 7, "name": "Ada"})
        (pet,) = await client.read_resource("pets://pets/7")
        assert (mock.last.target, mock.last.headers["authorization"]) == ("/pets/7", "Bearer t0ken")
        assert (pet.uri, pet.mime_type, json.loads(pet.text or "")) == (
            "pets://pets/7",
            "application/json",
            {"id": 7, "name": "Ada"},
        )
        await client.read_resource("pets://pets/mine")
        assert mock.last.operation == "GET /pets/mine"
        mock.answers["GET /files/{folder-name}/{file}.png"] = MockResponse(PNG, headers={"content-type": "image/png"})
        (picture,) = await client.read_resource("pets://files/a%20b/c.png")
        assert (picture.mime_type, picture.decode()) == ("image/png", PNG)
        assert mock.last.target == "/files/a%20b/c.png"


@pytest.mark.parametrize(
    "uri",
    [
        "pets://pets/seven",
        "pets://pets/7/8",
        "pets://pets/",
        "pets://search",
        "pets://made",
        "pets://matrix/1",
        "pets://pets/7?x=1",
        "api://pets",
        "pets://" + "a" * 10_000,
    ],
)
async def test_what_no_operation_has_is_unknown_and_asks_nobody(api: Serve, uri: str) -> None:
    async with served(api) as (mock, client):
        with pytest.raises(ProtocolError, match="Resource not found"):
            await client.read_resource(uri)
        assert not mock.received


async def test_what_the_api_does_not_have_is_unknown_and_what_it_refuses_is_said(api: Serve) -> None:
    async with served(api) as (mock, client):
        mock.answers["GET /pets/{id}"] = MockResponse({"detail": "none"}, status=404)
        with pytest.raises(ProtocolError, match="Resource not found"):
            await client.read_resource("pets://pets/7")
        mock.answers["GET /pets/{id}"] = MockResponse({"detail": "not you, t0ken"}, status=403)
        with pytest.raises(ProtocolError, match="403") as refusal:
            await client.read_resource("pets://pets/7")
        assert "t0ken" not in str(refusal.value)


async def test_a_path_argument_cannot_become_another_path(api: Serve) -> None:
    async with served(api) as (mock, client):
        with pytest.raises(ProtocolError):
            await client.read_resource("pets://files/%2e%2e/x.png")
        assert not mock.received
        await client.read_resource("pets://files/a%2Fb/x.png")
        assert mock.last.target == "/files/a%2Fb/x.png"
