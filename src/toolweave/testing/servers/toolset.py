"""The tools, resources and prompts of the test servers, as data and plain functions.

Knows nothing of wires, eras or transports; `protocol.py` shapes the values here for each revision.
Standard library only, and only the modules that start fast.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

__all__ = [
    "BLOCKING",
    "PROMPTS",
    "RESOURCES",
    "TEMPLATES",
    "TOOLS",
    "Json",
    "NoReply",
    "PeerCall",
    "generated_tool",
    "members",
    "schema",
    "text_result",
]

Json = dict[str, Any]
"""One JSON object."""

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA=="


class NoReply(Exception):
    """The request gets no answer at all."""


class PeerCall:
    """One `tools/call` as a tool function sees it."""

    def __init__(
        self,
        arguments: Json,
        *,
        cancelled: threading.Event,
        notify: Callable[[str, Json], None],
        server: Any,  # a protocol.Peer; this module must not import it
        request: Any,  # a protocol.PeerRequest
    ) -> None:
        self.arguments = arguments
        self.cancelled = cancelled
        self.notify = notify
        self.server = server
        self.request = request

    def wait(self, seconds: float | None) -> None:
        """Sleep for `seconds` (None: for ever); a cancelled call is never answered."""
        if self.cancelled.wait(seconds):
            raise NoReply

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send one progress notification if the caller asked for them."""
        token = self.request.meta.get("progressToken")
        if token is None:
            return
        params: Json = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self.notify("notifications/progress", params)


def members(value: Any) -> Json:  # any JSON value
    """Return a JSON object as it is, anything else as an empty one."""
    if isinstance(value, dict):
        return cast("Json", value)
    return {}


def text_result(text: str, **more: Any) -> Json:  # any member of a CallToolResult
    """Return a result with one text block."""
    return {"content": [{"type": "text", "text": text}], "isError": False, **more}


def structured_result(value: Any) -> Json:  # any JSON value
    """Return a result with structured content and its text mirror."""
    return text_result(json.dumps(value), structuredContent=value)


def schema(required: str = "", /, **properties: str) -> Json:
    """Return an object schema; `properties` maps a name to its JSON type."""
    out: Json = {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}
    if required:
        out["required"] = required.split()
    return out


TOOLS: dict[str, tuple[Json, Callable[[PeerCall], Json]]] = {}
"""Name -> (definition without its name, function)."""

BLOCKING = {"slow", "hang", "hold"}
"""Tools that wait, so a server must run them beside its reading loop."""


def tool(
    description: str, input_schema: Json | None = None, **more: Any
) -> Callable[[Callable[[PeerCall], Json]], Callable[[PeerCall], Json]]:
    """Add the decorated function to the table."""

    def add(function: Callable[[PeerCall], Json]) -> Callable[[PeerCall], Json]:
        definition: Json = {"description": description, "inputSchema": input_schema or schema(), **more}
        TOOLS[function.__name__.rstrip("_")] = (definition, function)
        return function

    return add


