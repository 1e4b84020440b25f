"""Reads lines, writes lines: the stdio transport of the test servers. Knows nothing of MCP's methods."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, cast

from toolweave.testing.servers.protocol import Peer, PeerSession
from toolweave.testing.servers.toolset import Json

__all__ = ["StdioServer", "write_all"]


def write_all(fd: int, data: bytes) -> None:
    """Write every byte to a file descriptor; a reader that went away ends the process."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except BrokenPipeError:
        os._exit(0)


class StdioServer:
    """A `Peer` behind standard input and output; subclasses override a step to misbehave."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.session: PeerSession = PeerSession(self.send)
        self.lock: threading.Lock = threading.Lock()

    def encode(self, message: Json) -> bytes:
        """Return the line for a message."""
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    def write(self, data: bytes) -> None:
        """Write bytes to standard output in one piece."""
        # Threads write at the same time, and each line has to stay whole.
        with self.lock:
            write_all(1, data)

    def send(self, message: Json) -> None:
        """Send one message."""
        self.write(self.encode(message))

    def run(self) -> None:
        """Serve until standard input ends."""
        for line in sys.stdin.buffer:
            if line.strip():
                self.receive(line)

    def receive(self, line: bytes) -> None:
        """Take one line."""
        try:
            message: Any = json.loads(line)
        except ValueError as error:
            self.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": f"Parse error: {error}"}})
            return
        for one in cast("list[Json]", message) if isinstance(message, list) else [cast("Json", message)]:
            if self.peer.blocks(one):
                # A daemon: a tool that hangs must not keep the process after its input has ended.
                threading.Thread(target=self.respond, args=(one,), daemon=True).start()
            else:
                self.respond(one)

    def respond(self, message: Json) -> None:
        """Handle one message and send its answer, if it has one."""
        answer = self.peer.handle(message, self.session, self.send)
        if answer is not None:
            self.send(answer)
