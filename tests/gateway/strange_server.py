"""A server whose definitions, results and errors are as odd as the protocol allows; shares no line with the product.

`strange_server.py modern|legacy stdio|http`; over HTTP its first line is its port.
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
META = "io.modelcontextprotocol/"
INFO: Json = {
    "name": "strange",
    "version": "0.0.1-ß",
    "title": "A strange server",
    "websiteUrl": "https://strange.example",
    "icons": [{"src": "https://strange.example/i.png", "sizes": ["48x48"], "theme": "dark", "future": True}],
    "future": {"member": [1]},
}
INSTRUCTIONS = "First line.\n# github\nUse nothing.   "
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
    "experimental": {"vendor.example/x": {"level": 3}},
    "futureCapability": {"yes": True},
}
EXTENSIONS: Json = {
    "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]},
    "vendor.example/y": {"a": None, "b": [1, 2.5]},
}
ICON: Json = {"src": "data:image/png;base64,AA==", "mimeType": "image/png", "sizes": ["any"], "x": 1}
PROMPTS: list[Json] = [
    {
        "name": "ask/all",
        "title": "T",
        "description": "",
        "icons": [ICON],
        "arguments": [{"name": "a", "title": "A", "required": True, "future": 1}, {"name": "b"}],
        "_meta": {"vendor.example/k": 1},
        "futureMember": None,
    },
    *({"name": f"p{number}"} for number in range(5)),
]
RESOURCES: list[Json] = [
    {
        "uri": "strange://one?q=%C3%BC#f",
        "name": "one",
        "title": "T",
        "description": "d",
        "mimeType": "x/y",
        "size": 2**53,
        "annotations": {"audience": ["user"], "priority": 0.25, "lastModified": "2026-01-01T00:00:00Z", "x": 1},
        "icons": [ICON],
        "_meta": {"k": {}},
        "futureMember": [{}],
    },
    {"uri": "ui://app", "name": "app", "mimeType": "text/html;profile=mcp-app"},
    *({"uri": f"file:///{number}", "name": str(number)} for number in range(4)),
]
TEMPLATES: list[Json] = [
    {"uriTemplate": "strange://{+path}{?q*}", "name": "t", "icons": [ICON], "_meta": {"k": 1}, "futureMember": 1},
]
BLOCKS: list[Json] = [
    {"type": "text", "text": "\x00 \u2028 ü 😀", "annotations": {"audience": ["assistant"], "x": 1}, "_meta": {"k": 1}},
    {"type": "image", "data": "AA==", "mimeType": "image/png", "future": 1},
    {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "strange://one?q=%C3%BC#f", "name": "one", "size": 1, "icons": [ICON], "x": {}},
    {"type": "resource", "resource": {"uri": "strange://r", "text": "t", "mimeType": "a/b", "_meta": {"k": 1}, "x": 1}},
    {"type": "resource", "resource": {"uri": "strange://b", "blob": "AA=="}},
    {"type": "future_block", "payload": [1, None, {"x": 1.5}]},
]
RESULTS: dict[str, Json] = {
    "blocks": {"content": BLOCKS, "_meta": {"vendor.example/k": {"deep": [None]}}, "futureMember": [1]},
    "numbers": {
        "content": [{"type": "text", "text": "n"}],
        "structuredContent": {"big": 2**70, "zero": -0.0, "small": 1e-300, "deep": [[[[{"": ""}]]]]},
    },
    "failed": {"content": [{"type": "text", "text": "no"}], "isError": True, "structuredContent": {"why": 1}},
    "empty": {"content": []},
    "many": {"content": [{"type": "text", "text": str(number)} for number in range(2000)]},
}
BROKEN_RESULTS: dict[str, Json] = {
    "array_meta": {"content": [{"type": "text", "text": "m"}], "_meta": []},
    "text_meta": {"content": [{"type": "text", "text": "m"}], "_meta": "x"},
    "exponent": {"content": [], "extra": "NUMBER 1e400"},
    "digits": {"content": [], "structuredContent": {"n": f"NUMBER {'9' * 310}.5"}},
    "integer": {"content": [], "structuredContent": {"n": f"NUMBER {'9' * 5_000}"}},
    "later": {"content": [{"type": "text", "text": "l"}], "resultType": "later"},
    "tasked": {"content": [{"type": "text", "text": "t"}], "task": {"taskId": "t", "status": "working"}},
}
ODD_RESULTS: dict[str, Any] = {
    "bare": {"count": 1},
    "word": {"content": "made"},
    "untyped": {"content": [{"text": "made"}]},
    "flagged": {"content": [{"type": "text", "text": "no"}], "isError": "true"},
    "snake": {"content": [{"type": "text", "text": "no"}], "is_error": True},
    "data_url": {"content": [{"type": "image", "data": "data:image/png;base64,AA==", "mimeType": "image/png"}]},
    "unstructured": {"content": [{"type": "text", "text": '{"n": 1}'}]},
    "listed": [1, {"a": 2}],
    "said": "made",
}
"""Results that are nearly right."""
ERRORS: dict[str, Json] = {
    "app": {"code": 42, "message": "app", "data": {"k": [1, None]}},
    "params": {"code": -32602, "message": "bad", "data": "text"},
    "internal": {"code": -32603, "message": "oh"},
    "own": {"code": -32050, "message": "own", "data": []},
}
TOOLS: list[Json] = [
    {
        "name": "full",
        "title": "Ein Werkzeug",
        "description": "",
        "icons": [ICON],
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"n": {"type": "number", "const": 1.0}},
            "properties": {"a": {"$ref": "#/$defs/n"}, "région": {"type": "string", "default": None}},
            "allOf": [{"if": {"required": ["a"]}, "then": {"minProperties": 1}}],
            "x-unknown": [None, {"deep": [[[]]]}],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "object", "properties": {"v": {"type": ["integer", "null"]}}},
        "annotations": {"readOnlyHint": True, "title": "t", "vendorHint": "yes"},
        "execution": {"taskSupport": "forbidden", "future": 1},
        "_meta": {"vendor.example/k": [1, {"deep": None}], "ui": {"resourceUri": "ui://app", "visibility": ["model"]}},
        "futureMember": {"x": [1, "\u2028"]},
    },
    {
        "name": "headers",
        "inputSchema": {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        },
    },
    *({"name": name, "inputSchema": {"type": "object"}} for name in ("echo", *RESULTS, *BROKEN_RESULTS, *ERRORS)),
    *({"name": name, "inputSchema": {"type": "object"}} for name in ODD_RESULTS if name != "unstructured"),
    {
        "name": "unstructured",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
    {
        "name": "typed",
        "inputSchema": {
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "ids": {"type": "array", "items": {"type": "integer"}},
                "note": {"type": "string"},
                "bad": {"type": "date"},
            },
        },
    },
    *({"name": f"plain.{number:03}", "inputSchema": {"type": "object"}} for number in range(120)),
]
PAGES: dict[str, tuple[str, list[Json]]] = {
    "tools/list": ("tools", TOOLS),
    "prompts/list": ("prompts", PROMPTS),
    "resources/list": ("resources", RESOURCES),
    "resources/templates/list": ("resourceTemplates", TEMPLATES),
}
_NEXT = {None: "", "": "two"}
_NUMBER = {None: 0, "": 1, "two": 2}


class RefusedRequest(Exception):
    """A JSON-RPC error as it is sent."""


def answer(era: str, method: str, params: Json) -> Json:
    """Return the result of a request."""
    hello = "server/discover" if era == "modern" else "initialize"
    if method == hello:
        return greeting(era)
    if method in PAGES:
        return listed(method, params.get("cursor"))
    if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        return {}
    if method == "tools/call":
        return called(params)
    if method == "prompts/get":
        messages = [{"role": "user", "content": block, "future": 1} for block in BLOCKS]
        return {"description": "d", "messages": messages, "_meta": {"k": 1}, "futureMember": 1}
    if method == "resources/read":
        contents = [{"uri": params["uri"], "text": "t", "_meta": {"k": 1}, "x": 1}, {"uri": "a:b", "blob": "AA=="}]
        return {"contents": contents, "_meta": {"k": 1}, "futureMember": 1}
    if method == "completion/complete":
        return {"completion": {"values": [json.dumps(params["ref"])], "total": 7, "hasMore": True, "x": 1}, "y": 1}
    raise RefusedRequest({"code": -32601, "message": "Method not found"})


def greeting(era: str) -> Json:
    """Return the result of the handshake of an era."""
    if era == "legacy":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": CAPABILITIES,
            "serverInfo": INFO,
            "instructions": INSTRUCTIONS,
        }
    return {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {**CAPABILITIES, "extensions": EXTENSIONS},
        "instructions": INSTRUCTIONS,
    }


def called(params: Json) -> Any:
    """Return the result of a call."""
    if params["name"] in ("echo", "typed"):
        return {"content": [], "structuredContent": {"arguments": params.get("arguments"), "meta": kept(params)}}
    results = RESULTS | BROKEN_RESULTS | ODD_RESULTS | dict.fromkeys(("full", "headers"), RESULTS["empty"])
    if params["name"] in results:
        return results[params["name"]]
    raise RefusedRequest(ERRORS[params["name"]])


def kept(params: Json) -> Json:
    """Return the members of a request's `_meta` that are not of the hop."""
    meta: Json = params.get("_meta") or {}
    return {name: value for name, value in meta.items() if not name.startswith(META)}


