"""A Swagger 2.0 document is read as OpenAPI 3.0: every request arrives as the document says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.openapi.mock_api import MockApi
from toolweave.openapi import OpenApiOptions, openapi_tools

Api = Callable[[dict[str, Any]], tuple[MockApi, str]]

PETS: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Pets", "version": "1"},
    "host": "pets.example",
    "basePath": "/v2",
    "schemes": ["http", "https"],
    "consumes": ["application/json"],
    "produces": ["application/json"],
    "securityDefinitions": {
        "key": {"type": "apiKey", "name": "api_key", "in": "header"},
        "login": {"type": "basic"},
        "client": {
            "type": "oauth2",
            "flow": "application",
            "tokenUrl": "https://pets.example/token",
            "scopes": {"read": "Read pets"},
        },
    },
    "parameters": {"limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 100}},
    "responses": {"pet": {"description": "A pet.", "schema": {"$ref": "#/definitions/Pet"}}},
    "definitions": {
        "Pet": {
            "type": "object",
            "required": ["name"],
            "discriminator": "kind",
            "properties": {
                "id": {"type": "integer", "readOnly": True},
                "name": {"type": "string"},
                "mother": {"$ref": "#/definitions/Pet"},
            },
        }
    },
    "paths": {
        "/pets": {
            "parameters": [{"name": "x-trace", "in": "header", "type": "string"}],
            "get": {
                "operationId": "listPets",
                "parameters": [
                    {"$ref": "#/parameters/limit"},
                    {"name": "multi", "in": "query", "type": "array", "items": {"type": "string"},
                     "collectionFormat": "multi"},
                    {"name": "csv", "in": "query", "type": "array", "items": {"type": "string"}},
                    {"name": "pipes", "in": "query", "type": "array", "items": {"type": "string"},
                     "collectionFormat": "pipes"},
                    {"name": "tabs", "in": "query", "type": "array", "items": {"type": "string"},
                     "collectionFormat": "tsv"},
                ],
                "responses": {
                    "200": {"description": "Pets.", "schema": {"type": "array", "items": {"$ref": "#/definitions/Pet"}}}
                },
            },
            "post": {
                "operationId": "addPet",
                "security": [{"key": []}],
                "parameters": [
                    {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
                ],
                "responses": {"200": {"$ref": "#/responses/pet"}},
            },
        },
        "/pets/{id}": {
            "get": {
                "operationId": "getPet",
                "security": [{"login": []}],
                "parameters": [{"name": "id", "in": "path", "required": True, "type": "integer"}],
                "responses": {"200": {"$ref": "#/responses/pet"}},
            },
            "post": {
                "operationId": "rename",
                "consumes": ["application/x-www-form-urlencoded"],
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "type": "integer"},
                    {"name": "name", "in": "formData", "required": True, "type": "string"},
                    {"name": "tags", "in": "formData", "type": "array", "items": {"type": "string"},
                     "collectionFormat": "multi"},
                ],
                "responses": {"204": {"description": "Done."}},
            },
        },
        "/pets/{id}/photo": {
            "put": {
                "operationId": "upload",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "type": "integer"},
                    {"name": "photo", "in": "formData", "required": True, "type": "file"},
                    {"name": "title", "in": "formData", "type": "string"},
                ],
                "responses": {"204": {"description": "Done."}},
            },
            "get": {
                "operationId": "photo",
                "produces": ["image/png"],
                "parameters": [{"name": "id", "in": "path", "required": True, "type": "integer"}],
                "responses": {"200": {"description": "The photo.", "schema": {"type": "file"}}},
            },
        },
    },
}  # fmt: skip


def test_every_operation_is_a_tool_with_the_schemas_of_the_document() -> None:
    api = openapi_tools(PETS)

    assert api.problems == ()
    assert api.base_url == "https://pets.example/v2"
    assert set(api.tools.names) == {"listPets", "addPet", "getPet", "rename", "upload", "photo"}
    add = api.tools["addPet"].input_schema
    assert add["required"] == ["name"]
    assert add["properties"]["mother"] == {"$ref": "#/$defs/Pet"}
    assert "id" not in add["properties"]
    assert api.tools["getPet"].output_schema is not None
    assert api.tools["listPets"].input_schema["properties"]["limit"] == {"type": "integer", "maximum": 100}
    assert api.tools["photo"].output_schema is None


async def test_requests_are_written_as_the_document_says(api: Api) -> None:
    mock, url = api(PETS)
    options = OpenApiOptions(output_schemas=False)
    auth = {"key": "secret", "login": ("ada", "pw")}
    async with openapi_tools(PETS, base_url=url, auth=auth, options=options) as pets:
        lists = {"multi": ["a", "b"], "csv": ["a", "b"], "pipes": ["a", "b"], "tabs": "a\tb", "x-trace": "t"}
        await pets.execute("listPets", lists)
        assert mock.last.query == [("multi", "a"), ("multi", "b"), ("csv", "a,b"), ("pipes", "a|b"), ("tabs", "a\tb")]
        assert mock.last.headers["x-trace"] == "t"

        await pets.execute("addPet", {"name": "Ada", "mother": {"name": "Eve"}})
        assert mock.last.json == {"name": "Ada", "mother": {"name": "Eve"}}
        assert mock.last.headers["api_key"] == "secret"

        await pets.execute("getPet", {"id": 3})
        assert (mock.last.operation, mock.last.path) == ("GET /pets/{id}", {"id": "3"})
        assert mock.last.headers["authorization"].startswith("Basic ")

        await pets.execute("rename", {"id": 3, "name": "Bo", "tags": ["x", "y"]})
        assert mock.last.body == b"name=Bo&tags=x&tags=y"

        await pets.execute("upload", {"id": 3, "photo": {"text": "png", "filename": "p.png"}, "title": "t"})
        assert mock.last.headers["content-type"].startswith("multipart/form-data")
        assert b'name="photo"; filename="p.png"' in mock.last.body


@pytest.mark.parametrize(
    ("members", "url"),
    [
        ({}, "https://pets.example/v2"),
        ({"schemes": ["http"]}, "http://pets.example/v2"),
        ({"schemes": ["wss"]}, "https://pets.example/v2"),
        ({"basePath": "v3/"}, "https://pets.example/v3"),
        ({"basePath": None}, "https://pets.example"),
    ],
)
def test_the_url_is_made_of_scheme_host_and_path(members: dict[str, Any], url: str) -> None:
    source = {name: value for name, value in {**PETS, **members}.items() if value is not None}
    base = openapi_tools(source).base_url

    assert base is not None
    assert base.rstrip("/") == url


@pytest.mark.parametrize(("name", "version"), [("pets.json", "2.0"), ("pets.yaml", "2.0"), ("pets.yaml", 2.0)])
def test_a_file_is_read_as_json_or_yaml_whatever_its_version_is_written_as(
    tmp_path: Path, name: str, version: object
) -> None:
    path = tmp_path / name
    path.write_text(json.dumps({**PETS, "swagger": version}))

    assert len(openapi_tools(path).tools) == 6


def test_a_malformed_operation_costs_itself_alone() -> None:
    paths: dict[str, Any] = {
        "/a": {"get": {"parameters": [{"$ref": "#/parameters/none"}], "responses": {}}},
        "/b": {"get": {"parameters": [{"name": "x", "in": "nowhere"}]}},
        "/c": None,
        "/d": {"get": None},
        "/e": {"get": {"operationId": "fine", "parameters": "x", "responses": []}},
    }
    api = openapi_tools({**PETS, "paths": paths})

    assert api.tools.names == ("fine",)
    assert {one.operation for one in api.problems} == {"GET /a", "GET /b", "/c", "GET /d"}
