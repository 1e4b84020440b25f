"""The GET operations of an API as resources and templates of resources, for a server's `resources=`.

Has the form of a source of resources without knowing servers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

from toolweave._json_types import Json, object_or_empty
from toolweave.openapi._operations import Operation
from toolweave.protocol.content import AudioContent, EmbeddedResource, ImageContent, resource_json
from toolweave.protocol.server_features import Resource, ResourceTemplate, definition
from toolweave.tools import CallContext, ToolCall, ToolResult, Toolset, Unsubscribe

_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_MAX_URI = 8192
"""Maximum characters of a URI."""
_ABSENT = frozenset((404, 410))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadableOperation:
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
        self._cached: tuple[Mapping[str, Operation], tuple[_ReadableOperation, ...]] = ({}, ())

    async def resources(self) -> Sequence[Json]:
        """Return the definition of each whose path has no parameters."""
        found: list[Json] = []
        for one in self._readable:
            if not one.arguments:
                resource = Resource(uri=one.uri, **_texts(one.operation))
                found.append(definition(resource))
        return found

    async def templates(self) -> Sequence[Json]:
        """Return the definition of each whose path has parameters."""
        found: list[Json] = []
        for one in self._readable:
            if one.arguments:
                template = ResourceTemplate(uri_template=one.uri, **_texts(one.operation))
                found.append(definition(template))
        return found

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Call the operation of a URI; None if no operation has such a URI, or the API reports that nothing is there.

        Raises:
            ToolError: The API refuses it, or does not answer.
        """
        if len(uri) > _MAX_URI:
            return None
        for one in self._readable:
            found = one.pattern.fullmatch(uri)
            if found is None:
                continue
            arguments = _typed_arguments(one, map(unquote, found.groups()))
            if arguments is None:
                continue
            name = one.operation.spec.name
            result = await self._toolset.call(ToolCall(name=name, arguments=arguments), ctx)
            if not result.is_error:
                return {"contents": _contents(result, uri)}
            error = result.require_error()
            if object_or_empty(error.data).get("status") in _ABSENT:
                return None
            raise error
        return None

    def subscribe(self, listener: Callable[[Any], None]) -> Unsubscribe:
        """Do nothing: an API sends no notification of changes."""
        return lambda: None

    @property
    def _readable(self) -> tuple[_ReadableOperation, ...]:
        """The operations, those without variables first."""
        # The toolset replaces its operations as a whole when it reads a document, so their identity is the cache's key.
        operations = self._operations()
        if operations is not self._cached[0]:
            found = list(filter(None, map(self._readable_operation, operations.values())))
            self._cached = operations, tuple(sorted(found, key=lambda one: len(one.arguments)))
        return self._cached[1]

    def _readable_operation(self, operation: Operation) -> _ReadableOperation | None:
        """Return a GET operation that needs only its path as a resource; None for every other."""
        if operation.method != "GET":
            return None
        path = operation.path.partition("#")[0]
        in_path = _simple_path_parameters(operation)
        if in_path is None or "?" in path:
            return None
        if not set(operation.spec.input_schema.get("required", ())) <= set(in_path.values()):
            return None
        names = _EXPRESSION.findall(path)
        if not in_path.keys() >= set(names):
            return None
        arguments = tuple(in_path[name] for name in names)
        variables = [re.sub(r"\W", "_", argument) for argument in arguments]
        if not _are_variables(variables):
            return None
        first, *literals = _EXPRESSION.split(path)[::2]
        if "{" in first + "".join(literals):
            return None
        uri = self._prefix + first.lstrip("/")
        pattern = re.escape(uri)
        for variable, literal in zip(variables, literals, strict=True):
            uri += f"{{{variable}}}{literal}"
            pattern += f"([^/?#]+){re.escape(literal)}"
        return _ReadableOperation(operation=operation, uri=uri, pattern=re.compile(pattern), arguments=arguments)


def _simple_path_parameters(operation: Operation) -> dict[str, str] | None:
    """Return the arguments of the parameters of the path by their names; None if one is not a plain text."""
    found: dict[str, str] = {}
    for one in operation.parameters:
        if one.location != "path":
            continue
        if one.style != "simple" or one.media_type is not None:
            return None
        found[one.name] = one.argument
    return found


def _are_variables(names: Sequence[str]) -> bool:
    """Return whether names can be variables of one URI template: legal, and each different from the others."""
    return len(set(names)) == len(names) and all(map(_VARIABLE.fullmatch, names))


def _texts(operation: Operation) -> Json:
    spec = operation.spec
    return {"name": spec.name, "title": spec.title, "description": spec.description}


def _typed_arguments(readable: _ReadableOperation, texts: Iterable[str]) -> Json | None:
    """Return the arguments that the texts in a URI stand for, or None if they do not fit the schema.

    A URI has texts only. If they do not fit, those whose type is not a string are read as JSON: `7` is a number then.
    """
    operation = readable.operation
    arguments: Json = dict(zip(readable.arguments, texts, strict=True))
    if operation.arguments.is_valid(arguments):
        return arguments
    properties = operation.spec.input_schema.get("properties", {})
    for name, text in arguments.items():
        if properties.get(name, {}).get("type") == "string":
            continue
        with suppress(ValueError):
            arguments[name] = json.loads(text)
    if operation.arguments.is_valid(arguments):
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
