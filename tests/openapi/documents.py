"""Documents for the tests."""

from __future__ import annotations

from typing import Any

__all__ = ["PETS", "document", "operation"]


def document(paths: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A document with these paths."""
    return {"openapi": "3.1.0", "info": {"title": "Test", "version": "1"}, "paths": paths, **members}


def operation(**members: Any) -> dict[str, Any]:
    """An operation without an answer of any form."""
    return {"responses": {"200": {"description": "ok"}}, **members}


_PET = {"$ref": "#/components/schemas/Pet"}
PETS = document(
    {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "summary": "List pets",
                "tags": ["pets"],
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}},
                    {"name": "tags", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                ],
                "responses": {
                    "200": {
                        "description": "pets",
                        "content": {"application/json": {"schema": {"type": "array", "items": _PET}}},
                    }
                },
            },
            "post": {
                "operationId": "createPet",
                "tags": ["pets", "write"],
                "requestBody": {"required": True, "content": {"application/json": {"schema": _PET}}},
                "responses": {"201": {"description": "made", "content": {"application/json": {"schema": _PET}}}},
            },
        },
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {
                "operationId": "pets/get",
                "responses": {"200": {"description": "a pet", "content": {"application/json": {"schema": _PET}}}},
            },
            "put": {
                "operationId": "replacePet",
                "requestBody": {"required": True, "content": {"application/json": {"schema": _PET}}},
                "responses": {"200": {"description": "a pet"}},
            },
            "delete": operation(operationId="deletePet", responses={"204": {"description": "gone"}}),
        },
    },
    components={
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["id", "name", "secret"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string", "description": "Its name"},
                    "secret": {"type": "string", "writeOnly": True},
                    "parent": _PET,
                },
            }
        }
    },
)
