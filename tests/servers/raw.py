"""A raw client for tests of the servers and of the wire: bytes and JSON, no features, every wait bounded."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Generator, Sequence
from typing import Any, cast

__all__ = ["ENVELOPE", "RawStdio", "post", "raw_stdio"]

ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class RawStdio:
    """One stdio server and the lines it wrote. `modern` puts the envelope on every request."""

    def __init__(self, process: subprocess.Popen[bytes], *, modern: bool, seconds: float) -> None:
        self.process = process
        self.modern = modern
        self.seconds = seconds
        self.buffer = b""
        self.next_id = 0

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> int:
        """Send a request without waiting; return its id."""
        self.next_id += 1
        if self.modern:
            params["_meta"] = {**ENVELOPE, **params.get("_meta", {})}
        self.send({"id": self.next_id, "method": method, "params": params})
        return self.next_id

    def line(self, seconds: float | None = None) -> bytes | None:
        """Return the next line, or None when there is none in time or the stream ended."""
        assert self.process.stdout is not None
        fd, deadline = self.process.stdout.fileno(), time.monotonic() + (self.seconds if seconds is None else seconds)
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([fd], [], [], max(deadline - time.monotonic(), 0))
            chunk = os.read(fd, 1 << 20) if ready else b""
            if not chunk:
                return None
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def message(self) -> dict[str, Any]:
        """Return the next line as JSON; raise `TimeoutError` when there is none."""
        if (line := self.line()) is None:
            raise TimeoutError(f"no line; exit code {self.process.poll()}")
        return json.loads(line)

    def answer(self, request_id: int) -> dict[str, Any]:
        """Skip everything until the answer to a request; raise `TimeoutError` when it does not come."""
        while (line := self.line()) is not None:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict) and cast("dict[str, Any]", message).get("id") == request_id:
                    return cast("dict[str, Any]", message)
        raise TimeoutError(f"no answer to {request_id}; exit code {self.process.poll()}")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its result; a JSON-RPC error is returned as `{"error": ...}`."""
        answer = self.answer(self.request(method, **params))
        return {"error": answer["error"]} if "error" in answer else answer["result"]

    def initialize(self, version: str = "2025-11-25") -> dict[str, Any]:
        """Shake hands in the legacy way."""
        client = {"name": "raw", "version": "0"}
        result = self.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=client)
        self.send({"method": "notifications/initialized"})
        return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        return self.ask("tools/call", name=tool, arguments=arguments)

    def tool_list(self) -> list[Any]:
        """Return the tools of all pages as they came."""
        page = self.ask("tools/list")
        tools = list(page["tools"])
        while page.get("nextCursor") is not None:
            page = self.ask("tools/list", cursor=page["nextCursor"])
            tools += page["tools"]
        return tools

    def close_stdin(self) -> None:
        """End standard input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


@contextlib.contextmanager
def raw_stdio(
    command: Sequence[str], *, modern: bool = False, stderr: int | None = None, seconds: float = 10
) -> Generator[RawStdio]:
    """Run a stdio server; its process group is killed at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, start_new_session=True) as process:
        raw = RawStdio(process, modern=modern, seconds=seconds)
        try:
            yield raw
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raw.close_stdin()


def post(
    url: str,
    method: str,
    *,
    modern: bool = False,
    headers: dict[str, str] | None = None,
    timeout_seconds: float = 5,
    **params: Any,
) -> tuple[int, dict[str, str], bytes]:
    """POST one request with id 1; return status, lower-case headers and body. Follows nothing.

    Raises what `http.client` raises, `TimeoutError` after `timeout_seconds` of silence.
    """
    host, _, path = url.removeprefix("http://").partition("/")
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if modern:
        params["_meta"] = {**ENVELOPE, **params.get("_meta", {})}
        sent |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        if method in NAMED:
            sent["Mcp-Name"] = params[NAMED[method]]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    connection = http.client.HTTPConnection(host, timeout=timeout_seconds)
    with contextlib.closing(connection):
        connection.request("POST", f"/{path}", body, sent | (headers or {}))
        response = connection.getresponse()
        return response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
