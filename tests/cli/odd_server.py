"""A stdio server that answers as its first argument says: JSON of results and errors by method, a name for tools.

`{"tools": [...], "calls": {name: answer}, "methods": {method: answer}}`, where an answer is a result object or
`{"error": {...}}`. Calls are noted on standard error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

HANDSHAKE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "odd", "version": "1"},
}


def answer(script: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any]:
    found = script.get("methods", {}).get(method, {})
    if method == "resources/read" and "uris" in found:
        text = found["uris"].get(params["uri"])
        unknown = {"error": {"code": -32002, "message": f"no resource {params['uri']!r}"}}
        return unknown if text is None else {"contents": [{"uri": params["uri"], "text": text}]}
    if method in script.get("methods", {}):
        return found
    if method == "initialize":
        return {**HANDSHAKE, **script.get("handshake", {})}
    if method == "tools/list":
        if "cursor" in params:
            return {"error": {"code": -32602, "message": "no such cursor"}}
        return {"tools": script.get("tools", [])}
    if method == "tools/call":
        unknown = {"error": {"code": -32602, "message": f"no tool {params['name']!r}"}}
        return script.get("calls", {}).get(params["name"], script.get("calls", {}).get("*", unknown))
    return {"error": {"code": -32601, "message": f"no method {method!r}"}}


def main() -> None:
    script = json.loads(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        params: dict[str, Any] = message.get("params") or {}
        if message["method"] == "tools/call":
            print(f"called {params['name']} {json.dumps(params['arguments'])}", file=sys.stderr, flush=True)
            token = params.get("_meta", {}).get("progressToken")
            for progress in script.get("progress", ()) if token is not None else ():
                note = {"progressToken": token, "progress": progress}
                print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": note}), flush=True)
        found = answer(script, message["method"], params)
        member = {"error": found["error"]} if "error" in found else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **member}), flush=True)


if __name__ == "__main__":
    main()
