"""A server whose tools are those of a JSON file, read anew for every listing: run as `changing_server.py FILE`.

The file holds `{"tools": [...], "answers": {TOOL: TEXT}, "name": ..., "version": ...}`, and if the server has them
`instructions`, `prompts`, `resources` and `resourceTemplates`. The tool `swap` writes its
argument `file` in the place of the file and says that the list changed. Independent of the package, on purpose.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["definition", "write"]


LISTS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def definition(name: str, description: str = "Does something.", **members: Any) -> dict[str, Any]:
    """Return a definition as a server lists it."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": schema, **members}


def write(path: Path, *tools: dict[str, Any], **more: Any) -> Path:
    """Write the file of a server; return it."""
    path.write_text(json.dumps({"tools": tools, **more}), encoding="utf-8")
    return path


def send(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def called(path: Path, said: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call."""
    name, arguments = params["name"], params.get("arguments", {})
    if name == "swap":
        path.write_text(arguments["file"], encoding="utf-8")
        send({"method": "notifications/tools/list_changed"})
    if name == "probe":
        return {"content": [{"type": "text", "text": json.dumps(probed(arguments))}]}
    return {"content": [{"type": "text", "text": said.get("answers", {}).get(name, f"{name} ran")}]}


def probed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what this process may do: its limits, what can be written and reached."""
    import resource
    import socket

    def tried(work: Any) -> str:
        try:
            work()
        except (OSError, MemoryError) as error:
            return type(error).__name__
        return "done"

    limits = ("RLIMIT_DATA", "RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_NOFILE", "RLIMIT_NPROC")
    return {
        "limits": {name: resource.getrlimit(getattr(resource, name))[0] for name in limits},
        "write": {path: tried(lambda path=path: Path(path, "mark").write_text("x")) for path in arguments["write"]},
        "memory": tried(lambda: bytearray(arguments.get("memory", 1))),
        "connect": [
            tried(lambda port=port: socket.create_connection(("127.0.0.1", port), 2).close())
            for port in arguments["ports"]
        ],
        "processes": len([path for path in Path("/proc").iterdir() if path.name.isdigit()]),
        "environment": sorted(os.environ),
    }


def main() -> None:
    """Answer until the end of standard input."""
    path = Path(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        said = json.loads(path.read_text(encoding="utf-8"))
        result: dict[str, Any]
        if message["method"] == "initialize":
            server = {"name": said.get("name", "changing"), "version": said.get("version", "1.0")}
            capabilities = {"tools": {"listChanged": True}}
            capabilities |= {name: {} for name in ("prompts", "resources") if name in said}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": server}
            if "instructions" in said:
                result["instructions"] = said["instructions"]
        elif message["method"] == "tools/list":
            result = {"tools": said["tools"]}
        elif message["method"] in LISTS and LISTS[message["method"]] in said:
            key = LISTS[message["method"]]
            result = {key: said[key]}
        elif message["method"] == "tools/call":
            result = called(path, said, message["params"])
        else:
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
            continue
        send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
