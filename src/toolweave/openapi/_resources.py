"""The GET operations of an API as resources and templates of resources, for a server's `resources=`.

Has the form of a source of resources without knowing servers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

from toolweave.openapi._operations import Operation
from toolweave.protocol.content import AudioContent, EmbeddedResource, ImageContent, resource_json
from toolweave.protocol.json_types import Json, as_object
from toolweave.protocol.server_features import Resource, ResourceTemplate, definition
from toolweave.tools import CallContext, ToolCall, ToolResult, Toolset, Unsubscribe

_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LONGEST = 8192
"""Maximum characters of a URI."""
_ABSENT = frozenset((404, 410))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Readable:
    """An operation that reads the object that its path names.

    Attributes:
        uri: The URI, or the template with a variable for each parameter of the path.
        arguments: The arguments of the variables, in their order.
    """

    operation: Operation
    uri: str
    pattern: re.Pattern[str]
    arguments: tuple[str, ...]


class ApiResources:
    """The GET operations of an API that need nothing but their path; made by `OpenApiToolset.resources`.

    Args:
        toolset: The tools that are called.
        operations: Returns the operations by the names of their tools, as far as the document is read.
        prefix: Stands before the paths, such as `"pets://"`.
    """

    def __init__(self, toolset: Toolset, operations: Callable[[], Mapping[str, Operation]], prefix: str) -> None:
        self._toolset = toolset
        self._operations = operations
        self._prefix = prefix
        self._known: tuple[Mapping[str, Operation], tuple[_Readable, ...]] = ({}, ())

    async def resources(self) -> Sequence[Json]:
        """Return the definition of each whose path has no parameters."""
        return [
            definition(Resource(uri=one.uri, **_about(one.operation))) for one in self._readable if not one.arguments
        ]

    async def templates(self) -> Sequence[Json]:
        """Return the definition of each whose path has parameters."""
        return [
            definition(ResourceTemplate(uri_template=one.uri, **_about(one.operation)))
            for one in self._readable
            if one.arguments
        ]

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Call the operation of a URI; None for a URI of none, and where the API says that it has no such thing.

        Raises:
            ToolError: The API refuses it, or does not answer.
        """
        for one in self._readable if len(uri) <= _LONGEST else ():
            found = one.pattern.fullmatch(uri)
            if found is None:
                arguments = None
            else:
                arguments = _typed(one, map(unquote, found.groups()))
            if arguments is None:
                continue
            name = one.operation.spec.name
            result = await self._toolset.call(ToolCall(name=name, arguments=arguments), ctx)
            if not result.is_error:
                return {"contents": _contents(result, uri)}
            error = result.require_error()
            if (as_object(error.data) or {}).get("status") in _ABSENT:
                return None
            raise error
        return None

    def subscribe(self, listener: Callable[[Any], None]) -> Unsubscribe:
        """Do nothing: an API does not say when something changes."""
        return lambda: None

    @property
    def _readable(self) -> tuple[_Readable, ...]:
        """The operations, those without variables first."""
        operations = self._operations()
        if operations is not self._known[0]:
            found = [one for one in map(self._read, operations.values()) if one is not None]
            self._known = operations, tuple(sorted(found, key=lambda one: len(one.arguments)))
        return self._known[1]

    def _read(self, operation: Operation) -> _Readable | None:
        """Return an operation as a resource; None for one that needs more than its path, or is none that reads."""
        path = operation.path.partition("#")[0]
        in_path = {one.name: one for one in operation.parameters if one.place == "path"}
        needed = set(operation.spec.input_schema.get("required", ()))
        simple = all(one.style == "simple" and one.media_type is None for one in in_path.values())
        if operation.method != "GET" or not simple or needed - {one.argument for one in in_path.values()}:
            return None
        literals = _EXPRESSION.split(path)[::2]
        names = _EXPRESSION.findall(path)
        arguments = tuple(in_path[name].argument for name in names if name in in_path)
        variables = [re.sub(r"\W", "_", argument) for argument in arguments]
        legal = len(arguments) == len(names) == len(set(variables)) and all(map(_VARIABLE.fullmatch, variables))
        if not legal or "{" in "".join(literals) or "?" in path:
            return None
        start, *others = [self._prefix + literals[0].lstrip("/"), *literals[1:]]
        pairs = list(zip(variables, others, strict=True))
        return _Readable(
            operation=operation,
            uri=start + "".join(f"{{{name}}}{text}" for name, text in pairs),
            pattern=re.compile(re.escape(start) + "".join(f"([^/?#]+){re.escape(text)}" for _, text in pairs)),
            arguments=arguments,
        )


def _about(operation: Operation) -> Json:
    spec = operation.spec
    return {"name": spec.name, "title": spec.title, "description": spec.description}


def _typed(one: _Readable, texts: Any) -> Json | None:
    """Return the arguments for the texts of a URI, as numbers where texts do not fit; None where neither fits."""
    arguments: Json = dict(zip(one.arguments, texts, strict=True))
    fits = one.operation.arguments.is_valid
    if fits(arguments):
        return arguments
    properties = one.operation.spec.input_schema.get("properties", {})
    for name, text in arguments.items():
        if properties.get(name, {}).get("type") != "string":
            try:
                arguments[name] = json.loads(text)
            except ValueError:
                continue
    if fits(arguments):
        return arguments
    return None


def _contents(result: ToolResult, uri: str) -> list[Json]:
    if result.structured_content is not None:
        text = msgspec.json.encode(result.structured_content).decode()
        return [resource_json(EmbeddedResource(uri=uri, mime_type="application/json", text=text))]
    made: list[Json] = []
    for block in result.content:
        if isinstance(block, EmbeddedResource):
            made.append(resource_json(block.replace(uri=uri)))
        elif isinstance(block, (ImageContent, AudioContent)):
            made.append(resource_json(EmbeddedResource(uri=uri, mime_type=block.mime_type, blob=block.data)))
        else:
            made.append(resource_json(EmbeddedResource(uri=uri, mime_type="text/plain", text=block.render())))
    return made
