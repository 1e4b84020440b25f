"""Lists a stdio server's tools straight off the wire, as an independent witness.

The job: start one `mcpServers` entry, shake hands in the era asked for, follow every cursor
and hand back the tools as the JSON values that came. It refuses to know Toolweave, the
official SDK and what a tool is: no schema is read, no member dropped, nothing validated.

Tool lists depend on the capabilities a client offers (REAL_SERVERS.md 5), so this one offers
none, as Toolweave does by default; a list is only comparable with one taken in the same era.

    python tests/real/raw_wire.py mcp.json time        # the listing of server `time`, as JSON
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, cast

__all__ = ["Era", "RawListing", "RawWireError", "canonical", "list_tools"]

Era = Literal["auto", "modern", "legacy"]
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
CLIENT = {"name": "raw-wire", "version": "1"}
NOTHING: dict[str, Any] = {}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}


class RawWireError(Exception):
    """The server did not start, did not shake hands or did not list its tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawListing:
    """What one server said: JSON values exactly as they came."""

    protocol_version: str
    server_info: Any
    capabilities: Any
    tools: list[Any]
    pages: int
    probe: str
    """How `server/discover` was taken: `answered`, `refused CODE`, `silent`, `died` or `skipped`."""
    noise: list[str]
    """Lines on standard output that were not JSON-RPC."""
    requests: list[str]
    """Methods the server asked of the client, each answered with -32601 (`ping` with `{}`)."""
    ended: str
    seconds: float


def list_tools(entry: Mapping[str, Any], *, cwd: Path, era: Era = "auto", timeout: float = 120) -> RawListing:
    """Start the server of an `mcpServers` entry, list its tools and end it; raises `RawWireError`."""
    started = time.monotonic()
    probe = "skipped"
    if era != "legacy":
        with _Server(entry, cwd) as server:
            probe, hello = server.discover(timeout)
            if probe == "answered":
                capabilities = hello.get("capabilities", {})
                tools, pages = server.pages(capabilities, timeout, {"_meta": META})
                info = hello.get("_meta", NOTHING).get("io.modelcontextprotocol/serverInfo")
                ended = server.end()
                return RawListing(
                    protocol_version=MODERN, server_info=info, capabilities=capabilities, tools=tools, pages=pages,
                    probe=probe, noise=server.noise, requests=server.requests, ended=ended,
                    seconds=time.monotonic() - started,
                )  # fmt: skip
        if era == "modern":
            raise RawWireError(f"server/discover was not answered: {probe}")
    with _Server(entry, cwd) as server:
        asked = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        hello = server.request("initialize", asked, timeout)
        server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools, pages = server.pages(hello.get("capabilities", {}), timeout, {})
        ended = server.end()
        return RawListing(
            protocol_version=hello["protocolVersion"], server_info=hello.get("serverInfo"),
            capabilities=hello.get("capabilities"), tools=tools, pages=pages, probe=probe, noise=server.noise,
            requests=server.requests, ended=ended, seconds=time.monotonic() - started,
        )  # fmt: skip


def canonical(value: Any) -> str:
    """Return one text per JSON value: `1`, `1.0` and `true`, equal in Python, differ here; key order does not count."""
    return json.dumps(value, sort_keys=True)


class _Refused(RawWireError):
    def __init__(self, method: str, error: Mapping[str, Any]) -> None:
        super().__init__(f"{method} was refused: {json.dumps(error)[:2000]}")
        self.code: Any = error.get("code")


class _Silent(RawWireError):
    pass


class _Server:
    """One process in a process group of its own, and its newline-delimited JSON-RPC."""

    def __init__(self, entry: Mapping[str, Any], cwd: Path) -> None:
        self.noise: list[str] = []
        self.requests: list[str] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed in __exit__
        self._process = subprocess.Popen(
            [entry["command"], *entry.get("args", ())], cwd=entry.get("cwd") or cwd,
            env={**os.environ, **entry.get("env", {})}, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._id = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if not self._process.stdin or not self._process.stdin.closed:
            self.end(patience=0)
        self._stderr.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the reader sees the end and says so
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def request(self, method: str, params: Mapping[str, Any], timeout: float) -> Any:
        self._id += 1
        self.send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        deadline = time.monotonic() + timeout
        while True:
            message = self._receive(method, deadline)
            if "method" in message:
                self._answer(message)
            elif message.get("id") == self._id:
                if "error" in message:
                    raise _Refused(method, message["error"])
                return message["result"]

    def discover(self, timeout: float) -> tuple[str, Any]:
        try:
            hello = self.request("server/discover", {"_meta": META}, timeout)
        except _Refused as refused:
            return f"refused {refused.code}", {}
        except _Silent:
            return "silent", {}
        except RawWireError:
            return "died", {}
        modern = MODERN in hello.get("supportedVersions", [])
        return ("answered" if modern else "answered with legacy versions only"), hello

    def pages(self, capabilities: Any, timeout: float, params: Mapping[str, Any]) -> tuple[list[Any], int]:
        if "tools" not in capabilities:
            return [], 0
        tools: list[Any] = []
        seen: list[Any] = []
        cursor: dict[str, Any] = {}
        while True:
            page = self.request("tools/list", {**cursor, **params}, timeout)
            tools += page["tools"]
            seen.append(page.get("nextCursor"))
            if seen[-1] is None or seen[-1] in seen[:-1]:
                return tools, len(seen)
            cursor = {"cursor": seen[-1]}

    def _receive(self, method: str, deadline: float) -> dict[str, Any]:
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise _Silent(f"no answer to {method}; {self._last_words()}") from None
            if line is None:
                code = self._process.wait(timeout=10)
                raise RawWireError(f"the process ended with {code} before answering {method}; {self._last_words()}")
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if isinstance(message, dict) and "jsonrpc" in message:
                return cast("dict[str, Any]", message)
            if line.strip():
                self.noise.append(line.decode(errors="replace").rstrip()[:300])

    def _answer(self, message: Mapping[str, Any]) -> None:
        if "id" not in message:
            return
        self.requests.append(message["method"])
        outcome: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
        if message["method"] == "ping":
            outcome = {"result": {}}
        self.send({"jsonrpc": "2.0", "id": message["id"], **outcome})

    def _last_words(self) -> str:
        file = self._stderr.fileno()
        size = os.fstat(file).st_size  # pread leaves alone the position that the process writes at
        return "standard error: " + os.pread(file, 1500, max(0, size - 1500)).decode(errors="replace")

    def end(self, patience: float = 3) -> str:
        """Close standard input, wait, then SIGTERM and SIGKILL the group; says which it took."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        how = f"exit {self._wait(patience)}"
        for name in ("SIGTERM", "SIGKILL"):
            if self._process.poll() is None:
                how = name
            with contextlib.suppress(ProcessLookupError):  # also after an exit: children may live on in the group
                os.killpg(self._process.pid, signal.Signals[name])
            self._wait(3)
        self._reader.join(3)  # a daemon outside the group may hold the pipe for longer
        return how

    def _wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None


def _main() -> None:
    path, name = sys.argv[1:3]
    entry = json.loads(Path(path).read_text())["mcpServers"][name]
    json.dump(asdict(list_tools(entry, cwd=Path.cwd())), sys.stdout, indent=1)


if __name__ == "__main__":
    _main()
