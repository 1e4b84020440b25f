"""A stdio server whose offers grow in its own process: `growing_server.py legacy|both`. Asserts nothing.

It speaks the handshake era, or both eras. What a call adds is announced, and is in this process alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["main"]

Json = dict[str, Any]
META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
HANDSHAKES = ("2025-06-18", "2025-11-25")
INFO = {"name": "growing", "version": "1"}
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
SCHEMA: Json = {"type": "object", "properties": {"name": {"type": "string"}}}
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}

tools: dict[str, Json] = {
    name: {"name": name, "inputSchema": SCHEMA, "annotations": {"destructiveHint": False}}
    for name in ("grow", "touch", "die", "pid", "ask", "notified")
}
prompts: dict[str, Json] = {"first": {"name": "first", "arguments": [{"name": "word"}]}}
resources: dict[str, Json] = {"state://now": {"uri": "state://now", "name": "now"}}
templates: dict[str, Json] = {}
entries = {"tools": tools, "prompts": prompts, "resources": resources, "resourceTemplates": templates}
followed: set[str] = set()
streams: list[Any] = []
asked: dict[str, Any] = {}
notified: list[str] = []


def send(message: Json) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def announce(method: str, params: Json) -> None:
    """Send a notification in the session, and on each stream."""
    send({"method": method, "params": params})
    for stream in streams:
        send({"method": method, "params": {**params, "_meta": {f"{META}subscriptionId": stream}}})


def grow(name: str) -> str:
    """Offer one more tool, prompt, resource and template."""
    tools[name] = {"name": name, "inputSchema": SCHEMA, "annotations": {"destructiveHint": name == "bad"}}
    prompts[name] = {"name": name, "arguments": [{"name": "word"}]}
    resources[f"grown://{name}"] = {"uri": f"grown://{name}", "name": name}
    templates[f"grown://{name}/{{part}}"] = {"uriTemplate": f"grown://{name}/{{part}}", "name": name}
    for kind in ("tools", "prompts", "resources"):
        announce(f"notifications/{kind}/list_changed", {})
    return f"grown in {os.getpid()}"


def called(key: Any, name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the text of a call's result; None if it comes later."""
    if name == "grow":
        return grow(arguments["name"])
    if name == "die":
        os._exit(3)
    if name == "ask":
        asked["question"] = key
        form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
        send({"id": "question", "method": "elicitation/create", "params": form})
        return None
    if name == "touch":
        announce("notifications/resources/updated", {"uri": "state://now"})
    if name == "notified":
        return json.dumps(notified)
    return f"{name} in {os.getpid()}"


def listening(key: Any, wanted: Json) -> None:
    """Open a stream of notifications, which is a request without an answer."""
    streams.append(key)
    acknowledged = {"notifications": wanted, "_meta": {f"{META}subscriptionId": key}}
    send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})


def result_of(key: Any, method: str, params: Json, mode: str) -> Json | None:
    """Return the result of a request; None if it comes later or never.

    Raises:
        LookupError: The server has no such thing.
    """
    if method == "initialize":
        wanted = params["protocolVersion"]
        version = wanted if wanted in HANDSHAKES else HANDSHAKES[-1]
        return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}
    if method == "server/discover" and mode == "both":
        return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}
    if method in LISTS:
        return {LISTS[method]: list(entries[LISTS[method]].values())}
    if method == "tools/call":
        text = called(key, tools[params["name"]]["name"], params.get("arguments") or {})
        return None if text is None else {"content": [{"type": "text", "text": text}]}
    if method == "subscriptions/listen":
        return listening(key, params["notifications"])
    if method == "prompts/get":
        content = {"type": "text", "text": f"{prompts[params['name']]['name']} in {os.getpid()}"}
        return {"messages": [{"role": "user", "content": content}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"{resources[params['uri']]['name']} in {os.getpid()}"}]}
    if method == "completion/complete":
        return {"completion": {"values": [prompts[params["ref"]["name"]]["name"]]}}
    if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        return {}
    raise LookupError(f"no method {method}")


def main(mode: str) -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            answer = json.dumps(message.get("result", message.get("error")))
            send({"id": asked.pop("question"), "result": {"content": [{"type": "text", "text": answer}]}})
            continue
        params: Json = message.get("params") or {}
        if "id" not in message:
            notified.append(message["method"])
            continue
        try:
            result = result_of(message["id"], message["method"], params, mode)
        except LookupError as error:
            code = -32602 if message["method"] != "server/discover" else -32601
            send({"id": message["id"], "error": {"code": code, "message": str(error)}})
            continue
        if result is None:
            continue
        if f"{META}protocolVersion" in params.get("_meta", {}):
            result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            result["_meta"] = {f"{META}serverInfo": INFO}
        send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main(sys.argv[1])
