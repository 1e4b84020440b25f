"""The seam of the misbehaving stdio servers: a server whose steps a mode may replace, and the table of modes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from protocol import PREFIX, Peer
from stdio_loop import StdioServer
from toolset import Call, Json, members, text_result

__all__ = ["MODES", "FaultServer", "complain", "mode"]

Step = Callable[[Json], bool]
"""Takes a request; True when it dealt with it."""


class FaultServer(StdioServer):
    """An echo server with replaceable steps; `option` holds the values of the command line."""

    def __init__(self, peer: Peer, *, seconds: float, size: int, port: int, code: int) -> None:
        super().__init__(peer)
        self.seconds, self.size, self.port, self.code = seconds, size, port, code
        self.before_start: Callable[[], None] = lambda: None
        self.after_end: Callable[[], None] = lambda: None
        self.steps: dict[str, Step] = {}
        self.rewrite: Callable[[Json, Json], bytes | None] | None = None
        self.arrived: dict[Any, threading.Event] = {}
        self.received: dict[Any, Json] = {}

    def run(self) -> None:
        """Serve; what a mode hooked to the start and the end happens around it."""
        self.before_start()
        super().run()
        self.after_end()

    def on(self, method: str, step: Step) -> None:
        """Let `step` take requests of `method`."""
        self.steps[method] = step

    def respond(self, message: Json) -> None:
        """Handle one message; a mode may take it over or rewrite its answer."""
        if "method" not in message:
            self.received[message.get("id")] = message
            self.arrived.setdefault(message.get("id"), threading.Event()).set()
        step = self.steps.get(str(message.get("method")))
        if step is not None and step(message):
            return
        answer = self.peer.handle(message, self.session, self.send)
        if answer is None:
            return
        data = self.rewrite(message, answer) if self.rewrite is not None else None
        self.write(self.encode(answer) if data is None else data)

    def answer(self, message: Json, result: Any) -> None:  # anything, also what no result may be
        """Send a result for a request as it is; a modern request gets the modern members first."""
        meta = members(members(message.get("params")).get("_meta"))
        if isinstance(result, dict) and f"{PREFIX}protocolVersion" in meta:
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **cast("Json", result)}
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def ask(self, request_id: str, method: str, params: Json | None = None) -> Json | None:
        """Send a request to the client and wait up to 5 s for its answer; not for the reading thread."""
        arrived = self.arrived.setdefault(request_id, threading.Event())
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}})
        arrived.wait(5)
        return self.received.get(request_id)

    def add_tools(self, *definitions: Any) -> None:  # anything, also what no tool may be
        """List these after the healthy tools, as they are; those with a name can be called."""

        def function(call: Call) -> Json:
            return text_result("called")

        extra = list(definitions)
        for definition in extra:
            name = members(definition).get("name")
            if isinstance(name, str):
                self.peer.tools.setdefault(name, ({"inputSchema": {"type": "object"}}, function))
        names = [name for name in self.peer.tools if name in ("echo", "add")]

        def listing(message: Json, answer: Json) -> bytes | None:
            if message.get("method") != "tools/list" or "result" not in answer:
                return None
            healthy = [tool for tool in answer["result"]["tools"] if tool["name"] in names]
            return self.encode({**answer, "result": {**answer["result"], "tools": [*healthy, *extra]}})

        self.rewrite = listing


MODES: dict[str, Callable[[FaultServer], None]] = {}
"""Mode -> function that hooks the fault into a server."""


def mode(function: Callable[[FaultServer], None]) -> Callable[[FaultServer], None]:
    """Add a mode under the function's name; its docstring is its help."""
    MODES[function.__name__] = function
    return function


def complain(*lines: str) -> None:
    """Write lines to standard error at once."""
    os.write(2, "".join(f"{line}\n" for line in lines).encode())
    sys.stderr.flush()