@tool(
    "Return the text.",
    {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to return"}},
        "required": ["text"],
        "additionalProperties": False,
    },
    title="Echo",
    annotations={"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
)
def echo(call: PeerCall) -> Json:
    return text_result(str(call.arguments["text"]))


@tool(
    "Add two numbers.",
    schema("a b", a="number", b="number"),
    title="Add",
    outputSchema=schema("sum", sum="number"),
    annotations={"readOnlyHint": True},
)
def add(call: PeerCall) -> Json:
    return structured_result({"sum": call.arguments["a"] + call.arguments["b"]})


@tool("Fail with an error result.", schema(message="string"))
def fail(call: PeerCall) -> Json:
    return text_result(str(call.arguments.get("message", "failed on purpose"))) | {"isError": True}


@tool("Take `seconds`, in `steps` with progress.", schema(seconds="number", steps="integer"))
def slow(call: PeerCall) -> Json:
    steps = int(call.arguments.get("steps", 4))
    pause = float(call.arguments.get("seconds", 0.2)) / max(steps, 1)
    for step in range(1, steps + 1):
        call.wait(pause)
        call.progress(step, steps, f"step {step} of {steps}")
    return text_result(f"done in {steps} steps")


@tool("Send progress 0, then wait until `release` is called with the same key.", schema(key="string", seconds="number"))
def hold(call: PeerCall) -> Json:
    gate: threading.Event = call.server.gates.setdefault(str(call.arguments.get("key", "")), threading.Event())
    call.progress(0, 1, "holding")
    # In short steps, because two events are waited for: the release and the cancellation.
    for _ in range(int(float(call.arguments.get("seconds", 60)) * 100)):
        if gate.wait(0.01):
            return text_result("released")
        call.wait(0)
    return text_result("nobody released it") | {"isError": True}


@tool("Let `hold` with the same key go on.", schema(key="string"))
def release(call: PeerCall) -> Json:
    call.server.gates.setdefault(str(call.arguments.get("key", "")), threading.Event()).set()
    return text_result("ok")


@tool("Never answer.")
def hang(call: PeerCall) -> Json:
    call.progress(0, 1, "hanging")
    call.wait(None)
    raise NoReply


@tool("Die with exit code 7.")
def crash(call: PeerCall) -> Json:
    sys.stderr.write("about to crash\nfatal: crashed on purpose\n")
    sys.stderr.flush()
    # `sys.exit` would only end the thread that the tool may run in.
    os._exit(7)


@tool("Answer with a JSON-RPC error.", schema(code="integer", message="string"))
def rpc_error(call: PeerCall) -> Json:
    message = str(call.arguments.get("message", "refused on purpose"))
    raise call.server.error(int(call.arguments.get("code", -32603)), message, {"why": "on purpose"})


IMAGE: Json = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO: Json = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
LINK: Json = {"type": "resource_link", "uri": "test://text", "name": "text", "mimeType": "text/plain"}
EMBEDDED: Json = {
    "type": "resource",
    "resource": {"uri": "test://text", "mimeType": "text/plain", "text": "hello from a resource"},
}
EMBEDDED_BLOB: Json = {"type": "resource", "resource": {"uri": "test://blob", "mimeType": "image/png", "blob": PNG}}


@tool("Return an image.")
def image(call: PeerCall) -> Json:
    return {"content": [IMAGE]}


@tool("Return a sound.")
def audio(call: PeerCall) -> Json:
    return {"content": [AUDIO]}


@tool("Return a link to a resource.")
def resource_link(call: PeerCall) -> Json:
    return {"content": [LINK]}


@tool("Return embedded resources, text and blob.")
def embedded(call: PeerCall) -> Json:
    return {"content": [EMBEDDED, EMBEDDED_BLOB]}


@tool("Return every kind of block.")
def mixed(call: PeerCall) -> Json:
    text: Json = {"type": "text", "text": "all of them", "annotations": {"audience": ["user"], "priority": 0.5}}
    return {"content": [text, IMAGE, AUDIO, LINK, EMBEDDED], "_meta": {"example.com/note": "kept"}}


@tool("Return structured content and no blocks.")
def structured_only(call: PeerCall) -> Json:
    return {"content": [], "structuredContent": {"rows": [{"id": 1, "name": "one"}, {"id": 2, "name": None}]}}


@tool("Return environment variables: those named, or the names of all.", schema(names="array"))
def env(call: PeerCall) -> Json:
    names = call.arguments.get("names")
    if names is None:
        return structured_result({"names": sorted(os.environ)})
    return structured_result({str(name): os.environ.get(str(name)) for name in names})


@tool("Return the working directory.")
def cwd(call: PeerCall) -> Json:
    return text_result(os.getcwd())  # noqa: PTH109 - pathlib is slow to import


@tool("Return the arguments of this call and of the process.", {"type": "object"})
def args(call: PeerCall) -> Json:
    return structured_result({"arguments": call.arguments, "argv": sys.argv[1:]})


@tool("Return a text of `size` bytes.", schema("size", size="integer"))
def big(call: PeerCall) -> Json:
    return text_result("x" * int(call.arguments["size"]))


@tool("Send a log message, then answer.", schema(message="string", level="string"))
def log(call: PeerCall) -> Json:
    level = str(call.arguments.get("level", "info"))
    call.notify("notifications/message", {"level": level, "logger": "test", "data": call.arguments.get("message", "")})
    return text_result("logged")


@tool(
    "Add to the `kind` (default: tools; or prompts, resources) and notify of it, unless it is `quiet`.",
    schema(kind="string", quiet="boolean"),
)
def grow(call: PeerCall) -> Json:
    kind = str(call.arguments.get("kind", "tools"))
    made = {"tools": generated_tool(), "prompts": PROMPTS["plain"], "resources": RESOURCES["test://json"]}[kind]
    entries: dict[str, Any] = getattr(call.server, kind)
    number = sum("grown_" in name for name in entries) + 1
    if kind == "resources":
        name = f"test://grown_{number}"
    else:
        name = f"grown_{number}"
    entries[name] = made
    if not call.arguments.get("quiet"):
        call.server.broadcast(f"notifications/{kind}/list_changed")
    return text_result(name)


@tool("Remove a tool (default: the last one) and say so.", schema(name="string"))
def shrink(call: PeerCall) -> Json:
    name = str(call.arguments.get("name") or list(call.server.tools)[-1])
    if call.server.tools.pop(name, None) is None:
        return text_result(f"no tool {name!r}") | {"isError": True}
    call.server.broadcast("notifications/tools/list_changed")
    return text_result(name)


@tool("Say that the resource `uri` changed, or end the listen streams.", schema(uri="string", hang_up="boolean"))
def touch(call: PeerCall) -> Json:
    if call.arguments.get("hang_up"):
        for listener in list(call.server.listeners):
            call.server.stop(listener)
            listener.send({"jsonrpc": "2.0", "id": listener.id, "result": {"resultType": "complete"}})
        return text_result("hung up")
    call.server.broadcast("notifications/resources/updated", {"uri": call.arguments.get("uri", "test://text")})
    return text_result("touched")


@tool("Return what the server saw: calls by name, cancelled ids, the client, its answers.")
def state(call: PeerCall) -> Json:
    return structured_result(call.server.seen(call.request))


@tool("Return the HTTP headers of this request and the body of the one before.")
def seen_headers(call: PeerCall) -> Json:
    return structured_result({"headers": call.request.headers, "requests": call.server.http_requests[-50:]})


@tool("Return the headers that stand in for arguments.", {"type": "object", "properties": {
    "region": {"type": "string", "x-mcp-header": "Region"}}})  # fmt: skip
def mirrored(call: PeerCall) -> Json:
    return structured_result({"headers": call.request.headers})


def generated_tool(size: int = 0) -> tuple[Json, Callable[[PeerCall], Json]]:
    """Return a tool that echoes its arguments; its description is padded to about `size` bytes of JSON."""
    description = "Return the arguments.".ljust(max(size - 150, 0), ".")
    definition: Json = {"description": description, "inputSchema": schema("text", text="string", count="integer")}
    return definition, lambda call: text_result(json.dumps(call.arguments))


RESOURCES: dict[str, tuple[Json, Json]] = {
    "test://text": (
        {"name": "text", "title": "A text", "mimeType": "text/plain", "description": "A short text", "size": 21},
        {"mimeType": "text/plain", "text": "hello from a resource"},
    ),
    "test://blob": ({"name": "blob", "mimeType": "image/png"}, {"mimeType": "image/png", "blob": PNG}),
    "test://json": (
        {"name": "json", "mimeType": "application/json"},
        {"mimeType": "application/json", "text": '{"a": 1}'},
    ),
}
"""URI -> (listing without the URI, contents without the URI)."""

TEMPLATES: list[Json] = [
    {"uriTemplate": "test://item/{id}", "name": "item", "mimeType": "text/plain", "description": "One item"}
]

PROMPTS: dict[str, tuple[Json, str]] = {
    "greet": (
        {
            "title": "Greet",
            "description": "Greet somebody",
            "arguments": [{"name": "name", "description": "Who", "required": True}, {"name": "style"}],
        },
        "Please greet {name}.",
    ),
    "plain": ({"description": "No arguments"}, "Just do it."),
}
"""Name -> (listing without the name, text with placeholders for the arguments)."""
