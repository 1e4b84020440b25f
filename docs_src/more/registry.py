"""A registry is searched, and a server of it becomes an entry of a config."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from toolweave.config import Secret
from toolweave.install import OWN_FORMAT, LaunchAnswers, McpRegistry, SecretFiles, install_options

NOTES = {
    "name": "com.example/notes",
    "description": "Keeps notes in a folder",
    "version": "1.2.0",
    "packages": [
        {
            "registryType": "pypi",
            "identifier": "notes-server",
            "version": "1.2.0",
            "transport": {"type": "stdio"},
            "packageArguments": [{"type": "positional", "valueHint": "folder", "isRequired": True}],
            "environmentVariables": [{"name": "NOTES_KEY", "isRequired": True, "isSecret": True}],
        }
    ],
}


class Registry(BaseHTTPRequestHandler):
    """A registry of one server, in the place of the official one."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a list with one entry, or the entry."""
        entry = {"server": NOTES, "_meta": {}}
        body = json.dumps(entry if "/versions/" in self.path else {"servers": [entry], "metadata": {}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write no log."""


async def main(url: str) -> None:
    registry = McpRegistry(url)  # without a URL: registry.modelcontextprotocol.io
    for server in (await registry.search("notes")).servers:
        print(server.name, server.version, server.kinds, server.status)

    options, refused = install_options(await registry.server("com.example/notes"))
    option = options[0]
    for question in option.questions:
        print(question.name, "is secret" if question.secret else "is shown", "and needed" * question.required)

    answers = LaunchAnswers(option.questions, {"folder": ["/tmp/notes"], "NOTES_KEY": ["hunter2"]})
    launch = option.build(answers)
    print(*launch.lines(), sep="\n")  # what would run; no secret is in it

    secrets = SecretFiles("notes", "com.example/notes")
    (kept,) = secrets.keep(launch)
    entry = OWN_FORMAT.entry(launch, secrets.paths(launch), server="notes")
    print(json.dumps(entry).replace(str(kept), "FILE"), Secret(kept.read_text()), refused)


with HTTPServer(("127.0.0.1", 0), Registry) as served:
    threading.Thread(target=served.serve_forever, daemon=True).start()
    asyncio.run(main(f"http://127.0.0.1:{served.server_port}"))
    served.shutdown()
