"""Callers that send plain calls, or anything else, to a gateway over HTTP, and what shows which way a call took."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread

from tests.gateway.relayed import MODERN, Json
from toolweave.middleware import Observers, RequestEnd

__all__ = ["META", "SECONDS", "Plain", "Ways", "again", "long_way", "never_at_once", "plain", "seen_upstream"]

SECONDS = 60.0
NOTICED = 15.0
"""Seconds until a caller that left has been noticed: half of what a body may take to arrive."""
META: Json = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "caller", "version": "0"},
}


def never_at_once(config: Json) -> Json:
    """Return the entry of a server whose calls all take the relay, because they have a total bound."""
    return {**config, "timeout": {"call_total": 10 * SECONDS}}


class Ways(Observers):
    """Middleware that only watches, and says which way calls took."""

    def __init__(self) -> None:
        super().__init__(self.note_fast)
        self.fast: list[str] = []
        self.long: list[str] = []

    async def __call__(self, request: Any, call_next: Any) -> Any:
        """Note a call that came all the way."""
        if request.method == "tools/call":
            self.long.append(request.params.get("name"))
        return await call_next(request)

    def note_fast(self, end: RequestEnd) -> None:
        """Note a call that did not."""
        self.fast.append(str(end.name))


def long_way(app: Any) -> Any:
    """Wrap an ASGI app so that all of its requests take the long way: a repeated header is unusual."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"x-twice", b"1"), (b"x-twice", b"2")]}
        await app(scope, receive, send)

    return served


class Plain:
    """A client that sends what it is given, over one connection.

    Attributes:
        session: Headers of its session, if it has one.
        always: Headers of all requests.
    """

    def __init__(self, url: str, version: str) -> None:
        parts = urlsplit(url)
        self.path = parts.path
        self.modern = version == MODERN
        self.version = version
        self.session: dict[str, str] = {}
        self.always: dict[str, str] = {}
        self._connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=SECONDS)

    def close(self) -> None:
        """Leave."""
        self._connection.close()

    def send(self, body: bytes, headers: Mapping[str, str | None], twice: Sequence[tuple[str, str]] = ()) -> None:
        """Send a request; a header that is None is left out."""
        connection = self._connection
        connection.putrequest("POST", self.path, skip_host="Host" in headers, skip_accept_encoding=True)
        usual = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        usual |= self.always | self.session
        given = {**usual, "Content-Length": str(len(body)), **headers}
        for name, value in (*((name, value) for name, value in given.items() if value is not None), *twice):
            connection.putheader(name, value)
        connection.endheaders(body)

    def answer(self) -> tuple[int, str | None, Any]:
        """Return status, type and JSON of the answer, or its text."""
        answer = self._connection.getresponse()
        text = answer.read()
        try:
            said: Any = json.loads(text)
        except ValueError:
            said = text
        return answer.status, answer.headers.get("content-type"), said

    def talk(
        self, body: bytes, headers: Mapping[str, str | None], twice: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, str | None, Any]:
        """Send a request and return its answer, in a thread: the gateway is served in the test's event loop."""
        self.send(body, headers, twice)
        return self.answer()

    async def ask(
        self, body: bytes, headers: Mapping[str, str | None], twice: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, str | None, Any]:
        """Send a request and return its answer."""
        return await anyio.to_thread.run_sync(self.talk, body, headers, twice)

    def call(self, name: str, arguments: Any = ..., *, key: Any = 1, **members: Any) -> tuple[bytes, Json]:
        """Return body and headers of a call."""
        params: Json = {"name": name, **members}
        if arguments is not ...:
            params["arguments"] = arguments
        headers: Json = {}
        if self.modern:
            params.setdefault("_meta", META)
            headers = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": name}
        return json.dumps({"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params}).encode(), headers

    def leave(self) -> None:
        """End the session."""
        self._connection.request("DELETE", self.path, headers=self.session)
        self._connection.getresponse().read()

    def begin(self, **capabilities: Any) -> None:
        """Make the handshake of its era."""
        if self.modern:
            return
        client = {
            "protocolVersion": self.version,
            "capabilities": capabilities,
            "clientInfo": {"name": "c", "version": "0"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
        self.send(json.dumps(message).encode(), {})
        answer = self._connection.getresponse()
        answer.read()
        self.session = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "Mcp-Protocol-Version": self.version}
        self.talk(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', {})

    async def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        await self.ask(json.dumps(message).encode(), {})


@asynccontextmanager
async def plain(url: str, version: str, *, token: str | None = None, **capabilities: Any) -> AsyncGenerator[Plain]:
    """Speak to a gateway in a revision."""
    client = Plain(url, version)
    if token is not None:
        client.always = {"Authorization": f"Bearer {token}"}
    await anyio.to_thread.run_sync(partial(client.begin, **capabilities))
    try:
        yield client
    finally:
        client.close()


@asynccontextmanager
async def again(client: Plain, url: str) -> AsyncGenerator[Plain]:
    """Speak in the session of a client, over a connection of its own: some answers end it."""
    one = Plain(url, client.version)
    one.session = client.session
    try:
        yield one
    finally:
        one.close()


async def seen_upstream(client: Plain) -> Json:
    """Return what an upstream says of the requests it got."""
    _, _, answer = await client.ask(*client.call("state", {}, key="state"))
    result: Json = answer["result"]
    return result.get("structuredContent") or json.loads(result["content"][0]["text"])
