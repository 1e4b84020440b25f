"""Entries of a registry as publishers write them, and what the published schema asks of each."""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["ENTRIES", "SERVER_SCHEMA", "entry", "named", "package"]

_OFFICIAL = "io.modelcontextprotocol.registry/official"
_TEXT = {"type": "string"}
_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "description": _TEXT,
        "isRequired": {"type": "boolean"},
        "isSecret": {"type": "boolean"},
        "isRepeated": {"type": "boolean"},
        "format": {"enum": ["string", "number", "boolean", "filepath"]},
        "default": _TEXT,
        "placeholder": _TEXT,
        "choices": {"type": "array", "items": _TEXT},
        "value": _TEXT,
        "valueHint": _TEXT,
        "type": {"enum": ["positional", "named"]},
        "variables": {"type": "object", "additionalProperties": {"$ref": "#/$defs/input"}},
    },
}
_TRANSPORT: dict[str, Any] = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["stdio", "streamable-http", "sse"]},
        "url": _TEXT,
        "headers": {
            "type": "array",
            "items": {"allOf": [{"$ref": "#/$defs/input"}, {"required": ["name"]}]},
        },
        "variables": {"type": "object", "additionalProperties": {"$ref": "#/$defs/input"}},
    },
    "if": {"properties": {"type": {"not": {"const": "stdio"}}}},
    "then": {"required": ["url"]},
}
_ARGUMENTS: dict[str, Any] = {
    "type": "array",
    "items": {
        "allOf": [{"$ref": "#/$defs/input"}, {"required": ["type"]}],
        "if": {"properties": {"type": {"const": "named"}}},
        "then": {"required": ["name"]},
        "else": {"anyOf": [{"required": ["valueHint"]}, {"required": ["value"]}]},
    },
}
SERVER_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"input": _INPUT, "transport": _TRANSPORT, "arguments": _ARGUMENTS},
    "type": "object",
    "required": ["name", "description", "version"],
    "properties": {
        "name": {"type": "string", "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "maxLength": 255},
        "websiteUrl": {"type": "string", "format": "uri"},
        "packages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["registryType", "identifier", "transport"],
                "properties": {
                    "registryType": _TEXT,
                    "identifier": _TEXT,
                    "version": {"type": "string", "minLength": 1, "not": {"const": "latest"}},
                    "registryBaseUrl": {"type": "string", "format": "uri"},
                    "runtimeHint": _TEXT,
                    "fileSha256": {"type": "string", "pattern": "^[a-f0-9]{64}$"},
                    "transport": {"$ref": "#/$defs/transport"},
                    "runtimeArguments": {"$ref": "#/$defs/arguments"},
                    "packageArguments": {"$ref": "#/$defs/arguments"},
                    "environmentVariables": {
                        "type": "array",
                        "items": {"allOf": [{"$ref": "#/$defs/input"}, {"required": ["name"]}]},
                    },
                },
            },
        },
        "remotes": {
            "type": "array",
            "items": {"allOf": [{"$ref": "#/$defs/transport"}, {"properties": {"type": {"not": {"const": "stdio"}}}}]},
        },
    },
}
"""What the schema of 2025-12-11 asks of the members that are read here."""


def package(kind: str, identifier: str, version: str = "1.2.0", **members: Any) -> dict[str, Any]:
    """Return a package that is started over stdio."""
    return {
        "registryType": kind,
        "identifier": identifier,
        "version": version,
        "transport": {"type": "stdio"},
        **members,
    }


_NOTES = {
    "name": "com.example/notes",
    "title": "Notes",
    "description": "Keeps notes in a folder",
    "version": "1.2.0",
    "packages": [
        package(
            "pypi",
            "notes-server",
            runtimeHint="uvx",
            packageArguments=[
                {"type": "positional", "valueHint": "folder", "description": "The folder", "format": "filepath",
                 "isRequired": True},
                {"type": "named", "name": "--tag", "description": "A tag", "isRepeated": True},
            ],
            environmentVariables=[
                {"name": "NOTES_KEY", "description": "The key of your notes", "isRequired": True, "isSecret": True},
                {"name": "LOG_LEVEL", "description": "How much is logged", "default": "info",
                 "choices": ["debug", "info"]},
                {"name": "NOTES_LIMIT", "format": "number", "placeholder": "100"},
            ],
        )
    ],
}  # fmt: skip
_GRAPH = {
    "name": "io.github.acme/graph",
    "description": "Draws graphs of notes",
    "version": "2.0.1",
    "packages": [
        package(
            "npm",
            "@acme/graph-server",
            "2.0.1",
            packageArguments=[
                {"type": "named", "name": "--mode", "choices": ["local", "cached"], "default": "local"},
            ],
        ),
        package(
            "oci",
            "docker.io/acme/graph:2.0.1",
            "2.0.1",
            runtimeArguments=[
                {
                    "type": "named",
                    "name": "--mount",
                    "value": "type=bind,src={source},dst=/project",
                    "isRequired": True,
                    "isRepeated": True,
                    "variables": {"source": {"format": "filepath", "isRequired": True}},
                }
            ],
            environmentVariables=[{"name": "GRAPH_KEY", "isSecret": True}],
        ),
        package("nuget", "Acme.Graph", "2.0.1", packageArguments=[{"type": "positional", "value": "mcp"}]),
    ],
}
_CRM = {
    "name": "com.example/crm",
    "description": "Customers and their orders",
    "version": "3.1.0",
    "remotes": [
        {
            "type": "streamable-http",
            "url": "https://{tenant}.example.com/mcp",
            "variables": {"tenant": {"description": "Your company", "isRequired": True}},
            "headers": [
                {
                    "name": "Authorization",
                    "value": "Bearer {key}",
                    "isRequired": True,
                    "isSecret": True,
                    "variables": {"key": {"description": "A key of the CRM", "isRequired": True, "isSecret": True}},
                },
                {"name": "X-Region", "default": "eu", "choices": ["eu", "us"]},
            ],
        },
        {"type": "sse", "url": "https://old.example.com/sse"},
    ],
}
_WEATHER = {
    "name": "io.github.acme/old-weather",
    "description": "The weather, as it was",
    "version": "0.9.5",
    "packages": [package("npm", "old-weather", "0.9.5")],
}
_GONE = {
    "name": "io.github.acme/gone",
    "description": "No longer there",
    "version": "1.0.0",
    "packages": [package("npm", "gone", "1.0.0")],
}


def entry(server: dict[str, Any], status: str = "active", message: str = "") -> dict[str, Any]:
    """Return a server as the registry lists it."""
    official = {
        "status": status,
        **({"statusMessage": message} if message else {}),
        "publishedAt": "2026-01-02T03:04:05Z",
        "isLatest": True,
    }
    return {"server": copy.deepcopy(server), "_meta": {_OFFICIAL: official}}


ENTRIES: list[dict[str, Any]] = [
    entry(_NOTES),
    entry(_GRAPH),
    entry(_CRM),
    entry(_WEATHER, "deprecated", "use com.example/weather"),
    entry(_GONE, "deleted", "it was never meant to be there"),
]
"""A registry's entries of every kind."""


def named(name: str) -> dict[str, Any]:
    """Return the `server` of one of the entries, to be changed."""
    return copy.deepcopy(next(one["server"] for one in ENTRIES if one["server"]["name"] == name))
