"""A server by hand that repeats a secret of its environment in all that it says, in forms that few servers use."""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

SECRET = base64.b64decode(os.environ["REPEATED"]).decode()
HALF = len(SECRET) // 2
OBJECT = {"type": "object"}
TOOLS: list[dict[str, Any]] = [
    *({"name": name, "inputSchema": OBJECT} for name in ("split", "word", "number", "snake", "block", "rpc", "die")),
    {"name": "output", "inputSchema": OBJECT, "outputSchema": {**OBJECT, "properties": {"a": {"type": "integer"}}}},
    {"name": f"left out {SECRET}", "inputSchema": 5},
]
REFUSED = [{"type": "text", "text": f"refused: {SECRET}"}]
RESULTS: dict[str, dict[str, Any]] = {
    "split": {
        "isError": True,
        "content": [{"type": "text", "text": f"no {SECRET[:HALF]}"}, {"type": "text", "text": f"{SECRET[HALF:]} end"}],
    },
    "word": {"isError": "true", "content": REFUSED},
    "number": {"isError": 1, "content": REFUSED},
    "snake": {"is_error": True, "content": REFUSED},
    "block": {"content": [{"type": "error", "message": f"refused: {SECRET}"}]},
    "output": {"content": [], "structuredContent": {"a": SECRET}},
}


def write(message: dict[str, Any]) -> None:
    """Send a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    if method == "initialize":
        info = {"name": "repeating", "version": "1"}
        capabilities: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "resources/list":
        return {"result": {"resources": [{"uri": f"data://x?{SECRET}", "name": 5}, {"uri": "", "name": SECRET}]}}
    if method == "tools/call" and params["name"] in RESULTS:
        return {"result": RESULTS[params["name"]]}
    if method == "tools/call" and params["name"] == "die":
        sys.stderr.write(f"died of {SECRET}\n")
        sys.exit(3)
    return {"error": {"code": -32000, "message": f"no {method}: {SECRET}", "data": {"said": [SECRET]}}}


if __name__ == "__main__":
    sys.stderr.write(f"started with {SECRET}\n")
    sys.stdout.write(f"not a message: {SECRET}\n")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            write({"id": request["id"], **answer(request["method"], request.get("params") or {})})
