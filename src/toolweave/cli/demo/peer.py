"""One demo server as a value: messages in, answers out, in both protocol eras. Does no input or output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from toolweave.protocol.meta import SERVER_INFO
from toolweave.protocol.versions import LATEST_HANDSHAKE_VERSION, MODERN_VERSION

__all__ = ["DemoServer", "DemoTool", "Json", "Notify", "Report", "ToolFailedError", "member"]

Json = dict[str, Any]
"""One JSON object."""
Notify = Callable[[Json], None]
"""Sends a notification while a request runs."""
Report = Callable[[float, float, str], None]
"""Reports progress: done, total, a line for people."""


class ToolFailedError(Exception):
    """The tool answers with `isError`; the text is for the caller."""


class DemoTool(NamedTuple):
    """One tool: its definition and the function behind it, which runs in a thread of its own."""

    name: str
    description: str
    properties: Mapping[str, Json]
    run: Callable[[Json, Report], Any]
    required: Sequence[str] = ()
    output: Json | None = None
    read_only: bool = True

    def definition(self) -> Json:
        """Return the tool as `tools/list` shows it."""
        schema: Json = {"type": "object", "properties": dict(self.properties), "additionalProperties": False}
        if self.required:
            schema["required"] = list(self.required)
        definition: Json = {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": self.read_only, "openWorldHint": False},
        }
        return definition if self.output is None else {**definition, "outputSchema": self.output}


class DemoServer:
    """Answers requests; transports call `answer` for each message they read.

    A legacy server (`initialize`, revision 2025-11-25) or a modern one (`server/discover`, 2026-07-28).
    """

    def __init__(self, name: str, tools: Sequence[DemoTool], *, modern: bool, instructions: str = "") -> None:
        self.info = {"name": f"toolweave-demo-{name}", "version": "1.0.0"}
        self.tools = {tool.name: tool for tool in tools}
        self.modern = modern
        self.instructions = instructions
        self.resources: dict[str, Callable[[], str]] = {}
        self.prompts: dict[str, tuple[Json, Callable[[Json], str]]] = {}

    def answer(self, message: Json, notify: Notify) -> Json | None:
        """Take one message; return the answer, or None for a notification."""
        if "id" not in message or "method" not in message:
            return None
        try:
            result = self._result(str(message["method"]), member(message, "params"), notify)
        except LookupError as error:
            code, text = error.args
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}
        return {"jsonrpc": "2.0", "id": message["id"], "result": self._stamped(result)}

    def _result(self, method: str, params: Json, notify: Notify) -> Json:
        answers: dict[str, Callable[[], Json]] = {
            methods.TOOLS_LIST: lambda: {"tools": [tool.definition() for tool in self.tools.values()]},
            methods.TOOLS_CALL: lambda: self._call(params, notify),
            methods.RESOURCES_LIST: lambda: {"resources": [{"uri": uri, "name": uri} for uri in self.resources]},
            methods.RESOURCES_TEMPLATES_LIST: lambda: {"resourceTemplates": []},
            methods.RESOURCES_READ: lambda: self._read(str(params.get("uri"))),
            methods.PROMPTS_LIST: lambda: {"prompts": [listing for listing, _ in self.prompts.values()]},
            methods.PROMPTS_GET: lambda: self._prompt(params),
            methods.SERVER_DISCOVER if self.modern else methods.INITIALIZE: self._hello,
        }
        if not self.modern:
            answers[methods.PING] = dict
        if method not in answers:
            raise LookupError(METHOD_NOT_FOUND, f"Method not found: {method}")
        return answers[method]()

    def _hello(self) -> Json:
        capabilities: Json = {"tools": {}}
        if self.resources:
            capabilities["resources"] = {}
        if self.prompts:
            capabilities["prompts"] = {}
        hello: Json = {"capabilities": capabilities, "instructions": self.instructions}
        if self.modern:
            return {**hello, "supportedVersions": [MODERN_VERSION]}
        return {**hello, "protocolVersion": LATEST_HANDSHAKE_VERSION, "serverInfo": self.info}

    def _stamped(self, result: Json) -> Json:
        if not self.modern:
            return result
        meta = {SERVER_INFO: self.info}
        return {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private", **result, "_meta": meta}

    def _call(self, params: Json, notify: Notify) -> Json:
        tool = self.tools.get(str(params.get("name")))
        if tool is None:
            raise LookupError(INVALID_PARAMS, f"Unknown tool: {params.get('name')}")
        arguments = member(params, "arguments")
        absent = [name for name in tool.required if name not in arguments]
        if absent:
            return _failed(f"missing arguments: {', '.join(absent)}")
        token = member(params, "_meta").get("progressToken")

        def report(progress: float, total: float, text: str) -> None:
            if token is not None:
                values: Json = {"progressToken": token, "progress": progress, "total": total, "message": text}
                notify({"jsonrpc": "2.0", "method": methods.NOTIFICATIONS_PROGRESS, "params": values})

        try:
            value = tool.run(arguments, report)
        except ToolFailedError as failure:
            return _failed(str(failure))
        except (TypeError, ValueError) as error:
            return _failed(f"these arguments do not work: {error}")
        if isinstance(value, str):
            return {"content": [{"type": "text", "text": value}]}
        return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}

    def _read(self, uri: str) -> Json:
        if uri not in self.resources:
            raise LookupError(INVALID_PARAMS, f"Resource not found: {uri}")
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": self.resources[uri]()}]}

    def _prompt(self, params: Json) -> Json:
        entry = self.prompts.get(str(params.get("name")))
        if entry is None:
            raise LookupError(INVALID_PARAMS, f"Unknown prompt: {params.get('name')}")
        text = entry[1](member(params, "arguments"))
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def member(message: Json, key: str) -> Json:
    """Return a member that is an object, an empty one when it is absent or something else."""
    value = message.get(key)
    return cast("Json", value) if isinstance(value, dict) else {}


def _failed(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": True}
