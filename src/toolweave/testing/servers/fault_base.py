"""The base of the misbehaving servers: a server whose steps a mode may replace, and the table of modes.

A mode hooks its fault into a `FaultServer`. Those that concern messages alone work behind any transport.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from toolweave.testing.servers.protocol import PREFIX, Peer, PeerSession
from toolweave.testing.servers.toolset import Json, PeerCall, members, text_result

__all__ = ["MESSAGE_MODES", "MODES", "FaultServer", "Quota", "complain", "message_mode", "mode"]

Step = Callable[[Json], bool]
"""Handles a request; returns True when it did."""

Rewrite = Callable[[Json, Json], "bytes | None"]
"""Returns the lines to send instead of a request's answer; None to leave it."""


class Quota:
    """Limits how often a fault happens: `times` (0: always), counted across processes if a file keeps the count."""

    def __init__(self, times: int, memory: str | None) -> None:
        self.times = times
        self.memory = memory
        self.taken: int = 0

    def take(self) -> bool:
        """Count one fault; return False when the limit is reached."""
        if self.times and self._past() >= self.times:
            return False
        self.taken += 1
        if self.memory is not None:
            # Appending a byte is atomic, so that processes that run at the same time are all counted.
            with open(self.memory, "ab") as file:  # noqa: PTH123 - pathlib is slow to import
                file.write(b".")
        return True

    def give_back(self) -> None:
        """Take back a count: the fault did not happen after all."""
        self.taken -= 1
        if self.memory is not None:
            os.truncate(self.memory, self._past() - 1)

    def _past(self) -> int:
        if self.memory is None:
            return self.taken
        try:
            return os.stat(self.memory).st_size  # noqa: PTH116
        except FileNotFoundError:
            return 0


class FaultServer:
    """An echo server with replaceable steps; `write` sends lines, the rest holds the values of the command line."""

    def __init__(
        self,
        peer: Peer,
        write: Callable[[bytes], None],
        quota: Quota,
        *,
        seconds: float,
        size: int,
        port: int,
        code: int,
    ) -> None:
        self.peer = peer
        self.write = write
        self.quota = quota
        self.session: PeerSession = PeerSession(self.send)
        self.seconds = seconds
        self.size = size
        self.port = port
        self.code = code
        self.before_start: Callable[[], None] = lambda: None
        self.after_end: Callable[[], None] = lambda: None
        self.steps: dict[str, Step] = {}
        self.rewrite: Rewrite | None = None
        self.arrived: dict[Any, threading.Event] = {}
        self.received: dict[Any, Json] = {}

    # -- for modes --------------------------------------------------------------------------

    def on(self, method: str, step: Step) -> None:
        """Let `step` handle requests of `method`, or of any (`*`) that has no own step."""
        self.steps[method] = step

    def for_calls(self, change: Rewrite) -> None:
        """Let `change` rewrite the answers to `tools/call`."""
        self.rewrite = lambda message, answer: (
            change(message, answer) if message.get("method") == "tools/call" else None
        )

    def encode(self, message: Json) -> bytes:
        """Return the line for a message."""
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    def send(self, message: Json) -> None:
        """Send one message."""
        self.write(self.encode(message))

    def answer(self, message: Json, result: Any) -> None:  # any JSON value: invalid results are a fault
        """Send a result for a request as it is; a modern request gets the modern members first."""
        meta = members(members(message.get("params")).get("_meta"))
        if isinstance(result, dict) and f"{PREFIX}protocolVersion" in meta:
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **cast("Json", result)}
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def refuse(self, message: Json, code: int, text: str) -> None:
        """Send an error for a request."""
        self.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}})

    def ask(self, request_id: str, method: str, params: Json | None = None) -> Json | None:
        """Send a request to the client and wait up to 5 s for its answer; not for the reading thread."""
        arrived = self.arrived.setdefault(request_id, threading.Event())
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}})
        arrived.wait(5)
        return self.received.get(request_id)

    def add_tools(self, *definitions: Any) -> None:  # any JSON value: invalid definitions are the purpose
        """Add definitions at the end of `tools/list`, exactly as given; a tool that has a name can be called."""

        def answer_call(call: PeerCall) -> Json:
            return text_result("called")

        for definition in definitions:
            name = members(definition).get("name")
            if isinstance(name, str):
                self.peer.tools.setdefault(name, ({"inputSchema": {"type": "object"}}, answer_call))

        # The peer would list the added tools by its own definitions: only the healthy ones of its list are kept.
        def rewrite_list(message: Json, answer: Json) -> bytes | None:
            if message.get("method") != "tools/list" or "result" not in answer:
                return None
            healthy = [tool for tool in answer["result"]["tools"] if tool["name"] in ("echo", "add")]
            return self.encode({**answer, "result": {**answer["result"], "tools": [*healthy, *definitions]}})

        self.rewrite = rewrite_list

    # -- for transports ---------------------------------------------------------------------

    def handle(self, message: Json) -> bool:
        """Let the mode handle a message; return False when it is to be answered as usual."""
        if "method" not in message:
            self.received[message.get("id")] = message
            self.arrived.setdefault(message.get("id"), threading.Event()).set()
        step = self.steps.get(str(message.get("method"))) or self.steps.get("*")
        if step is None or not self.quota.take():
            return False
        if step(message):
            return True
        self.quota.give_back()
        return False

    def rewrite_answer(self, message: Json, answer: Json) -> bytes | None:
        """Return the lines that the mode sends instead of an answer; None when it leaves that alone."""
        if self.rewrite is None or not self.quota.take():
            return None
        data = self.rewrite(message, answer)
        if data is None:
            self.quota.give_back()
        return data


MODES: dict[str, Callable[[FaultServer], None]] = {}
"""Mode -> function that hooks the fault into a server on standard input and output."""

MESSAGE_MODES: dict[str, Callable[[FaultServer], None]] = {}
"""The modes that concern messages alone, so that an HTTP server can also have them."""


def mode(function: Callable[[FaultServer], None]) -> Callable[[FaultServer], None]:
    """Add a mode of the process or the line under the function's name; its docstring is its help."""
    MODES[function.__name__] = function
    return function


def message_mode(function: Callable[[FaultServer], None]) -> Callable[[FaultServer], None]:
    """Add a mode of the messages alone."""
    MESSAGE_MODES[function.__name__] = function
    return mode(function)


def complain(*lines: str) -> None:
    """Write lines to standard error at once."""
    os.write(2, "".join(f"{line}\n" for line in lines).encode())
    sys.stderr.flush()
