"""The MCP server of the experiments over stdio: `server.py --journal FILE --tools SET`, for any client in both eras.

It checks nothing that it is sent, and writes each request to the journal, so that an experiment sees what reached it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from toolweave.testing.servers.protocol import Peer, PeerRequest
from toolweave.testing.servers.stdio_loop import StdioServer
from toolweave.testing.servers.toolset import Json, PeerCall, generated_tool, schema, text_result

__all__ = ["BOOKING", "LONG", "NAMES", "main"]

LONG = "a.very.long/name-" + "of-a-tool-" * 8 + "end"
NAMES = ("files.read", "files/read", LONG)
"""Names that MCP allows and the APIs of models do not; the first two must not become one."""
BOOKING: Json = {
    "type": "object",
    "properties": {
        "seats": {"type": "integer", "minimum": 1},
        "class": {"enum": ["first", "second"]},
        "day": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        "rider": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]},
    },
    "required": ["seats", "class"],
    "additionalProperties": False,
}
Entry = tuple[Json, Callable[[PeerCall], Json]]


class JournalPeer(Peer):
    """A server that writes down what it is sent and runs every call as it comes.

    Args:
        journal: The file that requests are appended to, one JSON object a line.
        definition: The file with the description of the tool `echo`.
    """

    def __init__(self, journal: Path, definition: Path | None, *, era: str) -> None:
        super().__init__(era=era)
        self._journal = journal
        self._definition = definition
        self.tools.clear()

    def answer(self, request: PeerRequest) -> Json:
        """Write the request down, and answer it."""
        entry = {"method": request.method, "name": request.params.get("name"), "arguments": None}
        entry["arguments"] = request.params.get("arguments")
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        return super().answer(request)

    def listed(self, name: str, request: PeerRequest) -> Json:
        """Return a definition, `echo` with the description that the file has now."""
        listed = super().listed(name, request)
        if name == "echo" and self._definition is not None:
            listed["description"] = self._definition.read_text(encoding="utf-8")
        return listed

    def call_tool(self, request: PeerRequest) -> Json:
        """Run a tool, whatever its arguments are."""
        arguments = cast("Json", request.params.get("arguments") or {})
        call = PeerCall(arguments, cancelled=request.cancelled, notify=request.notify, server=self, request=request)
        return self.tools[str(request.params["name"])][1](call)


def _grow(call: PeerCall) -> Json:
    call.server.tools["grown"] = generated_tool()
    call.server.broadcast("notifications/tools/list_changed")
    return text_result("grown")


def _named(name: str) -> Entry:
    return {"description": "Return the name of the tool.", "inputSchema": schema()}, lambda _: text_result(name)


TOOLS: dict[str, dict[str, Entry]] = {
    "changes": {"grow": ({"description": "Add a tool.", "inputSchema": schema()}, _grow)},
    "pid": {
        "pid": (
            {"description": "Return the process ID.", "inputSchema": schema()},
            lambda _: text_result(str(os.getpid())),
        )
    },
    "echo": {"echo": ({"description": "Return ok.", "inputSchema": schema()}, lambda _: text_result("ok"))},
    "booking": {"book": ({"description": "Book seats.", "inputSchema": BOOKING}, lambda _: text_result("booked"))},
    "names": {name: _named(name) for name in NAMES},
    "token": {
        "token": (
            {"description": "Return the token.", "inputSchema": schema()},
            lambda _: text_result(os.environ.get("TOKEN", "")),
        )
    },
    "delete": {
        "delete": (
            {
                "description": "Delete a file.",
                "inputSchema": schema("path", path="string"),
                "annotations": {"readOnlyHint": False, "destructiveHint": True},
            },
            lambda call: text_result(f"{call.arguments.get('path')} is deleted"),
        )
    },
}
"""The sets of tools, one for each experiment."""


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--tools", choices=TOOLS, required=True)
    parser.add_argument("--era", choices=["modern", "dual"], default="dual")
    parser.add_argument("--definition", type=Path)
    options = parser.parse_args()
    peer = JournalPeer(options.journal, options.definition, era=options.era)
    peer.tools.update(TOOLS[options.tools])
    StdioServer(peer).run()


if __name__ == "__main__":
    main()
