"""The pipes and the HTTP of the brittle client: blocking, standard library only, sound but for what is absent.

Knows the framing of messages and nothing of what they ask for.
"""

from __future__ import annotations

import gzip
import json
import os
import select
import socket
import subprocess
import threading
from io import BufferedRWPair
from typing import Any, NoReturn
from urllib.parse import urlsplit

__all__ = ["MODERN", "Http", "Json", "Pipes"]

Json = dict[str, Any]

MODERN = "2026-07-28"
SHORT = 2**16
"""Bytes that are read of a large answer by who reads only once."""


def wait_for_ever() -> NoReturn:
    """Wait for what does not come."""
    threading.Event().wait()
    raise AssertionError


def at_end(fd: int) -> bool:
    """Whether nothing more can come from a pipe; what there is is read and forgotten."""
    return bool(select.select([fd], [], [], 0)[0]) and not os.read(fd, SHORT)


class Wire:
    """What both ways to a server share."""

    def __init__(self, without: frozenset[str]) -> None:
        self.without = without

    def ended(self) -> NoReturn:
        """Say that the other side is gone, or do not notice."""
        if "noticing_the_end" in self.without:
            wait_for_ever()
        raise EOFError("the server is gone")

    def decoded(self, data: bytes) -> Json:
        """Return the message in some bytes."""
        if "any_bytes" in self.without and not (data.startswith(b"{") and data.rstrip(b"\n").endswith(b"}")):
            raise ValueError("not JSON")
        return json.loads(data)

    def is_answer(self, message: Json) -> bool:
        """Whether a message is taken for the answer that is waited for."""
        if "lenient_messages" not in self.without:
            return "id" in message
        return "jsonrpc" in message and type(message["id"]) is int and ("result" in message) != ("error" in message)


class Pipes(Wire):
    """A process with a message on each line."""

    def __init__(self, command: list[str], without: frozenset[str]) -> None:
        super().__init__(without)
        errors = subprocess.PIPE if {"read_errors", "separate_errors"} & without else None
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)

    def exchange(self, message: Json, modern: bool) -> Json:
        """Write a message; read lines up to the answer, if it is to have one."""
        stdin, stdout, errors = self.process.stdin, self.process.stdout, self.process.stderr
        assert stdin is not None
        assert stdout is not None
        if errors is not None and "separate_errors" in self.without and at_end(errors.fileno()):
            self.ended()
        stdin.write(json.dumps(message).encode() + b"\n")
        stdin.flush()
        while "id" in message:
            line = stdout.readline(SHORT if "large_answers" in self.without else -1)
            if not line:
                self.ended()
            if self.is_answer(answer := self.decoded(line)):
                return answer
        return {}

    def close(self) -> None:
        """Let the process end, and wait for it."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
            code = self.process.wait()
        if code and "any_exit" in self.without:
            raise RuntimeError("the server failed")


class Http(Wire):
    """One exchange after another, each on a connection of its own."""

    def __init__(self, url: str, without: frozenset[str]) -> None:
        super().__init__(without)
        self.where = urlsplit(url)
        self.wire: BufferedRWPair | None = None
        self.session: str | None = None

    def exchange(self, message: Json, modern: bool) -> Json:
        """Post a message; return the answer, if it is to have one."""
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if modern:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            headers |= {"mcp-name": message["params"]["name"]} if "name" in message["params"] else {}
        body = self.request("POST", headers, json.dumps(message).encode())
        if "id" not in message:
            return {}
        if body.startswith(b"data: ") and "unfinished_events" in self.without and not body.endswith(b"\n\n"):
            wait_for_ever()
        if not self.is_answer(answer := self.decoded(body.partition(b"data: ")[2] or body)):
            wait_for_ever()
        return answer

    def listen(self) -> None:
        """Open the stream of the session, and do without it."""
        self.request("GET", {"accept": "text/event-stream"})

    def close(self) -> None:
        """Say goodbye."""
        if "bounded_goodbye" in self.without:
            self.request("DELETE", {})
        if self.wire is not None:
            self.wire.close()

    def request(self, method: str, headers: dict[str, str], data: bytes = b"") -> bytes:
        """Do one exchange; return the body, of a stream none."""
        sent = {"host": self.where.netloc, "content-length": str(len(data)), **headers}
        if self.session:
            sent["mcp-session-id"] = self.session
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        if self.wire is None:
            with socket.create_connection((str(self.where.hostname), self.where.port or 80)) as connected:
                self.wire = connected.makefile("rwb")
        wire = self.wire
        try:
            wire.write(f"{method} {self.where.path} HTTP/1.1\r\n{head}\r\n".encode() + data)
            wire.flush()
            given = self.head(wire)
            if method != "GET":
                return self.unpacked(self.body(wire, given), given)
            if given.get("content-type") != "text/event-stream":
                raise ValueError("that is no stream")
            return b""
        finally:
            if "own_sockets" not in self.without:
                self.wire = None
                wire.close()

    def head(self, wire: BufferedRWPair) -> dict[str, str]:
        """Read the status and the headers."""
        protocol, _, status = wire.readline().decode("latin-1").strip().partition(" ")
        if not protocol.startswith("HTTP/"):
            raise ConnectionError("that is no HTTP")
        headers: dict[str, str] = {}
        while line := wire.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            if "first_length" in self.without or name.lower() not in headers:
                headers[name.lower()] = value.strip()
        if not status.startswith("2"):
            raise RuntimeError(f"HTTP {status}")
        self.session = headers.get("mcp-session-id", self.session)
        return headers

    def body(self, wire: BufferedRWPair, headers: dict[str, str]) -> bytes:
        """Read the body as the headers have it."""
        if headers.get("transfer-encoding") == "chunked":
            parts: list[bytes] = []
            while size := int(wire.readline(), 16):
                parts.append(wire.read(size + 2)[:size])
            wire.readline()
            return b"".join(parts)
        if "content-length" not in headers:
            return b"" if "read_to_the_end" in self.without else wire.read()
        length = int(headers["content-length"])
        if "large_answers" in self.without:
            length = min(length, SHORT)
        body = wire.read(length)
        if len(body) < length:
            self.ended()
        return body

    def unpacked(self, body: bytes, headers: dict[str, str]) -> bytes:
        """Return what the headers say of a body."""
        kind = headers.get("content-type", "")
        if body and "content_types" in self.without and not kind.startswith(("application/json", "text/event-stream")):
            raise ValueError("unexpected response")
        if "any_encoding" in self.without and "content-encoding" in headers:
            return {"gzip": gzip.decompress}[headers["content-encoding"]](body)
        return body
