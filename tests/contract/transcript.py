"""What a server of the contract tests was sent, read from its record and freed of what may differ between two runs.

Pure but for reading the file. Knows both records: lines of stdio, and HTTP requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

__all__ = ["HUNG_UP", "Json", "Transcript", "read"]

Json = dict[str, Any]
HEADERS = ("accept", "content-type", "last-event-id")
"""Headers that say something of MCP, beside those that begin with `mcp-`."""
INFO = ("clientInfo", "io.modelcontextprotocol/clientInfo")
MADE_UP = ("progressToken", "requestState")
"""Members whose value each run makes up anew; that a sealed state comes back as it was, the server itself checks."""
HUNG_UP = "hung up"


@dataclass(slots=True)
class Transcript:
    """What a server was sent.

    Attributes:
        messages: The JSON-RPC messages in order, over HTTP each with the head of its request; and what was hung up
            on: streams closed by the client before their end. An id is the method and name of its request.
        beside: Each different listing and listening; a connection makes them when it sees fit, beside the others.
        streams: Each different HTTP request without a body; they run beside the others, too.
    """

    messages: list[Json] = field(default_factory=list[Json])
    beside: list[Json] = field(default_factory=list[Json])
    streams: list[Json] = field(default_factory=list[Json])

    def methods(self) -> list[str]:
        """Return what was sent in a word each: the method, or `answer`, or `hung up`."""
        return [HUNG_UP if HUNG_UP in entry else str(entry.get("method", "answer")) for entry in self.messages]


def read(file: Path) -> Transcript:
    """Return the transcript of a record; a last line that is not complete yet is left out.

    Raises:
        AssertionError: A message is no JSON-RPC message of a client, or an id was used twice.
    """
    text = file.read_bytes() if file.exists() else b""
    reader = _Reader()
    for line in text.split(b"\n")[:-1]:
        reader.take(json.loads(line))
    transcript = reader.transcript
    for unordered in (transcript.beside, transcript.streams):
        unordered.sort(key=str)
    return transcript


class _Reader:
    """Takes the entries of one record, in order."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self._requests: dict[str, str] = {}
        self._given: dict[str, list[Any]] = {}

    def take(self, entry: Json) -> None:
        if "hung_up" in entry:
            self._place({HUNG_UP: self._requests[repr(entry["hung_up"])]})
        elif "headers" not in entry:
            self._place(self._message(entry))
        else:
            headers = {name: value for name, value in entry["headers"].items() if _counts(name)}
            if "mcp-session-id" in headers:
                headers["mcp-session-id"] = self._name("session", headers["mcp-session-id"])
            head = {"method": entry["method"], "path": entry["path"], "headers": headers}
            if entry["body"]:
                self._place({"http": head, **self._message(json.loads(entry["body"]))})
            elif head not in self.transcript.streams:
                self.transcript.streams.append(head)

    def _place(self, entry: Json) -> None:
        about = str(entry.get("id") or entry.get(HUNG_UP) or entry.get("params", {}).get("requestId", ""))
        if not about.endswith(("/list", "/listen")):
            self.transcript.messages.append(entry)
        elif "method" in entry and entry["method"] == about and entry not in self.transcript.beside:
            self.transcript.beside.append(entry)  # how they end is the business of the last moment

    def _message(self, message: Json) -> Json:
        assert message["jsonrpc"] == "2.0", message
        told = cast("Json", self._plain(message))
        params: Json = told.get("params", {})
        if "method" in told and "id" in told:
            key = repr(told["id"])
            assert isinstance(told["id"], (int, str)), f"no id of a request: {message}"
            assert key not in self._requests, f"an id is used twice: {message}"
            self._requests[key] = " ".join((told["method"], *_name_of(params)))
            told["id"] = self._requests[key]
        elif told.get("method") == "notifications/cancelled":
            params["requestId"] = self._requests[repr(params["requestId"])]
        return told

    def _plain(self, value: Any, key: str = "") -> Any:
        if key in MADE_UP:
            return self._name(key, value)
        if key in INFO:
            return {**value, "version": "*"}
        if isinstance(value, Mapping):
            return {name: self._plain(item, name) for name, item in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list):
            return [self._plain(item) for item in cast("list[Any]", value)]
        return value

    def _name(self, kind: str, value: Any) -> str:
        """Return a name for a value that another run makes up otherwise: by its first appearance."""
        known = self._given.setdefault(kind, [])
        if value not in known:
            known.append(value)
        return f"{kind} {known.index(value) + 1}"


def _name_of(params: Mapping[str, Any]) -> list[str]:
    return [params[key] for key in ("name", "uri") if isinstance(params.get(key), str)]


def _counts(header: str) -> bool:
    return header in HEADERS or header.startswith("mcp-")