def listed(method: str, cursor: str | None) -> Json:
    """Return one of the three pages of a list."""
    member, entries = PAGES[method]
    if cursor not in _NUMBER:
        raise RefusedRequest({"code": -32602, "message": "no such cursor"})
    third = -(-len(entries) // 3)
    first = _NUMBER[cursor] * third
    page: Json = {member: entries[first : first + third], "_meta": {"vendor.example/list": method}, "futureMember": {}}
    return page | ({"nextCursor": _NEXT[cursor]} if cursor in _NEXT else {})


def stamped(era: str, method: str, result: Json | list[Any] | str) -> Any:
    """Add the members that every result of the era has."""
    if era == "legacy" or not isinstance(result, dict):
        return result
    made: Json = {"resultType": "complete", **result}
    if method in PAGES or method in ("server/discover", "resources/read"):
        made |= {"ttlMs": 12345, "cacheScope": "public"}
    own: Json | list[Any] | str = result.get("_meta", {})
    return {**made, "_meta": {**own, f"{META}serverInfo": INFO}} if isinstance(own, dict) else made


def respond(era: str, message: Json) -> Json | None:
    """Return the answer to a message; None for a notification."""
    if "id" not in message or "method" not in message:
        return None
    made: Json = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        result = answer(era, message["method"], message.get("params") or {})
    except RefusedRequest as refused:
        return made | {"error": refused.args[0]}
    return made | {"result": stamped(era, message["method"], result)}


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP with JSON answers and no sessions."""

    protocol_version = "HTTP/1.1"
    era = ""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer one message."""
        said = respond(self.era, json.loads(self.rfile.read(int(self.headers["content-length"]))))
        body = b"" if said is None else json.dumps(said).encode()
        self.send_response(202 if said is None else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Offer no stream."""
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    do_DELETE = do_GET


def serve_http(era: str) -> None:
    """Serve until the process is ended."""
    Handler.era = era
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


def serve_stdio(era: str) -> None:
    """Serve until the input ends."""
    for line in sys.stdin.buffer:
        said = respond(era, json.loads(line))
        if said is not None:
            sys.stdout.write(re.sub(r'"NUMBER ([^"]*)"', r"\1", json.dumps(said)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    {"http": serve_http, "stdio": serve_stdio}[sys.argv[2]](sys.argv[1])
