"""What a server in memory offers, and its answers to the requests about that: tools, resources, prompts.

Knows nothing of conversations, of the handshake and of what a test scripted.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolweave.errors import ErrorKind, ProtocolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolweave.testing.shapes import Json, result_json, tool_json
from toolweave.tools import CallContext, ToolCall, Toolset

__all__ = ["INVALID_PARAMS", "LISTS", "METHOD_NOT_FOUND", "Offer", "PromptEntry", "ResourceEntry", "refuse"]

LISTS = {
    methods.TOOLS_LIST: "tools",
    methods.RESOURCES_LIST: "resources",
    methods.RESOURCES_TEMPLATES_LIST: "resourceTemplates",
    methods.PROMPTS_LIST: "prompts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceEntry:
    """A resource: how it is listed, and its content or the function that makes it."""

    listed: Mapping[str, Any]
    content: Any  # str, bytes, a function of neither, or one that returns an awaitable

    async def contents(self, uri: str) -> Json:
        """Return the entry of `resources/read`."""
        value = await _value(self.content) if callable(self.content) else self.content
        read: Json = {"uri": uri}
        if "mimeType" in self.listed:
            read["mimeType"] = self.listed["mimeType"]
        if isinstance(value, bytes):
            return read | {"blob": base64.b64encode(value).decode("ascii")}
        return read | {"text": str(value)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEntry:
    """A prompt: how it is listed, and the function that writes it."""

    listed: Mapping[str, Any]
    function: Callable[..., Any]

    async def messages(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Return the messages: a text is one of the user's, a list is taken as it is."""
        try:
            inspect.signature(self.function).bind(**arguments)
        except TypeError as exc:
            raise refuse(INVALID_PARAMS, f"prompt {self.listed['name']!r}: {exc}") from None
        value = await _value(self.function, **arguments)
        if isinstance(value, list):
            return cast("list[Any]", value)
        return [{"role": "user", "content": {"type": "text", "text": str(value)}}]


class Offer:
    """Everything one server has."""

    def __init__(self, tools: Toolset, *, page_size: int | None = None) -> None:
        self.tools = tools
        self.resources: dict[str, ResourceEntry] = {}
        self.prompts: dict[str, PromptEntry] = {}
        self.page_size = page_size

    async def answer(self, method: str, params: Mapping[str, Any], ctx: CallContext, *, modern: bool) -> Json:
        """Return the result of a request.

        Raises:
            ProtocolError: The request is unknown, or names what is not there.
        """
        if method in LISTS:
            return self._page(LISTS[method], params.get("cursor"), modern)
        match method:
            case methods.TOOLS_CALL:
                return await self._call(params, ctx, modern)
            case methods.RESOURCES_READ:
                uri = str(params.get("uri"))
                if uri not in self.resources:
                    # the code of the revisions before 2026-07-28
                    raise refuse(INVALID_PARAMS if modern else RESOURCE_NOT_FOUND, f"Resource not found: {uri}")
                return {"contents": [await self.resources[uri].contents(uri)]}
            case methods.PROMPTS_GET:
                prompt = self.prompts.get(str(params.get("name")))
                if prompt is None:
                    raise refuse(INVALID_PARAMS, f"Unknown prompt: {params.get('name')}")
                return {"messages": await prompt.messages(params.get("arguments") or {})}
            case _:
                raise refuse(METHOD_NOT_FOUND, f"Method not found: {method}")

    async def _call(self, params: Mapping[str, Any], ctx: CallContext, modern: bool) -> Json:
        name = str(params.get("name"))
        spec = self.tools.snapshot().by_name.get(name)
        if spec is None:
            raise refuse(INVALID_PARAMS, f"Unknown tool: {name}")
        result = await self.tools.call(ToolCall(name=name, arguments=params.get("arguments") or {}), ctx)
        error = result.error
        if error is not None and error.kind is ErrorKind.PROTOCOL and not isinstance(error.code, str):
            raise refuse(error.code or INTERNAL_ERROR, error.message, error.data)  # a code of JSON-RPC is a number
        return result_json(result, modern=modern, structured=spec.output_schema is not None)

    def _page(self, member: str, cursor: Any, modern: bool) -> Json:
        entries = list(self._entries(member, modern))
        start = 0
        if cursor is not None:
            if not isinstance(cursor, str) or not cursor.isdecimal():
                raise refuse(INVALID_PARAMS, f"Invalid cursor: {cursor!r}")
            start = int(cursor)
        end = len(entries) if self.page_size is None else start + self.page_size
        page: Json = {member: entries[start:end]}
        return page | ({"nextCursor": str(end)} if end < len(entries) else {})

    def _entries(self, member: str, modern: bool) -> Iterable[Any]:
        match member:
            case "tools":
                return (tool_json(spec, modern=modern) for spec in self.tools.snapshot())
            case "resources":
                return (entry.listed for entry in self.resources.values())
            case "prompts":
                return (entry.listed for entry in self.prompts.values())
            case _:
                return ()


def refuse(code: int, message: str, data: Any = None) -> ProtocolError:
    """Make the refusal of a request; it goes over the wire as a JSON-RPC error."""
    return ProtocolError(message, server="in memory", code=code, data=data)


async def _value(function: Callable[..., Any], **arguments: Any) -> Any:
    value = function(**arguments)
    return await value if inspect.isawaitable(value) else value
