"""Serves a demo server on standard input and output, one JSON message a line. Knows no method of MCP."""

from __future__ import annotations

import json
import os
import sys
import threading

from toolweave.cli.demo.peer import DemoServer, Json
from toolweave.protocol import methods

__all__ = ["serve_stdio"]


def serve_stdio(server: DemoServer) -> None:
    """Answer until standard input ends; every tool call gets a thread, so a slow one holds up nobody."""
    lock = threading.Lock()

    def write(message: Json) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        with lock:
            while data:
                data = data[os.write(1, data) :]

    def respond(message: Json) -> None:
        answer = server.answer(message, write)
        if answer is not None:
            write(answer)

    for line in sys.stdin.buffer:
        if line.strip():
            message = json.loads(line)
            if message.get("method") == methods.TOOLS_CALL:
                threading.Thread(target=respond, args=(message,), daemon=True).start()
            else:
                respond(message)
